"""The handle of a lineage, and sessions that save it step by step."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta

from ckptd import v1
from ckptd._async.calls import Caller
from ckptd._async.watch import watch
from ckptd._session import after_load, after_save, shorten
from ckptd._types import (
    Checkpoint,
    Content,
    Draft,
    Event,
    PendingWrite,
    Place,
    Ref,
    Write,
    draft_of,
    pack_duration,
    which,
)
from ckptd.errors import InvalidError, NeedFullError


class AsyncThread:
    """A handle on one lineage: a thread of a user and a namespace in it. Tasks can share it."""

    def __init__(self, caller: Caller, ref: Ref) -> None:
        self._caller = caller
        #: The lineage.
        self.ref = ref

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ref})"

    def session(self) -> AsyncSession:
        """Return a session, which sends only the differences between states."""
        return AsyncSession(self._caller, self)

    async def save(self, draft: Draft | Mapping[str, Content]) -> Checkpoint:
        """Add a checkpoint, and return it without content once it is durable.

        Any error but AmbiguousError means that nothing was saved. After AmbiguousError, a save with
        the same id finds out.
        """
        draft = draft_of(draft).with_id(self._caller.new_id())
        request = v1.SaveRequest(ref=self.ref.pack(), draft=draft.pack())
        answer = await self._caller.call(request, v1.SaveResponse)
        return Checkpoint.unpack(answer.checkpoint)

    async def load(
        self,
        place: Place = None,
        *,
        channels: Sequence[str] | None = None,
        headers_only: bool = False,
        writes: bool = False,
        schema: int = 0,
        down: bool = False,
        export: bool = False,
        have: Mapping[str, bytes] | None = None,
        history: Sequence[str] = (),
    ) -> Checkpoint:
        """Return a checkpoint with the content of all channels, or of the named ones.

        writes adds the pending writes. schema is the version to migrate the state to, and down
        allows steps back. Contents in have, from any checkpoint, are not sent again. history names
        channels to return the last value of, with the pending writes to them since.
        """
        request = v1.LoadRequest(
            ref=self.ref.pack(),
            which=which(place),
            headers_only=headers_only or (channels is not None and not channels),
            channels=channels,
            writes=writes,
            schema=schema,
            down=down,
            export=export or self._caller.options.export,
            history=history,
        )
        for name, data in (have or {}).items():
            request.have.add(channel=name, sha256=hashlib.sha256(data).digest())
        answer = await self._caller.call(request, v1.LoadResponse)
        cp = Checkpoint.unpack(answer.checkpoint, answer.writes)
        cp.histories = list(answer.histories)
        for m in answer.checkpoint.channels:
            if m.unchanged:
                if have is None or len(have.get(m.name, b"")) != m.size:
                    raise InvalidError(
                        f"the daemon left out channel {m.name!r}, which the caller lacks"
                    )
                cp.channels[m.name].data = have[m.name]
        return cp

    def history(
        self,
        *,
        start: str = "",
        branch: str = "",
        before: str = "",
        where: v1.Filter | None = None,
        data: bool = False,
        channels: Sequence[str] | None = None,
        by_id: bool = False,
        limit: int = 0,
        export: bool = False,
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield the checkpoints of the lineage, the newest first.

        start and branch limit it to a checkpoint, or the head of a branch, and its ancestors;
        before limits it to checkpoints saved before an id. data adds the content. With by_id the
        greatest id comes first, and before, which can be any text, limits it to smaller ids.
        """

        def ask(left: int, token: str) -> v1.ListRequest:
            request = v1.ListRequest(
                ref=self.ref.pack(),
                branch=branch,
                before=before,
                filter=where,
                data=data and (channels is None or bool(channels)),
                channels=channels,
                by_id=by_id,
                export=export or self._caller.options.export,
                page_size=left,
                page_token=token,
            )
            setattr(request, "from", start)
            return request

        return self._caller.pages(
            ask,
            v1.ListResponse,
            lambda m: ([Checkpoint.unpack(c) for c in m.checkpoints], m.next_page_token),
            limit,
        )

    async def tree(self) -> v1.GetTreeResponse:
        """Return the headers of all checkpoints and their relations."""
        return await self._caller.call(v1.GetTreeRequest(ref=self.ref.pack()), v1.GetTreeResponse)

    async def diff(self, old: Place, new: Place) -> v1.DiffResponse:
        """Compare two checkpoints."""
        request = v1.DiffRequest(ref=self.ref.pack(), to=which(new), **{"from": which(old)})
        return await self._caller.call(request, v1.DiffResponse)

    async def fork(self, place: Place, branch: str) -> Checkpoint:
        """Create a branch at a checkpoint, and return that without content."""
        request = v1.ForkRequest(ref=self.ref.pack(), branch=branch, **{"from": which(place)})
        answer = await self._caller.call(request, v1.ForkResponse)
        return Checkpoint.unpack(answer.checkpoint)

    async def branches(self) -> list[v1.Branch]:
        """Return the named heads in order of name."""
        request = v1.ListBranchesRequest(ref=self.ref.pack())
        return list((await self._caller.call(request, v1.ListBranchesResponse)).branches)

    async def set_branch(self, branch: str, place: Place) -> None:
        """Move a branch to a checkpoint, or create it there."""
        request = v1.SetBranchRequest(ref=self.ref.pack(), branch=branch, to=which(place))
        await self._caller.call(request, v1.SetBranchResponse)

    async def delete_branch(self, branch: str) -> None:
        """Delete a branch; its checkpoints stay."""
        request = v1.DeleteBranchRequest(ref=self.ref.pack(), branch=branch)
        await self._caller.call(request, v1.DeleteBranchResponse)

    async def set_labels(self, place: Place, labels: Mapping[str, str]) -> Checkpoint:
        """Set labels of a checkpoint or, with the value "", remove them; others stay."""
        request = v1.SetLabelsRequest(ref=self.ref.pack(), which=which(place), labels=labels)
        answer = await self._caller.call(request, v1.SetLabelsResponse)
        return Checkpoint.unpack(answer.checkpoint)

    async def put_writes(
        self,
        checkpoint_id: str,
        task: str,
        writes: Sequence[Write],
        *,
        path: str = "",
        ignore_existing: bool = False,
        generation: int = 0,
    ) -> v1.PutWritesResponse:
        """Add writes of a task to a checkpoint, which need not exist yet.

        A write replaces an earlier one with its index or, with ignore_existing, is dropped.
        """
        request = v1.PutWritesRequest(
            ref=self.ref.pack(),
            checkpoint_id=checkpoint_id,
            task=task,
            path=path,
            writes=[w.pack() for w in writes],
            ignore_existing=ignore_existing,
            generation=generation,
        )
        return await self._caller.call(request, v1.PutWritesResponse)

    async def writes(self, checkpoint_id: str) -> list[PendingWrite]:
        """Return the pending writes of a checkpoint."""
        request = v1.ListWritesRequest(ref=self.ref.pack(), checkpoint_id=checkpoint_id)
        answer = await self._caller.call(request, v1.ListWritesResponse)
        return [PendingWrite.unpack(w) for w in answer.writes]

    async def namespaces(self) -> list[str]:
        """Return the namespaces of the thread; the unnamed one is ""."""
        request = v1.ListNamespacesRequest(ref=self.ref.pack())
        return list((await self._caller.call(request, v1.ListNamespacesResponse)).namespaces)

    async def copy(self, to: str) -> None:
        """Copy the thread with all namespaces to one of the same user that does not exist yet."""
        await self._caller.call(v1.CopyRequest(ref=self.ref.pack(), to=to), v1.CopyResponse)

    async def delete(self) -> int:
        """Delete the thread with all namespaces, and return its new generation.

        If the handle names a namespace, only that is deleted.
        """
        request = v1.DeleteRequest(ref=self.ref.pack())
        return (await self._caller.call(request, v1.DeleteResponse)).generation

    async def prune(
        self,
        *,
        keep_last: int = 0,
        older_than: timedelta | float | None = None,
        keep_labelled: bool = False,
        remove: Sequence[str] = (),
        all_namespaces: bool = False,
        by_id: bool = False,
        erase: bool = False,
        dry_run: bool = False,
    ) -> v1.PruneResponse:
        """Remove checkpoints: those neither among the newest nor young enough, and those in remove.

        With by_id, the newest are those with the greatest ids instead of those saved last.
        erase wipes removed data from the disk, also that of earlier calls. dry_run only reports.
        """
        request = v1.PruneRequest(
            ref=self.ref.pack(),
            keep_last=keep_last,
            older_than=pack_duration(older_than),
            keep_labelled=keep_labelled,
            remove=remove,
            all_namespaces=all_namespaces,
            by_id=by_id,
            erase=erase,
            dry_run=dry_run,
        )
        return await self._caller.call(request, v1.PruneResponse)

    def watch(self, cursor: str = "", *, began: bool = False) -> AsyncGenerator[Event, None]:
        """Yield an event for every checkpoint of the thread. Client.watch has the details."""
        r = self.ref
        request = v1.WatchRequest(tenant=r.tenant, user=r.user, thread=r.thread, cursor=cursor)
        return watch(self._caller, request, began)


class AsyncSession:
    """Saves a thread step by step, and sends only the differences between states.

    The client keeps the contents that were saved or loaded last, up to cache_bytes for all its
    sessions. The result is always the checkpoint that the whole contents would have made: if the
    daemon has another base, the session sends them whole. Channels that hooks rewrite are always
    sent whole. A session is for one task at a time.
    """

    def __init__(self, caller: Caller, thread: AsyncThread) -> None:
        self._caller = caller
        self._thread = thread

    async def save(self, draft: Draft | Mapping[str, Content]) -> Checkpoint:
        """Save a draft with whole contents, as Thread.save does."""
        cache, ref = self._caller.cache, self._thread.ref
        whole = draft_of(draft).with_id(self._caller.new_id())  # the same for both attempts
        have = cache.of(ref)
        try:
            saved = await self._thread.save(shorten(whole, have))
        except NeedFullError:
            saved = await self._thread.save(whole)
        cache.set(ref, after_save(whole, saved, have))
        return saved

    async def load(self, place: Place = None, *, writes: bool = False) -> Checkpoint:
        """Load a checkpoint with all channels, without receiving known contents again."""
        cache, ref = self._caller.cache, self._thread.ref
        have = cache.of(ref)
        contents = {name: had.data for name, had in have.items()}
        loaded = await self._thread.load(place, writes=writes, have=contents)
        cache.set(ref, after_load(loaded, have))
        return loaded
