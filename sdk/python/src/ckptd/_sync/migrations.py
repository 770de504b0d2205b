# Made from _async by tools/make_sync.py. Change it there.
"""Migrations of states to other schema versions, by the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ckptd import v1
from ckptd._sync.calls import Caller
from ckptd.errors import CkptdError, UnavailableError, from_detail


class Migrations:
    """Migrates the states of a tenant to other schema versions. Returns messages of the API.

    A set belongs to a tenant. With tenant "" it applies to all tenants without a set of their own,
    and installing it needs a right on the whole store.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def install(
        self,
        files: Mapping[str, bytes],
        *,
        tenant: str = "",
        digests: Iterable[v1.MigrationDigest] = (),
    ) -> list[v1.MigrationSet]:
        """Install the sets of a directory: contents by path, such as support/0002_rename.jq."""
        request = v1.InstallMigrationSetsRequest(tenant=tenant, digests=digests)
        for path, data in files.items():
            request.files.add(path=path, data=data)
        return list((self._caller.call(request, v1.InstallMigrationSetsResponse)).sets)

    def sets(self, tenant: str = "") -> list[v1.MigrationSet]:
        """Return all installed sets, or the sets that apply to a tenant."""
        request = v1.ListMigrationSetsRequest(tenant=tenant)
        return list((self._caller.call(request, v1.ListMigrationSetsResponse)).sets)

    def remove(self, kind: str, tenant: str = "") -> None:
        """Remove a set. Migrated states stay as they are."""
        request = v1.RemoveMigrationSetRequest(tenant=tenant, kind=kind)
        self._caller.call(request, v1.RemoveMigrationSetResponse)

    def status(
        self, spec: v1.MigrationSpec | None = None, tenant: str | None = None
    ) -> list[v1.MigrationGroup]:
        """Count the heads of a tenant's threads by kind and version."""
        request = v1.GetMigrationStatusRequest(tenant=self._caller.tenant(tenant), spec=spec)
        answer = self._caller.last(request, v1.GetMigrationStatusResponse, lambda _: True)
        return list(answer.groups)

    def plan(
        self, spec: v1.MigrationSpec | None = None, tenant: str | None = None
    ) -> v1.PlanMigrationResponse:
        """Return the plan of a job without running it."""
        request = v1.PlanMigrationRequest(tenant=self._caller.tenant(tenant), spec=spec)
        return self._caller.last(request, v1.PlanMigrationResponse, lambda _: True)

    def start(
        self,
        action: v1.MigrationAction,
        spec: v1.MigrationSpec | None = None,
        *,
        id: str = "",  # noqa: A002
        all: bool = False,  # noqa: A002
        pace: v1.MigrationPace | None = None,
        tenant: str | None = None,
    ) -> v1.MigrationJob:
        """Start or continue a job on the daemon. It does not depend on the caller."""
        request = v1.StartMigrationJobRequest(
            tenant=self._caller.tenant(tenant),
            action=action,
            id=id,
            spec=spec,
            all=all,
            pace=pace,
        )
        return (self._caller.call(request, v1.StartMigrationJobResponse)).job

    def job(self, id: str, tenant: str | None = None) -> v1.MigrationJob:  # noqa: A002
        """Return a job with its report."""
        request = v1.GetMigrationJobRequest(tenant=self._caller.tenant(tenant), id=id)
        return (self._caller.call(request, v1.GetMigrationJobResponse)).job

    def jobs(self, tenant: str | None = None) -> list[v1.MigrationJob]:
        """Return the jobs of a tenant, the oldest first, without reports."""
        request = v1.ListMigrationJobsRequest(tenant=self._caller.tenant(tenant))
        return list((self._caller.call(request, v1.ListMigrationJobsResponse)).jobs)

    def watch(
        self,
        id: str,  # noqa: A002
        tenant: str | None = None,
        *,
        on_progress: Callable[[v1.MigrationJob], None] | None = None,
    ) -> v1.MigrationJob:
        """Wait for the end of a job, and return it with its report.

        on_progress gets the job whenever it advances. The wait survives a broken connection and a
        restart of the daemon.
        """
        request = v1.WatchMigrationJobRequest(tenant=self._caller.tenant(tenant), id=id)
        job: v1.MigrationJob | None = None
        with self._caller.resumed(lambda: request, v1.WatchMigrationJobResponse) as stream:
            while (message := stream.next()) is not None:
                stream.progress, job = True, message.job
                if on_progress is not None:
                    on_progress(job)
        if job is None or job.state == "running":
            raise UnavailableError("the stream ended before the job did")
        return job

    def cancel(self, id: str, tenant: str | None = None) -> v1.MigrationJob:  # noqa: A002
        """Stop a job, and return it when it has stopped."""
        request = v1.CancelMigrationJobRequest(tenant=self._caller.tenant(tenant), id=id)
        return (self._caller.call(request, v1.CancelMigrationJobResponse)).job

    @staticmethod
    def error(m: v1.MigrationJob | v1.MigrationGroup) -> CkptdError | None:
        """Return the error of a job or of a group in a plan, or None."""
        if not m.HasField("error"):
            return None
        return from_detail(m.error.message, m.error.detail)
