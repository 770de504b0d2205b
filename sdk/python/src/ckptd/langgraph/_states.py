"""Converts between LangGraph's checkpoints and the daemon's. Pure logic, without I/O.

Each channel of a checkpoint is a channel with the type and the bytes that the serializer gave it.
The rest of the checkpoint is JSON in the channel BODY: its fields v, ts, channel_versions,
versions_seen and updated_channels, so that a migration can rename a channel with its versions. The
metadata is the JSON in ``meta``; its run_id and step are also those of the daemon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.base import PendingWrite as GraphWrite
from langgraph.checkpoint.serde.base import SerializerProtocol

from ckptd import v1
from ckptd._splices import edits
from ckptd.errors import InvalidError
from ckptd.langgraph._memory import Part, Parts

#: The channel with everything of a checkpoint but the values of its channels.
BODY = "__langgraph__"
#: Keys of ``configurable`` that name the owner of a thread. LangGraph copies no key that begins
#: with two underscores into metadata and traces, so the token has such a key.
TENANT, USER, TOKEN = "ckptd_tenant", "ckptd_user", "__ckptd_token"

_APART = {"id", "channel_values"}


class Address:
    """The lineage, the checkpoint and the owner that a config names."""

    __slots__ = ("id", "namespace", "owner", "tenant", "thread", "token", "user")

    def __init__(self, config: RunnableConfig) -> None:
        conf = config.get("configurable") or {}
        if "thread_id" not in conf:
            raise InvalidError('the config has no thread_id: {"configurable": {"thread_id": ...}}')
        self.thread = str(conf["thread_id"])
        self.namespace = str(conf.get("checkpoint_ns") or "")
        self.id = str(conf.get("checkpoint_id") or "")
        self.owner = owner(config)

    def config(self, id: str) -> RunnableConfig:  # noqa: A002
        """Return the config of another checkpoint of the lineage."""
        return config_of(self.thread, self.namespace, id, self.owner)


def owner(config: RunnableConfig | None) -> dict[str, str]:
    """Return the keys of a config that name the owner of its thread."""
    conf = (config or {}).get("configurable") or {}
    return {key: str(conf[key]) for key in (TENANT, USER, TOKEN) if conf.get(key) is not None}


def config_of(
    thread: str,
    namespace: str,
    id: str,  # noqa: A002
    owner: Mapping[str, str],
) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": id,
            **owner,
        }
    }


def metadata_of(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return the metadata to store: LangGraph adds the scalars of the config."""
    found = cast("dict[str, Any]", get_serializable_checkpoint_metadata(config, metadata))
    for key in (TENANT, USER):  # they are in the address
        found.pop(key, None)
    return found


def body_of(checkpoint: Checkpoint) -> bytes:
    """Return the content of BODY."""
    body = {k: v for k, v in checkpoint.items() if k not in _APART}
    if not body.get("pending_sends", True):
        del body["pending_sends"]  # of formats before 4; newer ones have a channel
    return to_json(body, "the checkpoint").encode()


def to_json(value: Any, what: str) -> str:
    """Return a value as compact JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as e:
        raise InvalidError(f"{what} is not JSON: {e}") from e
    return text.encode("utf-8", "ignore").decode()  # lone surrogates


def dumps(serde: SerializerProtocol, value: Any) -> tuple[str, bytes]:
    """Serialize a value, but never with pickle."""
    kind, data = serde.dumps_typed(value)
    if kind.partition("+")[0] == "pickle":
        raise InvalidError(
            f"the serializer pickled a {type(value).__name__}, and unpickling runs code: "
            "make the value serializable, or drop pickle_fallback"
        )
    return kind, data


def loads(serde: SerializerProtocol, kind: str, data: bytes) -> Any:
    """Deserialize a value, unless it was pickled."""
    if kind.partition("+")[0] == "pickle":
        raise InvalidError("a stored value is pickled, and unpickling runs code: it is not loaded")
    return serde.loads_typed((kind, data))


def changes(
    serde: SerializerProtocol, checkpoint: Checkpoint, had: Parts
) -> tuple[list[v1.Change], Parts]:
    """Return the changes that make a checkpoint from its parent's parts, and its own parts.

    The parts lack the daemon's version, except those that stay as they are. A channel stays if the
    parent had the same version of it: new_versions says nothing about the parent, since a fork
    hands over none, with the parent of the checkpoint that it copies.
    """
    versions = checkpoint["channel_versions"]
    found: list[v1.Change] = []
    parts: Parts = {}
    for name, value in checkpoint["channel_values"].items():
        if name == BODY:
            raise InvalidError(f"the graph has a channel {BODY}, a name that ckptd uses itself")
        version = versions.get(name)
        was = had.get(name)
        if was is not None and version is not None and was.version == version:
            change = v1.Change(name=name)
            change.splices.base = was.base
            parts[name] = was
        else:
            kind, data = dumps(serde, value)
            change = change_of(name, kind, bytes(data), was)
            parts[name] = Part(version, kind, bytes(data), 0)
        found.append(change)
    body = body_of(checkpoint)
    found.append(change_of(BODY, "json", body, had.get(BODY)))
    parts[BODY] = Part(None, "json", body, 0)
    return found, parts


def change_of(name: str, kind: str, data: bytes, was: Part | None) -> v1.Change:
    """Return the change of a channel: edits if they are much shorter than the whole."""
    if was is not None:
        found = edits(was.data, data)
        if 4 * sum(len(r.data) for r in found) <= 3 * len(data):
            change = v1.Change(name=name, type=kind)
            change.splices.base = was.base
            for r in found:
                s = change.splices.replace.add(to=r.end)
                setattr(s, "from", r.start)
                if r.data:
                    s.data = r.data
            return change
    return v1.Change(name=name, type=kind, data=data)


def whole(found: Iterable[v1.Change], parts: Parts) -> list[v1.Change]:
    """Return the changes with all contents whole."""
    return [v1.Change(name=c.name, type=parts[c.name].type, data=parts[c.name].data) for c in found]


def saved_parts(parts: Parts, saved: v1.Checkpoint) -> Parts:
    """Return the parts that the daemon stored as they were sent, with their versions there."""
    found: Parts = {}
    for c in saved.channels:
        part = parts.get(c.name)
        # Of a rewritten channel, the daemon has other bytes: no edit of the sent ones is correct.
        if part is not None and not c.rewritten and c.size == len(part.data):
            found[c.name] = Part(part.version, part.type, part.data, c.version)
    return found


def delta_of(checkpoint: Checkpoint, metadata: Mapping[str, Any]) -> list[str]:
    """Return the channels whose state is in the writes of ancestors.

    LangGraph counts the updates of each delta channel since its last snapshot.
    """
    return [
        name
        for name in metadata.get("counters_since_delta_snapshot") or ()
        if name in checkpoint["channel_versions"] and name not in checkpoint["channel_values"]
    ]


def read(
    serde: SerializerProtocol,
    cp: v1.Checkpoint,
    writes: Iterable[v1.PendingWrite],
    owner: Mapping[str, str],
) -> tuple[CheckpointTuple, Parts]:
    """Return a checkpoint of the daemon as LangGraph's, and its parts."""
    ref = cp.ref
    data = {c.name: c.data for c in cp.channels}
    if BODY not in data:
        raise InvalidError(
            f"checkpoint {cp.id} of thread {ref.thread} is not LangGraph's: it has no {BODY}"
        )
    body: dict[str, Any] = json.loads(data[BODY])
    versions = body.get("channel_versions") or {}
    parts: Parts = {}
    values: dict[str, Any] = {}
    for c in cp.channels:
        parts[c.name] = Part(versions.get(c.name), c.type, data[c.name], c.version)
        if c.name != BODY:
            values[c.name] = loads(serde, c.type, data[c.name])
    checkpoint = {**body, "id": cp.id, "channel_values": values}
    found = CheckpointTuple(
        config=config_of(ref.thread, ref.namespace, cp.id, owner),
        checkpoint=cast("Checkpoint", checkpoint),
        metadata=json.loads(cp.meta) if cp.meta else {},
        parent_config=(
            config_of(ref.thread, ref.namespace, cp.parent, owner) if cp.parent else None
        ),
        pending_writes=read_writes(serde, writes),
    )
    return found, parts


def read_writes(serde: SerializerProtocol, writes: Iterable[v1.PendingWrite]) -> list[GraphWrite]:
    """Return pending writes as LangGraph's."""
    return [(w.task, w.write.channel, loads(serde, w.write.type, w.write.data)) for w in writes]


def read_history(serde: SerializerProtocol, history: v1.ChannelHistory) -> DeltaChannelHistory:
    """Return the history of a delta channel as LangGraph's."""
    writes = [w for at in history.writes for w in read_writes(serde, at.writes)]
    found: DeltaChannelHistory = {"writes": writes}
    if history.base_id:
        found["seed"] = loads(serde, history.base.type, history.base.data)
    return found


def pack_writes(
    serde: SerializerProtocol, writes: Sequence[tuple[str, Any]]
) -> tuple[list[v1.Write], bool]:
    """Return the writes of a task, and whether those that exist already are kept.

    Special writes have indices of their own and replace earlier ones.
    """
    found: list[v1.Write] = []
    for i, (channel, value) in enumerate(writes):
        kind, data = dumps(serde, value)
        found.append(
            v1.Write(
                index=WRITES_IDX_MAP.get(channel, i), channel=channel, type=kind, data=bytes(data)
            )
        )
    return found, not all(channel in WRITES_IDX_MAP for channel, _ in writes)
