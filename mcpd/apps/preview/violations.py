"""Actions of a View that a policy or a sandbox stops, and what the app must declare or do instead.

Violations of a policy are posted as JSON to `report-uri`: by the guest, which has the policy of the View, or by the
proxy, whose policy keeps the View in its place. The script of the guest reports what a sandbox stops without an error.
A View can forge both, so they are shown as text and have no other effect.

`refusal` also answers for an address that has not been loaded. The matching of sources is that of CSP Level 3, section
6.7.2, for the sources that `csp_sources` accepts; the policy is the strict one of `apps.host.document`.

Spec: CSP Level 3, 5.3; MCP Apps 2026-01-26, "CSP Construction from Metadata".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct, field
from msgspec.json import decode

from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.server.extensions.ui.csp_sources import SourceKind, UiCsp

_MAX_CHARACTERS = 2000

Kind: TypeAlias = Literal[
    "script", "style", "image", "font", "media", "resource", "connect", "frame", "base",
    "form", "object", "manifest", "worker", "navigation",
]  # fmt: skip

_DIRECTIVES: Final[dict[Kind, tuple[str, SourceKind]]] = {
    "script": ("script-src", "resourceDomains"),
    "style": ("style-src", "resourceDomains"),
    "image": ("img-src", "resourceDomains"),
    "font": ("font-src", "resourceDomains"),
    "media": ("media-src", "resourceDomains"),
    "resource": ("default-src", "resourceDomains"),
    "connect": ("connect-src", "connectDomains"),
    "frame": ("frame-src", "frameDomains"),
    "base": ("base-uri", "baseUriDomains"),
}
_NAVIGATION_ADVICE: Final = "no host lets an app navigate away; send ui/open-link to have the link opened"
_NEVER: Final[dict[Kind, str]] = {
    "form": "no host lets a form be sent; listen for its submit event and use fetch or a tool of the server",
    "object": "no host loads plug-ins; use <img>, <video> or an <iframe>",
    "manifest": "no host loads a web app manifest; leave it out",
    "worker": "strict hosts start no workers; do the work in the page or in a tool of the server",
    "navigation": _NAVIGATION_ADVICE,
}
_KINDS: Final[dict[str, Kind]] = {
    **{directive: kind for kind, (directive, _) in _DIRECTIVES.items()},
    "form-action": "form",
    "object-src": "object",
    "manifest-src": "manifest",
    "worker-src": "worker",
    "child-src": "worker",
}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_UPGRADES: Final = {"http": ("http", "https"), "ws": ("ws", "wss", "http", "https"), "wss": ("wss", "https")}
# Kinds that may come from `data:` without a declaration.
_ALLOWED_AS_DATA: Final = ("image", "media")

CODE_ADVICE: Final = {
    "eval": "the specification allows no eval; a library that only tries it, as zod does, works without",
    "wasm-eval": "the specification allows no WebAssembly",
    "inline": "this may not be inline: put it into the document as an element of its own",
    "trusted-types-policy": "the specification allows no policy for trusted types",
}
"""The advice for what a report names instead of a blocked address."""

# The title and the advice for each report of the script of the guest.
_STOPPED = {
    "window": ("It tried to open a window", "hosts open none: ask the host by ui/open-link"),
    "dialog": ("It tried to open a dialog", "hosts show none, and the call returned at once: ask in the page itself"),
    "download": ("It tried to save a file", "hosts save none that way: offer it by ui/download-file"),
    "denied": ("It was denied", "name it in _meta.ui.permissions of the resource, and grant it under “Details”"),
    "unreachable": ("It could not load something", "check the address, the network and CORS"),
}


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
        report = decode(body, type=_Body).report
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


def refusal_of(violation: Violation, granted: UiCsp | None) -> Refusal | None:
    """Return what an app must declare or do instead, or None if the granted sources allow the address."""
    if violation.is_navigation:
        return Refusal("the app tries to navigate away", _NAVIGATION_ADVICE)
    if violation.blocked in CODE_ADVICE:
        return Refusal(f"the app tries {violation.blocked}", CODE_ADVICE[violation.blocked])
    directive = re.sub(r"-(elem|attr)$", "", violation.directive)
    return refusal(_KINDS.get(directive, "resource"), violation.blocked, granted)


def explain_violation(violation: Violation) -> dict[str, Any]:
    # `domain` and `field` are the declaration that would allow it; without a field none does. `harmless` means that
    # libraries try this and work without it.
    refused = refusal_of(violation, None)
    return {
        "kind": "violation",
        "directive": violation.directive,
        "blockedUri": violation.blocked,
        "domain": origin_of(violation.blocked) or None,
        "field": (refused and refused.field) or None,
        "advice": "no declaration allows this" if refused is None else refused.advice,
        "sourceFile": violation.source,
        "line": violation.line,
        "harmless": violation.blocked == "eval",
    }


def explain_stopped(message: bytes) -> dict[str, Any] | None:
    """Return the event of what a sandbox stopped without an error, or None if the message of the proxy is another."""
    try:
        noted = decode(message, type=_Note).params
    except MALFORMED:
        return None

    if noted.what not in _STOPPED:
        return None
    title, advice = _STOPPED[noted.what]
    about = noted.about[:_MAX_CHARACTERS]
    if noted.what == "unreachable" and about.startswith("/"):
        advice = "an app is one file: put it into the HTML"
    return {"kind": "stopped", "what": noted.what, "title": title, "about": about, "advice": advice}


# ----------------------------------------------------------------------------------- declared sources


class Refusal(NamedTuple):
    """Why an address is not loaded. `domain` and `field` are what to declare; they are empty if nothing helps."""

    text: str
    advice: str
    domain: str = ""
    field: str = ""


def refusal(kind: Kind, url: str, granted: UiCsp | None) -> Refusal | None:
    """Return why the strict policy of these granted sources blocks an address, or None if it allows it."""
    shown = url if len(url) <= 120 else f"{url[:119]}…"
    parts = split_url(f"{url}:" if url in ("data", "blob") else url)
    if parts is None:
        return Refusal(f"{shown} is not a URL", "correct it")
    if parts.scheme in ("about", "javascript", "mailto", "tel"):
        return None
    if kind in _NEVER:
        return Refusal(f"{shown} is not loaded", _NEVER[kind])
    directive, field = _DIRECTIVES[kind]
    if not parts.scheme:
        text = f"{shown} is relative, and an app is one file: there is nothing to load it from"
        return Refusal(text, "put it into the HTML, or load it from an origin that you declare")

    declared = granted.sources(field) if granted is not None else []
    if parts.scheme in ("data", "blob"):
        return _local_refusal(kind, parts.scheme, declared, field)
    if parts.scheme not in _DEFAULT_PORTS:
        return Refusal(f"{shown}: no policy allows {parts.scheme}:", "use https")
    if any(matches(url, source) for source in declared):
        return None
    domain = origin_of(url)
    return Refusal(f"{shown} is blocked by {directive}", _declaration(domain, field), domain, field)


def matches(url: str, source: str) -> bool:
    """Return whether a source that `csp_sources` accepts covers a URL."""
    wanted, offered = split_url(url), split_url(source.replace("*.", "", 1).replace(":*", ""))
    if wanted is None or offered is None or not wanted.hostname or not offered.hostname:
        return False
    if wanted.scheme != offered.scheme and wanted.scheme not in _UPGRADES.get(offered.scheme, ()):
        return False
    host, pattern = wanted.hostname, offered.hostname
    if not (host.endswith(f".{pattern}") if "://*." in source else host == pattern):
        return False
    if source.endswith(":*"):
        return True
    port = wanted.port or _DEFAULT_PORTS.get(wanted.scheme)
    allowed = offered.port or _DEFAULT_PORTS.get(offered.scheme)
    return port == allowed or (allowed == 80 and port == 443)


def _local_refusal(kind: Kind, scheme: str, declared: Iterable[str], field: str) -> Refusal | None:
    if scheme == "data" and kind in _ALLOWED_AS_DATA:
        return None
    text = f"a {kind} from {scheme}: is blocked"
    if kind in ("frame", "base", "script"):
        return Refusal(text, "put it into the HTML" if kind == "script" else "use https")
    if f"{scheme}:" in declared:
        return None
    return Refusal(text, f"{_declaration(f'{scheme}:', field)}; some hosts still do not grant it", f"{scheme}:", field)


def _declaration(source: str, field: str) -> str:
    declared = json.dumps({"ui": {"csp": {field: [source]}}})
    return f"declare it: write {declared} into the .json file beside the .html file, or into _meta of the resource"


def origin_of(url: str) -> str:
    """Return the source to declare for a URL: scheme and host, and the port unless it is the default one."""
    parts = split_url(url)
    if parts is None or not parts.hostname:
        return ""
    port = "" if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}"


def split_url(url: str) -> SplitResult | None:
    # A browser removes white space and line ends, and a URL without a scheme gets the scheme of the page.
    text = "".join(url.split())
    if text.startswith("//"):
        text = f"https:{text}"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None

    return None if parts.scheme in _DEFAULT_PORTS and not parts.hostname else parts
