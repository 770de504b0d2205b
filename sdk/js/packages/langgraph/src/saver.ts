// The checkpointer.

import type { RunnableConfig } from "@langchain/core/runnables";
import {
  BaseCheckpointSaver,
  maxChannelVersion,
  MemorySaver,
  TASKS,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type DeltaChannelHistory,
  type PendingWrite,
  type SerializerProtocol,
} from "@langchain/langgraph-checkpoint";
import {
  Client,
  InvalidError,
  NeedFullError,
  NotFoundError,
  type Checkpoint as Stored,
  type ClientOptions,
  type Draft,
  type Place,
  type Thread,
} from "@ckptd/client";
import { Daemon, type LocalOptions } from "./local.js";
import { Memory, type Parts } from "./memory.js";
import {
  addressOf,
  calledFrom,
  changesOf,
  configOf,
  deltaOf,
  ownerOf,
  partsOf,
  read,
  readWrites,
  runOf,
  savedParts,
  TENANT,
  TOKEN,
  USER,
  wholeOf,
  writesOf,
  type Address,
  type Owner,
} from "./states.js";

/** Options of a saver: those of the client, and its own. */
export interface SaverOptions extends ClientOptions {
  /** Serializes values; default: LangGraph's JsonPlusSerializer. */
  readonly serde?: SerializerProtocol | undefined;
  /** Names the agent: schema versions are counted for each kind. */
  readonly kind?: string | undefined;
  /** The version of the agent's state. An older state is migrated when it is loaded. */
  readonly schemaVersion?: number | undefined;
  /** Also migrate newer states back; without it they are SchemaTooNewError. */
  readonly down?: boolean | undefined;
  /** Throw ConflictError if another run saved to the thread since the parent was saved or loaded. */
  readonly strict?: boolean | undefined;
  /** The most bytes of states in memory. Default 64 MiB. */
  readonly cacheBytes?: number | undefined;
}

/** What prune keeps: the latest checkpoint of each namespace, or nothing. */
export type PruneStrategy = "keep_latest" | "delete";

/** A checkpoint that lost a part of the history of these delta channels. */
export interface LostHistory {
  readonly config: RunnableConfig;
  readonly channels: readonly string[];
}

// How many tokens have a client of their own at a time.
const TOKENS = 64;
const NONE: Parts = new Map();

// The metadata is always JSON, whatever the serializer, so that the daemon can filter it.
const metadataSerde = new MemorySaver().serde;

/** A thread's namespace, as the owner of a config sees it. */
interface Lineage {
  readonly thread: Thread;
  readonly key: string;
}

/**
 * Keeps the checkpoints of graphs in the ckptd daemon at a URL.
 *
 * The URL and the options of Client, such as token, tenant and user, default to the environment
 * variables of the `ckptd` command. `configurable` can name the owner of a thread for each call:
 * ckptd_tenant, ckptd_user and __ckptd_token. Create one saver for each process.
 *
 * Without strict, two runs that save to one thread both succeed, as siblings in the history, and the
 * checkpoint with the greatest id is the latest.
 *
 * The saver keeps the last states in memory, up to cacheBytes, and sends only the places that changed.
 */
export class CkptdSaver extends BaseCheckpointSaver {
  private readonly client: Client;
  private readonly others = new Map<string, Client>();
  private readonly memory: Memory;

  constructor(
    private readonly url?: string,
    private readonly options: SaverOptions = {},
  ) {
    super(options.serde);
    this.client = new Client(url, options);
    this.memory = new Memory(options.cacheBytes ?? 64 << 20);
  }

  /** Returns a saver for unix:///path/to/socket, http://host:port or https://host:port. */
  static fromConnString(connString: string, options: SaverOptions = {}): CkptdSaver {
    return new CkptdSaver(connString, options);
  }

  /**
   * Returns a saver for the store in a folder. It starts a daemon on a Unix socket if none serves the
   * store, shares it with other processes, and leaves it to end by itself.
   */
  static async local(folder: string, options: SaverOptions & LocalOptions = {}): Promise<CkptdSaver> {
    const daemon = new Daemon(folder, options);
    await daemon.start();
    const onRetry: ClientOptions["onRetry"] = (error, wait) => {
      daemon.restart(error);
      options.onRetry?.(error, wait);
    };
    return new CkptdSaver(daemon.url, { ...options, onRetry });
  }

  /** Closes the connections. */
  close(): void {
    for (const client of [this.client, ...this.others.values()]) client.close();
  }

  /**
   * Returns the version after one: the next integer, and a random fraction, so that two forks of a
   * checkpoint do not give different values the same version.
   */
  override getNextVersion(current: number | undefined): number {
    return Math.floor(Number(current ?? 0)) + 1 + Math.random();
  }

  /** Returns the checkpoint that the config names, or the latest one of the thread. */
  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    const at = addressOf(config);
    if (at === undefined) return undefined;
    const { thread } = this.lineage(at);
    const { schemaVersion = 0, down = false } = this.options;
    try {
      const stored = await thread.load(whichOf(at), { writes: true, schema: schemaVersion, down });
      return await this.tuple(stored, at.owner);
    } catch (e) {
      if (e instanceof NotFoundError) return undefined;
      throw e;
    }
  }

  /** Returns the last stored value of each channel before a checkpoint, and the writes since. */
  override async getDeltaChannelHistory(options: {
    config: RunnableConfig;
    channels: string[];
  }): Promise<Record<string, DeltaChannelHistory>> {
    const result: Record<string, DeltaChannelHistory> = {};
    for (const channel of options.channels) result[channel] = { writes: [] };
    const at = addressOf(options.config);
    if (at === undefined || options.channels.length === 0) return result;
    const histories = await this.histories(at, options.channels);
    for (const { channel, base, writes, lost } of histories) {
      const entry: DeltaChannelHistory = { writes: await readWrites(this.serde, writes) };
      if (base !== undefined) entry.seed = await this.serde.loadsTyped(base.type, base.data);
      if (lost) {
        const where = `thread ${at.thread}: channel ${channel}`;
        process.emitWarning(`${where} lost a part of its history, because a run was deleted`);
      }
      result[channel] = entry;
    }
    return result;
  }

  private async histories(at: Address, channels: string[]): Promise<Stored["histories"]> {
    try {
      const history = [...new Set(channels)];
      const { thread } = this.lineage(at);
      return (await thread.load(whichOf(at), { headersOnly: true, history })).histories;
    } catch (e) {
      if (e instanceof NotFoundError) return [];
      throw e;
    }
  }

  /** Saves a checkpoint whose parent is the one that the config names. */
  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const at = required(addressOf(config), "put");
    const { thread, key } = this.lineage(at);
    const had = at.id === "" ? NONE : this.memory.parts(key, at.id);
    const parts = await partsOf(this.serde, checkpoint, had ?? NONE, (name, version) => {
      if (name in newVersions || this.memory.isStored(key, name, version)) return true;
      // The parent has another version: this one is of a copied checkpoint. If the parent is not in
      // memory, the value can be its own.
      return at.id !== "" && (had === undefined || had.has(name));
    });
    const draft = await this.draft(config, at, key, checkpoint, metadata);
    let saved: Stored;
    try {
      saved = await thread.save({ ...draft, channels: changesOf(parts, had ?? NONE) });
    } catch (e) {
      if (!(e instanceof NeedFullError)) throw e;
      saved = await thread.save({ ...draft, channels: wholeOf(parts) });
    }
    this.memory.remember(key, saved.id, savedParts(parts, saved));
    this.memory.learn(key, saved.id, { generation: saved.generation, head: saved.seq });
    return configOf(at.thread, at.namespace, saved.id, at.owner);
  }

  private async draft(
    config: RunnableConfig,
    at: Address,
    key: string,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
  ): Promise<Omit<Draft, "channels">> {
    const [, meta] = await metadataSerde.dumpsTyped(metadata);
    const { id } = checkpoint;
    const known = this.memory.known(key, at.id);
    // Writes of its tasks can come before the answer.
    if (at.id !== "") this.memory.learn(key, id, { generation: known.generation });
    return {
      id,
      parent: at.id,
      root: at.id === "",
      allowDangling: true, // pruned, or saved later
      generation: at.id === "" ? 0 : known.generation,
      expectHead: this.options.strict ? (known.head ?? 0) : undefined,
      step: typeof metadata.step === "number" ? metadata.step : 0,
      runId: runOf(config, metadata),
      meta: Buffer.from(meta).toString("utf8"),
      delta: deltaOf(checkpoint, metadata),
      calledFrom: calledFrom(at, metadata),
      kind: this.options.kind,
      schemaVersion: this.options.schemaVersion,
    };
  }

  /** Saves writes of a task, which belong to the checkpoint that the config names. */
  override async putWrites(
    config: RunnableConfig,
    writes: PendingWrite[],
    taskId: string,
  ): Promise<void> {
    const at = required(addressOf(config), "putWrites");
    if (at.id === "") {
      throw new InvalidError("putWrites: the config has no checkpoint_id in configurable");
    }
    const { thread, key } = this.lineage(at);
    const packed = await writesOf(this.serde, writes);
    const generation = await thread.putWrites(at.id, taskId, packed.writes, {
      ignoreExisting: packed.ignoreExisting,
      generation: this.memory.known(key, at.id).generation,
    });
    this.memory.learn(key, at.id, { generation });
  }

  /** Yields checkpoints, the greatest id first: of a namespace, a thread, or all threads. */
  override async *list(
    config: RunnableConfig,
    options: CheckpointListOptions = {},
  ): AsyncGenerator<CheckpointTuple> {
    const { limit, filter, before } = options;
    if (limit !== undefined && limit <= 0) return;
    const owner = ownerOf(config);
    const { thread_id: thread, checkpoint_ns: namespace } = config.configurable ?? {};
    const [, meta] = await metadataSerde.dumpsTyped(filter ?? {});
    const found = this.clientOf(owner).user(owner[USER], owner[TENANT]).list({
      thread: thread as string | undefined,
      namespace: namespace as string | undefined,
      id: addressOf(config)?.id,
      before: before && addressOf(before)?.id,
      meta: filter && Buffer.from(meta).toString("utf8"),
      data: true,
      writes: true,
      limit,
    });
    for await (const stored of found) yield await this.tuple(stored, owner);
  }

  /** Deletes a thread with all its namespaces. Runs that still save to it fail. */
  override async deleteThread(threadId: string): Promise<void> {
    await found(this.client.thread(threadId).delete());
  }

  /**
   * Deletes the checkpoints of runs, with their writes, from all threads, and returns the checkpoints
   * of other runs that lost a part of the history of delta channels.
   */
  async deleteForRuns(runIds: readonly string[]): Promise<LostHistory[]> {
    const lost: LostHistory[] = [];
    for (const id of runIds) {
      const answer = await this.client.user().deleteRun(id);
      for (const { ref, id: checkpoint, channels } of answer.lost) {
        const config = configOf(ref?.thread ?? "", ref?.namespace ?? "", checkpoint, {});
        lost.push({ config, channels });
      }
    }
    return lost;
  }

  /** Copies a thread with all its namespaces. ConflictError if the target exists. */
  async copyThread(sourceThreadId: string, targetThreadId: string): Promise<void> {
    await found(this.client.thread(sourceThreadId).copy(targetThreadId));
  }

  /**
   * Keeps the latest checkpoint of each namespace, or nothing. Ancestors that hold the state of delta
   * channels stay, but no list shows them.
   */
  async prune(
    threadIds: readonly string[],
    options: { strategy?: PruneStrategy } = {},
  ): Promise<void> {
    for (const id of threadIds) {
      if (options.strategy === "delete") await this.deleteThread(id);
      else await found(this.client.thread(id).prune({ keepLast: 1, byId: true, allNamespaces: true }));
    }
  }

  private async tuple(stored: Stored, owner: Owner): Promise<CheckpointTuple> {
    const { ref, id, parent } = stored;
    const key = keyOf(ref.thread, ref.namespace, owner);
    const { checkpoint, parts } = await read(this.serde, stored);
    this.memory.remember(key, id, parts);
    const { generation, head } = stored;
    this.memory.learn(key, id, { generation, ...(head && { head: head.seq }) });
    if (checkpoint.v < 4 && parent !== "") await this.addSends(checkpoint, stored, owner);
    const tuple: CheckpointTuple = {
      config: configOf(ref.thread, ref.namespace, id, owner),
      checkpoint,
      metadata: (await metadataSerde.loadsTyped("json", stored.meta)) as CheckpointMetadata,
      pendingWrites: await readWrites(this.serde, stored.writes),
    };
    if (parent !== "") tuple.parentConfig = configOf(ref.thread, ref.namespace, parent, owner);
    return tuple;
  }

  /** Adds the sends of the parent, which formats before 4 do not keep in a channel. */
  private async addSends(checkpoint: Checkpoint, stored: Stored, owner: Owner): Promise<void> {
    const { thread } = this.lineage({ ...stored.ref, id: "", owner });
    const writes = await thread.writes(stored.parent);
    const sends = await readWrites(
      this.serde,
      writes.filter((w) => w.write.channel === TASKS),
    );
    const versions = Object.values(checkpoint.channel_versions);
    checkpoint.channel_values[TASKS] = sends.map(([, , value]) => value);
    checkpoint.channel_versions[TASKS] =
      versions.length > 0 ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
  }

  private lineage(at: Address): Lineage {
    const { [TENANT]: tenant, [USER]: user } = at.owner;
    const place = { namespace: at.namespace, tenant, user };
    const thread = this.clientOf(at.owner).thread(at.thread, place);
    return { thread, key: keyOf(at.thread, at.namespace, at.owner) };
  }

  /** Returns the client for the token of an owner, by default that of the saver. */
  private clientOf(owner: Owner): Client {
    const token = owner[TOKEN];
    if (token === undefined) return this.client;
    const client = this.others.get(token) ?? new Client(this.url, { ...this.options, token });
    this.others.delete(token);
    this.others.set(token, client);
    for (const [old, unused] of this.others) {
      if (this.others.size <= TOKENS) break;
      this.others.delete(old);
      unused.close();
    }
    return client;
  }
}

/** Returns the place of the checkpoint: the one with the id, or with the greatest id. */
function whichOf(at: Address): Place {
  return at.id === "" ? { which: { case: "greatestId", value: true } } : at.id;
}

function keyOf(thread: string, namespace: string, owner: Owner): string {
  return JSON.stringify([thread, namespace, owner[TENANT], owner[USER], owner[TOKEN]]);
}

function required(at: Address | undefined, method: string): Address {
  if (at !== undefined) return at;
  throw new InvalidError(
    `${method}: the config has no thread_id: pass { configurable: { thread_id: "…" } }`,
  );
}

/** Waits for a call, and ignores that a thread does not exist. */
async function found(call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (e) {
    if (!(e instanceof NotFoundError)) throw e;
  }
}
