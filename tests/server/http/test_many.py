"""Thousands of clients that mostly wait: what each costs, how soon all of them hear of a change, and what stays."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.http_peer import Peer, initialize, modern, post, request

MANY = 2000
MORE = 500
"""Those that come after the many."""
TESTS = Path(__file__).resolve().parent.parent.parent

SERVER = """
import ctypes  # mcpd loads it itself, a moment after the start: not while blocks are counted
import gc, resource, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
from support.http_stage import Stage
from mcpd.server.http import HttpSettings

stage = Stage()

@stage.server.tool
async def count_objects() -> dict[str, int]:
    gc.collect()
    blocks = sys.getallocatedblocks()  # before what is made to count
    names = [type(one).__name__ for one in gc.get_objects()]
    kinds = ("HttpSession", "ServerConnection", "EventStreamResponse", "ResumableStream", "Http1Protocol")
    counted = {name: names.count(name) for name in kinds}
    return {**counted, "blocks": blocks}

stage.server.run(
    http="127.0.0.1:0",
    announce=lambda url: print(url, file=sys.stderr, flush=True),
    http_settings=HttpSettings(session_idle_timeout=20.0),
)
"""


class Crowd:
    """Clients of one server process."""

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.peers: list[Peer] = []

    def kilobytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.number))
        self.peers.append(peer)
        return peer

    async def leave(self) -> None:
        """Everybody goes."""
        for peer in self.peers:
            peer.abort()
        for peer in self.peers:
            await peer.aclose()
        self.peers.clear()

    async def each(self, one: Callable[[], Awaitable[Any]], many: int = MANY) -> tuple[list[Any], float]:
        """Many of them, and the kilobytes that each took."""
        before = self.kilobytes()
        found: list[Any] = []
        for _ in range(0, many, 50):
            found += await asyncio.gather(*(one() for _ in range(50)))
        await asyncio.sleep(0.2)
        return found, (self.kilobytes() - before) / many

    async def session(self) -> str:
        peer = await self.connect()
        id = (await peer.ask(post(initialize())))["mcp-session-id"]
        await peer.ask(post({"jsonrpc": "2.0", "method": "notifications/initialized"}, {"Mcp-Session-Id": id}))
        await peer.aclose()
        return id

    async def idle(self) -> Peer:
        peer = await self.connect()
        await peer.ask(modern("tools/list"))
        return peer

    async def listen(self) -> Peer:
        peer = await self.connect()
        peer.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        await peer.head()
        await peer.message()
        return peer

    async def get(self, id: str) -> Peer:
        peer = await self.connect()
        peer.send(request("GET", "/mcp", [("Accept", "text/event-stream"), ("Mcp-Session-Id", id)]))
        head = await peer.head()
        assert head.status == 200
        await peer.event()
        return peer

    async def delete(self, id: str) -> None:
        peer = await self.connect()
        peer.send(request("DELETE", "/mcp", [("Mcp-Session-Id", id)]))
        assert (await peer.head()).status == 204
        await peer.aclose()

    async def come_and_go(self, many: int) -> None:
        """Some more sessions with a stream, which end in order, and listeners, which do not."""
        ids, _ = await self.each(self.session, many)
        remaining, ending = iter(ids), iter(ids)
        await self.each(lambda: self.get(next(remaining)), many)
        await self.each(self.listen, many)
        await self.each(lambda: self.delete(next(ending)), many)
        await self.leave()

    async def emptied(self, most_blocks: int = sys.maxsize) -> dict[str, int]:
        """The objects once all have left and been forgotten, and no more blocks of memory are in use than these."""
        async with asyncio.timeout(120):
            while True:
                left = await self.objects()
                # Of the connections one is that of the request that counts them; others are just ending.
                is_empty = not left["HttpSession"] and not left["EventStreamResponse"] and left["Http1Protocol"] < 3
                if is_empty and left["blocks"] < most_blocks:
                    return left
                await asyncio.sleep(0.5)

    async def objects(self) -> dict[str, int]:
        peer = await self.connect()
        answer = await peer.ask(modern("tools/call", {"name": "count_objects"}))
        await peer.aclose()
        counted: dict[str, int] = json.loads(answer.json["result"]["content"][0]["text"])
        return counted


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
@pytest.mark.timeout(400)
def test_2000_sessions_and_2000_listeners(child: Child) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 2 * MANY + 200:
        pytest.skip(f"needs {2 * MANY + 200} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_wait_together(child))


async def _wait_together(child: Child) -> None:
    env = {**child.env, "PYTHONPATH": os.pathsep.join([str(TESTS), child.env["PYTHONPATH"]])}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, env=env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    crowd = Crowd(int((await process.stderr.readline()).split(b":")[2].partition(b"/")[0]), process.pid)
    try:
        for _ in range(20):
            await (await crowd.idle()).aclose()
        # What is imported for the first session, stream and listener is no part of what many of them leave.
        first = await crowd.session()
        await crowd.get(first)
        await crowd.listen()
        await crowd.delete(first)
        await crowd.leave()
        before = await crowd.emptied()
        # In this order each is measured in memory that nobody gave back before.
        ids, of_a_session = await crowd.each(crowd.session)
        # Sessions without a stream end by themselves, and a busy machine is slow: these come first.
        remaining = iter(ids)
        streams, _ = await crowd.each(lambda: crowd.get(next(remaining)))
        listeners, of_a_listener = await crowd.each(crowd.listen)
        idle, of_a_connection = await crowd.each(crowd.idle)
        for peer in idle:
            await peer.aclose()
        print(f"KiB: session {of_a_session:.1f}, listener {of_a_listener:.1f}, connection {of_a_connection:.1f}")
        assert of_a_session < 10
        # With its connection: one that waits keeps nothing of its last request, a listener goes on with its own.
        assert of_a_connection < 10.5
        assert of_a_listener < 22
        changing = await crowd.connect()
        await changing.ask(modern("tools/call", {"name": "change"}))
        heard = await asyncio.gather(*(peer.message() for peer in listeners + streams))
        assert all(message["method"] == "notifications/tools/list_changed" for message in heard)
        full = crowd.kilobytes()
        await crowd.leave()
        left = await crowd.emptied()
        assert (left["ResumableStream"], left["ServerConnection"]) == (0, 1)
        # All that was taken is given back, but for what is made once and the lists of free objects that asyncio and
        # uvloop keep, of 250 of a kind.
        print(f"blocks of memory: {before['blocks']} before, {left['blocks']} after")
        assert left["blocks"] - before["blocks"] < MANY
        assert crowd.kilobytes() <= full
        # Those are full now: who comes now leaves nothing at all.
        await crowd.come_and_go(MORE)
        again = await crowd.emptied(left["blocks"] + MORE // 5)
        print(f"blocks of memory: {again['blocks']} after {MORE} more of each")
        assert again["blocks"] - left["blocks"] < MORE // 5
        process.terminate()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        await crowd.leave()
        if process.returncode is None:
            process.kill()
            await process.wait()
