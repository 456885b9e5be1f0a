"""Views over WebSocket: who may connect to which address, how often, and what the end of the socket means.

A real WebSocket client connects; what it is answered before the upgrade is looked at as HTTP.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.host_program import ORIGIN, make_server
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode

from mcpd import Hooks, Host, HostOptions
from mcpd.apps.host.channels import Relay
from mcpd.apps.host.document import ViewDocument
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view import ViewPhase
from mcpd.apps.host.view.events import Closed, Failed
from mcpd.apps.host.view.policy import ViewLimits
from mcpd.errors import ConfigurationError

QUICK = HostOptions(limits=ViewLimits(teardown_seconds=0.05, message_bytes=1000))
HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "ui/initialize",
    "params": {"appInfo": {"name": "v", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "ui/notifications/initialized"}


@asynccontextmanager
async def relaying() -> AsyncIterator[tuple[Host, Relay, ToolCall]]:
    async with Host(make_server(), options=QUICK) as host:
        relay = await host.listen_views(":0", origin=ORIGIN)
        yield host, relay, await host.call_tool("forecast")


def socket(url: str, origin: str | None = ORIGIN, **more: Any) -> Any:
    return connect(url, origin=origin, proxy=None, compression=None, **more)


async def refusal(url: str, origin: str | None = ORIGIN, **more: Any) -> int:
    """The status of the answer to a handshake that fails."""
    with pytest.raises(InvalidStatus) as told:
        async with socket(url, origin, **more):
            pass
    return int(told.value.response.status_code)


async def say(wire: Any, message: Any) -> None:
    await wire.send(message if isinstance(message, str) else json.dumps(message))


async def hear(wire: Any) -> Any:
    frame = await wire.recv()
    assert isinstance(frame, str), "one message is one text frame"
    return json.loads(frame)


async def test_an_address_is_for_one_connection() -> None:
    """APP-X-08: unguessable, once, 410 afterwards, also while the first connection lives."""
    async with relaying() as (_, relay, call):
        view, url = await relay.open_view(call)
        other, second = await relay.open_view(call)
        assert url.startswith(f"{relay.base_url}/view/")
        assert url != second
        assert len(url.rpartition("/")[2]) >= 32
        async with socket(url) as wire:
            await say(wire, HANDSHAKE)
            assert (await hear(wire))["result"]["hostInfo"]["name"] == "mcpd"
            assert await refusal(url) == 410
            await say(wire, INITIALIZED)
            assert await view.live()
        assert isinstance(await view.ended, Failed)
        assert await refusal(url) == 410
        assert other.state is ViewPhase.NEW, "each View has its own"


@pytest.mark.parametrize("path", ["/", "/mcp", "/view/", "/view/0", "/view/{id}/x", "/view/../view/{id}", "/View/{id}"])
async def test_other_paths_are_nothing(path: str) -> None:
    async with relaying() as (_, relay, call):
        _, url = await relay.open_view(call)
        assert await refusal(relay.base_url + path.format(id=url.rpartition("/")[2])) == 404
        async with socket(f"{url}?a=1"):
            pass


@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://evil.example", f"{ORIGIN}1", ORIGIN.replace("http:", "https:"), f"{ORIGIN}.evil.example"],
)
async def test_only_the_page_may_connect(origin: str | None) -> None:
    """Issue 5: `Origin` must equal the page's; another page learns nothing and uses nothing up."""
    async with relaying() as (_, relay, call):
        _, url = await relay.open_view(call)
        assert await refusal(url, origin) == 403
        assert await refusal(f"{relay.base_url}/view/0", origin) == 403
        async with socket(url):
            pass


async def test_only_under_this_machines_names() -> None:
    """DNS rebinding: a name that was pointed here is not one of ours."""
    async with relaying() as (_, relay, call):
        _, url = await relay.open_view(call)
        host, _, port = relay.base_url.removeprefix("ws://").rpartition(":")
        assert await refusal(url.replace(host, "rebound.example"), host=host, port=int(port)) == 403


async def test_nobody_comes() -> None:
    async with Host(make_server(), options=QUICK) as host:
        relay = Relay(host.prepare_view, ":0", ORIGIN)
        await relay.listen()
        relay._wait_seconds = 0.05
        view, url = await relay.open_view(await host.call_tool("forecast"))
        assert await view.ended == Failed("no page connected in time")
        assert await refusal(url) == 410
        await relay.aclose()


async def test_a_view_that_is_closed_before_anybody_comes() -> None:
    async with relaying() as (host, relay, call):
        view, url = await relay.open_view(call)
        assert await view.close("never mind") == Closed("never mind", clean=True)
        assert await refusal(url) == 410
        assert host.views == []


async def test_the_host_closes_the_view() -> None:
    """The teardown goes out, its answer comes in, then the socket is closed by us."""
    async with relaying() as (_, relay, call):
        view, url = await relay.open_view(call)
        async with socket(url) as wire:
            await say(wire, HANDSHAKE)
            await hear(wire)
            await say(wire, INITIALIZED)
            await view.live()
            closing = asyncio.ensure_future(view.close("done"))
            while (message := await hear(wire))["method"] != "ui/resource-teardown":
                pass
            await say(wire, {"jsonrpc": "2.0", "id": message["id"], "result": {}})
            assert await closing == Closed("done", clean=True)
            with pytest.raises(ConnectionClosed) as told:
                await hear(wire)
            assert told.value.rcvd is not None
            assert told.value.rcvd.code == CloseCode.GOING_AWAY


async def test_a_message_that_is_too_large_is_refused_and_one_far_too_large_ends_it() -> None:
    async with relaying() as (_, relay, call):
        view, url = await relay.open_view(call)
        async with socket(url) as wire:
            await say(wire, json.dumps(HANDSHAKE) + " " * 2000)
            assert (await hear(wire))["error"]["code"] == -32600
            await say(wire, HANDSHAKE)
            assert "result" in await hear(wire)
            await say(wire, " " * 10_000)
            with pytest.raises(ConnectionClosed) as told:
                await hear(wire)
            assert told.value.rcvd is not None
            assert told.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG
        assert isinstance(await view.ended, Failed)


async def test_the_host_ends_while_views_are_connected() -> None:
    async with relaying() as (host, relay, call):
        view, url = await relay.open_view(call)
        waiting, _ = await relay.open_view(call)
        async with socket(url) as wire:
            await say(wire, HANDSHAKE)
            await hear(wire)
            await host.aclose()
            with pytest.raises(ConnectionClosed):
                await hear(wire)
        for ended in (view, waiting):
            assert isinstance(await ended.ended, Closed)
        with pytest.raises((OSError, InvalidStatus)):
            async with socket(url):
                pass


async def test_a_relay_that_is_closed_gives_no_addresses() -> None:
    """Nor does one that is closed while the View is being prepared."""
    reviewing, go_on = asyncio.Event(), asyncio.Event()

    async def review(document: ViewDocument) -> None:
        reviewing.set()
        await go_on.wait()

    async with Host(make_server(), hooks=Hooks(review=review), options=QUICK) as host:
        relay = await host.listen_views(":0", origin=ORIGIN)
        call = await host.call_tool("forecast")
        opening = asyncio.ensure_future(relay.open_view(call))
        await reviewing.wait()
        await relay.aclose()
        go_on.set()
        for opened in (opening, relay.open_view(call)):
            with pytest.raises(ConfigurationError, match="is not listening"):
                await opened
        assert host.views == []


@pytest.mark.parametrize("origin", ["", "null", "localhost:8000", "file://", "http://a/b", "http://*", "*"])
async def test_an_origin_that_is_none(origin: str) -> None:
    async with Host(make_server()) as host:
        with pytest.raises(ConfigurationError, match="scheme://host:port"):
            await host.listen_views(":0", origin=origin)
