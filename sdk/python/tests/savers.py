"""Helpers for the tests of the saver."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import uuid4

from both import done
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from ckptd.langgraph import CkptdSaver


class Both:
    """Calls a saver's methods by their sync or async form."""

    def __init__(self, saver: Any, kind: str) -> None:
        self.saver = saver
        self.kind = kind

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        prefix = "a" if self.kind == "async" else ""
        return await done(getattr(self.saver, prefix + method)(*args, **kwargs))

    async def list(self, *args: Any, **kwargs: Any) -> list[CheckpointTuple]:
        if self.kind == "async":
            return [t async for t in self.saver.alist(*args, **kwargs)]
        return [*self.saver.list(*args, **kwargs)]

    async def put(
        self,
        config: RunnableConfig,
        values: dict[str, Any],
        versions: dict[str, Any] | None = None,
        *,
        metadata: Any = None,
        new: dict[str, Any] | None = None,
        id: str = "",  # noqa: A002
    ) -> RunnableConfig:
        """Put a checkpoint with these values, and return its config."""
        versions = dict.fromkeys(values, "1") if versions is None else versions
        cp: Any = {
            **empty_checkpoint(),
            "v": 4,
            "channel_values": values,
            "channel_versions": versions,
        }
        if id:
            cp["id"] = id
        metadata = metadata or {"source": "loop", "step": 1, "parents": {}}
        found: RunnableConfig = await self.call(
            "put", config, cp, metadata, versions if new is None else new
        )
        return found

    async def values(self, config: RunnableConfig) -> dict[str, Any]:
        """Return the values of a checkpoint."""
        found = await self.call("get_tuple", config)
        assert found is not None
        values: dict[str, Any] = found.checkpoint["channel_values"]
        return values


def config(thread: str = "", **more: Any) -> RunnableConfig:
    """Return the config of a thread, by default a new one."""
    return {"configurable": {"thread_id": thread or str(uuid4()), "checkpoint_ns": "", **more}}


def new_id() -> str:
    return str(uuid6())


def count_calls(saver: CkptdSaver, kind: str) -> tuple[Counter[str], list[int]]:
    """Return counts of the saver's calls by message, and the sizes of their requests."""
    client = saver._client() if kind == "sync" else saver._async_client()
    calls: Counter[str] = Counter()
    sizes: list[int] = []
    encode = client._caller.encode

    def counted(request: Any) -> bytes:
        body = encode(request)
        calls[type(request).__name__.removesuffix("Request")] += 1
        sizes.append(len(body))
        return body

    client._caller.encode = counted  # type: ignore[method-assign]
    return calls, sizes
