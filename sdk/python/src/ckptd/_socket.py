"""Socket functions of both clients."""

from __future__ import annotations

import select
import socket
import ssl

from ckptd._failures import Broken


def keep_alive(sock: socket.socket) -> None:
    """Detect a dead peer within minutes, and send without delay."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def wait(sock: socket.socket | int, write: bool, timeout: float | None) -> bool:
    """Wait until a socket can be written or read, and report whether it can."""
    if not hasattr(select, "poll"):
        ready = select.select([] if write else [sock], [sock] if write else [], [], timeout)
        return any(ready)
    poll = select.poll()
    poll.register(sock, select.POLLOUT if write else select.POLLIN)
    return bool(
        poll.poll(None if timeout is None else max(1, int(timeout * 1000)) if timeout else 0)
    )


def refused(e: OSError) -> Broken:
    """Return the failure for an error in connecting."""
    # Retrying does not help against an untrusted certificate or a path that is too long (which has
    # no errno).
    final = isinstance(e, ssl.SSLCertVerificationError)
    final = final or (e.errno is None and not isinstance(e, TimeoutError))
    return Broken(str(e) or "connecting took too long", sent=False, final=final)
