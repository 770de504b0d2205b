"""Watches, which resume after a broken connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta

from ckptd import v1
from ckptd._async.calls import Caller
from ckptd._failures import Broken, Failure
from ckptd._rules import METHODS
from ckptd._seen import Seen
from ckptd._types import Event


async def watch(
    caller: Caller, request: v1.WatchRequest, began: bool
) -> AsyncGenerator[Event, None]:
    """Yield the events of a watch. Only an error ends it."""
    heartbeat = caller.options.heartbeat
    request.heartbeat.FromTimedelta(timedelta(seconds=heartbeat))
    retry = caller.retry(METHODS[v1.WatchRequest], request)
    seen = Seen()
    while True:
        retry.check()
        progress, answers = False, None
        try:
            answers = await caller.stream(request, v1.WatchResponse, 3 * heartbeat)
            while (m := await answers.receive(3 * heartbeat)) is not None:
                progress = True
                if m.cursor:
                    request.cursor = m.cursor
                    request.ClearField("since")
                event = Event.unpack(m.event, request.cursor)
                if m.HasField("event"):
                    if seen.first(event):
                        yield event
                elif began:
                    began = False
                    yield event
            raise Broken("the watch ended", sent=True)  # a watch has no regular end
        except Failure as f:
            wait = retry.failed(f, progress)
        finally:
            if answers is not None:
                answers.close()
        await caller.pause(retry, wait)
