"""The options of a client, from arguments and the environment.

The variables are those of the `ckptd` command: CKPTD_SERVER, CKPTD_TOKEN, CKPTD_TOKEN_FILE,
CKPTD_TENANT, CKPTD_USER, CKPTD_TLS_CA, CKPTD_TLS_CERT and CKPTD_TLS_KEY.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from ckptd._http import Headers
from ckptd._retry import Policy
from ckptd.errors import CkptdError, InvalidError

VERSION = "0.1.0"

_FORMS = "unix:///path/to/socket, http://host:port or https://host:port"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon listens."""

    url: str
    path: str = ""  # of a Unix socket
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        """Return the value of the header Host."""
        if self.path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Options:
    """The complete options of a client."""

    address: Address
    token: str
    tenant: str
    user: str
    policy: Policy
    timeout: float | None
    heartbeat: float
    connect_timeout: float
    on_retry: Callable[[CkptdError, float], None] | None
    export: bool
    server_ids: bool
    cache_bytes: int

    def headers(self, *more: tuple[str, str]) -> Headers:
        """Return the headers of a request."""
        headers = [
            ("Host", self.address.authority),
            ("User-Agent", f"ckptd-python/{VERSION}"),
            ("Connect-Protocol-Version", "1"),
            *more,
        ]
        if self.token:
            headers.append(("Authorization", f"Bearer {self.token}"))
        return headers


def env(name: str) -> str:
    """Return an environment variable that sets an option."""
    return os.environ.get(f"CKPTD_{name}", "")


def options(
    url: str | None,
    *,
    token: str | None,
    token_file: str | os.PathLike[str] | None,
    tenant: str | None,
    user: str | None,
    tls_ca: str | os.PathLike[str] | None,
    tls_cert: str | os.PathLike[str] | None,
    tls_key: str | os.PathLike[str] | None,
    ssl_context: ssl.SSLContext | None,
    attempts: int,
    backoff: float,
    max_backoff: float,
    timeout: float | None,
    heartbeat: float,
    connect_timeout: float,
    on_retry: Callable[[CkptdError, float], None] | None,
    export: bool,
    server_ids: bool,
    cache_bytes: int,
) -> Options:
    """Complete and check the options of a client."""
    if attempts < 1 or min(backoff, max_backoff, cache_bytes) < 0 or heartbeat < 1:
        raise InvalidError("attempts and heartbeat must be at least 1, and no option negative")
    if (timeout is not None and timeout <= 0) or connect_timeout <= 0:
        raise InvalidError("timeouts must be positive; timeout=None means no limit")
    cert = tls_cert or env("TLS_CERT")
    tls = _tls(tls_ca or env("TLS_CA"), cert, tls_key or env("TLS_KEY"))
    address = _address(url or env("SERVER"), ssl_context or tls)
    secret = _token(token, token_file)
    # Credentials for exactly one tenant and user imply both names. Without any, as for the owner of
    # a socket, the defaults are those of the `ckptd` command.
    default_tenant, default_user = ("", "") if secret or cert else ("default", "local")
    return Options(
        address=address,
        token=secret,
        tenant=tenant if tenant is not None else env("TENANT") or default_tenant,
        user=user if user is not None else env("USER") or default_user,
        policy=Policy(attempts, backoff, max(max_backoff, backoff)),
        timeout=timeout,
        heartbeat=heartbeat,
        connect_timeout=connect_timeout,
        on_retry=on_retry,
        export=export,
        server_ids=server_ids,
        cache_bytes=cache_bytes,
    )


def authorized(options: Options, token: str, tenant: str | None, user: str | None) -> Options:
    """Return the options with another token."""
    return replace(
        options,
        token=_token(token, None),
        tenant=tenant if tenant is not None else env("TENANT"),
        user=user if user is not None else env("USER"),
    )


def _address(url: str, tls: ssl.SSLContext | None) -> Address:
    if not url:
        raise InvalidError(f"no address: pass a URL or set CKPTD_SERVER: {_FORMS}")
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path:
            raise InvalidError(f"{url!r} is not an address: want {_FORMS}")
        if not hasattr(socket, "AF_UNIX"):
            raise InvalidError(f"{url}: Python has no Unix sockets on this system; use http://")
        return Address(url, path=path)
    parts = urlsplit(url)
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
    try:
        port = parts.port
    except ValueError:
        port, extra = None, True
    if parts.scheme not in ("http", "https") or not parts.hostname or extra:
        raise InvalidError(f"{url!r} is not an address: want {_FORMS}")
    secure = parts.scheme == "https"
    if secure and tls is None:
        tls = ssl.create_default_context()
    return Address(
        url,
        host=parts.hostname,
        port=port or (443 if secure else 80),
        tls=tls if secure else None,
    )


def _tls(
    ca: str | os.PathLike[str],
    cert: str | os.PathLike[str],
    key: str | os.PathLike[str],
) -> ssl.SSLContext | None:
    if not (ca or cert or key):
        return None
    if bool(cert) != bool(key):
        raise InvalidError("tls_cert and tls_key go together")
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as e:
        raise InvalidError(f"the TLS files {ca} {cert} {key} cannot be read: {e}") from e
    return context


def _token(token: str | None, file: str | os.PathLike[str] | None) -> str:
    """Return the token. A file takes precedence over CKPTD_TOKEN, as in the command."""
    if token is None and not file:
        file = env("TOKEN_FILE")
        token = None if file else env("TOKEN")
    if token is None:
        assert file is not None
        try:
            token = Path(file).read_text().strip()
        except OSError as e:
            raise InvalidError(f"the token file cannot be read: {e}") from e
        if not token:
            raise InvalidError(f"the token file {file} is empty")
    if re.search(r"[^!-~]", token):
        raise InvalidError("the token contains blanks or control characters")
    return token
