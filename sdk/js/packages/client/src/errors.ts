// Errors of the client: a class for each reason of the daemon, and a few of the client's own.
//
// Branch on the class, not on the text. Each message ends with advice.

import { create } from "@bufbuild/protobuf";
import type { Duration } from "@bufbuild/protobuf/wkt";
import {
  ErrorDetailSchema,
  Reason,
  type ErrorDetail,
  type MigrationError as MigrationDetail,
  type PluginError as PluginDetail,
} from "./gen/ckptd/v1/types_pb.js";

/** Base of all errors of this package. */
export class CkptdError extends Error {
  /** The reason in the words of ckptd.v1.Reason, without REASON_. */
  static readonly reason: string = "";
  /** Advice to the user. */
  static readonly advice: string = "";

  /** The message without the advice. */
  readonly text: string;
  /** Details from the daemon; empty if the error is the client's own. */
  readonly detail: ErrorDetail;

  constructor(text: string, detail?: ErrorDetail, options?: ErrorOptions) {
    super(text, options);
    const made = new.target as typeof CkptdError;
    this.name = made.name;
    this.text = text;
    this.detail = detail ?? create(ErrorDetailSchema);
    if (made.advice !== "") this.message = `${text}; ${made.advice}`;
  }

  /** The reason in the words of ckptd.v1.Reason, without REASON_. */
  get reason(): string {
    return (this.constructor as typeof CkptdError).reason;
  }
}

/** The request is invalid; the message says why. */
export class InvalidError extends CkptdError {
  static override readonly reason = "INVALID";
}

/** No such thread, checkpoint, branch or blob, or no right to see it. */
export class NotFoundError extends CkptdError {
  static override readonly reason = "NOT_FOUND";
  static override readonly advice =
    "check tenant, user and thread, and that the credentials reach them";
}

/** The head of the lineage moved, or the target of a copy exists. */
export class ConflictError extends CkptdError {
  static override readonly reason = "CONFLICT";
  static override readonly advice = "load the head and decide again";

  /** Seq of the head, 0 if there is none. */
  get headSeq(): number {
    return Number(this.detail.headSeq);
  }

  /** Id of the head, empty if there is none. */
  get headId(): string {
    return this.detail.headId;
  }
}

/** The branch that a fork names exists. */
export class BranchExistsError extends CkptdError {
  static override readonly reason = "BRANCH_EXISTS";
  static override readonly advice = "name another branch, or move this one with setBranch";

  /** Its name. */
  get branch(): string {
    return this.detail.branch;
  }

  /** Seq of its head. */
  get headSeq(): number {
    return Number(this.detail.headSeq);
  }
}

/** No checkpoint has the id that the draft names as its parent. */
export class UnknownParentError extends CkptdError {
  static override readonly reason = "UNKNOWN_PARENT";
  static override readonly advice = "save the parent first, or allow a dangling one";
}

/** The thread was deleted in the meantime, and a late save or write was refused. */
export class GenerationError extends CkptdError {
  static override readonly reason = "GENERATION";
  static override readonly advice =
    "the thread was deleted: stop this run, or start the thread over without a generation";
}

/** The parent does not hold the base of an edit. */
export class NeedFullError extends CkptdError {
  static override readonly reason = "NEED_FULL";
  static override readonly advice = "send these channels whole (a Session does so by itself)";

  /** The channels to send whole. */
  get channels(): string[] {
    return [...this.detail.needFull];
  }
}

/** The lineage holds as many checkpoints as it can. */
export class ExhaustedError extends CkptdError {
  static override readonly reason = "EXHAUSTED";
  static override readonly advice = "continue in another thread";
}

/** Something is over a limit of the daemon. */
export class TooLargeError extends CkptdError {
  static override readonly reason = "TOO_LARGE";
  static override readonly advice =
    "store large values as blobs, or raise the limit of the daemon (--max-message)";

  /** The item that is too large; empty if it is the message itself. */
  get what(): string {
    return this.detail.what;
  }

  /** Its size in bytes. */
  get size(): number {
    return Number(this.detail.size);
  }

  /** The limit in bytes. */
  get most(): number {
    return Number(this.detail.most);
  }
}

/** A record is damaged. */
export class CorruptError extends CkptdError {
  static override readonly reason = "CORRUPT";
  static override readonly advice = "run `ckptd verify` to see the extent, and restore a backup";

  /** Kind and place of the record. */
  get record(): string {
    return this.detail.what;
  }
}

/** The key of the data was destroyed, and the data with it. */
export class KeyDestroyedError extends CkptdError {
  static override readonly reason = "KEY_DESTROYED";
  static override readonly advice =
    "the data cannot be recovered; use another user name to start over";
}

/** The keystore is older than the data. */
export class KeyMissingError extends CkptdError {
  static override readonly reason = "KEY_MISSING";
  static override readonly advice = "bring back the newest copy of the keystore";
}

/** The disk of the daemon fails. Nothing was done. */
export class UnavailableError extends CkptdError {
  static override readonly reason: string = "UNAVAILABLE";
  static override readonly advice: string = "look at the daemon's log and its disk";
}

/** The disk of the daemon is full. Nothing was saved. */
export class NoSpaceError extends UnavailableError {
  static override readonly reason = "NO_SPACE";
  static override readonly advice = "free some space on the daemon's disk";
}

/** An answer was lost: it is unknown whether the change was made. */
export class AmbiguousError extends CkptdError {
  static override readonly reason = "AMBIGUOUS";
  static override readonly advice =
    "save again with the same id to find out; for other calls, check the state first";
}

/** A newer version of ckptd wrote the data. */
export class NewerFormatError extends CkptdError {
  static override readonly reason = "NEWER_FORMAT";
  static override readonly advice = "upgrade the daemon";
}

/** A limit of the daemon is reached. Nothing was done. */
export class OverloadedError extends CkptdError {
  static override readonly reason = "OVERLOADED";
  static override readonly advice = "try again later, or with fewer calls at a time";

  /** Milliseconds that the daemon asks to wait. */
  get retryAfter(): number {
    return millis(this.detail.retryAfter);
  }
}

/** The daemon is shutting down. Nothing was done. */
export class ShuttingDownError extends CkptdError {
  static override readonly reason = "SHUTTING_DOWN";
  static override readonly advice = "try again when it is back";

  /** Milliseconds that the daemon asks to wait. */
  get retryAfter(): number {
    return millis(this.detail.retryAfter);
  }
}

/** The daemon does not accept the credentials. */
export class UnauthenticatedError extends CkptdError {
  static override readonly reason = "UNAUTHENTICATED";
  static override readonly advice =
    "pass token or tokenFile, or set CKPTD_TOKEN; " +
    "a wrong token, a revoked one and an expired one look the same";
}

/** The credentials do not allow the call. */
export class DeniedError extends CkptdError {
  static override readonly reason = "DENIED";
  static override readonly advice = "client.admin.whoAmI({}) shows the grants";
}

/** Base of the errors of plugins. */
export class PluginError extends CkptdError {
  /** The plugin and the item it failed on. Never quotes content. */
  get plugin(): PluginDetail | undefined {
    return this.detail.plugin;
  }
}

/** A plugin or a rule rejects the content. */
export class PluginRejectedError extends PluginError {
  static override readonly reason = "PLUGIN_REJECTED";
  static override readonly advice = "remove the content that must not be stored";
}

/** A plugin ran out of fuel, time or room, trapped, or reported an error. */
export class PluginFailedError extends PluginError {
  static override readonly reason = "PLUGIN_FAILED";
  static override readonly advice =
    "`ckptd plugin inspect` shows its limits; disable or replace it";
}

/** A plugin that must run is missing, or its process was killed. */
export class PluginUnavailableError extends PluginError {
  static override readonly reason = "PLUGIN_UNAVAILABLE";
  static override readonly advice = "`ckptd plugin list` shows the state of the plugins";
}

/** The plugin cannot be installed. */
export class PluginInvalidError extends PluginError {
  static override readonly reason = "PLUGIN_INVALID";
}

/** Base of the errors of migrations. */
export class MigrationError extends CkptdError {
  /** The step and its versions. Its reason can quote the state. */
  get migration(): MigrationDetail | undefined {
    return this.detail.migration;
  }
}

/** The state has a newer schema version than the load asks for. */
export class SchemaTooNewError extends MigrationError {
  static override readonly reason = "SCHEMA_TOO_NEW";
  static override readonly advice = "upgrade the program, or allow steps back with down: true";
}

/** No steps lead to the version that was asked for. */
export class NoMigrationError extends MigrationError {
  static override readonly reason = "NO_MIGRATION";
  static override readonly advice = "install the migrations with `ckptd migrate install`";
}

/** A step of a migration failed on the state. */
export class MigrationFailedError extends MigrationError {
  static override readonly reason = "MIGRATION_FAILED";
  static override readonly advice = "correct the step that `migration` names and install it again";
}

/** The set of migrations cannot be installed. */
export class MigrationInvalidError extends MigrationError {
  static override readonly reason = "MIGRATION_INVALID";
}

/** States would fail in the job, and nothing was written. */
export class MigrationRefusedError extends MigrationError {
  static override readonly reason = "MIGRATION_REFUSED";
  static override readonly advice = "the job's report names the states";
}

/** Too many states failed in the job. */
export class MigrationStoppedError extends MigrationError {
  static override readonly reason = "MIGRATION_STOPPED";
  static override readonly advice = "correct the step and start the job again, or undo it";
}

/** Another job of the tenant runs. */
export class MigrationBusyError extends MigrationError {
  static override readonly reason = "MIGRATION_BUSY";
  static override readonly advice = "wait for that job, or cancel it";
}

/** The job's state does not allow the action. */
export class MigrationStateError extends MigrationError {
  static override readonly reason = "MIGRATION_STATE";
}

/** The tenant has no such job. */
export class NoJobError extends MigrationError {
  static override readonly reason = "NO_JOB";
  static override readonly advice = "client.migrations.listMigrationJobs({}) lists the jobs";
}

/** The daemon gave no answer, and nothing was changed. */
export class UnreachableError extends UnavailableError {
  static override readonly reason = "UNREACHABLE";
  static override readonly advice = "check the URL, and that `ckptd serve` runs there";
}

/** The daemon gave up because the request took too long. Nothing was changed. */
export class TimedOutError extends CkptdError {
  static override readonly reason = "DEADLINE";
  static override readonly advice =
    "try again, or allow the daemon more with --request-timeout";
}

/** The client is closed. */
export class ClosedError extends CkptdError {
  static override readonly reason = "CLOSED";
  static override readonly advice = "open another client";
}

/** A bug in the daemon. */
export class InternalError extends CkptdError {
  static override readonly reason = "INTERNAL";
  static override readonly advice = "the daemon's log has more; please report it";
}

type ErrorClass = new (text: string, detail?: ErrorDetail) => CkptdError;

/** The class of each reason of the API. */
const BY_REASON: Partial<Record<Reason, ErrorClass>> = {
  [Reason.INVALID]: InvalidError,
  [Reason.NOT_FOUND]: NotFoundError,
  [Reason.CONFLICT]: ConflictError,
  [Reason.BRANCH_EXISTS]: BranchExistsError,
  [Reason.UNKNOWN_PARENT]: UnknownParentError,
  [Reason.GENERATION]: GenerationError,
  [Reason.NEED_FULL]: NeedFullError,
  [Reason.EXHAUSTED]: ExhaustedError,
  [Reason.TOO_LARGE]: TooLargeError,
  [Reason.CORRUPT]: CorruptError,
  [Reason.KEY_DESTROYED]: KeyDestroyedError,
  [Reason.KEY_MISSING]: KeyMissingError,
  [Reason.UNAVAILABLE]: UnavailableError,
  [Reason.NO_SPACE]: NoSpaceError,
  [Reason.AMBIGUOUS]: AmbiguousError,
  [Reason.NEWER_FORMAT]: NewerFormatError,
  [Reason.OVERLOADED]: OverloadedError,
  [Reason.SHUTTING_DOWN]: ShuttingDownError,
  [Reason.UNAUTHENTICATED]: UnauthenticatedError,
  [Reason.DENIED]: DeniedError,
  [Reason.PLUGIN_REJECTED]: PluginRejectedError,
  [Reason.PLUGIN_FAILED]: PluginFailedError,
  [Reason.PLUGIN_UNAVAILABLE]: PluginUnavailableError,
  [Reason.PLUGIN_INVALID]: PluginInvalidError,
  [Reason.SCHEMA_TOO_NEW]: SchemaTooNewError,
  [Reason.NO_MIGRATION]: NoMigrationError,
  [Reason.MIGRATION_FAILED]: MigrationFailedError,
  [Reason.MIGRATION_INVALID]: MigrationInvalidError,
  [Reason.MIGRATION_REFUSED]: MigrationRefusedError,
  [Reason.MIGRATION_STOPPED]: MigrationStoppedError,
  [Reason.MIGRATION_BUSY]: MigrationBusyError,
  [Reason.MIGRATION_STATE]: MigrationStateError,
  [Reason.NO_JOB]: NoJobError,
};

/** Returns the class of a reason; CkptdError itself for an unknown one. */
export function classOf(reason: Reason): ErrorClass {
  return BY_REASON[reason] ?? CkptdError;
}

/** Returns the error for a detail. */
export function fromDetail(text: string, detail: ErrorDetail): CkptdError {
  return new (classOf(detail.reason))(text, detail);
}

function millis(d: Duration | undefined): number {
  return d === undefined ? 0 : Number(d.seconds) * 1000 + d.nanos / 1e6;
}
