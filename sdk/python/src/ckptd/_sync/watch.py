# Made from _async by tools/make_sync.py. Change it there.
"""Watches, which resume after a broken connection."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta

from ckptd import v1
from ckptd._seen import Seen
from ckptd._sync.calls import Caller
from ckptd._types import Event


def watch(caller: Caller, request: v1.WatchRequest, began: bool) -> Generator[Event, None, None]:
    """Yield the events of a watch. Only an error ends it."""
    heartbeat = caller.options.heartbeat
    request.heartbeat.FromTimedelta(timedelta(seconds=heartbeat))
    patience, seen = 3 * heartbeat, Seen()
    with caller.resumed(
        lambda: request, v1.WatchResponse, patience=patience, endless=True
    ) as stream:
        while (m := stream.next()) is not None:
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
