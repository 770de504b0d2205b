"""Watches, which resume after a broken connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta

from ckptd import v1
from ckptd._async.calls import Caller
from ckptd._seen import Seen
from ckptd._types import Event


async def watch(
    caller: Caller, request: v1.WatchRequest, began: bool
) -> AsyncGenerator[Event, None]:
    """Yield the events of a watch. Only an error ends it."""
    heartbeat = caller.options.heartbeat
    request.heartbeat.FromTimedelta(timedelta(seconds=heartbeat))
    patience, seen = 3 * heartbeat, Seen()
    with caller.resumed(
        lambda: request, v1.WatchResponse, patience=patience, endless=True
    ) as stream:
        while (m := await stream.next()) is not None:
            stream.progress = True
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
