// Converts between LangGraph's checkpoints and the daemon's, without I/O.
//
// Each channel of a checkpoint is a channel with the type and the bytes that the serializer gave it.
// The rest of the checkpoint is JSON in the channel BODY: its fields v, ts, channel_versions and
// versions_seen, so that a migration can rename a channel with its versions. The metadata is the JSON
// in `meta`; its run_id and step are also those of the daemon.

import type { RunnableConfig } from "@langchain/core/runnables";
import {
  WRITES_IDX_MAP,
  type Checkpoint,
  type CheckpointMetadata,
  type CheckpointPendingWrite,
  type PendingWrite,
  type SerializerProtocol,
} from "@langchain/langgraph-checkpoint";
import {
  change,
  Edit,
  InvalidError,
  Put,
  type Channel,
  type Checkpoint as Stored,
  type Content,
  type Write,
} from "@ckptd/client";
import type { Part, Parts } from "./memory.js";

/** The channel with everything of a checkpoint but the values of its channels. */
export const BODY = "__langgraph__";

/** Keys of `configurable` that name the owner of a thread. */
export const TENANT = "ckptd_tenant";
export const USER = "ckptd_user";
export const TOKEN = "__ckptd_token";

/** The owner that a config names, in the keys of `configurable`. */
export type Owner = Readonly<Partial<Record<typeof TENANT | typeof USER | typeof TOKEN, string>>>;

/** The lineage, the checkpoint and the owner that a config names. */
export interface Address {
  readonly thread: string;
  readonly namespace: string;
  /** Empty if the config names no checkpoint. */
  readonly id: string;
  readonly owner: Owner;
}

/** Returns the address in a config, or undefined without a thread. */
export function addressOf(config: RunnableConfig): Address | undefined {
  const conf = config.configurable ?? {};
  const thread: unknown = conf["thread_id"];
  if (thread === undefined || thread === null) return undefined;
  return {
    thread: String(thread),
    namespace: String(conf["checkpoint_ns"] ?? ""),
    id: String(conf["checkpoint_id"] || conf["thread_ts"] || ""),
    owner: ownerOf(config),
  };
}

/** Returns the owner that a config names. */
export function ownerOf(config: RunnableConfig | undefined): Owner {
  const conf = config?.configurable ?? {};
  const owner: Record<string, string> = {};
  for (const key of [TENANT, USER, TOKEN]) {
    const value: unknown = conf[key];
    if (value !== undefined && value !== null) owner[key] = String(value);
  }
  return owner;
}

/** Returns the config that names a checkpoint. */
export function configOf(
  thread: string,
  namespace: string,
  id: string,
  owner: Owner,
): { configurable: Record<string, string> } {
  return {
    configurable: { thread_id: thread, checkpoint_ns: namespace, checkpoint_id: id, ...owner },
  };
}

/** Returns the content of BODY. */
export function bodyOf(checkpoint: Checkpoint): Uint8Array {
  const { id: _id, channel_values: _values, ...rest } = checkpoint;
  return new Uint8Array(Buffer.from(JSON.stringify(rest)));
}

/**
 * Returns the channels whose state lies in the writes of ancestors. LangGraph counts the updates of
 * each delta channel since its last snapshot.
 */
export function deltaOf(checkpoint: Checkpoint, metadata: CheckpointMetadata): string[] {
  const counters = Object.keys(metadata.counters_since_delta_snapshot ?? {});
  return counters.filter((name) => !(name in checkpoint.channel_values));
}

/**
 * Returns the id of the thread's checkpoint that a namespace hangs on, for its first save. Each call
 * of a subgraph has a namespace with the id of its task; a subgraph that keeps its state from call to
 * call has none.
 */
export function calledFrom(at: Address, metadata: CheckpointMetadata): string {
  if (at.id !== "" || !at.namespace.includes(":")) return "";
  return metadata.parents?.[""] ?? "";
}

/** Returns the run that a checkpoint belongs to, or "". */
export function runOf(config: RunnableConfig, metadata: CheckpointMetadata): string {
  const from = [metadata, config.configurable, config.metadata] as (Record<string, unknown> | undefined)[];
  const found = from.map((m) => m?.["run_id"]).find((v) => typeof v === "string");
  return (found as string | undefined) ?? config.runId ?? "";
}

/**
 * Returns the parts of a checkpoint. Those of channels that did not change are the parent's, and the
 * others lack the daemon's version.
 *
 * newVersions names changes since the last checkpoint of the run, not since the parent: a fork by
 * __copy__ hands over none, with the parent of the checkpoint that it copies. So a channel stays as it
 * is if the parent has this version of it. A value that newVersions does not name and that is not in
 * the store is left out: wanted reports whether others are to be saved.
 */
export async function partsOf(
  serde: SerializerProtocol,
  checkpoint: Checkpoint,
  had: Parts,
  wanted: (name: string, version: Part["version"]) => boolean,
): Promise<Parts> {
  const found = await Promise.all(
    Object.entries(checkpoint.channel_values).map(async ([name, value]) => {
      if (name === BODY) {
        throw new InvalidError(`the graph has a channel ${BODY}, a name that ckptd uses itself`);
      }
      const version = checkpoint.channel_versions[name];
      const was = had.get(name);
      if (was !== undefined && version !== undefined && was.version === version) {
        return [name, was] as const;
      }
      if (!wanted(name, version)) return undefined;
      const [type, data] = await serde.dumpsTyped(value);
      return [name, { version, type, data, base: 0n }] as const;
    }),
  );
  const parts = new Map(found.filter((f) => f !== undefined));
  parts.set(BODY, { version: undefined, type: "json", data: bodyOf(checkpoint), base: 0n });
  return parts;
}

/** Returns the contents that make parts from the parent's. */
export function changesOf(parts: Parts, had: Parts): Map<string, Content> {
  const changes = new Map<string, Content>();
  for (const [name, part] of parts) {
    const was = had.get(name);
    if (was === part) {
      changes.set(name, new Edit(was.base, []));
    } else {
      const remembered = was && { type: was.type, version: was.base, data: was.data };
      changes.set(name, change(remembered, new Put(part.data, part.type)));
    }
  }
  return changes;
}

/** Returns the whole contents of parts. */
export function wholeOf(parts: Parts): Map<string, Content> {
  return new Map([...parts].map(([name, part]) => [name, new Put(part.data, part.type)]));
}

/** Returns the parts that the daemon stored as they were sent, with their versions there. */
export function savedParts(parts: Parts, saved: Stored): Parts {
  const found = new Map<string, Part>();
  for (const [name, part] of parts) {
    const c = saved.channels.get(name);
    // Of a rewritten channel, the daemon has other bytes: no edit of the sent ones is correct.
    if (c !== undefined && !c.rewritten && c.size === part.data.length) {
      found.set(name, { ...part, base: c.version });
    }
  }
  return found;
}

/** Reads a checkpoint, and returns its parts, too. */
export async function read(
  serde: SerializerProtocol,
  stored: Stored,
): Promise<{ checkpoint: Checkpoint; parts: Parts }> {
  const body = stored.channels.get(BODY);
  if (body === undefined) {
    throw new InvalidError(
      `checkpoint ${stored.id} has no channel ${BODY}: another program than LangGraph saved it`,
    );
  }
  const rest = body.json() as Omit<Checkpoint, "id" | "channel_values">;
  const others = [...stored.channels.values()].filter((c) => c.name !== BODY);
  const values = await Promise.all(
    others.map(async (c) => [c.name, await serde.loadsTyped(c.type, c.data)] as const),
  );
  const checkpoint = { ...rest, id: stored.id, channel_values: Object.fromEntries(values) };
  const parts = new Map<string, Part>([[BODY, partOf(body, undefined)]]);
  for (const c of others) parts.set(c.name, partOf(c, checkpoint.channel_versions[c.name]));
  return { checkpoint, parts };
}

function partOf(c: Channel, version: Part["version"]): Part {
  return { version, type: c.type, data: c.data, base: c.version };
}

/** Returns the writes of a task as the daemon takes them, and whether old ones stay. */
export async function writesOf(
  serde: SerializerProtocol,
  writes: readonly PendingWrite[],
): Promise<{ writes: Write[]; ignoreExisting: boolean }> {
  const packed = await Promise.all(
    writes.map(async ([channel, value], place) => {
      const [type, data] = await serde.dumpsTyped(value);
      return { channel, type, data, index: WRITES_IDX_MAP[channel] ?? place };
    }),
  );
  // Of several with one special index, the last counts.
  const distinct = [...new Map(packed.map((w) => [w.index, w])).values()];
  return { writes: distinct, ignoreExisting: writes.some(([c]) => !(c in WRITES_IDX_MAP)) };
}

/** Reads the writes of a checkpoint. */
export function readWrites(
  serde: SerializerProtocol,
  writes: Stored["writes"],
): Promise<CheckpointPendingWrite[]> {
  return Promise.all(
    writes.map(async ({ task, write }): Promise<CheckpointPendingWrite> => {
      return [task, write.channel, await serde.loadsTyped(write.type, write.data)];
    }),
  );
}
