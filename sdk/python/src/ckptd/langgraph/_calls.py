"""The saver's methods, without I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ckptd import AsyncClient, Client, v1
from ckptd.errors import InvalidError, NeedFullError, NotFoundError
from ckptd.langgraph._memory import Lineage, Memory
from ckptd.langgraph._states import (
    TENANT,
    TOKEN,
    USER,
    Address,
    changes,
    delta_of,
    metadata_of,
    owner,
    pack_writes,
    read,
    read_history,
    saved_parts,
    to_json,
    whole,
)
from ckptd.langgraph._steps import Steps

_log = logging.getLogger("ckptd.langgraph")

AnyClient = Client | AsyncClient


class Calls:
    """Makes the requests of a saver, and reads the answers."""

    def __init__(
        self,
        serde: SerializerProtocol,
        memory: Memory,
        *,
        kind: str,
        schema_version: int,
        down: bool,
        strict: bool,
    ) -> None:
        self.serde = serde
        self.memory = memory
        self._kind = kind
        self._schema = schema_version
        self._down = down
        self._strict = strict

    def get_tuple(self, client: AnyClient, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
        """Load a checkpoint with its writes."""
        at = Address(config)
        lineage, ref = place(client, at)
        # The runtime asks for the histories of delta channels next.
        deltas = self.memory.deltas(lineage)
        request = v1.LoadRequest(
            ref=ref,
            which=which(at),
            writes=True,
            schema=self._schema,
            down=self._down,
            history=deltas,
        )
        try:
            answer: v1.LoadResponse = yield request
        except NotFoundError:
            return None
        cp = answer.checkpoint
        found, parts = read(self.serde, cp, answer.writes, at.owner)
        self.memory.remember(lineage, cp.id, parts)
        self.memory.learn_deltas(lineage, delta_of(found.checkpoint, found.metadata))
        if deltas:
            self.memory.keep_histories(lineage, cp.id, answer.histories)
        self.memory.learn(lineage, cp.id, generation=cp.generation, head=answer.head_seq)
        if cp.parent and self.memory.known(lineage, cp.parent).head is None:
            # A copy of this checkpoint is put with its parent.
            self.memory.learn(lineage, cp.parent, generation=cp.generation, head=answer.head_seq)
        return found

    def list(
        self,
        client: AnyClient,
        config: RunnableConfig | None,
        where: Mapping[str, Any] | None,
        before: RunnableConfig | None,
    ) -> tuple[v1.ListByIDRequest, Callable[[v1.Entry], CheckpointTuple]]:
        """Return the request of a list, and the function that reads its entries."""
        conf = (config or {}).get("configurable") or {}
        whose = owner(config)
        ref = ref_of(client, str(conf.get("thread_id", "")), whose=whose)
        request = v1.ListByIDRequest(
            tenant=ref.tenant,
            user=ref.user,
            thread=ref.thread,
            namespace=conf.get("checkpoint_ns"),
            id=str(conf.get("checkpoint_id") or ""),
            before=str(before["configurable"].get("checkpoint_id") or "") if before else "",
            meta=to_json(where, "the filter") if where else "",
            data=True,
            writes=True,
        )
        return request, lambda e: read(self.serde, e.checkpoint, e.writes, whose)[0]

    def history(
        self, client: AnyClient, config: RunnableConfig, channels: Sequence[str]
    ) -> Steps[Mapping[str, DeltaChannelHistory]]:
        """Load the state of delta channels."""
        if not channels:
            return {}
        at = Address(config)
        lineage, ref = place(client, at)
        self.memory.learn_deltas(lineage, tuple(channels))
        kept = self.memory.take_histories(lineage, at.id)
        histories = {h.channel: h for h in kept or ()}
        if not all(name in histories for name in channels):
            try:
                answer: v1.LoadResponse = yield v1.LoadRequest(
                    ref=ref, which=which(at), headers_only=True, history=channels
                )
            except NotFoundError:
                return {name: {"writes": []} for name in channels}
            histories = {h.channel: h for h in answer.histories}
        for name in channels:
            if histories[name].lost:
                _log.warning(
                    "thread %s: the state of channel %s is incomplete, because the checkpoints of "
                    "a run that it builds on were deleted",
                    at.thread,
                    name,
                )
        return {name: read_history(self.serde, histories[name]) for name in channels}

    def put(
        self,
        client: AnyClient,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
    ) -> Steps[RunnableConfig]:
        """Save a checkpoint."""
        at = Address(config)
        lineage, ref = place(client, at)
        found, parts = changes(self.serde, checkpoint, self.memory.parts(lineage, at.id))
        request = v1.SaveRequest(ref=ref)
        self._draft(request.draft, at, checkpoint, metadata_of(config, metadata))
        self.memory.learn_deltas(lineage, tuple(request.draft.delta))
        generation = self._generation(lineage, at, config)
        request.draft.generation = generation
        if generation:  # writes of its tasks can come before the answer
            self.memory.learn(lineage, checkpoint["id"], generation=generation)
        if self._strict:
            head = self.memory.known(lineage, at.id).head if at.id else 0
            if head is None:  # neither loaded nor saved here
                newest: v1.LoadResponse = yield v1.LoadRequest(ref=ref, headers_only=True)
                head = newest.head_seq if newest.head_id == at.id else 0
            request.draft.expect_head = head
        request.draft.channels.extend(found)
        try:
            answer: v1.SaveResponse = yield request
        except NeedFullError:
            del request.draft.channels[:]
            request.draft.channels.extend(whole(found, parts))
            answer = yield request
        saved = answer.checkpoint
        self.memory.remember(lineage, saved.id, saved_parts(parts, saved))
        self.memory.learn(lineage, saved.id, generation=saved.generation, head=saved.seq)
        return at.config(saved.id)

    def _generation(self, lineage: Lineage, at: Address, config: RunnableConfig) -> int:
        """Return the generation of the run that saves; 0 if it is not known."""
        if at.id and (found := self.memory.known(lineage, at.id).generation):
            return found
        # The first save of a subgraph's call: that of the caller.
        caller = (config["configurable"].get("checkpoint_map") or {}).get("")
        if not at.namespace or not caller:
            return 0
        return self.memory.known(lineage._replace(namespace=""), caller).generation

    def _draft(
        self, draft: v1.Draft, at: Address, checkpoint: Checkpoint, metadata: dict[str, Any]
    ) -> None:
        draft.id = checkpoint["id"]
        draft.parent = at.id
        draft.root = not at.id
        draft.allow_dangling = True  # pruned, or saved later
        draft.step = int(metadata.get("step") or 0)
        draft.run_id = str(metadata.get("run_id") or "")
        draft.no_run = not draft.run_id
        draft.meta = to_json(metadata, "the metadata")
        draft.kind = self._kind
        draft.schema_version = self._schema
        draft.delta.extend(delta_of(checkpoint, metadata))
        if not at.id and ":" in at.namespace:
            # Each call of a subgraph has a namespace with the id of its task; a subgraph that keeps
            # its state from call to call has none. The parents name the caller's checkpoint.
            draft.called_from = str((metadata.get("parents") or {}).get("") or "")

    def put_writes(
        self,
        client: AnyClient,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> Steps[None]:
        """Save the writes of a task."""
        at = Address(config)
        lineage, ref = place(client, at)
        packed, ignore = pack_writes(self.serde, writes)
        answer: v1.PutWritesResponse = yield v1.PutWritesRequest(
            ref=ref,
            checkpoint_id=at.id,
            task=task_id,
            path=task_path,
            writes=packed,
            ignore_existing=ignore,
            generation=self._generation(lineage, at, config),
        )
        self.memory.learn(lineage, at.id, generation=answer.generation)

    def delete_threads(self, client: AnyClient, threads: Sequence[str]) -> Steps[None]:
        """Delete threads."""
        for thread in threads:
            try:
                yield v1.DeleteRequest(ref=ref_of(client, str(thread)))
            except NotFoundError:
                continue

    def delete_for_runs(self, client: AnyClient, runs: Sequence[str]) -> Steps[None]:
        """Delete the checkpoints of runs."""
        ref = ref_of(client, "")
        for run_id in runs:
            answer: v1.DeleteRunResponse = yield v1.DeleteRunRequest(
                tenant=ref.tenant, user=ref.user, run_id=str(run_id)
            )
            for lost in answer.lost:
                _log.warning(
                    "checkpoint %s of thread %s lost the state of delta channels %s with run %s",
                    lost.id,
                    lost.ref.thread,
                    ", ".join(lost.channels),
                    run_id,
                )

    def copy_thread(self, client: AnyClient, source: str, target: str) -> Steps[None]:
        """Copy a thread."""
        try:
            yield v1.CopyRequest(ref=ref_of(client, str(source)), to=str(target))
        except NotFoundError:
            return

    def prune(self, client: AnyClient, threads: Sequence[str], strategy: str) -> Steps[None]:
        """Prune threads."""
        if strategy == "delete":
            yield from self.delete_threads(client, threads)
            return
        if strategy != "keep_latest":
            raise InvalidError(f"strategy {strategy!r} does not exist: keep_latest or delete")
        for thread in threads:
            try:
                yield v1.PruneRequest(
                    ref=ref_of(client, str(thread)), keep_last=1, by_id=True, all_namespaces=True
                )
            except NotFoundError:
                continue


def place(client: AnyClient, at: Address) -> tuple[Lineage, v1.Ref]:
    """Return the lineage of an address and its message."""
    ref = ref_of(client, at.thread, at.namespace, at.owner)
    return Lineage(at.owner.get(TOKEN, ""), ref.tenant, ref.user, at.thread, at.namespace), ref


def ref_of(
    client: AnyClient, thread: str, namespace: str = "", whose: Mapping[str, str] | None = None
) -> v1.Ref:
    """Return the message that names a lineage."""
    whose = whose or {}
    return client.thread(
        thread, namespace=namespace, user=whose.get(USER), tenant=whose.get(TENANT)
    ).ref.pack()


def which(at: Address) -> v1.Which:
    """Return the message that names the checkpoint, or the one with the greatest id."""
    return v1.Which(id=at.id) if at.id else v1.Which(greatest_id=True)
