"""Runs the conformance suite of the project with a client of this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import daemons

SOURCE = Path(__file__).resolve().parents[1] / "src"
SCRIPTS = daemons.ROOT / "internal" / "conformance" / "scripts"


def names() -> list[str]:
    """Return the names of the scripts."""
    return sorted(p.stem for p in SCRIPTS.glob("*.json"))


def play(serve: Path, kind: str, scripts: list[str], source: Path = SOURCE) -> dict[str, list[str]]:
    """Play scripts, and return the problems of each."""
    run = "^(" + "|".join(scripts) + ")$"
    env = {**os.environ, "PYTHONPATH": str(source)}
    driver = [sys.executable, str(Path(__file__).with_name("driver.py")), kind]
    with (
        subprocess.Popen(
            ["timeout", "100", str(serve), "-run", run],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as server,
        subprocess.Popen(
            driver, stdin=server.stdout, stdout=server.stdin, stderr=subprocess.PIPE, env=env
        ) as player,
    ):
        assert server.stdin
        assert server.stdout
        assert server.stderr
        assert player.stderr
        server.stdin.close()
        server.stdout.close()
        said = player.stderr.read().decode()
        found = server.stderr.read()
    problems: dict[str, list[str]] = {name: [] for name in scripts}
    for line in found.splitlines():
        name, _, problem = line.partition(": ")
        problems.setdefault(name, []).append(problem)
    if server.returncode and not any(problems.values()):
        raise AssertionError(f"the suite failed: {found}\n{said}")
    return problems
