// Decides when to repeat a call, and which error the caller gets. Pure logic, without I/O.
//
// The rules are those of the Go client, and internal/conformance tests both. A call is repeated if
// the daemon did nothing (no connection, OVERLOADED, SHUTTING_DOWN), or if its answer was lost and
// the call is idempotent. After a lost answer, only an answer about the change itself settles the
// outcome; anything else throws AmbiguousError.

import {
  AmbiguousError,
  CkptdError,
  ClosedError,
  DeniedError,
  fromDetail,
  InternalError,
  InvalidError,
  NoSpaceError,
  OverloadedError,
  ShuttingDownError,
  TimedOutError,
  TooLargeError,
  UnauthenticatedError,
  UnavailableError,
  UnreachableError,
} from "./errors.js";
import { Broken, Expired, Foreign, Refused, type Failure } from "./failures.js";
import { Retry as Rule } from "./gen/ckptd/v1/rule_pb.js";
import type { May } from "./rules.js";

/** The longest wait, in milliseconds, that a daemon can ask for. */
const MAX_ASKED = 30_000;

/** How often and how fast calls are repeated; times are in milliseconds. */
export interface Policy {
  readonly attempts: number;
  readonly backoff: number;
  readonly maxBackoff: number;
}

interface Verdict {
  error: CkptdError;
  /** Another attempt can help and does no harm. */
  again: boolean;
  /** Milliseconds that the daemon asks to wait. */
  after: number;
}

function verdict(error: CkptdError, again = false, after = 0): Verdict {
  return { error, again, after };
}

// If an earlier attempt got no answer, these errors are about the last attempt only.
const NOTHING_DONE = [
  UnavailableError,
  OverloadedError,
  ShuttingDownError,
  UnauthenticatedError,
  DeniedError,
  ClosedError,
  TimedOutError,
];

/** The attempts at one call. */
export class Retry {
  private tried = 0;
  /** An attempt possibly made the change. */
  private doubt = false;
  /** The error of the last attempt. */
  error: CkptdError | undefined;

  constructor(
    private readonly policy: Policy,
    private readonly may: May,
    private readonly where: string,
    private readonly closed: () => boolean,
    private readonly random: () => number = Math.random,
  ) {}

  /** Throws if no attempt can be made. */
  check(): void {
    if (this.closed()) throw this.doubted(new ClosedError("the client is closed"));
  }

  /**
   * Returns the wait before the next attempt in milliseconds, or throws the error of the call. An
   * attempt that made progress does not count.
   */
  failed(failure: Failure, progress = false): number {
    const v = this.judge(failure);
    this.doubt = this.doubt || v.error instanceof AmbiguousError;
    this.tried = progress ? 1 : this.tried + 1;
    if (!v.again || this.tried >= this.policy.attempts) throw this.doubted(v.error);
    this.error = v.error;
    const doubled = this.policy.backoff * 2 ** Math.min(this.tried - 1, 20);
    return v.after + this.random() * Math.min(this.policy.maxBackoff, doubled);
  }

  private judge(f: Failure): Verdict {
    if (f instanceof Refused) return this.refused(f);
    if (this.closed()) {
      const sent = !(f instanceof Broken) || f.sent;
      return verdict(this.unanswered(new ClosedError("the client is closed"), sent));
    }
    if (f instanceof Broken && !f.sent) {
      return verdict(new UnreachableError(`${this.where}: ${f.why}`), !f.final);
    }
    if (f instanceof Foreign) return this.foreign(f);
    const why = f instanceof Expired ? "no answer in time" : f.message;
    return this.lost(new UnreachableError(`${this.where}: ${why}`));
  }

  /** Judges a missing answer. */
  private lost(error: CkptdError): Verdict {
    return verdict(this.unanswered(error), this.may !== Rule.NEVER);
  }

  /** Judges an error that the daemon answered. */
  private refused(f: Refused): Verdict {
    if (f.detail === undefined) return this.plain(f);
    const error = fromDetail(f.text, f.detail);
    if (error instanceof OverloadedError || error instanceof ShuttingDownError) {
      return verdict(error, true, Math.min(Math.max(error.retryAfter, 0), MAX_ASKED));
    }
    const again = error instanceof UnavailableError || error instanceof AmbiguousError;
    return verdict(error, again && !(error instanceof NoSpaceError) && this.may !== Rule.NEVER);
  }

  /** Judges an error that the daemon answered without a detail. */
  private plain(f: Refused): Verdict {
    switch (f.code) {
      case "canceled":
      case "deadline_exceeded":
        return this.lost(new TimedOutError(`${this.where}: ${f.text}`));
      case "unavailable":
        return verdict(new UnavailableError(f.text), this.may !== Rule.NEVER);
      case "unauthenticated":
        return verdict(new UnauthenticatedError(f.message));
      case "permission_denied":
        return verdict(new DeniedError(f.message));
      case "resource_exhausted": // the daemon refuses to read the message
        return verdict(new TooLargeError(f.message));
      case "invalid_argument":
        return verdict(new InvalidError(f.message));
      case "internal":
        return verdict(new InternalError(f.message));
      default:
        return verdict(new CkptdError(f.message));
    }
  }

  /** Judges an answer from a proxy or another server. */
  private foreign(f: Foreign): Verdict {
    const text = `${this.where}: ${f.why}`;
    if (f.code === "unauthenticated") return verdict(new UnauthenticatedError(text));
    if (f.code === "permission_denied") return verdict(new DeniedError(text));
    if (f.code === "unavailable") return this.lost(new UnreachableError(text));
    return verdict(new UnreachableError(`${this.where} is not a ckptd daemon: ${f.why}`));
  }

  /** Returns the error of a call that got no answer because of error. */
  private unanswered(error: CkptdError, sent = true): CkptdError {
    if (this.may === Rule.READ || !sent) return error;
    return new AmbiguousError(`the answer is missing: ${error.text}`);
  }

  /** Returns the error of the call, given the error of its last attempt. */
  private doubted(error: CkptdError): CkptdError {
    if (this.doubt && NOTHING_DONE.some((c) => error instanceof c)) {
      return new AmbiguousError(`an answer is missing, and then: ${error.text}`);
    }
    return error;
  }
}
