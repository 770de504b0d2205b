// Channel contents that a client keeps, so that saves can send edits.

/** The content of a channel, and the version that the daemon gave it. */
export interface Remembered {
  readonly type: string;
  readonly version: bigint;
  readonly data: Uint8Array;
}

/** The most recently used channels, grouped by lineage and bounded by their size in bytes. */
export class Cache {
  private bytes = 0;
  /** Least recently used first. */
  private readonly lineages = new Map<string, ReadonlyMap<string, Remembered>>();

  constructor(private readonly most: number) {}

  /** Returns the cached channels of a lineage. */
  of(lineage: string): ReadonlyMap<string, Remembered> {
    const channels = this.lineages.get(lineage);
    if (channels === undefined) return new Map();
    this.lineages.delete(lineage);
    this.lineages.set(lineage, channels);
    return channels;
  }

  /** Replaces the cached channels of a lineage. */
  set(lineage: string, channels: ReadonlyMap<string, Remembered>): void {
    this.drop(lineage);
    const size = sizeOf(channels);
    if (size === 0 || size > this.most) return;
    this.lineages.set(lineage, channels);
    this.bytes += size;
    for (const oldest of this.lineages.keys()) {
      if (this.bytes <= this.most) break;
      this.drop(oldest);
    }
  }

  /** Forgets a lineage. */
  drop(lineage: string): void {
    const channels = this.lineages.get(lineage);
    if (channels === undefined) return;
    this.lineages.delete(lineage);
    this.bytes -= sizeOf(channels);
  }

  /** The number of bytes in the cache. */
  get size(): number {
    return this.bytes;
  }
}

function sizeOf(channels: ReadonlyMap<string, Remembered>): number {
  let size = 0;
  for (const c of channels.values()) size += c.data.length;
  return size;
}
