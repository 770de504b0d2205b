from ckptd.v1 import rule_pb2 as _rule_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PluginBinding(_message.Message):
    __slots__ = ("tenants", "thread_prefixes", "order", "config")
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    THREAD_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedScalarFieldContainer[str]
    thread_prefixes: _containers.RepeatedScalarFieldContainer[str]
    order: int
    config: str
    def __init__(self, tenants: _Optional[_Iterable[str]] = ..., thread_prefixes: _Optional[_Iterable[str]] = ..., order: _Optional[int] = ..., config: _Optional[str] = ...) -> None: ...

class Plugin(_message.Message):
    __slots__ = ("name", "version", "digest", "description", "stages", "capabilities", "bindings", "enabled", "versions", "calls", "errors", "suspended", "tenant", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    digest: bytes
    description: str
    stages: _containers.RepeatedScalarFieldContainer[str]
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    bindings: _containers.RepeatedCompositeFieldContainer[PluginBinding]
    enabled: bool
    versions: _containers.RepeatedCompositeFieldContainer[PluginVersion]
    calls: int
    errors: int
    suspended: bool
    tenant: str
    problem: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., digest: _Optional[bytes] = ..., description: _Optional[str] = ..., stages: _Optional[_Iterable[str]] = ..., capabilities: _Optional[_Iterable[str]] = ..., bindings: _Optional[_Iterable[_Union[PluginBinding, _Mapping]]] = ..., enabled: bool = ..., versions: _Optional[_Iterable[_Union[PluginVersion, _Mapping]]] = ..., calls: _Optional[int] = ..., errors: _Optional[int] = ..., suspended: bool = ..., tenant: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class PluginVersion(_message.Message):
    __slots__ = ("version", "digest", "installed", "signer", "active")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    version: str
    digest: bytes
    installed: _timestamp_pb2.Timestamp
    signer: str
    active: bool
    def __init__(self, version: _Optional[str] = ..., digest: _Optional[bytes] = ..., installed: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., signer: _Optional[str] = ..., active: bool = ...) -> None: ...

class InstallPluginRequest(_message.Message):
    __slots__ = ("tenant", "archive", "builtin", "digest", "bindings", "disabled")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    BUILTIN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    archive: bytes
    builtin: str
    digest: bytes
    bindings: _containers.RepeatedCompositeFieldContainer[PluginBinding]
    disabled: bool
    def __init__(self, tenant: _Optional[str] = ..., archive: _Optional[bytes] = ..., builtin: _Optional[str] = ..., digest: _Optional[bytes] = ..., bindings: _Optional[_Iterable[_Union[PluginBinding, _Mapping]]] = ..., disabled: bool = ...) -> None: ...

class InstallPluginResponse(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: Plugin
    def __init__(self, plugin: _Optional[_Union[Plugin, _Mapping]] = ...) -> None: ...

class ListPluginsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListPluginsResponse(_message.Message):
    __slots__ = ("plugins",)
    PLUGINS_FIELD_NUMBER: _ClassVar[int]
    plugins: _containers.RepeatedCompositeFieldContainer[Plugin]
    def __init__(self, plugins: _Optional[_Iterable[_Union[Plugin, _Mapping]]] = ...) -> None: ...

class GetPluginRequest(_message.Message):
    __slots__ = ("tenant", "name")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    name: str
    def __init__(self, tenant: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GetPluginResponse(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: Plugin
    def __init__(self, plugin: _Optional[_Union[Plugin, _Mapping]] = ...) -> None: ...

class SetPluginEnabledRequest(_message.Message):
    __slots__ = ("tenant", "name", "enabled")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    name: str
    enabled: bool
    def __init__(self, tenant: _Optional[str] = ..., name: _Optional[str] = ..., enabled: bool = ...) -> None: ...

class SetPluginEnabledResponse(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: Plugin
    def __init__(self, plugin: _Optional[_Union[Plugin, _Mapping]] = ...) -> None: ...

class RollbackPluginRequest(_message.Message):
    __slots__ = ("tenant", "name", "version")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    name: str
    version: str
    def __init__(self, tenant: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class RollbackPluginResponse(_message.Message):
    __slots__ = ("plugin",)
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    plugin: Plugin
    def __init__(self, plugin: _Optional[_Union[Plugin, _Mapping]] = ...) -> None: ...

class RemovePluginRequest(_message.Message):
    __slots__ = ("tenant", "name")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    name: str
    def __init__(self, tenant: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class RemovePluginResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PluginKey(_message.Message):
    __slots__ = ("id", "public_key", "note", "trusted")
    ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_FIELD_NUMBER: _ClassVar[int]
    id: str
    public_key: bytes
    note: str
    trusted: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., public_key: _Optional[bytes] = ..., note: _Optional[str] = ..., trusted: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class TrustKeyRequest(_message.Message):
    __slots__ = ("public_key", "note")
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    public_key: bytes
    note: str
    def __init__(self, public_key: _Optional[bytes] = ..., note: _Optional[str] = ...) -> None: ...

class TrustKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: PluginKey
    def __init__(self, key: _Optional[_Union[PluginKey, _Mapping]] = ...) -> None: ...

class UntrustKeyRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class UntrustKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[PluginKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[PluginKey, _Mapping]]] = ...) -> None: ...
