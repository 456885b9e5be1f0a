"""The cases of the MCP Apps test specification that are a server's duty, as they are written there: sections 1 to 3, 8.

Each on the wire, over every transport and in both eras; conformance/seeds/mcp_apps.toml ties the ids to the tests.
What an app context is, only a host knows: cases that "attempt to call from app context" are proved here as far as
a server can, and in tests/apps/host for the refusal.
"""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
from support.ui_stage import BOTH_ERAS, CHART, HTML, NO_APPS, WITH_APPS, each_wire, make_server, tool_of, uris
from support.wires import MODERN, OpenWire

from mcpd import Server
from mcpd.server.extensions.ui.constants import MIME_TYPE, UI

pytestmark = [each_wire, BOTH_ERAS]

UNSUPPORTED = {"extensions": {UI: {"mimeTypes": ["application/vnd.custom"]}}}


async def contents_of(open_wire: OpenWire, version: str, server: Server, uri: str) -> Any:
    async with open_wire(server, version, capabilities=WITH_APPS) as wire:
        (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
        return content


# ------------------------------------------------------------------- 1. capability negotiation


async def test_extension_discovery(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-cap-01: the extension is in the answer, with the MIME type."""
    async with open_wire(make_server()) as wire:
        hello = await wire.open(version, WITH_APPS)
        assert "text/html;profile=mcp-app" in hello["capabilities"]["extensions"][UI]["mimeTypes"]


async def test_extension_not_advertised_when_disabled(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-cap-02: "Server response does NOT include extensions["io.modelcontextprotocol/ui"]"."""
    async with open_wire(make_server()) as wire:
        hello = await wire.open(version, NO_APPS)
        assert UI not in hello["capabilities"].get("extensions", {})


async def test_mime_type_supported(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-cap-03: "Server accepts and stores capability; UI resources become available"."""
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        listed = uris(await wire.result("resources/list"))
        (uri,) = [uri for uri in listed if uri.startswith("ui://")]
        await wire.result("resources/read", {"uri": uri})


async def test_mime_type_unsupported(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-cap-04: Apps stay off, the rest works, and nothing is an error."""
    async with open_wire(make_server()) as wire:
        hello = await wire.open(version, UNSUPPORTED)
        assert "extensions" not in hello["capabilities"]
        assert uris(await wire.result("resources/list")) == ["notes://today"]
        assert not any("_meta" in tool for tool in (await wire.result("tools/list"))["tools"])
        assert await wire.text("plain", text="y") == "y"


async def test_graceful_fallback(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-cap-05: a tool with a View gives text, and nothing in it is about a View."""
    async with open_wire(make_server(), version, capabilities=NO_APPS) as wire:
        result = await wire.call("chart")
        assert result["content"] == [{"type": "text", "text": "2 points"}]
        assert not result.get("isError")
        assert "ui://" not in str(result)
        assert "ui" not in result.get("_meta", {})


# ------------------------------------------------------------------------------- 2. resources


async def test_resource_declaration_with_ui_support(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-01: uri, name, description, mimeType."""
    server = make_server()
    server.app("described", HTML, name="described", description="Says what it is")
    async with open_wire(server, version, capabilities=WITH_APPS) as wire:
        listed = (await wire.result("resources/list"))["resources"]
        entry = listed[-1]
        assert entry["uri"].startswith("ui://stage/described")
        assert (entry["name"], entry["description"]) == ("described", "Says what it is")
        assert {one["mimeType"] for one in listed if one["uri"].startswith("ui://")} == {MIME_TYPE}


async def test_resource_declaration_without_ui_support(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-02: "Only standard resources listed"."""
    async with open_wire(make_server(), version, capabilities=NO_APPS) as wire:
        assert uris(await wire.result("resources/list")) == ["notes://today"]


async def test_resource_content_as_text(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-03: mimeType, text, and the URI that was asked for."""
    content = await contents_of(open_wire, version, make_server(), CHART)
    assert (content["uri"], content["mimeType"], content["text"]) == (CHART, MIME_TYPE, HTML)


async def test_resource_content_as_blob(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-04: base64 of the HTML, where it was registered so."""
    server = make_server()

    @server.resource("ui://stage/blob")
    def blob() -> bytes:
        return HTML.encode()

    content = await contents_of(open_wire, version, server, "ui://stage/blob")
    assert content["mimeType"] == MIME_TYPE
    assert base64.b64decode(content["blob"], validate=True).decode() == HTML


async def test_resource_metadata_csp(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-05: four lists of strings."""
    csp = {
        "connectDomains": ["https://api.example.com", "wss://live.example.com"],
        "resourceDomains": ["https://*.example.com"],
        "frameDomains": ["https://frames.example.com"],
        "baseUriDomains": ["https://base.example.com"],
    }
    server = make_server()
    uri = server.app("csp", HTML, csp=csp)
    assert (await contents_of(open_wire, version, server, uri))["_meta"]["ui"]["csp"] == csp


async def test_resource_metadata_permissions(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-06: four members, each an object."""
    server = make_server()
    names = ["camera", "microphone", "geolocation", "clipboardWrite"]
    uri = server.app("asks", HTML, permissions=names)
    permissions = (await contents_of(open_wire, version, server, uri))["_meta"]["ui"]["permissions"]
    assert permissions == {name: {} for name in names}


async def test_resource_metadata_domain(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-07, APP-S-08: a string, as the host's documentation has it; absent where none was given."""
    server = make_server()
    uri = server.app("domain", HTML, domain="a904794854a047f6.claudemcpcontent.com")
    ui = (await contents_of(open_wire, version, server, uri))["_meta"]["ui"]
    assert ui["domain"] == "a904794854a047f6.claudemcpcontent.com"
    assert "domain" not in (await contents_of(open_wire, version, server, CHART))["_meta"]["ui"]


async def test_resource_metadata_border_preference(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-08: a boolean."""
    server = make_server()
    for prefers in (True, False):
        uri = server.app(f"border-{prefers}", HTML, prefers_border=prefers)
        assert (await contents_of(open_wire, version, server, uri))["_meta"]["ui"]["prefersBorder"] is prefers


async def test_resource_not_found(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-res-09: -32002, which 2026-07-28 calls -32602, and a message that says so."""
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        error = await wire.error("resources/read", {"uri": "ui://stage/none"})
        assert error["code"] == (-32602 if version == MODERN else -32002)
        assert "not found" in error["message"].lower()


# ----------------------------------------------------------------------- 3. tools and visibility


async def test_tool_linkage_with_support(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-tool-01: `_meta.ui.resourceUri` under `ui://`."""
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        tools = await wire.result("tools/list")
        assert tool_of(tools, "chart")["_meta"]["ui"]["resourceUri"].startswith("ui://")
        assert tool_of(tools, "both")["_meta"]["ui"]["visibility"] == ["model", "app"]


async def test_tool_linkage_without_support(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-tool-02: "Tool appears as standard text-only tool"."""
    async with open_wire(make_server(), version, capabilities=NO_APPS) as wire:
        tool = tool_of(await wire.result("tools/list"), "chart")
        assert set(tool) == {"name", "description", "inputSchema"}


async def test_visibility_model_and_app(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-tool-03: listed, and callable."""
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        assert tool_of(await wire.result("tools/list"), "both")["_meta"]["ui"]["visibility"] == ["model", "app"]
        assert await wire.text("both") == "both"


async def test_visibility_app_only(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-tool-04: with its visibility in the list for hosts, which keep it from the model; gone without Apps."""
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        tools = (await wire.result("tools/list"))["tools"]
        model = [
            tool["name"]
            for tool in tools
            if "model" in tool.get("_meta", {}).get("ui", {}).get("visibility", ["model"])
        ]
        assert model == ["plain", "chart", "forget", "both"]
        assert tool_of({"tools": tools}, "refresh")["_meta"]["ui"]["visibility"] == ["app"]
        assert (await wire.call("refresh"))["structuredContent"] == {"points": 3}
    async with open_wire(make_server(), version, capabilities=NO_APPS) as wire:
        assert tool_of(await wire.result("tools/list"), "refresh") is None
        assert (await wire.error("tools/call", {"name": "refresh", "arguments": {}}))["code"] == -32602


async def test_visibility_app_only_strictly(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-tool-04, literally, behind --strict-model-list: "Tool does NOT appear in tools/list"."""
    async with open_wire(make_server(strict_model_list=True), version, capabilities=WITH_APPS) as wire:
        assert tool_of(await wire.result("tools/list"), "refresh") is None
        assert (await wire.call("refresh"))["structuredContent"] == {"points": 3}


async def test_visibility_model_only(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-tool-05: listed with what a host needs to refuse a View's call; the refusal is the host's."""
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        assert tool_of(await wire.result("tools/list"), "forget")["_meta"]["ui"] == {"visibility": ["model"]}
        assert await wire.text("forget") == "forgotten"


async def test_visibility_default(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-tool-06: a View and no visibility: both."""
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        assert "visibility" not in tool_of(await wire.result("tools/list"), "chart")["_meta"]["ui"]
        assert (await wire.call("chart"))["content"][0]["text"] == "2 points"


@pytest.mark.parametrize(
    ("value", "left"),
    [(["app", "robot"], ["app"]), (["robot"], None), ([], None), ("app", ["app"]), (3, None)],
    ids=str,
)
async def test_invalid_visibility(
    open_wire: OpenWire, version: str, value: Any, left: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """mcp-apps-tool-07: "filters out invalid values, or defaults to safe visibility; no crash"."""
    server = make_server()

    async def odd() -> str:
        """Has a visibility that nobody defined."""
        return "odd"

    with caplog.at_level(logging.WARNING):
        server.add_tool(odd, meta={"ui": {"resourceUri": CHART, "visibility": value}})
    assert "tool odd: visibility" in caplog.text
    async with open_wire(server, version, capabilities=WITH_APPS) as wire:
        ui = tool_of(await wire.result("tools/list"), "odd")["_meta"]["ui"]
        assert ui.get("visibility") == left
        assert await wire.text("odd") == "odd"


# --------------------------------------------------------------- 8. regression and compatibility


async def test_non_supporting_client_fallback(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-reg-01: "Tools work normally; text responses only; no UI metadata exposed"."""
    async with open_wire(make_server(), version, capabilities=NO_APPS) as wire:
        for tool in (await wire.result("tools/list"))["tools"]:
            assert "_meta" not in tool
            result = await wire.call(tool["name"])
            assert [block["type"] for block in result["content"]] == ["text"]
            assert "structuredContent" not in result


async def test_mixed_tool_set(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-reg-03: UI and other tools side by side."""
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        tools = await wire.result("tools/list")
        assert "_meta" in tool_of(tools, "chart")
        assert "_meta" not in tool_of(tools, "plain")
        assert (await wire.call("chart"))["_meta"]["mcpd/data"] == {"points": [0, 1]}
        result = await wire.call("plain", text="y")
        assert result["content"] == [{"type": "text", "text": "y"}]
        assert set(result.get("_meta", {})) <= {"io.modelcontextprotocol/serverInfo"}


async def test_standard_resources(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-reg-04: "No UI-specific processing applied"."""
    for capabilities in (WITH_APPS, NO_APPS):
        async with open_wire(make_server(), version, capabilities=capabilities) as wire:
            (content,) = (await wire.result("resources/read", {"uri": "notes://today"}))["contents"]
            assert content == {"uri": "notes://today", "mimeType": "text/plain", "text": "a note"}
