from ckptd.v1 import types_pb2 as _types_pb2
from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Permission(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PERMISSION_UNSPECIFIED: _ClassVar[Permission]
    PERMISSION_READ: _ClassVar[Permission]
    PERMISSION_INSPECT: _ClassVar[Permission]
    PERMISSION_WRITE: _ClassVar[Permission]
    PERMISSION_ANNOTATE: _ClassVar[Permission]
    PERMISSION_MANAGE: _ClassVar[Permission]
    PERMISSION_ISSUE: _ClassVar[Permission]
    PERMISSION_AUDIT: _ClassVar[Permission]

class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCOPE_UNSPECIFIED: _ClassVar[Scope]
    SCOPE_NOTHING: _ClassVar[Scope]
    SCOPE_THREAD: _ClassVar[Scope]
    SCOPE_THREADS: _ClassVar[Scope]
    SCOPE_USER: _ClassVar[Scope]
    SCOPE_TENANT: _ClassVar[Scope]
    SCOPE_STORE: _ClassVar[Scope]
    SCOPE_NAMED: _ClassVar[Scope]
    SCOPE_GRANTS: _ClassVar[Scope]

class Retry(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETRY_UNSPECIFIED: _ClassVar[Retry]
    RETRY_READ: _ClassVar[Retry]
    RETRY_REPEAT: _ClassVar[Retry]
    RETRY_SAME_ID: _ClassVar[Retry]
    RETRY_NEVER: _ClassVar[Retry]
PERMISSION_UNSPECIFIED: Permission
PERMISSION_READ: Permission
PERMISSION_INSPECT: Permission
PERMISSION_WRITE: Permission
PERMISSION_ANNOTATE: Permission
PERMISSION_MANAGE: Permission
PERMISSION_ISSUE: Permission
PERMISSION_AUDIT: Permission
SCOPE_UNSPECIFIED: Scope
SCOPE_NOTHING: Scope
SCOPE_THREAD: Scope
SCOPE_THREADS: Scope
SCOPE_USER: Scope
SCOPE_TENANT: Scope
SCOPE_STORE: Scope
SCOPE_NAMED: Scope
SCOPE_GRANTS: Scope
RETRY_UNSPECIFIED: Retry
RETRY_READ: Retry
RETRY_REPEAT: Retry
RETRY_SAME_ID: Retry
RETRY_NEVER: Retry
RULE_FIELD_NUMBER: _ClassVar[int]
rule: _descriptor.FieldDescriptor

class Rule(_message.Message):
    __slots__ = ("needs", "on", "without_content", "content", "exports", "whole_tenant", "any_user", "each", "also", "audited", "endless", "retry", "id", "reasons")
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_CONTENT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_TENANT_FIELD_NUMBER: _ClassVar[int]
    ANY_USER_FIELD_NUMBER: _ClassVar[int]
    EACH_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    AUDITED_FIELD_NUMBER: _ClassVar[int]
    ENDLESS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    needs: Permission
    on: Scope
    without_content: Permission
    content: _containers.RepeatedCompositeFieldContainer[When]
    exports: _containers.RepeatedCompositeFieldContainer[When]
    whole_tenant: _containers.RepeatedCompositeFieldContainer[When]
    any_user: _containers.RepeatedCompositeFieldContainer[When]
    each: bool
    also: str
    audited: bool
    endless: bool
    retry: Retry
    id: str
    reasons: _containers.RepeatedScalarFieldContainer[_types_pb2.Reason]
    def __init__(self, needs: _Optional[_Union[Permission, str]] = ..., on: _Optional[_Union[Scope, str]] = ..., without_content: _Optional[_Union[Permission, str]] = ..., content: _Optional[_Iterable[_Union[When, _Mapping]]] = ..., exports: _Optional[_Iterable[_Union[When, _Mapping]]] = ..., whole_tenant: _Optional[_Iterable[_Union[When, _Mapping]]] = ..., any_user: _Optional[_Iterable[_Union[When, _Mapping]]] = ..., each: bool = ..., also: _Optional[str] = ..., audited: bool = ..., endless: bool = ..., retry: _Optional[_Union[Retry, str]] = ..., id: _Optional[str] = ..., reasons: _Optional[_Iterable[_Union[_types_pb2.Reason, str]]] = ...) -> None: ...

class When(_message.Message):
    __slots__ = ("set", "unset")
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    set: _containers.RepeatedScalarFieldContainer[str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, set: _Optional[_Iterable[str]] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...
