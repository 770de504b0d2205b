from ckptd.v1 import rule_pb2 as _rule_pb2
from ckptd.v1 import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListThreadsRequest(_message.Message):
    __slots__ = ("tenant", "user", "prefix", "count", "page_size", "page_token", "after", "status", "by_activity", "active_at")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BY_ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_AT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    prefix: str
    count: bool
    page_size: int
    page_token: str
    after: str
    status: str
    by_activity: bool
    active_at: _timestamp_pb2.Timestamp
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., prefix: _Optional[str] = ..., count: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., after: _Optional[str] = ..., status: _Optional[str] = ..., by_activity: bool = ..., active_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListThreadsResponse(_message.Message):
    __slots__ = ("threads", "next_page_token")
    THREADS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    threads: _containers.RepeatedCompositeFieldContainer[ThreadInfo]
    next_page_token: str
    def __init__(self, threads: _Optional[_Iterable[_Union[ThreadInfo, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ThreadInfo(_message.Message):
    __slots__ = ("ref", "generation", "created", "expires", "updated", "head_id", "head_seq", "step", "status", "run_id", "labels", "checkpoints", "kind", "schema_version", "active")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REF_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    generation: int
    created: _timestamp_pb2.Timestamp
    expires: _timestamp_pb2.Timestamp
    updated: _timestamp_pb2.Timestamp
    head_id: str
    head_seq: int
    step: int
    status: str
    run_id: str
    labels: _containers.ScalarMap[str, str]
    checkpoints: int
    kind: str
    schema_version: int
    active: _timestamp_pb2.Timestamp
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., generation: _Optional[int] = ..., created: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expires: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., updated: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., head_id: _Optional[str] = ..., head_seq: _Optional[int] = ..., step: _Optional[int] = ..., status: _Optional[str] = ..., run_id: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., checkpoints: _Optional[int] = ..., kind: _Optional[str] = ..., schema_version: _Optional[int] = ..., active: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListNamespacesRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ...) -> None: ...

class ListNamespacesResponse(_message.Message):
    __slots__ = ("namespaces",)
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespaces: _Optional[_Iterable[str]] = ...) -> None: ...

class CopyRequest(_message.Message):
    __slots__ = ("ref", "to")
    REF_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    to: str
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., to: _Optional[str] = ...) -> None: ...

class CopyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class DeleteRunRequest(_message.Message):
    __slots__ = ("tenant", "user", "run_id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    run_id: str
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class DeleteRunResponse(_message.Message):
    __slots__ = ("removed", "lost")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    removed: int
    lost: _containers.RepeatedCompositeFieldContainer[LostHistory]
    def __init__(self, removed: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[LostHistory, _Mapping]]] = ...) -> None: ...

class LostHistory(_message.Message):
    __slots__ = ("ref", "id", "channels")
    REF_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    id: str
    channels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., id: _Optional[str] = ..., channels: _Optional[_Iterable[str]] = ...) -> None: ...

class PruneRequest(_message.Message):
    __slots__ = ("ref", "keep_last", "older_than", "keep_labelled", "remove", "all_namespaces", "erase", "dry_run", "by_id")
    REF_FIELD_NUMBER: _ClassVar[int]
    KEEP_LAST_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    KEEP_LABELLED_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    ALL_NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    ERASE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    BY_ID_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    keep_last: int
    older_than: _duration_pb2.Duration
    keep_labelled: bool
    remove: _containers.RepeatedScalarFieldContainer[str]
    all_namespaces: bool
    erase: bool
    dry_run: bool
    by_id: bool
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., keep_last: _Optional[int] = ..., older_than: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., keep_labelled: bool = ..., remove: _Optional[_Iterable[str]] = ..., all_namespaces: bool = ..., erase: bool = ..., dry_run: bool = ..., by_id: bool = ...) -> None: ...

class PruneResponse(_message.Message):
    __slots__ = ("removed", "kept", "ghosts", "freed_bytes", "compacted", "namespaces")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    GHOSTS_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    removed: _containers.RepeatedCompositeFieldContainer[PruneItem]
    kept: int
    ghosts: int
    freed_bytes: int
    compacted: bool
    namespaces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, removed: _Optional[_Iterable[_Union[PruneItem, _Mapping]]] = ..., kept: _Optional[int] = ..., ghosts: _Optional[int] = ..., freed_bytes: _Optional[int] = ..., compacted: bool = ..., namespaces: _Optional[_Iterable[str]] = ...) -> None: ...

class PruneItem(_message.Message):
    __slots__ = ("namespace", "id", "seq", "bytes", "ghost")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    GHOST_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    id: str
    seq: int
    bytes: int
    ghost: bool
    def __init__(self, namespace: _Optional[str] = ..., id: _Optional[str] = ..., seq: _Optional[int] = ..., bytes: _Optional[int] = ..., ghost: bool = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("tenant", "user", "whole_tenant", "filter", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WHOLE_TENANT_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    whole_tenant: bool
    filter: _types_pb2.Filter
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., whole_tenant: bool = ..., filter: _Optional[_Union[_types_pb2.Filter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("checkpoints", "next_page_token")
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[_types_pb2.Checkpoint]
    next_page_token: str
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[_types_pb2.Checkpoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("tenant", "user", "thread", "cursor", "since", "heartbeat")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    thread: str
    cursor: str
    since: _timestamp_pb2.Timestamp
    heartbeat: _duration_pb2.Duration
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., thread: _Optional[str] = ..., cursor: _Optional[str] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., heartbeat: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("event", "cursor")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    event: Event
    cursor: str
    def __init__(self, event: _Optional[_Union[Event, _Mapping]] = ..., cursor: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("ref", "generation", "id", "seq", "time", "step", "status", "before")
    REF_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    generation: int
    id: str
    seq: int
    time: _timestamp_pb2.Timestamp
    step: int
    status: str
    before: str
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., generation: _Optional[int] = ..., id: _Optional[str] = ..., seq: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., step: _Optional[int] = ..., status: _Optional[str] = ..., before: _Optional[str] = ...) -> None: ...
