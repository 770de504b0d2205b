"""The client."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TypeVar

from google.protobuf.message import Message

from ckptd import v1
from ckptd._async.admin import AsyncAdmin
from ckptd._async.calls import Caller
from ckptd._async.migrations import AsyncMigrations
from ckptd._async.plugins import AsyncPlugins
from ckptd._async.thread import AsyncThread
from ckptd._async.user import AsyncUser, query
from ckptd._async.watch import watch
from ckptd._config import options
from ckptd._connect import M
from ckptd._types import Checkpoint, Content, Draft, Event, Ref, draft_of, pack_time
from ckptd.errors import AmbiguousError, CkptdError, from_detail

Self = TypeVar("Self", bound="AsyncClient")


class AsyncClient:
    """A client of the daemon at unix:///path/to/socket, http://host:port or https://host:port.

    What is not given comes from the environment, as for the `ckptd` command: CKPTD_SERVER,
    CKPTD_TOKEN, CKPTD_TOKEN_FILE, CKPTD_TENANT, CKPTD_USER, CKPTD_TLS_CA, CKPTD_TLS_CERT and
    CKPTD_TLS_KEY. Without a token, tenant and user are "default" and "local", as the command
    assumes; with one they may be left out where it is for exactly one tenant and user.

    A call is repeated, after a wait with jitter, when nothing was done (no connection, a daemon
    that is overloaded or shutting down), and when an answer was lost and doing it twice is doing it
    once: reads, and saves, which carry an id for that. Where the answer is lost for good the error
    is AmbiguousError if something may have changed, and UnreachableError if not. Lists and watches
    continue where their connection broke.

    One client has one pool of connections for all threads, tasks and event loops; nothing is sent
    before the first call.

    Options: attempts is how often a call is made at most, and a stream without hearing anything.
    backoff is the longest wait before the second attempt, in seconds; it doubles up to max_backoff.
    timeout bounds each attempt of a call that has one answer. A watch without a sign of life for
    three heartbeats begins again. on_retry hears why and how long before each wait. export says of
    every load that the state leaves the store, for the audit log. server_ids leaves ids of drafts
    to the daemon; such a save is not repeated when its answer is lost. cache_bytes bounds what
    sessions remember.
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
        self._caller = Caller(
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
        #: Looks after the store, its users and who may do what.
        self.admin = AsyncAdmin(self._caller)
        #: Says which plugins run.
        self.plugins = AsyncPlugins(self._caller)
        #: Brings states to other schema versions.
        self.migrations = AsyncMigrations(self._caller)

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Calls under way, lists and watches end with ClosedError."""
        self._caller.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._caller.options.address.url!r})"

    def user(self, name: str | None = None, *, tenant: str | None = None) -> AsyncUser:
        """Return the handle of a user, that of the client if none is named."""
        return AsyncUser(self._caller, self._caller.tenant(tenant), self._caller.user(name))

    def thread(
        self,
        name: str,
        *,
        namespace: str = "",
        user: str | None = None,
        tenant: str | None = None,
    ) -> AsyncThread:
        """Return the handle of a thread, or of a namespace in it."""
        ref = Ref(self._caller.tenant(tenant), self._caller.user(user), name, namespace)
        return AsyncThread(self._caller, ref)

    async def save_batch(
        self, saves: Iterable[tuple[AsyncThread, Draft | Mapping[str, Content]]]
    ) -> list[Checkpoint | CkptdError]:
        """Save to several lineages in one call, and return a checkpoint or an error for each.

        Each succeeds or fails by itself; those to one lineage are made in their order. A save that
        the daemon was too busy for is not repeated by itself.
        """
        request = v1.SaveBatchRequest()
        for thread, draft in saves:
            made = draft_of(draft).with_id(self._caller.new_id())
            request.saves.add(ref=thread.ref.pack(), draft=made.pack())
        answer = await self._caller.call(request, v1.SaveBatchResponse)
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
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield the checkpoints of all users of a tenant that match, without content."""
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
    ) -> AsyncGenerator[Event, None]:
        """Yield an event for every checkpoint of a tenant that becomes durable, and wait for more.

        It begins behind a cursor, or with what was saved since a time, or now; with began the first
        event has no id and says that nothing is missed from here on. When the connection breaks it
        continues behind the last event; none is missed and none comes twice. It ends with
        UnreachableError after too many attempts, and Event.cursor resumes it then. Users and
        threads have a watch of their own.
        """
        request = v1.WatchRequest(
            tenant=self._caller.tenant(tenant), cursor=cursor, since=pack_time(since)
        )
        return watch(self._caller, request, began)

    async def call(self, request: Message, answer: type[M]) -> M:
        """Make a call of the API that has one answer, with the retries of its rule."""
        return await self._caller.call(request, answer)
