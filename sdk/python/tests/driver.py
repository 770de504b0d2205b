"""Plays the scripts of internal/conformance with a client of this package.

Run as `python driver.py sync|async`: tasks come on standard input, a line of JSON each, and results
go to standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

from both import client_of, close, done, each, listed
from google.protobuf import json_format
from google.protobuf.message import Message

from ckptd import CkptdError, Draft, Put, v1


class Driver:
    """Makes the calls of one task."""

    def __init__(self, kind: str, task: dict[str, Any]) -> None:
        options = task.get("client") or {}
        self.client = client_of(
            kind,
            task["address"],
            attempts=options.get("attempts") or 4,
            server_ids=options.get("noIds", False),
            backoff=0.001,
            max_backoff=0.001,
        )
        self.sessions: dict[str, Any] = {}

    async def play(self, call: dict[str, Any]) -> dict[str, Any]:
        ids: list[str] = []
        try:
            await self.make(call, ids)
        except CkptdError as e:
            print(f"  {type(e).__name__}: {e}", file=sys.stderr)
            return {"ids": ids, "reason": e.reason or "another"}
        return {"ids": ids}

    async def make(self, call: dict[str, Any], ids: list[str]) -> None:
        """Make a call, and append the ids of the checkpoints or events that it gives."""
        match call["method"]:
            case "CheckpointService/Save":
                m = read(call, v1.SaveRequest)
                saver = self.thread(m.ref)
                if call.get("session"):
                    saver = self.sessions.setdefault(m.ref.thread, saver.session())
                ids.append((await done(saver.save(draft_of(m.draft)))).id)
            case "CheckpointService/SaveBatch":
                saves = [
                    (self.thread(s.ref), draft_of(s.draft))
                    for s in read(call, v1.SaveBatchRequest).saves
                ]
                for r in await done(self.client.save_batch(saves)):
                    if isinstance(r, CkptdError):
                        raise r
                    ids.append(r.id)
            case "CheckpointService/Load":
                m = read(call, v1.LoadRequest)
                ids.append((await done(self.thread(m.ref).load(m.which))).id)
            case "CheckpointService/List":
                thread = self.thread(read(call, v1.ListRequest).ref)
                ids += [cp.id for cp in await listed(thread.history())]
            case "ThreadService/Delete":
                await done(self.thread(read(call, v1.DeleteRequest).ref).delete())
            case "ThreadService/Watch":
                m = read(call, v1.WatchRequest)
                user = self.client.user(m.user, tenant=m.tenant)
                async with contextlib.aclosing(each(user.watch(m.cursor))) as events:
                    async for event in events:
                        ids.append(event.id)
                        if len(ids) == call.get("take"):
                            break
            case method:
                raise CkptdError(f"the driver does not know {method}")

    def thread(self, ref: v1.Ref) -> Any:
        return self.client.thread(ref.thread, tenant=ref.tenant, user=ref.user)


def read(call: dict[str, Any], kind: Callable[[], Message]) -> Any:
    return json_format.ParseDict(call["request"], kind())


def draft_of(m: v1.Draft) -> Draft:
    """Return a draft of a script, which has whole channels."""
    return Draft(
        {c.name: Put(c.data, c.type or "bytes") for c in m.channels},
        id=m.id,
        expect_head=m.expect_head if m.HasField("expect_head") else None,
        generation=m.generation,
    )


async def play(kind: str, task: dict[str, Any]) -> list[dict[str, Any]]:
    driver = Driver(kind, task)
    try:
        return [await driver.play(call) for call in task["calls"]]
    finally:
        await close(driver.client)


def main() -> None:
    for line in sys.stdin:
        task = json.loads(line)
        print(task["name"], file=sys.stderr)
        print(json.dumps(asyncio.run(play(sys.argv[1], task))), flush=True)


if __name__ == "__main__":
    main()
