from ckptd.v1 import rule_pb2 as _rule_pb2
from ckptd.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SaveRequest(_message.Message):
    __slots__ = ("ref", "draft")
    REF_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    draft: _types_pb2.Draft
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., draft: _Optional[_Union[_types_pb2.Draft, _Mapping]] = ...) -> None: ...

class SaveResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class SaveBatchRequest(_message.Message):
    __slots__ = ("saves",)
    SAVES_FIELD_NUMBER: _ClassVar[int]
    saves: _containers.RepeatedCompositeFieldContainer[SaveRequest]
    def __init__(self, saves: _Optional[_Iterable[_Union[SaveRequest, _Mapping]]] = ...) -> None: ...

class SaveBatchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SaveResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SaveResult, _Mapping]]] = ...) -> None: ...

class SaveResult(_message.Message):
    __slots__ = ("checkpoint", "error")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    error: SaveError
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., error: _Optional[_Union[SaveError, _Mapping]] = ...) -> None: ...

class SaveError(_message.Message):
    __slots__ = ("code", "message", "detail")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    detail: _types_pb2.ErrorDetail
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., detail: _Optional[_Union[_types_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class LoadRequest(_message.Message):
    __slots__ = ("ref", "which", "headers_only", "channels", "have", "text", "writes", "export", "schema", "down", "history")
    REF_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    HEADERS_ONLY_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    DOWN_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    which: _types_pb2.Which
    headers_only: bool
    channels: _containers.RepeatedScalarFieldContainer[str]
    have: _containers.RepeatedCompositeFieldContainer[Have]
    text: bool
    writes: bool
    export: bool
    schema: int
    down: bool
    history: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., which: _Optional[_Union[_types_pb2.Which, _Mapping]] = ..., headers_only: bool = ..., channels: _Optional[_Iterable[str]] = ..., have: _Optional[_Iterable[_Union[Have, _Mapping]]] = ..., text: bool = ..., writes: bool = ..., export: bool = ..., schema: _Optional[int] = ..., down: bool = ..., history: _Optional[_Iterable[str]] = ...) -> None: ...

class Have(_message.Message):
    __slots__ = ("channel", "sha256")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    channel: str
    sha256: bytes
    def __init__(self, channel: _Optional[str] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class LoadResponse(_message.Message):
    __slots__ = ("checkpoint", "writes", "histories", "head_seq", "head_id")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    HISTORIES_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    writes: _containers.RepeatedCompositeFieldContainer[_types_pb2.PendingWrite]
    histories: _containers.RepeatedCompositeFieldContainer[ChannelHistory]
    head_seq: int
    head_id: str
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[_types_pb2.PendingWrite, _Mapping]]] = ..., histories: _Optional[_Iterable[_Union[ChannelHistory, _Mapping]]] = ..., head_seq: _Optional[int] = ..., head_id: _Optional[str] = ...) -> None: ...

class ChannelHistory(_message.Message):
    __slots__ = ("channel", "base_id", "base", "writes", "lost")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    BASE_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    channel: str
    base_id: str
    base: _types_pb2.Channel
    writes: _containers.RepeatedCompositeFieldContainer[HistoryWrites]
    lost: bool
    def __init__(self, channel: _Optional[str] = ..., base_id: _Optional[str] = ..., base: _Optional[_Union[_types_pb2.Channel, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[HistoryWrites, _Mapping]]] = ..., lost: bool = ...) -> None: ...

class HistoryWrites(_message.Message):
    __slots__ = ("checkpoint_id", "writes")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    writes: _containers.RepeatedCompositeFieldContainer[_types_pb2.PendingWrite]
    def __init__(self, checkpoint_id: _Optional[str] = ..., writes: _Optional[_Iterable[_Union[_types_pb2.PendingWrite, _Mapping]]] = ...) -> None: ...

class LoadNewestRequest(_message.Message):
    __slots__ = ("tenant", "user", "headers_only", "channels", "text", "schema", "down")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    HEADERS_ONLY_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    DOWN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    headers_only: bool
    channels: _containers.RepeatedScalarFieldContainer[str]
    text: bool
    schema: int
    down: bool
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., headers_only: bool = ..., channels: _Optional[_Iterable[str]] = ..., text: bool = ..., schema: _Optional[int] = ..., down: bool = ...) -> None: ...

class LoadNewestResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("ref", "branch", "before", "filter", "data", "channels", "text", "page_size", "page_token", "export", "by_id")
    REF_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    BY_ID_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    branch: str
    before: str
    filter: _types_pb2.Filter
    data: bool
    channels: _containers.RepeatedScalarFieldContainer[str]
    text: bool
    page_size: int
    page_token: str
    export: bool
    by_id: bool
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., branch: _Optional[str] = ..., before: _Optional[str] = ..., filter: _Optional[_Union[_types_pb2.Filter, _Mapping]] = ..., data: bool = ..., channels: _Optional[_Iterable[str]] = ..., text: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., export: bool = ..., by_id: bool = ..., **kwargs) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("checkpoints", "next_page_token")
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[_types_pb2.Checkpoint]
    next_page_token: str
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[_types_pb2.Checkpoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListByIDRequest(_message.Message):
    __slots__ = ("tenant", "user", "thread", "namespace", "id", "before", "meta", "filter", "data", "channels", "writes", "text", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    user: str
    thread: str
    namespace: str
    id: str
    before: str
    meta: str
    filter: _types_pb2.Filter
    data: bool
    channels: _containers.RepeatedScalarFieldContainer[str]
    writes: bool
    text: bool
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., thread: _Optional[str] = ..., namespace: _Optional[str] = ..., id: _Optional[str] = ..., before: _Optional[str] = ..., meta: _Optional[str] = ..., filter: _Optional[_Union[_types_pb2.Filter, _Mapping]] = ..., data: bool = ..., channels: _Optional[_Iterable[str]] = ..., writes: bool = ..., text: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListByIDResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("checkpoint", "writes")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    writes: _containers.RepeatedCompositeFieldContainer[_types_pb2.PendingWrite]
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[_types_pb2.PendingWrite, _Mapping]]] = ...) -> None: ...

class GetTreeRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ...) -> None: ...

class GetTreeResponse(_message.Message):
    __slots__ = ("nodes", "branches")
    NODES_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    branches: _containers.RepeatedCompositeFieldContainer[_types_pb2.Branch]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., branches: _Optional[_Iterable[_Union[_types_pb2.Branch, _Mapping]]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("checkpoint", "parent_seq")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PARENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    parent_seq: int
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., parent_seq: _Optional[int] = ...) -> None: ...

class DiffRequest(_message.Message):
    __slots__ = ("ref", "to")
    REF_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    to: _types_pb2.Which
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., to: _Optional[_Union[_types_pb2.Which, _Mapping]] = ..., **kwargs) -> None: ...

class DiffResponse(_message.Message):
    __slots__ = ("to", "channels", "meta", "fields", "labels")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    to: _types_pb2.Checkpoint
    channels: _containers.RepeatedCompositeFieldContainer[ChannelDiff]
    meta: ValueDiff
    fields: _containers.RepeatedCompositeFieldContainer[FieldDiff]
    labels: _containers.RepeatedCompositeFieldContainer[FieldDiff]
    def __init__(self, to: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., channels: _Optional[_Iterable[_Union[ChannelDiff, _Mapping]]] = ..., meta: _Optional[_Union[ValueDiff, _Mapping]] = ..., fields: _Optional[_Iterable[_Union[FieldDiff, _Mapping]]] = ..., labels: _Optional[_Iterable[_Union[FieldDiff, _Mapping]]] = ..., **kwargs) -> None: ...

class ChannelDiff(_message.Message):
    __slots__ = ("name", "old_type", "new_type", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OLD_TYPE_FIELD_NUMBER: _ClassVar[int]
    NEW_TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    old_type: str
    new_type: str
    value: ValueDiff
    def __init__(self, name: _Optional[str] = ..., old_type: _Optional[str] = ..., new_type: _Optional[str] = ..., value: _Optional[_Union[ValueDiff, _Mapping]] = ...) -> None: ...

class ValueDiff(_message.Message):
    __slots__ = ("kind", "old_size", "new_size", "prefix", "suffix", "patch", "no_patch")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    NEW_SIZE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    NO_PATCH_FIELD_NUMBER: _ClassVar[int]
    kind: str
    old_size: int
    new_size: int
    prefix: int
    suffix: int
    patch: str
    no_patch: str
    def __init__(self, kind: _Optional[str] = ..., old_size: _Optional[int] = ..., new_size: _Optional[int] = ..., prefix: _Optional[int] = ..., suffix: _Optional[int] = ..., patch: _Optional[str] = ..., no_patch: _Optional[str] = ...) -> None: ...

class FieldDiff(_message.Message):
    __slots__ = ("name", "kind", "old", "new")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    old: str
    new: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., old: _Optional[str] = ..., new: _Optional[str] = ...) -> None: ...

class ForkRequest(_message.Message):
    __slots__ = ("ref", "branch")
    REF_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    branch: str
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., branch: _Optional[str] = ..., **kwargs) -> None: ...

class ForkResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class ListBranchesRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ...) -> None: ...

class ListBranchesResponse(_message.Message):
    __slots__ = ("branches",)
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    branches: _containers.RepeatedCompositeFieldContainer[_types_pb2.Branch]
    def __init__(self, branches: _Optional[_Iterable[_Union[_types_pb2.Branch, _Mapping]]] = ...) -> None: ...

class SetBranchRequest(_message.Message):
    __slots__ = ("ref", "branch", "to")
    REF_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    branch: str
    to: _types_pb2.Which
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., branch: _Optional[str] = ..., to: _Optional[_Union[_types_pb2.Which, _Mapping]] = ...) -> None: ...

class SetBranchResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteBranchRequest(_message.Message):
    __slots__ = ("ref", "branch")
    REF_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    branch: str
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., branch: _Optional[str] = ...) -> None: ...

class DeleteBranchResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetLabelsRequest(_message.Message):
    __slots__ = ("ref", "which", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REF_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    which: _types_pb2.Which
    labels: _containers.ScalarMap[str, str]
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., which: _Optional[_Union[_types_pb2.Which, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SetLabelsResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class PutWritesRequest(_message.Message):
    __slots__ = ("ref", "checkpoint_id", "task", "path", "writes", "ignore_existing", "generation")
    REF_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EXISTING_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    checkpoint_id: str
    task: str
    path: str
    writes: _containers.RepeatedCompositeFieldContainer[_types_pb2.Write]
    ignore_existing: bool
    generation: int
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., checkpoint_id: _Optional[str] = ..., task: _Optional[str] = ..., path: _Optional[str] = ..., writes: _Optional[_Iterable[_Union[_types_pb2.Write, _Mapping]]] = ..., ignore_existing: bool = ..., generation: _Optional[int] = ...) -> None: ...

class PutWritesResponse(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class ListWritesRequest(_message.Message):
    __slots__ = ("ref", "checkpoint_id", "text")
    REF_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.Ref
    checkpoint_id: str
    text: bool
    def __init__(self, ref: _Optional[_Union[_types_pb2.Ref, _Mapping]] = ..., checkpoint_id: _Optional[str] = ..., text: bool = ...) -> None: ...

class ListWritesResponse(_message.Message):
    __slots__ = ("writes",)
    WRITES_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[_types_pb2.PendingWrite]
    def __init__(self, writes: _Optional[_Iterable[_Union[_types_pb2.PendingWrite, _Mapping]]] = ...) -> None: ...
