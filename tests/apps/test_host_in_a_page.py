"""Our `Host` behind a thin page in a real Chromium: the bundled app and the official App class as its Views.

The page only passes messages on (relay_page.html); every decision is made in Python, over the View's WebSocket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.apps_scene import Scene
from support.browser import Chromium
from support.page_stage import showing
from support.pages import Pages

from mcpd import Server
from mcpd.apps.host.shown_view import ShownView
from mcpd.apps.host.view.context import HostContext
from mcpd.apps.host.view.events import Closed, Finding, Logged, SizeChanged
from mcpd.sources.demo import make_server


def _sample(view: ShownView, params: Any) -> dict[str, Any]:
    return {"role": "assistant", "model": "none", "content": {"type": "text", "text": "pong"}}


async def _who() -> str:
    return "other"


async def test_the_bundled_app_is_content_with_our_host(chromium: Chromium, pages: Pages) -> None:
    """APP-H-08 to -16, mcp-apps-life-01 to -03, -05 to -07: every line of its check list that can pass does."""
    async with showing(chromium, pages, make_server(), sample=_sample) as show:
        call = show.host.begin_call("apps_diagnostics")
        view = await show.view(call, keep=True)
        frame = await show.page.frame("/view")
        assert await view.live()
        scene = Scene(show.page, await show.page.frame("/page"), frame)
        call.stream_arguments('{"note": "hel')
        await scene.becomes("partial", "pass")
        await call.run({"note": "hello"})
        await frame.until("document.documentElement.dataset.verdict === 'pass'")
        view.change_context(HostContext(theme="light"))
        view.ping()
        report = await view.call_app_tool("get_report")
        assert report.structured_content["verdict"] == "pass"
        assert await view.close("the test is over") == Closed("the test is over", clean=True)
        await scene.becomes("teardown", "pass")
        checks = await scene.checks()
        # A call ends in one way, and this container has no width of its own that could be missed.
        assert {name for name, status in checks.items() if status != "pass"} <= {
            "cancelled",
            "container-fit",
            "quiet-close",
        }
        assert await scene.host.evaluate("relay.ends") == [1001]
        assert any(isinstance(event, SizeChanged) for event in show.events)
        assert not [event for event in show.events if isinstance(event, Finding) and event.refused]
        scene.clean()


async def test_each_request_of_the_bundled_app_is_answered(chromium: Chromium, pages: Pages) -> None:
    """mcp-apps-req-01 to -04 and the later draft's requests, from a button in a page to Python and back."""
    async with showing(chromium, pages, make_server(), sample=_sample) as show:
        view = await show.view(await show.host.call_tool("apps_diagnostics"))
        frame = await show.page.frame("/view")
        assert await view.live()
        scene = Scene(show.page, await show.page.frame("/page"), frame)
        for key in (
            "ping", "tools-call-server-info", "tools-call-echo", "tools-list", "resources-read", "resources-list",
            "resources-templates-list", "open-link", "message", "update-model-context", "download-file", "sampling",
        ):  # fmt: skip
            outcome, said = await scene.ask(key)
            assert outcome == "ok", f"{key}: {outcome} {said}"
        for key in ("size-changed", "log"):
            assert (await scene.ask(key))[0] == "sent"
        assert len(show.opened) == 1
        assert len(show.host.conversation.take_messages()) == 1
        assert [one.view for one in show.host.conversation.take_context()] == [view.id]
        assert any(isinstance(event, Logged) for event in show.events)
        scene.clean()


@pytest.mark.parametrize("others", [[], ["b", "c"]], ids=["one", "three"])
async def test_an_app_behind_a_mount_is_shown(chromium: Chromium, pages: Pages, others: list[str]) -> None:
    """MNT-33: a View is rendered, and its script reads resources by the names of its own server."""
    front = Server("front")
    front.mount("up", make_server())
    for name in others:
        other = Server(name)
        other.tool(_who)
        front.mount(name, other)
    async with showing(chromium, pages, front, sample=_sample) as show:
        view = await show.view(await show.host.call_tool("up_apps_diagnostics"))
        frame = await show.page.frame("/view")
        assert await view.live()
        scene = Scene(show.page, await show.page.frame("/page"), frame)
        for key in ("ping", "resources-read", "resources-list", "message", "open-link", "update-model-context"):
            outcome, said = await scene.ask(key)
            assert outcome == "ok", f"{key}: {outcome} {said}"
        assert await scene.failing() == set()
        scene.clean()
    await front.aclose()


async def test_a_cancelled_call_in_a_page(chromium: Chromium, pages: Pages) -> None:
    """mcp-apps-life-04."""
    async with showing(chromium, pages, make_server()) as show:
        call = show.host.begin_call("apps_diagnostics")
        view = await show.view(call)
        scene = Scene(show.page, await show.page.frame("/page"), await show.page.frame("/view"))
        assert await view.live()
        call.cancel("the user pressed stop")
        assert "the user pressed stop" in await scene.becomes("cancelled", "pass")
        assert await scene.failing() == set()


OFFICIAL = """<!doctype html><meta charset="utf-8"><title>Official</title><script>__BUNDLE__</script><script>
"use strict";
const told = [];
const app = new ExtApps.App({ name: "official", version: "1" }, { availableDisplayModes: ["inline", "fullscreen"] });
app.ontoolinput = (params) => told.push(["input", params]);
app.ontoolresult = (params) => told.push(["result", params]);
app.onhostcontextchanged = (params) => told.push(["context", params]);
app.onerror = (error) => told.push(["error", String(error)]);
app.onteardown = async () => { told.push(["teardown"]); return {}; };
const attempt = (action) => action().then((result) => result ?? null, ({ code, message }) => ({ code, message }));
const ready = app.connect(new ExtApps.PostMessageTransport(window.parent, window.parent));
</script>"""


async def test_the_official_view_in_a_page(chromium: Chromium, pages: Pages) -> None:
    """The SDK's App class, which checks each message of ours with its own schemas, under our policy."""
    bundle = Path(__file__).parent / "node_modules" / ".bundle" / "app.js"
    if not bundle.is_file():
        pytest.skip("needs the official View code: npm ci in tests/apps")
    server = Server("official")
    server.app("ui://official/view", OFFICIAL.replace("__BUNDLE__", bundle.read_text(encoding="utf-8")), name="view")

    @server.tool(ui="ui://official/view")
    async def show_it(city: str) -> dict[str, str]:
        return {"city": city}

    @server.tool(visibility=["app"])
    async def refresh() -> str:
        return "fresh"

    @server.tool(visibility=["model"])
    async def hidden() -> str:
        return "no"

    async with showing(chromium, pages, server) as show:
        view = await show.view(await show.host.call_tool("show_it", {"city": "Oslo"}), keep=True)
        frame = await show.page.frame("/view")
        assert await view.live()
        await frame.evaluate("ready")
        await frame.until("told.length >= 2")
        told = await frame.evaluate("told")
        assert told[0] == ["input", {"arguments": {"city": "Oslo"}}]
        assert told[1][1]["structuredContent"] == {"city": "Oslo"}
        assert await frame.evaluate("app.getHostContext().displayMode") == "inline"
        called = await frame.evaluate("attempt(() => app.callServerTool({ name: 'refresh', arguments: {} }))")
        assert called["content"] == [{"type": "text", "text": "fresh"}]
        refused = await frame.evaluate("attempt(() => app.callServerTool({ name: 'hidden', arguments: {} }))")
        assert refused["code"] == -32602
        assert await frame.evaluate("attempt(() => app.openLink({ url: 'https://example.com/' }))") == {}
        assert (await frame.evaluate("attempt(() => app.openLink({ url: 'javascript:1' }))"))["code"] == -32000
        content = "[{ type: 'text', text: 'hi' }]"
        assert await frame.evaluate(f"attempt(() => app.sendMessage({{ role: 'user', content: {content} }}))") == {}
        assert await frame.evaluate("attempt(() => app.requestDisplayMode({ mode: 'fullscreen' }))") == {
            "mode": "fullscreen"
        }
        view.change_context(HostContext(theme="light"))
        await frame.until("told.some(([what, params]) => what === 'context' && params.theme === 'light')")
        assert await view.close() == Closed("closed by the host", clean=True)
        await frame.until("told.some(([what]) => what === 'teardown')")
        assert not [entry for entry in await frame.evaluate("told") if entry[0] == "error"]
        # Its schema library looks once whether it may compile code, and goes on without.
        assert {one.blocked for one in show.page.violations} <= {"kEvalViolation"}
