// The ways an attempt at a call can fail. Retry turns them into errors of the call.

import type { ErrorDetail } from "./gen/ckptd/v1/types_pb.js";

/** Base of the ways an attempt can fail. It never leaves this package. */
export class Failure extends Error {}

/** The connection failed. */
export class Broken extends Failure {
  constructor(
    readonly why: string,
    /** Possibly, the daemon has the request. */
    readonly sent: boolean,
    /** Another attempt would fail the same way. */
    readonly final = false,
  ) {
    super(why);
  }
}

/** The attempt took too long. */
export class Expired extends Failure {}

/** The daemon answered with an error. */
export class Refused extends Failure {
  constructor(
    readonly code: string,
    readonly text: string,
    readonly detail: ErrorDetail | undefined,
  ) {
    super(`${code}: ${text}`);
  }
}

/** The answer is not the daemon's. */
export class Foreign extends Failure {
  constructor(
    readonly code: string,
    readonly why: string,
  ) {
    super(`${code}: ${why}`);
  }
}
