"""The ways an attempt at a call can fail. Retry turns them into errors of the call."""

from __future__ import annotations

from ckptd.v1 import types_pb2


class Failure(Exception):  # noqa: N818 - never leaves this package
    """Base of the ways an attempt can fail."""


class Broken(Failure):
    """The connection failed."""

    def __init__(self, why: str, *, sent: bool, final: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent  # possibly, the daemon has the request
        self.final = final  # another attempt would fail the same way


class Expired(Failure):
    """The attempt took too long."""


class Refused(Failure):
    """The daemon answered with an error."""

    def __init__(self, code: str, message: str, detail: types_pb2.ErrorDetail | None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.detail = detail


class Foreign(Failure):
    """The answer is not the daemon's."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(code, why)
        self.code = code
        self.why = why
