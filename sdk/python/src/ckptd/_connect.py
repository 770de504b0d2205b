"""The Connect protocol over HTTP/1.1 with protobuf bodies, without I/O.

Messages are not compressed: close to the daemon, compressing costs more time than it saves.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from ckptd._failures import Foreign, Refused
from ckptd.v1 import types_pb2

M = TypeVar("M", bound=Message)

UNARY = "application/proto"
STREAM = "application/connect+proto"

_HEAD = struct.Struct(">BI")
_COMPRESSED, _END = 1, 2
_DETAIL = types_pb2.ErrorDetail.DESCRIPTOR.full_name

# RPC codes for HTTP statuses of answers that are not Connect's: from a proxy or another server.
_CODES = {
    400: "internal",
    401: "unauthenticated",
    403: "permission_denied",
    404: "unimplemented",
    429: "unavailable",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}


def envelope(message: bytes) -> bytes:
    """Return a message of a stream in its envelope."""
    return _HEAD.pack(0, len(message)) + message


def decode(body: bytes, answer: type[M]) -> M:
    """Return the message in body."""
    try:
        return answer.FromString(body)
    except DecodeError as e:
        raise Foreign("internal", f"an answer that is not a {answer.__name__}: {e}") from None


def check(status: int, content_type: str, streams: bool) -> None:
    """Raise Foreign unless the content type is one that the daemon uses.

    For a status other than 200, call refusal instead.
    """
    want = STREAM if streams else UNARY
    if content_type.partition(";")[0].strip() != want:
        raise Foreign("unknown", f"HTTP status {status} with content type {content_type!r}")


def refusal(status: int, content_type: str, body: bytes) -> Refused | Foreign:
    """Return the error in the body of an answer whose status is not 200."""
    if content_type.partition(";")[0].strip() == "application/json":
        try:
            text = json.loads(body)
        except ValueError:
            text = None
        if isinstance(text, dict) and isinstance(text.get("code"), str):
            return _error(text)
    return Foreign(_CODES.get(status, "unknown"), f"HTTP status {status}")


def _error(text: dict[str, Any]) -> Refused:
    for d in text.get("details") or ():
        if d.get("type") == _DETAIL:
            value = d.get("value", "")
            try:
                raw = base64.b64decode(value + "=" * (-len(value) % 4))
                detail = types_pb2.ErrorDetail.FromString(raw)
            except (binascii.Error, DecodeError):
                continue
            return Refused(text["code"], text.get("message", ""), detail)
    return Refused(text["code"], text.get("message", ""), None)


class Envelopes:
    """Extracts the messages of a stream from their envelopes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.ended = False  # the last envelope has arrived

    def feed(self, data: bytes | bytearray) -> None:
        """Add received bytes."""
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the next message, or None if it is incomplete or the stream has ended.

        Raises Refused if the stream ended with an error.
        """
        if self.ended or len(self._buffer) < _HEAD.size:
            return None
        flags, size = _HEAD.unpack_from(self._buffer)
        if len(self._buffer) < _HEAD.size + size:
            return None
        message = bytes(memoryview(self._buffer)[_HEAD.size : _HEAD.size + size])
        del self._buffer[: _HEAD.size + size]
        if flags & _COMPRESSED:
            raise Foreign("internal", "a compressed message, which the client did not ask for")
        if not flags & _END:
            return message
        self.ended = True
        try:
            error = json.loads(message).get("error")
        except (ValueError, AttributeError):
            raise Foreign("internal", "the end of the stream cannot be read") from None
        if error:
            raise _error(error)
        return None
