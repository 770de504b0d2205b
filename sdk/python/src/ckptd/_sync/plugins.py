# Made from _async by tools/make_sync.py. Change it there.
"""The plugins that run on the daemon."""

from __future__ import annotations

from collections.abc import Iterable

from ckptd import v1
from ckptd._sync.calls import Caller


class Plugins:
    """Manages plugins. Returns messages of the API.

    With a tenant, a method concerns the plugins of that tenant alone. Without one it concerns the
    whole store, and needs a right on it.
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
        """Return all installed plugins, or those that run for a tenant."""
        request = v1.ListPluginsRequest(tenant=tenant)
        return [*(self._caller.call(request, v1.ListPluginsResponse)).plugins]

    def get(self, name: str, tenant: str = "") -> v1.Plugin:
        """Return a plugin with its configuration."""
        request = v1.GetPluginRequest(tenant=tenant, name=name)
        return (self._caller.call(request, v1.GetPluginResponse)).plugin

    def set_enabled(self, name: str, enabled: bool, tenant: str = "") -> v1.Plugin:
        """Enable or disable a plugin. Saved checkpoints stay as they are."""
        request = v1.SetPluginEnabledRequest(tenant=tenant, name=name, enabled=enabled)
        return (self._caller.call(request, v1.SetPluginEnabledResponse)).plugin

    def rollback(self, name: str, version: str = "", tenant: str = "") -> v1.Plugin:
        """Return to the previous version of a plugin, or to the one given."""
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
        """Stop accepting the signatures of a key; installed plugins stay."""
        self._caller.call(v1.UntrustKeyRequest(id=id), v1.UntrustKeyResponse)

    def keys(self) -> tuple[v1.PluginKey, ...]:
        """Return the trusted keys."""
        return tuple((self._caller.call(v1.ListKeysRequest(), v1.ListKeysResponse)).keys)
