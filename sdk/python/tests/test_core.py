"""The parts without I/O: rules, errors, ids, options, retries, the cache, sessions, events."""

from __future__ import annotations

import pickle
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given, settings
from hypothesis import strategies as st

import ckptd
from ckptd import Channel, Checkpoint, Client, Draft, Edit, Event, Put, Ref, Remove, errors, v1
from ckptd._cache import Cache, Remembered
from ckptd._connect import Envelopes, envelope, refusal
from ckptd._failures import Broken, Foreign, Refused
from ckptd._ids import IdClock
from ckptd._retry import MAX_ASKED, Policy, Retry
from ckptd._rules import METHODS, NEVER, READ, REPEAT, read
from ckptd._seen import Seen
from ckptd._session import after_load, after_save, shorten
from ckptd._splices import apply
from ckptd._types import draft_of


def test_every_method_has_its_rule() -> None:
    assert len(METHODS) > 50
    assert METHODS[v1.LoadRequest].retry_for(v1.LoadRequest()) == READ
    assert METHODS[v1.DeleteRequest].retry_for(v1.DeleteRequest()) == NEVER
    assert METHODS[v1.PutWritesRequest].retry_for(v1.PutWritesRequest()) == REPEAT
    save, named = v1.SaveRequest(), v1.SaveRequest(draft=v1.Draft(id="a"))
    assert METHODS[v1.SaveRequest].retry_for(save) == NEVER
    assert METHODS[v1.SaveRequest].retry_for(named) == REPEAT
    batch = METHODS[v1.SaveBatchRequest]
    assert batch.retry_for(v1.SaveBatchRequest(saves=[named, named])) == REPEAT
    assert batch.retry_for(v1.SaveBatchRequest(saves=[named, save])) == NEVER
    assert METHODS[v1.PutBlobRequest].uploads
    assert METHODS[v1.WatchRequest].streams


def test_method_without_a_rule_ends_the_import() -> None:
    file = FileDescriptorProto(name="x.proto", package="x", syntax="proto3")
    file.message_type.add(name="Asked")
    file.service.add(name="S").method.add(name="M", input_type=".x.Asked", output_type=".x.Asked")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    with pytest.raises(TypeError, match="S/M has no rule"):
        read([pool.FindFileByName("x.proto")])


def test_every_reason_has_an_error_that_says_what_to_do() -> None:
    reasons = {v.number: v.name for v in v1.Reason.DESCRIPTOR.values if v.number}
    assert set(errors.BY_REASON) == set(reasons)
    own_words = {"INVALID", "PLUGIN_INVALID", "MIGRATION_INVALID", "MIGRATION_STATE"}
    for number, cls in errors.BY_REASON.items():
        assert f"REASON_{cls.reason}" == reasons[number]
        assert cls.__name__ in errors.__all__
        assert bool(cls.advice) != (cls.reason in own_words), cls  # these messages say it
        error = errors.from_detail("it failed", v1.ErrorDetail(reason=reasons[number]))
        assert type(error) is cls
        assert str(error) == (f"it failed; {cls.advice}" if cls.advice else "it failed")
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.detail) == (cls, str(error), error.detail)
    unknown = errors.from_detail("new", v1.ErrorDetail.FromString(b"\x08\xe7\x07"))
    assert type(unknown) is errors.CkptdError


def test_ids_are_ordered_uuids() -> None:
    ids = IdClock()
    made = [ids.next() for _ in range(5000)]
    assert made == sorted(set(made))
    now = 1_763_715_140_589_123_456
    fresh = uuid.UUID(IdClock().next(now))
    assert (fresh.version, fresh.variant) == (7, uuid.RFC_4122)
    assert fresh.int >> 80 == now // 1_000_000
    back = IdClock()
    assert back.next(now) < back.next(now - 10**9)  # also when the clock is put back


def options(*args: Any, **kwargs: Any) -> Any:
    return Client(*args, **kwargs)._caller.options


def test_addresses() -> None:
    assert options("unix:///run/x.sock").address.path == "/run/x.sock"
    assert options("unix:data.sock").address.path == "data.sock"
    assert options("http://127.0.0.1:7420").address.authority == "127.0.0.1:7420"
    assert options("http://[::1]:7420").address.authority == "[::1]:7420"
    assert options("https://ckptd.example/").address.port == 443
    for wrong in ("", "unix:", "ftp://x", "http://", "http://h/path", "http://u@h", "http://h:x"):
        with pytest.raises(errors.InvalidError, match="https://host:port"):
            Client(wrong)


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    o = options("http://h:1")
    assert (o.tenant, o.user, o.token) == ("default", "local", "")  # those of the command
    monkeypatch.setenv("CKPTD_SERVER", "http://server:1")
    monkeypatch.setenv("CKPTD_TENANT", "acme")
    monkeypatch.setenv("CKPTD_TOKEN", "ckptd_a")
    o = options()
    assert (o.address.url, o.tenant, o.user, o.token) == ("http://server:1", "acme", "", "ckptd_a")
    file = tmp_path / "token"
    file.write_text("ckptd_b\n")
    monkeypatch.setenv("CKPTD_TOKEN_FILE", str(file))
    assert options().token == "ckptd_b"
    o = options("http://h:1", token="ckptd_c", tenant="t", user="u")
    assert (o.address.url, o.token, o.tenant, o.user) == ("http://h:1", "ckptd_c", "t", "u")
    headers = dict(o.headers())
    assert headers["Authorization"] == "Bearer ckptd_c"
    for wrong in ("a b", "a\r\nX: y", "ä"):
        with pytest.raises(errors.InvalidError):
            Client("http://h:1", token=wrong)
    for bad in ({"attempts": 0}, {"timeout": 0}, {"tls_cert": "x"}, {"tls_ca": "/nothing"}):
        with pytest.raises(errors.InvalidError):
            Client("http://h:1", **bad)
    file.write_text("")
    with pytest.raises(errors.InvalidError, match="is empty"):
        Client("http://h:1")
    with pytest.raises(errors.InvalidError, match="cannot be read"):
        Client("http://h:1", token_file=tmp_path / "none")


def retry(may: int = REPEAT, closed: bool = False, attempts: int = 4, rand: float = 1.0) -> Retry:
    return Retry(Policy(attempts, 0.05, 0.3), may, "here", lambda: closed, lambda: rand)


def test_waits_double_with_jitter() -> None:
    r = retry(attempts=9)
    waits = [r.failed(Broken("x", sent=True)) for _ in range(5)]
    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.3, 0.3])
    assert r.failed(Broken("x", sent=True), progress=True) == pytest.approx(0.05)
    assert retry(rand=0.0).failed(Broken("x", sent=True)) == 0
    detail = v1.ErrorDetail(reason=v1.REASON_OVERLOADED)
    detail.retry_after.FromSeconds(7)
    assert retry().failed(Refused("resource_exhausted", "busy", detail)) == pytest.approx(7.05)
    detail.retry_after.FromSeconds(3600)
    wait = retry().failed(Refused("resource_exhausted", "busy", detail))
    assert wait == pytest.approx(MAX_ASKED + 0.05)


@pytest.mark.parametrize(
    ("may", "failure", "error"),
    [
        (READ, Broken("x", sent=True), errors.UnreachableError),
        (REPEAT, Broken("x", sent=True), errors.AmbiguousError),
        (NEVER, Broken("x", sent=True), errors.AmbiguousError),
        (NEVER, Broken("x", sent=False), errors.UnreachableError),
        (READ, Refused("deadline_exceeded", "x", None), errors.TimedOutError),
        (NEVER, Refused("deadline_exceeded", "x", None), errors.AmbiguousError),
        (NEVER, Refused("canceled", "x", None), errors.AmbiguousError),
        (NEVER, Refused("resource_exhausted", "x", None), errors.TooLargeError),
        (NEVER, Refused("invalid_argument", "x", None), errors.InvalidError),
        (NEVER, Refused("internal", "x", None), errors.InternalError),
        (NEVER, Refused("unavailable", "x", None), errors.UnavailableError),
        (NEVER, Foreign("unavailable", "x"), errors.AmbiguousError),
        (READ, Foreign("unavailable", "x"), errors.UnreachableError),
        (NEVER, Foreign("unauthenticated", "x"), errors.UnauthenticatedError),
        (NEVER, Foreign("permission_denied", "x"), errors.DeniedError),
        (NEVER, Foreign("unimplemented", "x"), errors.UnreachableError),
    ],
)
def test_what_a_failure_means(may: int, failure: Any, error: type[errors.CkptdError]) -> None:
    with pytest.raises(error):
        retry(may, attempts=1).failed(failure)


def test_closed_client_ends_calls() -> None:
    with pytest.raises(errors.ClosedError):
        retry(closed=True).check()
    with pytest.raises(errors.ClosedError):
        retry(READ, closed=True).failed(Broken("x", sent=True))
    with pytest.raises(errors.AmbiguousError, match="closed"):
        retry(NEVER, closed=True).failed(Broken("x", sent=True))


def test_answers_that_are_not_the_daemons() -> None:
    assert isinstance(refusal(502, "text/html", b"<html>"), Foreign)
    assert isinstance(refusal(500, "application/json", b"{}"), Foreign)
    assert isinstance(refusal(500, "application/json", b"{"), Foreign)
    assert isinstance(refusal(500, "application/json", b'{"code":"internal"}'), Refused)
    broken = b'{"code":"internal","details":[{"type":"ckptd.v1.ErrorDetail","value":"!"}]}'
    refused = refusal(500, "application/json; charset=utf-8", broken)
    assert isinstance(refused, Refused)


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_envelopes_in_any_pieces(messages: list[bytes], size: int) -> None:
    text = b"".join(map(envelope, messages)) + b"\x02\x00\x00\x00\x02{}"
    envelopes, got = Envelopes(), []
    for start in range(0, len(text), size):
        envelopes.feed(text[start : start + size])
        while (message := envelopes.next()) is not None:
            got.append(message)
    assert got == messages
    assert envelopes.ended


def test_cache_is_bounded() -> None:
    cache = Cache(100)
    a, b, c = (Ref("t", "u", name) for name in "abc")
    cache.set(a, {"x": Remembered("bytes", 1, bytes(40))})
    cache.set(b, {"x": Remembered("bytes", 1, bytes(40))})
    assert cache.of(a)  # used last
    cache.set(c, {"x": Remembered("bytes", 1, bytes(40))})
    assert cache.of(a)
    assert not cache.of(b)
    assert cache.size == 80
    cache.set(a, {"x": Remembered("bytes", 1, bytes(101))})
    assert not cache.of(a)
    assert cache.size == 40
    cache.set(c, {})
    assert cache.size == 0


def checkpoint(channels: dict[str, tuple[int, bytes, bool]]) -> Checkpoint:
    m = v1.Checkpoint()
    for name, (version, data, rewritten) in channels.items():
        m.channels.add(
            name=name, type="bytes", version=version, size=len(data), rewritten=rewritten
        )
    return Checkpoint.unpack(m)


contents = st.dictionaries(
    st.sampled_from("abc"),
    st.sampled_from([b"", b"x" * 50, b"x" * 50 + b"y" * 60, b"y" * 200, bytes(range(256)) * 4]),
)


@given(st.lists(st.tuples(contents, st.booleans(), st.sets(st.sampled_from("abc"))), max_size=8))
@settings(max_examples=100, deadline=None)
def test_session_sends_what_makes_the_whole_state(
    steps: list[tuple[dict[str, bytes], bool, set[str]]],
) -> None:
    """A model of the daemon takes edits on the versions that it gave, and none on others."""
    have: dict[str, Remembered] = {}
    stored: dict[str, tuple[int, bytes]] = {}
    version = 0
    for state, keep, rewritten in steps:
        whole = Draft({name: Put(data) for name, data in state.items()}, keep=keep)
        sent = shorten(whole, have)
        parent, stored = stored, dict(stored) if keep else {}
        marks = {}
        for name, content in sent.channels.items():
            if isinstance(content, Edit):
                assert content.base == parent[name][0]
                assert content.type == "bytes"
                data = apply(parent[name][1], list(content.replace))
            else:
                assert isinstance(content, Put)
                data = content.data
            assert data == state[name]
            if name in rewritten:
                data = b"*" * len(data)
            version += 1
            stored[name] = (version, data)
            marks[name] = name in rewritten
        saved = checkpoint({n: (v, d, marks.get(n, False)) for n, (v, d) in stored.items()})
        have = after_save(whole, saved, have)
        assert all(stored[name] == (had.version, had.data) for name, had in have.items())


def test_session_leaves_the_callers_own_changes_alone() -> None:
    have = {"a": Remembered("bytes", 1, b"x" * 100), "b": Remembered("bytes", 2, b"x" * 100)}
    draft = Draft({"a": Edit(9, []), "b": Remove()}, keep=True)
    assert shorten(draft, have).channels == draft.channels
    saved = checkpoint({"a": (1, b"x" * 100, False)})
    assert after_save(draft, saved, have) == {}
    loaded = checkpoint({"a": (3, b"new", False)})
    loaded.channels["a"].data = b"new"
    assert after_load(loaded, have) == {"a": Remembered("bytes", 3, b"new")}


def test_events_come_once_and_old_ones_are_forgotten() -> None:
    seen = Seen(room=10)
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def event(thread: str, seq: int, after: float) -> Event:
        time = start + timedelta(seconds=after)
        return Event(Ref("t", "u", thread), 1, "id", seq, time, 0, "", "", "")

    assert seen.first(event("a", 2, 0))
    assert not seen.first(event("a", 2, 0))
    assert not seen.first(event("a", 1, 0))
    for n in range(100):
        assert seen.first(event(f"t{n}", 1, 10.0 * n))
    assert len(seen._last) < 30


def test_raw_calls() -> None:
    with Client("http://127.0.0.1:1", attempts=1) as c:
        with pytest.raises(errors.InvalidError, match="streams"):
            c.call(v1.WatchRequest(), v1.WatchResponse)
        with pytest.raises(errors.InvalidError, match="no method"):
            c.call(v1.LoadRequest(), v1.SaveResponse)
        with pytest.raises(errors.InvalidError, match="no method"):
            c.call(v1.Ref(), v1.SaveResponse)
        with pytest.raises(errors.UnreachableError):
            c.call(v1.WhoAmIRequest(), v1.WhoAmIResponse)


def test_drafts_refuse_what_is_no_content() -> None:
    with pytest.raises(errors.InvalidError, match="as_json"):
        draft_of({"a": {"not": "bytes"}}).pack()  # type: ignore[dict-item]
    with pytest.raises(errors.InvalidError, match="JSON"):
        ckptd.as_json(float("nan"))
    packed = Draft({}, labels={}, blobs=[], meta="", ttl=timedelta(days=1)).pack()
    assert packed.HasField("labels")
    assert packed.HasField("blobs")
    assert packed.HasField("meta")
    assert packed.ttl.seconds == 86400
    assert not packed.HasField("expect_head")
    assert Draft({}, expect_head=0).pack().HasField("expect_head")
    assert Channel("a", "json", 1, 2, b"[]").json() == []
