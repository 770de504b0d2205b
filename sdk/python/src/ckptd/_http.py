"""HTTP/1.1 on one connection, by h11 and without I/O."""

from __future__ import annotations

from typing import Final

import h11

from ckptd._failures import Broken
from ckptd.errors import InvalidError

Headers = list[tuple[str, str]]

NEED_DATA: Final = h11.NEED_DATA

# These only advance h11's state. The real head of a request is checked once, by head(): checking
# the same headers for each request would take longer than the rest of this module.
_SIZED = h11.Request(method="POST", target="/", headers=[("Host", "ckptd")])
_CHUNKED = h11.Request(
    method="POST", target="/", headers=[("Host", "ckptd"), ("Transfer-Encoding", "chunked")]
)
_END = h11.EndOfMessage()


def head(path: str, headers: Headers) -> bytes:
    """Return the head of a request up to its last header, checked by h11."""
    try:
        request = h11.Request(method="POST", target=path, headers=headers)
        text = h11.Connection(h11.CLIENT).send(request)
    except (h11.LocalProtocolError, UnicodeEncodeError) as e:
        raise InvalidError(f"a header cannot be sent: {e}") from e
    assert text is not None
    return text.removesuffix(b"\r\n")


class Http:
    """The client's side of a connection: requests one after the other."""

    __slots__ = ("_closed", "_conn", "_finished")

    def __init__(self) -> None:
        self._conn = h11.Connection(h11.CLIENT)
        self._finished = False
        self._closed = False

    def request(self, head: bytes, body: bytes) -> list[bytes]:
        """Return a whole request: one part, or head and body if the body is large."""
        self._conn.send(_SIZED)
        self.end()
        head = b"%bContent-Length: %d\r\n\r\n" % (head, len(body))
        return [head + body] if len(body) < 64 << 10 else [head, body]

    def begin(self, head: bytes) -> bytes:
        """Return the head of a request whose body comes in chunks."""
        self._conn.send(_CHUNKED)
        return head + b"Transfer-Encoding: chunked\r\n\r\n"

    def chunk(self, data: bytes) -> bytes:
        """Return a part of the body of a request."""
        return self._conn.send(h11.Data(data=data)) or b""

    def end(self) -> bytes:
        """Return the end of a request."""
        self._finished = True
        return self._conn.send(_END) or b""

    def feed(self, data: bytes) -> None:
        """Add received bytes; no bytes mean that the connection has ended."""
        self._closed = self._closed or not data
        try:
            self._conn.receive_data(data)
        except RuntimeError as e:  # data after the end
            raise Broken(str(e), sent=True) from None

    def next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event of the answer."""
        try:
            return self._conn.next_event()
        except h11.RemoteProtocolError as e:
            if self._closed:
                raise Broken(
                    "the connection broke before the answer was whole", sent=True
                ) from None
            raise Broken(f"the answer is not HTTP: {e}", sent=True) from None

    def again(self) -> bool:
        """Prepare for another request, if the connection can carry one."""
        if not self._finished or self._conn.trailing_data[0]:
            return False
        if self._conn.our_state is not h11.DONE or self._conn.their_state is not h11.DONE:
            return False
        self._conn.start_next_cycle()
        self._finished = False
        return True
