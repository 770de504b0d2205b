"""Delta channels: their state is in the pending writes of ancestors."""

from __future__ import annotations

import logging
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from both import run
from daemons import Daemon
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from savers import Both, config, count_calls

from ckptd.langgraph import CkptdSaver


async def history(both: Both, at: Any, *channels: str) -> Any:
    return await both.call("get_delta_channel_history", config=at, channels=channels)


async def chain(both: Both, *steps: tuple[dict[str, Any], list[tuple[str, Any]]]) -> list[Any]:
    """Put a checkpoint with values for each step, and then its writes; return the configs."""
    at, found = config(), []
    for i, (values, writes) in enumerate(steps):
        at = await both.put(at, values, {"c": str(i), "d": str(i)})
        found.append(at)
        for j, write in enumerate(writes):
            await both.call("put_writes", at, [write], f"task{j}", f"~{j}")
    return found


def of(values: list[tuple[str, Any]]) -> list[tuple[str, str, Any]]:
    return [(task, "c", value) for task, value in values]


def test_properties(daemon: Daemon, kind: str) -> None:
    """The eight properties that the suite in LangGraph's repository tests."""

    async def test() -> None:
        async with CkptdSaver(daemon.socket) as saver:
            both = Both(saver, kind)
            one, two = [("c", 1)], [("c", 2), ("d", "x"), ("c", 3)]
            # Without channels, or without the checkpoint, there is nothing.
            assert await history(both, config()) == {}
            assert await history(both, config(), "c") == {"c": {"writes": []}}
            # Without a stored value: all writes from the root on, and no seed.
            ats = await chain(both, ({}, one), ({}, two), ({}, [("c", 9)]))
            found = await history(both, ats[2], "c")
            assert found == {
                "c": {"writes": of([("task0", 1), ("task0", 2), ("task2", 3)])}
            }  # oldest first, in the order of paths, of this channel, without the target's own
            # The latest checkpoint is the target if the config names none.
            assert await history(both, config(ats[0]["configurable"]["thread_id"]), "c") == found
            # A root has no history.
            assert await history(both, ats[0], "c") == {"c": {"writes": []}}
            # With a stored value: it is the seed, and its checkpoint's own writes follow it.
            ats = await chain(both, ({}, one), ({"c": "seed"}, two), ({}, [("c", 4)]), ({}, []))
            assert await history(both, ats[3], "c") == {
                "c": {
                    "seed": "seed",
                    "writes": of([("task0", 2), ("task2", 3), ("task0", 4)]),
                }
            }
            # A value of the target itself is not a seed.
            assert "seed" not in (await history(both, ats[1], "c"))["c"]
            # Each channel ends where its own value is.
            ats = await chain(both, ({"d": "old"}, [("d", 1)]), ({"c": None}, [("d", 2)]), ({}, []))
            found = await history(both, ats[2], "c", "d")
            assert found["c"] == {"seed": None, "writes": []}
            assert found["d"]["seed"] == "old"
            assert [w[2] for w in found["d"]["writes"]] == [1, 2]
            # Of a fork, only its own ancestors count.
            ats = await chain(both, ({}, one), ({}, [("c", "left")]), ({}, []))
            fork = await both.put(ats[0], {}, {"c": "9"})
            await both.call("put_writes", fork, [("c", "right")], "task")
            leaf = await both.put(fork, {}, {"c": "10"})
            assert [w[2] for w in (await history(both, leaf, "c"))["c"]["writes"]] == [1, "right"]
            assert [w[2] for w in (await history(both, ats[2], "c"))["c"]["writes"]] == [1, "left"]

    run(test)


def join(state: list[str], writes: Any) -> list[str]:
    """Add lists of words."""
    found = list(state)
    for words in writes:
        found += words
    return found


class Log(TypedDict):
    log: Annotated[list[str], DeltaChannel(join, snapshot_frequency=1000)]
    n: int


def logger(saver: Any) -> Any:
    graph = StateGraph(Log)
    graph.add_node("step", lambda s: {"log": [f"step {s['n']}"], "n": s["n"] + 1})
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: "step" if s["n"] % 50 else END, ["step", END])
    return graph.compile(checkpointer=saver)


def test_100_updates_pruned_copied_and_forked(daemon: Daemon) -> None:
    with CkptdSaver(daemon.socket, user=f"u{uuid4()}") as saver:
        graph, at = logger(saver), config()
        thread = at["configurable"]["thread_id"]
        at["recursion_limit"] = 200
        graph.invoke({"log": [], "n": 0}, at)
        graph.invoke({"log": [], "n": 50}, at)
        want = [f"step {i}" for i in range(100)]
        assert graph.get_state(at).values == {"log": want, "n": 100}
        memory = InMemorySaver()
        stock = logger(memory)
        stock.invoke({"log": [], "n": 0}, at)
        stock.invoke({"log": [], "n": 50}, at)
        assert stock.get_state(at).values == {"log": want, "n": 100}

        middle = next(s for s in graph.get_state_history(at) if s.values.get("n") == 70)
        assert middle.values["log"] == want[:70]
        saver.copy_thread(thread, "copy")
        fork = graph.update_state(middle.config, {"log": ["fork"], "n": 99}, as_node="step")
        assert graph.get_state(fork).values["log"] == [*want[:70], "fork"]
        assert graph.invoke(None, fork)["log"] == [*want[:70], "fork", "step 99"]

        copy: Any = {**config("copy"), "recursion_limit": 200}
        for one, state in ((copy, want), (at, [*want[:70], "fork", "step 99"])):
            saver.prune([one["configurable"]["thread_id"]])
            assert len([*saver.list(one)]) == 1
            with CkptdSaver(daemon.socket, user=saver._client().user().name) as fresh:
                assert logger(fresh).get_state(one).values["log"] == state
            calls, _ = count_calls(saver, "sync")
            assert graph.get_state(one).values["log"] == state
            assert calls["Load"] == 1  # the checkpoint and the history
        # It continues after the prune.
        graph.invoke({"log": ["on"], "n": 100}, copy)
        assert graph.get_state(copy).values["log"][:101] == [*want, "on"]


def test_the_end_of_a_run_is_told(
    daemon: Daemon, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """DeleteRun removes the writes that later runs build on, and says so."""

    async def test() -> None:
        async with CkptdSaver(daemon.socket, user=f"u{uuid4()}") as saver:
            both = Both(saver, kind)
            at = config()
            for i in range(4):
                metadata = {
                    "source": "loop",
                    "step": i,
                    "parents": {},
                    "run_id": f"run{i // 2}",
                    "counters_since_delta_snapshot": {"c": (i, i)},
                }
                at = await both.put(at, {}, {"c": str(i)}, metadata=metadata)
                await both.call("put_writes", at, [("c", i)], "task")
            with caplog.at_level(logging.WARNING, "ckptd.langgraph"):
                await both.call("delete_for_runs", ["run0"])
            assert "lost the state of delta channels c with run run0" in caplog.text
            caplog.clear()
            found = await history(both, at, "c")
            assert [w[2] for w in found["c"]["writes"]] == [2]
            assert "the state of channel c is incomplete" in caplog.text

    run(test)
