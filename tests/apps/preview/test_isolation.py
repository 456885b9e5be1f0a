"""A hostile View in the preview's isolation, in a real Chromium: what it tries, row by row.

One showing of two Views of the probe app (probe.html) does all of it; the tests look at what came of each attempt, and
at which requests ever reached a server outside. The rows are those of design page "MCP Apps", 3.1 and 3.3.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import Chromium, Frame
from support.pages import Pages
from support.preview_stage import Stage, staged

from mcpd import Server

pytestmark = pytest.mark.slow

PROBE = (Path(__file__).parent / "probe.html").read_text(encoding="utf-8")
LINK = "ui/open-link"
RESERVED = "ui/notifications/sandbox-"

# What looks to a pattern as if the document's head began there. Each runs a script that calls outside.
_CALL = """<script>
  window.blocked = [];
  document.addEventListener("securitypolicyviolation", (event) => blocked.push(event.effectiveDirective));
  fetch(OUT + "/NAME", { mode: "no-cors" }).catch(() => 0);
  new Image().src = OUT + "/NAME-image";
</script>"""
INJECTIONS = {
    "header": f"<!doctype html><html><body><header>x</header>{_CALL}</body></html>",
    "comment": f"<!doctype html><!--<head>--><html><head><title>x</title></head><body>{_CALL}</body></html>",
    "title": f"<!doctype html><html><title><head></title>{_CALL}<body>x</body></html>",
    "script-first": f"<!doctype html>{_CALL}<html><head></head><body>x</body></html>",
    "attribute": f'<!doctype html><html data-a="><head>"><head></head><body>{_CALL}</body></html>',
    "own-policy": "<!doctype html><meta http-equiv='Content-Security-Policy' content=\"default-src * 'unsafe-inline'\">"
    f"<body>{_CALL}</body>",
}


class Sink:
    """A server outside, on the loopback, that no View has declared: it writes down who came."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Sink]:
        open_ones: set[asyncio.StreamWriter] = set()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            open_ones.add(writer)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                self.seen.append((await reader.readuntil(b"\r\n")).decode())
                writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\nAccess-Control-Allow-Origin: *\r\n\r\n")
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self
            # Browsers connect ahead, and then ask for nothing.
            for writer in open_ones:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in open_ones), return_exceptions=True)


def make_server(sink: str) -> Server:
    server = Server("hostile")
    # It may reach servers on this machine by name: the page's API too, if that let it.
    server.app("probe", PROBE, csp={"connectDomains": ["http://mcpd.localhost:*", "ws://mcpd.localhost:*"]})
    for name, html in INJECTIONS.items():
        server.app(name, html.replace("OUT", f"'{sink}'").replace("NAME", name))

    @server.tool(ui="probe")
    async def probe() -> str:
        """Opens the probe."""
        return "the text result"

    @server.tool(visibility=["model"])
    async def for_the_model() -> str:
        """Not for Views."""
        return "secret"

    for name in INJECTIONS:

        async def injected() -> str:
            return "text"

        server.add_tool(injected, name=name, ui=name)
    return server


async def _try_all(stage: Stage, one: Frame, two: Frame, out: str) -> dict[str, Any]:
    """Everything that leaves the View where it is."""

    async def tries(name: str, *arguments: Any, by: Frame = one) -> Any:
        return await by.call("(name, given) => probe[name](...given)", name, arguments)

    found: dict[str, Any] = {"origins": [await tries("origin"), await tries("origin", by=two)]}
    found["kept"] = await tries("keep", "mine")
    found["kept by the other"] = await tries("kept", by=two)
    for name in ("eval", "function", "wasm", "worker", "dataImage", "blobImage", "domain"):
        found[name] = await tries(name)
    await tries("domain", by=two)
    for name in ("image", "fetch", "request", "script", "module", "style", "inner", "prefetch", "beacon", "ping"):
        found[name] = await tries(name, f"{out}/{name}")
    found["socket"] = await tries("socket", f"{out.replace('http', 'ws')}/socket")
    found["frame"] = await tries("frame", f"{out}/frame")
    found["data module"] = await tries("module", "data:text/javascript,1")
    found["popup"] = await tries("popup", f"{out}/popup")
    found["top navigation"] = await tries("topTo", f"{out}/top")
    found["proxy navigation"] = await tries("proxyTo", f"{out}/proxy")
    for name in ("parentDocument", "topDocument", "topValue", "unbox", "unboxParent", "proxyScript"):
        found[name] = await tries(name)
    for at in range(2):
        found[f"sibling {at}"] = await tries("sibling", at)
        found[f"storage of sibling {at}"] = await tries("siblingStorage", at)

    port = stage.preview.origins.port
    found["api"] = await tries("socket", f"ws://mcpd.localhost:{port}/api")
    found["page"] = await tries("request", f"http://mcpd.localhost:{port}/")
    found["model tool"] = await tries("ask", "tools/call", {"name": "for_the_model", "arguments": {}})
    found["javascript link"] = await tries("ask", LINK, {"url": "javascript:alert(1)"})
    found["link"] = await tries("ask", LINK, {"url": "https://example.com/"})
    found["violations"] = await tries("violations")
    return found


async def _try_messages(stage: Stage, one: Frame, two: Frame) -> dict[str, Any]:
    """Messages that are forged: to the page, to the other's proxy, to the other, and reserved ones."""
    html = "<!doctype html><script>window.replaced = true</script>"
    ready = {"jsonrpc": "2.0", "method": f"{RESERVED}resource-ready", "params": {"html": html}}
    call = {"jsonrpc": "2.0", "id": "forged", "method": "tools/call", "params": {"name": "probe", "arguments": {}}}
    before = await stage.bare.evaluate("bare.told.length")
    reserved = [
        {"jsonrpc": "2.0", "method": f"{RESERVED}{name}", "params": {}} for name in ("proxy-ready", "guest-ready")
    ]
    for message in (ready, *reserved):
        await one.call("(message) => probe.tell(message)", message)
    for message in (ready, call, *reserved):
        await one.call("(message) => probe.tellTop(message)", message)
        await one.call("(message) => probe.tellProxy(1, message)", message)
    await one.call("(message) => probe.tellSibling(1, message)", call)
    # What was sent before has arrived, or never will: these take the same ways.
    alive = [await frame.call("() => probe.ask('ping', {})") for frame in (one, two)]
    heard = await two.evaluate("probe.heard().filter((one) => !one.isParent).map(({ data }) => data.id)")
    replaced = [await frame.evaluate("Boolean(window.replaced)") for frame in (one, two)]
    told = await stage.bare.evaluate(f"JSON.stringify(bare.told.slice({before}))")
    return {"heard by the other": heard, "replaced": replaced, "told": told, "alive": alive}


async def _try_from_elsewhere(stage: Stage, chromium: Chromium, proxy_url: str) -> dict[str, Any]:
    """Another page on another port: the API, the page's files, a View's addresses."""
    pages = Pages()
    pages.put("/", "<!doctype html><title>elsewhere</title>")
    port = stage.preview.origins.port
    try:
        async with chromium.page() as page:
            other = await page.goto(pages.url("/"))
            socket = """(url) => new Promise((done) => {
              const socket = new WebSocket(url);
              socket.onopen = () => done("open");
              socket.onerror = () => done("refused");
            })"""
            read = "(url) => fetch(url).then((answer) => answer.text(), () => 'blocked')"
            status = "(url) => fetch(url, { mode: 'no-cors' }).then((answer) => answer.type, () => 'blocked')"
            found: dict[str, Any] = {
                f"api at {name}": await other.call(socket, f"ws://{name}:{port}/api")
                for name in ("mcpd.localhost", "localhost", "127.0.0.1")
            }
            found["page"] = await other.call(read, f"http://mcpd.localhost:{port}/")
            found["proxy"] = await other.call(read, proxy_url)
            frame = """(url) => new Promise((done) => {
              const frame = Object.assign(document.createElement("iframe"), { src: url, onload: () => done("loaded") });
              document.body.append(frame);
            })"""
            await other.call(frame, proxy_url)
            found["no-cors"] = await other.call(status, proxy_url)
        async with chromium.page() as page:
            used = await page.goto(proxy_url)
            found["again"] = await used.evaluate("document.body.textContent")
        return found
    finally:
        pages.close()


async def _try_leaving(stage: Stage, how: str, *arguments: Any) -> dict[str, Any]:
    """A View that navigates away from itself: it fails, and the text result is still there."""
    call = await stage.call("probe")
    info, frame = await stage.show(call)
    await stage.until_event(info["viewId"], "live")
    # What is called goes away with the answer.
    await frame.call("(how, given) => { setTimeout(() => probe[how](...given)); }", how, arguments)
    failed = await stage.until_event(info["viewId"], "failed")
    again = await stage.request("tools/call", callId=f"again {how}", name="probe", arguments={}, **{"as": "model"})
    return {"failed": failed, "text": again["text"]}


async def _injected(stage: Stage) -> dict[str, Any]:
    """The documents that look as if their head were elsewhere: what was blocked in each."""
    found: dict[str, Any] = {}
    for name in INJECTIONS:
        info = await stage.bare.call("(callId) => bare.show(callId)", await stage.call(name))
        guest = await stage.guest(info)
        found[name] = await guest.until("window.blocked?.length >= 2 && [...new Set(blocked)].sort()")
        await stage.bare.call("(viewId) => bare.remove(viewId)", info["viewId"])
        await stage.attempt("view/close", viewId=info["viewId"])
    return found


@pytest.fixture(scope="module")
def tried(chromium: Chromium) -> dict[str, Any]:
    """All attempts, made once."""

    async def work() -> dict[str, Any]:
        async with Sink().open() as sink, staged(chromium, make_server(sink.url)) as stage:
            shown = [await stage.show(await stage.call("probe")) for _ in range(2)]
            for info, _ in shown:
                await stage.until_event(info["viewId"], "live")
            (info, one), (_, two) = shown
            found: dict[str, Any] = {"port": stage.preview.origins.sandbox_port}
            found["alone"] = await _try_all(stage, one, two, sink.url)
            found["messages"] = await _try_messages(stage, one, two)
            found["elsewhere"] = await _try_from_elsewhere(stage, chromium, info["proxyUrl"])
            found["injected"] = await _injected(stage)
            found["leaving"] = {
                "link": await _try_leaving(stage, "leave", f"{sink.url}/away"),
                "form": await _try_leaving(stage, "form", f"{sink.url}/form", "post"),
            }
            found["outside"] = list(sink.seen)
            return found

    return asyncio.run(asyncio.wait_for(work(), 120))


BLOCKED = [
    "eval", "function", "wasm", "worker", "blobImage", "image", "fetch", "request", "script", "module", "style",
    "socket", "data module", "top navigation", "proxy navigation", "parentDocument", "topDocument", "topValue", "unbox",
    "unboxParent", "proxyScript", "sibling 1", "storage of sibling 1", "api", "page",
]  # fmt: skip


@pytest.mark.parametrize("attempt", BLOCKED)
def test_it_is_kept_from(tried: dict[str, Any], attempt: str) -> None:
    """APP-H-05, APP-H-20, APP-X-01, APP-X-04, APP-X-08: each attempt throws, or never comes to anything."""
    assert "failed" in tried["alone"][attempt], tried["alone"][attempt]


def test_each_has_an_origin_and_storage_of_its_own(tried: dict[str, Any]) -> None:
    """APP-X-01, APP-X-08."""
    alone = tried["alone"]
    origins = [outcome["did"] for outcome in alone["origins"]]
    assert len(set(origins)) == 2
    assert all(origin.endswith(f".mcpd.localhost:{tried['port']}") for origin in origins)
    assert alone["kept"] == {"did": "mine"}
    assert alone["kept by the other"] == {"did": None}
    # It sees its own document where its siblings' are out of reach.
    assert "did" in alone["sibling 0"]


def test_what_it_may_do_works(tried: dict[str, Any]) -> None:
    """APP-H-05, APP-H-17: images from data:, links of http and https."""
    assert tried["alone"]["dataImage"] == {"did": "loaded"}
    assert "result" in tried["alone"]["link"]["did"]


def test_nothing_of_it_reaches_a_server_outside(tried: dict[str, Any]) -> None:
    """APP-H-05, APP-X-04: fetch, image, beacon, form, frame, popup, prefetch, navigation, and all injections."""
    assert tried["outside"] == []
    assert tried["alone"]["inner"] == {"did": "blocked"}
    assert tried["alone"]["popup"] == {"did": "null"}
    assert {"connect-src", "img-src", "frame-src"} <= set(tried["alone"]["violations"])


def test_what_is_not_for_views_is_refused(tried: dict[str, Any]) -> None:
    """APP-H-03, APP-H-17."""
    assert tried["alone"]["model tool"]["did"]["error"]["code"] == -32602
    assert tried["alone"]["javascript link"]["did"]["error"]["code"] in (-32602, -32000)


def test_forged_messages_come_to_nothing(tried: dict[str, Any]) -> None:
    """APP-X-05, APP-X-07, APP-V-04: wrong source, wrong origin, reserved methods, a second document."""
    messages = tried["messages"]
    assert messages["replaced"] == [False, False]
    assert "forged" not in messages["told"]
    # It is a window like any other: what it does with such a message is its own business.
    assert messages["heard by the other"] == ["forged"]
    assert all("result" in alive["did"] for alive in messages["alive"])


def test_another_page_gets_nothing(tried: dict[str, Any]) -> None:
    """APP-X-07, APP-X-08: not the API, not the page, and the addresses of a View are dead after their use."""
    elsewhere = tried["elsewhere"]
    assert {value for name, value in elsewhere.items() if name.startswith("api")} == {"refused"}
    assert (elsewhere["page"], elsewhere["proxy"]) == ("blocked", "blocked")
    assert "used already" in elsewhere["again"]


@pytest.mark.parametrize("name", INJECTIONS)
def test_a_head_in_an_odd_place_loosens_nothing(tried: dict[str, Any], name: str) -> None:
    """APP-X-04: the policy is that of the response, wherever a document has what looks like a head."""
    assert tried["injected"][name] == ["connect-src", "img-src"]


@pytest.mark.parametrize("how", ["link", "form"])
def test_one_that_leaves_has_failed_and_its_text_is_there(tried: dict[str, Any], how: str) -> None:
    """APP-H-20, APP-X-04."""
    assert "it has left its place" in tried["leaving"][how]["failed"]["reason"]
    assert tried["leaving"][how]["text"][0]["text"] == "the text result"
