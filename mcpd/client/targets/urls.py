"""URLs and unix sockets as targets.

https://example.com/mcp     http, https, ws, wss; what stands before an @ becomes Basic authorization
unix:/run/mcpd.sock         HTTP over a unix socket, at /mcp; unix:/run/mcpd.sock:/other for another path
ws+unix:/run/mcpd.sock      WebSocket over it
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

from mcpd.client.targets.named import UrlTarget
from mcpd.errors import ConfigurationError

SCHEMES = ("http", "https", "ws", "wss")
_SOCKETS = {"unix": "http", "http+unix": "http", "ws+unix": "ws"}
_ENDPOINT = "/mcp"


def is_url(text: str) -> bool:
    """Whether this is meant as a URL or as a unix socket, good or bad."""
    scheme, colon, _ = text.partition(":")
    return "://" in text or (bool(colon) and scheme.lower() in _SOCKETS)


def read_url(text: str, headers: Mapping[str, str] | None = None, *, name: str = "") -> UrlTarget:
    """The server at a URL or unix socket. Raises ConfigurationError, which shows no password and no query."""
    scheme, _, rest = text.strip().partition(":")
    scheme = scheme.lower()
    if scheme in _SOCKETS:
        return _socket(_SOCKETS[scheme], rest, dict(headers or {}), text, name)
    shown = text.partition("?")[0]
    if "@" in shown:
        shown = f"{scheme}://…{shown.rpartition('@')[2]}"
    if scheme not in SCHEMES:
        raise ConfigurationError(f"{shown}: a server is reached at http://, https://, ws://, wss:// or unix:/path")

    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # What Python says of some hosts repeats the password that stands before them.
        why = "" if "@" in text else f": {error}"
        raise ConfigurationError(f"{shown}: this is no URL{why}") from None
    if not host:
        raise ConfigurationError(f"{shown}: the host is missing; write {scheme}://HOST/mcp")
    if any(ord(c) <= 0x20 or ord(c) == 0x7F for c in text.strip()):
        raise ConfigurationError(f"{shown}: a URL has no spaces and no control characters; write %20 for a space")

    found = dict(headers or {})
    if parts.username is not None and not any(each.lower() == "authorization" for each in found):
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        found["Authorization"] = f"Basic {b64encode(secret.encode()).decode()}"
    authority = f"[{host}]" if ":" in host else host
    if port is not None:
        authority = f"{authority}:{port}"
    return UrlTarget(urlunsplit((scheme, authority, parts.path or "/", parts.query, "")), found, name=name)


def _socket(scheme: str, rest: str, headers: dict[str, str], text: str, name: str) -> UrlTarget:
    """`/path`, `//` and a path, and behind it the path of the endpoint: `:/mcp`, or `#/mcp` as VS Code has it."""
    path, mark, endpoint = rest.partition("#")
    if not mark:
        path, mark, endpoint = rest.rpartition(":/")
        if mark and path:
            endpoint = f"/{endpoint}"
        else:
            path, endpoint = rest, _ENDPOINT
    if path.startswith("//"):
        path = path[2:]
    if not path:
        raise ConfigurationError(f"{text}: write the path of the socket, as unix:/run/mcpd.sock")
    if endpoint and not endpoint.startswith("/"):
        endpoint = f"/{endpoint}"
    path = os.path.abspath(os.path.expanduser(path))
    return UrlTarget(f"{scheme}://localhost{endpoint or _ENDPOINT}", headers, socket=path, name=name)
