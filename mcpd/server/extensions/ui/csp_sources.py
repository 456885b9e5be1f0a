"""The `csp` and `permissions` members of `_meta.ui`, the checks of their sources, and public suffixes.

An accepted source can be inserted unchanged into a Content-Security-Policy header. The server checks sources at
registration, and the host before it builds a policy. The accepted sources are narrower than in CSP Level 3 section
2.3.1, which does not consider hostile input. A wildcard under a public suffix, such as `*.github.io`, would match
anybody's host. The package publicsuffixlist (extra `apps`) has the complete list of suffixes; without it a rule and a
short list cover the best known ones. Spec: MCP Apps 2026-01-26, "UI Resource Format" and "Content Security Policy
Enforcement"; https://publicsuffix.org/list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from mcpd.protocol.types.base import Wire

SourceKind: TypeAlias = Literal["connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"]

SOURCE_KINDS: Final[tuple[SourceKind, ...]] = get_args(SourceKind)
MAX_SOURCES: Final = 64
MAX_SOURCE_CHARS: Final = 253


class UiCsp(Wire, kw_only=True):
    """The origins that a View declares. A missing list is an empty one."""

    connect_domains: list[str] | None = None
    resource_domains: list[str] | None = None
    frame_domains: list[str] | None = None
    base_uri_domains: list[str] | None = None

    def sources(self, kind: SourceKind) -> list[str]:
        """Return the list of one kind."""
        return getattr(self, _FIELDS[kind]) or []


class UiPermissions(Wire, kw_only=True):
    """The browser features that a View requests; an empty object requests a feature."""

    camera: dict[str, Any] | None = None
    microphone: dict[str, Any] | None = None
    geolocation: dict[str, Any] | None = None
    clipboard_write: dict[str, Any] | None = None

    def names(self) -> list[str]:
        """Return the names of the requested features."""
        return [wire for wire, name in PERMISSION_FIELDS.items() if getattr(self, name) is not None]


class SourceProblem(Struct, frozen=True):
    """The problem of one entry; `dropped` is False if it was corrected instead."""

    kind: str
    source: str
    reason: str
    dropped: bool = True

    def __str__(self) -> str:
        return f"{self.kind}: {self.source!r} {'dropped' if self.dropped else 'changed'}: {self.reason}"


# By their names on the wire.
_FIELDS: Final = dict(zip(UiCsp.__struct_encode_fields__, UiCsp.__struct_fields__, strict=True))
PERMISSION_FIELDS: Final = dict(
    zip(UiPermissions.__struct_encode_fields__, UiPermissions.__struct_fields__, strict=True)
)

# Compiled with the first source, and cached by `re`: compiling would slow the start, and few servers declare sources.
_SOURCE: Final = (
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<wild>\*\.)?(?P<host>[^/:?#@*\[\]]*)(?::(?P<port>[^/?#@]*))?(?P<rest>[/?#].*)?"
)
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_IPV4: Final = r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_SCHEMES: Final = ("http", "https", "ws", "wss")
_LOCAL_SCHEMES: Final = ("data:", "blob:")
_COMPAT: Final = ("*", "http:", "https:", "ws:", "wss:")
_KEYWORD: Final = r"(?:self|none|unsafe-\w+|strict-dynamic|report-sample|(?:nonce|sha256|sha384|sha512)-.*)"

# Each of these ends or opens something in a header: a source, a directive, a policy or an attribute.
_FORBIDDEN: Final[tuple[tuple[str, str], ...]] = (
    (";", "a semicolon would end the directive"),
    (",", "a comma would end the policy in a header"),
    ("'", "quotes mark keywords, which cannot be declared"),
    ('"', "quotes are not part of an origin"),
    ("<", "angle brackets are not part of an origin"),
    (">", "angle brackets are not part of an origin"),
    ("\\", "a backslash is not part of an origin"),
)


def validate_sources(
    sources: Iterable[object], kind: SourceKind, *, compat: bool = False
) -> tuple[list[str], list[SourceProblem]]:
    """Return the valid entries of one list, each once, and the problems of the others.

    `compat` also accepts `*`, scheme sources such as `https:`, and wildcards under public suffixes such as
    `https://*.com`, like the reference host.
    """
    accepted: dict[str, None] = {}
    problems: list[SourceProblem] = []
    for index, entry in enumerate(sources):
        if index == MAX_SOURCES:
            problems.append(SourceProblem(kind, "…", f"a list may have {MAX_SOURCES} entries; the rest is ignored"))
            break
        if not isinstance(entry, str):
            problems.append(SourceProblem(kind, shortened(repr(entry)), "an entry must be a string"))
            continue
        source, reason = _normalise(entry, kind, compat)
        if reason:
            problems.append(SourceProblem(kind, shortened(entry), reason, dropped=source is None))
        if source is not None:
            accepted[source] = None

    return list(accepted), problems


def validate_csp(csp: UiCsp, *, compat: bool = False) -> tuple[UiCsp, list[SourceProblem]]:
    """Check all four lists. Returns the sources that can be granted, and all problems."""
    granted: dict[str, list[str] | None] = {}
    problems: list[SourceProblem] = []
    for kind in SOURCE_KINDS:
        accepted, more = validate_sources(csp.sources(kind), kind, compat=compat)
        granted[_FIELDS[kind]] = accepted or None
        problems += more
    return UiCsp(**granted), problems


def read_csp(value: object) -> tuple[UiCsp | None, list[SourceProblem]]:
    """Read the `csp` member of untrusted data; None if it is missing or not an object.

    A member that is not a list counts as missing: both grant nothing.
    """
    if value is None:
        return None, []
    if not isinstance(value, Mapping):
        return None, [
            SourceProblem(
                "csp",
                shortened(repr(value)),
                f"must be an object with lists of origins under {', '.join(SOURCE_KINDS)}",
            )
        ]

    lists: dict[str, list[str] | None] = {}
    problems: list[SourceProblem] = []
    for kind in SOURCE_KINDS:
        entries = value.get(kind)
        if entries is None:
            continue
        if not isinstance(entries, (list, tuple)):
            problems.append(SourceProblem(kind, shortened(repr(entries)), "must be an array of strings"))
            continue
        for entry in entries:
            if not isinstance(entry, str):
                problems.append(SourceProblem(kind, shortened(repr(entry)), "an entry must be a string"))
        lists[_FIELDS[kind]] = [entry for entry in entries if isinstance(entry, str)]

    return UiCsp(**lists), problems


def read_permissions(value: object) -> UiPermissions | None:
    """Read the `permissions` member of untrusted data; None if it is not an object."""
    if not isinstance(value, Mapping):
        return None
    return UiPermissions(
        **{name: {} for wire, name in PERMISSION_FIELDS.items() if isinstance(value.get(wire), Mapping)}
    )


def _normalise(entry: str, kind: SourceKind, compat: bool) -> tuple[str | None, str]:
    # Return (source, "") if valid, (source, warning) if corrected, (None, reason) if unusable.
    if reason := _unsafe(entry):
        return None, reason
    source = entry.lower()
    if source in _LOCAL_SCHEMES:
        if kind in ("connectDomains", "resourceDomains"):
            return source, ""
        return None, f"{source} can only be declared in connectDomains and resourceDomains"

    if source in _COMPAT:
        return (source, "") if compat else (None, "matches every host; declare the origins that are needed")
    match = re.fullmatch(_SOURCE, source)
    if match is None:
        return None, _why_no_match(source)

    scheme, host, port = match["scheme"], match["host"], match["port"]
    if scheme not in _SCHEMES:
        return None, f"the scheme must be one of {', '.join(_SCHEMES)}"
    if reason := _bad_host(host, wild=match["wild"] is not None):
        return None, reason
    if match["wild"] is not None and not compat and is_public_suffix(host):
        return None, f"anybody can have a host under {host}, so it matches every host; name the host that is needed"
    if port is not None and port != "*" and not (port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535):
        return None, "the port must be a number up to 65535 or *"

    origin = source[: match.start("rest")] if match["rest"] else source
    return origin, "" if origin == source else "a policy is about origins; path and query are cut off"


def _unsafe(entry: str) -> str:
    if not entry:
        return "is empty"
    if len(entry) > MAX_SOURCE_CHARS:
        return f"is longer than {MAX_SOURCE_CHARS} characters"
    if not entry.isascii():
        return "must be ASCII; write an international name in its xn-- form"
    if any(char <= " " or char == "\x7f" for char in entry):
        return "white space and control characters would end the source"
    return next((reason for char, reason in _FORBIDDEN if char in entry), "")


def _why_no_match(source: str) -> str:
    if re.fullmatch(_KEYWORD, source):
        return "keywords cannot be declared"
    authority = source.partition("://")[2].partition("/")[0]
    if "@" in authority:
        return "user names and passwords are not part of an origin"
    if "[" in authority:
        return "an IPv6 address is not a host in CSP; use a name or an IPv4 address"
    return "is not scheme://host[:port]"


def _bad_host(host: str, *, wild: bool) -> str:
    labels = host.split(".")
    if labels[-1].isdigit():
        if wild:
            return "an IPv4 address has no subdomains"
        return "" if re.fullmatch(_IPV4, host) else "is not a valid IPv4 address"
    if all(re.fullmatch(_LABEL, label) for label in labels):
        return ""
    return f"{host!r} is not a host name" if host else "has no host"


def shortened(text: str) -> str:
    """Return a text for a message, cut so that a hostile one cannot flood the log."""
    return text if len(text) <= 80 else f"{text[:79]}…"


_COMMON = """
ac asn bank co com ed edu firm gen go gob gov gouv govt gv id ind info int k12 lg ltd me med mil ne net nhs nic nom or
org plc police pro res sch web
"""
_HOSTS = """
amplifyapp.com appspot.com azureedge.net azurewebsites.net azurestaticapps.net blogspot.com cloudapp.net cloudfront.net
deno.dev duckdns.org firebaseapp.com fly.dev github.io gitlab.io glitch.me googleapis.com herokuapp.com hf.space loca.lt
netlify.app ngrok-free.app ngrok.app ngrok.dev ngrok.io nip.io onrender.com pages.dev r2.dev railway.app repl.co
replit.app replit.dev run.app sslip.io surge.sh trycloudflare.com ts.net vercel.app web.app windows.net workers.dev
"""
_SECOND_LEVELS = frozenset(_COMMON.split())
_HOSTING = frozenset(_HOSTS.split())
# All names below these domains belong to other people, at any depth.
_ALL_HOSTING = ("amazonaws.com", "on.aws", "windows.net")


def is_public_suffix(domain: str) -> bool:
    """Whether anybody can have a host below a domain, which is in lower case and ASCII."""
    labels = domain.split(".")
    if len(labels) == 1 or domain in _HOSTING or ".".join(labels[-2:]) in _ALL_HOSTING:
        return True
    listed = _listed()
    if listed is not None:
        return listed(domain)
    return len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVELS


@cache
def _listed() -> Callable[[str], bool] | None:
    # Return the installed Public Suffix List, which is read with the first wildcard; None without it.
    try:
        from publicsuffixlist import PSLFILE, PublicSuffixList
    except ImportError:
        return None
    is_public = PublicSuffixList().is_public
    with open(PSLFILE, encoding="utf-8") as lines:
        parents = frozenset(_parents(lines))
    return lambda domain: domain in parents or is_public(domain)


def _parents(lines: Iterable[str]) -> Iterator[str]:
    # Yield the parents of public suffixes, as `core.windows.net` of `blob.core.windows.net`.
    for line in lines:
        name = line.partition(" ")[0].strip().removeprefix("*.")
        if name.isascii() and not name.startswith(("//", "!")):
            for _ in range(name.count(".") - 1):
                name = name.partition(".")[2]
                yield name
