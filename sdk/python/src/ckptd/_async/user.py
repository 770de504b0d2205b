"""The handle of a user."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from typing import BinaryIO, TypeVar

from ckptd import v1
from ckptd._async import net
from ckptd._async.calls import Caller
from ckptd._async.thread import AsyncThread
from ckptd._async.watch import watch
from ckptd._failures import Failure
from ckptd._rules import METHODS
from ckptd._types import Blob, Checkpoint, Event, Ref, ThreadInfo, pack_time, unpack_time

T = TypeVar("T")

# Bytes of a blob in one message.
_PIECE = 256 << 10


class AsyncUser:
    """A handle on one user of a tenant. Tasks can share it."""

    def __init__(self, caller: Caller, tenant: str, name: str) -> None:
        self._caller = caller
        self.tenant = tenant
        self.name = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tenant!r}, {self.name!r})"

    def thread(self, name: str, *, namespace: str = "") -> AsyncThread:
        """Return the handle of a thread."""
        return AsyncThread(self._caller, Ref(self.tenant, self.name, name, namespace))

    def threads(
        self,
        *,
        prefix: str = "",
        status: str = "",
        count: bool = False,
        after: str = "",
        by_activity: bool = False,
        active_at: datetime | None = None,
        limit: int = 0,
    ) -> AsyncGenerator[ThreadInfo, None]:
        """Yield the threads of the user by name, or the most recently active first.

        count adds the number of checkpoints, which is slow. after skips the threads up to a name;
        with by_activity, also pass that thread's ThreadInfo.active as active_at.
        """

        def ask(left: int, token: str) -> v1.ListThreadsRequest:
            return v1.ListThreadsRequest(
                tenant=self.tenant,
                user=self.name,
                prefix=prefix,
                status=status,
                count=count,
                after=after,
                by_activity=by_activity,
                active_at=pack_time(active_at),
                page_size=left,
                page_token=token,
            )

        return self._caller.pages(
            ask,
            v1.ListThreadsResponse,
            lambda m: ([ThreadInfo.unpack(t) for t in m.threads], m.next_page_token),
            limit,
        )

    async def latest(
        self,
        *,
        channels: Sequence[str] | None = None,
        headers_only: bool = False,
        schema: int = 0,
        down: bool = False,
    ) -> Checkpoint:
        """Return the newest checkpoint over all threads, by time."""
        request = v1.LoadNewestRequest(
            tenant=self.tenant,
            user=self.name,
            headers_only=headers_only or (channels is not None and not channels),
            channels=channels,
            schema=schema,
            down=down,
        )
        answer = await self._caller.call(request, v1.LoadNewestResponse)
        return Checkpoint.unpack(answer.checkpoint)

    def query(
        self, where: v1.Filter | None = None, *, limit: int = 0
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield the matching checkpoints of all threads, newest first, without content."""
        request = v1.QueryRequest(tenant=self.tenant, user=self.name, filter=where)
        return query(self._caller, request, limit)

    def list_by_id(
        self,
        thread: str = "",
        *,
        namespace: str | None = None,
        id: str = "",  # noqa: A002
        before: str = "",
        meta: str = "",
        where: v1.Filter | None = None,
        data: bool = False,
        channels: Sequence[str] | None = None,
        writes: bool = False,
        limit: int = 0,
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield checkpoints of a namespace, a thread, or all threads, the greatest id first.

        Without a thread, the list is over all threads; without a namespace, over all of them. id
        limits it to that id, and before to smaller ones. meta is a JSON object that the metadata
        must contain, as PostgreSQL's @> defines it. data adds the content, writes the pending
        writes.
        """
        request = v1.ListByIDRequest(
            tenant=self.tenant,
            user=self.name,
            thread=thread,
            namespace=namespace,
            id=id,
            before=before,
            meta=meta,
            filter=where,
            data=data and (channels is None or bool(channels)),
            channels=channels,
            writes=writes,
        )
        return by_id(
            self._caller, request, limit, lambda e: Checkpoint.unpack(e.checkpoint, e.writes)
        )

    async def delete_run(self, run_id: str) -> v1.DeleteRunResponse:
        """Remove all checkpoints of a run from all threads."""
        request = v1.DeleteRunRequest(tenant=self.tenant, user=self.name, run_id=run_id)
        return await self._caller.call(request, v1.DeleteRunResponse)

    def watch(self, cursor: str = "", *, began: bool = False) -> AsyncGenerator[Event, None]:
        """Yield an event for every checkpoint of the user. Client.watch has the details."""
        request = v1.WatchRequest(tenant=self.tenant, user=self.name, cursor=cursor)
        return watch(self._caller, request, began)

    async def put_blob(self, content: bytes | BinaryIO) -> Blob:
        """Store bytes, or the rest of a file, and return once they are durable.

        After a broken connection a seekable file is read again; for others the call fails.
        """
        file = io.BytesIO(content) if isinstance(content, bytes | bytearray) else content
        start = file.tell() if file.seekable() else None
        first = v1.PutBlobRequest(tenant=self.tenant, user=self.name)
        retry = self._caller.retry(METHODS[v1.PutBlobRequest], first)
        while True:
            retry.check()
            try:
                return await self._put_blob(first, file)
            except Failure as f:
                wait = retry.failed(f)
                if start is None:
                    assert retry.error is not None
                    raise retry.error from f
                await net.seek_file(file, start)
            await self._caller.pause(retry, wait)

    async def _put_blob(self, first: v1.PutBlobRequest, file: BinaryIO) -> Blob:
        method = METHODS[v1.PutBlobRequest]
        upload = await self._caller.wire.upload(method, v1.PutBlobResponse)
        try:
            wanted = await upload.send(self._caller.encode(first))
            while wanted and (data := await net.read_file(file, _PIECE)):
                message = v1.PutBlobRequest(data=data)
                wanted = await upload.send(self._caller.encode(message))
            answer = await upload.answer()
        finally:
            upload.close()
        return Blob(answer.id, answer.size)

    async def get_blob(self, id: str) -> AsyncGenerator[bytes, None]:  # noqa: A002
        """Yield the content of a blob in pieces, and resume after a broken connection.

        The content is complete only if the generator ends without an error.
        """
        request = v1.GetBlobRequest(tenant=self.tenant, user=self.name, id=id)
        had = skip = 0

        def ask() -> v1.GetBlobRequest:
            nonlocal skip
            skip = had  # each attempt begins with the first byte
            return request

        with self._caller.resumed(ask, v1.GetBlobResponse) as stream:
            while (message := await stream.next()) is not None:
                data = message.data[skip:]
                skip -= min(skip, len(message.data))
                if data:
                    stream.progress = True
                    had += len(data)
                    yield data

    async def read_blob(self, id: str) -> bytes:  # noqa: A002
        """Return the content of a blob."""
        content = bytearray()
        async for data in self.get_blob(id):
            content += data
        return bytes(content)

    async def stat_blob(self, id: str) -> Blob:  # noqa: A002
        """Describe a blob without reading it."""
        request = v1.StatBlobRequest(tenant=self.tenant, user=self.name, id=id)
        m = await self._caller.call(request, v1.StatBlobResponse)
        return Blob(m.id, m.size, unpack_time(m.created))


def by_id(
    caller: Caller,
    request: v1.ListByIDRequest,
    limit: int,
    unpack: Callable[[v1.Entry], T],
) -> AsyncGenerator[T, None]:
    """Yield the entries of a list by id."""

    def ask(left: int, token: str) -> v1.ListByIDRequest:
        page = v1.ListByIDRequest()
        page.CopyFrom(request)
        page.page_size, page.page_token = left, token
        return page

    return caller.pages(
        ask,
        v1.ListByIDResponse,
        lambda m: ([unpack(e) for e in m.entries], m.next_page_token),
        limit,
    )


def query(caller: Caller, request: v1.QueryRequest, limit: int) -> AsyncGenerator[Checkpoint, None]:
    """Yield the checkpoints that match."""

    def ask(left: int, token: str) -> v1.QueryRequest:
        page = v1.QueryRequest()
        page.CopyFrom(request)
        page.page_size, page.page_token = left, token
        return page

    return caller.pages(
        ask,
        v1.QueryResponse,
        lambda m: ([Checkpoint.unpack(c) for c in m.checkpoints], m.next_page_token),
        limit,
    )
