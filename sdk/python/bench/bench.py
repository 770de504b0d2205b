"""Compares the clients with http.client of the standard library, on a Unix socket.

Prints the median of each call and its ratio to http.client. The three take turns, so that other
load on the machine affects all of them alike.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import daemons

from ckptd import AsyncClient, Client, v1

THREAD = "bench"
ROUNDS = int(os.environ.get("CKPTD_BENCH_ROUNDS", "40"))
PATH = "/ckptd.v1.CheckpointService/Load"
HEADERS = {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"}


class Plain(http.client.HTTPConnection):
    """http.client on a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def load(self, thread: str) -> bytes:
        """Make the same call as the clients, and return the content."""
        ref = v1.Ref(tenant="default", user="local", thread=thread)
        body = v1.LoadRequest(ref=ref).SerializeToString()
        self.request("POST", PATH, body, HEADERS)
        answer = v1.LoadResponse.FromString(self.getresponse().read())
        return answer.checkpoint.channels[0].data


async def compare(url: str, thread: str, calls: int) -> dict[str, float]:
    """Return the median of a load, in microseconds, by client."""
    plain, sync = Plain(url.removeprefix("unix://")), Client(url)
    async_client = AsyncClient(url)
    sync_thread, async_thread = sync.thread(thread), async_client.thread(thread)
    times: dict[str, list[float]] = {"http.client": [], "Client": [], "AsyncClient": []}
    clock = time.perf_counter
    for _ in range(ROUNDS):
        for _ in range(calls):
            start = clock()
            plain.load(thread)
            times["http.client"].append(clock() - start)
        for _ in range(calls):
            start = clock()
            sync_thread.load()
            times["Client"].append(clock() - start)
        for _ in range(calls):
            start = clock()
            await async_thread.load()
            times["AsyncClient"].append(clock() - start)
    plain.close()
    sync.close()
    await async_client.aclose()
    return {name: statistics.median(t) * 1e6 for name, t in times.items()}


def main() -> None:
    """Run the comparisons against a daemon."""
    program = daemons.build("ckptd", "./cmd/ckptd")
    with daemons.serve(program) as daemon:
        with Client(daemon.socket) as client:
            client.thread("small").save({"state": b"x" * 100})
            client.thread("large").save({"state": os.urandom(1 << 20)})
        for about, thread, calls in (("small load", "small", 50), ("load of 1 MiB", "large", 5)):
            medians = asyncio.run(compare(daemon.socket, thread, calls))
            base = medians["http.client"]
            for name, median in medians.items():
                print(f"{about:14} {name:12} {median:8.0f} us {median / base:5.2f} x")


if __name__ == "__main__":
    main()
