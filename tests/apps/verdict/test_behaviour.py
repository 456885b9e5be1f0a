"""Small apps, each judged by what it does and what is painted. One run in Chromium for all of them."""

from __future__ import annotations

import asyncio

import pytest
from support.browser import find_chromium

from mcpd import Server
from mcpd.apps.verdict.report import AppsReport, TryOptions
from mcpd.apps.verdict.run import try_apps

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


RECT = "<rect width='99' height='99'/>"
DARK = f"<svg xmlns='http://www.w3.org/2000/svg' width='99' height='99'>{RECT}</svg>"
HEARS = 'show = (result) => { document.querySelector("p").textContent = TEXT; };'
NUMBER = "result.structuredContent?.beans ?? ''"
GOOD = {
    "router": page("<p>42 beans</p>", 'history.pushState({}, "", "/beans");'),
    "long": page("<p style='height: 2000px'>42 beans</p>", FOLLOWS),
    "same_size": page("<p>42 beans</p>", "setInterval(() => size(100), 20);"),
    "boxes": page('<div style="width: 90px; height: 90px; background: green"></div>'),
    "closed_shadow": page(
        "<x-card></x-card>",
        """customElements.define("x-card", class extends HTMLElement {
      connectedCallback() { this.attachShadow({ mode: "closed" }).innerHTML = "<p>42 beans</p>"; } });""",
    ),
    "drawn_text": page(
        f'<svg width="99" height="99">{RECT}<text x="5" y="25" fill="#fff">42 beans</text></svg>',
        css="background: #000; color: #000",
    ),
    "caption": page(
        f'<img alt="" src="data:image/svg+xml,{DARK}"><p style="position: absolute; top: 8px; color: #fff">42 beans</p>'
    ),
    "icon": page("<p>42 beans</p>", head='<link rel="icon" href="/vite.svg"><base href="/">'),
    "form": page(
        '<form action="/search"><button>42 beans</button></form>',
        'document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());',
    ),
}
# "//cdn.invalid" counts as the https address that is declared: allowed, and then not found.
CDN = page("<p>42 beans</p>", head='<script src="//cdn.invalid/x.js"></script>')
FAINT = page(
    '<svg width="200" height="40"><text x="5" y="25" fill="#eee">42 beans</text></svg>',
    css="background: #fff; color: #000",
)
WARNED = {
    "faint": (FAINT, "'42 beans' in <text>: #eeeeee on #ffffff is 1.16:1"),
    "structured_only": (
        page("<h1>Beds</h1><p></p>", HEARS.replace("TEXT", NUMBER)),
        "with results without structuredContent nothing of its result is visible",
    ),
}
BAD = {
    "loop": (page("<p>42 beans</p>", FOLLOWS, "min-height: 100vh; padding: 20px"), "resize", ""),  # see below
    "own_loop": (
        page("<p>42 beans</p>", "let h = 100; setInterval(() => size(h++), 40);"),
        "resize",
        "asks for a new size",
    ),
    "deaf": (page("<h1>Beds</h1><p>Loading</p>"), "shows-result", "it shows nothing of its result"),
    "listens_late": (
        page("<h1>Beds</h1><p></p>", f"setTimeout(() => {{ {HEARS.replace('TEXT', NUMBER)} }}, 300);"),
        "shows-result",
        "it shows nothing of its result",
    ),
    "own_policy": (
        page("<p>42 beans</p>", head="<meta http-equiv='Content-Security-Policy' content=\"default-src 'self'\">"),
        "handshake",
        "it does not start: a policy of its own: Executing inline script violates",
    ),
    "blank_canvas": (page('<canvas width="300" height="150"></canvas>'), "layout-1280", "nothing is visible"),
    "broken_picture": (
        page('<img src="data:image/png;base64,AAAA" width="100" height="100">'),
        "layout-1280",
        "nothing is visible",
    ),
    "module": (
        page("<p>42 beans</p>", head='<script type="module">import "https://cdn.invalid/x.js";</script>'),
        "policy",
        "https://cdn.invalid/x.js is blocked by script-src",
    ),
    "data_font": (
        page(
            "<p>42 beans</p>",
            head="<style>@font-face { font-family: a; src: url(data:font/woff2;base64,d09GMg) }</style>",
            css="font-family: a, serif",
        ),
        "policy",
        "data: is blocked by font-src",
    ),
    "beside": (
        page("<p>42 beans</p>", head='<script src="./main.js"></script>'),
        "loads",
        "./main.js is relative",
    ),
    "plug_in": (
        page('<p>42 beans</p><object data="//cdn.invalid/x.swf"></object>'),
        "loads",
        "//cdn.invalid/x.swf is not loaded",
    ),
}  # fmt: skip


# Each way in which styles and scripts load something, and what a sandbox stops without an error.
LOADER = page(
    """<p>42 beans</p><b>x</b><u>x</u><i style="background: url(https://style-attribute.invalid/p)">x</i>
<button onclick="fetch('https://event-attribute.invalid/').catch(() => 0)">Go</button>""",
    """const help = 'fetch("https://text.invalid/")'; // fetch("https://comment.invalid/")
const base = "https://template.invalid/v1";
const tries = [
  () => fetch("https://fetch.invalid/x"),
  () => fetch(`${base}/x`),
  () => fetch(new URL("https://url.invalid/x")),
  () => new WebSocket("wss://socket.invalid/x"),
  () => new EventSource("https://event-source.invalid/x"),
  () => { const request = new XMLHttpRequest(); request.open("post", "https://xhr.invalid/x"); request.send(); },
  () => navigator.sendBeacon("https://beacon.invalid/x"),
  () => import("https://dynamic-import.invalid/x.js"),
  () => { new Image().src = "https://image.invalid/x"; },
  () => new FontFace("f", "url(https://font-face.invalid/x)").load(),
  () => new Worker(URL.createObjectURL(new Blob([""]))),
  () => alert("hello"),
  () => open("https://window.invalid/"),
  () => document.querySelector("button").click(),
];
for (const attempt of tries) (async () => attempt())().catch(() => 0);""",
    head="""<style>@import "https://css-import.invalid/x.css";
@font-face { font-family: own; src: url(https://css-font.invalid\\2f x.woff2) } p { font-family: own, serif }
b { background: image-set("https://image-set.invalid/1" 1x) } u { background: url( 'https://css-url.invalid/b' ) }
/* url(https://css-comment.invalid/) */</style>
<script type="module">import "https://module.invalid/x.js";</script>""",
)
LOADED = {
    "resourceDomains": [
        "css-font", "css-import", "css-url", "dynamic-import", "font-face", "image", "image-set", "module",
        "style-attribute",
    ],
    "connectDomains": ["beacon", "event-attribute", "event-source", "fetch", "template", "url", "xhr"],
}  # fmt: skip


@pytest.fixture(scope="module")
def report() -> AppsReport:
    if find_chromium() is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    server = Server("small", version="1")
    pages = {**GOOD, "cdn": CDN, "loader": LOADER} | {name: html for name, (html, *_) in {**WARNED, **BAD}.items()}
    for name, html in pages.items():
        server.app(name, html, csp={"resourceDomains": ["https://cdn.invalid"]} if name == "cdn" else None)

        def tool() -> dict[str, int]:
            return {"beans": 42}

        server.add_tool(tool, name=name, ui=name)

    # Without data for the app, or with a flag only, it has nothing that it would have to show.
    def words() -> str:
        return "42 beans"

    def flag() -> dict[str, bool]:
        return {"ok": True}

    for opens in (words, flag):
        server.app(opens.__name__, page("<h1>Beds</h1>"))
        server.add_tool(opens, ui=opens.__name__)
    return asyncio.run(try_apps(server, TryOptions(browser=find_chromium(), timeout=20)))


@pytest.mark.parametrize("name", [*GOOD, "words", "flag"])
def test_an_app_that_works_has_no_failure_and_no_warning(report: AppsReport, name: str) -> None:
    assert (report.app(name).failures, report.app(name).warnings) == ([], [])


@pytest.mark.parametrize("name", BAD)
def test_what_breaks_an_app_is_its_one_failure(report: AppsReport, name: str) -> None:
    _, check, text = BAD[name]
    failures = [cause for cause in report.app(name).causes if cause.severity == "failure"]
    assert len(failures) == 1, failures
    failure = failures[0]
    assert failure.checks[0] == check
    assert text in failure.text
    if name == "loop":  # in a slow browser it still grows when it is looked at
        assert "it grows with its frame" in failure.text or "it asks for a new size" in failure.text
    assert "more like it" not in failure.text or name in ("blank_canvas", "broken_picture")
    assert report.app(name).warnings == []


@pytest.mark.parametrize("name", WARNED)
def test_what_is_worth_mending_is_its_one_warning(report: AppsReport, name: str) -> None:
    """WCAG 1.4.3 for drawn text too, by the colour that it is filled with; APP-S-16."""
    app = report.app(name)
    assert app.failures == []
    (warning,) = app.warnings
    assert WARNED[name][1] in warning


def test_an_address_without_a_scheme_is_taken_for_https(report: AppsReport) -> None:
    app = report.app("cdn")
    assert app.failures == []
    (warning,) = app.warnings
    assert "https://cdn.invalid/x.js could not be loaded: net::ERR" in warning


def test_the_browser_names_what_styles_and_scripts_load(report: AppsReport) -> None:
    """APP-H-05, APP-X-04: whatever loads an address, the finding has the source to declare and its field."""
    app = report.app("loader")
    findings = [finding for finding in app.check("policy").findings if finding.domain]
    expected = {f"https://{name}.invalid": field for field, names in LOADED.items() for name in names}
    expected["wss://socket.invalid"] = "connectDomains"
    assert {finding.domain: finding.field for finding in findings} == expected
    assert all(str(finding.domain) in finding.advice for finding in findings)
    assert "strict hosts start no workers" in [f.advice.partition(";")[0] for f in app.check("policy").findings]
    assert {finding.text for finding in app.check("needs").findings} == {
        "it tried to open a dialog: alert",
        "it tried to open a window: https://window.invalid/",
    }
    assert app.check("needs").status == "warning"
