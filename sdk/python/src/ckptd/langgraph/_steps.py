"""The saver's methods as steps: generators of requests, which a sync and an async driver run.

A step that the daemon refuses raises the error in the generator.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from google.protobuf.message import Message

from ckptd import AsyncClient, Client
from ckptd._rules import METHODS
from ckptd.errors import CkptdError

T = TypeVar("T")
Steps = Generator[Message, Any, T]


def run(steps: Steps[T], client: Client) -> T:
    """Make the calls of the steps, and return their result."""
    try:
        request = next(steps)
        while True:
            try:
                answer = client.call(request, METHODS[type(request)].answer)
            except CkptdError as e:
                request = steps.throw(e)
            else:
                request = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def arun(steps: Steps[T], client: AsyncClient) -> T:
    """Make the calls of the steps, and return their result."""
    try:
        request = next(steps)
        while True:
            try:
                answer = await client.call(request, METHODS[type(request)].answer)
            except CkptdError as e:
                request = steps.throw(e)
            else:
                request = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
