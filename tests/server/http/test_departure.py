"""A request that takes long hears that its client has left, on our own connections without a task for that."""

from __future__ import annotations

import asyncio

from support.clock import until
from support.http_peer import Session, modern, request, serving

from mcpd import Server

LISTEN = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})


def watchers() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "mcpd-watch"]


async def test_a_call_ends_when_its_client_leaves() -> None:
    server, started, ended = Server("waits"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(server) as port:
        peer = await port.connect()
        peer.send(modern("tools/call", {"name": "wait", "arguments": {}}))
        await started.wait()
        await asyncio.sleep(0)
        assert not watchers()
        peer.abort()
        await asyncio.wait_for(ended.wait(), 5)


async def test_a_listener_that_leaves_is_forgotten() -> None:
    server = Server("told")

    @server.tool
    def one() -> None: ...

    async with serving(server) as port:
        core = port.listener.app.core
        peers = [await port.connect() for _ in range(2)]
        for peer in peers:
            peer.send(LISTEN)
            await peer.head()
            await peer.message()
        assert len(core.listening) == len(core.open) == len(server._connections) == 2
        assert not watchers()
        peers[0].abort()
        await until(lambda: len(core.listening) == len(core.open) == len(server._connections) == 1)
        server.catalog.on_change("tools")
        assert (await peers[1].message())["method"] == "notifications/tools/list_changed"


async def test_a_request_behind_a_listener_is_answered_after_it() -> None:
    """While it waits its connection has no parser; what comes then is read by a new one."""
    server = Server("told")

    @server.tool
    def one() -> None: ...

    async with serving(server) as port:
        peer = await port.connect()
        peer.send(LISTEN)
        await peer.head()
        await peer.message()
        (connection,) = port.listener._state.connections
        assert connection._parser is None
        peer.send(modern("tools/list"))
        await until(lambda: len(connection._queue) == 1)
        port.listener.app.end_streams()
        assert "result" in await peer.message()


async def test_a_stream_of_a_session_that_leaves_is_left() -> None:
    async with serving(Server("streams")) as port:
        session = Session(port, "2025-11-25")
        await session.open()
        peer = await port.connect()
        peer.send(request("GET", "/mcp", [("Accept", "text/event-stream"), ("Mcp-Session-Id", session.id)]))
        await peer.head()
        (served,) = port.listener.app.sessions
        assert (served.busy, len(served.listening)) == (1, 1)
        assert not watchers()
        peer.abort()
        await until(lambda: (served.busy, len(served.listening)) == (0, 0))
