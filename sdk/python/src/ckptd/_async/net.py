"""Bytes to and from the daemon, by asyncio's streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from types import TracebackType
from typing import Any, BinaryIO

from ckptd._config import Address
from ckptd._failures import Broken, Expired
from ckptd._socket import keep_alive, refused, wait

# Between pieces of a large request the answer is looked for: the daemon refuses what is too large
# before it read it.
_PIECE = 256 << 10
# How much of an answer is taken from the socket before it is looked at.
_LIMIT = 1 << 20


class Lock:
    """Nothing runs between two awaits, so there is nothing to lock."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing."""


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
    """A reader that gives what came before the connection broke, and only then its end."""

    heard = False  # something came

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
        self.cut = False  # not all of a request was sent

    def usable(self) -> bool:
        """Report whether the connection can be used in this thread or event loop."""
        return self._loop is asyncio.get_running_loop()

    def arm(self, seconds: float | None) -> None:
        """Set when operations expire."""
        if self._timer:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._writer.transport.abort()

    def idle(self) -> None:
        """Take note that no request is under way."""
        self.arm(None)
        self._reader.heard = False

    def alive(self) -> bool:
        """Report whether an idle connection is still open, as far as is known here."""
        reader, transport = self._reader, self._writer.transport
        if reader.heard or reader.at_eof() or transport.is_closing():
            return False
        # Its end may have come since the event loop looked last.
        return not wait(transport.get_extra_info("socket").fileno(), False, 0)

    async def send(self, parts: list[bytes]) -> None:
        """Send, up to the point where the daemon has answered or hung up already."""
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
            self.cut = True  # an answer may be there all the same

    async def read(self) -> bytes:
        """Return what comes next; nothing is the end of the connection."""
        data = await self._reader.read(_LIMIT)
        if self._expired:
            raise Expired
        return data

    def close(self) -> None:
        """Close the connection."""
        self.arm(None)
        self.abort()

    def abort(self) -> None:
        """End the connection under a task that waits for it."""
        with contextlib.suppress(RuntimeError):  # its event loop is closed
            self._writer.transport.abort()


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
        raise Broken("connecting takes too long", sent=False) from None
    except OSError as e:
        raise refused(e) from e
    return Stream(loop, reader, asyncio.StreamWriter(transport, protocol, reader, loop))
