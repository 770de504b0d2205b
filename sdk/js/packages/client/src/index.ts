// The client of ckptd.

export { Client, type ThreadPlace } from "./client.js";
export type { ClientOptions } from "./config.js";
export * from "./errors.js";
export type { Service } from "./services.js";
export { change, Session } from "./session.js";
export { Cache, type Remembered } from "./cache.js";
export { apply, edits, MAX_EDITS, type Replace } from "./splices.js";
export {
  Thread,
  type HistoryOptions,
  type LoadOptions,
  type PruneOptions,
  type WritesOptions,
} from "./thread.js";
export {
  asJson,
  Channel,
  type ChannelHistory,
  Edit,
  packDraft,
  Put,
  Remove,
  unpackCheckpoint,
  unpackWrite,
  type Blob,
  type Channels,
  type Checkpoint,
  type Content,
  type Draft,
  type Event,
  type PendingWrite,
  type Place,
  type Ref,
  type ThreadInfo,
  type Write,
} from "./types.js";
export {
  User,
  type BlobContent,
  type LatestOptions,
  type ListOptions,
  type ThreadsOptions,
} from "./user.js";
export type { WatchOptions } from "./watch.js";
