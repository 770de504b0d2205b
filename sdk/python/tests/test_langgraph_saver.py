"""The saver against the traps of its interface."""

from __future__ import annotations

import inspect
import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
import suite
from both import client_of, close, done, run
from daemons import Daemon
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from savers import Both, config, count_calls, new_id

from ckptd import v1
from ckptd.errors import (
    ConflictError,
    GenerationError,
    InvalidError,
    SchemaTooNewError,
    TooLargeError,
    UnauthenticatedError,
    UnreachableError,
)
from ckptd.langgraph import BODY, CkptdSaver
from ckptd.langgraph._memory import Lineage, Memory, Part

LONG = ["a message of some length", {"n": 1}] * 2000


def test_the_client_does_not_import_langgraph() -> None:
    code = "import sys, ckptd; sys.exit(any('lang' in m.partition('.')[0] for m in sys.modules))"
    env = {**os.environ, "PYTHONPATH": str(suite.SOURCE)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


def test_signatures_name_the_path_of_a_task() -> None:
    """The runtime passes it only then."""
    for method in (CkptdSaver.put_writes, CkptdSaver.aput_writes):
        assert "task_path" in inspect.signature(method).parameters


def test_versions_have_a_random_part() -> None:
    """Else two forks share a version of different values."""
    saver, stock = CkptdSaver("unix:///nowhere"), InMemorySaver()
    made = {saver.get_next_version("00000000000000000000000000000007.5", None) for _ in range(50)}
    assert len(made) == 50
    current: Any = None
    for one in (stock, saver, saver, stock, saver):  # threads move from one to the other
        new = one.get_next_version(current, None)
        assert current is None or new > current
        current = new
    assert saver.get_next_version(3, None).startswith(f"{4:032}.")  # type: ignore[arg-type]


def test_new_versions_do_not_say_what_changed(daemon: Daemon, kind: str) -> None:
    """A fork hands over none, with the parent of the checkpoint that it copies."""

    async def test() -> None:
        async with CkptdSaver(daemon.socket) as saver:
            both = Both(saver, kind)
            at = config()
            first = await both.put(at, {"a": LONG, "b": 1}, {"a": "1", "b": "1"})
            second = await both.put(first, {"a": [*LONG, 2], "b": 1}, {"a": "2", "b": "1"})
            copied = await both.put(first, {"a": [*LONG, 2], "b": 1}, {"a": "2", "b": "1"}, new={})
            assert await both.values(copied) == await both.values(second)
            for place, a in ((first, LONG), (copied, [*LONG, 2])):
                assert await both.values(place) == {"a": a, "b": 1}

    run(test)


class Words(TypedDict):
    words: Annotated[list[str], operator.add]


def words(saver: Any, count: int = 3) -> Any:
    """Return a graph whose nodes each add a word."""
    graph = StateGraph(Words)
    names = [f"node{i}" for i in range(count)]
    for name in names:
        graph.add_node(name, lambda state, name=name: {"words": [name]})
    for one, other in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(one, other)
    return graph.compile(checkpointer=saver)


def test_forks_of_a_graph(daemon: Daemon) -> None:
    """A copied checkpoint continues with its own values, as with the stock saver."""
    with CkptdSaver(daemon.socket) as saver:
        histories = []
        for one in (saver, InMemorySaver()):
            graph, at = words(one), config()
            graph.invoke({"words": ["in"]}, at)
            (middle,) = [s for s in graph.get_state_history(at) if s.next == ("node1",)]
            copied = graph.update_state(middle.config, None, as_node="__copy__")
            assert graph.get_state(copied).values == middle.values
            assert graph.invoke(None, copied) == {"words": ["in", "node0", "node1", "node2"]}
            changed = graph.update_state(middle.config, {"words": ["x"]}, as_node="node0")
            graph.invoke(None, changed)
            histories.append([(s.values, s.next, s.metadata) for s in graph.get_state_history(at)])
        assert histories[0] == histories[1]


class Notes(BaseModel):
    topics: dict[str, list[str]]


def test_sends_only_differences(daemon: Daemon, kind: str) -> None:
    """An append to a list in MessagePack, deep in a value or not, sends what it adds."""

    async def test() -> None:
        for grow in (
            lambda i: [HumanMessage("x" * 500, id=str(n)) for n in range(i)],
            lambda i: Notes(topics={"a": [], "b": ["y" * 500] * i, "c": ["end"]}),
        ):
            async with CkptdSaver(daemon.socket) as saver:
                both = Both(saver, kind)
                calls, sizes = count_calls(saver, kind)
                at = config()
                for i in range(1, 101):
                    versions = {"m": f"{i:032}.0", "same": "1"}
                    at = await both.put(at, {"m": grow(i), "same": LONG}, versions)
                assert calls == {"Save": 100}
                assert sum(sizes[1:]) < 99 * 1500
            async with CkptdSaver(daemon.socket) as other:  # resumes with edits, too
                again = Both(other, kind)
                _, sizes = count_calls(other, kind)
                assert await again.values(at) == {"m": grow(100), "same": LONG}
                at = await again.put(at, {"m": grow(101), "same": LONG}, {"m": "9", "same": "1"})
                assert sizes[-1] < 1500
                assert (await again.values(at))["m"] == grow(101)

    run(test)


def test_sends_whole_what_the_daemon_lacks(daemon: Daemon, kind: str) -> None:
    async def test() -> None:
        async with CkptdSaver(daemon.socket) as saver, CkptdSaver(daemon.socket) as other:
            both = Both(saver, kind)
            calls, _ = count_calls(saver, kind)
            at = await both.put(config(), {"a": LONG})
            mine = at["configurable"]["checkpoint_id"]
            root = config(at["configurable"]["thread_id"])
            await Both(other, kind).put(root, {"a": ["other"]}, id=mine)  # replaces it
            at = await both.put(at, {"a": [*LONG, 1]}, {"a": "2"})
            assert calls == {"Save": 3}  # the second was NEED_FULL
            assert await both.values(at) == {"a": [*LONG, 1]}

    run(test)


def test_memory_is_bounded() -> None:
    memory = Memory(10_000)
    lineages = [Lineage("", "t", "u", str(i), "") for i in range(50)]
    for i in range(200):
        memory.remember(lineages[i % 50], str(i), {"a": Part("1", "json", b"x" * 1000, 1)})
        assert memory.size <= 10_000
    assert memory.parts(lineages[49], "199")
    assert not memory.parts(lineages[0], "150")
    memory.remember(lineages[49], "200", {"a": Part("1", "json", b"x" * 20_000, 1)})
    assert not memory.parts(lineages[49], "200")
    assert memory.size <= 10_000
    for i in range(5):  # of a lineage, two states
        memory.remember(lineages[0], str(i), {})
    assert len(memory._states[lineages[0]]) == 2
    for i in range(20_000):
        memory.learn(lineages[0], str(i), generation=1)
    assert len(memory._known) == 8192


def test_works_without_memory(daemon: Daemon) -> None:
    with CkptdSaver(daemon.socket, cache_bytes=0) as saver:
        graph, at = words(saver), config()
        assert graph.invoke({"words": []}, at) == {"words": ["node0", "node1", "node2"]}


def test_never_edits_what_hooks_rewrote(daemon: Daemon, kind: str) -> None:
    """A redacted channel is sent whole each time: no save fails first, and nothing leaks."""

    async def test() -> None:
        tenant = f"redacts-{uuid4()}"
        admin = client_of(kind, daemon.socket)
        await done(admin.plugins.install(builtin="redact", tenant=tenant))
        try:
            async with CkptdSaver(daemon.socket, tenant=tenant) as saver:
                both = Both(saver, kind)
                calls, sizes = count_calls(saver, kind)
                at, said = config(), [*LONG]
                for i in range(5):
                    said.append(f"write to mia{i}.li@mail-{uuid4().hex}.com")
                    values = {"m": list(said), "same": LONG}
                    at = await both.put(at, values, {"m": str(i), "same": "1"})
                assert calls == {"Save": 5}
                assert sizes[4] > len(str(LONG)) // 2  # whole
                assert sizes[4] < sizes[0]  # without the channel that no hook changed
                text = str(await both.values(at))
                assert "mia" not in text
                assert "write to" in text
        finally:
            await done(admin.plugins.remove("redact", tenant))
            await close(admin)

    run(test)


MIGRATION = {
    "agent/0002_rename.jq": b"""
.channels.notes = .channels.words | del(.channels.words)
| .channels.__langgraph__.channel_versions |= (.notes = .words | del(.words))
""",
}


def test_migrates_on_load(daemon: Daemon, kind: str) -> None:
    """A migration renames a channel with its versions, and the graph continues."""

    async def test() -> None:
        tenant = f"migrates-{uuid4()}"
        admin = client_of(kind, daemon.socket)
        await done(admin.migrations.install(MIGRATION, tenant=tenant))
        await close(admin)
        options: Any = {"tenant": tenant, "kind": "agent"}
        async with CkptdSaver(daemon.socket, schema_version=1, **options) as saver:
            old = await Both(saver, kind).put(config(), {"words": LONG}, {"words": "7"})
        async with CkptdSaver(daemon.socket, schema_version=2, **options) as saver:
            both = Both(saver, kind)
            found = await both.call("get_tuple", old)
            assert found.checkpoint["channel_values"] == {"notes": LONG}
            assert found.checkpoint["channel_versions"] == {"notes": "7"}
            calls, sizes = count_calls(saver, kind)
            new = await both.put(old, {"notes": [*LONG, 1]}, {"notes": "8"})
            assert calls == {"Save": 1}
            assert sizes[0] < 2000  # edits of the migrated state
            assert await both.values(new) == {"notes": [*LONG, 1]}
        async with CkptdSaver(daemon.socket, schema_version=1, **options) as saver:
            with pytest.raises(SchemaTooNewError, match="down=True"):
                await Both(saver, kind).call("get_tuple", new)

    run(test)


def test_stored_form(daemon: Daemon) -> None:
    """It is documented: migrations rely on it."""
    with CkptdSaver(daemon.socket) as saver:
        graph, at = words(saver, 1), config()
        graph.invoke({"words": ["in"]}, at)
        found = saver.get_tuple(at)
        assert found is not None
        cp = saver._client().thread(at["configurable"]["thread_id"]).load()
        assert {name: c.type for name, c in cp.channels.items()} == {
            "words": "msgpack",
            BODY: "json",
        }
        body = cp.channels[BODY].json()
        assert set(body) == {"v", "ts", "channel_versions", "versions_seen", "updated_channels"}
        assert body["channel_versions"]["words"] > "0"
        assert cp.step == found.metadata["step"] == 1


async def gone(both: Both, at: Any) -> None:
    with pytest.raises(GenerationError, match="the thread was deleted: stop this run"):
        await both.put(at, {"a": 2}, {"a": "2"})
    with pytest.raises(GenerationError):
        await both.call("put_writes", at, [("a", 1)], "task")


def test_a_thread_deleted_during_a_run_stays_deleted(daemon: Daemon, kind: str) -> None:
    async def test() -> None:
        async with CkptdSaver(daemon.socket) as saver, CkptdSaver(daemon.socket) as other:
            both = Both(saver, kind)
            for deleter in (other, saver):
                at = await both.put(config(), {"a": 1})
                thread = at["configurable"]["thread_id"]
                await Both(deleter, kind).call("delete_thread", thread)
                await gone(both, at)
                assert await both.call("get_tuple", config(thread)) is None
                await gone(both, at)  # the next run began, but this one does not
                new = await both.put(config(thread), {"a": 9})
                await gone(both, at)
                await both.call("put_writes", new, [("a", 1)], "task")
                assert await both.values(config(thread)) == {"a": 9}
            # Also the first save of a subgraph.
            at = await both.put(config(), {"a": 1})
            conf = at["configurable"]
            inner = config(
                conf["thread_id"],
                checkpoint_ns=f"sub:{uuid4()}",
                checkpoint_map={"": conf["checkpoint_id"]},
            )
            await Both(other, kind).call("delete_thread", conf["thread_id"])
            with pytest.raises(GenerationError):
                await both.put(inner, {"a": 1})
            inner["configurable"]["checkpoint_id"] = new_id()
            with pytest.raises(GenerationError):
                await both.call("put_writes", inner, [("a", 1)], "task")
            assert await both.list({"configurable": {"thread_id": conf["thread_id"]}}) == []
            # And a run that began with writes.
            at = config("", checkpoint_id=new_id())
            await both.call("put_writes", at, [("a", 1)], "task")
            await Both(other, kind).call("delete_thread", at["configurable"]["thread_id"])
            with pytest.raises(GenerationError):
                await both.call("put_writes", at, [("a", 1)], "task2")

    run(test)


def test_strict(daemon: Daemon, kind: str) -> None:
    """Of two runs that continue the same checkpoint, the second fails, and nothing is lost."""

    async def test() -> None:
        at = config()
        one, two = (CkptdSaver(daemon.socket, strict=True) for _ in range(2))
        async with one, two:
            a, b = Both(one, kind), Both(two, kind)
            first = await a.put(at, {"n": 1})
            with pytest.raises(ConflictError, match="load the head"):
                await b.put(at, {"n": 0})  # began when there was none
            await b.values(at)
            second = await a.put(first, {"n": 2}, {"n": "2"})
            with pytest.raises(ConflictError) as caught:
                await b.put(first, {"n": 3}, {"n": "3"})
            assert caught.value.head_id == second["configurable"]["checkpoint_id"]
            await b.values(at)
            third = await b.put(second, {"n": 3}, {"n": "3"})
            # Time travel does not conflict, but a save in the meantime does.
            await a.values(first)
            with_id = await a.call("get_tuple", first)
            fork = await a.put(with_id.config, {"n": 4}, {"n": "4"})
            with pytest.raises(ConflictError):
                await b.put(third, {"n": 5}, {"n": "5"})
            assert len(await a.list(at)) == 4
            assert await b.values(at) == await a.values(fork)
        async with CkptdSaver(daemon.socket, strict=True) as other:  # has not loaded the parent
            await Both(other, kind).put(fork, {"n": 6}, {"n": "6"})
            with pytest.raises(ConflictError):
                await Both(other, kind).put(third, {"n": 6}, {"n": "6"})

    run(test)


def test_default_keeps_both(daemon: Daemon, kind: str) -> None:
    """Without strict both save, and the greatest id is the latest."""

    async def test() -> None:
        at = config()
        async with CkptdSaver(daemon.socket) as one, CkptdSaver(daemon.socket) as two:
            a, b = Both(one, kind), Both(two, kind)
            first = await a.put(at, {"n": 1})
            await b.values(at)
            low, high = sorted((new_id(), new_id()))
            await a.put(first, {"n": 2}, {"n": "2"}, id=high)
            await b.put(first, {"n": 3}, {"n": "3"}, id=low)  # saved last
            assert await a.values(at) == {"n": 2}
            found = await a.list(at)
            assert [t.checkpoint["channel_values"]["n"] for t in found] == [2, 3, 1]
            await a.call("prune", [at["configurable"]["thread_id"]])
            assert await b.values(at) == {"n": 2}

    run(test)


def test_owner_in_the_config(daemon: Daemon, kind: str) -> None:
    async def test() -> None:
        async with CkptdSaver(daemon.socket) as saver:
            both = Both(saver, kind)
            mine = config("t" + uuid4().hex)
            thread = mine["configurable"]["thread_id"]
            hers = config(thread, ckptd_user="mia", ckptd_tenant="acme")
            await both.put(mine, {"n": "mine"})
            at = await both.put(hers, {"n": "hers"})
            assert at["configurable"]["ckptd_user"] == "mia"
            assert await both.values(mine) == {"n": "mine"}
            assert await both.values(hers) == {"n": "hers"}
            assert await both.values(at) == {"n": "hers"}
            (found,) = await both.list(hers)
            assert found.metadata == {"source": "loop", "step": 1, "parents": {}}
            assert found.config == at

    run(test)


def test_token_in_the_config(daemon: Daemon, kind: str) -> None:
    """Each token has a memory of its own, and none is stored."""

    async def test() -> None:
        admin = client_of(kind, daemon.socket)
        tokens = []
        for user in ("ann", "bob"):
            grant = v1.Grant(role="writer", tenant="default", user=user)
            made = await done(admin.admin.create_token(f"{user}-{kind}", [grant]))
            tokens.append(made.secret)
        await close(admin)
        async with CkptdSaver(daemon.tcp, tls_ca=daemon.ca, token="wrong") as saver:
            both = Both(saver, kind)
            thread = "t" + uuid4().hex
            with pytest.raises(UnauthenticatedError, match="CKPTD_TOKEN"):
                await both.put(config(thread), {"n": 0})
            places = []
            for i, token in enumerate(tokens):
                at = config(thread, __ckptd_token=token)
                places.append(await both.put(at, {"n": i, "long": LONG}))
            for i, place in enumerate(places):
                next_place = await both.put(place, {"n": i + 5, "long": LONG}, {"n": "2"})
                found = await both.call("get_tuple", next_place)
                assert found.checkpoint["channel_values"]["n"] == i + 5
                assert tokens[i] not in str(found.metadata)

    run(test)


class Evil:
    pass


def test_never_pickles(daemon: Daemon, kind: str) -> None:
    async def test() -> None:
        serde = JsonPlusSerializer(pickle_fallback=True)
        async with CkptdSaver(daemon.socket, serde=serde) as saver:
            both = Both(saver, kind)
            with pytest.raises(InvalidError, match="unpickling runs code"):
                await both.put(config(), {"n": Evil()})
            at = config("", checkpoint_id=new_id())
            with pytest.raises(InvalidError, match="unpickling runs code"):
                await both.call("put_writes", at, [("n", Evil())], "task")
            at = await both.put(config(), {"n": 1})
            thread = saver._client().thread(at["configurable"]["thread_id"])
            from ckptd import Draft, Put

            cp = thread.save(Draft({"n": Put(b"cos\nsystem", "pickle")}, keep=True))
            with pytest.raises(InvalidError, match="not loaded"):
                await both.values(config(at["configurable"]["thread_id"], checkpoint_id=cp.id))

    run(test)


STRICT = """
import sys
from typing import TypedDict
from pydantic import BaseModel
from langgraph.graph import END, START, StateGraph
from ckptd.langgraph import CkptdSaver

class Known(BaseModel):
    n: int
class Unknown(BaseModel):
    n: int
class State(TypedDict):
    known: Known
    other: object

graph = StateGraph(State)
graph.add_node("a", lambda s: {"known": Known(n=1), "other": Unknown(n=2)})
graph.add_edge(START, "a")
graph.add_edge("a", END)
with CkptdSaver(sys.argv[1]) as saver:
    graph = graph.compile(checkpointer=saver)
    at = {"configurable": {"thread_id": sys.argv[2]}}
    graph.invoke({}, at)
    values = graph.get_state(at).values
    print(type(values["known"]).__name__, type(values["other"]).__name__)
"""


def test_allow_list_stays_on(daemon: Daemon) -> None:
    """With LangGraph's variable, only the types of the graph's schemas are loaded."""
    env = {"PYTHONPATH": str(suite.SOURCE), "LANGGRAPH_STRICT_MSGPACK": "true"}
    done = subprocess.run(
        [sys.executable, "-c", STRICT, daemon.socket, str(uuid4())],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["Known", "dict"], done.stderr


def test_a_saver_with_more_types_shares_all_else() -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=[])
    saver = CkptdSaver("unix:///nowhere", serde=serde)
    other = saver.with_allowlist([("module", "Name")])
    assert other is not saver
    assert other._calls.serde is other.serde
    assert saver._calls.serde is saver.serde
    assert other._calls.memory is saver._calls.memory
    assert other._clients is saver._clients


def test_states_over_the_limit(daemon: Daemon, kind: str) -> None:
    """The daemon answers before it has read them, and the client reads that answer."""

    async def test() -> None:
        async with CkptdSaver(daemon.socket) as saver:
            both = Both(saver, kind)
            with pytest.raises(TooLargeError, match="--max-message"):
                await both.put(config(), {"n": os.urandom(9 << 20)})
            at = await both.put(config(), {"n": 1})
            with pytest.raises(TooLargeError):
                await both.call("put_writes", at, [("n", os.urandom(9 << 20))], "task")
            assert await both.values(at) == {"n": 1}

    run(test)


def test_errors_that_users_meet(daemon: Daemon, kind: str, tmp_path: Path) -> None:
    async def test() -> None:
        nowhere = CkptdSaver(f"unix://{tmp_path}/none.sock", attempts=2)
        with pytest.raises(UnreachableError, match="ckptd serve"):
            await Both(nowhere, kind).put(config(), {"n": 1})
        with pytest.raises(InvalidError, match="thread_id"):
            await Both(nowhere, kind).call("get_tuple", {"configurable": {}})
        async with CkptdSaver(daemon.socket) as saver:
            thread = saver._client().thread(str(uuid4()))
            thread.save({"n": b"1"})
            with pytest.raises(InvalidError, match="is not LangGraph's"):
                await Both(saver, kind).call("get_tuple", config(thread.ref.thread))
            with pytest.raises(InvalidError, match=f"a channel {BODY}"):
                await Both(saver, kind).put(config(), {BODY: 1})

    run(test)


def test_calls(daemon: Daemon, kind: str) -> None:
    """Every method makes one call."""

    async def test() -> None:
        async with CkptdSaver(daemon.socket, user=f"u{uuid4()}") as saver:
            both = Both(saver, kind)
            at = await both.put(config(), {"n": 0})
            thread = at["configurable"]["thread_id"]
            calls, _ = count_calls(saver, kind)
            for i in range(10):
                at = await both.put(at, {"n": i}, {"n": str(i)})
                await both.call("put_writes", at, [("n", 1), ("n", 2)], "task")
            assert calls == {"Save": 10, "PutWrites": 10}
            calls.clear()
            found = await both.call("get_tuple", at)
            assert found.pending_writes == [("task", "n", 1), ("task", "n", 2)]
            assert calls == {"Load": 1}
            for where in (config(thread), {"configurable": {"thread_id": thread}}, None):
                calls.clear()
                assert len(await both.list(where)) == 11
                assert len(await both.list(where, limit=3)) == 3
                assert await both.list(where, limit=0) == []
                assert len(await both.list(where, filter={"step": 1.0}, before=at)) == 10
                assert calls == {"ListByID": 3}
            for method, args, call in (
                ("copy_thread", (thread, "copy"), "Copy"),
                ("prune", ([thread],), "Prune"),
                ("delete_for_runs", (["run"],), "DeleteRun"),
                ("delete_thread", (thread,), "Delete"),
            ):
                calls.clear()
                await both.call(method, *args)
                assert calls == {call: 1}
            with pytest.raises(InvalidError, match="keep_latest or delete"):
                await both.call("prune", [thread], strategy="all")

    run(test)


def test_writes_replay_in_the_order_of_paths(daemon: Daemon, kind: str) -> None:
    """The ids of tasks are hashes: their order is not that of the tasks."""

    async def test() -> None:
        async with CkptdSaver(daemon.socket) as saver:
            both = Both(saver, kind)
            at = await both.put(config(), {"n": 0})
            for task, path in (("b", "~1"), ("a", "~2"), ("c", ""), ("d", "~1")):
                await both.call("put_writes", at, [("n", path), ("m", 0)], task, path)
            found = await both.call("get_tuple", at)
            (listed,) = await both.list(at)
            order = [("c", "n"), ("c", "m"), ("b", "n"), ("b", "m"), ("d", "n"), ("d", "m")]
            order += [("a", "n"), ("a", "m")]
            for one in (found, listed):
                assert [w[:2] for w in one.pending_writes or ()] == order

    run(test)
