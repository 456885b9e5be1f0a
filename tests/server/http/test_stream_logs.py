"""What a stream that lost its connection leaves on the backplane, where others have their memory too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.clock import Clock, until
from support.http_peer import Port, call, serving

from mcpd import Context, Server
from mcpd.protocol.state_keys import StateKeys
from mcpd.server.backplane.base import Backplane
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.backplane.node import Node
from mcpd.server.http import HttpSettings, nodes as module

STEPS, BYTES = 12, 20_000
MOST = 100_000


@asynccontextmanager
async def node(backplane: Backplane, door: asyncio.Event) -> AsyncIterator[Port]:
    server = Server("one of two", state_key=b"k" * 32)

    @server.tool
    async def tell_much(*, ctx: Context) -> str:
        ctx.close_stream()
        await door.wait()
        for step in range(STEPS):
            await ctx.progress(step, message="x" * BYTES)
        return "told"

    async with serving(server, HttpSettings(backplane=backplane, max_stored_bytes=MOST)) as port:
        yield port


async def test_it_is_bounded_by_bytes_and_has_the_answer() -> None:
    """SCALE-23: as what the node itself keeps is; else one client fills what all have."""
    backplane, door = MemoryBackplane(), asyncio.Event()
    async with node(backplane, door) as one, node(backplane, door) as other:
        session = await one.open()
        params = {"name": "tell_much", "arguments": {}, "_meta": {"progressToken": 7}}
        peer = await session.start(call("tools/call", params, 5))
        await peer.head()
        priming = await peer.event()
        assert priming is not None
        assert await peer.event() is None
        door.set()
        await until(lambda: any(b"told" in entry for log in backplane._logs.values() for _, entry in log))
        (kept,) = backplane._logs.values()
        sizes = [len(entry) for _, entry in kept]
        assert sum(sizes) <= MOST < sum(sizes) + BYTES + 1000

        session.port = other
        again = await session.listen(priming["id"])
        messages = []
        while (event := await again.event()) is not None:
            messages.append(event["data"])
        assert "told" in messages[-1]


async def test_an_event_that_is_larger_than_all_is_still_there() -> None:
    """It may be the answer."""
    backplane = MemoryBackplane()
    relay = module._Relay(Node(backplane, StateKeys([b"k" * 32])), "log", 256, MOST)
    await relay._append([(1, b"x")])
    await relay._append([(2, b"y" * MOST)])
    assert [number for number, _ in map(module._decode, [entry for _, entry in await backplane.read("log")])] == [2]


async def test_who_follows_and_leaves_again_and_again_is_forgotten() -> None:
    """SCALE-23: also while nothing is said on the stream."""
    clock = Clock()
    relay = module._Relay(Node(MemoryBackplane(), StateKeys([b"k" * 32])), "log", 256, MOST)
    for number in range(1000):
        relay.follow(str(number), "node")
        await clock.advance(module._FORGET / 10)
    assert len(relay._followers) <= 2 * module._MANY
