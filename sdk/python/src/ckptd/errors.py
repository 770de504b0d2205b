"""Errors of the client: a class for each reason of the daemon, and a few of the client's own.

Branch on the class, not on the text. Each message ends with advice.
"""

from __future__ import annotations

from typing import ClassVar

from ckptd.v1 import types_pb2

__all__ = [
    "AmbiguousError",
    "BranchExistsError",
    "CkptdError",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "DeniedError",
    "ExhaustedError",
    "GenerationError",
    "InternalError",
    "InvalidError",
    "KeyDestroyedError",
    "KeyMissingError",
    "MigrationBusyError",
    "MigrationFailedError",
    "MigrationInvalidError",
    "MigrationRefusedError",
    "MigrationStateError",
    "MigrationStoppedError",
    "NeedFullError",
    "NewerFormatError",
    "NoJobError",
    "NoMigrationError",
    "NoSpaceError",
    "NotFoundError",
    "OverloadedError",
    "PluginFailedError",
    "PluginInvalidError",
    "PluginRejectedError",
    "PluginUnavailableError",
    "SchemaTooNewError",
    "ShuttingDownError",
    "TimedOutError",
    "TooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownParentError",
    "UnreachableError",
]


class CkptdError(Exception):
    """Base of all errors of this package."""

    #: The reason in the words of ``ckptd.v1.Reason``, without ``REASON_``.
    reason: ClassVar[str] = ""
    #: Advice to the user.
    advice: ClassVar[str] = ""

    #: The message without the advice.
    message: str
    #: Details from the daemon; empty if the error is the client's own.
    detail: types_pb2.ErrorDetail

    def __init__(self, message: str, detail: types_pb2.ErrorDetail | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail if detail is not None else types_pb2.ErrorDetail()

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message


class InvalidError(CkptdError, ValueError):
    """The request is invalid; the message says why."""

    reason = "INVALID"


class NotFoundError(CkptdError, LookupError):
    """No such thread, checkpoint, branch or blob, or no right to see it."""

    reason = "NOT_FOUND"
    advice = "check tenant, user and thread, and that the credentials reach them"


class ConflictError(CkptdError):
    """The head of the lineage moved, or the target of a copy exists."""

    reason = "CONFLICT"
    advice = "load the head and decide again"

    @property
    def head_seq(self) -> int:
        """Seq of the head, 0 if there is none."""
        return self.detail.head_seq

    @property
    def head_id(self) -> str:
        """Id of the head, empty if there is none."""
        return self.detail.head_id


class BranchExistsError(CkptdError):
    """The branch that a fork names exists."""

    reason = "BRANCH_EXISTS"
    advice = "name another branch, or move this one with set_branch"

    @property
    def branch(self) -> str:
        """Its name."""
        return self.detail.branch

    @property
    def head_seq(self) -> int:
        """Seq of its head."""
        return self.detail.head_seq


class UnknownParentError(CkptdError):
    """No checkpoint has the id that the draft names as its parent."""

    reason = "UNKNOWN_PARENT"
    advice = "save the parent first, or allow a dangling one"


class GenerationError(CkptdError):
    """The thread or namespace was deleted in the meantime, and a late save or write was refused."""

    reason = "GENERATION"
    advice = "the thread was deleted: stop this run, or start the thread over without a generation"


class NeedFullError(CkptdError):
    """The parent does not hold the base of an edit."""

    reason = "NEED_FULL"
    advice = "send these channels whole (a Session does so by itself)"

    @property
    def channels(self) -> list[str]:
        """The channels to send whole."""
        return list(self.detail.need_full)


class ExhaustedError(CkptdError):
    """The lineage holds as many checkpoints as it can."""

    reason = "EXHAUSTED"
    advice = "continue in another thread"


class TooLargeError(CkptdError):
    """Something is over a limit of the daemon."""

    reason = "TOO_LARGE"
    advice = "store large values as blobs, or raise the limit of the daemon (--max-message)"

    @property
    def what(self) -> str:
        """The item that is too large; empty if it is the message itself."""
        return self.detail.what

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.detail.size

    @property
    def most(self) -> int:
        """The limit in bytes."""
        return self.detail.most


class CorruptError(CkptdError):
    """A record is damaged."""

    reason = "CORRUPT"
    advice = "run `ckptd verify` to see the extent, and restore a backup"

    @property
    def record(self) -> str:
        """Kind and place of the record."""
        return self.detail.what


class KeyDestroyedError(CkptdError):
    """The key of the data was destroyed, and the data with it."""

    reason = "KEY_DESTROYED"
    advice = "the data cannot be recovered; use another user name to start over"


class KeyMissingError(CkptdError):
    """The keystore is older than the data."""

    reason = "KEY_MISSING"
    advice = "bring back the newest copy of the keystore"


class UnavailableError(CkptdError):
    """The disk of the daemon fails. Nothing was done."""

    reason = "UNAVAILABLE"
    advice = "look at the daemon's log and its disk"


class NoSpaceError(UnavailableError):
    """The disk of the daemon is full. Nothing was saved."""

    reason = "NO_SPACE"
    advice = "free some space on the daemon's disk"


class AmbiguousError(CkptdError):
    """An answer was lost: it is unknown whether the change was made."""

    reason = "AMBIGUOUS"
    advice = "save again with the same id to find out; for other calls, check the state first"


class NewerFormatError(CkptdError):
    """A newer version of ckptd wrote the data."""

    reason = "NEWER_FORMAT"
    advice = "upgrade the daemon"


class OverloadedError(CkptdError):
    """A limit of the daemon is reached. Nothing was done."""

    reason = "OVERLOADED"
    advice = "try again later, or with fewer calls at a time"

    @property
    def retry_after(self) -> float:
        """Seconds that the daemon asks to wait."""
        return self.detail.retry_after.ToTimedelta().total_seconds()


class ShuttingDownError(CkptdError):
    """The daemon is shutting down. Nothing was done."""

    reason = "SHUTTING_DOWN"
    advice = "try again when it is back"

    @property
    def retry_after(self) -> float:
        """Seconds that the daemon asks to wait."""
        return self.detail.retry_after.ToTimedelta().total_seconds()


class UnauthenticatedError(CkptdError):
    """The daemon does not accept the credentials."""

    reason = "UNAUTHENTICATED"
    advice = (
        "pass token or token_file, or set CKPTD_TOKEN; "
        "a wrong token, a revoked one and an expired one look the same"
    )


class DeniedError(CkptdError):
    """The credentials do not allow the call."""

    reason = "DENIED"
    advice = "client.admin.who_am_i() shows the grants"


class _PluginError(CkptdError):
    @property
    def plugin(self) -> types_pb2.PluginError:
        """The plugin and the item it failed on. Never quotes content."""
        return self.detail.plugin


class PluginRejectedError(_PluginError):
    """A plugin or a rule rejects the content."""

    reason = "PLUGIN_REJECTED"
    advice = "remove the content that must not be stored"


class PluginFailedError(_PluginError):
    """A plugin ran out of fuel, time or room, trapped, or reported an error."""

    reason = "PLUGIN_FAILED"
    advice = "`ckptd plugin inspect` shows its limits; disable or replace it"


class PluginUnavailableError(_PluginError):
    """A plugin that must run is missing, or its process was killed."""

    reason = "PLUGIN_UNAVAILABLE"
    advice = "`ckptd plugin list` shows the state of the plugins"


class PluginInvalidError(_PluginError):
    """The plugin cannot be installed."""

    reason = "PLUGIN_INVALID"


class _MigrationError(CkptdError):
    @property
    def migration(self) -> types_pb2.MigrationError:
        """The step and its versions. Its reason can quote the state."""
        return self.detail.migration


class SchemaTooNewError(_MigrationError):
    """The state has a newer schema version than the load asks for."""

    reason = "SCHEMA_TOO_NEW"
    advice = "upgrade the program, or allow ways back with down=True"


class NoMigrationError(_MigrationError):
    """No steps lead to the version that was asked for."""

    reason = "NO_MIGRATION"
    advice = "install the migrations with `ckptd migrate install`"


class MigrationFailedError(_MigrationError):
    """A step of a migration failed on the state."""

    reason = "MIGRATION_FAILED"
    advice = "correct the step that `migration` names and install it again"


class MigrationInvalidError(CkptdError):
    """The set of migrations cannot be installed."""

    reason = "MIGRATION_INVALID"


class MigrationRefusedError(_MigrationError):
    """States would fail in the job, and nothing was written."""

    reason = "MIGRATION_REFUSED"
    advice = "the job's report names the states"


class MigrationStoppedError(_MigrationError):
    """Too many states failed in the job."""

    reason = "MIGRATION_STOPPED"
    advice = "correct the step and start the job again, or undo it"


class MigrationBusyError(CkptdError):
    """Another job of the tenant runs."""

    reason = "MIGRATION_BUSY"
    advice = "wait for that job, or cancel it"


class MigrationStateError(CkptdError):
    """The job's state does not allow the action."""

    reason = "MIGRATION_STATE"


class NoJobError(CkptdError, LookupError):
    """The tenant has no such job."""

    reason = "NO_JOB"
    advice = "client.migrations.jobs() lists the jobs"


class UnreachableError(UnavailableError, ConnectionError):
    """The daemon gave no answer, and nothing was changed."""

    reason = "UNREACHABLE"
    advice = "check the URL, and that `ckptd serve` runs there"


class TimedOutError(CkptdError, TimeoutError):
    """The daemon gave up because the request took too long. Nothing was changed."""

    reason = "DEADLINE"
    advice = "try again, or allow the daemon more with --request-timeout"


class ClosedError(CkptdError):
    """The client is closed."""

    reason = "CLOSED"
    advice = "open another client"


class InternalError(CkptdError):
    """A bug in the daemon."""

    reason = "INTERNAL"
    advice = "the daemon's log has more; please report it"


def _classes(base: type[CkptdError]) -> list[type[CkptdError]]:
    return [base, *(c for sub in base.__subclasses__() for c in _classes(sub))]


#: The class of each reason of the API.
BY_REASON: dict[int, type[CkptdError]] = {}
for _cls in _classes(CkptdError):
    _value = types_pb2.Reason.DESCRIPTOR.values_by_name.get(f"REASON_{_cls.reason}")
    if _value is not None:
        BY_REASON[_value.number] = _cls


def from_detail(message: str, detail: types_pb2.ErrorDetail) -> CkptdError:
    """Return the error for a detail; CkptdError itself for an unknown reason."""
    return BY_REASON.get(detail.reason, CkptdError)(message, detail)
