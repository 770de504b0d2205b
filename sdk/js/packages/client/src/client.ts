// The client.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type {
  DescMessage,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { Caller } from "./calls.js";
import { complete, type ClientOptions } from "./config.js";
import { AmbiguousError, fromDetail, InternalError, type CkptdError } from "./errors.js";
import { AdminService } from "./gen/ckptd/v1/admin_service_pb.js";
import { CheckpointService, type SaveResult } from "./gen/ckptd/v1/checkpoint_service_pb.js";
import { MigrationService } from "./gen/ckptd/v1/migration_service_pb.js";
import { PluginService } from "./gen/ckptd/v1/plugin_service_pb.js";
import type { FilterSchema } from "./gen/ckptd/v1/types_pb.js";
import { service, type Service } from "./services.js";
import { draftOf } from "./session.js";
import { Thread } from "./thread.js";
import { packDraft, unpackCheckpoint, type Channels, type Checkpoint, type Draft, type Event } from "./types.js";
import { query, User } from "./user.js";
import { watch, type WatchOptions } from "./watch.js";

/** Where a thread is, if not with the tenant and user of the client, or in the unnamed namespace. */
export interface ThreadPlace {
  readonly namespace?: string | undefined;
  readonly user?: string | undefined;
  readonly tenant?: string | undefined;
}

/**
 * A client of the daemon at unix:///path/to/socket, http://host:port or https://host:port.
 *
 * It repeats a call, after a wait with jitter, if the daemon did nothing (no connection, overloaded,
 * shutting down), or if the answer was lost and the call is idempotent: reads, and saves, which
 * carry an id for that. If the answer stays lost, it throws AmbiguousError for calls that change
 * something and UnreachableError for the others. Lists and watches resume after a broken connection.
 *
 * A client has one pool of connections. It connects with the first call.
 */
export class Client {
  /** Users, tokens, retention, garbage collection, the audit log. */
  readonly admin: Service<typeof AdminService>;
  /** The plugins of the daemon. */
  readonly plugins: Service<typeof PluginService>;
  /** Migrations of states to other schema versions. */
  readonly migrations: Service<typeof MigrationService>;

  private readonly caller: Caller;

  constructor(url?: string, options: ClientOptions = {}) {
    this.caller = new Caller(complete(url, options));
    this.admin = service(this.caller, AdminService);
    this.plugins = service(this.caller, PluginService);
    this.migrations = service(this.caller, MigrationService);
  }

  /** The address of the daemon. */
  get url(): string {
    return this.caller.options.address.url;
  }

  /** Closes all connections. Calls, lists and watches in progress throw ClosedError. */
  close(): void {
    this.caller.wire.close();
  }

  /** Returns a handle on a user, by default the user of the client. */
  user(name?: string, tenant?: string): User {
    const { options } = this.caller;
    return new User(this.caller, tenant ?? options.tenant, name ?? options.user);
  }

  /** Returns a handle on a thread, or on a namespace in it. */
  thread(name: string, place: ThreadPlace = {}): Thread {
    const { options } = this.caller;
    return new Thread(this.caller, {
      tenant: place.tenant ?? options.tenant,
      user: place.user ?? options.user,
      thread: name,
      namespace: place.namespace ?? "",
    });
  }

  /**
   * Saves to several lineages in one call, and returns a checkpoint or an error for each. Each save
   * succeeds or fails on its own; saves to the same lineage keep their order. A save refused because
   * the daemon is overloaded is not repeated.
   */
  async saveBatch(
    saves: Iterable<readonly [Thread, Draft | Channels]>,
  ): Promise<(Checkpoint | CkptdError)[]> {
    const packed = [...saves].map(([thread, draft]) => {
      const made = draftOf(draft);
      return { ref: thread.ref, draft: packDraft(made, made.id || this.caller.newId()) };
    });
    const request = { saves: packed };
    const { results } = await this.caller.call(CheckpointService.method.saveBatch, request);
    if (results.length !== packed.length) {
      throw new AmbiguousError(`${packed.length} saves, ${results.length} results`);
    }
    return results.map(resultOf);
  }

  /** Yields the matching checkpoints of all users of a tenant, without content. */
  queryTenant(
    where?: MessageInitShape<typeof FilterSchema>,
    options: { tenant?: string; limit?: number } = {},
  ): AsyncGenerator<Checkpoint, void, undefined> {
    const tenant = options.tenant ?? this.caller.options.tenant;
    const request = { tenant, wholeTenant: true, ...(where && { filter: where }) };
    return query(this.caller, request, options.limit ?? 0);
  }

  /**
   * Yields an event for each checkpoint of a tenant as it becomes durable, without end.
   *
   * The watch starts after a cursor, at a time, or now. After a broken connection it resumes after
   * the last event, without gaps or duplicates. After too many attempts it throws UnreachableError;
   * Event.cursor resumes it. User and Thread have watches of their own.
   */
  watch(
    options: WatchOptions & { tenant?: string; since?: Date } = {},
  ): AsyncGenerator<Event, void, undefined> {
    const tenant = options.tenant ?? this.caller.options.tenant;
    const since = options.since && { since: timestampFromDate(options.since) };
    return watch(this.caller, { tenant, ...since }, options);
  }

  /** Calls a method of the API with a single answer; its rule governs retries. */
  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    return this.caller.call(method, request);
  }

  /** Calls a method of the API with a streamed answer; no attempt follows its first message. */
  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    return this.caller.messages(method, request);
  }

  /**
   * Yields the items of a list of the API whose messages carry page tokens, and resumes it after a
   * broken connection. ask returns the request for a number of items after a token; 0 means all.
   */
  pages<I extends DescMessage, O extends DescMessage, T>(
    method: DescMethodServerStreaming<I, O>,
    ask: (left: number, token: string) => MessageInitShape<I>,
    itemsOf: (m: MessageShape<O>) => readonly [readonly T[], string],
    limit = 0,
  ): AsyncGenerator<T, void, undefined> {
    return this.caller.pages(method, ask, itemsOf, limit);
  }
}

function resultOf(r: SaveResult): Checkpoint | CkptdError {
  if (r.result.case === "checkpoint") return unpackCheckpoint(r.result.value);
  const error = r.result.value;
  if (error?.detail === undefined) return new InternalError(error?.message ?? "an empty result");
  return fromDetail(error.message, error.detail);
}
