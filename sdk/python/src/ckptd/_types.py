"""The values of the client, and how they become messages and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from ckptd import v1
from ckptd.errors import InvalidError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

#: Where a request names a checkpoint: a Which, or its id. None is the newest by seq.
Place: TypeAlias = "v1.Which | str | None"


@dataclass(frozen=True, slots=True)
class Ref:
    """Names a lineage: a thread of a user of a tenant, and a namespace in the thread.

    The unnamed namespace is the thread's own.
    """

    tenant: str
    user: str
    thread: str
    namespace: str = ""

    def pack(self) -> v1.Ref:
        """Return the message."""
        return v1.Ref(
            tenant=self.tenant, user=self.user, thread=self.thread, namespace=self.namespace
        )

    @classmethod
    def unpack(cls, m: v1.Ref) -> Ref:
        """Read the message."""
        return cls(m.tenant, m.user, m.thread, m.namespace)


@dataclass(frozen=True, slots=True)
class Put:
    """The whole content of a channel, with its type tag: json, msgpack, bytes or your own."""

    data: bytes
    type: str = "bytes"


def as_json(value: Any) -> Put:
    """Return a value as the content of a channel, in JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise InvalidError(f"the value is not JSON: {e}") from e
    return Put(text.encode(), "json")


@dataclass(frozen=True, slots=True)
class Replace:
    """Puts data in place of the bytes from start up to end."""

    start: int
    end: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes places of the parent's channel, all of them places of the base, in order.

    base is the version of the parent's channel. Without a type the channel keeps its own.
    """

    base: int
    replace: Sequence[Replace]
    type: str = ""


@dataclass(frozen=True, slots=True)
class Remove:
    """Drops a channel that a draft with keep would take from the parent."""


#: What a draft does to a channel. Plain bytes are Put(bytes).
Content: TypeAlias = "bytes | Put | Edit | Remove"


@dataclass(slots=True)
class Draft:
    """A checkpoint to save. The fields are those of ``ckptd.v1.Draft``."""

    channels: Mapping[str, Content]
    """The whole state or, with keep, the changes to the parent's."""
    _: KW_ONLY
    id: str = ""
    """Without one the client makes a UUIDv7, so that a save can be repeated."""
    parent: str = ""
    """Id of the parent; empty is the head."""
    root: bool = False
    """The checkpoint has no parent."""
    allow_dangling: bool = False
    """A parent that does not exist is accepted."""
    branch: str = ""
    """A named head to extend; it is made if it does not exist."""
    expect_head: int | None = None
    """The save fails with ConflictError unless the head has this seq; 0: there is none."""
    generation: int = 0
    """If not 0, it must be that of the thread, else GenerationError."""
    step: int = 0
    status: str = ""
    """Empty is running."""
    schema_version: int = 0
    run_id: str = ""
    labels: Mapping[str, str] | None = None
    meta: str | None = None
    """JSON."""
    blobs: Sequence[str] | None = None
    """Ids of blobs that the checkpoint keeps alive."""
    keep: bool = False
    """Everything that the draft leaves out is kept from the parent."""
    ttl: timedelta | None = None
    """The thread expires this long after its last save; a negative one clears that."""
    kind: str = ""
    """Of the thread: the agent or workflow that it is a run of."""

    def pack(self) -> v1.Draft:
        """Return the message."""
        m = v1.Draft(
            id=self.id,
            parent=self.parent,
            root=self.root,
            allow_dangling=self.allow_dangling,
            branch=self.branch,
            expect_head=self.expect_head,
            generation=self.generation,
            step=self.step,
            status=self.status,
            schema_version=self.schema_version,
            run_id=self.run_id,
            meta=self.meta,
            keep=self.keep,
            kind=self.kind,
        )
        if self.labels is not None:
            m.labels.SetInParent()
            m.labels.labels.update(self.labels)
        if self.blobs is not None:
            m.blobs.SetInParent()
            m.blobs.ids.extend(self.blobs)
        if self.ttl is not None:
            m.ttl.FromTimedelta(self.ttl)
        for name, content in self.channels.items():
            _pack_change(m.channels.add(), name, content)
        return m

    def with_id(self, new: str) -> Draft:
        """Return the draft, with this id if it has none."""
        return self if self.id or not new else replace(self, id=new)


def _pack_change(m: v1.Change, name: str, content: Content) -> None:
    m.name = name
    if isinstance(content, bytes | bytearray | memoryview):
        m.data = bytes(content)
    elif isinstance(content, Put):
        m.type, m.data = content.type, bytes(content.data)
    elif isinstance(content, Edit):
        m.type = content.type
        m.splices.base = content.base
        for r in content.replace:
            s = m.splices.replace.add()
            setattr(s, "from", r.start)
            s.to = r.end
            if r.data:
                s.data = bytes(r.data)
    elif isinstance(content, Remove):
        m.remove = True
    else:
        raise InvalidError(
            f"channel {name!r} is a {type(content).__name__}: want bytes, or as_json(value)"
        )


def draft_of(draft: Draft | Mapping[str, Content]) -> Draft:
    """Return the draft of a state."""
    return draft if isinstance(draft, Draft) else Draft(draft)


@dataclass(slots=True)
class Channel:
    """A named part of a state."""

    name: str
    type: str
    version: int
    """Names the content for an edit."""
    size: int
    """Bytes of the content, also where it was not asked for."""
    data: bytes
    """The content; empty where it was not asked for."""
    rewritten: bool = False
    """In the answer to a save: hooks made something else of what was sent."""

    def json(self) -> Any:
        """Return the content, which is JSON, as a value."""
        return json.loads(self.data)

    @classmethod
    def unpack(cls, m: v1.Channel) -> Channel:
        """Read the message."""
        return cls(m.name, m.type, m.version, m.size, m.data, m.rewritten)


@dataclass(frozen=True, slots=True)
class Write:
    """A value for a channel, one of those that a task wrote."""

    channel: str
    data: bytes
    type: str = "bytes"
    index: int = 0
    """Its place among the writes of the task; may be negative."""

    def pack(self) -> v1.Write:
        """Return the message."""
        return v1.Write(
            channel=self.channel, data=bytes(self.data), type=self.type, index=self.index
        )


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write of a task, attached to a checkpoint before the next one exists."""

    task: str
    path: str
    write: Write

    @classmethod
    def unpack(cls, m: v1.PendingWrite) -> PendingWrite:
        """Read the message."""
        w = m.write
        return cls(m.task, m.path, Write(w.channel, w.data, w.type, w.index))


@dataclass(slots=True)
class Checkpoint:
    """An immutable version of a thread's state. The fields are those of the message."""

    ref: Ref
    generation: int
    id: str
    parent: str
    seq: int
    parent_seq: int
    branch: str
    time: datetime
    step: int
    status: str
    schema_version: int
    run_id: str
    labels: dict[str, str]
    meta: str
    """JSON, as it was saved."""
    blobs: list[str]
    channels: dict[str, Channel]
    hash: bytes
    kind: str
    writes: list[PendingWrite]
    """The pending writes, if the load asked for them."""
    message: v1.Checkpoint = field(repr=False, compare=False)
    """What the daemon said, with cost, hooks and migrated; channels come without content."""

    @classmethod
    def unpack(cls, m: v1.Checkpoint, writes: Sequence[v1.PendingWrite] = ()) -> Checkpoint:
        """Read the message."""
        channels = {c.name: Channel.unpack(c) for c in m.channels}
        for c in m.channels:
            if c.data:
                c.ClearField("data")  # one copy is enough
        return cls(
            ref=Ref.unpack(m.ref),
            generation=m.generation,
            id=m.id,
            parent=m.parent,
            seq=m.seq,
            parent_seq=m.parent_seq,
            branch=m.branch,
            time=unpack_time(m.time),
            step=m.step,
            status=m.status,
            schema_version=m.schema_version,
            run_id=m.run_id,
            labels=dict(m.labels),
            meta=m.meta,
            blobs=list(m.blobs),
            channels=channels,
            hash=m.hash,
            kind=m.kind,
            writes=[PendingWrite.unpack(w) for w in writes],
            message=m,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """Tells of a checkpoint that is durable."""

    ref: Ref
    generation: int
    id: str
    seq: int
    time: datetime
    step: int
    status: str
    before: str
    """Status of the parent."""
    cursor: str
    """Resumes a watch behind this event."""

    @classmethod
    def unpack(cls, m: v1.Event, cursor: str) -> Event:
        """Read the message."""
        return cls(
            Ref.unpack(m.ref),
            m.generation,
            m.id,
            m.seq,
            unpack_time(m.time),
            m.step,
            m.status,
            m.before,
            cursor,
        )


@dataclass(slots=True)
class ThreadInfo:
    """Describes a thread. What it says of a head is that of the thread's own namespace."""

    ref: Ref
    generation: int
    created: datetime
    expires: datetime | None
    updated: datetime
    head_id: str
    head_seq: int
    step: int
    status: str
    run_id: str
    labels: dict[str, str]
    checkpoints: int
    """Over all namespaces; 0 unless the list was asked to count."""
    kind: str
    schema_version: int
    active: datetime
    """Where the thread stands in the order of activity, to the hour."""

    @classmethod
    def unpack(cls, m: v1.ThreadInfo) -> ThreadInfo:
        """Read the message."""
        return cls(
            ref=Ref.unpack(m.ref),
            generation=m.generation,
            created=unpack_time(m.created),
            expires=unpack_time(m.expires) if m.HasField("expires") else None,
            updated=unpack_time(m.updated),
            head_id=m.head_id,
            head_seq=m.head_seq,
            step=m.step,
            status=m.status,
            run_id=m.run_id,
            labels=dict(m.labels),
            checkpoints=m.checkpoints,
            kind=m.kind,
            schema_version=m.schema_version,
            active=unpack_time(m.active),
        )


@dataclass(frozen=True, slots=True)
class Blob:
    """Describes a blob."""

    id: str
    size: int
    created: datetime | None = None
    """When it was put last, to the hour; put_blob does not tell."""


def which(place: Place) -> v1.Which:
    """Return the message that names a checkpoint."""
    if place is None:
        return v1.Which()
    return v1.Which(id=place) if isinstance(place, str) else place


def pack_time(time: datetime | None) -> Timestamp | None:
    """Return the message of a time. One without a zone is local time."""
    if time is None:
        return None
    m = Timestamp()
    m.FromDatetime(time.astimezone(timezone.utc))
    return m


def unpack_time(m: Timestamp) -> datetime:
    """Read the message."""
    return _EPOCH + timedelta(seconds=m.seconds, microseconds=m.nanos // 1000)


def pack_duration(d: timedelta | float | None) -> Duration | None:
    """Return the message of a duration; a number counts seconds."""
    if d is None:
        return None
    m = Duration()
    m.FromTimedelta(d if isinstance(d, timedelta) else timedelta(seconds=d))
    return m
