"""Drops events that a resumed watch repeats."""

from __future__ import annotations

from datetime import datetime, timedelta

from ckptd._types import Event, Ref

# A generous bound on the age of repeated events.
_REPEATABLE = timedelta(minutes=1)


class Seen:
    """Remembers the newest recent event of each lineage.

    A resumed watch can repeat events from the milliseconds before its cursor.
    """

    def __init__(self, room: int = 1024) -> None:
        self._last: dict[tuple[Ref, int], tuple[int, datetime]] = {}
        self._least = self._room = room  # size that triggers dropping old ones

    def first(self, e: Event) -> bool:
        """Report whether an event is new, and remember it."""
        of = (e.ref, e.generation)
        if of in self._last and e.seq <= self._last[of][0]:
            return False
        self._last[of] = (e.seq, e.time)
        if len(self._last) > self._room:
            old = e.time - _REPEATABLE
            self._last = {of: last for of, last in self._last.items() if last[1] >= old}
            self._room = max(self._least, 2 * len(self._last))
        return True
