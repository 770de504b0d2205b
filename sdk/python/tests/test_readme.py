"""Runs the examples of README.md, and compares its list of methods with the clients."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import suite
from daemons import Daemon

import ckptd
from ckptd._async import admin, migrations, plugins

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PRINTS = ["parcel?']", "On its way.']", "{'to': 'Oslo'}\n[2, 1]", "", "42"]


@pytest.mark.parametrize(("example", "prints"), [*zip(EXAMPLES, PRINTS, strict=True)])
def test_example(example: str, prints: str, daemon: Daemon) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=daemon.folder,
        env={**os.environ, "PYTHONPATH": str(suite.SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.strip().endswith(prints)


def public(cls: type[Any]) -> set[str]:
    return {name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_")}


def test_lists_every_method() -> None:
    listing = README.split("```text\n")[1].split("```")[0]
    for cls in (
        ckptd.Client,
        ckptd.Thread,
        ckptd.Session,
        ckptd.User,
        admin.AsyncAdmin,
        plugins.AsyncPlugins,
        migrations.AsyncMigrations,
    ):
        missing = {name for name in public(cls) - {"error"} if f"{name}(" not in listing}
        assert not missing, f"the README does not list {missing} of {cls.__name__}"


def test_both_clients_have_the_same_methods() -> None:
    for name in ("Client", "Thread", "Session", "User"):
        sync, other = getattr(ckptd, name), getattr(ckptd, f"Async{name}")
        assert public(sync) == {{"aclose": "close"}.get(n, n) for n in public(other)}
        for method in public(sync):
            twin = getattr(other, "aclose" if method == "close" else method)
            assert [*inspect.signature(getattr(sync, method)).parameters] == [
                *inspect.signature(twin).parameters
            ]
