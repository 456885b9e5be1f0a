"""Explains blocked addresses and actions of a View, with what the app must declare or do instead.

Violations of a policy are posted as JSON to `report-uri`: by the guest, which has the policy of the View, or by the
proxy, whose policy keeps the View in its place. The script of the guest reports what a sandbox stops without an error.
A View can forge both, so they are shown as text and have no other effect.

Spec: CSP Level 3, 5.3; MCP Apps 2026-01-26, "CSP Construction from Metadata".
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.json import Decoder

from mcpd.protocol.jsonrpc import MALFORMED

_MAX_CHARACTERS = 2000

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
_ADVICE = {
    "eval": "the specification allows no eval; a library that only tries it, as zod does, works without",
    "wasm-eval": "the specification allows no WebAssembly",
    "inline": "this may not be inline: put it into the document as an element of its own",
    "blob": "the specification allows no blob: URLs here",
    "data": "data: URLs are for images and media; for others declare data: where the app may name it",
}
_STOPPED = {
    "window": ("It tried to open a window", "hosts open none: ask the host by ui/open-link"),
    "dialog": ("It tried to open a dialog", "hosts show none, and the call returned at once: ask in the page itself"),
    "download": ("It tried to save a file", "hosts save none that way: offer it by ui/download-file"),
    "denied": ("It was denied", "name it in _meta.ui.permissions of the resource, and grant it under “Details”"),
    "unreachable": ("It could not load something", "check the address, the network and CORS"),
}
"""The title and the advice for each report of the script of the guest."""


class _Report(Struct, rename="kebab"):
    effective_directive: str = ""
    violated_directive: str = ""
    blocked_uri: str = ""
    source_file: str | None = None
    line_number: int | None = None


class _Body(Struct):
    report: _Report = field(name="csp-report")


class _Noted(Struct):
    what: str = ""
    about: str = ""


class _Note(Struct):
    params: _Noted


_decode_report = Decoder(_Body).decode
_decode_note = Decoder(_Note).decode


class Violation(Struct, frozen=True, kw_only=True):
    """A blocked address or action, and the directive that blocked it."""

    directive: str
    blocked: str
    source: str | None = None
    line: int | None = None
    is_navigation: bool = False
    """Whether the View tried to navigate, which no declaration allows."""


def read_report(body: bytes, *, of_proxy: bool) -> Violation | None:
    """Return the violation in a posted report, or None if the report is invalid."""
    try:
        report = _decode_report(body).report
    except MALFORMED:
        return None

    directive = (report.effective_directive or report.violated_directive).split(" ")[0]
    return Violation(
        directive=directive[:100],
        blocked=report.blocked_uri[:_MAX_CHARACTERS],
        source=None if report.source_file is None else report.source_file[:_MAX_CHARACTERS],
        line=report.line_number,
        is_navigation=of_proxy,
    )


def explain_violation(violation: Violation) -> dict[str, Any]:
    """Return the event of a violation for the page.

    `domain` and `field` are the declaration that would allow it, None if none does. `harmless` means that libraries
    try this and work without it.
    """
    directive = re.sub(r"-(elem|attr)$", "", violation.directive)
    domain = _domain(violation.blocked)
    field_name = None if violation.is_navigation or domain is None else _FIELDS.get(directive)
    return {
        "kind": "violation",
        "directive": violation.directive,
        "blockedUri": violation.blocked,
        "domain": domain,
        "field": field_name,
        "advice": _advice(violation, directive, domain, field_name),
        "sourceFile": violation.source,
        "line": violation.line,
        "harmless": violation.blocked == "eval",
    }


def explain_stopped(message: bytes) -> dict[str, Any] | None:
    """Return the event of what a sandbox stopped without an error, or None if the message of the proxy is another."""
    try:
        noted = _decode_note(message).params
    except MALFORMED:
        return None

    if noted.what not in _STOPPED:
        return None
    title, advice = _STOPPED[noted.what]
    about = noted.about[:_MAX_CHARACTERS]
    if noted.what == "unreachable" and about.startswith("/"):
        advice = "an app is one file: put it into the HTML"
    return {"kind": "stopped", "what": noted.what, "title": title, "about": about, "advice": advice}


def _advice(violation: Violation, directive: str, domain: str | None, field_name: str | None) -> str:
    if violation.is_navigation:
        return "an app stays where it is: use ui/open-link to open a page"
    if field_name is not None:
        return f'declare "{domain}" in _meta.ui.csp.{field_name} of the resource'
    if directive == "form-action":
        return "forms are not sent: listen for the submit event, and call a tool"
    if directive in ("worker-src", "child-src"):
        return "the specification allows no workers"
    return _ADVICE.get(violation.blocked.partition(":")[0], "no declaration allows this")


def _domain(blocked: str) -> str | None:
    """Return the source to declare, scheme, host and port; None if the address has none."""
    try:
        parts = urlsplit(blocked)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return None
    if parts.scheme not in _SOURCE_SCHEMES or not parts.hostname or ":" in parts.hostname:
        return None
    return f"{parts.scheme}://{parts.hostname}{port}"
