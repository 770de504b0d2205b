"""Finds the differences between two contents of a channel, without a loop over bytes.

Successive states of an agent are mostly equal: a message is appended, a counter or a timestamp
changes. In MessagePack and Protobuf the length in front of a list changes with each append, so a
single splice between the common prefix and suffix would resend the whole list.
"""

from __future__ import annotations

from ckptd._types import Replace

#: The most edits in a change; the last one then covers the rest.
MAX_EDITS = 64

# How to find the place after a difference where the contents match again: the length of the
# anchor, its distance, and the window to search in the other content. Small windows come first,
# since most changes are small; long anchors come before short ones, since they seldom match by
# chance.
_NEAR, _FAR = 8 << 10, 1 << 62
_ANCHORS = (
    (96, 0, _NEAR),
    (96, 64, _NEAR),
    (96, 512, _NEAR),
    (24, 0, _NEAR),
    (24, 16, _NEAR),
    (24, 128, _NEAR),
    (96, 0, _FAR),
    (96, 64, _FAR),
    (96, 4096, _FAR),
    (24, 0, _FAR),
)


def edits(was: bytes, now: bytes) -> list[Replace]:
    """Return edits that turn was into now."""
    both = min(len(was), len(now))
    start = _prefix(was, 0, now, 0, both)
    if start == len(was) == len(now):
        return []
    end = _suffix(was, len(was), now, len(now), both - start)
    return _Search(was, len(was) - end, now, len(now) - end).run(start)


def apply(was: bytes, replace: list[Replace]) -> bytes:
    """Return was with the edits applied."""
    parts: list[bytes] = []
    at = 0
    for r in replace:
        parts += (was[at : r.start], r.data)
        at = r.end
    return b"".join((*parts, was[at:]))


class _Search:
    def __init__(self, was: bytes, was_end: int, now: bytes, now_end: int) -> None:
        self.was, self.was_end = was, was_end
        self.now, self.now_end = now, now_end
        # Bytes to search before giving up. For large contents with nothing in common, the search
        # must not take longer than sending them; for small ones it is quick in any case.
        self.budget = 2 * (was_end + now_end) + (256 << 10)

    def run(self, start: int) -> list[Replace]:
        was, now = self.was, self.now
        found: list[Replace] = []
        i = j = start
        while i < self.was_end and j < self.now_end and len(found) < MAX_EDITS - 1:
            met = self._meet(i, j)
            if met is None:
                break
            back = _suffix(was, met[0], now, met[1], min(met[0] - i, met[1] - j))
            i2, j2 = met[0] - back, met[1] - back
            found.append(Replace(i, i2, now[j:j2]))
            same = _prefix(was, i2, now, j2, min(self.was_end - i2, self.now_end - j2))
            i, j = i2 + same, j2 + same
        if i < self.was_end or j < self.now_end:
            found.append(Replace(i, self.was_end, now[j : self.now_end]))
        return found

    def _meet(self, i: int, j: int) -> tuple[int, int] | None:
        """Return where the contents match again after i and j."""
        for size, ahead, within in _ANCHORS:
            best: tuple[int, int] | None = None
            a, b = i + ahead, j + ahead
            if a + size <= self.was_end:
                at = self._find(
                    self.now, self.was[a : a + size], j, min(self.now_end, a - i + j + within)
                )
                if at >= 0:
                    best = a, at
            if b + size <= self.now_end:
                at = self._find(
                    self.was, self.now[b : b + size], i, min(self.was_end, b - j + i + within)
                )
                if at >= 0 and (best is None or b < best[1]):
                    best = at, b
            if best is not None:
                return best
        return None

    def _find(self, text: bytes, anchor: bytes, start: int, end: int) -> int:
        if self.budget <= 0:
            return -1
        at = text.find(anchor, start, end)
        self.budget -= (end if at < 0 else at) - start
        return at


def _prefix(a: bytes, i: int, b: bytes, j: int, most: int) -> int:
    """Return the length of the common prefix of a[i:] and b[j:], at most most."""
    view, same, step = memoryview(a), 0, 64
    while same < most:
        step = min(step, most - same)
        if b.startswith(view[i + same : i + same + step], j + same):
            same += step
            step *= 4
        elif step == 1:
            break
        else:
            most = same + step - 1  # they differ within this step
            step = max(1, step // 2)
    return same


def _suffix(a: bytes, i: int, b: bytes, j: int, most: int) -> int:
    """Return the length of the common suffix of a[:i] and b[:j], at most most."""
    view, same, step = memoryview(a), 0, 64
    while same < most:
        step = min(step, most - same)
        if b.startswith(view[i - same - step : i - same], j - same - step):
            same += step
            step *= 4
        elif step == 1:
            break
        else:
            most = same + step - 1
            step = max(1, step // 2)
    return same
