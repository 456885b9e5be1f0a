"""Single mounts of a server that has several: `/mcp/NAME`, `?mounts=a,b` and `--only`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from support.http_peer import serving
from support.wires import LEGACY, MODERN, memory_wire

from mcpd import CallNext, Client, MiddlewareRequest, Principal, Server
from mcpd.errors import ConfigurationError, HttpError, RemoteError
from mcpd.protocol.types.features import ListToolsResult
from mcpd.sources.mounts.mounted import offer_only
from mcpd.sources.mounts.passing import server_of
from mcpd.sources.mounts.targets import Wanted
from mcpd.transports.authentication import RequestHeaders
from mcpd.transports.guards import Access

BOTH = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])


def make_server(name: str) -> Server:
    server = Server(name, instructions=f"Use {name}.")

    @server.tool
    async def who() -> str:
        return name

    server.add_text("notes://all", f"notes of {name}", name="all")

    @server.prompt
    def greet() -> str:
        return name

    return server


def make_front() -> Server:
    server = make_server("front")
    for name in ("a", "b", "c"):
        server.mount(name, make_server(name))
    return server


async def seen(client: Client) -> list[str]:
    tools, resources = await client.list_tools(), await client.list_resources()
    prompts = await client.list_prompts()
    return [*(each.name for each in tools), *(each.uri for each in resources), *(each.name for each in prompts)]


@asynccontextmanager
async def url_of(server: Server) -> AsyncIterator[str]:
    async with serving(server) as served:
        try:
            yield served.listener.url
        finally:
            await server.aclose()


@BOTH
async def test_nothing_of_another_mount_is_at_its_own_path(version: str) -> None:
    """MNT-36: not in lists, not to be called, read or filled in."""
    async with url_of(make_front()) as url, Client(f"{url}/a", version=version) as client:
        assert await seen(client) == ["a_who", "a+notes://all", "a_greet"]
        assert (await client.call_tool("a_who")).content[0].text == "a"  # type: ignore[union-attr]
        for other in ("b_who", "who"):
            with pytest.raises(RemoteError, match="Unknown tool"):
                await client.call_tool(other)
        for uri in ("b+notes://all", "notes://all"):
            with pytest.raises(RemoteError, match="Resource not found"):
                await client.read_resource(uri)
        with pytest.raises(RemoteError, match="Unknown prompt"):
            await client.get_prompt("b_greet")


@BOTH
async def test_several_mounts_are_named_in_the_query(version: str) -> None:
    async with url_of(make_front()) as url:
        async with Client(f"{url}?mounts=c,a", version=version) as client:
            found = ["a_who", "c_who", "a+notes://all", "c+notes://all", "a_greet", "c_greet"]
            assert await seen(client) == found
        async with Client(url, version=version) as client:
            assert len(await seen(client)) == 12
        for wrong in (f"{url}?mounts=a,x", f"{url}/x"):
            with pytest.raises((HttpError, ConfigurationError)):
                await Client(wrong, version=version).open()


async def test_only_some_mounts_are_offered() -> None:
    server = make_front()
    with pytest.raises(ConfigurationError, match="--only x: there is no such mount; the mounts are: a, b, c"):
        offer_only(server, ["x"])
    offer_only(server, ["b"])
    async with memory_wire(server, MODERN) as wire:
        tools = (await wire.result("tools/list"))["tools"]
        assert [each["name"] for each in tools] == ["b_who"]
        assert (await wire.error("tools/call", {"name": "who"}))["code"] == -32602
    await server.aclose()


@pytest.mark.parametrize("is_alone", [False, True])
async def test_private_lists_reach_one_user_only(is_alone: bool) -> None:
    """MNT-26: each user gets the list that was made for it, and calls by it, also of a single mount."""
    asked = 0
    up = make_server("up")

    @up.middleware("tools/list")
    async def mine(request: MiddlewareRequest, call_next: CallNext) -> Any:
        nonlocal asked
        asked += 1
        page: Any = await call_next(request)
        tools = [replace(each, name=f"{each.name}{asked}") for each in page.tools]
        return ListToolsResult(tools=tools, ttl_ms=60_000, cache_scope="private")

    if is_alone:
        server = server_of([Wanted("up", up)])  # type: ignore[arg-type]
    else:
        server = Server("front")
        server.mount("up", up)

    async def authenticate(headers: RequestHeaders) -> Principal:
        return Principal(headers.get("authorization") or "")

    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.aclose)
        served = await stack.enter_async_context(serving(server, access=Access(authenticate=authenticate)))
        lists = {}
        for user in ("ann", "bob", "ann", "bob"):
            client = Client(served.listener.url, headers={"Authorization": user})
            async with client:
                (name,) = (each.name for each in await client.list_tools())
                assert lists.setdefault(user, name) == name
        assert lists["ann"] != lists["bob"]
