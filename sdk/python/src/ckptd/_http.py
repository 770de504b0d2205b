"""One connection's worth of HTTP/1.1, by h11 and without I/O."""

from __future__ import annotations

from typing import Final

import h11

from ckptd._failures import Broken

Headers = list[tuple[bytes, bytes]]

NEED_DATA: Final = h11.NEED_DATA


class Http:
    """The client's side of a connection: requests one after the other."""

    __slots__ = ("_closed", "_conn", "_finished")

    def __init__(self) -> None:
        self._conn = h11.Connection(h11.CLIENT)
        self._finished = False
        self._closed = False

    def head(self, path: str, headers: Headers) -> bytes:
        """Return the head of a request."""
        request = h11.Request(method=b"POST", target=path.encode(), headers=headers)
        return self._conn.send(request) or b""

    def body(self, data: bytes) -> list[bytes]:
        """Return a part of the body of a request as it goes on the wire."""
        parts = self._conn.send_with_data_passthrough(h11.Data(data=data))
        return [bytes(p) for p in parts or ()]

    def end(self) -> bytes:
        """Return the end of a request."""
        self._finished = True
        return self._conn.send(h11.EndOfMessage()) or b""

    def feed(self, data: bytes) -> None:
        """Add what came; nothing is the end of the connection."""
        self._closed = self._closed or not data
        try:
            self._conn.receive_data(data)
        except RuntimeError as e:  # data behind the end
            raise Broken(str(e), sent=True) from None

    def next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return what came next of the answer."""
        try:
            return self._conn.next_event()
        except h11.RemoteProtocolError as e:
            if self._closed:
                raise Broken("the connection broke before the answer was whole", sent=True) from None
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
