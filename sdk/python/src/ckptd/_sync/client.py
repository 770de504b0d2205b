# Made from _async by tools/make_sync.py. Change it there.
"""The client."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TypeVar

from google.protobuf.message import Message

from ckptd import v1
from ckptd._config import Options, authorized, options
from ckptd._connect import M
from ckptd._sync.admin import Admin
from ckptd._sync.calls import Caller
from ckptd._sync.migrations import Migrations
from ckptd._sync.plugins import Plugins
from ckptd._sync.thread import Thread
from ckptd._sync.user import User, query
from ckptd._sync.watch import watch
from ckptd._sync.wire import Pool
from ckptd._types import Checkpoint, Content, Draft, Event, Ref, draft_of, pack_time
from ckptd.errors import AmbiguousError, CkptdError, from_detail

Self = TypeVar("Self", bound="Client")


class Client:
    """A client of the daemon at unix:///path/to/socket, http://host:port or https://host:port.

    Arguments default to the environment variables of the `ckptd` command: CKPTD_SERVER,
    CKPTD_TOKEN, CKPTD_TOKEN_FILE, CKPTD_TENANT, CKPTD_USER, CKPTD_TLS_CA, CKPTD_TLS_CERT and
    CKPTD_TLS_KEY. With a token or a certificate, tenant and user default to its own, if it is for
    exactly one of each. Without, they default to "default" and "local", as for the command.

    The client repeats a call, after a wait with jitter, if the daemon did nothing (no connection,
    overloaded, shutting down), or if the answer was lost and the call is idempotent: reads, and
    saves, which carry an id for that. If the answer stays lost, it raises AmbiguousError for calls
    that change something and UnreachableError for the others. Lists and watches resume after a
    broken connection.

    A client has one pool of connections for all threads, tasks and event loops. It connects with
    the first call.

    Options: attempts is the most attempts at a call, or at a stream without progress. backoff is
    the longest wait before the second attempt, in seconds; it doubles up to max_backoff. timeout
    bounds each attempt at a call with a single answer; None is no bound. A watch reconnects after
    three heartbeats of silence. on_retry gets the error and the length of each wait. export marks
    every load as an export in the audit log. server_ids lets the daemon make the ids of drafts;
    saves without an id are not repeated after a lost answer. cache_bytes bounds the contents that
    sessions keep.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tenant: str | None = None,
        user: str | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        attempts: int = 10,
        backoff: float = 0.05,
        max_backoff: float = 5.0,
        timeout: float | None = 60.0,
        heartbeat: float = 15.0,
        connect_timeout: float = 5.0,
        on_retry: Callable[[CkptdError, float], None] | None = None,
        export: bool = False,
        server_ids: bool = False,
        cache_bytes: int = 64 << 20,
    ) -> None:
        self._begin(
            options(
                url,
                token=token,
                token_file=token_file,
                tenant=tenant,
                user=user,
                tls_ca=tls_ca,
                tls_cert=tls_cert,
                tls_key=tls_key,
                ssl_context=ssl_context,
                attempts=attempts,
                backoff=backoff,
                max_backoff=max_backoff,
                timeout=timeout,
                heartbeat=heartbeat,
                connect_timeout=connect_timeout,
                on_retry=on_retry,
                export=export,
                server_ids=server_ids,
                cache_bytes=cache_bytes,
            )
        )

    def _begin(self, options: Options, pool: Pool | None = None) -> None:
        self._caller = Caller(options, pool)
        #: Users, tokens, retention, garbage collection, the audit log.
        self.admin = Admin(self._caller)
        #: The plugins of the daemon.
        self.plugins = Plugins(self._caller)
        #: Migrations of states to other schema versions.
        self.migrations = Migrations(self._caller)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Calls, lists and watches in progress raise ClosedError."""
        self._caller.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._caller.options.address.url!r})"

    def with_token(
        self: Self, token: str, *, tenant: str | None = None, user: str | None = None
    ) -> Self:
        """Return a client with another token and the same options, which shares the connections.

        Closing either client closes them. Tenant and user default to those of the token.
        """
        new = type(self).__new__(type(self))
        caller = self._caller
        new._begin(authorized(caller.options, token, tenant, user), caller.wire.pool)
        return new

    def user(self, name: str | None = None, *, tenant: str | None = None) -> User:
        """Return a handle on a user, by default the user of the client."""
        return User(self._caller, self._caller.tenant(tenant), self._caller.user(name))

    def thread(
        self,
        name: str,
        *,
        namespace: str = "",
        user: str | None = None,
        tenant: str | None = None,
    ) -> Thread:
        """Return a handle on a thread, or on a namespace in it."""
        ref = Ref(self._caller.tenant(tenant), self._caller.user(user), name, namespace)
        return Thread(self._caller, ref)

    def save_batch(
        self, saves: Iterable[tuple[Thread, Draft | Mapping[str, Content]]]
    ) -> list[Checkpoint | CkptdError]:
        """Save to several lineages in one call, and return a checkpoint or an error for each.

        Each save succeeds or fails on its own; saves to the same lineage keep their order. A save
        refused because the daemon is overloaded is not repeated.
        """
        request = v1.SaveBatchRequest()
        for thread, draft in saves:
            made = draft_of(draft).with_id(self._caller.new_id())
            request.saves.add(ref=thread.ref.pack(), draft=made.pack())
        answer = self._caller.call(request, v1.SaveBatchResponse)
        if len(answer.results) != len(request.saves):
            raise AmbiguousError(f"{len(request.saves)} saves, {len(answer.results)} results")
        return [
            from_detail(r.error.message, r.error.detail)
            if r.HasField("error")
            else Checkpoint.unpack(r.checkpoint)
            for r in answer.results
        ]

    def query_tenant(
        self, where: v1.Filter | None = None, *, tenant: str | None = None, limit: int = 0
    ) -> Generator[Checkpoint, None, None]:
        """Yield the matching checkpoints of all users of a tenant, without content."""
        request = v1.QueryRequest(
            tenant=self._caller.tenant(tenant), whole_tenant=True, filter=where
        )
        return query(self._caller, request, limit)

    def watch(
        self,
        cursor: str = "",
        *,
        tenant: str | None = None,
        since: datetime | None = None,
        began: bool = False,
    ) -> Generator[Event, None, None]:
        """Yield an event for each checkpoint of a tenant as it becomes durable, without end.

        The watch starts after a cursor, at a time, or now. With began, the first event has no id
        and means that no later checkpoint will be missed. After a broken connection the watch
        resumes after the last event, without gaps or duplicates. After too many attempts it raises
        UnreachableError; Event.cursor resumes it. User and Thread have watches of their own.
        """
        request = v1.WatchRequest(
            tenant=self._caller.tenant(tenant), cursor=cursor, since=pack_time(since)
        )
        return watch(self._caller, request, began)

    def call(self, request: Message, answer: type[M]) -> M:
        """Call a method of the API with a single answer; its rule governs retries."""
        return self._caller.call(request, answer)
