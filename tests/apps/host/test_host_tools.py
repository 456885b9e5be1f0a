"""`Host` and the server's list of tools: order, merging, failures; and leaving the server whatever happens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.host_server import TOOL, HandServer

from mcpd import Callbacks, Host
from mcpd.apps.host.view import ViewPhase
from mcpd.errors import RemoteError

CHANGED = "notifications/tools/list_changed"


def named(*names: str) -> dict[str, Any]:
    return {"tools": [{**TOOL, "name": name} for name in names]}


async def test_an_older_list_never_replaces_a_newer_one() -> None:
    """APP-H-03: visibility is that of the newest list."""
    server = HandServer()
    async with Host(server.near) as host:
        server.handlers["tools/list"] = lambda request: None
        refreshing = asyncio.ensure_future(host.refresh_tools())
        older = await server.hears("tools/list", 2)
        server.handlers["tools/list"] = lambda request: server.result(request, named("newer"))
        following = asyncio.ensure_future(host.refresh_tools())
        await host.client.ping()  # the newer one would be here by now
        server.result(older, named("older"))
        await asyncio.gather(refreshing, following)
        assert host.find_tool("newer") is not None
        assert host.find_tool("older") is None


async def test_changes_while_a_list_is_read_are_one_more_reading() -> None:
    server, told = HandServer(), asyncio.Queue[str]()
    async with Host(server.near, callbacks=Callbacks(list_changed=told.put_nowait)) as host:
        server.handlers["tools/list"] = lambda request: None
        server.tools_changed()
        first = await server.hears("tools/list", 2)
        for _ in range(100):
            server.tools_changed()
        server.notify("notifications/prompts/list_changed")
        assert await told.get() == "prompts", "what else is told does not wait for the list"
        server.handlers["tools/list"] = lambda request: server.result(request, named("last"))
        server.result(first, named("first"))
        assert [await told.get(), await told.get()] == ["tools", "tools"]
        assert host.find_tool("last") is not None
        await asyncio.gather(*(host.refresh_tools() for _ in range(100)))
        # One to open, two for the changes; one for who came first, one for all who came meanwhile.
        assert len(server.of("tools/list")) == 5


async def test_a_change_is_told_though_the_list_cannot_be_read() -> None:
    """1.2: Views and the program hear of a change; the old list holds."""
    server, told = HandServer(), asyncio.Queue[str]()

    def callback(kind: str) -> None:
        told.put_nowait(kind)
        raise ValueError("the program's own fault")

    async with Host(server.near, callbacks=Callbacks(list_changed=callback)) as host:
        heard: list[str] = []
        view = await host.open_view(host.begin_call("t"), lambda text: heard.append(json.loads(text).get("method")))
        params = {"appInfo": {"name": "v", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"}
        view.receive(json.dumps({"jsonrpc": "2.0", "id": "i", "method": "ui/initialize", "params": params}))
        view.receive('{"jsonrpc":"2.0","method":"ui/notifications/initialized"}')
        server.handlers["tools/list"] = server.error
        for count in (1, 2):
            server.tools_changed()
            assert await told.get() == "tools"
            assert heard.count(CHANGED) == count
        with pytest.raises(RemoteError):
            await host.refresh_tools()
        assert host.find_tool("t") is not None
        server.handlers["tools/list"] = lambda request: server.result(request, named("next"))
        server.tools_changed()
        assert await told.get() == "tools"
        assert host.find_tool("next") is not None
        view.lost("the test is over")


async def test_a_host_closes_while_it_waits_for_a_list() -> None:
    server = HandServer()
    async with Host(server.near):
        server.handlers["tools/list"] = lambda request: None
        server.tools_changed()
        await server.hears("tools/list", 2)
    assert server.of("notifications/cancelled")


async def test_a_host_whose_closing_is_cancelled_leaves_the_server() -> None:
    """The View is silent, and whoever closes the host does not wait for it."""
    server = HandServer()
    host = Host(server.near)
    await host.open()
    torn = asyncio.Event()
    view = await host.open_view(host.begin_call("t"), lambda text: torn.set() if "teardown" in text else None)
    params = {"appInfo": {"name": "v", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"}
    view.receive(json.dumps({"jsonrpc": "2.0", "id": "i", "method": "ui/initialize", "params": params}))
    view.receive('{"jsonrpc":"2.0","method":"ui/notifications/initialized"}')
    assert view.state is ViewPhase.LIVE
    closing = asyncio.ensure_future(host.aclose())
    await torn.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.sleep(0)  # the channel delivers its end on the next turn
    assert server.is_closed
    assert host.views == []
    await host.aclose()


async def test_a_callback_may_close_the_host() -> None:
    server, closed = HandServer(), asyncio.Event()

    async def leave(kind: str) -> None:
        await host.aclose()
        closed.set()

    host = Host(server.near, callbacks=Callbacks(list_changed=leave))
    await host.open()
    server.tools_changed()
    async with asyncio.timeout(60):
        await closed.wait()
    await asyncio.sleep(0)
    assert server.is_closed
