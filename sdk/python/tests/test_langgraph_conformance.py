"""The published conformance suite of LangGraph's checkpointers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest
from daemons import Daemon
from langgraph.checkpoint.conformance import checkpointer_test, validate

from ckptd import Client
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


# A migration that renames a channel, of which the suite has none.
MIGRATION = {
    "agent/0002_rename.jq": b"if .channels.old then .channels.new = .channels.old"
    b" | del(.channels.old) else . end",
}


def install(daemon: Daemon) -> str:
    """Return a tenant with a redactor and a migration."""
    tenant = f"hooks-{uuid4()}"
    with Client(daemon.socket) as admin:
        admin.plugins.install(builtin="redact", tenant=tenant)
        admin.migrations.install(MIGRATION, tenant=tenant)
    return tenant


@pytest.mark.parametrize("over", ["socket", "tls", "hooks"])
def test_conformance(daemon: Daemon, over: str) -> None:
    options: dict[str, Any] = {}
    if over == "tls":
        options = {"token": daemon.token, "tls_ca": daemon.ca}
    elif over == "hooks":
        options = {"tenant": install(daemon), "kind": "agent", "schema_version": 2}

    @checkpointer_test(name=over)
    async def saver() -> AsyncGenerator[CkptdSaver, None]:
        # On the socket, each saver begins empty; the token is for one user.
        user = None if over == "tls" else str(uuid4())
        url = daemon.tcp if over == "tls" else daemon.socket
        async with CkptdSaver(url, user=user, **options) as made:
            yield made

    report = asyncio.run(validate(saver))
    assert {name: r.failures for name, r in report.results.items() if r.failures} == {}
    assert {name: r.tests_passed for name, r in report.results.items() if r.detected} == TESTS
    assert sum(TESTS.values()) == 81
