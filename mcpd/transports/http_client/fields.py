"""Header fields of the program, checked before anything is sent, and the cookies of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie

from yarl import URL

from ...errors import ConfigurationError
from ...printable import printable

__all__ = ["MOST_COOKIES", "checked", "with_cookies"]

_OURS = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect",
        "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "te", "trailer",
        "transfer-encoding", "upgrade",
    )
)  # fmt: skip
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def checked(fields: Mapping[str, str], where: str) -> Mapping[str, str]:
    """These header fields. Raises ConfigurationError, without a value in it, for what cannot be sent."""
    for name, value in fields.items():
        if not name or not _TOKEN.issuperset(name):
            raise ConfigurationError(f"{where}: {printable(name)!r} is no name of a header field")
        lower = name.lower()
        if lower in _OURS or lower.startswith("mcp-param-"):
            raise ConfigurationError(f"{where}: {name} is said by the client itself")
        if any(c in value for c in "\r\n\0") or value != value.strip(" \t"):
            raise ConfigurationError(
                f"{where}: the value of {name} cannot be sent: it has a line break, or blanks around"
            )
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ConfigurationError(f"{where}: the value of {name} is not Latin-1") from None
    return fields


MOST_COOKIES = 32
"""How many cookies of a server, of up to 4,096 characters each, a client keeps."""
_MOST_COOKIE = 4096


def with_cookies(kept: Mapping[str, str], lines: Iterable[str], url: URL) -> dict[str, str]:
    """The cookies of a client after these `Set-Cookie` lines of the server at `url` (RFC 6265 5.3).

    Load balancers keep a session on its node by them. They go to this server only, until the client is closed.
    """
    cookies = dict(kept)
    for line in lines:
        try:
            found = SimpleCookie(line[: 2 * _MOST_COOKIE])
        except CookieError:
            continue
        for name, cookie in found.items():
            domain, path, host = cookie["domain"].lstrip(".").lower(), cookie["path"] or "/", url.host or ""
            is_for_us = not domain or host == domain or host.endswith(f".{domain}")
            is_below = url.path == path or url.path.startswith(path if path.endswith("/") else f"{path}/")
            if not is_for_us or not is_below or (cookie["secure"] and url.scheme != "https"):
                continue
            if cookie["max-age"].lstrip("-").isdecimal() and int(cookie["max-age"][:18]) <= 0:
                cookies.pop(name, None)
            elif len(cookie.coded_value) <= _MOST_COOKIE and (name in cookies or len(cookies) < MOST_COOKIES):
                cookies[name] = cookie.coded_value

    return cookies
