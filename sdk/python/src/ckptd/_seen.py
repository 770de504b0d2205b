"""Which events of a watch were there before."""

from __future__ import annotations

from datetime import datetime, timedelta

from ckptd._types import Event, Ref

# How old events are that may still be repeated, generously.
_REPEATABLE = timedelta(minutes=1)


class Seen:
    """Knows the newest event of every lineage that had one lately.

    A watch that is resumed may repeat events of the milliseconds before its cursor.
    """

    def __init__(self, room: int = 1024) -> None:
        self._last: dict[tuple[Ref, int], tuple[int, datetime]] = {}
        self._least = self._room = room  # size at which old ones are dropped

    def first(self, e: Event) -> bool:
        """Report whether an event was not there before, and remember it."""
        of = (e.ref, e.generation)
        if of in self._last and e.seq <= self._last[of][0]:
            return False
        self._last[of] = (e.seq, e.time)
        if len(self._last) > self._room:
            old = e.time - _REPEATABLE
            self._last = {of: last for of, last in self._last.items() if last[1] >= old}
            self._room = max(self._least, 2 * len(self._last))
        return True
