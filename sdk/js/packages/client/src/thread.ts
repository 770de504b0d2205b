// The handle of a lineage.

import { createHash } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Caller } from "./calls.js";
import { InvalidError } from "./errors.js";
import {
  CheckpointService,
  type DiffResponse,
  type GetTreeResponse,
  type LoadResponse,
} from "./gen/ckptd/v1/checkpoint_service_pb.js";
import { ThreadService, type PruneResponse } from "./gen/ckptd/v1/thread_service_pb.js";
import type { Branch, FilterSchema } from "./gen/ckptd/v1/types_pb.js";
import { draftOf, Session } from "./session.js";
import {
  Channel,
  packDraft,
  packWrite,
  unpackCheckpoint,
  unpackHistory,
  unpackWrite,
  whichOf,
  type Channels,
  type Checkpoint,
  type Draft,
  type Event,
  type PendingWrite,
  type Place,
  type Ref,
  type Write,
} from "./types.js";
import { watch, type WatchOptions } from "./watch.js";

const checkpoints = CheckpointService.method;
const threads = ThreadService.method;

/** Options of Thread.load. */
export interface LoadOptions {
  /** The content of these channels only. */
  readonly channels?: readonly string[] | undefined;
  readonly headersOnly?: boolean | undefined;
  /** Add the pending writes. */
  readonly writes?: boolean | undefined;
  /** The schema version to migrate the state to; 0 is as stored. */
  readonly schema?: number | undefined;
  /** Allow steps back. */
  readonly down?: boolean | undefined;
  readonly export?: boolean | undefined;
  /** Add the histories of these delta channels. */
  readonly history?: readonly string[] | undefined;
  /** Contents, from any checkpoint, that need not be sent again. */
  readonly have?: ReadonlyMap<string, Uint8Array> | undefined;
}

/** Options of Thread.history. */
export interface HistoryOptions {
  /** Only this checkpoint and its ancestors. */
  readonly start?: string | undefined;
  /** Only the head of this branch and its ancestors. */
  readonly branch?: string | undefined;
  /** Only checkpoints saved before this id or, with byId, with smaller ids. */
  readonly before?: string | undefined;
  /** The greatest id first, instead of the newest save. */
  readonly byId?: boolean | undefined;
  readonly where?: MessageInitShape<typeof FilterSchema> | undefined;
  /** Add the content of all channels, or of the named ones. */
  readonly data?: boolean | undefined;
  readonly channels?: readonly string[] | undefined;
  readonly limit?: number | undefined;
  readonly export?: boolean | undefined;
}

/** Options of Thread.putWrites. */
export interface WritesOptions {
  readonly path?: string | undefined;
  /** Drop writes whose index is taken, instead of replacing the old ones. */
  readonly ignoreExisting?: boolean | undefined;
  /** If not 0, fail with GenerationError unless the thread has it. */
  readonly generation?: number | undefined;
}

/** Options of Thread.prune. */
export interface PruneOptions {
  readonly keepLast?: number | undefined;
  /** keepLast keeps the greatest ids, instead of the newest saves. */
  readonly byId?: boolean | undefined;
  /** Milliseconds. */
  readonly olderThan?: number | undefined;
  readonly keepLabelled?: boolean | undefined;
  /** Ids of checkpoints to remove in any case. */
  readonly remove?: readonly string[] | undefined;
  readonly allNamespaces?: boolean | undefined;
  /** Wipe removed data from the disk, also that of earlier calls. */
  readonly erase?: boolean | undefined;
  /** Only report. */
  readonly dryRun?: boolean | undefined;
}

/** A handle on one lineage: a thread of a user and a namespace in it. */
export class Thread {
  /** Names the lineage in caches. */
  readonly key: string;

  constructor(
    private readonly caller: Caller,
    readonly ref: Ref,
  ) {
    this.key = JSON.stringify([ref.tenant, ref.user, ref.thread, ref.namespace]);
  }

  /** Returns a session, which sends only the differences between states. */
  session(): Session {
    return new Session(this.caller, this);
  }

  /**
   * Adds a checkpoint, and returns it without content once it is durable. Any error but
   * AmbiguousError means that nothing was saved. After AmbiguousError, a save with the same id finds
   * out.
   */
  async save(draft: Draft | Channels): Promise<Checkpoint> {
    const made = draftOf(draft);
    const packed = packDraft(made, made.id || this.caller.newId());
    const answer = await this.caller.call(checkpoints.save, { ref: this.ref, draft: packed });
    return unpackCheckpoint(present(answer.checkpoint));
  }

  /** Returns a checkpoint with the content of all channels, or of the named ones. */
  async load(place?: Place, options: LoadOptions = {}): Promise<Checkpoint> {
    return this.loaded(await this.loadMessage(place, options), options.have);
  }

  private loadMessage(place: Place, o: LoadOptions): Promise<LoadResponse> {
    const have = [...(o.have ?? [])].map(([channel, data]) => ({
      channel,
      sha256: new Uint8Array(createHash("sha256").update(data).digest()),
    }));
    return this.caller.call(checkpoints.load, {
      ref: this.ref,
      which: whichOf(place),
      headersOnly: o.headersOnly || o.channels?.length === 0,
      channels: [...(o.channels ?? [])],
      writes: o.writes ?? false,
      schema: BigInt(o.schema ?? 0),
      down: o.down ?? false,
      export: o.export ?? this.caller.options.export,
      have,
      history: [...(o.history ?? [])],
    });
  }

  private loaded(answer: LoadResponse, have?: ReadonlyMap<string, Uint8Array>): Checkpoint {
    const cp = unpackCheckpoint(present(answer.checkpoint), answer.writes);
    const filled = new Map(cp.channels);
    for (const m of cp.message.channels) {
      if (m.content.case !== "unchanged") continue;
      const data = have?.get(m.name);
      if (data === undefined || BigInt(data.length) !== m.size) {
        throw new InvalidError(`the daemon left out channel "${m.name}", which the caller lacks`);
      }
      filled.set(m.name, new Channel(m.name, m.type, m.version, data.length, data, m.rewritten));
    }
    const head = { seq: Number(answer.headSeq), id: answer.headId };
    return { ...cp, channels: filled, head, histories: answer.histories.map(unpackHistory) };
  }

  /** Yields the checkpoints of the lineage, the newest first. */
  history(o: HistoryOptions = {}): AsyncGenerator<Checkpoint, void, undefined> {
    return this.caller.pages(
      checkpoints.list,
      (left, token) => ({
        ref: this.ref,
        from: o.start ?? "",
        branch: o.branch ?? "",
        before: o.before ?? "",
        byId: o.byId ?? false,
        ...(o.where && { filter: o.where }),
        data: (o.data ?? false) && o.channels?.length !== 0,
        channels: [...(o.channels ?? [])],
        export: o.export ?? this.caller.options.export,
        pageSize: left,
        pageToken: token,
      }),
      (m) => [m.checkpoints.map((c) => unpackCheckpoint(c)), m.nextPageToken],
      o.limit,
    );
  }

  /** Returns the headers of all checkpoints and their relations. */
  tree(): Promise<GetTreeResponse> {
    return this.caller.call(checkpoints.getTree, { ref: this.ref });
  }

  /** Compares two checkpoints. */
  diff(from: Place, to: Place): Promise<DiffResponse> {
    return this.caller.call(checkpoints.diff, { ref: this.ref, from: whichOf(from), to: whichOf(to) });
  }

  /** Creates a branch at a checkpoint, and returns that without content. */
  async fork(place: Place, branch: string): Promise<Checkpoint> {
    const request = { ref: this.ref, from: whichOf(place), branch };
    const answer = await this.caller.call(checkpoints.fork, request);
    return unpackCheckpoint(present(answer.checkpoint));
  }

  /** Returns the named heads in order of name. */
  async branches(): Promise<Branch[]> {
    return (await this.caller.call(checkpoints.listBranches, { ref: this.ref })).branches;
  }

  /** Moves a branch to a checkpoint, or creates it there. */
  async setBranch(branch: string, place: Place): Promise<void> {
    await this.caller.call(checkpoints.setBranch, { ref: this.ref, branch, to: whichOf(place) });
  }

  /** Deletes a branch; its checkpoints stay. */
  async deleteBranch(branch: string): Promise<void> {
    await this.caller.call(checkpoints.deleteBranch, { ref: this.ref, branch });
  }

  /** Sets labels of a checkpoint or, with the value "", removes them; others stay. */
  async setLabels(place: Place, labels: Readonly<Record<string, string>>): Promise<Checkpoint> {
    const request = { ref: this.ref, which: whichOf(place), labels: { ...labels } };
    const answer = await this.caller.call(checkpoints.setLabels, request);
    return unpackCheckpoint(present(answer.checkpoint));
  }

  /**
   * Adds pending writes of a task to a checkpoint, which need not exist yet, and returns the
   * generation of the lineage.
   */
  async putWrites(
    checkpointId: string,
    task: string,
    writes: readonly Write[],
    o: WritesOptions = {},
  ): Promise<number> {
    const answer = await this.caller.call(checkpoints.putWrites, {
      ref: this.ref,
      checkpointId,
      task,
      path: o.path ?? "",
      writes: writes.map(packWrite),
      ignoreExisting: o.ignoreExisting ?? false,
      generation: BigInt(o.generation ?? 0),
    });
    return Number(answer.generation);
  }

  /** Returns the pending writes of a checkpoint. */
  async writes(checkpointId: string): Promise<PendingWrite[]> {
    const request = { ref: this.ref, checkpointId };
    return (await this.caller.call(checkpoints.listWrites, request)).writes.map(unpackWrite);
  }

  /** Returns the namespaces of the thread; the unnamed one is "". */
  async namespaces(): Promise<string[]> {
    return (await this.caller.call(threads.listNamespaces, { ref: this.ref })).namespaces;
  }

  /** Copies the thread with all namespaces to one of the same user that does not exist yet. */
  async copy(to: string): Promise<void> {
    await this.caller.call(threads.copy, { ref: this.ref, to });
  }

  /**
   * Deletes the thread with all namespaces or, on the handle of a namespace, that namespace. Returns
   * the new generation.
   */
  async delete(): Promise<number> {
    return Number((await this.caller.call(threads.delete, { ref: this.ref })).generation);
  }

  /** Removes checkpoints: those neither among the newest nor young enough, and those in remove. */
  prune(o: PruneOptions): Promise<PruneResponse> {
    return this.caller.call(threads.prune, {
      ref: this.ref,
      keepLast: BigInt(o.keepLast ?? 0),
      byId: o.byId ?? false,
      ...(o.olderThan !== undefined && { olderThan: durationFromMs(o.olderThan) }),
      keepLabelled: o.keepLabelled ?? false,
      remove: [...(o.remove ?? [])],
      allNamespaces: o.allNamespaces ?? false,
      erase: o.erase ?? false,
      dryRun: o.dryRun ?? false,
    });
  }

  /** Yields an event for every checkpoint of the thread. Client.watch has the details. */
  watch(options: WatchOptions = {}): AsyncGenerator<Event, void, undefined> {
    const { tenant, user, thread } = this.ref;
    return watch(this.caller, { tenant, user, thread }, options);
  }
}

/** Returns the message that an answer must have. */
export function present<T>(m: T | undefined): T {
  if (m === undefined) throw new InvalidError("the answer of the daemon has no checkpoint");
  return m;
}
