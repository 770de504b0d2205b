"""Measures the LangGraph saver: bytes sent and stored, and the time of puts, against other savers.

Run as `python bench/langgraph_bench.py [--steps 1000] [--postgres CONNINFO]` with `src` and `tests`
in PYTHONPATH. Each step appends a message of 1 kB to the state and puts it; the time of dumps_typed
is subtracted and printed next to the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import string
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import daemons
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from ckptd.langgraph import CkptdSaver


class Timed(JsonPlusSerializer):
    """A serializer that adds up the time that it takes."""

    taken = 0.0

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Serialize a value."""
        start = time.perf_counter()
        try:
            return self.dump(obj)
        finally:
            self.taken += time.perf_counter() - start

    def dump(self, obj: Any) -> tuple[str, bytes]:
        """Serialize a value, untimed."""
        return super().dumps_typed(obj)


class Json(Timed):
    """Serializes to JSON, like LangGraph in JavaScript."""

    def dump(self, obj: Any) -> tuple[str, bytes]:
        """Serialize a value, untimed."""
        return "json", json.dumps(obj, separators=(",", ":")).encode()


class Notes(BaseModel):
    """A list in a dict in a model."""

    by_topic: dict[str, list[str]]
    count: int


def text(r: random.Random, size: int = 1000) -> str:
    """Return a text."""
    return "".join(r.choices(string.ascii_letters + " ", k=size))


def messages(r: random.Random) -> Iterator[Any]:
    """Yield a growing list of messages, in MessagePack."""
    found: list[Any] = []
    while True:
        found.append(HumanMessage(text(r), id=str(uuid6())))
        yield found


def dicts(r: random.Random) -> Iterator[Any]:
    """Yield a growing list of dicts."""
    found: list[Any] = []
    while True:
        found.append({"role": "user", "content": text(r), "id": str(uuid6())})
        yield found


def models(r: random.Random) -> Iterator[Any]:
    """Yield a model with a growing list."""
    found: list[str] = []
    while True:
        found.append(text(r))
        yield Notes(by_topic={"first": ["a"], "trip": found, "last": []}, count=len(found))


def put_all(saver: BaseCheckpointSaver[Any], values: Iterator[Any], steps: int) -> list[float]:
    """Put the steps of a run, and return the seconds of each put without dumps_typed."""
    config: Any = {"configurable": {"thread_id": str(uuid6()), "checkpoint_ns": ""}}
    versions: dict[str, Any] = {}
    seen: dict[str, Any] = {}
    took: list[float] = []
    serde = saver.serde
    for step in range(steps):
        state = {"messages": next(values)}
        new = {name: saver.get_next_version(versions.get(name), None) for name in state}
        versions = {"__start__": "1", **new}
        checkpoint: Any = {
            **empty_checkpoint(),
            "v": 4,
            "id": str(uuid6(clock_seq=step)),
            "channel_values": state,
            "channel_versions": dict(versions),
            "versions_seen": {"__input__": {}, "model": dict(seen)},
            "updated_channels": sorted(new),
        }
        seen = versions
        before = getattr(serde, "taken", 0.0)
        start = time.perf_counter()
        config = saver.put(
            config, checkpoint, {"source": "loop", "step": step, "parents": {}}, dict(new)
        )
        took.append(time.perf_counter() - start - (getattr(serde, "taken", 0.0) - before))
    loaded = saver.get_tuple(config)
    assert loaded is not None
    assert loaded.checkpoint["channel_values"]["messages"] == state["messages"]
    return took


def count_sent(saver: CkptdSaver) -> list[int]:
    """Return a list that gets the size of each request of the saver."""
    sizes: list[int] = []
    client = saver._client()
    encode = client._caller.encode

    def counted(request: Any) -> bytes:
        body = encode(request)
        sizes.append(len(body))
        return body

    client._caller.encode = counted  # type: ignore[method-assign]
    return sizes


def size_of(folder: Path) -> int:
    """Return the bytes that files allocate, without the daemon's reserve for a full disk."""
    return sum(p.stat().st_blocks * 512 for p in folder.rglob("*") if p.name != "ballast")


def row(name: str, took: list[float], serde: Timed, more: str = "") -> None:
    """Print a row."""
    first, last = (statistics.median(part) * 1000 for part in (took[:20], took[-20:]))
    dumps = serde.taken / len(took) * 1000
    print(
        f"{name:26} put p50 {first:7.3f} -> {last:7.3f} ms ({last / first:5.2f} x), "
        f"dumps_typed {dumps:6.3f} ms on average{more}",
        flush=True,
    )


def ours(program: Path, steps: int) -> None:
    """Print the rows of this saver: each has a daemon of its own, for its size."""
    kinds: list[tuple[str, Timed, Callable[[random.Random], Iterator[Any]]]] = [
        ("ckptd msgpack messages", Timed(), messages),
        ("ckptd msgpack dicts", Timed(), dicts),
        ("ckptd JSON", Json(), dicts),
        ("ckptd list in a model", Timed(allowed_msgpack_modules=[Notes]), models),
    ]
    for name, serde, values in kinds:
        with daemons.serve(program) as daemon:
            with CkptdSaver(daemon.socket, serde=serde) as saver:
                sizes = count_sent(saver)
                took = put_all(saver, values(random.Random(1)), steps)
            daemon.stop()
            stored = size_of(daemon.folder / "data")
        sent = sum(sizes)
        row(name, took, serde, f"; sent {sent / 1e6:.2f} MB, stored {stored / 1e6:.2f} MB")


def rivals(steps: int, postgres: str) -> None:
    """Print the rows of the stock savers, with messages."""
    serde = Timed()
    row("memory", put_all(InMemorySaver(serde=serde), messages(random.Random(1)), steps), serde)
    with contextlib.ExitStack() as stack:
        import sqlite3  # noqa: PLC0415

        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415

        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        conn = sqlite3.connect(folder / "db", check_same_thread=False)
        stack.callback(conn.close)
        sqlite = SqliteSaver(conn, serde=Timed())
        sqlite.setup()
        conn.execute("PRAGMA synchronous=FULL")
        took = put_all(sqlite, messages(random.Random(1)), steps)
        row("sqlite", took, sqlite.serde, f"; stored {size_of(folder) / 1e6:.2f} MB")  # type: ignore[arg-type]
    if postgres:
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415

        with PostgresSaver.from_conn_string(postgres) as pg:
            pg.serde = Timed()
            pg.setup()
            took = put_all(pg, messages(random.Random(1)), steps)
            row("postgres", took, pg.serde)


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--postgres", default="", help="conninfo of a server to compare with")
    parser.add_argument("--no-rivals", action="store_true")
    args = parser.parse_args()
    ours(daemons.build("ckptd", "./cmd/ckptd"), args.steps)
    if not args.no_rivals:
        rivals(args.steps, args.postgres)


if __name__ == "__main__":
    main()
