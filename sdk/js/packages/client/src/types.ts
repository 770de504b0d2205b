// The values of the client and their conversion to and from messages.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs, timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";
import { InvalidError } from "./errors.js";
import {
  WhichSchema,
  type ChangeSchema,
  type Channel as ChannelMessage,
  type Checkpoint as CheckpointMessage,
  type DraftSchema,
  type PendingWrite as PendingWriteMessage,
  type Ref as RefMessage,
  type Which,
  type WriteSchema,
} from "./gen/ckptd/v1/types_pb.js";
import type {
  Event as EventMessage,
  ThreadInfo as ThreadInfoMessage,
} from "./gen/ckptd/v1/thread_service_pb.js";
import type { ChannelHistory as ChannelHistoryMessage } from "./gen/ckptd/v1/checkpoint_service_pb.js";
import type { Replace } from "./splices.js";

/** Names a lineage: a thread of a user of a tenant, and a namespace in the thread. */
export interface Ref {
  readonly tenant: string;
  readonly user: string;
  readonly thread: string;
  /** The unnamed namespace is the thread's own. */
  readonly namespace: string;
}

/** Names a checkpoint: a Which, or an id. Undefined is the newest by seq. */
export type Place = string | MessageInitShape<typeof WhichSchema> | undefined;

/** The whole content of a channel, with its type tag: json, msgpack, bytes or your own. */
export class Put {
  constructor(
    readonly data: Uint8Array,
    readonly type = "bytes",
  ) {}
}

/**
 * Replaces ranges of the parent's channel, in order and without overlap. base is the version of the
 * parent's channel, and all ranges are offsets in it. Without a type the channel keeps its own.
 */
export class Edit {
  constructor(
    readonly base: bigint,
    readonly replace: readonly Replace[],
    readonly type = "",
  ) {}
}

/** Drops a channel that a draft with keep would take over from the parent. */
export class Remove {}

/** A change of a channel. Plain bytes mean Put(bytes). */
export type Content = Uint8Array | Put | Edit | Remove;

/** The channels of a state, or the changes to them. */
export type Channels = Readonly<Record<string, Content>> | ReadonlyMap<string, Content>;

/** Returns a value as the content of a channel, in JSON. */
export function asJson(value: unknown): Put {
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) throw new InvalidError(`the value is not JSON: ${String(value)}`);
  return new Put(new Uint8Array(Buffer.from(text)), "json");
}

/** A checkpoint to save. The fields are those of ckptd.v1.Draft. */
export interface Draft {
  /** The whole state or, with keep, the changes to the parent's. */
  readonly channels: Channels;
  /** Empty: the client makes a UUIDv7, so that it can repeat the save. */
  readonly id?: string | undefined;
  /** Id of the parent; empty is the head. */
  readonly parent?: string | undefined;
  /** The checkpoint has no parent. */
  readonly root?: boolean | undefined;
  /** Accept a parent that does not exist. */
  readonly allowDangling?: boolean | undefined;
  /** A named head to extend; created if it does not exist. */
  readonly branch?: string | undefined;
  /** Fail with ConflictError unless the head has this seq; 0 means no head. */
  readonly expectHead?: number | undefined;
  /** If not 0, fail with GenerationError unless the thread has it. */
  readonly generation?: number | undefined;
  readonly step?: number | undefined;
  /** Empty is running. */
  readonly status?: string | undefined;
  readonly schemaVersion?: number | undefined;
  /** With keep, undefined keeps the parent's, and empty means no run. */
  readonly runId?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** JSON. */
  readonly meta?: string | undefined;
  /** Ids of the blobs that the checkpoint keeps alive. */
  readonly blobs?: readonly string[] | undefined;
  /** Keep everything from the parent that the draft leaves out. */
  readonly keep?: boolean | undefined;
  /** Id of the checkpoint in the unnamed namespace that this namespace hangs on. */
  readonly calledFrom?: string | undefined;
  /** Channels without a value here, whose state lies in pending writes of ancestors. */
  readonly delta?: readonly string[] | undefined;
  /** Let the thread expire this many milliseconds after its last save; negative: never. */
  readonly ttl?: number | undefined;
  /** The agent or workflow that the thread is a run of. */
  readonly kind?: string | undefined;
}

/** Returns the message of a draft. */
export function packDraft(d: Draft, id: string): MessageInitShape<typeof DraftSchema> {
  const draft: MessageInitShape<typeof DraftSchema> = {
    id,
    parent: d.parent ?? "",
    root: d.root ?? false,
    allowDangling: d.allowDangling ?? false,
    branch: d.branch ?? "",
    generation: BigInt(d.generation ?? 0),
    step: BigInt(d.step ?? 0),
    status: d.status ?? "",
    schemaVersion: BigInt(d.schemaVersion ?? 0),
    keep: d.keep ?? false,
    kind: d.kind ?? "",
    channels: packChannels(d.channels),
    delta: [...(d.delta ?? [])],
    calledFrom: d.calledFrom ?? "",
  };
  if (d.expectHead !== undefined) draft.expectHead = BigInt(d.expectHead);
  if (d.runId !== undefined) {
    draft.runId = d.runId;
    draft.noRun = d.runId === "";
  }
  if (d.meta !== undefined) draft.meta = d.meta;
  if (d.labels !== undefined) draft.labels = { labels: { ...d.labels } };
  if (d.blobs !== undefined) draft.blobs = { ids: [...d.blobs] };
  if (d.ttl !== undefined) draft.ttl = durationFromMs(d.ttl);
  return draft;
}

type ChangeInit = MessageInitShape<typeof ChangeSchema>;

function packChannels(channels: Channels): ChangeInit[] {
  return [...entriesOf(channels)].map(([name, content]) => packChange(name, content));
}

/** Returns the names and contents of channels. */
export function entriesOf(channels: Channels): Iterable<readonly [string, Content]> {
  return channels instanceof Map ? channels : Object.entries(channels);
}

function packChange(name: string, c: Content): ChangeInit {
  if (c instanceof Uint8Array) return { name, content: { case: "data", value: c } };
  if (c instanceof Put) return { name, type: c.type, content: { case: "data", value: c.data } };
  if (c instanceof Remove) return { name, content: { case: "remove", value: true } };
  if (c instanceof Edit) {
    const replace = c.replace.map((r) => ({
      from: BigInt(r.start),
      to: BigInt(r.end),
      content: { case: "data" as const, value: r.data },
    }));
    return { name, type: c.type, content: { case: "splices", value: { base: c.base, replace } } };
  }
  throw new InvalidError(`channel "${name}" is a ${typeof c}: want a Uint8Array, or asJson(value)`);
}

/** A named part of a state. */
export class Channel {
  constructor(
    readonly name: string,
    readonly type: string,
    /** Identifies the content as the base of an edit. */
    readonly version: bigint,
    /** Size of the content in bytes, even if it was not loaded. */
    readonly size: number,
    /** The content; empty if it was not loaded. */
    readonly data: Uint8Array,
    /** In the answer to a save: hooks changed the content that was sent. */
    readonly rewritten: boolean,
  ) {}

  /** Returns the content as text. */
  text(): string {
    return Buffer.from(this.data.buffer, this.data.byteOffset, this.data.length).toString("utf8");
  }

  /** Returns the content, which is JSON, as a value. */
  json(): unknown {
    return JSON.parse(this.text());
  }
}

/** A value that a task wrote to a channel. */
export interface Write {
  readonly channel: string;
  readonly data: Uint8Array;
  /** Default: bytes. */
  readonly type?: string | undefined;
  /** Its position among the writes of the task; can be negative. Default 0. */
  readonly index?: number | undefined;
}

/** Returns the message of a write. */
export function packWrite(w: Write): MessageInitShape<typeof WriteSchema> {
  return {
    channel: w.channel,
    type: w.type ?? "bytes",
    index: BigInt(w.index ?? 0),
    content: { case: "data", value: w.data },
  };
}

/** A write of a task, attached to a checkpoint before the next one exists. */
export interface PendingWrite {
  readonly task: string;
  readonly path: string;
  readonly write: {
    readonly channel: string;
    readonly data: Uint8Array;
    readonly type: string;
    readonly index: number;
  };
}

/** Reads the message. */
export function unpackWrite(m: PendingWriteMessage): PendingWrite {
  const { write } = m;
  const data = write?.content.case === "data" ? write.content.value : new Uint8Array();
  const { channel = "", type = "", index = 0n } = write ?? {};
  return { task: m.task, path: m.path, write: { channel, type, index: Number(index), data } };
}

/** An immutable version of a thread's state. The fields are those of the message. */
export interface Checkpoint {
  readonly ref: Ref;
  readonly generation: number;
  readonly id: string;
  readonly parent: string;
  readonly seq: number;
  readonly parentSeq: number;
  readonly branch: string;
  readonly time: Date;
  readonly step: number;
  readonly status: string;
  readonly schemaVersion: number;
  readonly runId: string;
  readonly labels: Readonly<Record<string, string>>;
  /** JSON, as it was saved. */
  readonly meta: string;
  readonly blobs: readonly string[];
  readonly channels: ReadonlyMap<string, Channel>;
  readonly hash: Uint8Array;
  readonly kind: string;
  /** The pending writes, if the load requested them. */
  readonly writes: readonly PendingWrite[];
  /** From a load: the durable head of the lineage. */
  readonly head: { readonly seq: number; readonly id: string } | undefined;
  /** From a load: the histories that it requested, in the same order. */
  readonly histories: readonly ChannelHistory[];
  /** The message, which adds cost, hooks and migrated. */
  readonly message: CheckpointMessage;
}

/** The state of a delta channel: a value, and the writes since. */
export interface ChannelHistory {
  readonly channel: string;
  /** The nearest ancestor that has the channel; empty if none has it. */
  readonly baseId: string;
  /** The channel there. */
  readonly base: Channel | undefined;
  /** The writes to the channel, the oldest first, from that ancestor to the parent. */
  readonly writes: readonly PendingWrite[];
  /** An ancestor that can hold a part was removed: the history begins after it. */
  readonly lost: boolean;
}

/** Reads the message. */
export function unpackHistory(m: ChannelHistoryMessage): ChannelHistory {
  const { channel, baseId, base, lost } = m;
  const writes = m.writes.flatMap((w) => w.writes.map(unpackWrite));
  return { channel, baseId, base: base && unpackChannel(base), writes, lost };
}

const NONE = new Uint8Array();

/** Reads the message. */
export function unpackCheckpoint(
  m: CheckpointMessage,
  writes: readonly PendingWriteMessage[] = [],
): Checkpoint {
  const channels = new Map<string, Channel>();
  for (const c of m.channels) channels.set(c.name, unpackChannel(c));
  return {
    ref: unpackRef(m.ref),
    generation: Number(m.generation),
    id: m.id,
    parent: m.parent,
    seq: Number(m.seq),
    parentSeq: Number(m.parentSeq),
    branch: m.branch,
    time: unpackTime(m.time),
    step: Number(m.step),
    status: m.status,
    schemaVersion: Number(m.schemaVersion),
    runId: m.runId,
    labels: m.labels,
    meta: m.meta,
    blobs: m.blobs,
    channels,
    hash: m.hash,
    kind: m.kind,
    writes: writes.map(unpackWrite),
    head: undefined,
    histories: [],
    message: m,
  };
}

function unpackChannel(m: ChannelMessage): Channel {
  const data = m.content.case === "data" ? m.content.value : NONE;
  return new Channel(m.name, m.type, m.version, Number(m.size), data, m.rewritten);
}

/** Reads the message. */
export function unpackRef(m: RefMessage | undefined): Ref {
  const { tenant = "", user = "", thread = "", namespace = "" } = m ?? {};
  return { tenant, user, thread, namespace };
}

/** Reports a durable checkpoint. */
export interface Event {
  readonly ref: Ref;
  readonly generation: number;
  readonly id: string;
  readonly seq: number;
  readonly time: Date;
  readonly step: number;
  readonly status: string;
  /** Status of the parent. */
  readonly before: string;
  /** Resumes a watch after this event. */
  readonly cursor: string;
}

/** Reads the message. */
export function unpackEvent(m: EventMessage | undefined, cursor: string): Event {
  return {
    ref: unpackRef(m?.ref),
    generation: Number(m?.generation ?? 0),
    id: m?.id ?? "",
    seq: Number(m?.seq ?? 0),
    time: unpackTime(m?.time),
    step: Number(m?.step ?? 0),
    status: m?.status ?? "",
    before: m?.before ?? "",
    cursor,
  };
}

/** Describes a thread and the head of its unnamed namespace. */
export interface ThreadInfo {
  readonly ref: Ref;
  readonly generation: number;
  readonly created: Date;
  readonly expires: Date | undefined;
  readonly updated: Date;
  readonly headId: string;
  readonly headSeq: number;
  readonly step: number;
  readonly status: string;
  readonly runId: string;
  readonly labels: Readonly<Record<string, string>>;
  /** In all namespaces; 0 unless the list counts. */
  readonly checkpoints: number;
  readonly kind: string;
  readonly schemaVersion: number;
  /** Time of the last activity, to the hour. */
  readonly active: Date;
}

/** Reads the message. */
export function unpackThread(m: ThreadInfoMessage): ThreadInfo {
  const { headId, status, runId, labels, kind } = m;
  return {
    ref: unpackRef(m.ref),
    generation: Number(m.generation),
    created: unpackTime(m.created),
    expires: m.expires === undefined ? undefined : timestampDate(m.expires),
    updated: unpackTime(m.updated),
    headId,
    headSeq: Number(m.headSeq),
    step: Number(m.step),
    status,
    runId,
    labels,
    checkpoints: Number(m.checkpoints),
    kind,
    schemaVersion: Number(m.schemaVersion),
    active: unpackTime(m.active),
  };
}

/** Describes a blob. */
export interface Blob {
  readonly id: string;
  readonly size: number;
  /** Time of the last put, to the hour; undefined from putBlob. */
  readonly created: Date | undefined;
}

/** Returns the message that names a checkpoint. */
export function whichOf(place: Place): Which {
  if (typeof place === "string") {
    return create(WhichSchema, { which: { case: "id", value: place } });
  }
  return create(WhichSchema, place);
}

function unpackTime(m: Timestamp | undefined): Date {
  return m === undefined ? new Date(0) : timestampDate(m);
}
