"""The servers whose tools are judged: the starter, the conformance server, and the garden of the tour."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from support.wires import memory_wire

from mcpd import Server
from mcpd.sources.demo import make_server

__all__ = ["SERVERS", "listed"]

REPOSITORY = Path(__file__).resolve().parent.parent.parent
APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


async def listed(name: str, folder: Path, version: str) -> list[dict[str, Any]]:
    """All tools of a server, as a client of that version with MCP Apps is told of them."""
    async with memory_wire(SERVERS[name](folder), version, capabilities=APPS) as wire:
        return await tools_of(wire)


async def tools_of(wire: Any) -> list[dict[str, Any]]:
    """All pages of `tools/list`."""
    tools: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await wire.result("tools/list", {"cursor": cursor} if cursor else {})
        tools += page["tools"]
        cursor = page.get("nextCursor")
        if cursor is None:
            return tools


def _everything(folder: Path) -> Server:
    return _server_in(REPOSITORY / "conformance" / "everything.py")


def _garden(folder: Path) -> Server:
    """What the blocks of the tour that belong to server.py make, one after another."""
    readme = (REPOSITORY / "docs" / "first-server.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(# server\.py\b.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert blocks
    (folder / "apps").mkdir(exist_ok=True)
    for name, page in re.findall(
        r"^```html\n<!-- (apps/\w+\.html).*?-->\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL
    ):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(page)
    (folder / "server.py").write_text("\n\n".join(blocks), encoding="utf-8")
    return _server_in(folder / "server.py")


def _server_in(file: Path) -> Server:
    found = spec_from_file_location("a_server", file)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    server = module.server
    assert isinstance(server, Server)
    return server


SERVERS: dict[str, Callable[[Path], Server]] = {
    "starter": lambda folder: make_server(),
    "everything": _everything,
    "garden": _garden,
}
