"""The memory of a saver between calls, bounded. Pure logic, without I/O."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

# How many states of a lineage are kept: time travel loads the one to continue and the newest one.
_STATES = 2
# Roughly the bytes of memory that a channel takes in addition to its content.
_OVERHEAD = 256
# How many histories of delta channels wait for the call that asks for them.
_HISTORIES = 8
# How many checkpoints are known by generation and head.
_KNOWN = 8192


class Lineage(NamedTuple):
    """A thread's namespace, as one caller sees it: the token can imply tenant and user."""

    token: str
    tenant: str
    user: str
    thread: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Part:
    """The serialized value of a channel."""

    version: object
    """LangGraph's version; None for a channel without one."""
    type: str
    data: bytes
    base: int
    """The daemon's version, which edits name as their base."""


Parts = dict[str, Part]


@dataclass(frozen=True, slots=True)
class Known:
    """Facts about a checkpoint for the saves and writes that follow it."""

    generation: int = 0
    """Generation of its namespace; 0 if unknown."""
    head: int | None = None
    """Seq of the lineage's head when the checkpoint was saved or loaded; None if unknown."""


class Memory:
    """The most recently used states, bounded by their size in bytes. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._size = 0
        # Least recently used lineage first, and in it the oldest state.
        self._states: OrderedDict[Lineage, OrderedDict[str, Parts]] = OrderedDict()
        self._known: OrderedDict[tuple[Lineage, str], Known] = OrderedDict()
        self._deltas: OrderedDict[Lineage, Sequence[str]] = OrderedDict()
        self._usual_deltas: Sequence[str] = ()
        self._histories: OrderedDict[tuple[Lineage, str], Any] = OrderedDict()

    def parts(self, of: Lineage, id: str) -> Parts:  # noqa: A002
        """Return the channels of a checkpoint that are in memory."""
        with self._lock:
            states = self._states.get(of)
            if not states or id not in states:
                return {}
            self._states.move_to_end(of)
            return states[id]

    def remember(self, of: Lineage, id: str, parts: Parts) -> None:  # noqa: A002
        """Keep the channels of a checkpoint."""
        size = _size(parts)
        with self._lock:
            states = self._states.setdefault(of, OrderedDict())
            self._states.move_to_end(of)
            self._size -= _size(states.pop(id, {}))
            while len(states) >= _STATES:
                self._size -= _size(states.popitem(last=False)[1])
            if size <= self._most:
                states[id] = parts
                self._size += size
            while self._size > self._most:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        of, states = next(iter(self._states.items()))
        if states:
            self._size -= _size(states.popitem(last=False)[1])
        if not states:
            del self._states[of]

    def known(self, of: Lineage, id: str) -> Known:  # noqa: A002
        """Return the facts about a checkpoint."""
        with self._lock:
            return self._known.get((of, id), Known())

    def learn(
        self,
        of: Lineage,
        id: str,  # noqa: A002
        *,
        generation: int = 0,
        head: int | None = None,
    ) -> None:
        """Add facts about a checkpoint."""
        with self._lock:
            known = self._known.pop((of, id), Known())
            if generation:
                known = replace(known, generation=generation)
            if head is not None:
                known = replace(known, head=head)
            self._known[of, id] = known
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)

    def deltas(self, of: Lineage) -> Sequence[str]:
        """Return the delta channels of a lineage or, if it is not known, those of another one.

        Most savers have one graph.
        """
        with self._lock:
            return self._deltas.get(of, self._usual_deltas)

    def learn_deltas(self, of: Lineage, channels: Sequence[str]) -> None:
        """Remember the delta channels of a lineage; once known, they do not become fewer."""
        with self._lock:
            if not channels and of in self._deltas:
                return
            if channels:
                self._usual_deltas = channels
            self._deltas.pop(of, None)
            self._deltas[of] = channels
            if len(self._deltas) > _KNOWN:
                self._deltas.popitem(last=False)

    def keep_histories(self, of: Lineage, id: str, histories: Any) -> None:  # noqa: A002
        """Keep histories that came with a checkpoint for the call that asks for them."""
        if sum(h.ByteSize() for h in histories) > self._most:
            return
        with self._lock:
            self._histories.pop((of, id), None)
            self._histories[of, id] = histories
            if len(self._histories) > _HISTORIES:
                self._histories.popitem(last=False)

    def take_histories(self, of: Lineage, id: str) -> Any:  # noqa: A002
        """Return these histories once; None if there are none."""
        with self._lock:
            return self._histories.pop((of, id), None)

    @property
    def size(self) -> int:
        """Return the number of bytes of the states in memory."""
        return self._size


def _size(parts: Parts) -> int:
    return sum(len(p.data) + _OVERHEAD for p in parts.values())
