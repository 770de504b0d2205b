from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AnsweredBy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWERED_BY_UNSPECIFIED: _ClassVar[AnsweredBy]
    ANSWERED_BY_ALL: _ClassVar[AnsweredBy]
    ANSWERED_BY_CHANGES: _ClassVar[AnsweredBy]

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_INVALID: _ClassVar[Reason]
    REASON_NOT_FOUND: _ClassVar[Reason]
    REASON_CONFLICT: _ClassVar[Reason]
    REASON_BRANCH_EXISTS: _ClassVar[Reason]
    REASON_UNKNOWN_PARENT: _ClassVar[Reason]
    REASON_GENERATION: _ClassVar[Reason]
    REASON_NEED_FULL: _ClassVar[Reason]
    REASON_EXHAUSTED: _ClassVar[Reason]
    REASON_TOO_LARGE: _ClassVar[Reason]
    REASON_CORRUPT: _ClassVar[Reason]
    REASON_KEY_DESTROYED: _ClassVar[Reason]
    REASON_KEY_MISSING: _ClassVar[Reason]
    REASON_UNAVAILABLE: _ClassVar[Reason]
    REASON_NO_SPACE: _ClassVar[Reason]
    REASON_AMBIGUOUS: _ClassVar[Reason]
    REASON_NEWER_FORMAT: _ClassVar[Reason]
    REASON_OVERLOADED: _ClassVar[Reason]
    REASON_SHUTTING_DOWN: _ClassVar[Reason]
    REASON_UNAUTHENTICATED: _ClassVar[Reason]
    REASON_DENIED: _ClassVar[Reason]
    REASON_PLUGIN_REJECTED: _ClassVar[Reason]
    REASON_PLUGIN_FAILED: _ClassVar[Reason]
    REASON_PLUGIN_UNAVAILABLE: _ClassVar[Reason]
    REASON_PLUGIN_INVALID: _ClassVar[Reason]
    REASON_SCHEMA_TOO_NEW: _ClassVar[Reason]
    REASON_NO_MIGRATION: _ClassVar[Reason]
    REASON_MIGRATION_FAILED: _ClassVar[Reason]
    REASON_MIGRATION_INVALID: _ClassVar[Reason]
    REASON_MIGRATION_REFUSED: _ClassVar[Reason]
    REASON_MIGRATION_STOPPED: _ClassVar[Reason]
    REASON_MIGRATION_BUSY: _ClassVar[Reason]
    REASON_MIGRATION_STATE: _ClassVar[Reason]
    REASON_NO_JOB: _ClassVar[Reason]
ANSWERED_BY_UNSPECIFIED: AnsweredBy
ANSWERED_BY_ALL: AnsweredBy
ANSWERED_BY_CHANGES: AnsweredBy
REASON_UNSPECIFIED: Reason
REASON_INVALID: Reason
REASON_NOT_FOUND: Reason
REASON_CONFLICT: Reason
REASON_BRANCH_EXISTS: Reason
REASON_UNKNOWN_PARENT: Reason
REASON_GENERATION: Reason
REASON_NEED_FULL: Reason
REASON_EXHAUSTED: Reason
REASON_TOO_LARGE: Reason
REASON_CORRUPT: Reason
REASON_KEY_DESTROYED: Reason
REASON_KEY_MISSING: Reason
REASON_UNAVAILABLE: Reason
REASON_NO_SPACE: Reason
REASON_AMBIGUOUS: Reason
REASON_NEWER_FORMAT: Reason
REASON_OVERLOADED: Reason
REASON_SHUTTING_DOWN: Reason
REASON_UNAUTHENTICATED: Reason
REASON_DENIED: Reason
REASON_PLUGIN_REJECTED: Reason
REASON_PLUGIN_FAILED: Reason
REASON_PLUGIN_UNAVAILABLE: Reason
REASON_PLUGIN_INVALID: Reason
REASON_SCHEMA_TOO_NEW: Reason
REASON_NO_MIGRATION: Reason
REASON_MIGRATION_FAILED: Reason
REASON_MIGRATION_INVALID: Reason
REASON_MIGRATION_REFUSED: Reason
REASON_MIGRATION_STOPPED: Reason
REASON_MIGRATION_BUSY: Reason
REASON_MIGRATION_STATE: Reason
REASON_NO_JOB: Reason
ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
answered_by: _descriptor.FieldDescriptor

class Ref(_message.Message):
    __slots__ = ("tenant", "user", "thread", "namespace")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    thread: str
    namespace: str
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., thread: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("ref", "generation", "id", "parent", "seq", "parent_seq", "branch", "time", "step", "status", "schema_version", "run_id", "labels", "meta", "blobs", "channels", "hash", "cost", "hooks", "fuel", "kind", "migrated", "delta")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REF_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PARENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    FUEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MIGRATED_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ref: Ref
    generation: int
    id: str
    parent: str
    seq: int
    parent_seq: int
    branch: str
    time: _timestamp_pb2.Timestamp
    step: int
    status: str
    schema_version: int
    run_id: str
    labels: _containers.ScalarMap[str, str]
    meta: str
    blobs: _containers.RepeatedScalarFieldContainer[str]
    channels: _containers.RepeatedCompositeFieldContainer[Channel]
    hash: bytes
    cost: Cost
    hooks: _containers.RepeatedCompositeFieldContainer[Hook]
    fuel: int
    kind: str
    migrated: Migrated
    delta: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ref: _Optional[_Union[Ref, _Mapping]] = ..., generation: _Optional[int] = ..., id: _Optional[str] = ..., parent: _Optional[str] = ..., seq: _Optional[int] = ..., parent_seq: _Optional[int] = ..., branch: _Optional[str] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., step: _Optional[int] = ..., status: _Optional[str] = ..., schema_version: _Optional[int] = ..., run_id: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., meta: _Optional[str] = ..., blobs: _Optional[_Iterable[str]] = ..., channels: _Optional[_Iterable[_Union[Channel, _Mapping]]] = ..., hash: _Optional[bytes] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ..., hooks: _Optional[_Iterable[_Union[Hook, _Mapping]]] = ..., fuel: _Optional[int] = ..., kind: _Optional[str] = ..., migrated: _Optional[_Union[Migrated, _Mapping]] = ..., delta: _Optional[_Iterable[str]] = ...) -> None: ...

class Migrated(_message.Message):
    __slots__ = ("to", "steps")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    to: int
    steps: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, to: _Optional[int] = ..., steps: _Optional[_Iterable[str]] = ..., **kwargs) -> None: ...

class Hook(_message.Message):
    __slots__ = ("name", "digest", "config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: bytes
    config: bytes
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[bytes] = ..., config: _Optional[bytes] = ...) -> None: ...

class Channel(_message.Message):
    __slots__ = ("name", "type", "version", "size", "data", "text", "unchanged", "rewritten")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    version: int
    size: int
    data: bytes
    text: str
    unchanged: bool
    rewritten: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., version: _Optional[int] = ..., size: _Optional[int] = ..., data: _Optional[bytes] = ..., text: _Optional[str] = ..., unchanged: bool = ..., rewritten: bool = ...) -> None: ...

class Cost(_message.Message):
    __slots__ = ("state", "stored", "depth", "full")
    STATE_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    state: int
    stored: int
    depth: int
    full: bool
    def __init__(self, state: _Optional[int] = ..., stored: _Optional[int] = ..., depth: _Optional[int] = ..., full: bool = ...) -> None: ...

class Draft(_message.Message):
    __slots__ = ("id", "parent", "root", "allow_dangling", "branch", "expect_head", "generation", "step", "status", "schema_version", "run_id", "labels", "meta", "blobs", "channels", "keep", "ttl", "kind", "delta", "called_from", "no_run")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DANGLING_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    EXPECT_HEAD_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    CALLED_FROM_FIELD_NUMBER: _ClassVar[int]
    NO_RUN_FIELD_NUMBER: _ClassVar[int]
    id: str
    parent: str
    root: bool
    allow_dangling: bool
    branch: str
    expect_head: int
    generation: int
    step: int
    status: str
    schema_version: int
    run_id: str
    labels: Labels
    meta: str
    blobs: Blobs
    channels: _containers.RepeatedCompositeFieldContainer[Change]
    keep: bool
    ttl: _duration_pb2.Duration
    kind: str
    delta: _containers.RepeatedScalarFieldContainer[str]
    called_from: str
    no_run: bool
    def __init__(self, id: _Optional[str] = ..., parent: _Optional[str] = ..., root: bool = ..., allow_dangling: bool = ..., branch: _Optional[str] = ..., expect_head: _Optional[int] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., status: _Optional[str] = ..., schema_version: _Optional[int] = ..., run_id: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., meta: _Optional[str] = ..., blobs: _Optional[_Union[Blobs, _Mapping]] = ..., channels: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., keep: bool = ..., ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., kind: _Optional[str] = ..., delta: _Optional[_Iterable[str]] = ..., called_from: _Optional[str] = ..., no_run: bool = ...) -> None: ...

class Labels(_message.Message):
    __slots__ = ("labels",)
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Blobs(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("name", "type", "data", "text", "splice", "remove", "splices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SPLICE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    SPLICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    data: bytes
    text: str
    splice: Splice
    remove: bool
    splices: Splices
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., data: _Optional[bytes] = ..., text: _Optional[str] = ..., splice: _Optional[_Union[Splice, _Mapping]] = ..., remove: bool = ..., splices: _Optional[_Union[Splices, _Mapping]] = ...) -> None: ...

class Splice(_message.Message):
    __slots__ = ("base", "prefix", "suffix", "data", "text")
    BASE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    base: int
    prefix: int
    suffix: int
    data: bytes
    text: str
    def __init__(self, base: _Optional[int] = ..., prefix: _Optional[int] = ..., suffix: _Optional[int] = ..., data: _Optional[bytes] = ..., text: _Optional[str] = ...) -> None: ...

class Splices(_message.Message):
    __slots__ = ("base", "replace")
    BASE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    base: int
    replace: _containers.RepeatedCompositeFieldContainer[Replace]
    def __init__(self, base: _Optional[int] = ..., replace: _Optional[_Iterable[_Union[Replace, _Mapping]]] = ...) -> None: ...

class Replace(_message.Message):
    __slots__ = ("to", "data", "text")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    to: int
    data: bytes
    text: str
    def __init__(self, to: _Optional[int] = ..., data: _Optional[bytes] = ..., text: _Optional[str] = ..., **kwargs) -> None: ...

class Which(_message.Message):
    __slots__ = ("id", "seq", "before", "run_id", "branch", "greatest_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    GREATEST_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    seq: int
    before: str
    run_id: str
    branch: str
    greatest_id: bool
    def __init__(self, id: _Optional[str] = ..., seq: _Optional[int] = ..., before: _Optional[str] = ..., run_id: _Optional[str] = ..., branch: _Optional[str] = ..., greatest_id: bool = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("labels", "status", "run_id", "min_step", "max_step", "since", "until")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_STEP_FIELD_NUMBER: _ClassVar[int]
    MAX_STEP_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    status: str
    run_id: str
    min_step: int
    max_step: int
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., status: _Optional[str] = ..., run_id: _Optional[str] = ..., min_step: _Optional[int] = ..., max_step: _Optional[int] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PendingWrite(_message.Message):
    __slots__ = ("task", "path", "write")
    TASK_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    task: str
    path: str
    write: Write
    def __init__(self, task: _Optional[str] = ..., path: _Optional[str] = ..., write: _Optional[_Union[Write, _Mapping]] = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("index", "channel", "type", "data", "text")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    index: int
    channel: str
    type: str
    data: bytes
    text: str
    def __init__(self, index: _Optional[int] = ..., channel: _Optional[str] = ..., type: _Optional[str] = ..., data: _Optional[bytes] = ..., text: _Optional[str] = ...) -> None: ...

class Branch(_message.Message):
    __slots__ = ("name", "head_id", "head_seq")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    name: str
    head_id: str
    head_seq: int
    def __init__(self, name: _Optional[str] = ..., head_id: _Optional[str] = ..., head_seq: _Optional[int] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("reason", "head_seq", "head_id", "branch", "need_full", "what", "size", "most", "retry_after", "plugin", "migration")
    REASON_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    NEED_FULL_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    head_seq: int
    head_id: str
    branch: str
    need_full: _containers.RepeatedScalarFieldContainer[str]
    what: str
    size: int
    most: int
    retry_after: _duration_pb2.Duration
    plugin: PluginError
    migration: MigrationError
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., head_seq: _Optional[int] = ..., head_id: _Optional[str] = ..., branch: _Optional[str] = ..., need_full: _Optional[_Iterable[str]] = ..., what: _Optional[str] = ..., size: _Optional[int] = ..., most: _Optional[int] = ..., retry_after: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., plugin: _Optional[_Union[PluginError, _Mapping]] = ..., migration: _Optional[_Union[MigrationError, _Mapping]] = ...) -> None: ...

class MigrationError(_message.Message):
    __slots__ = ("kind", "to", "source", "path", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: str
    to: int
    source: str
    path: str
    reason: str
    def __init__(self, kind: _Optional[str] = ..., to: _Optional[int] = ..., source: _Optional[str] = ..., path: _Optional[str] = ..., reason: _Optional[str] = ..., **kwargs) -> None: ...

class PluginError(_message.Message):
    __slots__ = ("kind", "plugin", "stage", "item", "code", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: str
    plugin: str
    stage: str
    item: str
    code: int
    reason: str
    def __init__(self, kind: _Optional[str] = ..., plugin: _Optional[str] = ..., stage: _Optional[str] = ..., item: _Optional[str] = ..., code: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
