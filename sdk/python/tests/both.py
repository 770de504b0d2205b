"""Lets one test drive the sync client and the async one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from ckptd import AsyncClient, Client

KINDS = ("sync", "async")


def client_of(kind: str, *args: Any, **kwargs: Any) -> Any:
    """Return a sync or an async client."""
    return (Client if kind == "sync" else AsyncClient)(*args, **kwargs)


async def done(value: Any) -> Any:
    """Return the result of a method of either client."""
    return await value if inspect.isawaitable(value) else value


async def each(values: Any) -> AsyncGenerator[Any, None]:
    """Yield the items of a generator of either client, and close it."""
    if hasattr(values, "__aiter__"):
        try:
            async for value in values:
                yield value
        finally:
            await values.aclose()
    else:
        try:
            for value in values:
                yield value
        finally:
            values.close()


async def listed(values: Any) -> list[Any]:
    """Return all items of a generator of either client."""
    return [value async for value in each(values)]


async def close(client: Any) -> None:
    """Close either client."""
    await done(client.aclose() if isinstance(client, AsyncClient) else client.close())


def run(test: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    """Run a test that is a coroutine."""
    asyncio.run(test(*args))
