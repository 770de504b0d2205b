// The handle of a user.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { encode, type Caller } from "./calls.js";
import { InvalidError } from "./errors.js";
import { Failure } from "./failures.js";
import { BlobService, PutBlobRequestSchema } from "./gen/ckptd/v1/blob_service_pb.js";
import { CheckpointService } from "./gen/ckptd/v1/checkpoint_service_pb.js";
import {
  ThreadService,
  type DeleteRunResponse,
  type QueryRequestSchema,
} from "./gen/ckptd/v1/thread_service_pb.js";
import type { FilterSchema } from "./gen/ckptd/v1/types_pb.js";
import { ruleOf } from "./rules.js";
import { present, Thread } from "./thread.js";
import {
  unpackCheckpoint,
  unpackThread,
  type Blob,
  type Checkpoint,
  type Event,
  type ThreadInfo,
} from "./types.js";
import { watch, type WatchOptions } from "./watch.js";

// Bytes of a blob in one message.
const PIECE = 256 << 10;

const blobs = BlobService.method;

/** Options of User.threads. */
export interface ThreadsOptions {
  readonly prefix?: string | undefined;
  /** Only threads whose head has this status. */
  readonly status?: string | undefined;
  /** Add the number of checkpoints, which is slow. */
  readonly count?: boolean | undefined;
  /** Skip the threads up to this name; with byActivity, also pass its ThreadInfo.active. */
  readonly after?: string | undefined;
  /** The most recently active threads first. */
  readonly byActivity?: boolean | undefined;
  readonly activeAt?: Date | undefined;
  readonly limit?: number | undefined;
}

/** Options of User.latest. */
export interface LatestOptions {
  readonly channels?: readonly string[] | undefined;
  readonly headersOnly?: boolean | undefined;
  readonly schema?: number | undefined;
  readonly down?: boolean | undefined;
}

/** Options of User.list. */
export interface ListOptions {
  /** Only this thread. */
  readonly thread?: string | undefined;
  /** Only this namespace; empty is the thread's own. */
  readonly namespace?: string | undefined;
  /** Only checkpoints with this id, of which each namespace has at most one. */
  readonly id?: string | undefined;
  /** Only checkpoints with smaller ids. */
  readonly before?: string | undefined;
  /** Only checkpoints whose metadata contains this JSON object. */
  readonly meta?: string | undefined;
  readonly where?: MessageInitShape<typeof FilterSchema> | undefined;
  /** Add the content of all channels, or of the named ones. */
  readonly data?: boolean | undefined;
  readonly channels?: readonly string[] | undefined;
  /** Add the pending writes. */
  readonly writes?: boolean | undefined;
  readonly limit?: number | undefined;
}

/** The content of a blob: bytes, or a function that starts reading it from the beginning. */
export type BlobContent = Uint8Array | (() => AsyncIterable<Uint8Array> | Iterable<Uint8Array>);

/** A handle on one user of a tenant. */
export class User {
  constructor(
    private readonly caller: Caller,
    readonly tenant: string,
    readonly name: string,
  ) {}

  /** Returns the handle of a thread, or of a namespace in it. */
  thread(name: string, namespace = ""): Thread {
    const ref = { tenant: this.tenant, user: this.name, thread: name, namespace };
    return new Thread(this.caller, ref);
  }

  /** Yields the threads of the user by name, or the most recently active first. */
  threads(o: ThreadsOptions = {}): AsyncGenerator<ThreadInfo, void, undefined> {
    return this.caller.pages(
      ThreadService.method.listThreads,
      (left, token) => ({
        tenant: this.tenant,
        user: this.name,
        prefix: o.prefix ?? "",
        status: o.status ?? "",
        count: o.count ?? false,
        after: o.after ?? "",
        byActivity: o.byActivity ?? false,
        ...(o.activeAt && { activeAt: timestampFromDate(o.activeAt) }),
        pageSize: left,
        pageToken: token,
      }),
      (m) => [m.threads.map(unpackThread), m.nextPageToken],
      o.limit,
    );
  }

  /** Yields checkpoints over threads and namespaces, the greatest id first. */
  list(o: ListOptions = {}): AsyncGenerator<Checkpoint, void, undefined> {
    return this.caller.pages(
      CheckpointService.method.listByID,
      (left, token) => ({
        tenant: this.tenant,
        user: this.name,
        thread: o.thread ?? "",
        ...(o.namespace !== undefined && { namespace: o.namespace }),
        id: o.id ?? "",
        before: o.before ?? "",
        meta: o.meta ?? "",
        ...(o.where && { filter: o.where }),
        data: (o.data ?? false) && o.channels?.length !== 0,
        channels: [...(o.channels ?? [])],
        writes: o.writes ?? false,
        pageSize: left,
        pageToken: token,
      }),
      (m) => [m.entries.map((e) => unpackCheckpoint(present(e.checkpoint), e.writes)), m.nextPageToken],
      o.limit,
    );
  }

  /** Returns the newest checkpoint over all threads, by time. */
  async latest(o: LatestOptions = {}): Promise<Checkpoint> {
    const answer = await this.caller.call(CheckpointService.method.loadNewest, {
      tenant: this.tenant,
      user: this.name,
      headersOnly: o.headersOnly || o.channels?.length === 0,
      channels: [...(o.channels ?? [])],
      schema: BigInt(o.schema ?? 0),
      down: o.down ?? false,
    });
    return unpackCheckpoint(present(answer.checkpoint));
  }

  /** Yields the matching checkpoints of all threads, newest first, without content. */
  query(
    where?: MessageInitShape<typeof FilterSchema>,
    limit = 0,
  ): AsyncGenerator<Checkpoint, void, undefined> {
    const filter = where && { filter: where };
    return query(this.caller, { tenant: this.tenant, user: this.name, ...filter }, limit);
  }

  /** Removes all checkpoints of a run from all threads. */
  deleteRun(runId: string): Promise<DeleteRunResponse> {
    const request = { tenant: this.tenant, user: this.name, runId };
    return this.caller.call(ThreadService.method.deleteRun, request);
  }

  /** Yields an event for every checkpoint of the user. Client.watch has the details. */
  watch(options: WatchOptions = {}): AsyncGenerator<Event, void, undefined> {
    return watch(this.caller, { tenant: this.tenant, user: this.name }, options);
  }

  /** Stores a blob, and returns once it is durable. */
  async putBlob(content: BlobContent): Promise<Blob> {
    const request = create(PutBlobRequestSchema, { tenant: this.tenant, user: this.name });
    const retry = this.caller.retry(blobs.putBlob, request);
    for (;;) {
      retry.check();
      let wait: number;
      try {
        return await this.putBlobOnce(content);
      } catch (e) {
        if (!(e instanceof Failure)) throw e;
        wait = retry.failed(e);
      }
      await this.caller.pause(retry, wait);
    }
  }

  private async putBlobOnce(content: BlobContent): Promise<Blob> {
    const upload = this.caller.wire.upload(ruleOf(blobs.putBlob).path, blobs.putBlob.output);
    const message = (m: MessageInitShape<typeof PutBlobRequestSchema>): Uint8Array =>
      encode(PutBlobRequestSchema, create(PutBlobRequestSchema, m));
    try {
      let wanted = await upload.send(message({ tenant: this.tenant, user: this.name }));
      for await (const piece of content instanceof Uint8Array ? [content] : content()) {
        if (!(piece instanceof Uint8Array)) throw new InvalidError("a blob is made of Uint8Arrays");
        for (let at = 0; wanted && at < piece.length; at += PIECE) {
          wanted = await upload.send(message({ data: piece.subarray(at, at + PIECE) }));
        }
        if (!wanted) break;
      }
      const answer = await upload.end();
      return { id: answer.id, size: Number(answer.size), created: undefined };
    } finally {
      upload.close();
    }
  }

  /**
   * Yields the content of a blob in pieces, and resumes after a broken connection. The content is
   * complete only if the generator ends without an error.
   */
  async *getBlob(id: string): AsyncGenerator<Uint8Array, void, undefined> {
    const request = { tenant: this.tenant, user: this.name, id };
    let had = 0;
    let skip = 0;
    const stream = this.caller.resumed(blobs.getBlob, () => {
      skip = had; // each attempt begins with the first byte
      return request;
    });
    try {
      for (let m = await stream.next(); m !== undefined; m = await stream.next()) {
        const data = m.data.subarray(skip);
        skip -= Math.min(skip, m.data.length);
        if (data.length === 0) continue;
        stream.progress = true;
        had += data.length;
        yield data;
      }
    } finally {
      stream.close();
    }
  }

  /** Returns the content of a blob. */
  async readBlob(id: string): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    for await (const part of this.getBlob(id)) parts.push(part);
    return new Uint8Array(Buffer.concat(parts));
  }

  /** Describes a blob without reading it. */
  async statBlob(id: string): Promise<Blob> {
    const m = await this.caller.call(blobs.statBlob, { tenant: this.tenant, user: this.name, id });
    const created = m.created === undefined ? undefined : timestampDate(m.created);
    return { id: m.id, size: Number(m.size), created };
  }
}

/** Yields the checkpoints that match. */
export function query(
  caller: Caller,
  request: MessageInitShape<typeof QueryRequestSchema>,
  limit: number,
): AsyncGenerator<Checkpoint, void, undefined> {
  return caller.pages(
    ThreadService.method.query,
    (left, token) => ({ ...request, pageSize: left, pageToken: token }),
    (m) => [m.checkpoints.map((c) => unpackCheckpoint(c)), m.nextPageToken],
    limit,
  );
}
