"""Decides when to repeat a call, and which error the caller gets. Pure logic, without I/O.

The rules are those of the Go client, and internal/conformance tests both. A call is repeated if the
daemon did nothing (no connection, OVERLOADED, SHUTTING_DOWN), or if its answer was lost and the
call is idempotent. After a lost answer, only an answer about the change itself settles the outcome;
anything else raises AmbiguousError.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ckptd._failures import Broken, Expired, Failure, Foreign, Refused
from ckptd._rules import NEVER, READ
from ckptd.errors import (
    AmbiguousError,
    CkptdError,
    ClosedError,
    DeniedError,
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
    from_detail,
)

# The longest wait, in seconds, that a daemon can ask for.
MAX_ASKED = 30.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How often and how fast calls are repeated."""

    attempts: int = 10
    backoff: float = 0.05
    max_backoff: float = 5.0


@dataclass(slots=True)
class _Verdict:
    error: CkptdError
    again: bool = False  # another attempt can help and does no harm
    after: float = 0.0  # seconds that the daemon asks to wait


class Retry:
    """The attempts at one call."""

    def __init__(
        self,
        policy: Policy,
        may: int,
        where: str,
        closed: Callable[[], bool],
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._may = may  # READ, REPEAT or NEVER
        self._where = where
        self._closed = closed
        self._rand = rand
        self._tried = 0
        self._doubt = False  # an attempt possibly made the change
        self.error: CkptdError | None = None  # of the last attempt

    def check(self) -> None:
        """Raise if no attempt can be made."""
        if self._closed():
            raise self._doubted(ClosedError("the client is closed"))

    def failed(self, failure: Failure, progress: bool = False) -> float:
        """Return the wait before the next attempt, or raise the error of the call.

        An attempt that made progress does not count.
        """
        verdict = self._judge(failure)
        self._doubt = self._doubt or isinstance(verdict.error, AmbiguousError)
        self._tried = 1 if progress else self._tried + 1
        if not verdict.again or self._tried >= self._policy.attempts:
            raise self._doubted(verdict.error) from failure
        self.error = verdict.error
        doubled = self._policy.backoff * float(1 << min(self._tried - 1, 20))
        return verdict.after + self._rand() * min(self._policy.max_backoff, doubled)

    def _judge(self, f: Failure) -> _Verdict:
        if isinstance(f, Refused):
            return self._refused(f)
        if self._closed():
            return _Verdict(self._unanswered(ClosedError("the client is closed"), _sent(f)))
        if isinstance(f, Broken) and not f.sent:
            return _Verdict(UnreachableError(f"{self._where}: {f.why}"), again=not f.final)
        if isinstance(f, Foreign):
            return self._foreign(f)
        why = "no answer in time" if isinstance(f, Expired) else str(f)
        lost = UnreachableError(f"{self._where}: {why}")
        return _Verdict(self._unanswered(lost), again=self._may != NEVER)

    def _refused(self, f: Refused) -> _Verdict:
        """Judge an error that the daemon answered."""
        if f.detail is None:
            return self._plain(f)
        error = from_detail(f.message, f.detail)
        if isinstance(error, OverloadedError | ShuttingDownError):
            return _Verdict(error, True, min(max(error.retry_after, 0.0), MAX_ASKED))
        again = isinstance(error, UnavailableError | AmbiguousError)
        again = again and not isinstance(error, NoSpaceError)
        return _Verdict(error, again and self._may != NEVER)

    def _plain(self, f: Refused) -> _Verdict:
        """Judge an error that the daemon answered without a detail."""
        if f.code in ("canceled", "deadline_exceeded"):
            lost = TimedOutError(f"{self._where}: {f.message}")
            return _Verdict(self._unanswered(lost), again=self._may != NEVER)
        if f.code == "unavailable":
            return _Verdict(UnavailableError(f.message), again=self._may != NEVER)
        classes: dict[str, type[CkptdError]] = {
            "unauthenticated": UnauthenticatedError,
            "permission_denied": DeniedError,
            "resource_exhausted": TooLargeError,  # the daemon refuses to read the message
            "invalid_argument": InvalidError,
            "internal": InternalError,
        }
        return _Verdict(classes.get(f.code, CkptdError)(f"{f.code}: {f.message}"))

    def _foreign(self, f: Foreign) -> _Verdict:
        """Judge an answer from a proxy or another server."""
        if f.code == "unauthenticated":
            return _Verdict(UnauthenticatedError(f"{self._where}: {f.why}"))
        if f.code == "permission_denied":
            return _Verdict(DeniedError(f"{self._where}: {f.why}"))
        if f.code == "unavailable":
            lost = UnreachableError(f"{self._where}: {f.why}")
            return _Verdict(self._unanswered(lost), again=self._may != NEVER)
        return _Verdict(UnreachableError(f"{self._where} is not a ckptd daemon: {f.why}"))

    def _unanswered(self, error: CkptdError, sent: bool = True) -> CkptdError:
        """Return the error of a call that got no answer because of error."""
        if self._may == READ or not sent:
            return error
        return AmbiguousError(f"the answer is missing: {error.message}")

    def _doubted(self, error: CkptdError) -> CkptdError:
        """Return the error of the call, given the error of its last attempt.

        If an earlier attempt got no answer, an error that means "nothing was done" is about the
        last attempt only.
        """
        nothing_done = (
            UnavailableError
            | OverloadedError
            | ShuttingDownError
            | UnauthenticatedError
            | DeniedError
            | ClosedError
            | TimedOutError
        )
        if self._doubt and isinstance(error, nothing_done):
            return AmbiguousError(f"an answer is missing, and then: {error.message}")
        return error


def _sent(f: Failure) -> bool:
    return not isinstance(f, Broken) or f.sent
