"""Both clients behind a proxy that cuts connections at random."""

from __future__ import annotations

import contextlib
import io
import os
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from both import client_of, close, done, each, listed, run
from daemons import Daemon

from ckptd import Draft, errors


class Proxy:
    """Forwards connections to a Unix socket, and cuts most of them after a number of bytes."""

    def __init__(self, path: str, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.most = 4000  # bytes before a cut
        self.cuts = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self.path)
                left = [self.random.randrange(self.most)]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.pump, args=(a, b, left), daemon=True).start()

    def pump(self, source: socket.socket, target: socket.socket, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data[: left[0]])
                left[0] -= len(data)
                if left[0] <= 0:
                    self.cuts += 1
                    break
        for s in (source, target):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture(params=[1, 2])
def proxy(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Proxy]:
    p = Proxy(daemon.socket.removeprefix("unix://"), request.param)
    yield p
    p.close()


def client(kind: str, proxy: Proxy) -> Any:
    user = f"faults-{os.urandom(4).hex()}"
    return client_of(kind, proxy.url, user=user, attempts=200, backoff=0.001, max_backoff=0.002)


def test_saves_happen_once(kind: str, proxy: Proxy) -> None:
    async def test() -> None:
        c = client(kind, proxy)
        t = c.thread("t")
        session = t.session()
        state = b""
        for step in range(60):
            state += os.urandom(20)
            saved = await done(session.save(Draft({"s": state}, step=step, expect_head=step)))
            assert saved.seq == step + 1
            if step % 10 == 0:
                assert (await done(t.load())).channels["s"].data == state
        assert proxy.cuts > 10
        proxy.most = 40_000  # for the list, which is one message
        history = await listed(t.history())
        assert [cp.step for cp in history] == [*range(59, -1, -1)]
        await close(c)

    run(test)


def test_deletes_are_not_repeated(kind: str, proxy: Proxy) -> None:
    async def test() -> None:
        c = client(kind, proxy)
        proxy.most = 2000
        deleted = doubt = 0
        for n in range(40):
            t = c.thread(f"t-{n}")
            await done(t.save({}))
            try:
                generation = await done(t.delete())
            except errors.AmbiguousError:
                doubt += 1
            else:
                deleted += 1
                assert generation == 2  # 3 would be a second deletion
        assert deleted
        assert doubt
        await close(c)

    run(test)


def test_blobs_and_watches(kind: str, proxy: Proxy) -> None:
    async def test() -> None:
        c = client(kind, proxy)
        proxy.most = 1_500_000
        user, content = c.user(), os.urandom(700_000)
        for _ in range(5):
            blob = await done(user.put_blob(io.BytesIO(content)))
            assert await done(user.read_blob(blob.id)) == content
        proxy.most = 3000
        t = c.thread("watched")
        first = (await done(t.save({}))).time
        for _ in range(40):
            await done(t.save({}))
        seen = []
        async with contextlib.aclosing(each(c.watch(since=first))) as events:
            async for e in events:
                if e.ref.user == t.ref.user and e.ref.thread == "watched":
                    seen.append(e.seq)
                if e.seq == 41 and e.ref.user == t.ref.user:
                    break
        assert seen == [*range(1, 42)]
        await close(c)

    run(test)


def test_refused_upload(kind: str, daemon: Daemon) -> None:
    """The daemon refuses an upload before it has read it."""

    async def test() -> None:
        c = client_of(kind, daemon.tcp, token=daemon.token, tls_ca=daemon.ca, attempts=2)
        with pytest.raises(errors.NotFoundError):
            await done(c.user("nobody", tenant="other").put_blob(bytes(8 << 20)))
        with pytest.raises(errors.NotFoundError):
            await done(c.user().read_blob("0" * 64))
        await close(c)

    run(test)
