"""Connections, their pool, and single attempts at calls."""

from __future__ import annotations

import os
import threading
import time
from typing import Generic

import h11

from ckptd._async import net
from ckptd._config import Options
from ckptd._connect import STREAM, UNARY, Envelopes, M, check, decode, envelope, refusal
from ckptd._failures import Broken, Failure
from ckptd._http import NEED_DATA, Http, head
from ckptd._rules import METHODS, Method

# The most idle connections, and their longest idle time in seconds: less than the daemon's.
_POOL = 512
_IDLE = 60.0


class Connection:
    """A connection to the daemon: one request at a time."""

    def __init__(self, stream: net.Stream) -> None:
        self.stream = stream
        self.http = Http()
        self.used = 0.0

    async def event(self) -> h11.Event:
        """Return the next event of the answer."""
        while True:
            event = self.http.next()
            if event is NEED_DATA:
                self.http.feed(await self.stream.read())
            elif isinstance(event, h11.Event):
                return event
            else:
                raise Broken("the answer has data behind its end", sent=True)

    async def head(self) -> tuple[int, str]:
        """Return the status and the content type of the answer."""
        self.http.feed(await self.stream.read())  # skips a look at h11's empty buffer
        while True:
            event = await self.event()
            if isinstance(event, h11.Response):
                types = [v for name, v in event.headers if name == b"content-type"]
                return event.status_code, (types[0].decode("latin-1") if types else "")
            if isinstance(event, h11.ConnectionClosed):
                raise Broken("the connection was closed before an answer", sent=True)

    async def body(self) -> bytes:
        """Return the body of the answer."""
        parts: list[bytes] = []
        while True:
            event = await self.event()
            if isinstance(event, h11.Data):
                parts.append(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return parts[0] if len(parts) == 1 else b"".join(parts)
            else:
                raise Broken("the answer breaks off", sent=True)


class Pool:
    """The connections of a client. Thread-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        # By the place they belong to, such as an event loop; most recently used last.
        self._idle: dict[object, list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._pid = os.getpid()
        self.closed = False

    async def take(self) -> Connection:
        """Return an idle connection that is still open, or a new one."""
        while (conn := self._pop()) is not None:
            if time.monotonic() - conn.used < _IDLE and conn.stream.alive():
                break
            conn.stream.close()
        else:
            conn = Connection(
                await net.connect(self._options.address, self._options.connect_timeout)
            )
        with self._lock:
            self._busy.add(conn)
        if self.closed:  # while connecting
            self.drop(conn)
            raise Broken("the client is closed", sent=False)
        return conn

    def _pop(self) -> Connection | None:
        with self._lock:
            if self._pid != os.getpid():  # after a fork these belong to the parent
                self._idle, self._busy, self._pid = {}, set(), os.getpid()
            here = self._idle.get(net.place())
            return here.pop() if here else None

    def give(self, conn: Connection) -> None:
        """Return a connection to the pool after its answer was read completely."""
        if conn.stream.cut or not conn.http.again():
            self.drop(conn)
            return
        conn.stream.idle()
        conn.used = time.monotonic()
        with self._lock:
            self._busy.discard(conn)
            here = self._here()
            if not self.closed and len(here) < _POOL:
                here.append(conn)
                return
        conn.stream.close()

    def _here(self) -> list[Connection]:
        """Return the idle connections that can be used here."""
        place = net.place()
        if place not in self._idle:
            self._idle = {p: conns for p, conns in self._idle.items() if not net.gone(p)}
            self._idle[place] = []
        return self._idle[place]

    def idle(self) -> list[Connection]:
        """Return all idle connections."""
        with self._lock:
            return [conn for conns in self._idle.values() for conn in conns]

    def drop(self, conn: Connection) -> None:
        """Close a connection."""
        with self._lock:
            self._busy.discard(conn)
        conn.stream.close()

    def close(self) -> None:
        """Close all connections, including those in use."""
        idle = self.idle()
        with self._lock:
            self.closed = True
            self._idle, busy = {}, list(self._busy)
        for conn in idle:
            conn.stream.close()
        for conn in busy:
            conn.stream.abort()


class Wire:
    """Makes attempts at calls."""

    def __init__(self, options: Options, pool: Pool | None = None) -> None:
        self.pool = pool or Pool(options)
        self._timeout = options.timeout
        stream = options.headers(("Content-Type", STREAM))
        unary = [("Content-Type", UNARY)]
        if options.timeout is not None:  # the daemon stops working on it, too
            unary.append(("Connect-Timeout-Ms", str(max(1, int(options.timeout * 1000)))))
        self._heads = {
            m.path: head(m.path, stream if m.streams or m.uploads else options.headers(*unary))
            for m in METHODS.values()
        }

    async def unary(self, method: Method, body: bytes, answer: type[M]) -> M:
        """Make an attempt at a call with a single answer."""
        conn = await self.pool.take()
        try:
            conn.stream.arm(self._timeout)
            await conn.stream.send(conn.http.request(self._heads[method.path], body))
            status, kind = await conn.head()
            content = await conn.body()
        except BaseException:
            self.pool.drop(conn)
            raise
        self.pool.give(conn)
        if status != 200:
            raise refusal(status, kind, content)
        check(status, kind, streams=False)
        return decode(content, answer)

    async def stream(
        self, method: Method, body: bytes, answer: type[M], patience: float | None = None
    ) -> Answers[M]:
        """Start an attempt at a call whose answer is a stream.

        Raises Expired if the head of the answer takes longer than patience seconds.
        """
        conn = await self.pool.take()
        answers = Answers(self.pool, conn, answer)
        try:
            conn.stream.arm(patience)
            await conn.stream.send(conn.http.request(self._heads[method.path], envelope(body)))
            await answers.begin()
        except BaseException:
            self.pool.drop(conn)
            raise
        return answers

    async def upload(self, method: Method, answer: type[M]) -> Upload[M]:
        """Start an attempt at a call whose request is a stream."""
        conn = await self.pool.take()
        try:
            await conn.stream.send([conn.http.begin(self._heads[method.path])])
        except BaseException:
            self.pool.drop(conn)
            raise
        return Upload(self.pool, conn, answer)


class Answers(Generic[M]):
    """The messages of a streamed answer."""

    def __init__(self, pool: Pool, conn: Connection, answer: type[M]) -> None:
        self._pool = pool
        self._conn: Connection | None = conn
        self._answer = answer
        self._envelopes = Envelopes()

    async def begin(self) -> None:
        """Read the head of the answer."""
        assert self._conn
        status, kind = await self._conn.head()
        if status != 200:
            raise refusal(status, kind, await self._conn.body())
        check(status, kind, streams=True)

    async def receive(self, patience: float | None = None) -> M | None:
        """Return the next message, or None at the end.

        Raises Expired after patience seconds of silence.
        """
        while True:
            message = self._envelopes.next()
            if message is not None:
                return decode(message, self._answer)
            if self._conn is None:
                return None
            self._conn.stream.arm(patience)
            event = await self._conn.event()
            self._conn.stream.arm(None)
            if isinstance(event, h11.Data):
                self._envelopes.feed(event.data)
            elif self._envelopes.ended and isinstance(event, h11.EndOfMessage):
                conn, self._conn = self._conn, None
                self._pool.give(conn)
            else:
                raise Broken("the stream breaks off", sent=True)

    async def finish(self) -> None:
        """Read to the end, which must be near, so that the connection can be reused."""
        try:
            await self.receive(1.0)
        except Failure:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Abandon the rest of the answer."""
        if self._conn is not None:
            conn, self._conn = self._conn, None
            self._pool.drop(conn)


class Upload(Generic[M]):
    """A streamed request with a single answer."""

    def __init__(self, pool: Pool, conn: Connection, answer: type[M]) -> None:
        self._pool = pool
        self._conn = conn
        self._answers = Answers(pool, conn, answer)

    async def send(self, message: bytes) -> bool:
        """Send a message. Returns False if the daemon has already answered or hung up."""
        await self._conn.stream.send([self._conn.http.chunk(envelope(message))])
        return not self._conn.stream.cut

    async def answer(self) -> M:
        """End the request and return the answer."""
        if not self._conn.stream.cut:
            await self._conn.stream.send([self._conn.http.end()])
        await self._answers.begin()
        message = await self._answers.receive()
        if message is None:
            raise Broken("the answer is missing", sent=True)
        await self._answers.finish()
        return message

    def close(self) -> None:
        """Abandon the request."""
        self._answers.close()
