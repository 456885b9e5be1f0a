"""The Terragrunt documents as the profile of mcpd serves them, for the tests of their seed."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.folders import opened
from support.wires import LEGACY, MODERN, Wire, memory_wire

from mcpd import Server

__all__ = ["SECTIONS", "TOOLS", "both", "data", "greeted", "read", "resources", "server_of", "talking"]

TOOLS = {
    "search_terragrunt_docs",
    "get_terragrunt_sections",
    "get_section_docs",
    "get_cli_command_help",
    "get_hcl_config_reference",
    "get_code_examples",
}
SECTIONS = {
    "getting-started", "guides", "features", "reference", "community", "troubleshooting", "process", "migrate",
    "terragrunt-scale",
}  # fmt: skip

both = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])


@functools.cache
def _server(documents: Path, folder: Path) -> Server:
    said = {"folder": str(documents), "tools": "terragrunt", "index": "memory"}
    table = "\n".join(f"{key} = {json.dumps(value)}" for key, value in said.items())
    text = f'name = "terragrunt-mcp-server"\nversion = "1.0.0"\n\n[docs]\n{table}\n'
    return opened(folder, {"mcpd.toml": text})


def server_of(shared: Path, factory: pytest.TempPathFactory) -> Server:
    """The server, which is made once: its index takes a while."""
    return _server(shared / "data" / "terragrunt-docs", factory.getbasetemp() / "terragrunt")


@asynccontextmanager
async def talking(shared: Path, factory: pytest.TempPathFactory, version: str) -> AsyncIterator[Wire]:
    """A client of it."""
    async with memory_wire(server_of(shared, factory), version) as wire:
        yield wire


async def greeted(shared: Path, factory: pytest.TempPathFactory, version: str) -> tuple[dict[str, Any], Any]:
    """Who the server says that it is, and its capabilities."""
    async with memory_wire(server_of(shared, factory)) as wire:
        hello = await wire.open(version)
    identity = hello["_meta"]["io.modelcontextprotocol/serverInfo"] if version == MODERN else hello["serverInfo"]
    return identity, hello["capabilities"]


async def resources(wire: Wire) -> list[dict[str, Any]]:
    """All that is listed."""
    found: list[dict[str, Any]] = []
    params: dict[str, str] = {}
    while True:
        page = await wire.result("resources/list", params)
        found += page["resources"]
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}


async def data(wire: Wire, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The structured content of a result that is no error, which has text beside it."""
    result = await wire.call(tool, None, **arguments)
    assert not result.get("isError"), result
    assert result["content"][0]["type"] == "text"
    assert result["content"][0]["text"]
    found: dict[str, Any] = result["structuredContent"]
    return found


async def read(wire: Wire, uri: str) -> dict[str, Any]:
    """The one content of a resource."""
    (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
    found: dict[str, Any] = content
    return found
