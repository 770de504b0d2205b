"""Graphs for the tests of the saver."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph


class Count(TypedDict):
    n: int


def config(thread: str, **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, **more}}


def counter(saver: Any) -> Any:
    """Return a graph that counts its runs."""
    graph = StateGraph(Count)
    graph.add_node("add", lambda state, config: {"n": total(saver, config) + 1})
    graph.add_edge(START, "add")
    graph.add_edge("add", END)
    return graph.compile(checkpointer=saver)


def total(saver: Any, at: RunnableConfig) -> int:
    conf = at["configurable"]
    found = [
        t.checkpoint["channel_values"]["n"]
        for t in saver.list(config(conf["thread_id"]))
        if "n" in t.checkpoint["channel_values"]
    ]
    return max(found, default=0)
