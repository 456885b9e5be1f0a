"""What an app's HTML loads, held against what was declared. Rules APP-S-04, APP-H-05, APP-V-05."""

from __future__ import annotations

import pytest

from mcpd.extensions.ui.csp_sources import UiCsp
from mcpd.verdict.document import document_checks
from mcpd.verdict.markup import read_markup
from mcpd.verdict.report import Check

HEAD = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A</title>'


def look(body: str, csp: UiCsp | None = None, head: str = "") -> dict[str, Check]:
    checks = document_checks(f"{HEAD}{head}</head><body>{body}</body></html>", csp)
    return {check.name: check for check in checks}


def told(check: Check) -> set[tuple[object, object, object]]:
    return {(finding.url, finding.field or None, finding.domain or None) for finding in check.findings}


# Each way to load something: the markup, what is loaded, and where its origin has to be declared ("" if nowhere).
LOADS = [
    ('<script src="https://a.example/x.js"></script>', "https://a.example/x.js", "resourceDomains"),
    ('<link rel="stylesheet" href="//a.example/x.css">', "//a.example/x.css", "resourceDomains"),
    ('<link rel="preload" as="fetch" href="https://a.example/x">', "https://a.example/x", "connectDomains"),
    ('<link rel="modulepreload" href="https://a.example/x">', "https://a.example/x", "resourceDomains"),
    ('<img src="https://a.example/x.png">', "https://a.example/x.png", "resourceDomains"),
    ('<img srcset="data:image/png;base64,AA 1x, https://a.example/2 2x">', "https://a.example/2", "resourceDomains"),
    ('<picture><source srcset="https://a.example/s"></picture>', "https://a.example/s", "resourceDomains"),
    ('<video poster="https://a.example/p"></video>', "https://a.example/p", "resourceDomains"),
    ('<audio><source src="https://a.example/s"></audio>', "https://a.example/s", "resourceDomains"),
    ('<svg><image href="https://a.example/i"/></svg>', "https://a.example/i", "resourceDomains"),
    ('<iframe src="https://a.example/f"></iframe>', "https://a.example/f", "frameDomains"),
    ('<object data="https://a.example/o"></object>', "https://a.example/o", ""),
    ('<form action="https://a.example/f"><button>x</button></form>', "https://a.example/f", ""),
    ('<form><button formaction="https://a.example/b">x</button></form>', "https://a.example/b", ""),
    ('<base href="https://a.example/">', "https://a.example/", "baseUriDomains"),
    ('<meta http-equiv="refresh" content="0; url=https://a.example/">', "https://a.example/", ""),
    ('<a href="#" ping="https://a.example/p">x</a>', "https://a.example/p", "connectDomains"),
    ('<style>@import "https://a.example/i.css";</style>', "https://a.example/i.css", "resourceDomains"),
    ("<style>@import url(https://a.example/i.css) screen;</style>", "https://a.example/i.css", "resourceDomains"),
    ("<style>p{background:url( 'https://a.example/b' )}</style>", "https://a.example/b", "resourceDomains"),
    ('<style>p{background:image-set("https://a.example/1" 1x)}</style>', "https://a.example/1", "resourceDomains"),
    ("<style>@font-face{src:url(https://a.example/f.woff2)}</style>", "https://a.example/f.woff2", "resourceDomains"),
    ("<style>p{background:url(https://a.example\\2f z)}</style>", "https://a.example/z", "resourceDomains"),
    ('<p style="background: url(https://a.example/p)">', "https://a.example/p", "resourceDomains"),
    ('<script>fetch("https://a.example/f")</script>', "https://a.example/f", "connectDomains"),
    ("<script>fetch(`https://a.example/${id}/x`)</script>", "https://a.example/", "connectDomains"),
    ('<script>const A = "https://a.example/v1"; fetch(A + "/x")</script>', "https://a.example/v1", "connectDomains"),
    ("<script>let a='https://a.example/v1';fetch(`${a}/x`)</script>", "https://a.example/v1", "connectDomains"),
    ('<script>new WebSocket("wss://a.example/s")</script>', "wss://a.example/s", "connectDomains"),
    ('<script>new EventSource("https://a.example/s")</script>', "https://a.example/s", "connectDomains"),
    ('<script>x.open("post", "https://a.example/s")</script>', "https://a.example/s", "connectDomains"),
    ('<script>navigator.sendBeacon("https://a.example/s")</script>', "https://a.example/s", "connectDomains"),
    ('<script>fetch(new URL("https://a.example/s"))</script>', "https://a.example/s", "connectDomains"),
    ('<script type="module">import x from "https://a.example/m"</script>', "https://a.example/m", "resourceDomains"),
    ('<script>const m = await import("https://a.example/m")</script>', "https://a.example/m", "resourceDomains"),
    ('<script>image.src = "https://a.example/m"</script>', "https://a.example/m", "resourceDomains"),
    ('<script>new FontFace("f", "url(https://a.example/m)")</script>', "https://a.example/m", "resourceDomains"),
    ('<script>location.href = "https://a.example/"</script>', "https://a.example/", ""),
    ('<script>window.open("https://a.example/")</script>', "https://a.example/", ""),
    ('<script>new Worker("https://a.example/w")</script>', "https://a.example/w", ""),
    ('<button onclick="fetch(\'https://a.example/c\')">x</button>', "https://a.example/c", "connectDomains"),
]  # fmt: skip


@pytest.mark.parametrize(("markup", "url", "field"), LOADS)
def test_each_way_to_load_something_is_named_with_what_to_declare(markup: str, url: str, field: str) -> None:
    """APP-H-05: what is not declared is blocked, so it is named; once it is declared nothing is said."""
    head = markup if markup.startswith(("<base", "<meta", "<link")) else ""
    body = "" if head else markup
    check = look(body, head=head)["loads"]
    assert [finding.url for finding in check.findings] == [url]
    assert check.status in ("failure", "warning")
    finding = check.findings[0]
    if not field:
        assert not finding.field
        assert finding.advice
        return
    domain = "wss://a.example" if url.startswith("wss") else "https://a.example"
    assert (finding.field, finding.domain) == (field, domain)
    assert domain in finding.advice
    names = {"resourceDomains": "resource_domains", "connectDomains": "connect_domains",
             "frameDomains": "frame_domains", "baseUriDomains": "base_uri_domains"}  # fmt: skip
    assert look(body, UiCsp(**{names[field]: [domain]}), head)["loads"].status == "ok"
    assert look(body, UiCsp(**{names[field]: ["https://b.example"]}), head)["loads"].status != "ok"


HARMLESS = [
    "<!-- <script src='https://a.example/x.js'></script> -->",
    "<title><img src='https://a.example/x'></title>",
    "<textarea><img src='https://a.example/x'></textarea>",
    '<p title="<script src=https://a.example/x.js>">x</p>',
    "<noscript><img src='https://a.example/x'></noscript>",
    '<img src="data:image/png;base64,AA">',
    '<script type="application/json">{"fetch": "fetch(\\"https://a.example\\")"}</script>',
    '<script>// fetch("https://a.example/f")\n/* fetch("https://a.example/g") */</script>',
    "<script>const help = 'fetch(\"https://a.example/f\")';</script>",
    '<script>const r = /fetch("https:\\/\\/a.example\\/f")/g; x = a / b / c;</script>',
    '<script>const ns = "http://www.w3.org/2000/svg"; document.createElementNS(ns, "svg")</script>',
    '<script>const t = `${a ? `fetch("https://a.example")` : "}"} fetch("https://a.example")`;</script>',
    "<style>/* url(https://a.example/x) */ @namespace url(http://www.w3.org/1999/xhtml); p{content:'url(https://a)'}</style>",
    '<svg><use href="#shape"/></svg>',
    '<iframe srcdoc="<p>x</p>" src="https://a.example/"></iframe>',
    '<a href="https://a.example/">a link</a>',
    '<link rel="preconnect" href="https://a.example/">',
    '<link rel="icon" href="/vite.svg"><link rel="shortcut icon" href="x.ico">',
    '<link rel="manifest" href="/manifest.json">',
    '<base href="/">',
    '<form action="/search" onsubmit="return false"><button>Go</button></form>',
    '<form action="/search"></form><script>form.addEventListener("submit", (e) => e.preventDefault())</script>',
]


@pytest.mark.parametrize("markup", HARMLESS)
def test_what_only_looks_like_loading_is_not_named(markup: str) -> None:
    assert look(markup)["loads"].findings == ()


def test_relative_addresses_have_nothing_to_be_loaded_from() -> None:
    finding = look('<script src="app.js"></script>')["loads"].findings[0]
    assert "app.js is relative" in finding.text
    assert "declare" in finding.advice


def test_data_and_blob_are_said_apart() -> None:
    css = "<style>@font-face{src:url(data:font/woff2;base64,AA)}</style>"
    assert told(look(css)["loads"]) == {("data:font/woff2;base64,AA", "resourceDomains", "data:")}
    assert look(css, UiCsp(resource_domains=["data:"]))["loads"].status == "ok"
    assert look('<script src="data:text/javascript,1"></script>', UiCsp(resource_domains=["data:"]))["loads"].findings


def test_what_strict_hosts_do_not_give_is_noted() -> None:
    """APP-V-05."""
    check = look('<script>\neval("1");\nlocalStorage.x = 1; new Function(""); alert(1); o.eval(1)</script>')["needs"]
    assert check.status == "ok"
    assert [f.line for f in check.findings] == [2, 3, 3, 3]
    assert check.text.startswith("the scripts name eval, localStorage, new Function, alert")
    links = look('<a href="https://a.example/">a</a>')["links"]
    assert (links.status, links.text[:10]) == ("ok", "1 lead out")
    assert look("")["links"].text == "no link leads out by itself"


def test_a_document_is_whole() -> None:
    """APP-S-04."""
    checks = {check.name: check for check in document_checks("<p>hello</p>", None)}
    assert checks["document"].status == "failure"
    assert "doctype" in checks["document"].text
    assert look("")["document"].status == "ok"


def test_a_hostile_document_is_read_in_time() -> None:
    deep = "<div>" * 5000 + "<img src=https://a.example/x>"
    assert len(read_markup(deep).loads) == 1
    assert read_markup("<script>" + "`${" * 20_000).loads == []
    assert read_markup("<script>" + "/[" * 20_000).loads == []
    assert read_markup("<style>" + "url(" * 20_000).loads is not None
