"""Runs of graphs: killed, in two processes, deep, and with many subgraph calls."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, TypedDict
from uuid import uuid4

import agent
import daemons
import pytest
import suite
from both import run
from daemons import Daemon
from graphs import config
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from ckptd.langgraph import CkptdSaver

KILLS = agent.KILLS
# How many calls of subgraphs are made; 1,000 is the whole test.
CALLS = int(os.environ.get("SUBGRAPH_CALLS", "100"))
HERE = Path(__file__).parent
ENV = {**os.environ, "PYTHONPATH": f"{suite.SOURCE}:{HERE}"}


def check_log(log: Path) -> None:
    """Check that no tool ran again after its result was acknowledged."""
    acknowledged, ran = set(), set()
    for line in log.read_text().splitlines():
        what, name = line.split()
        if what == "ack":
            acknowledged.add(name)
        else:
            ran.add(name)
            assert name not in acknowledged, f"tool {name} ran again"
    assert len(ran) == agent.TOOLS


def expected(tmp_path: Path) -> Any:
    """Return the final state of an undisturbed run."""
    graph = agent.agent(InMemorySaver(), str(tmp_path / "undisturbed"), 0)
    at = {**config("t"), "recursion_limit": 3 * agent.TOOLS}
    return graph.invoke({"messages": ["question"]}, at)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_agent_killed(daemon: Daemon, tmp_path: Path, durability: str) -> None:
    """In the end, its state is that of an undisturbed run.

    LangGraph's durability async, the default, starts a task before its checkpoint is saved. If that
    never is, the result of the task is lost with it, so that the task runs again.
    """
    log, thread = tmp_path / "log", str(uuid4())
    seed = random.randrange(1 << 30)
    command = [sys.executable, str(HERE / "agent.py"), daemon.socket, thread, str(log)]
    done = subprocess.run(
        [*command, str(KILLS), str(seed), durability],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    if durability == "sync":
        check_log(log)
    with CkptdSaver(daemon.socket) as saver:
        found = agent.agent(saver, str(log)).get_state(config(thread))
        assert found.values == expected(tmp_path)
        assert found.next == ()


def child_of(process: subprocess.Popen[str]) -> int:
    """Return the pid of the daemon, which runs below `timeout`."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return int(children.split()[0])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_daemon_killed(program: Path, tmp_path: Path) -> None:
    """The run waits for the daemon to come back, and ends as if nothing had happened."""
    log, r = tmp_path / "log", random.Random(5)
    failed: list[BaseException] = []
    serve = ["timeout", daemons.SERVE_AT_MOST, str(program), "serve"]

    def work(url: str) -> None:
        try:
            agent.resume(url, "t", str(log), 0.05)
        except BaseException as e:
            failed.append(e)

    with daemons.serve(program) as first:
        folder = first.folder
        worker = threading.Thread(target=work, args=[first.socket])
        worker.start()
        for _ in range(max(2, KILLS // 4)):
            time.sleep(r.uniform(0.02, 0.3))
            os.kill(child_of(first.process), signal.SIGKILL)
            first.process.wait(10)
            first.process = subprocess.Popen(
                [*serve, "--listen", "none", "--data", str(folder / "data")],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            with CkptdSaver(first.socket) as saver:
                saver.get_tuple(config("t"))  # once it is back
        worker.join(60)
        assert failed == []
        check_log(log)
        with CkptdSaver(first.socket) as saver:
            found = agent.agent(saver, str(log)).get_state(config("t"))
            assert found.values == expected(tmp_path)
        first.stop()


TWO = """
import sys, time
from pathlib import Path
from ckptd.errors import ConflictError
from ckptd.langgraph import CkptdSaver
from langgraph.graph import END, START, StateGraph
import agent
url, thread, strict, name, others = sys.argv[1:]
go = Path(others)
with CkptdSaver(url, strict=strict == "strict") as saver:
    def meet(state):
        (go / name).touch()
        while len(list(go.iterdir())) < 2:
            time.sleep(0.001)
        return {"messages": [name]}
    graph = StateGraph(agent.State)
    graph.add_node("meet", meet)
    graph.add_edge(START, "meet")
    graph.add_edge("meet", END)
    graph = graph.compile(checkpointer=saver)
    try:
        graph.invoke({"messages": []}, {"configurable": {"thread_id": thread}}, durability="exit")
    except ConflictError as e:
        print("conflict")
"""


@pytest.mark.parametrize("mode", ["strict", "default"])
def test_two_processes_save_one_thread(daemon: Daemon, tmp_path: Path, mode: str) -> None:
    """With strict one run fails, and the other is saved. By default both are, as siblings."""
    thread = str(uuid4())
    users = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, daemon.socket, thread, mode, name, str(tmp_path)],
            env=ENV,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    said = [user.communicate(timeout=60)[0].strip() for user in users]
    assert [user.returncode for user in users] == [0, 0]
    with CkptdSaver(daemon.socket) as saver:
        found = [t.checkpoint["channel_values"]["messages"] for t in saver.list(config(thread))]
        latest = saver.get_tuple(config(thread))
    assert latest is not None
    assert latest.checkpoint["channel_values"]["messages"] == found[0]
    if mode == "strict":
        assert sorted(said) == ["", "conflict"]
        assert found == [["two"] if said[0] else ["one"]]
    else:
        assert said == ["", ""]
        assert sorted(found) == [["one"], ["two"]]


class Depth(TypedDict):
    n: int
    said: str


def nested(depth: int, checkpointer: Any = None) -> Any:
    """Return a graph with subgraphs this deep; the innermost asks for approval."""
    graph = StateGraph(Depth)
    if depth == 0:
        graph.add_node("a_longish_name", lambda s: {"n": s["n"] + 1, "said": interrupt("ok?")})
    else:
        graph.add_node("a_longish_name", nested(depth - 1))
    graph.add_edge(START, "a_longish_name")
    graph.add_edge("a_longish_name", END)
    return graph.compile(checkpointer=checkpointer)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_subgraphs_nested_8_deep(daemon: Daemon, kind: str) -> None:
    if kind == "async" and sys.version_info < (3, 11):
        pytest.skip("LangGraph cannot interrupt async graphs before Python 3.11")

    async def test() -> None:
        async with CkptdSaver(daemon.socket) as saver:
            graph, at = nested(8, saver), config(str(uuid4()))
            inputs: list[Any] = [{"n": 0, "said": ""}, Command(resume="yes")]
            for value in inputs:
                if kind == "sync":
                    found = graph.invoke(value, at)
                else:
                    found = await graph.ainvoke(value, at)
            assert found == {"n": 1, "said": "yes"}
            spaces = {t.config["configurable"]["checkpoint_ns"] for t in saver.list(at)}
            assert sorted(ns.count(":") for ns in spaces) == [*range(9)]
            assert max(map(len, spaces)) > 256

    run(test)


@task
def deep(n: int, depth: int) -> int:
    return n + 1 if depth == 0 else int(deep(n, depth - 1).result()) + 1


def test_tasks_nested_8_deep(daemon: Daemon) -> None:
    with CkptdSaver(daemon.socket) as saver:

        @entrypoint(checkpointer=saver)
        def flow(n: int) -> int:
            return int(deep(n, 8).result())

        at = config(str(uuid4()))
        at["max_concurrency"] = 32  # each level blocks a thread
        assert flow.invoke(1, at) == 10
        assert flow.get_state(at).values == 10


class Total(TypedDict):
    n: int


def caller(saver: Any) -> Any:
    """Return a graph that calls a subgraph again and again."""
    inner = StateGraph(Total)
    inner.add_node("add", lambda s: {"n": s["n"] + 1})
    inner.add_edge(START, "add")
    inner.add_edge("add", END)
    graph = StateGraph(Total)
    graph.add_node("call", inner.compile(checkpointer=None))
    graph.add_edge(START, "call")
    graph.add_conditional_edges("call", lambda s: "call" if s["n"] < CALLS else END, ["call", END])
    return graph.compile(checkpointer=saver)


def namespaces(saver: CkptdSaver, at: RunnableConfig) -> list[str]:
    return saver._client().thread(at["configurable"]["thread_id"]).namespaces()


def test_prune_removes_the_namespaces_of_subgraph_calls(daemon: Daemon) -> None:
    with CkptdSaver(daemon.socket) as saver:
        graph, at = caller(saver), config(str(uuid4()))
        at["recursion_limit"] = CALLS + 10
        assert graph.invoke({"n": 0}, at, durability="exit") == {"n": CALLS}
        graph.invoke({"n": 0}, at)
        assert len(namespaces(saver, at)) == CALLS + 1
        saver.prune([at["configurable"]["thread_id"]])
        assert namespaces(saver, at) == [""]
        assert graph.get_state(at).values == {"n": CALLS}
        assert len([*saver.list(at)]) == 1
