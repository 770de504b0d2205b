# Made from _async by tools/make_sync.py. Change it there.
"""Watches, which resume after a broken connection."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta

from ckptd import v1
from ckptd._failures import Broken, Failure
from ckptd._rules import METHODS
from ckptd._seen import Seen
from ckptd._sync.calls import Caller
from ckptd._types import Event


def watch(caller: Caller, request: v1.WatchRequest, began: bool) -> Generator[Event, None, None]:
    """Yield the events of a watch. Only an error ends it."""
    heartbeat = caller.options.heartbeat
    request.heartbeat.FromTimedelta(timedelta(seconds=heartbeat))
    retry = caller.retry(METHODS[v1.WatchRequest], request)
    seen = Seen()
    while True:
        retry.check()
        progress, answers = False, None
        try:
            answers = caller.stream(request, v1.WatchResponse, 3 * heartbeat)
            while (m := answers.receive(3 * heartbeat)) is not None:
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
        caller.pause(retry, wait)
