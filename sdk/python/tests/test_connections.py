"""Connections: restarts, closing, reuse, forks, event loops, timeouts, strange answers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import daemons
import pytest
from both import client_of, close, done, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptd import AsyncClient, AsyncThread, Client, Draft, errors


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="ckptd-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_daemon_that_restarts(kind: str, program: Path, folder: Path) -> None:
    """The client notices closed connections before it uses them, so nothing is in doubt."""

    async def test() -> None:
        url = f"unix://{folder}/data.sock"
        heard: list[Any] = []
        c = client_of(kind, url, backoff=0.01, on_retry=lambda e, _: heard.append(e))
        with daemons.serve(program, folder=folder):
            await done(c.thread("t").save({"s": b"1"}))
        gone = client_of(kind, url, attempts=2, backoff=0.01)
        with pytest.raises(errors.UnreachableError, match="ckptd serve"):
            await done(gone.thread("t").delete())
        await close(gone)
        with daemons.serve(program, folder=folder):
            assert await done(c.thread("t").delete()) == 2
        assert heard == []
        await close(c)

    run(test)


def test_close_ends_a_watch(kind: str, daemon: daemons.Daemon) -> None:
    c = client_of(kind, daemon.socket)
    if kind == "sync":
        events = c.user().watch(began=True)
        next(events)
        threading.Timer(0.2, c.close).start()
        with pytest.raises(errors.ClosedError):
            next(events)
        with pytest.raises(errors.ClosedError):
            c.thread("t").load()
        return

    async def test() -> None:
        events = c.user().watch(began=True)
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)
        await c.aclose()
        with pytest.raises(errors.ClosedError):
            await waiting
        with pytest.raises(errors.ClosedError):
            await c.thread("t").load()

    run(test)


def test_connections_are_reused(kind: str, daemon: daemons.Daemon) -> None:
    async def test() -> None:
        for url, more in (
            (daemon.socket, {}),
            (daemon.tcp, {"token": daemon.token, "tls_ca": daemon.ca}),
        ):
            c = client_of(kind, url, **more)
            pool = c._caller.wire.pool
            t = c.thread("reused")
            await done(t.save({"s": b"1"}))
            first = pool.idle()
            for _ in range(3):
                await done(t.save({"s": b"1"}))
                with pytest.raises(errors.NotFoundError):
                    await done(c.thread("nothing").load())
                if kind == "sync":
                    assert list(t.history(limit=1))
                else:
                    assert [cp async for cp in t.history(limit=1)]
            assert pool.idle() == first
            assert len(first) == 1
            await close(c)

    run(test)


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # for connections that closed loops left open
def test_one_client_in_many_event_loops(daemon: daemons.Daemon) -> None:
    c = AsyncClient(daemon.socket)

    async def one() -> None:
        await c.thread("loops").save({"s": b"1"})
        await c.thread("loops").load()

    async def last() -> None:
        await one()
        await c.aclose()

    for _ in range(3):
        asyncio.run(one())
    asyncio.run(last())
    gc.collect()


def test_one_client_in_event_loops_of_several_threads(daemon: daemons.Daemon) -> None:
    c = AsyncClient(daemon.socket)
    begun = threading.Barrier(4)

    async def work(name: str) -> None:
        t = c.thread(name)
        for step in range(20):
            await asyncio.gather(t.save({"s": b"%d" % step}), c.thread(name + "-2").save({}))
            if step == 0:
                await asyncio.to_thread(begun.wait, 20)
            await t.load()
        await asyncio.to_thread(begun.wait, 20)
        if name == "loop-0":
            await c.aclose()
        else:
            with pytest.raises(errors.ClosedError):
                await until_closed(t)
        await asyncio.sleep(0.05)  # for the connections that loop-0 closes here

    async def until_closed(t: AsyncThread) -> None:
        while True:
            await t.load()

    failures: list[BaseException] = []

    def run_loop(name: str) -> None:
        try:
            asyncio.run(work(name))
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=run_loop, args=(f"loop-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


def test_cancelled_call_takes_its_connection_along(daemon: daemons.Daemon) -> None:
    async def test() -> None:
        async with AsyncClient(daemon.socket) as c:
            t = c.thread("cancelled")
            await t.save({"s": b"1"})
            for delay in (0, 0.0002, 0.001):
                task = asyncio.ensure_future(t.load())
                await asyncio.sleep(delay)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert not c._caller.wire.pool._busy
            assert (await t.load()).channels["s"].data == b"1"

    run(test)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="SKIPPED: there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_child_leaves_the_parents_connections_alone(daemon: daemons.Daemon) -> None:
    c = Client(daemon.socket)
    c.thread("fork").save({"s": b"1"})
    theirs = c._caller.wire.pool.idle()[0]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ok = c.thread("fork").load().channels["s"].data == b"1"
            code = 0 if ok and theirs not in c._caller.wire.pool.idle() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert c.thread("fork").load().channels["s"].data == b"1"
    assert c._caller.wire.pool.idle() == [theirs]
    c.close()


class Deaf:
    """A server that hands each connection to a function."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.taken: list[socket.socket] = []
        self.behave = behave
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            self.taken.append(conn)
            self.behave(conn)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for conn in self.taken:
            conn.close()


def test_silent_daemon_times_out(kind: str) -> None:
    async def test() -> None:
        server = Deaf(lambda conn: None)
        c = client_of(kind, server.url, timeout=0.15, attempts=2, backoff=0)
        begun = time.monotonic()
        with pytest.raises(errors.UnreachableError, match="no answer in time"):
            await done(c.thread("t").load())
        with pytest.raises(errors.AmbiguousError):
            await done(c.thread("t").delete())
        with pytest.raises(errors.AmbiguousError):
            await done(c.thread("t").save(Draft({"s": bytes(32 << 20)})))
        assert time.monotonic() - begun < 20
        assert len(server.taken) == 5
        await close(c)
        server.close()

    run(test)


def test_silent_watch_begins_again(kind: str) -> None:
    async def test() -> None:
        server = Deaf(lambda conn: None)
        c = client_of(kind, server.url, heartbeat=1.0, attempts=1)
        events = c.user().watch()
        begun = time.monotonic()
        with pytest.raises(errors.UnreachableError, match="no answer in time"):
            await done(anext(events) if kind == "async" else next(events))
        assert 2.5 < time.monotonic() - begun < 20
        await close(c)
        server.close()

    run(test)


def test_strange_answers(kind: str) -> None:
    answers = iter(
        [
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\nContent-Length: 1\r\n\r\n\xff",
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        ]
    )

    def behave(conn: socket.socket) -> None:
        conn.recv(65536)
        conn.sendall(next(answers))
        conn.shutdown(socket.SHUT_WR)

    async def test() -> None:
        server = Deaf(behave)
        c = client_of(kind, server.url, attempts=1)
        for says in ("broke before", "text/html", "not a LoadResponse", "404"):
            with pytest.raises(errors.UnreachableError, match=says):
                await done(c.thread("t").load())
        await close(c)
        server.close()

    run(test)


def test_path_that_is_too_long_is_said_at_once(kind: str) -> None:
    async def test() -> None:
        c = client_of(kind, "unix:///tmp/" + "x" * 200)
        with pytest.raises(errors.UnreachableError, match="too long"):
            await done(c.thread("t").load())
        await close(c)

    run(test)


def test_session_is_cheap_and_right(kind: str, daemon: daemons.Daemon) -> None:
    """A session sends little, and another writer's state does not corrupt its own."""

    async def test() -> None:
        c = client_of(kind, daemon.socket, tenant="default", user=f"sessions-{kind}")
        wire = c._caller.wire
        sent: list[int] = []
        unary = wire.unary

        def counted(method: Any, body: bytes, answer: Any) -> Any:
            sent.append(len(body))
            return unary(method, body, answer)

        wire.unary = counted
        t = c.thread("t")
        session = t.session()
        state = os.urandom(200_000)
        for step in range(5):
            state += b"step %d" % step
            await done(session.save(Draft({"state": state}, step=step)))
        assert sum(sent) < 205_000
        assert (await done(t.load())).channels["state"].data == state
        await done(t.save({"state": b"another writer's"}))
        sent.clear()
        state += b"more"
        await done(session.save({"state": state}))
        assert len(sent) == 2  # NEED_FULL, then whole
        assert (await done(t.load())).channels["state"].data == state
        sent.clear()
        loaded = await done(session.load())
        assert loaded.channels["state"].data == state
        assert sent[0] < 200
        await close(c)

    run(test)


states = st.lists(
    st.tuples(
        st.sampled_from(["append", "change", "new", "same", "other writer", "load", "branch"]),
        st.integers(0, 5000),
        st.binary(max_size=300),
    ),
    max_size=12,
)


@given(steps=states)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_sessions_save_what_they_are_given(
    daemon: daemons.Daemon, steps: list[tuple[str, int, bytes]]
) -> None:
    """Whatever happens between its saves, the daemon holds the states of a session."""
    with Client(daemon.socket, cache_bytes=20_000) as c:
        t = c.thread(f"property-{os.urandom(8).hex()}")
        session, state = t.session(), bytes(range(256)) * 20
        for what, place, data in steps:
            draft = Draft({"state": state, "constant": b"x" * 1000})
            match what:
                case "append":
                    state += data
                case "change":
                    state = state[:place] + data + state[place + 7 :]
                case "new":
                    state = data * 20
                case "other writer":
                    t.save({"state": data})
                case "load":
                    with contextlib.suppress(errors.NotFoundError):
                        session.load()
                case "branch":
                    draft.branch = f"b{place % 3}"
            draft.channels = {**draft.channels, "state": state}
            saved = session.save(draft)
            loaded = t.load(saved.id)
            assert loaded.channels["state"].data == state
            assert loaded.channels["constant"].data == b"x" * 1000
