"""An agent that waits for approval: killed, resumed in another process, rewound and forked.

Run `python examples/approval.py DIRECTORY`. It starts a daemon for a store in the directory, which
ends by itself, and other processes for the parts of the run.
"""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from ckptd.langgraph import CkptdSaver

THREAD: Any = {"configurable": {"thread_id": "order-17"}}


class State(TypedDict):
    """The state of the agent."""

    log: Annotated[list[str], operator.add]


def plan(state: State) -> State:
    """Decide on a refund, as a model would."""
    return {"log": ["plan: refund 30 EUR"]}


def approve(state: State) -> State:
    """Ask a person."""
    return {"log": [f"approval: {interrupt('Refund 30 EUR?')}"]}


def act(state: State) -> State:
    """Make the refund."""
    return {"log": ["act: " + ("refunded" if state["log"][-1].endswith("yes") else "nothing")]}


def agent(saver: CkptdSaver) -> Any:
    """Return the graph."""
    graph = StateGraph(State).add_sequence([plan, approve, act])
    graph.add_edge(START, "plan")
    graph.add_edge("act", END)
    return graph.compile(checkpointer=saver)


def begin(data: str) -> None:
    """Run up to the question, and be killed while waiting for the answer."""
    with CkptdSaver.local(data) as saver:
        (question,) = agent(saver).invoke({"log": []}, THREAD)["__interrupt__"]
        print("question:", question.value, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def resume(data: str) -> None:
    """Answer the question in another process, then rewind and fork."""
    with CkptdSaver.local(data) as saver:
        graph = agent(saver)
        print("resumed:", graph.invoke(Command(resume="yes"), THREAD)["log"])

        asked = next(s for s in graph.get_state_history(THREAD) if s.next == ("approve",))
        print("rewound:", asked.values["log"], "next:", asked.next[0])

        fork = graph.update_state(asked.config, {"log": ["approval: no"]}, as_node="approve")
        print("forked:", graph.invoke(None, fork)["log"])
        print("checkpoints:", len([*graph.get_state_history(THREAD)]))


def main() -> None:
    """Run the parts in processes of their own."""
    data, *part = sys.argv[1:]
    if part:
        {"begin": begin, "resume": resume}[part[0]](data)
        return
    for name in ("begin", "resume"):
        done = subprocess.run([sys.executable, __file__, data, name], check=False)
        print(f"{name} ended with code {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
