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

from mcpd.errors import ConfigurationError
from mcpd.server.extensions.ui.assets import MAX_HTML_BYTES, WARN_HTML_BYTES
from mcpd.server.extensions.ui.constants import MIME_TYPE, is_app_type
from mcpd.server.extensions.ui.csp_sources import (
    SourceProblem,
    UiCsp,
    UiPermissions,
    read_csp,
    read_permissions,
    validate_csp,
    validate_sources,
)


class ViewDocument(Struct, frozen=True, kw_only=True):
    """The HTML of a View and its metadata. `digest` is the SHA-256 of its UTF-8 bytes.

    A cached document may be reused if digest and metadata are equal. `problems` are for developers.
    """

    uri: str
    html: str
    digest: str
    csp: UiCsp | None = None
    permissions: UiPermissions | None = None
    domain: str | None = None
    prefers_border: bool | None = None
    problems: tuple[str, ...] = ()


def read_document(uri: str, contents: Sequence[Any], listing_meta: Mapping[str, Any] | None = None) -> ViewDocument:
    """Return the document among the `contents` of a read result, which are structs or dicts.

    `listing_meta` is the `_meta` of the resource in the list. Raises ConfigurationError, with what the author of the
    server has to change, if no document can be shown.
    """
    item = _pick(uri, [entry if isinstance(entry, Mapping) else _plain(entry) for entry in contents])
    problems: list[str] = []

    html = _html(uri, item)
    data = html.encode("utf-8", "replace")
    if len(data) > MAX_HTML_BYTES:
        raise ConfigurationError(f"{uri} has {len(data)} bytes; a view may have {MAX_HTML_BYTES}")
    if len(data) > WARN_HTML_BYTES:
        problems.append(f"{uri} has {len(data)} bytes; views over {WARN_HTML_BYTES} start slowly")

    ui = _ui(item.get("_meta"))
    if ui is None:
        ui = _ui(listing_meta) or {}
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


def _pick(uri: str, contents: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the content with the MIME type of apps, of several the one with the URI."""
    apps = [item for item in contents if is_app_type(item.get("mimeType"))]
    if not apps:
        seen = ", ".join(repr(item.get("mimeType")) for item in contents) or "nothing"
        raise ConfigurationError(f"{uri} must be {MIME_TYPE}; the server sent {seen}")
    return next((item for item in apps if item.get("uri") == uri), apps[0])


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


def _ui(meta: object) -> Mapping[str, Any] | None:
    ui = meta.get("ui") if isinstance(meta, Mapping) else None
    return ui if isinstance(ui, Mapping) else None


def _plain(entry: object) -> Mapping[str, Any]:
    plain = to_builtins(entry)
    return plain if isinstance(plain, Mapping) else {}


Profile: TypeAlias = Literal["strict", "compat", "opaque"]

OUTER_TOKENS: Final = ("allow-scripts", "allow-same-origin", "allow-forms")
"""The sandbox of the frame of the proxy. Without allow-forms no submit event occurs; the policy blocks the sending."""

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
    """What one View is granted: sources and features, and the attributes of its frame."""

    profile: Profile = "strict"
    csp: UiCsp | None = None
    permissions: UiPermissions | None = None
    sandbox: str = " ".join(OUTER_TOKENS)
    problems: tuple[str, ...] = ()

    def policy(self, frame_ancestors: Iterable[str] | None = None) -> str:
        """Return the policy; see `build_policy`."""
        return build_policy(self.csp, self.profile, frame_ancestors=frame_ancestors)

    @property
    def allow(self) -> str:
        """The `allow` attribute; see `allow_attribute`."""
        return allow_attribute(self.permissions)


def grant(
    csp: UiCsp | None,
    permissions: UiPermissions | None = None,
    profile: Profile = "strict",
    *,
    allowed: Collection[str] = (),
    sandbox: str | None = None,
) -> Grant:
    """Decide what a document is granted of what it declares: valid sources, `allowed` features, and our sandbox tokens
    at most.
    """
    granted, problems = grant_csp(csp, profile)
    return Grant(
        profile=profile,
        csp=granted,
        permissions=grant_permissions(permissions, allowed),
        sandbox=sandbox_tokens(profile, sandbox),
        problems=tuple(map(str, problems)),
    )


def grant_csp(csp: UiCsp | None, profile: Profile = "strict") -> tuple[UiCsp | None, list[SourceProblem]]:
    """Return the granted sources, for `build_policy` and for `hostCapabilities.sandbox`, and the problems of the
    others.
    """
    return validate_csp(csp, compat=profile == "compat") if csp is not None else (None, [])


def build_policy(
    granted: UiCsp | None, profile: Profile = "strict", *, frame_ancestors: Iterable[str] | None = None
) -> str:
    """Return the policy of a View as a header value.

    `granted` comes from `grant_csp`. None means that the resource declares no `csp`, which is stricter than an empty
    one. `frame_ancestors` are the origins that may frame the response; none may if it is empty. Without it the
    directive is left out, as a `<meta>` policy requires.
    """
    if profile == "compat":
        directives = _compat_directives(granted or UiCsp())
    elif granted is None:
        directives = _default_directives()
    else:
        directives = _declared_directives(granted)
    # default-src does not cover these two, and a form could send data despite the strictest policy.
    directives.append(("form-action", "'none'"))
    if frame_ancestors is not None:
        directives.append(("frame-ancestors", _join(_origins(frame_ancestors)) or "'none'"))
    return "; ".join(f"{name} {value}" for name, value in directives)


def _default_directives() -> list[tuple[str, str]]:
    """Without a `csp` member. Spec: "If `ui.csp` is omitted, Host MUST use: …", six directives; the other three are
    ours.
    """
    return [
        ("default-src", "'none'"),
        ("script-src", "'self' 'unsafe-inline'"),
        ("style-src", "'self' 'unsafe-inline'"),
        ("img-src", "'self' data:"),
        ("media-src", "'self' data:"),
        ("connect-src", "'none'"),
        ("frame-src", "'none'"),
        ("object-src", "'none'"),
        ("base-uri", "'self'"),
    ]


def _declared_directives(csp: UiCsp) -> list[tuple[str, str]]:
    """With a `csp` member, even an empty one. Spec: "CSP Construction from Metadata"."""
    resources = csp.resource_domains or []
    # Code that a script assembles or receives as data comes from no declared origin.
    scripts = [source for source in resources if source not in _LOCAL]

    return [
        ("default-src", "'none'"),
        ("script-src", _join(["'self'", "'unsafe-inline'", *scripts])),
        ("style-src", _join(["'self'", "'unsafe-inline'", *resources])),
        ("connect-src", _join(["'self'", *(csp.connect_domains or [])])),
        ("img-src", _join(["'self'", "data:", *resources])),
        ("font-src", _join(["'self'", *resources])),
        ("media-src", _join(["'self'", "data:", *resources])),
        ("frame-src", _join(csp.frame_domains or ["'none'"])),
        ("object-src", "'none'"),
        ("base-uri", _join(csp.base_uri_domains or ["'self'"])),
    ]


def _compat_directives(csp: UiCsp) -> list[tuple[str, str]]:
    """The policy of the official example host, taken from its source, which treats absent and empty alike."""
    resources = csp.resource_domains or []
    return [
        ("default-src", "'self' 'unsafe-inline'"),
        ("script-src", _join(["'self'", "'unsafe-inline'", "'unsafe-eval'", "blob:", "data:", *resources])),
        ("style-src", _join(["'self'", "'unsafe-inline'", "blob:", "data:", *resources])),
        ("img-src", _join(["'self'", "data:", "blob:", *resources])),
        ("font-src", _join(["'self'", "data:", "blob:", *resources])),
        ("connect-src", _join(["'self'", *(csp.connect_domains or [])])),
        ("worker-src", _join(["'self'", "blob:", *resources])),
        ("frame-src", _join(csp.frame_domains or ["'none'"])),
        ("object-src", "'none'"),
        ("base-uri", _join(csp.base_uri_domains or ["'none'"])),
    ]


def external_sources(granted: UiCsp | None) -> list[str]:
    """Return every source outside the document that the View may reach, sorted, to warn the user."""
    if granted is None:
        return []
    lists = (granted.connect_domains, granted.resource_domains, granted.frame_domains, granted.base_uri_domains)
    return sorted({source for sources in lists for source in sources or [] if source not in _LOCAL})


def sandbox_tokens(profile: Profile = "strict", override: str | None = None) -> str:
    """Return the `sandbox` attribute of the frame of the View. An override can only remove tokens."""
    tokens = INNER_TOKENS[profile]
    if override is None:
        return " ".join(tokens)
    kept = set(override.lower().split())
    return " ".join(token for token in tokens if token in kept)


def grant_permissions(requested: UiPermissions | None, allowed: Collection[str] = ()) -> UiPermissions | None:
    """Return the features that are both requested and allowed, or None if no feature is both."""
    if requested is None:
        return None
    granted = UiPermissions(
        camera={} if requested.camera is not None and "camera" in allowed else None,
        microphone={} if requested.microphone is not None and "microphone" in allowed else None,
        geolocation={} if requested.geolocation is not None and "geolocation" in allowed else None,
        clipboard_write={} if requested.clipboard_write is not None and "clipboardWrite" in allowed else None,
    )
    return granted if granted.names() else None


def allow_attribute(granted: UiPermissions | None) -> str:
    """Return the `allow` attribute, which both the outer and the inner frame need.

    The features are separated by semicolons. With the spaces of the sample in the specification a browser grants
    nothing.
    """
    return "; ".join(_FEATURES[name] for name in granted.names()) if granted is not None else ""


def _origins(sources: Iterable[str]) -> list[str]:
    """Check our own origins like declared ones: one wrong character would change the policy."""
    accepted, problems = validate_sources(sources, "frameDomains")
    if problems:
        raise ConfigurationError(f"frame-ancestors must be plain origins: {problems[0].source!r} {problems[0].reason}")
    return accepted


def _join(sources: Iterable[str]) -> str:
    return " ".join(sources)
