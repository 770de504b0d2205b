"""The published conformance suite of LangGraph's checkpointers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest
from daemons import Daemon
from langgraph.checkpoint.conformance import checkpointer_test, validate

from ckptd.langgraph import CkptdSaver

# How many tests each capability has. The suite's own report says FULL when it finds fewer.
TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


@pytest.mark.parametrize("over", ["socket", "tls"])
def test_conformance(daemon: Daemon, over: str) -> None:
    @checkpointer_test(name=over)
    async def saver() -> AsyncGenerator[CkptdSaver, None]:
        options: dict[str, Any] = {}
        if over == "socket":  # each saver begins empty
            options = {"user": str(uuid4())}
        async with CkptdSaver(
            daemon.socket if over == "socket" else daemon.tcp,
            token=daemon.token if over == "tls" else None,
            tls_ca=daemon.ca if over == "tls" else None,
            **options,
        ) as made:
            yield made

    report = asyncio.run(validate(saver))
    assert {name: r.failures for name, r in report.results.items() if r.failures} == {}
    assert {name: r.tests_passed for name, r in report.results.items() if r.detected} == TESTS
    assert sum(TESTS.values()) == 81
