"""Cross-origin resource sharing: exactly the headers that a browser's MCP client needs, for pages that are named.

Local pages that nobody named may send requests (the guard lets them in), but their scripts get nothing to read.
Spec: https://fetch.spec.whatwg.org/#http-cors-protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mcpd.http.request import Header, HttpRequest

_METHODS = b"GET, POST, DELETE"
_EXPOSED = b"DPoP-Nonce, Mcp-Session-Id, WWW-Authenticate"
_ALLOWED = (
    "Accept",
    "Authorization",
    "Content-Type",
    "DPoP",
    "Last-Event-ID",
    "Mcp-Method",
    "Mcp-Name",
    "MCP-Protocol-Version",
    "Mcp-Session-Id",
)
_MAX_AGE = b"7200"
_is_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch


class Cors:
    """The CORS headers for web pages of these origins; pages of others get none."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = {origin.lower().encode() for origin in origins}
        self.is_enabled = bool(self._origins)

    def headers(self, request: HttpRequest) -> tuple[Header, ...]:
        """What every answer to this request carries."""
        origin = request.headers.get(b"origin")
        if origin is None or origin.lower() not in self._origins:
            return ((b"vary", b"Origin"),)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        )

    def is_preflight(self, request: HttpRequest) -> bool:
        """Whether a browser asks what a page's script may send."""
        return b"access-control-request-method" in request.headers and b"origin" in request.headers

    def preflight(self, request: HttpRequest, methods: bytes = _METHODS) -> tuple[Header, ...]:
        """The answer to that, beside `headers`, by default for the endpoint.

        Tools and the author's own code may read any header, so a named page may send what it asks for.
        """
        if request.headers[b"origin"].lower() not in self._origins:
            return ()
        asked = request.headers.get(b"access-control-request-headers", b"").decode("latin-1").split(",")
        known = {name.lower() for name in _ALLOWED}
        own = [name for each in asked if _is_name(name := each.strip()) and name.lower() not in known]
        allowed = ", ".join([*_ALLOWED, *own])
        return (
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", allowed.encode()),
            (b"access-control-max-age", _MAX_AGE),
        )
