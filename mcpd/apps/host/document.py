"""The document of a View: read and checked, with the policy and sandbox under which a browser shows it.

The policy, sandbox tokens and `allow` attribute are built from sources that `csp_sources` accepts. Three profiles:

    strict   what the specification requires, and closed where it leaves a choice (the default)
    compat   as lax as the official example host, for apps that were tested only there
    opaque   the strict policy in a frame without an origin of its own: no storage, no siblings

`strict` and `opaque` never allow eval, WebAssembly, workers, or scripts from data: and blob:, which a document may
declare for images, fonts and styles. All profiles allow inline scripts and styles, as the specification requires.

Spec: MCP Apps 2026-01-26, "UI Resource Format", "Sandbox proxy", "Content Security Policy Enforcement"; the later draft
for metadata in the listing: `_meta.ui` of the content replaces it as a whole.
"""

from __future__ import annotations

import hashlib
from binascii import Error as Base64Error, a2b_base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, to_builtins

from mcpd.apps.tool_metadata import ui_member
from mcpd.errors import ConfigurationError
from mcpd.server.extensions.ui.assets import MAX_HTML_BYTES, WARN_HTML_BYTES
from mcpd.server.extensions.ui.constants import MIME_TYPE, is_app_type
from mcpd.server.extensions.ui.csp_sources import (
    SOURCE_KINDS,
    UiCsp,
    UiPermissions,
    read_csp,
    read_permissions,
    validate_csp,
    validate_sources,
)


class ViewDocument(Struct, frozen=True, kw_only=True):
    """The HTML and metadata of a View. `digest` is the SHA-256 of its UTF-8 bytes; `problems` are for developers."""

    uri: str
    html: str
    digest: str
    csp: UiCsp | None = None
    permissions: UiPermissions | None = None
    domain: str | None = None
    prefers_border: bool | None = None
    problems: tuple[str, ...] = ()


def read_document(uri: str, contents: Sequence[Any], listing_meta: Mapping[str, Any] | None = None) -> ViewDocument:
    """Return the document among the `contents` of a read result. Raises ConfigurationError with what to change."""
    items: list[Mapping[str, Any]] = to_builtins(list(contents))
    item = app_content(uri, items)
    if not item:
        seen = ", ".join(repr(item.get("mimeType")) for item in items) or "nothing"
        raise ConfigurationError(f"{uri} must be {MIME_TYPE}; the server sent {seen}")
    problems: list[str] = []

    html = _html(uri, item)
    data = html.encode("utf-8", "replace")
    if len(data) > MAX_HTML_BYTES:
        raise ConfigurationError(f"{uri} has {len(data)} bytes; a view may have {MAX_HTML_BYTES}")
    if len(data) > WARN_HTML_BYTES:
        problems.append(f"{uri} has {len(data)} bytes; views over {WARN_HTML_BYTES} start slowly")

    meta = item.get("_meta")
    has_own = isinstance(meta, Mapping) and isinstance(meta.get("ui"), Mapping)
    ui = ui_member(meta if has_own else listing_meta)
    csp, found = read_csp(ui.get("csp"))
    problems += map(str, found)

    domain, border = ui.get("domain"), ui.get("prefersBorder")
    return ViewDocument(
        uri=uri,
        html=html,
        digest=hashlib.sha256(data).hexdigest(),
        csp=csp,
        permissions=read_permissions(ui.get("permissions")),
        domain=domain if isinstance(domain, str) else None,
        prefers_border=border if isinstance(border, bool) else None,
        problems=tuple(problems),
    )


def app_content(uri: str, contents: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the content with the MIME type of apps, of several the one with the URI; empty without such a content."""
    apps = [item for item in contents if is_app_type(item.get("mimeType"))]
    return next((item for item in apps if item.get("uri") == uri), apps[0] if apps else {})


def _html(uri: str, item: Mapping[str, Any]) -> str:
    text, blob = item.get("text"), item.get("blob")
    if isinstance(text, str):
        return text
    if not isinstance(blob, str):
        raise ConfigurationError(f"{uri} has neither text nor blob")
    try:
        return a2b_base64(blob, strict_mode=True).decode("utf-8-sig")
    except (Base64Error, UnicodeDecodeError, ValueError) as error:
        raise ConfigurationError(f"{uri}: the blob must be base64 of UTF-8 text: {error}") from None


Profile: TypeAlias = Literal["strict", "compat", "opaque"]

# Without allow-forms no submit event occurs; the policy blocks the sending.
OUTER_TOKENS: Final = ("allow-scripts", "allow-same-origin", "allow-forms")

INNER_TOKENS: Final[dict[Profile, tuple[str, ...]]] = {
    "strict": OUTER_TOKENS,
    "compat": OUTER_TOKENS,
    "opaque": ("allow-scripts", "allow-forms"),
}
"""The sandbox of the frame of the View, by profile."""

_LOCAL: Final = ("data:", "blob:")

_FEATURES: Final = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}


class Grant(Struct, frozen=True, kw_only=True):
    """What one View is granted: sources and features, and the attributes of its frame.

    Without `csp` the resource declares none, which is stricter than an empty one.
    """

    profile: Profile = "strict"
    csp: UiCsp | None = None
    permissions: UiPermissions | None = None
    problems: tuple[str, ...] = ()

    @property
    def sandbox(self) -> str:
        return " ".join(INNER_TOKENS[self.profile])

    @property
    def allow(self) -> str:
        # Both the outer and the inner frame need the attribute.
        # Separated by semicolons: with the spaces of the sample in the specification a browser grants nothing.
        return "; ".join(_FEATURES[name] for name in self.permissions.names()) if self.permissions is not None else ""

    @property
    def external_sources(self) -> list[str]:
        """Every source outside the document that the View may reach, sorted, to warn the user."""
        sources = {source for kind in SOURCE_KINDS for source in self.csp.sources(kind)} if self.csp else set()
        return sorted(sources.difference(_LOCAL))

    def policy(self, frame_ancestors: Iterable[str] | None = None) -> str:
        # `frame_ancestors` are the origins that may frame the response; none may if it is empty. Without it the
        # directive is left out, as a `<meta>` policy requires.
        if self.profile == "compat":
            directives = _compat_directives(self.csp or UiCsp())
        else:
            directives = _default_directives() if self.csp is None else _declared_directives(self.csp)
        # default-src does not cover these two, and a form could send data despite the strictest policy.
        directives.append("form-action 'none'")
        if frame_ancestors is not None:
            directives.append(_directive("frame-ancestors", *(_origins(frame_ancestors) or ["'none'"])))
        return "; ".join(directives)


def grant(
    csp: UiCsp | None,
    permissions: UiPermissions | None = None,
    profile: Profile = "strict",
    *,
    allowed: Collection[str] = (),
) -> Grant:
    """Decide what a document is granted of what it declares: valid sources, and `allowed` features."""
    granted, problems = validate_csp(csp, compat=profile == "compat") if csp is not None else (None, [])
    names = [name for name in permissions.names() if name in allowed] if permissions is not None else []
    return Grant(
        profile=profile,
        csp=granted,
        permissions=read_permissions({name: {} for name in names}) if names else None,
        problems=tuple(map(str, problems)),
    )


def _directive(name: str, *sources: str) -> str:
    return f"{name} {' '.join(sources)}"


def _default_directives() -> list[str]:
    # Spec: "If `ui.csp` is omitted, Host MUST use: …", six directives; the other three are ours.
    return [
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "media-src 'self' data:",
        "connect-src 'none'",
        "frame-src 'none'",
        "object-src 'none'",
        "base-uri 'self'",
    ]


def _declared_directives(csp: UiCsp) -> list[str]:
    # With a `csp` member, even an empty one. Spec: "CSP Construction from Metadata".
    resources = csp.sources("resourceDomains")
    # Code that a script assembles or receives as data comes from no declared origin.
    scripts = [source for source in resources if source not in _LOCAL]

    return [
        "default-src 'none'",
        _directive("script-src", "'self'", "'unsafe-inline'", *scripts),
        _directive("style-src", "'self'", "'unsafe-inline'", *resources),
        _directive("connect-src", "'self'", *csp.sources("connectDomains")),
        _directive("img-src", "'self'", "data:", *resources),
        _directive("font-src", "'self'", *resources),
        _directive("media-src", "'self'", "data:", *resources),
        _directive("frame-src", *(csp.sources("frameDomains") or ["'none'"])),
        "object-src 'none'",
        _directive("base-uri", *(csp.sources("baseUriDomains") or ["'self'"])),
    ]


def _compat_directives(csp: UiCsp) -> list[str]:
    # The policy of the official example host, taken from its source, which treats absent and empty alike.
    resources = csp.sources("resourceDomains")
    return [
        "default-src 'self' 'unsafe-inline'",
        _directive("script-src", "'self'", "'unsafe-inline'", "'unsafe-eval'", "blob:", "data:", *resources),
        _directive("style-src", "'self'", "'unsafe-inline'", "blob:", "data:", *resources),
        _directive("img-src", "'self'", "data:", "blob:", *resources),
        _directive("font-src", "'self'", "data:", "blob:", *resources),
        _directive("connect-src", "'self'", *csp.sources("connectDomains")),
        _directive("worker-src", "'self'", "blob:", *resources),
        _directive("frame-src", *(csp.sources("frameDomains") or ["'none'"])),
        "object-src 'none'",
        _directive("base-uri", *(csp.sources("baseUriDomains") or ["'none'"])),
    ]


def _origins(sources: Iterable[str]) -> list[str]:
    # Our own origins are checked like declared ones: one wrong character would change the policy.
    accepted, problems = validate_sources(sources, "frameDomains")
    if problems:
        raise ConfigurationError(f"frame-ancestors must be plain origins: {problems[0].source!r} {problems[0].reason}")
    return accepted
