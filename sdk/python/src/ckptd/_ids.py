"""Ids of drafts."""

from __future__ import annotations

import os
import threading
import time


class IdClock:
    """Makes UUIDs of version 7, each greater than all before it.

    48 bits are milliseconds, 12 bits the fraction of one, and 62 bits random.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self, now_ns: int | None = None) -> str:
        """Return an id that is greater than all before it."""
        ns = time.time_ns() if now_ns is None else now_ns
        at = (ns // 1_000_000) << 12 | ns % 1_000_000 * 4096 // 1_000_000
        with self._lock:
            self._last = at = max(at, self._last + 1)
        low = int.from_bytes(os.urandom(8), "big") >> 2 | 1 << 63
        h = f"{at >> 12:012x}7{at & 0xFFF:03x}{low:016x}"
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
