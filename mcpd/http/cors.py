"""Cross-origin resource sharing: exactly the headers that a browser's MCP client needs, for pages that are named.

Local pages that nobody named may send requests (the guard lets them in), but their scripts get nothing to read.
Spec: https://fetch.spec.whatwg.org/#http-cors-protocol.
"""

from __future__ import annotations

from collections.abc import Iterable

from .request import Header, HttpRequest

__all__ = ["Cors"]

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

        `Mcp-Param-*` are named by the tools: of them what was asked for.
        """
        if request.headers[b"origin"].lower() not in self._origins:
            return ()
        asked = request.headers.get(b"access-control-request-headers", b"").decode("latin-1").split(",")
        params = [name.strip() for name in asked if name.strip().lower().startswith("mcp-param-")]
        allowed = ", ".join([*_ALLOWED, *(name for name in params if name.isascii() and name.isprintable())])
        return (
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", allowed.encode()),
            (b"access-control-max-age", _MAX_AGE),
        )
