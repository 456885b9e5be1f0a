"""What a client over Streamable HTTP says in headers, in each of the two eras; the messages are the client's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.json import encode

from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.types.base import META
from mcpd.protocol.wire.headers import encode_value
from mcpd.server import Server

Headers = Sequence[tuple[bytes, bytes]]


class Modern:
    """From 2026-07-28: each message says its version, and is repeated in headers. There is no session."""

    session: Headers = ()

    def __init__(self, server: Server) -> None:
        self._server = server

    def headers(self, message: dict[str, Any]) -> Headers:
        """What a message is sent with."""
        params = as_dict(message.get("params"))
        version = as_dict(params.get("_meta")).get(f"{META}protocolVersion")
        if not isinstance(version, str):
            return ()

        method = str(message.get("method", ""))
        headers = [(b"mcp-protocol-version", version.encode()), (b"mcp-method", method.encode())]
        name = params.get(self._named(method))
        if isinstance(name, str):
            headers.append((b"mcp-name", encode_value(name)))
            if method == "tools/call":
                headers += self._mirrored(name, params.get("arguments"))
        return headers

    def given_up(self, message: dict[str, Any]) -> Any:
        """The id of the request that a message gives up, for which its response is closed instead; None of others.

        Spec: 2026-07-28 basic/patterns/cancellation.
        """
        if message.get("method") != "notifications/cancelled":
            return None
        return as_dict(message.get("params")).get("requestId")

    def _named(self, method: str) -> str:
        """Which member of the params `Mcp-Name` repeats."""
        for extension in self._server.extensions.values():
            if method in extension.requests:
                return extension.requests[method].named or ""
        return SUBJECTS.get(method, "")

    def _mirrored(self, tool: str, arguments: Any) -> Iterable[tuple[bytes, bytes]]:
        entry = self._server.catalog.tools.find(tool)
        for mirror in () if entry is None else entry.mirrors:
            value = arguments
            for key in mirror.path:
                value = as_dict(value).get(key)
            if value is not None:
                yield mirror.key, encode_value(value if isinstance(value, str) else encode(value).decode())


class Legacy:
    """Up to 2025-11-25: what the answer to `initialize` said is in all that follows."""

    def __init__(self, session_id: bytes | None, version: Any) -> None:
        headers = []
        if session_id is not None:
            headers.append((b"mcp-session-id", session_id))
        if isinstance(version, str):
            headers.append((b"mcp-protocol-version", version.encode()))
        self.session: Headers = headers

    def headers(self, message: dict[str, Any]) -> Headers:
        """What a message is sent with."""
        return self.session

    def given_up(self, message: dict[str, Any]) -> None:
        """None: whoever gives a request up says so, and waits for no less."""


def as_dict(value: Any) -> dict[str, Any]:
    """An object; nothing for what is none."""
    return value if isinstance(value, dict) else {}
