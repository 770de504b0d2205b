// Saves a thread step by step, and sends only the differences between states.

import type { Remembered } from "./cache.js";
import type { Caller } from "./calls.js";
import { NeedFullError } from "./errors.js";
import { edits } from "./splices.js";
import type { Thread } from "./thread.js";
import {
  Edit,
  entriesOf,
  Put,
  Remove,
  type Channels,
  type Checkpoint,
  type Content,
  type Draft,
  type Place,
} from "./types.js";

type Contents = ReadonlyMap<string, Remembered>;

/**
 * Saves a thread step by step, and sends only the differences between states.
 *
 * The client keeps the contents that were saved or loaded last, up to cacheBytes for all its
 * sessions. The result is always the checkpoint that the whole contents would have made: if the
 * daemon has another base, the session sends them whole. Channels that hooks rewrite are always sent
 * whole. Do not change a content after saving it. Make one call of a session at a time.
 */
export class Session {
  constructor(
    private readonly caller: Caller,
    private readonly thread: Thread,
  ) {}

  /** Saves a draft with whole contents, as Thread.save does. */
  async save(draft: Draft | Channels): Promise<Checkpoint> {
    const { cache } = this.caller;
    const { key } = this.thread;
    const made = draftOf(draft);
    const whole = { ...made, id: made.id || this.caller.newId() }; // the same for both attempts
    const have = cache.of(key);
    let saved: Checkpoint;
    try {
      saved = await this.thread.save({ ...whole, channels: shortened(whole.channels, have) });
    } catch (e) {
      if (!(e instanceof NeedFullError)) throw e;
      saved = await this.thread.save(whole);
    }
    cache.set(key, afterSave(whole.channels, saved, have));
    return saved;
  }

  /** Loads a checkpoint with all channels, without receiving known contents again. */
  async load(place?: Place, options: { writes?: boolean } = {}): Promise<Checkpoint> {
    const { cache } = this.caller;
    const { key } = this.thread;
    const had = cache.of(key);
    const have = new Map([...had].map(([name, c]) => [name, c.data]));
    const loaded = await this.thread.load(place, { ...options, have });
    cache.set(key, afterLoad(loaded, had));
    return loaded;
  }
}

/** Returns the draft of a state. */
export function draftOf(draft: Draft | Channels): Draft {
  const { channels } = draft as Draft;
  const isState = draft instanceof Map || channels === undefined || isContent(channels);
  return isState ? { channels: draft as Channels } : (draft as Draft);
}

function isContent(value: unknown): boolean {
  return [Uint8Array, Put, Edit, Remove].some((c) => value instanceof c);
}

/** Returns the change that turns had into now: edits if they are short, or else the whole. */
export function change(had: Remembered | undefined, now: Put): Content {
  if (had === undefined) return now;
  const replace = edits(had.data, now.data);
  let size = 0;
  for (const r of replace) size += r.data.length;
  // If most of the content is new, an edit saves little and can meet NEED_FULL. Without a type, an
  // edit would keep the channel's type.
  return 4 * size <= 3 * now.data.length ? new Edit(had.version, replace, now.type) : now;
}

function shortened(channels: Channels, have: Contents): Channels {
  const out = new Map<string, Content>();
  for (const [name, content] of entriesOf(channels)) {
    const put = putOf(content);
    out.set(name, put === undefined ? content : change(have.get(name), put));
  }
  return out;
}

function afterSave(channels: Channels, saved: Checkpoint, have: Contents): Contents {
  const now = new Map(have);
  for (const [name, content] of entriesOf(channels)) {
    const put = putOf(content);
    if (put === undefined) now.delete(name);
    else remember(now, saved, name, put.data);
  }
  return current(now, saved);
}

function afterLoad(loaded: Checkpoint, have: Contents): Contents {
  const now = new Map(have);
  for (const [name, c] of loaded.channels) {
    // A copy: the content is part of the whole answer, which is larger.
    const data = have.get(name)?.version === c.version ? c.data : new Uint8Array(c.data);
    remember(now, loaded, name, data);
  }
  return current(now, loaded);
}

function putOf(content: Content): Put | undefined {
  if (content instanceof Put) return content;
  return content instanceof Uint8Array ? new Put(content) : undefined;
}

function remember(
  now: Map<string, Remembered>,
  cp: Checkpoint,
  name: string,
  data: Uint8Array,
): void {
  const c = cp.channels.get(name);
  if (c === undefined || c.rewritten || c.size !== data.length) {
    now.delete(name); // the version is of other bytes
  } else {
    now.set(name, { type: c.type, version: c.version, data });
  }
}

/** Drops contents that are not those of the checkpoint. */
function current(now: Contents, cp: Checkpoint): Contents {
  return new Map([...now].filter(([name, c]) => cp.channels.get(name)?.version === c.version));
}
