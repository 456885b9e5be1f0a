"""Whether a policy lets something be loaded, and what would have to be declared so that it does.

The matching is that of CSP Level 3, section 6.7.2, for the sources that `csp_sources` lets pass. The policy is the
strict one of `host.documents.csp`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

from mcpd.extensions.ui.csp_sources import UiCsp

Kind: TypeAlias = Literal[
    "script", "style", "image", "font", "media", "resource", "connect", "frame", "base",
    "form", "object", "manifest", "worker", "navigation",
]  # fmt: skip

_DIRECTIVES: Final[dict[Kind, tuple[str, str]]] = {
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
_NEVER: Final[dict[Kind, str]] = {
    "form": "no host lets a form be sent away; listen for its submit event and use fetch or a tool of the server",
    "object": "no host lets plug-ins be loaded; use <img>, <video> or an <iframe>",
    "manifest": "no host loads a web app manifest; leave it out",
    "worker": "workers are not started in a strict host; do the work in the page or in a tool of the server",
    "navigation": "no host lets an app navigate away; ask by ui/open-link for the link to be opened",
}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_UPGRADES: Final = {"http": ("http", "https"), "ws": ("ws", "wss", "http", "https"), "wss": ("wss", "https")}
_WITH_DATA: Final = ("image", "media")
"""Kinds that may come from `data:` without being declared."""


class Refusal(NamedTuple):
    """Why something is not loaded. `domain` and `field` say what to declare, where that helps; `advice` in words."""

    text: str
    advice: str
    domain: str = ""
    field: str = ""

    def cause(self, url: str) -> str:
        """The same for all addresses that one declaration lets through; without one, for all of a host."""
        if self.domain:
            return f"{self.field} {self.domain}"
        parts = _split(url)
        return f"not loaded {(parts and parts.hostname) or address(url)}"


def address(url: str) -> str:
    """An address as a browser reports it, so that one that was found in several ways is counted once."""
    text = "".join(url.split()).partition("#")[0]
    if text.startswith(("data:", "blob:")):
        return text[:5]
    return f"https:{text}" if text.startswith("//") else text.removeprefix("./").lstrip("/")


def refusal(kind: Kind, url: str, granted: UiCsp | None) -> Refusal | None:
    """Why the strict policy of these granted sources blocks this, or None if it does not.

    A `url` of http, https, ws and wss is what the code says; one without a scheme is relative.
    """
    parts = _split(url)
    if parts is None:
        return Refusal(f"{_short(url)} is no URL", "correct it")
    if parts.scheme in ("about", "javascript", "mailto", "tel"):
        return None
    if kind in _NEVER:
        return Refusal(f"{_short(url)} is not loaded", _NEVER[kind])
    directive, field = _DIRECTIVES[kind]
    if not parts.scheme:
        text = f"{_short(url)} is relative, and an app is one file: there is nothing to load it from"
        return Refusal(text, "put it into the HTML, or load it from an origin that you declare")

    declared = granted.sources(_FIELD_NAMES[field]) if granted is not None else []
    if parts.scheme in ("data", "blob"):
        return _local(kind, parts.scheme, declared, field)
    if parts.scheme not in _DEFAULT_PORTS:
        return Refusal(f"{_short(url)}: no policy lets {parts.scheme}: be loaded", "use https")
    if any(matches(url, source) for source in declared):
        return None
    domain = origin_of(url)
    advice = _declare(domain, field)
    return Refusal(f"{_short(url)} is blocked by {directive}", advice, domain, field)


_FIELD_NAMES: Final[dict[str, Literal["connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"]]] = {
    "connectDomains": "connectDomains",
    "resourceDomains": "resourceDomains",
    "frameDomains": "frameDomains",
    "baseUriDomains": "baseUriDomains",
}


def matches(url: str, source: str) -> bool:
    """Whether a source that `csp_sources` let pass covers a URL."""
    wanted, offered = _split(url), _split(source.replace("*.", "", 1).replace(":*", ""))
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


def origin_of(url: str) -> str:
    """The source to declare for a URL: scheme, host and port, unless it is the scheme's own."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return ""
    port = "" if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}"


def _local(kind: Kind, scheme: str, declared: Iterable[str], field: str) -> Refusal | None:
    """`data:` and `blob:`: images and media may come from data:, and what declares it, but for scripts and frames."""
    if scheme == "data" and kind in _WITH_DATA:
        return None
    if kind in ("frame", "base", "script"):
        return Refusal(
            f"a {kind} from {scheme}: is blocked", "put it into the HTML" if kind == "script" else "use https"
        )
    if f"{scheme}:" in declared:
        return None
    advice = f"{_declare(f'{scheme}:', field)}; some hosts do not grant it even so"
    return Refusal(f"a {kind} from {scheme}: is blocked", advice, f"{scheme}:", field)


def _declare(source: str, field: str) -> str:
    declared = json.dumps({"ui": {"csp": {field: [source]}}})
    return f"declare it: write {declared} into the .json file beside the .html file, or into _meta of the resource"


def _split(url: str) -> SplitResult | None:
    # A browser takes white space and line ends out, and a URL without a scheme has that of the page.
    text = "".join(url.split())
    if text.startswith("//"):
        text = f"https:{text}"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme in _DEFAULT_PORTS and not parts.hostname:
        return None
    return parts


def _short(url: str) -> str:
    return url if len(url) <= 120 else f"{url[:119]}…"
