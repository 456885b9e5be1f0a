"""Which era an HTTP request belongs to, decided once: what follows is all in that era's own endpoint.

The body decides, the headers only confirm it: a POST whose `MCP-Protocol-Version` names a modern version is held
against its body there, and one without that header is modern if its `_meta` says so.
Spec: 2026-07-28 basic/versioning, basic/transports/streamable-http.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from mcpd.errors import ProtocolError
from mcpd.http.core import Core
from mcpd.http.legacy import LegacyEndpoint
from mcpd.http.modern import ModernEndpoint
from mcpd.http.request import HttpRequest
from mcpd.protocol.envelope import has_envelope
from mcpd.protocol.jsonrpc import ABSENT, Failure, Message, Notification, Request, Response
from mcpd.protocol.versions import table

Step: TypeAlias = Coroutine[Any, Any, Any]
"""A part of the work on a request; it gives the next one, or None."""

Other: TypeAlias = Notification | Response | Failure | list[Message | ProtocolError]
"""What may be posted beside a request; the list is a batch."""


class EraEndpoint(Protocol):
    """How one era answers."""

    def post(self, request: HttpRequest, message: Request, /) -> Step:
        """A POST of one request."""

    def post_other(self, request: HttpRequest, message: Other, /) -> Step:
        """A POST of anything else."""

    def get(self, request: HttpRequest, /) -> Step:
        """A GET: a client that wants to listen."""

    def delete(self, request: HttpRequest, /) -> Step:
        """A DELETE: a client that ends its session."""


class Eras:
    """The endpoints of both eras. `named` has those that a request's `MCP-Protocol-Version` alone decides for."""

    def __init__(self, core: Core) -> None:
        self.legacy = LegacyEndpoint(core)
        self._modern = ModernEndpoint(core)
        self.named: dict[bytes | None, EraEndpoint] = {name.encode(): self._modern for name in table.MODERN}
        self._only_modern = table.modern_requests()

    def of_request(self, request: HttpRequest, message: Request, body: bytes) -> EraEndpoint:
        """For a request whose header names no modern version: by its `_meta`, or by a method that one era has."""
        if b"protocolVersion" in body and has_envelope(message.params):
            return self._modern
        if message.method in self._only_modern and b"mcp-session-id" not in request.headers:
            return self._modern
        return self.legacy

    def of_other(self, message: Other, body: bytes) -> EraEndpoint:
        """The same for anything else: by the `_meta` of any of it."""
        parts = message if isinstance(message, list) else [message]
        return self._modern if b"protocolVersion" in body and any(map(_has_envelope, parts)) else self.legacy


def _has_envelope(part: Message | ProtocolError) -> bool:
    params: Raw = getattr(part, "params", ABSENT)
    return params is not ABSENT and has_envelope(params)
