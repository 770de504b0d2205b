"""An agent with a fake model, which is killed at random points and resumed in another process.

Run as `python agent.py SOCKET THREAD LOG KILLS SEED DURABILITY`. Each tool that runs, and each
acknowledged result, is a line in the log.
"""

from __future__ import annotations

import operator
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict, cast

from langgraph.graph import END, START, StateGraph
from langgraph.types import Durability

from ckptd.langgraph import CkptdSaver

# How often the test kills it; 50 is the whole test.
KILLS = int(os.environ.get("AGENT_KILLS", "8"))
TOOLS = 4 * KILLS


class State(TypedDict):
    messages: Annotated[list[str], operator.add]


def agent(saver: Any, log: str, pause: float = 0.01) -> Any:
    """Return a graph in which a model calls a tool until it has called all."""

    def model(state: State) -> State:
        done = sum(m.startswith("result") for m in state["messages"])
        return {"messages": [f"call {done}" if done < TOOLS else "answer"]}

    def tool(state: State) -> State:
        name = state["messages"][-1].removeprefix("call ")
        write(log, f"run {name}")
        time.sleep(pause)
        return {"messages": [f"result {name}"]}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda s: END if s["messages"][-1] == "answer" else "tool", ["tool", END]
    )
    graph.add_edge("tool", "model")
    return graph.compile(checkpointer=saver)


def write(log: str, line: str) -> None:
    fd = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(fd, (line + "\n").encode())
    os.close(fd)


class Logged(CkptdSaver):
    """Logs the results of tools that the daemon has acknowledged."""

    log = ""

    def put_writes(
        self,
        config: Any,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        super().put_writes(config, writes, task_id, task_path)
        for channel, value in writes:
            if channel == "messages" and value[0].startswith("result"):
                write(self.log, f"ack {value[0].removeprefix('result ')}")


def resume(
    url: str, thread: str, log: str, pause: float = 0.01, durability: Durability = "sync"
) -> None:
    """Begin the run, or continue it where it stopped."""
    with Logged(url) as saver:
        saver.log = log
        graph = agent(saver, log, pause)
        at: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 3 * TOOLS}
        begun = graph.get_state(at).created_at is not None
        graph.invoke(None if begun else {"messages": ["question"]}, at, durability=durability)


def main() -> None:
    url, thread, log, kills, seed, durability = sys.argv[1:]
    r = random.Random(int(seed))
    for left in reversed(range(int(kills) + 1)):
        child = os.fork()
        if child == 0:
            resume(url, thread, log, durability=cast("Durability", durability))
            os._exit(0)
        if left:
            time.sleep(r.uniform(0.01, 0.15))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if not left and status:
            sys.exit(f"the agent failed with {status}")


if __name__ == "__main__":
    main()
