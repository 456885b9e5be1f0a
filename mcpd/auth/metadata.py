"""The protected resource metadata: where it is, and what it says. Spec: RFC 9728, 2026-07-28 basic/authorization."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from msgspec.json import encode

from mcpd.errors import ConfigurationError
from mcpd.transports.address import is_loopback

WELL_KNOWN = "/.well-known/oauth-protected-resource"
INSIDE = "/oauth-protected-resource"
"""Where it is below the endpoint too, for applications that are mounted by others."""


def checked_public_url(url: str, *, is_public: bool) -> str:
    """The URL by which clients know the endpoint, as it is written.

    Raises ConfigurationError for what is none, and for one without TLS if others than this machine use it.
    """
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or parts.query or "#" in url or "?" in url or "@" in parts.netloc or not _is_plain(url):
        raise ConfigurationError(
            f"public URL {url!r}: write the whole URL of the endpoint that clients use, as https://example.com/mcp"
        )
    if parts.scheme == "http" and is_public and not is_loopback(parts.hostname or ""):
        raise ConfigurationError(
            f"public URL {url!r}: tokens travel to it, so that it has to begin with https:// beyond this machine"
        )
    return url


def as_reached(url: str, host: str) -> str:
    """Return a URL of this machine with the name that a client reached it by: 127.0.0.1, [::1] and localhost are one.

    Only such a name with the URL's own port changes it: what else a request says as `Host` is not believed.
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


def _is_mounted(public_url: str, endpoint: str) -> bool:
    """Whether an application around ours serves the root of the origin, as far as the two paths tell."""
    path, own = _path(public_url).rstrip("/"), endpoint.rstrip("/")
    return len(path) > len(own) and path.endswith(own)


def metadata_url(public_url: str, endpoint: str) -> str:
    """Where challenges point to: the place of the specification, or one inside of the mount."""
    parts = urlsplit(public_url)
    origin = f"{parts.scheme}://{parts.netloc}"
    if _is_mounted(public_url, endpoint):
        return f"{public_url.rstrip('/')}{INSIDE}"
    return f"{origin}{WELL_KNOWN}{_path(public_url)}"


def paths(public_url: str, endpoint: str) -> list[str]:
    """The paths of our own application at which the document is: a proxy may pass each of them on to us."""
    found = [
        WELL_KNOWN,
        WELL_KNOWN + _path(public_url),
        WELL_KNOWN + endpoint.rstrip("/"),
        endpoint.rstrip("/") + INSIDE,
    ]
    return list(dict.fromkeys(found))


def document(members: Mapping[str, object]) -> bytes:
    """The document of these members, without those that have nothing in them."""
    return encode({name: value for name, value in members.items() if value not in ((), [], "", None, False)})


_scope = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+").fullmatch


def is_scope(text: str) -> bool:
    """Whether a text is one scope. Spec: RFC 6749 3.3."""
    return _scope(text) is not None


def checked_scopes(given: Iterable[str], where: str) -> tuple[str, ...]:
    """The scopes in their order, each once. Raises ConfigurationError for what is none, and for offline_access."""
    if isinstance(given, str):
        raise ConfigurationError(f'{where}: scopes are a list of texts, as ["notes.read"], not {given!r}')
    found = tuple(dict.fromkeys(given))
    for scope in found:
        if not is_scope(str(scope)):
            raise ConfigurationError(f"{where}: {scope!r} is no scope; one is printable ASCII without spaces or quotes")
        if scope == "offline_access":
            raise ConfigurationError(
                f"{where}: offline_access is between the client and the authorization server; leave it out"
            )
    return found


class Hierarchy:
    """Which scopes include others: `Hierarchy({"files": ["files.read", "files.write"]})`. Raises ConfigurationError."""

    def __init__(self, implies: Mapping[str, Iterable[str]]) -> None:
        self._implies = {
            scope: frozenset(checked_scopes(below, f"implies {scope!r}")) for scope, below in implies.items()
        }
        checked_scopes(self._implies, "implies")

    def expanded(self, scopes: Iterable[str]) -> frozenset[str]:
        """These scopes with all that they include, and what those include."""
        found = set(scopes)
        if self._implies:
            waiting = list(found)
            while waiting:
                more = self._implies.get(waiting.pop(), frozenset()) - found
                found |= more
                waiting += more
        return frozenset(found)


def written(*parts: Iterable[str]) -> str:
    """All scopes as a challenge names them: in their order, each once."""
    return " ".join(dict.fromkeys(scope for part in parts for scope in part))
