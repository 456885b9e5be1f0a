"""Who gets Apps, and that nobody else sees a trace of them: by version, offer, setting and transport."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Child
from support.ui_stage import BOTH_ERAS, CHART, HTML, NO_APPS, OFFERS, WITH_APPS, each_wire, make_server, tool_of, uris
from support.wires import MODERN, OpenWire, each_version, envelope, memory_wire, process_wire

from mcpd import Server
from mcpd.server.extensions.ui.constants import MIME_TYPE, UI

ECHO = {UI: {"mimeTypes": [MIME_TYPE]}}


def not_found(version: str) -> int:
    return -32602 if version == MODERN else -32002


@each_wire
@pytest.mark.parametrize("mode", ["auto", "always", "never"])
@pytest.mark.parametrize("offer", OFFERS)
@each_version
async def test_what_is_listed_readable_and_callable(open_wire: OpenWire, mode: str, offer: str, version: str) -> None:
    """APP-S-07, APP-S-14, APP-S-17; mcp-apps-cap-01 to -04, mcp-apps-reg-02: the whole table."""
    capabilities, is_offer = OFFERS[offer]
    has_apps = mode == "always" or (mode == "auto" and is_offer)
    async with open_wire(make_server(apps=mode), None) as wire:
        hello = await wire.open(version, capabilities=capabilities)
        assert hello["capabilities"].get("extensions") == (ECHO if has_apps else None)

        tools = await wire.result("tools/list")
        names = [tool["name"] for tool in tools["tools"]]
        assert names == ["plain", "chart", *(["refresh"] if has_apps else []), "forget", "both"]
        resources = await wire.result("resources/list")
        read = {"uri": CHART}
        if has_apps:
            linked = tool_of(tools, "chart")["_meta"]["ui"]["resourceUri"]
            assert linked.startswith(CHART)
            assert uris(resources) == [linked, "notes://today"]
            for uri in (linked, CHART):
                (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
                assert (content["uri"], content["mimeType"], content["text"]) == (uri, MIME_TYPE, HTML)
            assert (await wire.call("refresh"))["structuredContent" if version >= "2025-06-18" else "content"]
            assert (await wire.call("chart"))["_meta"]["seen"] == "view"
        else:
            assert not any("_meta" in tool for tool in tools["tools"])
            assert uris(resources) == ["notes://today"]
            assert (await wire.error("resources/read", read))["code"] == not_found(version)
            error = await wire.error("tools/call", {"name": "refresh", "arguments": {}})
            assert error["code"] == -32602
            assert "Unknown tool" in error["message"]
            # A modern result says who the server is; nothing else.
            meta = (await wire.call("chart")).get("_meta", {})
            assert set(meta) <= {"io.modelcontextprotocol/serverInfo"}
        assert await wire.text("plain", text="y") == "y"
        assert (await wire.call("chart"))["content"] == [{"type": "text", "text": "2 points"}]
        assert (await wire.result("resources/read", {"uri": "notes://today"}))["contents"][0]["text"] == "a note"


@BOTH_ERAS
async def test_without_apps_there_is_no_trace_of_them(version: str) -> None:
    """APP-S-07, mcp-apps-reg-01: not in any message, whatever is asked for."""
    async with memory_wire(make_server()) as wire:
        said = [
            await wire.open(version),
            *[await wire.result(f"{kind}/list") for kind in ("tools", "resources", "resources/templates")],
            *[await wire.call(name) for name in ("plain", "chart", "forget", "both")],
        ]
    text = json.dumps(said)
    for trace in ("ui://", UI, "mcp-app", '"ui"', "ui/", "visibility", "mcpd/", "refresh", "structuredContent"):
        assert trace not in text


async def test_each_modern_request_speaks_for_itself() -> None:
    """2026-07-28 has no session: one connection, and Apps exactly where the request offers them."""
    async with memory_wire(make_server(), MODERN) as wire:
        for capabilities, has_apps in [*OFFERS.values(), *reversed(OFFERS.values())]:
            meta = envelope(capabilities=capabilities)
            listed = await wire.result("tools/list", meta=meta)
            assert ("_meta" in tool_of(listed, "chart")) is has_apps
            answer = await wire.request("tools/call", {"name": "refresh", "arguments": {}}, meta=meta)
            assert ("result" in answer) is has_apps
            hello = await wire.result("server/discover", meta=meta)
            assert ("extensions" in hello["capabilities"]) is has_apps
            answer = await wire.request("resources/read", {"uri": CHART}, meta=meta)
            assert ("result" in answer) is has_apps


@BOTH_ERAS
async def test_sessions_of_one_server_do_not_mix(version: str) -> None:
    """The same Server serves clients with and without Apps at once, and no cached list goes to the wrong one."""
    server = make_server()
    async with (
        memory_wire(server, version, capabilities=WITH_APPS) as with_apps,
        memory_wire(server, version) as without,
    ):
        for _ in range(2):
            assert tool_of(await with_apps.result("tools/list"), "refresh") is not None
            assert tool_of(await without.result("tools/list"), "refresh") is None


@BOTH_ERAS
async def test_a_view_may_come_over_a_session_of_its_own(version: str) -> None:
    """APP-S-15: hosts open separate sessions for model and View; what one was given, the other can use."""
    server = make_server()
    async with memory_wire(server, version, capabilities=WITH_APPS) as model:
        listed = await model.result("tools/list")
        async with memory_wire(server, version, capabilities=WITH_APPS) as view:
            uri = tool_of(listed, "chart")["_meta"]["ui"]["resourceUri"]
            assert (await view.result("resources/read", {"uri": uri}))["contents"][0]["text"] == HTML
            assert (await view.call("refresh"))["structuredContent"] == {"points": 3}


@pytest.mark.parametrize(
    "settings",
    [
        {"mimeTypes": ["text/html; profile=mcp-app"]},
        {"mimeTypes": ['Text/HTML;Profile="mcp-app"']},
        {"mimeTypes": ["image/svg+xml", MIME_TYPE]},
        {"mimeTypes": None},
        {"features": ["streaming"]},
    ],
)  # fmt: skip
async def test_offers_in_other_spellings_count(settings: dict[str, Any]) -> None:
    """apps.md, fixed strings: spaces and capitals of type and parameter name are no difference."""
    async with memory_wire(make_server()) as wire:
        hello = await wire.open("2025-11-25", {"extensions": {UI: settings}})
        assert UI in hello["capabilities"]["extensions"]


@pytest.mark.parametrize(
    "offer",
    [
        {"mimeTypes": []},
        {"mimeTypes": "text/html;profile=mcp-app"},
        {"mimeTypes": [1, None]},
        {"mimeTypes": ["text/html"]},
        {"mimeTypes": ["text/html;profile=other"]},
        {"mimeTypes": {"text/html;profile=mcp-app": {}}},
    ],
)  # fmt: skip
async def test_offers_of_something_else_do_not(offer: Any) -> None:
    """mcp-apps-cap-04: "No error response (graceful degradation)"."""
    async with memory_wire(make_server()) as wire:
        wire.send(json.dumps(_hello({UI: offer})).encode())
        answer = await wire.answer(1)
        assert "extensions" not in answer["result"]["capabilities"]


def _hello(extensions: dict[str, Any]) -> dict[str, Any]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"extensions": extensions},
        "clientInfo": {"name": "t", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


# ------------------------------------------------------------------------------- the environment


@pytest.mark.parametrize("value", ["false", "FALSE", "False", " false "])
@pytest.mark.parametrize("mode", ["auto", "always"])
async def test_the_environment_turns_apps_off(monkeypatch: pytest.MonkeyPatch, value: str, mode: str) -> None:
    """AgentTools: MCP_APPS_ENABLED is "false" in any case; it goes before every setting."""
    monkeypatch.setenv("MCP_APPS_ENABLED", value)
    async with memory_wire(make_server(apps=mode)) as wire:
        hello = await wire.open("2025-11-25", WITH_APPS)
        assert "extensions" not in hello["capabilities"]
        listed = await wire.result("tools/list")
        assert not any("_meta" in tool for tool in listed["tools"])
        assert uris(await wire.result("resources/list")) == ["notes://today"]
        assert (await wire.call("chart"))["content"] == [{"type": "text", "text": "2 points"}]


@pytest.mark.parametrize(
    ("value", "is_odd"), [("true", False), ("TRUE ", False), ("", False), ("0", True), ("no", True)]
)
async def test_any_other_value_leaves_them_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str, is_odd: bool
) -> None:
    """AgentTools; but whoever wrote `0` meant something, and is told."""
    monkeypatch.setenv("MCP_APPS_ENABLED", value)
    async with memory_wire(make_server(), "2025-11-25", capabilities=WITH_APPS) as wire:
        assert "_meta" in tool_of(await wire.result("tools/list"), "chart")
    assert (f"MCP_APPS_ENABLED={value} changes nothing" in caplog.text) is is_odd


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ([], {}, False),
        (["--apps", "always"], {}, True),
        ([], {"MCPD_APPS": "always"}, True),
        (["--apps", "always"], {"MCP_APPS_ENABLED": "False"}, False),
    ],
)  # fmt: skip
async def test_the_daemon_does_as_it_is_told(
    child: Child, words: list[str], variables: dict[str, str], expected: bool
) -> None:
    """Over the stdio of a process, with a client that offers nothing."""
    async with process_wire(child, *words, version="2025-11-25", env=variables) as wire:
        listed = await wire.result("tools/list")
        assert ("_meta" in tool_of(listed, "apps_diagnostics")) is expected


# --------------------------------------------------------------------------- the strict model list


@BOTH_ERAS
@each_wire
async def test_the_strict_list_leaves_out_what_only_apps_may_call(open_wire: OpenWire, version: str) -> None:
    """mcp-apps-tool-04, literally: in no list, and still callable for clients with Apps."""
    server = make_server(strict_model_list=True)
    async with open_wire(server, version, capabilities=WITH_APPS) as wire:
        listed = await wire.result("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["plain", "chart", "forget", "both"]
        assert (await wire.call("refresh"))["structuredContent"] == {"points": 3}
    async with open_wire(server, version, capabilities=NO_APPS) as wire:
        assert (await wire.error("tools/call", {"name": "refresh"}))["code"] == -32602


async def test_the_strict_list_can_be_switched_until_it_is_served() -> None:
    server = make_server()
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        assert tool_of(await wire.result("tools/list"), "refresh") is not None
        server.set_apps(strict_model_list=True)
        assert tool_of(await wire.result("tools/list"), "refresh") is None
        server.set_apps("always")
        assert tool_of(await wire.result("tools/list"), "refresh") is None
        server.set_apps("auto", strict_model_list=False)
        assert tool_of(await wire.result("tools/list"), "refresh") is not None


STRICT = """
from mcpd import Server
server = Server("strict")
@server.tool(visibility=["app"])
def hidden() -> str: return "here"
@server.tool
def shown() -> str: return "there"
"""


@pytest.mark.parametrize(
    ("words", "variables"), [(["--strict-model-list"], {}), ([], {"MCPD_STRICT_MODEL_LIST": "1"}), ([], {})]
)
async def test_the_strict_list_on_the_command_line(
    child: Child, tmp_path: Any, words: list[str], variables: dict[str, str]
) -> None:
    (tmp_path / "strict.py").write_text(STRICT)
    arguments = ["--apps", "always", *words, str(tmp_path / "strict.py")]
    async with process_wire(child, *arguments, version="2025-11-25", env=variables) as wire:
        listed = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
        assert listed == (["shown"] if words or variables else ["hidden", "shown"])
        assert await wire.text("hidden") == "here"


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="auto, always or never"):
        Server("x", apps="sometimes")  # type: ignore[arg-type]
