from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import daemons
import pytest
from both import KINDS
from hypothesis import settings

if os.environ.get("CI"):  # the same examples each time
    settings.register_profile("ci", derandomize=True)
    settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's variables out of the tests."""
    for name in list(os.environ):
        if name.startswith("CKPTD_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def program() -> Path:
    """The `ckptd` program."""
    return daemons.build("ckptd", "./cmd/ckptd")


@pytest.fixture(scope="session")
def daemon(program: Path) -> Iterator[daemons.Daemon]:
    """A daemon for all tests, on a socket and with TLS. Its messages have 4 MiB at most."""
    with daemons.serve(program, "--max-message", "4MiB", tls=True) as d:
        yield d


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Sync or async."""
    return str(request.param)
