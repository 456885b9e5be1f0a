"""The bundled apps in the official host: AppBridge of the MCP Apps SDK, and its schemas as judges of every message.

The SDK enforces neither order nor visibility; the scripted host's tests do that. What is seen here is that the
official code understands our Views and that our Views understand it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.apps_scene import OPAQUE, OWN_ORIGIN, STRICT, Open, Scene
from support.browser import Chromium
from support.pages import Pages

CAPABILITIES: dict[str, Any] = {
    "openLinks": {},
    "downloadFile": {},
    "message": {"text": {}},
    "updateModelContext": {"text": {}, "structuredContent": {}},
    "serverTools": {},
    "serverResources": {},
    "sampling": {},
    "logging": {},
}
CONTEXT = {
    "theme": "dark",
    "displayMode": "inline",
    "availableDisplayModes": ["inline", "fullscreen"],
    "containerDimensions": {"maxHeight": 5000},
    "locale": "en-GB",
    "timeZone": "UTC",
    "platform": "web",
    "toolInfo": {"id": 0, "tool": {"name": "apps_diagnostics", "inputSchema": {"type": "object"}}},
}


@pytest.fixture
def open_official(chromium: Chromium, pages: Pages, diagnostics_html: str, bridge_bundle: str) -> Open:
    """Show the app in the official host."""

    @contextlib.asynccontextmanager
    async def opened(sandbox: str = OPAQUE, **options: Any) -> AsyncIterator[Scene]:
        pages.put("/host", Path(__file__).with_name("official_host.html").read_text(encoding="utf-8"))
        pages.put("/app-bridge.js", bridge_bundle, content_type="text/javascript; charset=utf-8")
        pages.put("/view", diagnostics_html, content_security_policy=STRICT)
        planned = {
            "view": pages.url("/view", "view"),
            "sandbox": sandbox,
            "capabilities": CAPABILITIES,
            "context": CONTEXT,
            **options,
        }
        async with chromium.page(width=800, height=900) as page:
            host = await page.goto(pages.url("/host"))
            await host.call("(planned) => host.open(planned)", planned)
            view = await page.frame("/view")
            await view.until("document.documentElement.dataset.phase === 'live'")
            yield Scene(page, host, view)

    return opened


@pytest.mark.parametrize("sandbox", [OPAQUE, OWN_ORIGIN], ids=["opaque", "own-origin"])
async def test_lives_a_whole_life_in_the_official_host(open_official: Open, sandbox: str) -> None:
    """APP-V-01 to APP-V-06: handshake, partial, input, result, context, app tools, teardown; all of it in order."""
    async with open_official(sandbox) as scene:
        bridge = scene.host
        await bridge.until("host.names().includes('initialized')")
        assert await bridge.evaluate("host.bridge.getAppCapabilities()") == {
            "availableDisplayModes": ["inline", "fullscreen", "pip"],
            "tools": {},
        }
        assert (await bridge.evaluate("host.bridge.getAppVersion()"))["name"] == "apps_diagnostics"
        await bridge.evaluate("host.bridge.sendToolInputPartial({ arguments: { note: 'he' } })")
        await bridge.evaluate("host.bridge.sendToolInput({ arguments: { note: 'hello' } })")
        await bridge.call(
            "(result) => host.bridge.sendToolResult(result)",
            {"content": [{"type": "text", "text": "ok"}], "structuredContent": {"n": 1}, "_meta": {"m": 2}},
        )
        await scene.view.until("document.documentElement.dataset.verdict === 'pass'")
        await bridge.call(
            "(context) => host.bridge.setHostContext(context)", {**CONTEXT, "theme": "light", "locale": "fr"}
        )
        assert "theme" in await scene.becomes("context-changed", "pass")
        assert await scene.view.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
        await bridge.until("host.names().includes('sizechange')")

        listed = await bridge.evaluate("host.bridge.listTools({})")
        assert [tool["name"] for tool in listed["tools"]] == ["get_report", "set_note"]
        report = await bridge.evaluate("host.bridge.callTool({ name: 'get_report', arguments: {} })")
        assert report["structuredContent"]["verdict"] == "pass"
        assert await bridge.evaluate("host.bridge.teardownResource({ reason: 'done' })") == {}
        await scene.becomes("teardown", "pass")
        assert await scene.failing() == set()
        judged = await bridge.evaluate("host.objections()")
        assert judged["found"] == []
        assert judged["checked"] >= 6
        scene.clean()


@pytest.mark.parametrize("denials", [False, True], ids=["granted", "denied"])
async def test_every_request_is_understood_by_the_official_host(open_official: Open, denials: bool) -> None:
    """mcp-apps-req-01 to 04 and the later additions: each reaches its handler, and fits the SDK's schema."""
    async with open_official(denials=denials) as scene:
        for key in ("open-link", "message", "download-file"):
            assert (await scene.ask(key))[0] == ("is-error" if denials else "ok"), key
        for key in (
            "update-model-context",
            "tools-call-echo",
            "tools-call-server-info",
            "resources-read",
            "resources-list",
            "resources-templates-list",
            "prompts-list",
            "sampling",
            "ping",
        ):
            assert (await scene.ask(key))[0] == "ok", key
        # The bridge knows no tools/list from a View, and says so.
        outcome, text = await scene.ask("tools-list")
        assert (outcome, "-32601" in text) == ("error", True)
        for key in ("log", "size-changed", "request-teardown"):
            assert (await scene.ask(key))[0] == "sent", key
        await scene.tab("display")
        await scene.view.click('[data-mode="fullscreen"]')
        await scene.view.until("document.querySelector('[data-mode=fullscreen]').ariaPressed === 'true'")
        await scene.host.until("host.names().includes('requestteardown')")
        called = set(await scene.host.evaluate("host.names()"))
        assert called >= {
            "openlink",
            "message",
            "downloadfile",
            "updatemodelcontext",
            "requestdisplaymode",
            "calltool",
            "readresource",
            "listresources",
            "listresourcetemplates",
            "listprompts",
            "createsamplingmessage",
            "sizechange",
            "loggingmessage",
            "requestteardown",
        }
        judged = await scene.host.evaluate("host.objections()")
        assert judged["found"] == []
        assert judged["checked"] >= 8
        assert await scene.failing() == set()
        scene.clean()


async def test_the_judge_can_object(open_official: Open) -> None:
    """A message that is out of shape is found, so that finding nothing means something."""
    async with open_official() as scene:
        await scene.host.until("host.names().includes('initialized')")
        bad = {"jsonrpc": "2.0", "method": "ui/notifications/size-changed", "params": {"width": "wide"}}
        await scene.view.call("(bad) => parent.postMessage(bad, '*')", bad)
        await scene.host.until("host.objections().found.length === 1")
