"""Servers that others wrote, direct and mounted: what a client gets is equal, but for prefix, ids and times.

Run by `make clients`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from clients.foreign.servers import LEGACY, MODERN, SERVERS, installed, marked

from mcpd import Callbacks, Client, Server
from mcpd.client import CommandTarget
from mcpd.protocol.jsonrpc import encode
from mcpd.types import CreateMessageResult, ElicitResult, TextContent

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

ANSWERS = Callbacks(
    elicit_form=lambda params: ElicitResult(action="decline"),
    elicit_url=lambda params: ElicitResult(action="decline"),
    sample=lambda params: CreateMessageResult(role="assistant", content=TextContent("sampled"), model="m"),
)

APPS = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}

# What differs between two calls of the same server.
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)?|\d\d?:\d\d:\d\d( [AP]M)?")
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}")


async def seen(client: Client, name: str, prefix: str) -> dict[str, str]:
    """What a client of a server gets, as JSON, without the prefix."""
    server = SERVERS[name]
    tool, arguments, _ = server.call
    found: dict[str, Any] = {}
    async with client:
        found["tools"] = [each.name for each in await client.list_tools()]
        found["resources"] = [each.uri for each in await client.list_resources()]
        found["templates"] = [each.uri_template for each in await client.list_resource_templates()]
        found["prompts"] = [each.name for each in await client.list_prompts()]
        result = await client.call_tool(f"{prefix}{tool}", arguments)
        found["call"] = [result.content, result.is_error]
        if found["resources"]:
            found["read"] = (await client.read_resource(found["resources"][0])).contents
        if server.prompt is not None:
            prompt, values = server.prompt
            found["prompt"] = (await client.get_prompt(f"{prefix}{prompt}", values)).messages
    written = {key: encode(value).decode() for key, value in found.items()}
    mine = prefix.removesuffix("_")
    for key, text in written.items():
        plain = (
            text.replace(f'"{mine}+', '"').replace(f"://{mine}/", "://").replace(f'"{prefix}', '"') if mine else text
        )
        written[key] = _IDS.sub("ID", _TIMES.sub("TIME", plain))
    return written


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("name", SERVERS)
async def test_a_mounted_server_is_what_it_is_by_itself(name: str, version: str) -> None:
    """MNT-08: alone, with a prefix, and as one of three."""
    if not installed(SERVERS[name]):
        pytest.skip(f"needs the server {name!r}: make clients installs it")
    target = CommandTarget(SERVERS[name].stdio, marked())
    direct = await seen(Client(target, ANSWERS, extensions=APPS), name, "")
    for prefix in ("", "up_"):
        front = Server("front")
        front.mount("up", target, prefix=prefix.removesuffix("_"))
        if prefix:
            front.mount("two", target)
        try:
            through = await seen(Client(front, ANSWERS, extensions=APPS, version=version), name, prefix)
        finally:
            await front.aclose()
        if prefix:
            through = {key: through[key] if key in ("call", "read", "prompt") else direct[key] for key in through}
        assert through == direct
