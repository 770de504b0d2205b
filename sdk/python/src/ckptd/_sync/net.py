"""Connections to the daemon, on sockets."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import BinaryIO

from ckptd._config import Address
from ckptd._failures import Broken, Expired
from ckptd._socket import keep_alive, refused, wait

# The size of the pieces that a large request is sent in. The client checks for an answer between
# them, because the daemon refuses a request that is too large before it has read all of it.
_PIECE = 256 << 10
# Sizes of a read. Small answers are the rule, and allocating a large buffer for each costs time.
_SMALL, _LARGE = 64 << 10, 1 << 20


def place() -> object:
    """Return the key of the connections that can be used here: all of them."""
    return None


def gone(place: object) -> bool:
    """Report whether connections with this key can never be used again."""
    return False


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def read_file(file: BinaryIO, size: int) -> bytes:
    """Read from a file of the caller's."""
    return file.read(size)


def seek_file(file: BinaryIO, place: int) -> None:
    """Go to a place in a file of the caller's."""
    file.seek(place)


class Stream:
    """A connection as a stream of bytes, on a non-blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._deadline: float | None = None
        self._early = b""  # read while the request was on its way
        self._size = _SMALL
        self.cut = False  # a request was not sent completely

    def arm(self, seconds: float | None) -> None:
        """Set the time after which operations raise Expired."""
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def idle(self) -> None:
        """Mark the connection as idle."""
        self._deadline = None
        self._size = _SMALL

    def alive(self) -> bool:
        """Report whether an idle connection still seems to be open."""
        try:
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False  # closed, or unexpected data

    def send(self, parts: list[bytes]) -> None:
        """Send the parts, unless the daemon answers or hangs up first (cut)."""
        try:
            for part in parts:
                sent = 0
                while sent < len(part):
                    piece = memoryview(part)[sent : sent + _PIECE] if len(part) > _PIECE else part
                    if sent and self._answered():
                        self.cut = True
                        return
                    sent += self._send(piece)
        except (OSError, ValueError):
            self.cut = True  # the daemon has possibly answered; read() finds out

    def _send(self, piece: bytes | memoryview) -> int:
        """Send a piece, all of it."""
        done = 0
        while done < len(piece):
            try:
                done += self._sock.send(piece[done:] if done else piece)
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(write=True)
            except ssl.SSLWantReadError:
                self._wait(write=False)
        return done

    def _answered(self) -> bool:
        try:
            self._early += self._sock.recv(_SMALL)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        return True

    def read(self) -> bytes:
        """Return the next bytes; none mean that the connection has ended."""
        if self._early:
            data, self._early = self._early, b""
            return data
        try:
            data = self._receive()
        except ssl.SSLEOFError:
            return b""
        except (OSError, ValueError) as e:
            raise Broken(str(e), sent=True) from e
        if len(data) == self._size:
            self._size = _LARGE
        return data

    def _receive(self) -> bytes:
        if self._size == _SMALL and not isinstance(self._sock, ssl.SSLSocket):
            self._wait(write=False)  # the answer has not arrived yet
        while True:
            try:
                return self._sock.recv(self._size)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(write=False)
            except ssl.SSLWantWriteError:
                self._wait(write=True)

    def _wait(self, write: bool) -> None:
        left = None
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
        if (left is not None and left <= 0) or not wait(self._sock, write, left):
            raise Expired

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def abort(self) -> None:
        """End the connection, even if a thread waits for it."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


def connect(address: Address, timeout: float) -> Stream:
    """Connect to the daemon."""
    sock: socket.socket | None = None
    try:
        if address.path:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(timeout)
            sock.connect(address.path)
            return Stream(sock)
        sock = socket.create_connection((address.host, address.port), timeout)
        keep_alive(sock)
        if address.tls:
            sock = address.tls.wrap_socket(sock, server_hostname=address.host)
        return Stream(sock)
    except OSError as e:
        if sock:
            sock.close()
        raise refused(e) from e
