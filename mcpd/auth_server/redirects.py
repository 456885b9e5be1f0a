"""Where a client may have its answers sent: which redirect URIs it may name, and which request fits one of them.

Spec: OAuth 2.1 2.3 and 4.1.1, RFC 8252 7.3; AUTH-125, AUTH-145. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit

_LONGEST = 1024
# By the text itself: two readers of URLs may differ about what the host of an odd one is.
_loopback = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?((?:[/?][^#]*)?)").fullmatch
_https = re.compile(
    r"https://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?([/?][^#]*)?"
).fullmatch


def why_not(uri: str) -> str:
    """Why no client may register this redirect URI; "" if one may."""
    if len(uri) > _LONGEST or not uri.isascii() or not uri.isprintable() or any(c in uri for c in ' "\\<>^`{|}*'):
        return "a redirect URI is a URL of up to 1,024 characters, without wildcards"
    if "#" in uri:
        return "a redirect URI has no fragment"
    if not _https(uri) and not _loopback(uri):
        return "a redirect URI is https, or http on 127.0.0.1, [::1] or localhost"
    try:
        _ = urlsplit(uri).port
    except ValueError:  # what is in brackets, or behind the colon, is none
        return "a redirect URI has an address or a port that there is not"
    return ""


def is_loopback_redirect(uri: str) -> bool:
    """Whether it leads to a program on the user's own machine."""
    return _loopback(uri) is not None


def matching(registered: Iterable[str], asked: str) -> bool:
    """Whether a request may name this one: as it was registered, but for the port on loopback."""
    own = _portless(asked)
    return not why_not(asked) and any(asked == one or (own is not None and own == _portless(one)) for one in registered)


def _portless(uri: str) -> tuple[str, str] | None:
    found = _loopback(uri)
    return None if found is None else (found[1], found[2])


def host_of(uri: str) -> str:
    """The host that people are shown, with its port where that is part of who it is."""
    parts = urlsplit(uri)
    return (parts.hostname or "") if is_loopback_redirect(uri) else parts.netloc


def answer_url(uri: str, params: dict[str, str]) -> str:
    """The redirect URI with an answer behind it."""
    separator = "&" if "?" in uri else "?"
    return f"{uri}{separator}{urlencode(params)}"
