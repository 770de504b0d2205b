"""A daemon that a saver starts by itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import suite
from graphs import config, counter

from ckptd import UnreachableError
from ckptd._local import LocalDaemon, find_program, socket_path
from ckptd.errors import InvalidError
from ckptd.langgraph import CkptdSaver


@pytest.fixture
def data(tmp_path: Path) -> Path:
    # Too long for a socket next to it, so that this is tested, too.
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    return folder / "data"


def test_finds_the_program(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidError, match="not installed"):
        find_program()
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_program() == str(program)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("CKPTD_BIN", str(other))
    assert find_program() == str(other)
    assert find_program(program) == str(program)
    with pytest.raises(InvalidError, match="not a program"):
        find_program(tmp_path / "none")


def test_socket_is_next_to_the_data_if_it_fits(tmp_path: Path) -> None:
    assert socket_path(Path("/tmp/x/data")) == Path("/tmp/x/data.sock")
    long = socket_path(tmp_path / ("x" * 120) / "data")
    assert len(os.fsencode(long)) <= 103


USER = """
import sys
from ckptd.langgraph import CkptdSaver
from graphs import config, counter
with CkptdSaver.local(sys.argv[1], program=sys.argv[2]) as saver:
    for i in range(5):
        counter(saver).invoke({"n": 0}, config(sys.argv[3]))
"""


def test_processes_share_a_daemon(program: Path, data: Path) -> None:
    """All start at once: one daemon wins, and the others connect to it."""
    env = {**os.environ, "PYTHONPATH": f"{suite.SOURCE}:{Path(__file__).parent}"}
    command = [sys.executable, "-W", "error", "-c", USER, str(data), str(program)]
    users = [
        subprocess.Popen([*command, f"t{i}"], env=env, stderr=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    for user in users:
        _, err = user.communicate(timeout=60)
        assert user.returncode == 0, err
        assert err == ""
    with CkptdSaver.local(data, program=program) as saver:
        for i in range(2):
            found = saver.get_tuple(config(f"t{i}"))
            assert found is not None
            assert found.checkpoint["channel_values"]["n"] == 5


def test_ends_by_itself_and_starts_again(program: Path, data: Path) -> None:
    daemon = LocalDaemon(data, program=program, until_unused=1)
    daemon.start()
    options: Any = {"token": "", "on_retry": daemon.restarter(None)}

    async def wait() -> None:
        deadline = time.monotonic() + 20
        while daemon._listens():  # each look counts as a use
            assert time.monotonic() < deadline
            await asyncio.sleep(1.5)

    async def test() -> None:
        async with CkptdSaver(daemon.url, **options) as saver:
            await counter(saver).ainvoke({"n": 0}, config("t"))
        await wait()
        async with CkptdSaver(daemon.url, **options) as saver:
            assert await saver.aget_tuple(config("t")) is not None

        await wait()

    asyncio.run(test())
    with CkptdSaver(daemon.url, **options) as saver:
        assert saver.get_tuple(config("t")) is not None


def test_errors_say_what_is_wrong(program: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    with pytest.raises(UnreachableError, match="`ckptd serve` failed with code"):
        CkptdSaver.local(tmp_path / "data", program=program)
