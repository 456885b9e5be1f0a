"""The built-in starter: what a newcomer's host finds when `mcpd serve` is given nothing."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from support.wires import MODERN, Wire, each_version, memory_wire

import mcpd
from mcpd import Server
from mcpd.sources import demo
from mcpd.sources.demo import make_server

UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


async def names(wire: Wire, method: str, member: str) -> list[str]:
    return [item["name"] for item in (await wire.result(method))[member]]


@each_version
async def test_what_it_offers(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        assert await names(wire, "tools/list", "tools") == [
            "echo", "add", "server_info", "count_slowly", "apps_diagnostics",
        ]  # fmt: skip
        assert await names(wire, "resources/list", "resources") == ["welcome", "dot"]
        assert await names(wire, "resources/templates/list", "resourceTemplates") == ["greeting"]


@each_version
async def test_it_is_read_only_and_says_so(version: str) -> None:
    """Architecture 5: read-only, safe to leave on."""
    async with memory_wire(make_server(), version) as wire:
        for tool in (await wire.result("tools/list"))["tools"]:
            if version >= "2025-03-26":
                assert tool["annotations"]["readOnlyHint"] is True
                assert tool["annotations"]["openWorldHint"] is False
            assert tool["description"]


@each_version
async def test_its_tools(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        assert await wire.text("echo", text="héllo") == "héllo"
        assert await wire.text("add", a=1, b=0.5) == "1.5"
        assert (await wire.call("add", a=1, b="x"))["isError"] is True
        result = await wire.call("server_info")
        assert f'"protocolVersion":"{version}"' in result["content"][0]["text"]
        assert f'"version":"{mcpd.__version__}"' in result["content"][0]["text"]
        assert '"client":"wire 1"' in result["content"][0]["text"]


async def test_counting_reports_each_step() -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        result = await wire.call("count_slowly", {"progressToken": "p"}, steps=3, seconds=0)
        assert result["content"] == [{"type": "text", "text": "Counted to 3"}]
        assert [message["params"]["progress"] for message in wire.heard] == [1, 2, 3]
        assert wire.heard[0]["params"]["message"] == "step 1 of 3"
        for steps in (0, 101):
            assert (await wire.call("count_slowly", steps=steps))["isError"] is True


async def test_counting_can_be_cancelled() -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        params = {"name": "count_slowly", "arguments": {"steps": 100, "seconds": 60}}
        request = wire.ask("tools/call", params)
        wire.cancel(request)
        await wire.quiet()


@each_version
async def test_its_resources(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        (welcome,) = (await wire.result("resources/read", {"uri": "mcpd://welcome"}))["contents"]
        assert welcome["mimeType"] == "text/markdown"
        (dot,) = (await wire.result("resources/read", {"uri": "mcpd://dot.png"}))["contents"]
        _check_png(base64.b64decode(dot["blob"], validate=True))
        (greeting,) = (await wire.result("resources/read", {"uri": "mcpd://greeting/Ann%20B"}))["contents"]
        assert greeting["text"] == "Hello, Ann B!"
        error = await wire.error("resources/read", {"uri": "mcpd://greeting/%20"})
        assert error["message"] == "Resource not found: mcpd://greeting/ "


def _check_png(data: bytes) -> None:
    """A whole picture: every chunk has its checksum, and the pixels are all there."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, pixels, kinds = 8, b"", []
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        kinds.append(kind)
        pixels += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    assert len(zlib.decompress(pixels)) == height * (1 + width * channels * depth // 8)
    assert kinds[-1] == b"IEND"


async def test_the_welcome_text_shows_a_server_that_works() -> None:
    """What the newcomer is told to write is run here."""
    async with memory_wire(make_server(), MODERN) as wire:
        text = (await wire.result("resources/read", {"uri": "mcpd://welcome"}))["contents"][0]["text"]
    lines = text.splitlines()
    code = "\n".join(line.removeprefix("    ") for line in lines[lines.index("    from mcpd import Server") :])
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert isinstance(scope["server"], Server)
    async with memory_wire(scope["server"], MODERN) as wire:
        assert await wire.text("greet", name="Ann") == "Hello, Ann!"


@each_version
async def test_the_diagnostics_have_their_app_for_who_offers_apps(version: str) -> None:
    async with memory_wire(make_server()) as wire:
        await wire.open(version, UI)
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        if version >= "2025-06-18":
            assert tools["apps_diagnostics"]["_meta"]["ui"]["resourceUri"].startswith("ui://mcpd/apps_diagnostics")
        assert "apps_diagnostics" in await names(wire, "resources/list", "resources")
        assert '"apps":true' in (await wire.call("server_info"))["content"][0]["text"]
    async with memory_wire(make_server(), version) as wire:
        assert '"apps":false' in (await wire.call("server_info"))["content"][0]["text"]
        text = (await wire.call("apps_diagnostics", note="my note"))["content"][0]["text"]
        assert version in text
        assert "my note" in text


async def test_where_it_is_installed_there_are_no_diagnostics(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(demo, "_DIAGNOSTICS", str(tmp_path / "none"))
    async with memory_wire(make_server(), MODERN, capabilities=UI) as wire:
        assert await names(wire, "tools/list", "tools") == ["echo", "add", "server_info", "count_slowly"]


def test_it_has_no_problems() -> None:
    assert make_server().problems() == []
