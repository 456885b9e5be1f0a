"""The addresses that elements of an app load, compared with the declared sources. Rules APP-S-04, APP-H-05."""

from __future__ import annotations

import pytest

from mcpd.apps.verdict.document import document_checks, parse_document
from mcpd.apps.verdict.report import Check
from mcpd.server.extensions.ui.csp_sources import UiCsp

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


def test_data_is_declared_by_its_scheme() -> None:
    font = '<link rel="preload" as="font" href="data:font/woff2;base64,AA">'
    assert told(look("", head=font)["loads"]) == {("data:font/woff2;base64,AA", "resourceDomains", "data:")}
    assert look("", UiCsp(resource_domains=["data:"]), font)["loads"].status == "ok"
    assert look('<script src="data:text/javascript,1"></script>', UiCsp(resource_domains=["data:"]))["loads"].findings


def test_links_that_lead_out_are_noted() -> None:
    links = look('<a href="https://a.example/">a</a>')["links"]
    assert (links.status, links.text[:10]) == ("ok", "1 lead out")
    assert look("")["links"].text == "no link leads out"


def test_a_document_is_whole() -> None:
    """APP-S-04."""
    checks = {check.name: check for check in document_checks("<p>hello</p>", None)}
    assert checks["document"].status == "failure"
    assert "doctype" in checks["document"].text
    assert look("")["document"].status == "ok"


def test_a_hostile_document_is_parsed_in_time() -> None:
    deep = "<div>" * 5000 + "<img src=https://a.example/x>"
    assert len(parse_document(deep).loads) == 1
    assert parse_document("<script>" + "`${" * 20_000).loads == []
    assert len(parse_document("<img srcset='" + "a, " * 20_000 + "'>").loads) == 1
