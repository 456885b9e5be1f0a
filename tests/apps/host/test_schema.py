"""Every message the host part sends, against the schema of the official SDK (ext-apps 2.0.4); see `apps_schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from support.apps_schema import METHODS, AppsSchema
from support.host_stage import CONTEXT, SETTINGS, Stage, tool

from mcpd.apps.host.host import style_variables
from mcpd.apps.host.view.context import (
    ContainerDimensions,
    DeviceCapabilities,
    HostContext,
    HostStyles,
    SafeAreaInsets,
    ToolInfo,
)
from mcpd.apps.host.view.events import ChatMessage, Download, Forward, ModeChange, ModelContextUpdate, OpenLink
from mcpd.apps.host.view.messages import Empty, SamplingOffer
from mcpd.protocol.types.features import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs, which the test extra brings")


@pytest.fixture(scope="session")
def check(shared: Path) -> Any:
    """Check one message; its second argument maps the ids of the View's requests to their methods."""
    return AppsSchema(shared).check


BLOCKS = [
    TextContent(text="x"),
    ImageContent(data=b"i", mime_type="image/png"),
    AudioContent(data=b"a", mime_type="audio/wav"),
    EmbeddedResource(resource={"uri": "a:b", "text": "x"}),
    ResourceLink(uri="a:b", name="b"),
]

CONTEXTS = [
    HostContext(),
    CONTEXT,
    HostContext(
        tool_info=ToolInfo(id="c1", tool=tool("forecast", ["app"], title="T", output_schema={"type": "object"})),
        theme="light",
        styles=HostStyles(variables={"--font-sans": "X"}),
        display_mode="pip",
        available_display_modes=[],
        container_dimensions=ContainerDimensions(max_width=100, height=50),
        locale="en",
        time_zone="Europe/Berlin",
        user_agent="stage/1",
        platform="web",
        device_capabilities=DeviceCapabilities(touch=False, hover=True),
        safe_area_insets=SafeAreaInsets(top=0, right=0, bottom=20, left=0),
    ),
    HostContext(styles=HostStyles(variables=style_variables()), container_dimensions=ContainerDimensions()),
]

SAMPLING = structs.replace(SETTINGS.capabilities, sampling=SamplingOffer(tools=Empty()), experimental={"x": {}})
ALL = [
    SETTINGS,
    structs.replace(SETTINGS, denials="result"),
    structs.replace(SETTINGS, capabilities=SAMPLING, has_prompts=True),
]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("settings", ALL)
def test_a_whole_life_meets_the_official_schema(settings: Any, context: HostContext, check: Any) -> None:
    """Issue 5: "validates every message the host part sends (minus what only the later draft has)"."""
    stage = Stage(settings, context=context, allowed=["camera", "clipboardWrite"])
    asked: dict[Any, str] = {}

    def ask(method: str, params: Any = None) -> None:
        request_id = len(asked)
        asked[request_id] = method
        stage.requests(method, params, request_id=request_id)

    stage.proxy_ready()
    ask("tools/call", {"name": "refresh"})  # too early: an error
    app = {"name": "v", "version": "1"}
    capabilities = {"tools": {"listChanged": True}, "availableDisplayModes": ["inline", "pip", "fullscreen"]}
    ask("ui/initialize", {"appInfo": app, "appCapabilities": capabilities, "protocolVersion": "2026-01-26"})
    stage.view.partial_input({"city": "Be"})
    stage.view.context_changed(HostContext(theme="dark"))
    stage.initialized()
    stage.view.tool_input({"city": "Berlin"})
    stage.view.tool_result(CallToolResult(content=BLOCKS, structured_content={"a": 1}, meta={"k": 1}, is_error=True))
    stage.view.list_changed("tools")
    text = {"type": "text", "text": "hi"}
    file = {"type": "resource", "resource": {"uri": "a", "text": "x"}}
    for decide in ("answer", "deny"):
        ask("tools/call", {"name": "refresh", "_meta": {"progressToken": 0}})
        forward = stage.only(Forward)
        stage.happened.append(forward)
        stage.view.progress(forward.ask_id, 0.5)
        ask("resources/read", {"uri": "x://y"})
        ask("ui/open-link", {"url": "https://example.com"})
        ask("ui/open-link", {"url": "javascript:x"})
        ask("ui/message", {"role": "user", "content": text})
        ask("ui/update-model-context", {"content": [{"type": "text", "text": decide}]})
        ask("ui/request-display-mode", {"mode": "fullscreen"})
        ask("ui/request-display-mode", {"mode": "cinema"})
        ask("ui/download-file", {"contents": [file]})
        ask("ping")
        for kind in (Forward, OpenLink, ChatMessage, ModelContextUpdate, ModeChange, Download):
            for event in stage.take(kind):
                if decide == "answer":
                    stage.view.answer(event.ask_id)
                else:
                    stage.view.deny(event.ask_id, "no")
    stage.view.list_app_tools(stage.now)
    stage.answers(stage.drain()[-1], {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
    stage.view.call_app_tool("t", {}, stage.now, confirmed=True)
    stage.passes(60)
    stage.view.ping(stage.now)
    stage.view.teardown("done", stage.now)
    stage.drain()
    for message in stage.told:
        check(message, asked)
    told = {message["method"] for message in stage.told if "method" in message}
    assert told >= set(METHODS) - {"ui/notifications/tool-cancelled"}
    assert len([message for message in stage.told if "method" not in message]) == len(asked)


def test_a_cancelled_call_meets_it_too(check: Any) -> None:
    stage = Stage().to_live()
    stage.view.tool_cancelled("x")
    for message in stage.drain():
        check(message, {})


@pytest.mark.parametrize(
    "message",
    [
        {"method": "ui/notifications/tool-input", "params": {"arguments": []}},
        {"method": "ui/notifications/tool-result", "params": {"content": "x"}},
        {"method": "ui/notifications/host-context-changed", "params": {"theme": "blue"}},
        {"method": "ui/notifications/host-context-changed", "params": {"containerDimensions": {"width": "4"}}},
        {"method": "ui/notifications/sandbox-resource-ready", "params": {"csp": {}}},
        {
            "id": 0,
            "result": {"protocolVersion": "x", "hostInfo": {"name": "a", "version": "1"}, "hostCapabilities": {}},
        },
    ],
)
def test_the_check_can_fail(message: dict[str, Any], check: Any) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        check({"jsonrpc": "2.0", **message}, {0: "ui/initialize"})
