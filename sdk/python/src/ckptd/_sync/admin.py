# Made from _async by tools/make_sync.py. Change it there.
"""Administration: users, tokens, retention, garbage collection, the audit log."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from datetime import datetime, timedelta

from ckptd import v1
from ckptd._sync.calls import Caller
from ckptd._types import pack_duration, pack_time


class Admin:
    """Administers the store, its users and tokens. Returns messages of the API."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def status(self) -> v1.GetStatusResponse:
        """Return counters and latencies of the daemon."""
        return self._caller.call(v1.GetStatusRequest(), v1.GetStatusResponse)

    def who_am_i(self) -> v1.WhoAmIResponse:
        """Return the identity of the caller and its grants."""
        return self._caller.call(v1.WhoAmIRequest(), v1.WhoAmIResponse)

    def tenants(self) -> Generator[str, None, None]:
        """Yield the tenants that have users, in no particular order."""
        return self._caller.distinct(
            v1.ListTenantsRequest(), v1.ListTenantsResponse, lambda m: m.tenants
        )

    def users(self, tenant: str | None = None) -> Generator[str, None, None]:
        """Yield the users of a tenant that have keys, in no particular order."""
        request = v1.ListUsersRequest(tenant=self._caller.tenant(tenant))
        return self._caller.distinct(request, v1.ListUsersResponse, lambda m: m.users)

    def create_user(self, user: str, tenant: str | None = None) -> None:
        """Create the keys of a user, as the first save does."""
        request = v1.CreateUserRequest(tenant=self._caller.tenant(tenant), user=user)
        self._caller.call(request, v1.CreateUserResponse)

    def stats(self, user: str | None = None, tenant: str | None = None) -> v1.GetStatsResponse:
        """Return statistics about the data of a user."""
        request = v1.GetStatsRequest(
            tenant=self._caller.tenant(tenant), user=self._caller.user(user)
        )
        return self._caller.call(request, v1.GetStatsResponse)

    def create_token(self, note: str, grants: Iterable[v1.Grant]) -> v1.CreateTokenResponse:
        """Create a bearer token. Only this answer holds the secret."""
        request = v1.CreateTokenRequest(note=note, grants=grants)
        return self._caller.call(request, v1.CreateTokenResponse)

    def tokens(self) -> list[v1.Token]:
        """Return the tokens, without their secrets."""
        answer = self._caller.call(v1.ListTokensRequest(), v1.ListTokensResponse)
        return list(answer.tokens)

    def revoke_token(self, id: str, *, keep_children: bool = False) -> list[str]:  # noqa: A002
        """Revoke a token and the tokens made with it, and return their ids."""
        request = v1.RevokeTokenRequest(id=id, keep_children=keep_children)
        return list((self._caller.call(request, v1.RevokeTokenResponse)).revoked)

    def retention(self, tenant: str | None = None) -> v1.RetentionPolicy:
        """Return the retention policy that garbage collection applies to a tenant."""
        request = v1.GetRetentionRequest(tenant=self._caller.tenant(tenant))
        return (self._caller.call(request, v1.GetRetentionResponse)).policy

    def set_retention(self, policy: v1.RetentionPolicy, tenant: str | None = None) -> None:
        """Set the retention policy of a tenant; an empty one keeps everything."""
        request = v1.SetRetentionRequest(tenant=self._caller.tenant(tenant), policy=policy)
        self._caller.call(request, v1.SetRetentionResponse)

    def collect_garbage(
        self,
        tenant: str = "",
        user: str = "",
        *,
        dry_run: bool = False,
        compact: bool = False,
        grace: timedelta | float | None = None,
        on_progress: Callable[[v1.CollectGarbageResponse], None] | None = None,
    ) -> v1.GarbageReport:
        """Apply the policies, delete expired threads, and remove unreferenced data.

        In the whole store, a tenant or a user. on_progress gets the messages before the report.
        """
        request = v1.CollectGarbageRequest(
            tenant=tenant,
            user=user,
            dry_run=dry_run,
            compact=compact,
            grace=pack_duration(grace),
        )
        answer = self._caller.last(
            request, v1.CollectGarbageResponse, lambda m: m.HasField("report"), on_progress
        )
        return answer.report

    def verify(
        self,
        tenant: str = "",
        user: str = "",
        thread: str = "",
        *,
        deep: bool = False,
        on_progress: Callable[[v1.VerifyResponse], None] | None = None,
    ) -> v1.VerifyReport:
        """Check the stored data and report all damage; deep restores every state."""
        request = v1.VerifyRequest(tenant=tenant, user=user, thread=thread, deep=deep)
        answer = self._caller.last(
            request, v1.VerifyResponse, lambda m: m.HasField("report"), on_progress
        )
        return answer.report

    def read_audit(self, since: datetime | None = None) -> Generator[v1.AuditEntry, None, None]:
        """Yield the entries of the audit log since a time, the oldest first."""
        request = v1.ReadAuditRequest(since=pack_time(since))
        last = 0
        with self._caller.resumed(lambda: request, v1.ReadAuditResponse) as stream:
            while (message := stream.next()) is not None:
                for entry in message.entries:
                    if entry.number > last:
                        stream.progress, last = True, entry.number
                        yield entry
