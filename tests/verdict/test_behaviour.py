"""Small apps, each judged by what it does and what is painted. One run in Chromium for all of them."""

from __future__ import annotations

import asyncio

import pytest
from support.browser import find_chromium

from mcpd import Server
from mcpd.verdict.options import TryOptions
from mcpd.verdict.report import AppsReport
from mcpd.verdict.run import try_apps

pytestmark = pytest.mark.slow

# A page that keeps the rules of the protocol: `show` is called with the result, `size` reports the height.
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A</title>
<style>:root { color-scheme: light dark } body { margin: 8px; CSS }</style>HEAD</head><body>BODY<script>
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
let isLive = false;
const size = (height, width = innerWidth) =>
  isLive && send({ method: "ui/notifications/size-changed", params: { width, height } });
let show = (result) => {};
addEventListener("message", ({ source, data: { id, method, params, result } }) => {
  if (source !== parent) return;
  if (result) {
    send({ method: "ui/notifications/initialized" });
    isLive = true;
    size(document.body.offsetHeight + 16);
  } else if (method === "ui/notifications/tool-result") show(params);
  else if (method === "ping" || method === "ui/resource-teardown") send({ id, result: {} });
  else if (method && id !== undefined) send({ id, error: { code: -32601, message: "no" } });
});
SCRIPT
const params = { protocolVersion: "2026-01-26", appInfo: { name: "a", version: "1" }, appCapabilities: {} };
send({ id: 1, method: "ui/initialize", params });
</script></body></html>"""
FOLLOWS = "new ResizeObserver(() => size(document.documentElement.scrollHeight)).observe(document.documentElement);"


def page(body: str, script: str = "", css: str = "", head: str = "") -> str:
    return PAGE.replace("BODY", body).replace("SCRIPT", script).replace("CSS", css).replace("HEAD", head)


GOOD = {
    "router": page("<p>42 beans</p>", 'history.pushState({}, "", "/beans");'),
    "long": page("<p style='height: 2000px'>42 beans</p>", FOLLOWS),
    "same_size": page("<p>42 beans</p>", "setInterval(() => size(100), 20);"),
    "icon": page("<p>42 beans</p>", head='<link rel="icon" href="/vite.svg"><base href="/">'),
    "form": page(
        '<form action="/search"><button>42 beans</button></form>',
        'document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());',
    ),
}
# "//cdn.invalid" counts as the https address that is declared: allowed, and then not found.
CDN = page("<p>42 beans</p>", head='<script src="//cdn.invalid/x.js"></script>')
BAD = {
    "loop": (page("<p>42 beans</p>", FOLLOWS, "min-height: 100vh; padding: 20px"), "resize", "it grows with its frame"),
    "own_loop": (
        page("<p>42 beans</p>", "let h = 9; setInterval(() => size(h++), 20);"),
        "resize",
        "asks for a new size",
    ),
}


@pytest.fixture(scope="module")
def report() -> AppsReport:
    if find_chromium() is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    server = Server("small", version="1")
    for name, html in {**GOOD, "cdn": CDN, **{name: html for name, (html, _, _) in BAD.items()}}.items():
        server.app(name, html, csp={"resourceDomains": ["https://cdn.invalid"]} if name == "cdn" else None)

        def tool() -> dict[str, int]:
            return {"beans": 42}

        server.add_tool(tool, name=name, ui=name)
    return asyncio.run(try_apps(server, TryOptions(browser=find_chromium(), timeout=30)))


@pytest.mark.parametrize("name", GOOD)
def test_an_app_that_works_has_no_failure_and_no_warning(report: AppsReport, name: str) -> None:
    assert (report.app(name).failures, report.app(name).warnings) == ([], [])


@pytest.mark.parametrize("name", BAD)
def test_what_breaks_an_app_is_its_one_failure(report: AppsReport, name: str) -> None:
    _, check, text = BAD[name]
    (failure,) = (cause for cause in report.app(name).causes if cause.severity == "failure")
    assert failure.checks[0] == check
    assert text in failure.text


def test_an_address_without_a_scheme_is_taken_for_https(report: AppsReport) -> None:
    app = report.app("cdn")
    assert app.failures == []
    (warning,) = app.warnings
    assert "https://cdn.invalid/x.js could not be loaded: net::ERR" in warning
