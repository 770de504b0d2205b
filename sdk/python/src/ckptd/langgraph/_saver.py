"""The checkpointer."""

from __future__ import annotations

import contextlib
import copy
import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ckptd import AsyncClient, Client
from ckptd._async.user import by_id as _async_by_id
from ckptd._local import LocalDaemon
from ckptd._sync.user import by_id as _sync_by_id
from ckptd.langgraph._calls import Calls
from ckptd.langgraph._clients import Clients
from ckptd.langgraph._memory import Memory
from ckptd.langgraph._states import TOKEN, owner
from ckptd.langgraph._steps import arun, run

T = TypeVar("T")
Self = TypeVar("Self", bound="CkptdSaver")


class CkptdSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in the ckptd daemon at a URL, sync and async.

    The URL and all options of ``ckptd.Client``, such as token, tenant and user, default to the
    environment variables of the `ckptd` command. ``configurable`` can name the owner of a thread
    for each call: ckptd_tenant, ckptd_user and __ckptd_token. The saver is safe to share between
    threads and event loops; create one for each process and close it at the end, or use it in a
    (sync or async) with statement.

    kind names the agent, and schema_version is the version of its state: an older state is migrated
    when it is loaded, a newer one is SchemaTooNewError, unless down allows steps back.

    strict makes a save raise ConflictError if another run saved to the thread since its parent was
    saved or loaded here. Otherwise both runs save, as siblings in the history, and the checkpoint
    with the greatest id is the latest.

    The saver keeps the last states in memory, up to cache_bytes, and sends only the places that
    changed. Values are serialized with serde, but never pickled.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        serde: SerializerProtocol | None = None,
        kind: str = "",
        schema_version: int = 0,
        down: bool = False,
        strict: bool = False,
        cache_bytes: int = 64 << 20,
        **options: Any,
    ) -> None:
        super().__init__(serde=serde)
        self._clients = Clients(Client, url, options)
        self._async_clients = Clients(AsyncClient, url, options)
        self._calls = Calls(
            self.serde,
            Memory(cache_bytes),
            kind=kind,
            schema_version=schema_version,
            down=down,
            strict=strict,
        )

    @classmethod
    def from_conn_string(cls: type[Self], conn_string: str, **options: Any) -> Self:
        """Return a saver for unix:///path/to/socket, http://host:port or https://host:port."""
        return cls(conn_string, **options)

    @classmethod
    def local(
        cls: type[Self],
        data: str | os.PathLike[str] = "./data",
        *,
        program: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """Return a saver for a store on this machine, and start its daemon unless one runs.

        All processes that use the store share the daemon, and 30 seconds after the last one is gone
        it ends. The program is the argument, else CKPTD_BIN, else that of the package ckptd-bin,
        else `ckptd` in PATH.
        """
        daemon = LocalDaemon(data, program=program)
        daemon.start()
        options = {"token": "", **options, "on_retry": daemon.restarter(options.get("on_retry"))}
        return cls(daemon.url, **options)

    def with_allowlist(self: Self, extra_allowlist: Any) -> Self:
        """Return a saver that also loads these types, with the same connections and memory."""
        new = super().with_allowlist(extra_allowlist)
        if new is self:
            return self
        assert isinstance(new, type(self))
        new._calls = copy.copy(self._calls)
        new._calls.serde = new.serde
        return new

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()
        self._async_clients.close()

    async def aclose(self) -> None:
        """Close the connections."""
        self.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _client(self, config: RunnableConfig | None = None) -> Client:
        return self._clients.of(owner(config).get(TOKEN, ""))

    def _async_client(self, config: RunnableConfig | None = None) -> AsyncClient:
        return self._async_clients.of(owner(config).get(TOKEN, ""))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the version after one: a number, and a random part to tell forks apart."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{random.getrandbits(32):08x}"

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or the latest one of the thread."""
        client = self._client(config)
        return run(self._calls.get_tuple(client, config), client)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or the latest one of the thread."""
        client = self._async_client(config)
        return await arun(self._calls.get_tuple(client, config), client)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the last stored value of each channel before a checkpoint, and later writes."""
        client = self._client(config)
        return run(self._calls.history(client, config, channels), client)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the last stored value of each channel before a checkpoint, and later writes."""
        client = self._async_client(config)
        return await arun(self._calls.history(client, config, channels), client)

    # Saving.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint whose parent is the one that the config names."""
        client = self._client(config)
        return run(self._calls.put(client, config, checkpoint, metadata), client)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint whose parent is the one that the config names."""
        client = self._async_client(config)
        return await arun(self._calls.put(client, config, checkpoint, metadata), client)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save writes of a task, which belong to the checkpoint that the config names."""
        client = self._client(config)
        run(self._calls.put_writes(client, config, writes, task_id, task_path), client)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save writes of a task, which belong to the checkpoint that the config names."""
        client = self._async_client(config)
        await arun(self._calls.put_writes(client, config, writes, task_id, task_path), client)

    # Managing. These take no config, so they reach the threads of the saver's own user.

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its namespaces. Runs that still save to it fail."""
        client = self._client()
        run(self._calls.delete_threads(client, [thread_id]), client)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its namespaces. Runs that still save to it fail."""
        client = self._async_client()
        await arun(self._calls.delete_threads(client, [thread_id]), client)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their writes, from all threads."""
        client = self._client()
        run(self._calls.delete_for_runs(client, run_ids), client)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their writes, from all threads."""
        client = self._async_client()
        await arun(self._calls.delete_for_runs(client, run_ids), client)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its namespaces. ConflictError if the target exists."""
        client = self._client()
        run(self._calls.copy_thread(client, source_thread_id, target_thread_id), client)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its namespaces. ConflictError if the target exists."""
        client = self._async_client()
        await arun(self._calls.copy_thread(client, source_thread_id, target_thread_id), client)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace (keep_latest), or nothing (delete).

        Ancestors that hold the state of delta channels stay, but no list shows them.
        """
        client = self._client()
        run(self._calls.prune(client, thread_ids, strategy), client)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace (keep_latest), or nothing (delete).

        Ancestors that hold the state of delta channels stay, but no list shows them.
        """
        client = self._async_client()
        await arun(self._calls.prune(client, thread_ids, strategy), client)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the greatest id first: of a namespace, a thread, or all threads."""
        if limit == 0:
            return
        client = self._client(config)
        request, unpack = self._calls.list(client, config, filter, before)
        yield from _sync_by_id(client._caller, request, limit or 0, unpack)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, the greatest id first: of a namespace, a thread, or all threads."""
        if limit == 0:
            return
        client = self._async_client(config)
        request, unpack = self._calls.list(client, config, filter, before)
        found = _async_by_id(client._caller, request, limit or 0, unpack)
        async with contextlib.aclosing(found):
            async for one in found:
                yield one
