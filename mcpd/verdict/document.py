"""Checks of an app's HTML: is it a whole document, what does it load, what does it need.

Rules: APP-S-04, APP-V-05, APP-H-05 of docs/rules.toml.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcpd.extensions.ui.csp_sources import UiCsp
from mcpd.extensions.ui.html import html_problems
from mcpd.verdict.markup import Load, Markup, read_markup
from mcpd.verdict.report import Check, Finding, checked
from mcpd.verdict.sources import refusal

_MAY_NOT_RUN = ("navigation", "worker", "resource")
_MAY_NOT_MATTER = ("base",)


def document_checks(html: str, granted: UiCsp | None) -> list[Check]:
    """All checks that need nothing but the HTML and the sources that a host grants.

    Raises ConfigurationError where the parser is not installed.
    """
    markup = read_markup(html)
    size = len(html.encode("utf-8", "replace"))
    return [
        checked("document", "A complete HTML5 document", _of_document(html, markup), f"{_bytes(size)}", ["APP-S-04"]),
        checked("loads", "Nothing is loaded that was not declared", _of_loads(markup, granted), _loaded(markup),
                ["APP-H-05", "APP-X-04"]),
        checked("needs", "Nothing is needed that strict hosts do not give", _of_needs(markup), _needed(markup),
                ["APP-V-05"]),
        checked("links", "Links are opened by the host", _of_links(markup), _linked(markup), ["APP-H-17"]),
    ]  # fmt: skip


def _of_document(html: str, markup: Markup) -> Iterator[Finding]:
    for problem in html_problems("", html):
        yield Finding(severity="failure" if problem.is_error else "warning", text=problem.text)
    if not markup.language:
        advice = 'write <html lang="en">, or what it is written in'
        yield Finding(
            severity="warning", text="the document does not say its language to screen readers", advice=advice
        )
    if not markup.title:
        yield Finding(severity="note", text="no <title>", advice="hosts and screen readers may show it")
    if markup.policy:
        text = f"a policy of its own in a <meta>: {markup.policy[:200]}"
        advice = "it can only take away from what the host grants; declare in _meta.ui.csp what is needed"
        yield Finding(severity="note", text=text, advice=advice)


def _of_loads(markup: Markup, granted: UiCsp | None) -> Iterator[Finding]:
    for load in markup.loads:
        refused = refusal(load.kind, load.url, granted)
        if refused is None:
            continue
        where = f"{load.element}{f', line {load.line}' if load.line else ''}"
        may_not_run = (load.in_script and load.kind in _MAY_NOT_RUN) or load.kind in _MAY_NOT_MATTER
        told: dict[str, str | int] = {"url": load.url, "element": load.element, "cause": refused.cause(load.url)}
        if load.line:
            told["line"] = load.line
        if refused.domain:
            told |= {"domain": refused.domain, "field": refused.field}
        yield Finding(
            severity="warning" if may_not_run else "failure",
            text=f"{refused.text} ({where})",
            advice=refused.advice,
            **told,  # type: ignore[arg-type]
        )


def _loaded(markup: Markup) -> str:
    outside = sorted({load.url for load in markup.loads if _is_outside(load)})
    if not outside:
        return "nothing from outside"
    return f"{len(outside)} addresses from outside, all declared" if len(outside) > 1 else f"{outside[0]}, declared"


def _is_outside(load: Load) -> bool:
    return load.url.startswith(("http:", "https:", "ws:", "wss:", "//"))


def _of_needs(markup: Markup) -> Iterator[Finding]:
    # Bundled libraries name many of these and do without them: what is needed shows in a browser.
    for need, line in markup.needs.items():
        advice = "strict hosts do not give it; the app has to work without"
        text = f"the scripts name {need}{f', first in line {line}' if line else ''}"
        yield (
            Finding(severity="note", text=text, advice=advice, line=line)
            if line
            else Finding(severity="note", text=text, advice=advice)
        )


def _needed(markup: Markup) -> str:
    named = ", ".join(markup.needs)
    return f"the scripts name {named}; a browser shows whether they do without" if named else "nothing"


def _linked(markup: Markup) -> str:
    number = len(markup.outward_links)
    return f"{number} lead out: hosts follow none unless the app asks" if number else "no link leads out by itself"


def _of_links(markup: Markup) -> Iterator[Finding]:
    for url in markup.outward_links[:20]:
        yield Finding(
            severity="note",
            text=f"a link to {url[:120]}: hosts do not follow it unless the app asks them to",
            advice="on click prevent the default and send ui/open-link",
            url=url,
        )


def _bytes(size: int) -> str:
    return f"{size} bytes" if size < 10_000 else f"{size / 1024:.0f} KiB"
