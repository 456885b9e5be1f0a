"""The URL and content of the protected resource metadata, and scopes.

Spec: RFC 9728, RFC 6749 section 3.3; 2026-07-28 basic/authorization.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

from msgspec.json import encode

from mcpd.errors import ConfigurationError
from mcpd.transports.address import is_loopback

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_OAUTH, _OPENID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
# The path below the endpoint, for applications that are mounted in others.
INSIDE = "/oauth-protected-resource"


def split_url(url: str) -> SplitResult | None:
    """Return the parts of an http or https URL, otherwise None."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid address in brackets or an invalid port
        return None
    return parts if is_url else None


def checked_public_url(url: str, *, is_public: bool) -> str:
    """Return the endpoint's URL unchanged.

    Raises ConfigurationError if it is not a URL, or if it is not https and other machines use it.
    """
    parts = split_url(url)
    if parts is None or "#" in url or "?" in url or "@" in parts.netloc or not _is_plain(url):
        raise ConfigurationError(
            f"public URL {url!r}: write the full URL that clients use for the endpoint, such as https://example.com/mcp"
        )
    if parts.scheme == "http" and is_public and not is_loopback(parts.hostname or ""):
        raise ConfigurationError(
            f"public URL {url!r}: it receives tokens, so it must begin with https:// unless it is on this machine"
        )
    return url


def as_reached(url: str, host: str) -> str:
    """Return a URL of this machine with the name in `host`: 127.0.0.1, [::1] and localhost are equivalent.

    Nothing else in a request's `Host` changes the URL.
    """
    try:
        ours, theirs = urlsplit(url), urlsplit(f"//{host}")
        names = ours.hostname or "", theirs.hostname or ""
        is_other = ours.port == theirs.port and names[0] != names[1]
    except ValueError:
        return url
    if not is_other or not all(name and is_loopback(name) for name in names):
        return url
    name = f"[{names[1]}]" if ":" in names[1] else names[1]
    return ours._replace(netloc=name if ours.port is None else f"{name}:{ours.port}").geturl()


def _is_plain(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url and '"' not in url and "\\" not in url


def _path(public_url: str) -> str:
    path = urlsplit(public_url).path
    return "" if path == "/" else path


def metadata_url(public_url: str, endpoint: str) -> str:
    """Return the metadata URL for challenges: the standard location, or a path inside the mounted application."""
    parts = urlsplit(public_url)
    origin = f"{parts.scheme}://{parts.netloc}"
    path, own = _path(public_url).rstrip("/"), endpoint.rstrip("/")
    # Another application serves the root of the origin, judging by the two paths.
    if len(path) > len(own) and path.endswith(own):
        return f"{public_url.rstrip('/')}{INSIDE}"
    return f"{origin}{WELL_KNOWN}{_path(public_url)}"


def metadata_paths(public_url: str, endpoint: str) -> list[str]:
    """Return the paths at which our application serves the document. A reverse proxy may forward any of them."""
    found = [
        WELL_KNOWN,
        WELL_KNOWN + _path(public_url),
        WELL_KNOWN + endpoint.rstrip("/"),
        endpoint.rstrip("/") + INSIDE,
    ]
    return list(dict.fromkeys(found))


def metadata_urls(issuer: str) -> list[str]:
    """Return the URLs of an authorization server's metadata in the order in which clients try them."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return list(dict.fromkeys((f"{origin}{_OAUTH}{path}", f"{origin}{_OPENID}{path}", f"{origin}{path}{_OPENID}")))


def metadata_document(members: Mapping[str, object]) -> bytes:
    """Return the document as JSON without empty members."""
    return encode({name: value for name, value in members.items() if value not in ((), [], "", None, False)})


_scope = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+").fullmatch


def is_scope(text: str) -> bool:
    """Return whether a text is one scope (RFC 6749 section 3.3)."""
    return _scope(text) is not None


def checked_scopes(given: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the scopes without duplicates. Raises ConfigurationError for invalid ones and offline_access."""
    if isinstance(given, str):
        raise ConfigurationError(f'{where}: scopes must be a list of strings, such as ["notes.read"], not {given!r}')
    found = tuple(dict.fromkeys(given))
    for scope in found:
        if not is_scope(str(scope)):
            raise ConfigurationError(
                f"{where}: {scope!r} is not a scope; use printable ASCII without spaces and quotes"
            )
        if scope == "offline_access":
            raise ConfigurationError(
                f"{where}: offline_access is between the client and the authorization server; leave it out"
            )
    return found


class Hierarchy:
    """Scopes that include others: `Hierarchy({"files": ["files.read", "files.write"]})`. Raises ConfigurationError."""

    def __init__(self, implies: Mapping[str, Iterable[str]]) -> None:
        self._implies = {
            scope: frozenset(checked_scopes(below, f"implies {scope!r}")) for scope, below in implies.items()
        }
        checked_scopes(self._implies, "implies")

    def expanded(self, scopes: Iterable[str]) -> frozenset[str]:
        """Return these scopes and all that they include, directly or indirectly."""
        found = set(scopes)
        if self._implies:
            waiting = list(found)
            while waiting:
                more = self._implies.get(waiting.pop(), frozenset()) - found
                found |= more
                waiting += more
        return frozenset(found)
