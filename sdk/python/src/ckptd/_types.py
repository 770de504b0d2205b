"""The values of the client and their conversion to and from messages."""

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

#: Names a checkpoint: a Which, or an id. None is the newest by seq.
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
    """Replaces the bytes from start up to end."""

    start: int
    end: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces ranges of the parent's channel, in order and without overlap.

    base is the version of the parent's channel, and all ranges are offsets in it. Without a type
    the channel keeps its own.
    """

    base: int
    replace: Sequence[Replace]
    type: str = ""


@dataclass(frozen=True, slots=True)
class Remove:
    """Drops a channel that a draft with keep would take over from the parent."""


#: A change of a channel. Plain bytes mean Put(bytes).
Content: TypeAlias = "bytes | Put | Edit | Remove"


@dataclass(slots=True)
class Draft:
    """A checkpoint to save. The fields are those of ``ckptd.v1.Draft``."""

    channels: Mapping[str, Content]
    """The whole state or, with keep, the changes to the parent's."""
    _: KW_ONLY
    id: str = ""
    """Empty: the client makes a UUIDv7, so that it can repeat the save."""
    parent: str = ""
    """Id of the parent; empty is the head."""
    root: bool = False
    """The checkpoint has no parent."""
    allow_dangling: bool = False
    """Accept a parent that does not exist."""
    branch: str = ""
    """A named head to extend; created if it does not exist."""
    expect_head: int | None = None
    """Fail with ConflictError unless the head has this seq; 0 means no head."""
    generation: int = 0
    """If not 0, fail with GenerationError unless the thread has it."""
    step: int = 0
    status: str = ""
    """Empty is running."""
    schema_version: int = 0
    run_id: str | None = None
    """None is the parent's with keep; "" is no run."""
    labels: Mapping[str, str] | None = None
    meta: str | None = None
    """JSON."""
    blobs: Sequence[str] | None = None
    """Ids of the blobs that the checkpoint keeps alive."""
    keep: bool = False
    """Keep everything from the parent that the draft leaves out."""
    ttl: timedelta | None = None
    """Let the thread expire this long after its last save; negative: never."""
    delta: Sequence[str] = ()
    """Channels without a value here, whose state is in pending writes of ancestors."""
    called_from: str = ""
    """Id of the checkpoint in the unnamed namespace that this namespace hangs on."""
    kind: str = ""
    """The agent or workflow that the thread is a run of."""

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
            no_run=self.run_id == "",
            meta=self.meta,
            keep=self.keep,
            delta=self.delta,
            called_from=self.called_from,
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
    """Identifies the content as the base of an edit."""
    size: int
    """Size of the content in bytes, even if it was not loaded."""
    data: bytes
    """The content; empty if it was not loaded."""
    rewritten: bool = False
    """In the answer to a save: hooks changed the content that was sent."""

    def json(self) -> Any:
        """Return the content, which is JSON, as a value."""
        return json.loads(self.data)

    @classmethod
    def unpack(cls, m: v1.Channel) -> Channel:
        """Read the message."""
        return cls(m.name, m.type, m.version, m.size, m.data, m.rewritten)


@dataclass(frozen=True, slots=True)
class Write:
    """A value that a task wrote to a channel."""

    channel: str
    data: bytes
    type: str = "bytes"
    index: int = 0
    """Its position among the writes of the task; can be negative."""

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
    """The pending writes, if the load requested them."""
    message: v1.Checkpoint = field(repr=False, compare=False)
    """The message, which adds cost, hooks and migrated. Its channels have no content."""
    histories: list[v1.ChannelHistory] = field(default_factory=list, repr=False)
    """The histories of delta channels, if the load requested them."""

    @classmethod
    def unpack(cls, m: v1.Checkpoint, writes: Sequence[v1.PendingWrite] = ()) -> Checkpoint:
        """Read the message."""
        channels = {c.name: Channel.unpack(c) for c in m.channels}
        for c in m.channels:
            if c.data:
                c.ClearField("data")  # keep one copy
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
    """Reports a durable checkpoint."""

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
    """Resumes a watch after this event."""

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
    """Describes a thread and the head of its unnamed namespace."""

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
    """In all namespaces; 0 unless the list counts."""
    kind: str
    schema_version: int
    active: datetime
    """Time of the last activity, to the hour."""

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
    """Time of the last put, to the hour; None from put_blob."""


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
