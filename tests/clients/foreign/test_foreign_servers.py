"""`Client` against servers that others wrote, in each version and over each transport that they have.

Run by `make clients`. Of each: everything is listed, a tool called, a resource read, a prompt got, a call given up, and
nothing is left when it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from clients.foreign.servers import SERVERS, Foreign, installed, listening, living, marked
from support.clock import until

from mcpd import Callbacks, Client, ClientGroup, RequestTimeout
from mcpd.client import CommandTarget, UrlTarget

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

EXTENSIONS = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}

Row = tuple[str, str | None, str]


def rows() -> Iterator[Row]:
    """Each server over each transport in each version: its own choice, and the others where it has several."""
    for name, server in SERVERS.items():
        for transport in ("stdio", *server.urls):
            for version in (None, *server.versions[1:]):
                yield name, version, transport


def server_of(name: str) -> Foreign:
    server = SERVERS[name]
    if not installed(server):
        pytest.skip(f"needs the server {name!r}: make clients installs it")
    return server


async def use(server: Foreign, client: Client, version: str | None) -> None:
    async with client:
        assert client.version == (version or server.versions[0])
        tools, resources = await client.list_tools(), await client.list_resources()
        prompts = await client.list_prompts()
        await client.list_resource_templates()

        tool, arguments, expected = server.call
        assert tool in [one.name for one in tools]
        result = await client.call_tool(tool, arguments)
        assert expected in repr(result)
        functions = {function.tool.name: function for function in await client.tool_functions()}
        assert (tool in functions) is server.is_for_models
        if server.is_for_models and not result.is_error:
            assert expected in repr(await functions[tool](**arguments))
        if resources:
            assert (await client.read_resource(resources[0].uri)).contents
        if server.prompt is not None:
            assert server.prompt[0] in [one.name for one in prompts]
            assert (await client.get_prompt(*server.prompt)).messages

        await give_up(server, client)
        await client.ping()
        assert expected in repr(await client.call_tool(tool, arguments))


async def give_up(server: Foreign, client: Client) -> None:
    """Give up a call: one that takes long when its time is over, any other as soon as it was sent."""
    if server.slow is not None:
        with pytest.raises(RequestTimeout):
            await client.call_tool(*server.slow[:2], timeout=server.slow[2])
        return
    call = asyncio.create_task(client.call_tool(*server.call[:2]))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize(("name", "version", "transport"), list(rows()), ids=lambda part: str(part))
async def test_it_can_be_used(name: str, version: str | None, transport: str) -> None:
    server = server_of(name)
    if transport != "stdio":
        with listening(transport, server.urls[transport]) as url:
            await use(server, Client(url, extensions=EXTENSIONS, version=version), version)
        return
    env = marked()
    await use(server, Client(CommandTarget(server.stdio, env), extensions=EXTENSIONS, version=version), version)
    await until(lambda: not living(env["MCPD_TEST_MARK"]))


async def test_all_of_them_are_one_group() -> None:
    names = {"everything": "everything", "clock": "time", "second": "sdk 2", "old": "everything of 2024"}
    targets: dict[str, CommandTarget | UrlTarget] = {
        name: CommandTarget(server_of(theirs).stdio, marked()) for name, theirs in names.items()
    }
    changed: list[str] = []
    async with ClientGroup(targets, Callbacks(list_changed=changed.append)) as group:
        assert set(group.clients) == set(names), group.errors
        tools = {tool.name for tool in await group.list_tools()}
        assert {"everything_get-sum", "clock_get_current_time", "second_test_simple_text", "old_add"} <= tools
        assert "5" in repr(await group.call("old_add", a=2, b=3))
        uris = [resource.uri for resource in await group.list_resources()]
        for prefix in ("everything+demo://", "second+test://", "old+test://"):
            uri = next(uri for uri in uris if uri.startswith(prefix))
            assert (await group.read_resource(uri)).contents[0].uri.startswith(prefix)  # type: ignore[union-attr]
