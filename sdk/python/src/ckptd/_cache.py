"""Channel contents that a client keeps, so that saves can send edits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from ckptd._types import Ref


@dataclass(frozen=True, slots=True)
class Remembered:
    """The content of a channel, and the version that the daemon gave it."""

    type: str
    version: int
    data: bytes


class Cache:
    """The most recently used channels, bounded by their size in bytes. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._size = 0
        # Grouped by lineage, because a save covers one; least recently used first.
        self._lineages: OrderedDict[Ref, dict[str, Remembered]] = OrderedDict()

    def of(self, ref: Ref) -> dict[str, Remembered]:
        """Return the cached channels of a lineage."""
        with self._lock:
            if ref not in self._lineages:
                return {}
            self._lineages.move_to_end(ref)
            return dict(self._lineages[ref])

    def set(self, ref: Ref, channels: dict[str, Remembered]) -> None:
        """Replace the cached channels of a lineage."""
        size = sum(len(c.data) for c in channels.values())
        with self._lock:
            self._drop(ref)
            if not channels or size > self._most:
                return
            self._lineages[ref] = channels
            self._size += size
            while self._size > self._most:
                self._drop(next(iter(self._lineages)))

    def _drop(self, ref: Ref) -> None:
        for c in self._lineages.pop(ref, {}).values():
            self._size -= len(c.data)

    @property
    def size(self) -> int:
        """Return the number of bytes in the cache."""
        return self._size
