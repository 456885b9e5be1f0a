"""What a policy blocked, as a browser reports it, and what the app would have to declare for it.

A report comes as JSON to `report-uri`: from the guest, whose policy is the View's, or from the proxy, whose policy
keeps the View from leaving its place. Anything in it may be the View's own invention: it is shown as text, and does
nothing.

Spec: CSP Level 3, 5.3; MCP Apps 2026-01-26, "CSP Construction from Metadata".
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.json import Decoder

from mcpd.protocol.jsonrpc import MALFORMED

_MOST_CHARACTERS = 2000

_FIELDS = {
    "connect-src": "connectDomains",
    "script-src": "resourceDomains",
    "style-src": "resourceDomains",
    "img-src": "resourceDomains",
    "font-src": "resourceDomains",
    "media-src": "resourceDomains",
    "frame-src": "frameDomains",
    "base-uri": "baseUriDomains",
}
_SOURCE_SCHEMES = ("http", "https", "ws", "wss")
_INLINE = {
    "eval": "the specification grants no eval; a library that only tried it, as zod does, goes on without",
    "wasm-eval": "the specification grants no WebAssembly",
    "inline": "this is not granted inline: put it into the document as an element of its own",
    "blob": "the specification grants no blob: URLs here",
    "data": "data: URLs are for images and media; for others declare data: where the app may name it",
}


class _Report(Struct, rename="kebab"):
    effective_directive: str = ""
    violated_directive: str = ""
    blocked_uri: str = ""
    source_file: str | None = None
    line_number: int | None = None


class _Body(Struct):
    report: _Report = field(name="csp-report")


class Violation(Struct, frozen=True, kw_only=True):
    """One thing that was blocked, and by which directive."""

    directive: str
    blocked: str
    source: str | None = None
    line: int | None = None
    is_navigation: bool = False
    """The View wanted to go elsewhere, which no declaration allows."""


class _Noted(Struct):
    what: str = ""
    about: str = ""


class _Note(Struct):
    params: _Noted


_STOPPED = {
    "window": ("It tried to open a window", "no host lets it: ask the host by ui/open-link"),
    "dialog": ("It tried to open a dialog", "hosts show none, and the call returned at once: ask in the page itself"),
    "download": ("It tried to save a file", "hosts save none that way: hand it over by ui/download-file"),
    "denied": ("It was denied", "name it in _meta.ui.permissions of the resource, and grant it under “Details”"),
    "unreachable": ("It could not load something", "is the address right, reached from here, open to other origins?"),
}
"""What the guest's script tells of, and what to do instead."""


_read = Decoder(_Body).decode
_read_note = Decoder(_Note).decode


def read_report(body: bytes, *, of_proxy: bool) -> Violation | None:
    """A report as it was posted; None for what is none."""
    try:
        report = _read(body).report
    except MALFORMED:
        return None

    directive = (report.effective_directive or report.violated_directive).split(" ")[0]
    return Violation(
        directive=directive[:100],
        blocked=report.blocked_uri[:_MOST_CHARACTERS],
        source=None if report.source_file is None else report.source_file[:_MOST_CHARACTERS],
        line=report.line_number,
        is_navigation=of_proxy,
    )


def explain_violation(found: Violation) -> dict[str, Any]:
    """The event of it: `domain` and `field` are what would have to be declared, None if nothing would help.

    `harmless` is what libraries only try, to go on without it: whether code may be compiled.
    """
    base = re.sub(r"-(elem|attr)$", "", found.directive)
    domain = _domain(found.blocked)
    name = None if found.is_navigation or domain is None else _FIELDS.get(base)

    return {
        "kind": "violation",
        "directive": found.directive,
        "blockedUri": found.blocked,
        "domain": domain,
        "field": name,
        "advice": _advice(found, base, domain, name),
        "sourceFile": found.source,
        "line": found.line,
        "harmless": found.blocked == "eval",
    }


def explain_stopped(message: bytes) -> dict[str, Any] | None:
    """The event of what a sandbox stops without a word, from the proxy's message; None for what is none."""
    try:
        noted = _read_note(message).params
    except MALFORMED:
        return None

    if noted.what not in _STOPPED:
        return None
    title, advice = _STOPPED[noted.what]
    about = noted.about[:_MOST_CHARACTERS]
    if noted.what == "unreachable" and about.startswith("/"):
        advice = "an app is one document, with nothing beside it: put it in"
    return {"kind": "stopped", "what": noted.what, "title": title, "about": about, "advice": advice}


def _advice(found: Violation, directive: str, domain: str | None, name: str | None) -> str:
    if found.is_navigation:
        return "an app stays where it is: use ui/open-link to open a page"
    if name is not None:
        return f'declare "{domain}" in _meta.ui.csp.{name} of the resource'
    if directive == "form-action":
        return "forms are not sent anywhere: take the submit event, and call a tool"
    if directive in ("worker-src", "child-src"):
        return "the specification grants no workers"

    known = _INLINE.get(found.blocked.partition(":")[0])
    return known if known is not None else "nothing that an app can declare allows this"


def _domain(blocked: str) -> str | None:
    """The source to declare: scheme, host and port; None for what has none."""
    try:
        parts = urlsplit(blocked)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return None
    if parts.scheme not in _SOURCE_SCHEMES or not parts.hostname or ":" in parts.hostname:
        return None

    return f"{parts.scheme}://{parts.hostname}{port}"
