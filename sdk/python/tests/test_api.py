"""Every method of the API, by both clients, against a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import io
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import trustme
from both import KINDS, client_of, close, done, each, listed, run
from daemons import Daemon, serve

import ckptd._async.calls
import ckptd._sync.calls
from ckptd import (
    Draft,
    Edit,
    Filter,
    NotFoundError,
    Put,
    Remove,
    Replace,
    Which,
    Write,
    as_json,
    errors,
    v1,
)
from ckptd._rules import METHODS

USER = f"api-{uuid.uuid4().hex[:8]}"
called: dict[str, set[str]] = {"sync": set(), "async": set()}


@pytest.fixture(autouse=True)
def _record(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take note of the methods that are called."""
    module = ckptd._sync.calls if kind == "sync" else ckptd._async.calls
    retry = module.Caller.retry

    def recorded(self: Any, method: Any, request: Any) -> Any:
        called[kind].add(method.name)
        return retry(self, method, request)

    monkeypatch.setattr(module.Caller, "retry", recorded)


@contextlib.asynccontextmanager
async def client(kind: str, daemon: Daemon, **options: Any) -> Any:
    """Open a client on the socket, as the owner of the daemon."""
    c = client_of(kind, daemon.socket, tenant="default", user=f"{USER}-{kind}", **options)
    try:
        yield c
    finally:
        await close(c)


def test_checkpoints(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon) as c:
            t = c.thread("support-42")
            first = await done(
                t.save(
                    Draft(
                        {"messages": as_json(["Where is my parcel?"]), "raw": b"\x00\xff"},
                        step=1,
                        run_id="run-7",
                        labels={"team": "support"},
                        meta='{"model":"m-1"}',
                        expect_head=0,
                    )
                )
            )
            assert uuid.UUID(first.id).version == 7
            assert (first.seq, first.labels, first.meta) == (
                1,
                {"team": "support"},
                '{"model":"m-1"}',
            )
            assert first.channels["messages"].data == b""
            messages = first.channels["messages"]
            second = await done(
                t.save(
                    Draft(
                        {
                            "messages": Edit(
                                messages.version, [Replace(22, 22, b',"On its way."')]
                            ),
                            "raw": Remove(),
                        },
                        keep=True,
                        step=2,
                        expect_head=1,
                        branch="main",
                    )
                )
            )
            loaded = await done(t.load())
            assert loaded.id == second.id
            assert loaded.parent == first.id
            assert loaded.channels["messages"].json() == ["Where is my parcel?", "On its way."]
            assert loaded.channels["messages"].type == "json"
            assert list(loaded.channels) == ["messages"]
            assert abs(loaded.time - datetime.now(timezone.utc)) < timedelta(minutes=1)
            assert loaded.ref == second.ref
            for place in (first.id, Which(seq=1), Which(before=second.id), Which(run_id="run-7")):
                found = await done(t.load(place, channels=["raw"]))
                assert found.id in (first.id, second.id)
            assert (await done(t.load(first.id))).channels["raw"].data == b"\x00\xff"
            header = await done(t.load(headers_only=True))
            assert header.channels["messages"].data == b""
            assert header.channels["messages"].size == 37
            have = {"messages": loaded.channels["messages"].data}
            again = await done(t.load(have=have))
            assert again.channels["messages"].data is have["messages"]

            history = await listed(t.history(data=True))
            assert [cp.id for cp in history] == [second.id, first.id]
            assert history[1].channels["raw"].data == b"\x00\xff"
            assert [cp.id for cp in await listed(t.history(limit=1))] == [second.id]
            assert [cp.id for cp in await listed(t.history(start=first.id))] == [first.id]
            assert len((await done(t.tree())).nodes) == 2
            diff = await done(t.diff(first.id, None))
            assert {d.name: d.value.kind for d in diff.channels} == {
                "messages": "changed",
                "raw": "removed",
            }
            assert (await done(t.fork(first.id, "plan-b"))).id == first.id
            await done(t.set_branch("plan-c", second.id))
            assert {b.name for b in await done(t.branches())} >= {"plan-b", "plan-c"}
            await done(t.delete_branch("plan-c"))
            assert (await done(t.load(Which(branch="plan-b")))).id == first.id
            labelled = await done(t.set_labels(first.id, {"reviewed": "yes"}))
            assert labelled.labels == {"team": "support", "reviewed": "yes"}
            await done(
                t.put_writes(second.id, "task", [Write("messages", b'"x"', "json")], path="p")
            )
            writes = await done(t.writes(second.id))
            assert writes == (await done(t.load(writes=True))).writes
            assert (writes[0].task, writes[0].path, writes[0].write.data) == ("task", "p", b'"x"')
            assert await done(t.namespaces()) == [""]
            results = await done(
                c.save_batch([(c.thread("b"), {"s": b"1"}), (t, Draft({}, parent="nothing"))])
            )
            assert results[0].seq == 1
            assert isinstance(results[1], errors.UnknownParentError)

    run(test)


def test_threads(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon) as c:
            user = c.user()
            t = user.thread("one")
            for step in range(3):
                await done(t.save(Draft({"s": b"%d" % step}, step=step, run_id=f"r{step}")))
            await done(t.copy("two"))
            names = [info.ref.thread for info in await listed(user.threads(count=True))]
            assert {"one", "two"} <= set(names)
            info = (await listed(user.threads(prefix="one", limit=1, count=True)))[0]
            assert (info.head_seq, info.checkpoints, info.expires) == (3, 3, None)
            assert await listed(user.threads(by_activity=True))
            assert (await done(user.latest())).channels["s"].data == b"2"
            found = await listed(user.query(Filter(run_id="r1"), limit=1))
            assert [cp.step for cp in found] == [1]
            assert len(await listed(c.query_tenant(Filter(run_id="r1")))) >= 2
            assert (await done(user.delete_run("r1"))).removed == 2
            pruned = await done(t.prune(keep_last=1, dry_run=True))
            assert len(pruned.removed) == 1
            await done(t.prune(keep_last=1))
            assert await done(t.delete()) == 2
            with pytest.raises(NotFoundError, match="check tenant"):
                await done(t.load())
            with pytest.raises(errors.GenerationError, match="deleted"):
                await done(t.save(Draft({}, generation=1)))
            await done(user.thread("two").delete())

    run(test)


def test_blobs(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon) as c:
            user = c.user()
            content = bytes(range(256)) * 3000
            blob = await done(user.put_blob(content))
            assert blob.size == len(content)
            assert (await done(user.put_blob(io.BytesIO(content)))).id == blob.id
            assert await done(user.read_blob(blob.id)) == content
            pieces = [piece async for piece in each(user.get_blob(blob.id))]
            assert b"".join(pieces) == content
            stat = await done(user.stat_blob(blob.id))
            assert (stat.id, stat.size) == (blob.id, blob.size)
            cp = await done(user.thread("blobs").save(Draft({}, blobs=[blob.id])))
            assert cp.blobs == [blob.id]
            assert (await done(user.put_blob(b""))).size == 0

    run(test)


def test_watch(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon, heartbeat=1.0) as c, client("async", daemon) as other:
            writer = other.user(f"{USER}-{kind}").thread("watched")
            events = each(c.thread("watched").watch(began=True))
            begun = await anext(events)
            assert begun.id == ""
            await writer.save(Draft({}, id="a"))
            await writer.save(Draft({}, id="b"))
            event = await anext(events)
            assert (event.id, event.status) == ("a", "running")
            await events.aclose()
            events = each(c.user().watch(event.cursor))
            assert (await anext(events)).id == "b"
            await events.aclose()
            events = each(c.watch(since=event.time))
            seen = await anext(events)
            assert seen.id
            await events.aclose()

    run(test)


def test_admin(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon) as c:
            me = await done(c.admin.who_am_i())
            assert me.caller.startswith("peer:")
            assert (await done(c.admin.status())).connections > 0
            await done(c.admin.create_user("extra"))
            assert "default" in await listed(c.admin.tenants())
            assert "extra" in await listed(c.admin.users())
            assert (await done(c.admin.stats("extra"))).threads == 0
            policy = v1.RetentionPolicy(keep_last=100)
            await done(c.admin.set_retention(policy, tenant="kept"))
            assert await done(c.admin.retention("kept")) == policy
            told: list[Any] = []
            report = await done(c.admin.collect_garbage("default", on_progress=told.append))
            assert report.users >= 1
            assert (await done(c.admin.verify("default", deep=True))).problems == []
            grant = v1.Grant(role="reader", tenant="default", user="extra")
            made = await done(c.admin.create_token("for a test", [grant]))
            assert made.secret.startswith("ckptd_")
            assert made.token.id in [t.id for t in await done(c.admin.tokens())]
            assert await done(c.admin.revoke_token(made.token.id)) == [made.token.id]
            start = datetime.now(timezone.utc) - timedelta(hours=1)
            entries = await listed(c.admin.read_audit(start))
            assert any(e.method.endswith("CreateToken") for e in entries)

    run(test)


def test_plugins(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon) as c:
            tenant = f"redacted-{kind}"
            plugin = await done(c.plugins.install(builtin="redact", tenant=tenant))
            assert plugin.name == "redact"
            assert [p.name for p in await done(c.plugins.list(tenant))] == ["redact"]
            assert (await done(c.plugins.get("redact", tenant))).enabled
            thread = c.thread("t", tenant=tenant)
            session = thread.session()
            for text in ('["Write to alice@example.org"]', '["Write to alice@example.org now"]'):
                cp = await done(session.save({"m": Put(text.encode(), "json")}))
                assert cp.channels["m"].rewritten
                assert b"alice" not in (await done(thread.load())).channels["m"].data
            await done(c.plugins.set_enabled("redact", False, tenant))
            with pytest.raises(errors.CkptdError):
                await done(c.plugins.rollback("redact", tenant=tenant))
            await done(c.plugins.remove("redact", tenant))
            key = await done(c.plugins.trust_key(bytes(range(32)), "a test's"))
            assert key.id in [k.id for k in await done(c.plugins.keys())]
            await done(c.plugins.untrust_key(key.id))

    run(test)


def test_migrations(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon) as c:
            tenant = f"migrated-{kind}"
            thread = c.thread("old", tenant=tenant)
            state = {"state": as_json({"user_pref": "tea"})}
            await done(thread.save(Draft(state, kind="support", schema_version=1)))
            files = {
                "support/0002_rename.jq": b".channels.state |= {preference: .user_pref}",
                "support/0002_rename.down.jq": b".channels.state |= {user_pref: .preference}",
            }
            assert (await done(c.migrations.install(files, tenant=tenant)))[0].newest == 2
            assert (await done(c.migrations.sets(tenant)))[0].kind == "support"
            loaded = await done(thread.load(schema=2))
            assert loaded.channels["state"].json() == {"preference": "tea"}
            assert loaded.message.migrated.to == 2
            with pytest.raises(errors.NoMigrationError) as caught:
                await done(thread.load(schema=3))
            assert caught.value.migration.to == 3
            spec = v1.MigrationSpec(kind="support")
            assert (await done(c.migrations.status(spec, tenant)))[0].heads == 1
            assert (await done(c.migrations.plan(spec, tenant))).todo == 1
            job = await done(c.migrations.start(v1.MIGRATION_ACTION_RUN, spec, tenant=tenant))
            told: list[Any] = []
            job = await done(c.migrations.watch(job.id, tenant, on_progress=told.append))
            assert (job.state, job.report.migrated, bool(told)) == ("done", 1, True)
            assert c.migrations.error(job) is None
            assert (await done(c.migrations.job(job.id, tenant))).state == "done"
            assert [j.id for j in await done(c.migrations.jobs(tenant))] == [job.id]
            assert (await done(c.migrations.cancel(job.id, tenant))).state == "done"
            with pytest.raises(errors.SchemaTooNewError):
                await done(thread.load(schema=1))
            with pytest.raises(errors.NoJobError):
                await done(c.migrations.job("none", tenant))
            await done(c.migrations.remove("support", tenant))

    run(test)


def test_delta_channels_and_namespaces(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon) as c:
            t = c.thread(f"delta-{kind}")
            first = await done(t.save(Draft({"log": b"base"}, run_id="run")))
            await done(t.put_writes(first.id, "task", [Write("log", b"1")]))
            second = await done(t.save(Draft({}, delta=["log"], keep=True)))
            assert second.run_id == "run"
            third = await done(t.save(Draft({"n": b"1"}, delta=["log"], run_id="")))
            assert third.run_id == ""
            loaded = await done(t.load(history=["log"]))
            (history,) = loaded.histories
            assert history.channel == "log"
            sub = c.thread(f"delta-{kind}", namespace="sub")
            await done(sub.save(Draft({}, called_from=first.id)))
            other = c.thread(f"delta-{kind}", namespace="other")
            await done(other.save({}))
            await done(other.delete())
            assert await done(t.namespaces()) == ["", "sub"]
            pruned = await done(t.prune(keep_last=1))
            assert list(pruned.namespaces) == ["sub"]
            assert (await done(t.load(history=["log"]))).histories[0] == history

    run(test)


def test_lists_by_id(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        async with client(kind, daemon) as c:
            t = c.thread(f"by-id-{kind}")
            for id in ("b", "c", "a"):  # noqa: A001
                await done(t.save(Draft({"n": id.encode()}, id=id, meta=f'{{"id": "{id}"}}')))
            ids = ["c", "b", "a"]
            assert [cp.id for cp in await listed(t.history(by_id=True))] == ids
            found = await listed(c.user().list_by_id(t.ref.thread, namespace="", data=True))
            assert [cp.channels["n"].data.decode() for cp in found] == ids
            found = await listed(c.user().list_by_id(t.ref.thread, before="bb", limit=1))
            assert [cp.id for cp in found] == ["b"]
            found = await listed(c.user().list_by_id(t.ref.thread, meta='{"id": "a"}'))
            assert [cp.id for cp in found] == ["a"]
            await done(t.prune(keep_last=1, by_id=True))
            assert [cp.id for cp in await listed(t.history())] == ["c"]

    run(test)


def test_every_method_was_called() -> None:
    if not called["sync"]:
        pytest.skip("SKIPPED: the other tests of this file did not run")
    for kind in KINDS:
        missing = {m.name for m in METHODS.values()} - called[kind]
        assert not missing, f"the {kind} client has no test of {missing}"


def test_over_tls_with_a_token(kind: str, daemon: Daemon) -> None:
    async def test() -> None:
        c = client_of(kind, daemon.tcp, token=daemon.token, tls_ca=daemon.ca)
        try:
            t = c.thread(f"tls-{kind}")
            big = bytes(range(256)) * 4096
            for content in (b"small", big):
                await done(t.save({"state": content}))
                assert (await done(t.load())).channels["state"].data == content
            assert t.ref.tenant == ""  # the token tells
            assert (await done(t.load())).ref.tenant == "default"
            with pytest.raises(NotFoundError):
                await done(c.thread("x", tenant="other", user="u").load())
            with pytest.raises(errors.DeniedError, match="who_am_i"):
                await done(c.admin.tokens())
        finally:
            await close(c)
        wrong = client_of(kind, daemon.tcp, token="ckptd_wrong", tls_ca=daemon.ca)
        with pytest.raises(errors.UnauthenticatedError, match="CKPTD_TOKEN"):
            await done(wrong.thread("t").load())
        await close(wrong)
        stranger = client_of(kind, daemon.tcp, token=daemon.token)
        with pytest.raises(errors.UnreachableError, match="certificate"):
            await done(stranger.thread("t").load())
        await close(stranger)

    run(test)


def test_with_a_certificate(kind: str, program: Path, tmp_path: Path) -> None:
    people = trustme.CA()
    person = people.issue_cert("agent-7.example", common_name="agent-7")
    people.cert_pem.write_to_path(str(tmp_path / "people.pem"))
    person.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "me.pem"))
    config = tmp_path / "ckptd.toml"
    config.write_text("""[[certificate]]
common-name = "agent-7"
[[certificate.grant]]
role = "writer"
tenant = "acme"
user = "alice"
""")

    async def test(d: Daemon) -> None:
        me = tmp_path / "me.pem"
        c = client_of(kind, d.tcp, tls_ca=d.ca, tls_cert=me, tls_key=me)
        assert (await done(c.admin.who_am_i())).caller.startswith("certificate:")
        assert (await done(c.thread("t").save({}))).ref.user == "alice"
        await close(c)

    flags = ("--config", str(config), "--client-ca", str(tmp_path / "people.pem"))
    with serve(program, *flags, tls=True) as d:
        run(test, d)


@pytest.mark.parametrize("place", ["socket", "tcp"])
def test_too_large_is_answered(kind: str, place: str, daemon: Daemon) -> None:
    """The daemon answers before it has read all, and hangs up."""

    async def test() -> None:
        options: dict[str, Any] = {"attempts": 2}
        if place == "tcp":
            options |= {"token": daemon.token, "tls_ca": daemon.ca}
        c = client_of(kind, getattr(daemon, place), **options)
        for size in (5 << 20, 48 << 20):
            with pytest.raises(errors.TooLargeError, match="blobs"):
                await done(c.thread("large").save({"state": bytes(size)}))
        assert (await done(c.thread("large").save({"state": bytes(3 << 20)}))).seq >= 1
        await close(c)

    run(test)


def test_many_at_once(kind: str, daemon: Daemon) -> None:
    """One client serves many threads, or tasks, with a connection for each call under way."""

    async def test() -> None:
        async with client(kind, daemon) as c:

            async def one(n: int) -> None:
                t = c.thread(f"many-{n}")
                for step in range(10):
                    state = b"%d-%d" % (n, step)
                    if kind == "sync":
                        await asyncio.to_thread(t.save, {"s": state})
                        loaded = await asyncio.to_thread(t.load)
                    else:
                        await t.save({"s": state})
                        loaded = await t.load()
                    assert loaded.channels["s"].data == state

            await asyncio.gather(*(one(n) for n in range(16)))
            assert len(c._caller.wire.pool.idle()) <= 16
            assert not c._caller.wire.pool._busy

    run(test)
