"""Apps change nothing for anybody else, in any version (mcp-apps-reg-02)."""

from __future__ import annotations

from typing import Any

from support.ui_stage import NO_APPS, WITH_APPS, each_wire, make_server
from support.wires import MODERN, OpenWire, each_version

from mcpd import Server


def without_apps() -> Server:
    """The same server as the stage's, had nobody thought of Apps."""
    server = Server("stage", version="1")

    @server.tool
    async def plain(text: str = "x") -> str:
        """Knows nothing of Apps."""
        return text

    @server.tool
    async def chart(points: int = 2) -> str:
        """Draws a chart."""
        return f"{points} points"

    @server.tool
    async def forget() -> str:
        """For the model only."""
        return "forgotten"

    @server.tool
    async def both() -> str:
        """For both, and says so."""
        return "both"

    server.add_text("notes://today", "a note", name="today")
    return server


async def everything(open_wire: OpenWire, server: Server, version: str, capabilities: Any) -> list[Any]:
    async with open_wire(server) as wire:
        said = [await wire.open(version, capabilities)]
        for method in ("tools/list", "resources/list", "resources/templates/list"):
            said.append(await wire.result(method))
        for name in ("plain", "chart", "forget", "both"):
            said.append(await wire.result("tools/call", {"name": name, "arguments": {}}))
        said.append(await wire.result("resources/read", {"uri": "notes://today"}))
        if version != MODERN:
            said.append(await wire.result("ping"))
        return said


@each_wire
@each_version
async def test_a_server_with_apps_says_the_very_same_to_others(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-reg-02: "All versions work as before; MCP Apps is additive only": message for message."""
    with_apps = await everything(open_wire, make_server(), version, NO_APPS)
    assert with_apps == await everything(open_wire, without_apps(), version, NO_APPS)


@each_wire
@each_version
async def test_every_version_works_with_apps(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-reg-02: tools and resources as before, where Apps are agreed on."""
    said = await everything(open_wire, make_server(), version, WITH_APPS)
    texts = [result["content"][0]["text"] for result in said[4:8]]
    assert texts == ["x", "2 points", "forgotten", "both"]
