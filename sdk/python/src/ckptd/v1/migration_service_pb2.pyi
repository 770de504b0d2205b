from ckptd.v1 import checkpoint_service_pb2 as _checkpoint_service_pb2
from ckptd.v1 import rule_pb2 as _rule_pb2
from ckptd.v1 import types_pb2 as _types_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MigrationAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MIGRATION_ACTION_UNSPECIFIED: _ClassVar[MigrationAction]
    MIGRATION_ACTION_DRY_RUN: _ClassVar[MigrationAction]
    MIGRATION_ACTION_RUN: _ClassVar[MigrationAction]
    MIGRATION_ACTION_UNDO: _ClassVar[MigrationAction]
    MIGRATION_ACTION_FINISH: _ClassVar[MigrationAction]
MIGRATION_ACTION_UNSPECIFIED: MigrationAction
MIGRATION_ACTION_DRY_RUN: MigrationAction
MIGRATION_ACTION_RUN: MigrationAction
MIGRATION_ACTION_UNDO: MigrationAction
MIGRATION_ACTION_FINISH: MigrationAction

class MigrationFile(_message.Message):
    __slots__ = ("path", "data")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    path: str
    data: bytes
    def __init__(self, path: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class MigrationSet(_message.Message):
    __slots__ = ("tenant", "kind", "digest", "installed", "oldest", "newest", "names")
    class NamesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    TENANT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    kind: str
    digest: bytes
    installed: _timestamp_pb2.Timestamp
    oldest: int
    newest: int
    names: _containers.ScalarMap[int, str]
    def __init__(self, tenant: _Optional[str] = ..., kind: _Optional[str] = ..., digest: _Optional[bytes] = ..., installed: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., oldest: _Optional[int] = ..., newest: _Optional[int] = ..., names: _Optional[_Mapping[int, str]] = ...) -> None: ...

class InstallMigrationSetsRequest(_message.Message):
    __slots__ = ("tenant", "files", "digests")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    files: _containers.RepeatedCompositeFieldContainer[MigrationFile]
    digests: _containers.RepeatedCompositeFieldContainer[MigrationDigest]
    def __init__(self, tenant: _Optional[str] = ..., files: _Optional[_Iterable[_Union[MigrationFile, _Mapping]]] = ..., digests: _Optional[_Iterable[_Union[MigrationDigest, _Mapping]]] = ...) -> None: ...

class MigrationDigest(_message.Message):
    __slots__ = ("kind", "digest")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    kind: str
    digest: bytes
    def __init__(self, kind: _Optional[str] = ..., digest: _Optional[bytes] = ...) -> None: ...

class InstallMigrationSetsResponse(_message.Message):
    __slots__ = ("sets",)
    SETS_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[MigrationSet]
    def __init__(self, sets: _Optional[_Iterable[_Union[MigrationSet, _Mapping]]] = ...) -> None: ...

class ListMigrationSetsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListMigrationSetsResponse(_message.Message):
    __slots__ = ("sets",)
    SETS_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[MigrationSet]
    def __init__(self, sets: _Optional[_Iterable[_Union[MigrationSet, _Mapping]]] = ...) -> None: ...

class RemoveMigrationSetRequest(_message.Message):
    __slots__ = ("tenant", "kind")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    kind: str
    def __init__(self, tenant: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class RemoveMigrationSetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MigrationSpec(_message.Message):
    __slots__ = ("user", "kind", "to", "down", "rewrite")
    USER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    DOWN_FIELD_NUMBER: _ClassVar[int]
    REWRITE_FIELD_NUMBER: _ClassVar[int]
    user: str
    kind: str
    to: int
    down: bool
    rewrite: bool
    def __init__(self, user: _Optional[str] = ..., kind: _Optional[str] = ..., to: _Optional[int] = ..., down: bool = ..., rewrite: bool = ...) -> None: ...

class MigrationGroup(_message.Message):
    __slots__ = ("kind", "version", "name", "heads", "example", "to", "steps", "error")
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    kind: str
    version: int
    name: str
    heads: int
    example: _types_pb2.Ref
    to: int
    steps: _containers.RepeatedScalarFieldContainer[str]
    error: _checkpoint_service_pb2.SaveError
    def __init__(self, kind: _Optional[str] = ..., version: _Optional[int] = ..., name: _Optional[str] = ..., heads: _Optional[int] = ..., example: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., to: _Optional[int] = ..., steps: _Optional[_Iterable[str]] = ..., error: _Optional[_Union[_checkpoint_service_pb2.SaveError, _Mapping]] = ...) -> None: ...

class GetMigrationStatusRequest(_message.Message):
    __slots__ = ("tenant", "spec")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    spec: MigrationSpec
    def __init__(self, tenant: _Optional[str] = ..., spec: _Optional[_Union[MigrationSpec, _Mapping]] = ...) -> None: ...

class GetMigrationStatusResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[MigrationGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[MigrationGroup, _Mapping]]] = ...) -> None: ...

class PlanMigrationRequest(_message.Message):
    __slots__ = ("tenant", "spec")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    spec: MigrationSpec
    def __init__(self, tenant: _Optional[str] = ..., spec: _Optional[_Union[MigrationSpec, _Mapping]] = ...) -> None: ...

class PlanMigrationResponse(_message.Message):
    __slots__ = ("groups", "todo")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TODO_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[MigrationGroup]
    todo: int
    def __init__(self, groups: _Optional[_Iterable[_Union[MigrationGroup, _Mapping]]] = ..., todo: _Optional[int] = ...) -> None: ...

class StartMigrationJobRequest(_message.Message):
    __slots__ = ("tenant", "action", "id", "spec", "all", "pace")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    action: MigrationAction
    id: str
    spec: MigrationSpec
    all: bool
    pace: MigrationPace
    def __init__(self, tenant: _Optional[str] = ..., action: _Optional[_Union[MigrationAction, str]] = ..., id: _Optional[str] = ..., spec: _Optional[_Union[MigrationSpec, _Mapping]] = ..., all: bool = ..., pace: _Optional[_Union[MigrationPace, _Mapping]] = ...) -> None: ...

class MigrationPace(_message.Message):
    __slots__ = ("workers", "throttle", "max_error_rate")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    MAX_ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    workers: int
    throttle: float
    max_error_rate: float
    def __init__(self, workers: _Optional[int] = ..., throttle: _Optional[float] = ..., max_error_rate: _Optional[float] = ...) -> None: ...

class StartMigrationJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: MigrationJob
    def __init__(self, job: _Optional[_Union[MigrationJob, _Mapping]] = ...) -> None: ...

class MigrationJob(_message.Message):
    __slots__ = ("tenant", "id", "action", "state", "stage", "spec", "all", "pace", "to", "created", "updated", "migrated", "failed", "undone", "kept", "progress_done", "progress_total", "report", "error")
    class ToEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    MIGRATED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    UNDONE_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_DONE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    id: str
    action: MigrationAction
    state: str
    stage: str
    spec: MigrationSpec
    all: bool
    pace: MigrationPace
    to: _containers.ScalarMap[str, int]
    created: _timestamp_pb2.Timestamp
    updated: _timestamp_pb2.Timestamp
    migrated: int
    failed: int
    undone: int
    kept: int
    progress_done: int
    progress_total: int
    report: MigrationReport
    error: _checkpoint_service_pb2.SaveError
    def __init__(self, tenant: _Optional[str] = ..., id: _Optional[str] = ..., action: _Optional[_Union[MigrationAction, str]] = ..., state: _Optional[str] = ..., stage: _Optional[str] = ..., spec: _Optional[_Union[MigrationSpec, _Mapping]] = ..., all: bool = ..., pace: _Optional[_Union[MigrationPace, _Mapping]] = ..., to: _Optional[_Mapping[str, int]] = ..., created: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., updated: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., migrated: _Optional[int] = ..., failed: _Optional[int] = ..., undone: _Optional[int] = ..., kept: _Optional[int] = ..., progress_done: _Optional[int] = ..., progress_total: _Optional[int] = ..., report: _Optional[_Union[MigrationReport, _Mapping]] = ..., error: _Optional[_Union[_checkpoint_service_pb2.SaveError, _Mapping]] = ...) -> None: ...

class MigrationReport(_message.Message):
    __slots__ = ("states", "current", "left", "migrated", "gone", "failed", "failures")
    STATES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    MIGRATED_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    states: int
    current: int
    left: int
    migrated: int
    gone: int
    failed: int
    failures: _containers.RepeatedCompositeFieldContainer[MigrationFailures]
    def __init__(self, states: _Optional[int] = ..., current: _Optional[int] = ..., left: _Optional[int] = ..., migrated: _Optional[int] = ..., gone: _Optional[int] = ..., failed: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[MigrationFailures, _Mapping]]] = ...) -> None: ...

class MigrationFailures(_message.Message):
    __slots__ = ("kind", "to", "source", "count", "examples")
    KIND_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    to: int
    source: str
    count: int
    examples: _containers.RepeatedCompositeFieldContainer[MigrationFailure]
    def __init__(self, kind: _Optional[str] = ..., to: _Optional[int] = ..., source: _Optional[str] = ..., count: _Optional[int] = ..., examples: _Optional[_Iterable[_Union[MigrationFailure, _Mapping]]] = ..., **kwargs) -> None: ...

class MigrationFailure(_message.Message):
    __slots__ = ("ref", "id", "seq", "path", "reason")
    REF_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    id: str
    seq: int
    path: str
    reason: str
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., id: _Optional[str] = ..., seq: _Optional[int] = ..., path: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class GetMigrationJobRequest(_message.Message):
    __slots__ = ("tenant", "id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    id: str
    def __init__(self, tenant: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class GetMigrationJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: MigrationJob
    def __init__(self, job: _Optional[_Union[MigrationJob, _Mapping]] = ...) -> None: ...

class ListMigrationJobsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListMigrationJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[MigrationJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[MigrationJob, _Mapping]]] = ...) -> None: ...

class WatchMigrationJobRequest(_message.Message):
    __slots__ = ("tenant", "id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    id: str
    def __init__(self, tenant: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class WatchMigrationJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: MigrationJob
    def __init__(self, job: _Optional[_Union[MigrationJob, _Mapping]] = ...) -> None: ...

class CancelMigrationJobRequest(_message.Message):
    __slots__ = ("tenant", "id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    id: str
    def __init__(self, tenant: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class CancelMigrationJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: MigrationJob
    def __init__(self, job: _Optional[_Union[MigrationJob, _Mapping]] = ...) -> None: ...
