// The facts that a saver keeps between calls. All of it is bounded, and only speeds up saves or makes
// them stricter: without it, a save sends the whole state.

/** The serialized value of a channel. */
export interface Part {
  /** LangGraph's version; undefined for a channel without one. */
  readonly version: number | string | undefined;
  readonly type: string;
  readonly data: Uint8Array;
  /** The daemon's version, which edits name as their base. */
  readonly base: bigint;
}

export type Parts = ReadonlyMap<string, Part>;

/** Facts about a checkpoint for the saves and writes that follow it. */
export interface Known {
  /** Generation of its namespace; 0 if unknown. */
  readonly generation: number;
  /** Seq of the lineage's head when the checkpoint was saved or loaded; undefined if unknown. */
  readonly head: number | undefined;
}

const NONE: Parts = new Map();
const UNKNOWN: Known = { generation: 0, head: undefined };

// How many states of a lineage are kept: time travel loads the one to continue and the newest one.
const STATES = 2;
// The bytes of memory that a channel takes besides its content, roughly.
const OVERHEAD = 256;
// How many checkpoints are known by generation and head, and how many versions by name.
const KNOWN = 8_192;
const STORED = 65_536;

/** The most recently used states, bounded by their size in bytes. */
export class Memory {
  private bytes = 0;
  // Least recently used lineage first, and in it the oldest state.
  private readonly states = new Map<string, Map<string, Parts>>();
  private readonly facts = new Map<string, Known>();
  private readonly stored = new Set<string>();

  constructor(private readonly most: number) {}

  /** Returns the channels of a checkpoint, if they are in memory. */
  parts(lineage: string, id: string): Parts | undefined {
    const states = this.states.get(lineage);
    const parts = states?.get(id);
    if (states !== undefined && parts !== undefined) {
      this.states.delete(lineage);
      this.states.set(lineage, states);
    }
    return parts;
  }

  /** Keeps the channels of a checkpoint. */
  remember(lineage: string, id: string, parts: Parts): void {
    const size = sizeOf(parts);
    const states = this.states.get(lineage) ?? new Map<string, Parts>();
    this.states.delete(lineage);
    this.states.set(lineage, states);
    this.forget(states, id);
    for (const oldest of states.keys()) {
      if (states.size < STATES) break;
      this.forget(states, oldest);
    }
    if (size <= this.most) {
      states.set(id, parts);
      this.bytes += size;
    }
    while (this.bytes > this.most) this.forgetOldest();
    if (states.size === 0) this.states.delete(lineage);
    for (const [name, part] of parts) this.store(lineage, name, part.version);
  }

  private forget(states: Map<string, Parts>, id: string): void {
    this.bytes -= sizeOf(states.get(id) ?? NONE);
    states.delete(id);
  }

  private forgetOldest(): void {
    for (const [lineage, states] of this.states) {
      for (const id of states.keys()) {
        this.forget(states, id);
        break;
      }
      if (states.size === 0) this.states.delete(lineage);
      return;
    }
  }

  private store(lineage: string, name: string, version: Part["version"]): void {
    const key = JSON.stringify([lineage, name, version]);
    this.stored.delete(key);
    this.stored.add(key);
    for (const oldest of this.stored) {
      if (this.stored.size <= STORED) break;
      this.stored.delete(oldest);
    }
  }

  /** Reports whether a checkpoint that was saved or loaded lately has this version of a channel. */
  isStored(lineage: string, name: string, version: Part["version"]): boolean {
    return this.stored.has(JSON.stringify([lineage, name, version]));
  }

  /** Returns the facts about a checkpoint. */
  known(lineage: string, id: string): Known {
    return this.facts.get(JSON.stringify([lineage, id])) ?? UNKNOWN;
  }

  /** Adds facts about a checkpoint. */
  learn(lineage: string, id: string, facts: Partial<Known>): void {
    const key = JSON.stringify([lineage, id]);
    const known = { ...(this.facts.get(key) ?? UNKNOWN), ...facts };
    this.facts.delete(key);
    this.facts.set(key, known);
    for (const oldest of this.facts.keys()) {
      if (this.facts.size <= KNOWN) break;
      this.facts.delete(oldest);
    }
  }

  /** The number of bytes in memory, roughly. */
  get size(): number {
    return this.bytes;
  }
}

function sizeOf(parts: Parts): number {
  let size = 0;
  for (const [name, part] of parts) size += name.length + part.data.length + OVERHEAD;
  return size;
}
