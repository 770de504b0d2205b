"""Connections to the daemon, on asyncio's streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, BinaryIO

from ckptd._config import Address
from ckptd._failures import Broken, Expired
from ckptd._socket import keep_alive, refused, wait

# The size of the pieces that a large request is sent in. The client checks for an answer between
# them, because the daemon refuses a request that is too large before it has read all of it.
_PIECE = 256 << 10
# The most bytes that asyncio buffers.
_LIMIT = 1 << 20


def place() -> object:
    """Return the key of the connections that can be used here: those of this event loop."""
    return asyncio.get_running_loop()


def gone(place: object) -> bool:
    """Report whether connections with this key can never be used again."""
    return isinstance(place, asyncio.AbstractEventLoop) and place.is_closed()


async def sleep(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def read_file(file: BinaryIO, size: int) -> bytes:
    """Read from a file of the caller's."""
    return await asyncio.to_thread(file.read, size)


async def seek_file(file: BinaryIO, place: int) -> None:
    """Go to a place in a file of the caller's."""
    await asyncio.to_thread(file.seek, place)


class _Reader(asyncio.StreamReader):
    """A reader that returns the bytes received before the connection broke, then its end."""

    heard = False  # data or the end arrived

    def feed_data(self, data: Any) -> None:
        self.heard = True
        super().feed_data(data)

    def feed_eof(self) -> None:
        self.heard = True
        super().feed_eof()

    def set_exception(self, exc: BaseException) -> None:
        self.feed_eof()


class Stream:
    """A connection as a stream of bytes."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, reader: _Reader, writer: asyncio.StreamWriter
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._writer = writer
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self.cut = False  # a request was not sent completely

    def arm(self, seconds: float | None) -> None:
        """Set the time after which operations raise Expired."""
        if self._timer:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._writer.transport.abort()

    def idle(self) -> None:
        """Mark the connection as idle."""
        self.arm(None)
        self._reader.heard = False

    def alive(self) -> bool:
        """Report whether an idle connection still seems to be open."""
        reader, transport = self._reader, self._writer.transport
        if reader.heard or reader.at_eof() or transport.is_closing():
            return False
        # The event loop has possibly not yet seen that the daemon closed the connection.
        return not wait(transport.get_extra_info("socket").fileno(), False, 0)

    async def send(self, parts: list[bytes]) -> None:
        """Send the parts, unless the daemon answers or hangs up first (cut)."""
        try:
            for part in parts:
                if len(part) <= _PIECE:
                    self._writer.write(part)
                    continue
                view = memoryview(part)
                for start in range(0, len(view), _PIECE):
                    if start and self._reader.heard:
                        self.cut = True
                        return
                    self._writer.write(view[start : start + _PIECE])
                    await self._writer.drain()
            await self._writer.drain()
        except OSError:
            self.cut = True  # the daemon has possibly answered; read() finds out

    async def read(self) -> bytes:
        """Return the next bytes; none mean that the connection has ended."""
        data = await self._reader.read(_LIMIT)
        if self._expired:
            raise Expired
        return data

    def close(self) -> None:
        """Close the connection."""
        self.arm(None)
        self.abort()

    def abort(self) -> None:
        """End the connection, even if a task waits for it."""
        with contextlib.suppress(RuntimeError):  # its event loop is closed
            if self._loop is _running():
                self._writer.transport.abort()
            else:
                self._loop.call_soon_threadsafe(self.abort)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def connect(address: Address, timeout: float) -> Stream:
    """Connect to the daemon."""
    loop = asyncio.get_running_loop()
    reader = _Reader(limit=_LIMIT, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport: asyncio.Transport
    try:
        if address.path:
            transport, _ = await asyncio.wait_for(
                loop.create_unix_connection(lambda: protocol, address.path), timeout
            )
        else:
            transport, _ = await asyncio.wait_for(
                loop.create_connection(
                    lambda: protocol, address.host, address.port, ssl=address.tls
                ),
                timeout,
            )
            sock = transport.get_extra_info("socket")
            if isinstance(sock, socket.socket) or hasattr(sock, "setsockopt"):
                keep_alive(sock)
    except (asyncio.TimeoutError, TimeoutError):  # two classes in 3.10
        raise Broken("connecting took too long", sent=False) from None
    except OSError as e:
        raise refused(e) from e
    return Stream(loop, reader, asyncio.StreamWriter(transport, protocol, reader, loop))
