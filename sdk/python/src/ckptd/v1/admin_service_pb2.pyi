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

class RetentionPolicy(_message.Message):
    __slots__ = ("keep_last", "older_than", "keep_labelled")
    KEEP_LAST_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    KEEP_LABELLED_FIELD_NUMBER: _ClassVar[int]
    keep_last: int
    older_than: _duration_pb2.Duration
    keep_labelled: bool
    def __init__(self, keep_last: _Optional[int] = ..., older_than: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., keep_labelled: bool = ...) -> None: ...

class GetRetentionRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class GetRetentionResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: RetentionPolicy
    def __init__(self, policy: _Optional[_Union[RetentionPolicy, _Mapping]] = ...) -> None: ...

class SetRetentionRequest(_message.Message):
    __slots__ = ("tenant", "policy")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    policy: RetentionPolicy
    def __init__(self, tenant: _Optional[str] = ..., policy: _Optional[_Union[RetentionPolicy, _Mapping]] = ...) -> None: ...

class SetRetentionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CollectGarbageRequest(_message.Message):
    __slots__ = ("tenant", "user", "dry_run", "compact", "grace")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    dry_run: bool
    compact: bool
    grace: _duration_pb2.Duration
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., dry_run: bool = ..., compact: bool = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CollectGarbageResponse(_message.Message):
    __slots__ = ("user", "stage", "done", "report")
    USER_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    user: str
    stage: str
    done: int
    report: GarbageReport
    def __init__(self, user: _Optional[str] = ..., stage: _Optional[str] = ..., done: _Optional[int] = ..., report: _Optional[_Union[GarbageReport, _Mapping]] = ...) -> None: ...

class GarbageReport(_message.Message):
    __slots__ = ("users", "threads", "expired", "pruned", "leftovers", "index_entries", "blobs", "parts", "bytes", "compacted")
    USERS_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    LEFTOVERS_FIELD_NUMBER: _ClassVar[int]
    INDEX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    users: int
    threads: int
    expired: int
    pruned: int
    leftovers: int
    index_entries: int
    blobs: int
    parts: int
    bytes: int
    compacted: bool
    def __init__(self, users: _Optional[int] = ..., threads: _Optional[int] = ..., expired: _Optional[int] = ..., pruned: _Optional[int] = ..., leftovers: _Optional[int] = ..., index_entries: _Optional[int] = ..., blobs: _Optional[int] = ..., parts: _Optional[int] = ..., bytes: _Optional[int] = ..., compacted: bool = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("tenant", "user", "thread", "deep")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    DEEP_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    thread: str
    deep: bool
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., thread: _Optional[str] = ..., deep: bool = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("done", "total", "report")
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    done: int
    total: int
    report: VerifyReport
    def __init__(self, done: _Optional[int] = ..., total: _Optional[int] = ..., report: _Optional[_Union[VerifyReport, _Mapping]] = ...) -> None: ...

class VerifyReport(_message.Message):
    __slots__ = ("users", "threads", "lineages", "checkpoints", "ghosts", "stubs", "parts", "blobs", "writes", "index_entries", "orphans", "problems", "unlisted")
    USERS_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    LINEAGES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    GHOSTS_FIELD_NUMBER: _ClassVar[int]
    STUBS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    INDEX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    UNLISTED_FIELD_NUMBER: _ClassVar[int]
    users: int
    threads: int
    lineages: int
    checkpoints: int
    ghosts: int
    stubs: int
    parts: int
    blobs: int
    writes: int
    index_entries: int
    orphans: int
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    unlisted: int
    def __init__(self, users: _Optional[int] = ..., threads: _Optional[int] = ..., lineages: _Optional[int] = ..., checkpoints: _Optional[int] = ..., ghosts: _Optional[int] = ..., stubs: _Optional[int] = ..., parts: _Optional[int] = ..., blobs: _Optional[int] = ..., writes: _Optional[int] = ..., index_entries: _Optional[int] = ..., orphans: _Optional[int] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., unlisted: _Optional[int] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("ref", "record", "reason")
    REF_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    record: str
    reason: str
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., record: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("tenant", "user")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ...) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("threads", "lineages", "checkpoints", "ghosts", "stubs", "state_bytes", "stored_bytes", "parts", "part_bytes", "blobs", "keyframes", "max_depth", "max_depth_bytes", "index_entries", "disk_bytes")
    THREADS_FIELD_NUMBER: _ClassVar[int]
    LINEAGES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    GHOSTS_FIELD_NUMBER: _ClassVar[int]
    STUBS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PART_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    KEYFRAMES_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    threads: int
    lineages: int
    checkpoints: int
    ghosts: int
    stubs: int
    state_bytes: int
    stored_bytes: int
    parts: int
    part_bytes: int
    blobs: int
    keyframes: int
    max_depth: int
    max_depth_bytes: int
    index_entries: int
    disk_bytes: int
    def __init__(self, threads: _Optional[int] = ..., lineages: _Optional[int] = ..., checkpoints: _Optional[int] = ..., ghosts: _Optional[int] = ..., stubs: _Optional[int] = ..., state_bytes: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., parts: _Optional[int] = ..., part_bytes: _Optional[int] = ..., blobs: _Optional[int] = ..., keyframes: _Optional[int] = ..., max_depth: _Optional[int] = ..., max_depth_bytes: _Optional[int] = ..., index_entries: _Optional[int] = ..., disk_bytes: _Optional[int] = ...) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTenantsResponse(_message.Message):
    __slots__ = ("tenants",)
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenants: _Optional[_Iterable[str]] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, users: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateUserRequest(_message.Message):
    __slots__ = ("tenant", "user")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ...) -> None: ...

class CreateUserResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Grant(_message.Message):
    __slots__ = ("role", "tenant", "user", "thread_prefix", "expires")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    THREAD_PREFIX_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    role: str
    tenant: str
    user: str
    thread_prefix: str
    expires: _timestamp_pb2.Timestamp
    def __init__(self, role: _Optional[str] = ..., tenant: _Optional[str] = ..., user: _Optional[str] = ..., thread_prefix: _Optional[str] = ..., expires: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("note", "grants")
    NOTE_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    note: str
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, note: _Optional[str] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("token", "secret")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    token: Token
    secret: str
    def __init__(self, token: _Optional[_Union[Token, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("id", "note", "grants", "created", "made_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MADE_BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    note: str
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    created: _timestamp_pb2.Timestamp
    made_by: str
    def __init__(self, id: _Optional[str] = ..., note: _Optional[str] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., created: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., made_by: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    def __init__(self, tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("id", "keep_children")
    ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    id: str
    keep_children: bool
    def __init__(self, id: _Optional[str] = ..., keep_children: bool = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ("revoked",)
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    revoked: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revoked: _Optional[_Iterable[str]] = ...) -> None: ...

class ReadAuditRequest(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: _timestamp_pb2.Timestamp
    def __init__(self, since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReadAuditResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("number", "time", "kind", "method", "caller", "tenant", "user", "thread", "code", "count", "about")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    number: int
    time: _timestamp_pb2.Timestamp
    kind: str
    method: str
    caller: str
    tenant: str
    user: str
    thread: str
    code: str
    count: int
    about: str
    def __init__(self, number: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., method: _Optional[str] = ..., caller: _Optional[str] = ..., tenant: _Optional[str] = ..., user: _Optional[str] = ..., thread: _Optional[str] = ..., code: _Optional[str] = ..., count: _Optional[int] = ..., about: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "started", "saves", "loads", "errors", "rejected", "in_flight", "watchers", "connections", "state_bytes", "stored_bytes", "cache_hits", "cache_misses", "cache_bytes", "groups", "grouped", "memory_bytes", "disk_bytes", "goroutines", "save_latency", "load_latency", "commit_latency")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUPED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    GOROUTINES_FIELD_NUMBER: _ClassVar[int]
    SAVE_LATENCY_FIELD_NUMBER: _ClassVar[int]
    LOAD_LATENCY_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LATENCY_FIELD_NUMBER: _ClassVar[int]
    version: str
    started: _timestamp_pb2.Timestamp
    saves: int
    loads: int
    errors: int
    rejected: int
    in_flight: int
    watchers: int
    connections: int
    state_bytes: int
    stored_bytes: int
    cache_hits: int
    cache_misses: int
    cache_bytes: int
    groups: int
    grouped: int
    memory_bytes: int
    disk_bytes: int
    goroutines: int
    save_latency: Latency
    load_latency: Latency
    commit_latency: Latency
    def __init__(self, version: _Optional[str] = ..., started: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., saves: _Optional[int] = ..., loads: _Optional[int] = ..., errors: _Optional[int] = ..., rejected: _Optional[int] = ..., in_flight: _Optional[int] = ..., watchers: _Optional[int] = ..., connections: _Optional[int] = ..., state_bytes: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., cache_hits: _Optional[int] = ..., cache_misses: _Optional[int] = ..., cache_bytes: _Optional[int] = ..., groups: _Optional[int] = ..., grouped: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., goroutines: _Optional[int] = ..., save_latency: _Optional[_Union[Latency, _Mapping]] = ..., load_latency: _Optional[_Union[Latency, _Mapping]] = ..., commit_latency: _Optional[_Union[Latency, _Mapping]] = ...) -> None: ...

class Latency(_message.Message):
    __slots__ = ("bounds_ms", "counts")
    BOUNDS_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    bounds_ms: _containers.RepeatedScalarFieldContainer[float]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, bounds_ms: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class WhoAmIRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WhoAmIResponse(_message.Message):
    __slots__ = ("caller", "grants")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    caller: str
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, caller: _Optional[str] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...
