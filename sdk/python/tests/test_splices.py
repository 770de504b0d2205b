from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptd._splices import MAX_EDITS, apply, edits
from ckptd._types import Replace


def check(was: bytes, now: bytes) -> list[Replace]:
    """Compare, and look at all that the daemon asks of edits."""
    found = edits(was, now)
    assert apply(was, found) == now
    assert len(found) <= MAX_EDITS
    end = 0
    for r in found:
        assert end <= r.start <= r.end <= len(was)
        assert r.start < r.end or r.data
        end = r.end
    if was == now:
        assert found == []
    return found


# Few letters make the contents alike in many ways; long runs make anchors match.
texts = st.lists(
    st.tuples(st.sampled_from([b"a", b"ab", b"{", b"\x00"]), st.integers(1, 300)), max_size=12
).map(lambda runs: b"".join(text * times for text, times in runs))


@given(texts | st.binary(max_size=400), texts | st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_two_contents(was: bytes, now: bytes) -> None:
    check(was, now)


@given(
    st.integers(0, 1 << 30),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 200), st.binary(max_size=200)), max_size=80),
)
@settings(max_examples=150, deadline=None)
def test_changes_of_a_state(seed: int, changes: list[tuple[float, int, bytes]]) -> None:
    was = random.Random(seed).randbytes(20_000)
    now = bytearray(was)
    for place, gone, new in changes:
        start = int(place * len(now))
        now[start : start + gone] = new
    found = check(was, bytes(now))
    if len(changes) <= 4:  # then little travels
        sent = sum(len(r.data) for r in found)
        assert sent <= sum(len(new) for _, _, new in changes) + 1024 * len(changes)


def messages(count: int, size: int = 1024) -> list[bytes]:
    r = random.Random(7)
    head = b"\x82\xa4role\xa4user\xa7content\xda" + size.to_bytes(2, "big")
    return [head + r.randbytes(size) for _ in range(count)]


def packed(items: list[bytes], step: int) -> bytes:
    """Return a list in MessagePack in a map with something behind it."""
    size = (
        b"\xdc" + len(items).to_bytes(2, "big") if len(items) > 15 else bytes([0x90 + len(items)])
    )
    return b"\x82\xa8messages" + size + b"".join(items) + b"\xa4step\xcd" + step.to_bytes(2, "big")


def test_append_to_a_list_in_msgpack() -> None:
    """Its length is in front, and grows from one byte to three at 16 items."""
    items = messages(300)
    for n in (1, 14, 15, 16, 255, 299):
        found = check(packed(items[:n], n), packed(items[: n + 1], n + 1))
        assert sum(len(r.data) for r in found) < 1300, n


def test_many_small_changes_in_a_large_state() -> None:
    was = packed(messages(1000), 1)
    now = bytearray(was)
    for place in range(1000, len(now), 30_000):
        now[place : place + 3] = b"new!!"
    found = check(was, bytes(now))
    assert sum(len(r.data) for r in found) < 35 * 300


def test_more_places_than_may_be() -> None:
    was = random.Random(3).randbytes(100_000)
    now = bytearray(was)
    for place in range(0, len(now), 500):
        now[place] ^= 0xFF
    check(was, bytes(now))
