"""A server with Apps for the tests of its part, what clients may offer, and every way to reach it.

Lives here: what more than one module of tests/server/extensions/ui needs. Never here: assertions about rules.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.http_peer import post, serving
from support.wires import LEGACY, MODERN, Wire, memory_wire, stdio_wire, websocket_wire

from mcpd import Server, ViewResult, view_result
from mcpd.server.extensions.ui.constants import MIME_TYPE, UI

__all__ = [
    "BOTH_ERAS",
    "CHART",
    "HTML",
    "NO_APPS",
    "OFFERS",
    "WITH_APPS",
    "each_wire",
    "http_wire",
    "make_server",
    "tool_of",
    "uris",
]

HTML = '<!doctype html><meta charset="utf-8"><title>Chart</title><p>héllo ✓'
CHART = "ui://stage/chart"

WITH_APPS: dict[str, Any] = {"extensions": {UI: {"mimeTypes": [MIME_TYPE]}}}
NO_APPS: dict[str, Any] = {}

OFFERS: dict[str, tuple[dict[str, Any], bool]] = {
    "offers Apps": (WITH_APPS, True),
    "offers another type": ({"extensions": {UI: {"mimeTypes": ["application/vnd.custom"]}}}, False),
    "offers {}": ({"extensions": {UI: {}}}, True),
    "offers nothing": (NO_APPS, False),
}
"""What a client may say, and whether it gets Apps for that (apps.md 7, decision 2)."""

BOTH_ERAS = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])


def make_server(**options: Any) -> Server:
    """Tools with and without a View, for the model, for the View and for both; two kinds of resources."""
    server = Server("stage", version="1", **options)

    @server.tool
    async def plain(text: str = "x") -> str:
        """Knows nothing of Apps."""
        return text

    @server.tool(ui=server.app(CHART, HTML, csp={"connectDomains": ["https://api.example.com"]}, prefers_border=True))
    async def chart(points: int = 2) -> ViewResult:
        """Draws a chart."""
        return view_result(f"{points} points", {"points": list(range(points))}, meta={"seen": "view"})

    @server.tool(ui="chart", visibility=["app"])
    async def refresh() -> dict[str, int]:
        """For the View only."""
        return {"points": 3}

    @server.tool(visibility=["model"])
    async def forget() -> str:
        """For the model only."""
        return "forgotten"

    @server.tool(ui=CHART, visibility=["model", "app"])
    async def both() -> str:
        """For both, and says so."""
        return "both"

    server.add_text("notes://today", "a note", name="today")
    return server


def tool_of(listed: Any, name: str) -> Any:
    """The tool of that name in a result of `tools/list`; None if it is not there."""
    return next((tool for tool in listed["tools"] if tool["name"] == name), None)


def uris(listed: Any) -> list[str]:
    """The URIs in a result of `resources/list`."""
    return [resource["uri"] for resource in listed["resources"]]


@asynccontextmanager
async def http_wire(server: Server, version: str | None = None, **opening: Any) -> AsyncIterator[Wire]:
    """A wire over Streamable HTTP on the loopback: one POST after the other, in one session where there are any."""
    frames: asyncio.Queue[bytes | None] = asyncio.Queue()
    wire = Wire(frames.put_nowait)
    async with serving(server) as port:

        async def pump() -> None:
            session: dict[str, str | None] = {}
            while (frame := await frames.get()) is not None:
                answer = await port.ask(post(frame, {**session, **_headers(json.loads(frame), wire.version)}))
                if "mcp-session-id" in answer:
                    session["Mcp-Session-Id"] = answer["mcp-session-id"]
                if answer.status != 202:
                    for message in answer.messages:
                        wire.arrived(json.dumps(message).encode())

        pumping = asyncio.create_task(pump())
        if version is not None:
            await wire.open(version, **opening)
        yield wire
        frames.put_nowait(None)
        await pumping
    wire.check()


def _headers(message: dict[str, Any], version: str | None) -> dict[str, str | None]:
    """What a conforming client repeats in headers."""
    if version != MODERN:
        return {"MCP-Protocol-Version": version} if version is not None and version >= "2025-06-18" else {}
    params = message.get("params", {})
    headers: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
    name = params.get("name") or params.get("uri")
    return {**headers, "Mcp-Name": name} if name else headers


each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
