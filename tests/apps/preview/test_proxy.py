"""The proxy of a View in Chromium: what it passes on, what it keeps back, and that it asks for nothing itself."""

from __future__ import annotations

from typing import Any

from support.browser import Chromium
from support.pages import Pages
from support.preview_stage import Stage, staged

from mcpd import Server

SILENT = "<!doctype html><meta charset=utf-8><title>Silent</title><p id=here>here"
RESERVED = "ui/notifications/sandbox-"


def make_server() -> Server:
    server = Server("garden")
    server.app("silent", SILENT)

    @server.tool(ui="silent")
    async def silent() -> str:
        return "text"

    return server


async def from_proxy(stage: Stage, info: Any) -> list[Any]:
    """All that the page was sent by the proxy, in the trace of the preview."""
    entries = (await stage.request("trace/get", filter={"parties": [f"view:{info['viewId']}"]}))["entries"]
    return [entry["message"] for entry in entries if entry["to"] == "host"]


async def test_the_proxy_passes_on_and_asks_for_nothing(chromium: Chromium, pages: Pages) -> None:
    """APP-X-03, APP-X-05, APP-X-06, APP-X-07: one View that says nothing, and then all that it must not say."""
    async with staged(chromium, make_server()) as stage:
        info, guest = await stage.show(await stage.call("silent"))
        await guest.until("document.querySelector('#here')")
        await stage.bare.until("bare.passed.length >= 1")
        said = await from_proxy(stage, info)
        assert said[0] == {"jsonrpc": "2.0", "method": f"{RESERVED}proxy-ready", "params": {}}
        assert all("id" not in message and message["method"].startswith(RESERVED) for message in said)

        # The document is taken once: a second one, from the page itself, goes nowhere.
        again = {"jsonrpc": "2.0", "method": f"{RESERVED}resource-ready", "params": {"html": "<p id=other>"}}
        post = "(view, message) => bare.views.get(view).frame.contentWindow.postMessage(message, '*')"
        await stage.bare.call(post, info["viewId"], again)
        # Of what the View says under its proxy's names only that it did arrives; everything else passes, as it is.
        speak = "(messages) => messages.forEach((message) => parent.postMessage(message, '*'))"
        forged = [{"method": f"{RESERVED}{name}", "params": {}} for name in ("proxy-ready", "guest-ready")]
        request = {"jsonrpc": "2.0", "id": 0, "method": "ping", "params": {"x": [None, 1.5, "\u2028"]}}
        await guest.call(speak, [*forged, {"method": f"{RESERVED}guest-gone", "params": {}}, request])
        await stage.bare.until("bare.passed.some(({id}) => id === 0)")
        told = (await from_proxy(stage, info))[len(said) :]
        assert [message["method"] for message in told] == [*[f"{RESERVED}dropped"] * 3, "ping"]
        assert told[-1] == request
        assert await guest.evaluate("document.querySelector('#other')") is None
        assert [one["rule"] for one in await stage.events(info["viewId"], "finding")][:1] == ["reserved"]

        # A window that is neither of the two is not heard, whatever it says.
        proxy = await stage.page.frame(info["proxyUrl"])
        await proxy.call("(message) => { window.postMessage(message, '*'); }", request | {"id": "own"})

        # Another page may have a proxy's address: it is no use there, nor is the page or its API.
        other = """async (host) => {
          const socket = new WebSocket(`ws://${host}/api`);
          const end = await new Promise((done) => {
            socket.onopen = () => done("open");
            socket.onclose = () => done("closed");
          });
          return [end, await fetch(`http://${host}/`).then(() => "read", () => "refused")];
        }"""
        pages.put("/", "<!doctype html><title>Another page</title>")
        async with chromium.page() as foreign:
            stranger = await foreign.goto(pages.url("/", "other.mcpd"))
            host = f"mcpd.localhost:{stage.preview.origins.port}"
            assert await stranger.call(other, host) == ["closed", "refused"]
        assert "own" not in [message.get("id") for message in await from_proxy(stage, info)]


async def test_a_view_that_leaves_is_held(chromium: Chromium, pages: Pages) -> None:
    """APP-X-04, APP-X-08: it cannot go elsewhere, and what it tried is told."""
    pages.put("/away", "<!doctype html><title>Away</title>")
    async with staged(chromium, make_server()) as stage:
        info, guest = await stage.show(await stage.call("silent"))
        await guest.until("document.querySelector('#here')")
        await guest.call("(url) => { location.href = url; }", pages.url("/away", "out"))
        event = await stage.until_event(info["viewId"], "violation")
        assert (event["directive"], event["field"]) == ("frame-src", None)
        assert event["domain"] == pages.url("", "out")
        assert "ui/open-link" in event["advice"]
