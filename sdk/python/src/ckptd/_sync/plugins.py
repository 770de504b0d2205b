# Made from _async by tools/make_sync.py. Change it there.
"""The plugins that run on the daemon."""

from __future__ import annotations

from collections.abc import Iterable

from ckptd import v1
from ckptd._sync.calls import Caller


class Plugins:
    """Says which plugins run. With a tenant a method is about what runs for that tenant alone.

    Without one it is about the whole store, and takes a right on it. Answers are those of the API.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def install(
        self,
        archive: bytes = b"",
        *,
        builtin: str = "",
        tenant: str = "",
        digest: bytes = b"",
        bindings: Iterable[v1.PluginBinding] = (),
        disabled: bool = False,
    ) -> v1.Plugin:
        """Install a plugin, or another version of one: an archive, or builtin="redact"."""
        request = v1.InstallPluginRequest(
            tenant=tenant,
            archive=archive,
            builtin=builtin,
            digest=digest,
            bindings=bindings,
            disabled=disabled,
        )
        return (self._caller.call(request, v1.InstallPluginResponse)).plugin

    def list(self, tenant: str = "") -> list[v1.Plugin]:
        """Return the plugins that are installed, or with a tenant those that run for it."""
        request = v1.ListPluginsRequest(tenant=tenant)
        return [*(self._caller.call(request, v1.ListPluginsResponse)).plugins]

    def get(self, name: str, tenant: str = "") -> v1.Plugin:
        """Return a plugin with its configuration."""
        request = v1.GetPluginRequest(tenant=tenant, name=name)
        return (self._caller.call(request, v1.GetPluginResponse)).plugin

    def set_enabled(self, name: str, enabled: bool, tenant: str = "") -> v1.Plugin:
        """Start or stop a plugin. What it did to checkpoints stays."""
        request = v1.SetPluginEnabledRequest(tenant=tenant, name=name, enabled=enabled)
        return (self._caller.call(request, v1.SetPluginEnabledResponse)).plugin

    def rollback(self, name: str, version: str = "", tenant: str = "") -> v1.Plugin:
        """Take the version that ran before, or a certain one."""
        request = v1.RollbackPluginRequest(tenant=tenant, name=name, version=version)
        return (self._caller.call(request, v1.RollbackPluginResponse)).plugin

    def remove(self, name: str, tenant: str = "") -> None:
        """Remove a plugin with all its versions."""
        request = v1.RemovePluginRequest(tenant=tenant, name=name)
        self._caller.call(request, v1.RemovePluginResponse)

    def trust_key(self, public_key: bytes, note: str = "") -> v1.PluginKey:
        """Accept signatures made with an Ed25519 key.

        From the first key on, only signed plugins can be installed.
        """
        request = v1.TrustKeyRequest(public_key=public_key, note=note)
        return (self._caller.call(request, v1.TrustKeyResponse)).key

    def untrust_key(self, id: str) -> None:  # noqa: A002
        """Take that back; installed plugins stay."""
        self._caller.call(v1.UntrustKeyRequest(id=id), v1.UntrustKeyResponse)

    def keys(self) -> tuple[v1.PluginKey, ...]:
        """Return the trusted keys."""
        return tuple((self._caller.call(v1.ListKeysRequest(), v1.ListKeysResponse)).keys)
