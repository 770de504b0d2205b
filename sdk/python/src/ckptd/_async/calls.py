"""Calls with retries, and lists that resume after a broken connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from types import TracebackType
from typing import Generic, TypeVar

from google.protobuf.message import EncodeError, Message

from ckptd._async import net
from ckptd._async.wire import Answers, Pool, Wire
from ckptd._cache import Cache
from ckptd._config import Options
from ckptd._connect import M
from ckptd._failures import Broken, Failure
from ckptd._ids import IdClock
from ckptd._retry import Retry
from ckptd._rules import METHODS, Method
from ckptd.errors import InvalidError, UnavailableError

T = TypeVar("T")


class Caller:
    """Makes calls. All handles of a client share one."""

    def __init__(self, options: Options, pool: Pool | None = None) -> None:
        self.options = options
        self.wire = Wire(options, pool)
        self.ids = IdClock()
        self.cache = Cache(options.cache_bytes)

    def new_id(self) -> str:
        """Return an id for a draft, or none if the daemon makes them (server_ids)."""
        return "" if self.options.server_ids else self.ids.next()

    def tenant(self, name: str | None) -> str:
        """Return the name, or the tenant of the client."""
        return self.options.tenant if name is None else name

    def user(self, name: str | None) -> str:
        """Return the name, or the user of the client."""
        return self.options.user if name is None else name

    def close(self) -> None:
        """End all calls."""
        self.wire.pool.close()

    async def call(self, request: Message, answer: type[M]) -> M:
        """Make a call with a single answer."""
        method = self.method(request, answer)
        if method.streams or method.uploads:
            raise InvalidError(f"{method.name} streams: use the handle that has it")
        body = self.encode(request)
        retry = self.retry(method, request)
        while True:
            retry.check()
            try:
                return await self.wire.unary(method, body, answer)
            except Failure as f:
                wait = retry.failed(f)
            await self.pause(retry, wait)

    def method(self, request: Message, answer: type[Message]) -> Method:
        """Return the method of a request."""
        method = METHODS.get(type(request))
        if method is None or method.answer is not answer:
            name = type(request).__name__
            raise InvalidError(f"no method takes a {name} and returns a {answer.__name__}")
        return method

    def retry(self, method: Method, request: Message) -> Retry:
        """Start the attempts at a call."""
        pool, o = self.wire.pool, self.options
        may = method.retry_for(request)
        return Retry(o.policy, may, o.address.url, lambda: pool.closed)

    def encode(self, request: Message) -> bytes:
        """Return a request as it goes on the wire."""
        try:
            return request.SerializeToString()
        except (EncodeError, ValueError) as e:
            raise InvalidError(f"the {type(request).__name__} cannot be encoded: {e}") from e

    async def pause(self, retry: Retry, wait: float) -> None:
        """Wait before the next attempt."""
        if self.options.on_retry is not None and retry.error is not None:
            self.options.on_retry(retry.error, wait)
        await net.sleep(wait)

    def resumed(
        self,
        ask: Callable[[], Message],
        answer: type[M],
        *,
        patience: float | None = None,
        endless: bool = False,
    ) -> Resumed[M]:
        """Return the messages of a streamed answer. ask returns the request of each attempt."""
        return Resumed(self, ask, answer, patience, endless)

    async def pages(
        self,
        ask: Callable[[int, str], Message],
        answer: type[M],
        items_of: Callable[[M], tuple[Iterable[T], str]],
        limit: int = 0,
    ) -> AsyncGenerator[T, None]:
        """Yield the items of a list whose messages carry page tokens.

        After a broken connection it resumes after the last complete message. ask returns the
        request for a number of items after a token; 0 means all.
        """
        token, left = "", limit
        with self.resumed(lambda: ask(max(left, 0), token), answer) as stream:
            while (message := await stream.next()) is not None:
                stream.progress = True
                items, token = items_of(message)
                for item in items:
                    yield item
                    left -= 1
                    if left == 0:  # never, if there is no limit
                        break
                if left == 0 or not token:
                    await stream.finish()
                    return

    async def distinct(
        self, request: Message, answer: type[M], items_of: Callable[[M], Iterable[T]]
    ) -> AsyncGenerator[T, None]:
        """Yield the items of a list without page tokens.

        After a broken connection it starts over and skips the items that it has yielded.
        """
        seen: set[T] = set()
        with self.resumed(lambda: request, answer) as stream:
            while (message := await stream.next()) is not None:
                for item in items_of(message):
                    if item not in seen:
                        stream.progress = True
                        seen.add(item)
                        yield item

    async def last(
        self,
        request: Message,
        answer: type[M],
        done: Callable[[M], bool],
        on_progress: Callable[[M], None] | None = None,
    ) -> M:
        """Make a call that streams progress messages, and return its result.

        An error after the result is an error of the call.
        """
        result: M | None = None
        with self.resumed(lambda: request, answer) as stream:
            while (message := await stream.next()) is not None:
                if done(message):
                    result = message
                elif on_progress is not None:
                    on_progress(message)
        if result is None:
            raise UnavailableError("the daemon sent no report")
        return result


class Resumed(Generic[M]):
    """The messages of a streamed answer, over all attempts at it."""

    def __init__(
        self,
        caller: Caller,
        ask: Callable[[], Message],
        answer: type[M],
        patience: float | None,
        endless: bool,
    ) -> None:
        request = ask()
        self._caller = caller
        self._ask = ask
        self._answer = answer
        self._patience = patience  # seconds of silence before another attempt
        self._endless = endless  # the daemon does not end it
        self._method = caller.method(request, answer)
        self._retry = caller.retry(self._method, request)
        self._answers: Answers[M] | None = None
        #: Set by the consumer: the current attempt got further, so it does not count.
        self.progress = False

    async def next(self) -> M | None:
        """Return the next message, or None at the end."""
        while True:
            self._retry.check()
            try:
                if self._answers is None:
                    self.progress = False
                    body = self._caller.encode(self._ask())
                    self._answers = await self._caller.wire.stream(
                        self._method, body, self._answer, self._patience
                    )
                message = await self._answers.receive(self._patience)
                if message is None and self._endless:
                    raise Broken("the stream ended", sent=True)
                return message
            except Failure as f:
                self.close()
                wait = self._retry.failed(f, self.progress)
            await self._caller.pause(self._retry, wait)

    async def finish(self) -> None:
        """Read to the end, which must be near, so that the connection can be reused."""
        if self._answers is not None:
            await self._answers.finish()

    def close(self) -> None:
        """Abandon the rest of the answer."""
        if self._answers is not None:
            self._answers.close()
            self._answers = None

    def __enter__(self) -> Resumed[M]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
