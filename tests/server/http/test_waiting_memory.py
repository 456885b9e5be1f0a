"""What a client that waits takes of the server's objects, in bytes: what is made anew for each shows here.

Counted are allocations in lines of mcpd, so that the client in the same process is none of them.
Resident memory, with what the event loop and the parser take, is `tests/bench/memory_rows.py`.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support.http_peer import Port, initialize, modern, post, request, serving

import mcpd
from mcpd import Server

pytestmark = pytest.mark.unmeasured  # measuring lines keeps a memory of its own for each frame that waits

MANY = 40
OURS = [str(Path(package.__file__).parent / "*") for package in (mcpd,)]


async def session(port: Port) -> None:
    assert (await port.ask(post(initialize()))).status == 200


async def connection(port: Port) -> None:
    assert (await (await port.connect()).ask(modern("tools/list"))).status == 200


async def listener(port: Port) -> None:
    peer = await port.connect()
    peer.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    await peer.head()
    await peer.message()


async def stream(port: Port) -> None:
    id = (await port.ask(post(initialize())))["mcp-session-id"]
    peer = await port.connect()
    peer.send(request("GET", "/mcp", [("Accept", "text/event-stream"), ("Mcp-Session-Id", id)]))
    await peer.head()
    await peer.event()


@pytest.fixture
def traced() -> Iterator[None]:
    was_traced = tracemalloc.is_tracing()
    tracemalloc.start()
    yield
    if not was_traced:
        tracemalloc.stop()


def ours() -> int:
    gc.collect()
    found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, path) for path in OURS])
    return sum(trace.size for trace in found.traces)


@pytest.mark.parametrize(("make", "most"), [(session, 1000), (connection, 1000), (listener, 10_000), (stream, 8_700)])
@pytest.mark.usefixtures("traced")
async def test_a_client_that_waits_takes_no_more_than_recorded(
    make: Callable[[Port], Awaitable[None]], most: int
) -> None:
    server = Server("memory")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with serving(server) as port:
        for _ in range(MANY):  # the first make what all share
            await make(port)
        sizes = [ours()]
        for _ in range(3):
            for _ in range(MANY):
                await make(port)
            sizes.append(ours())
        # What the server makes once in a while, such as a larger table, is in one of the three.
        each = min(after - before for before, after in pairwise(sizes)) / MANY
    print(f"{each:.0f} bytes")
    assert each <= most
