"""What HTTP/1.1 says about where a request ends, and heads as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from mcpd.http.request import Header
from mcpd.transports.authentication import Refusal

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def wishes_for_websocket(fields: dict[bytes, bytes]) -> bool:
    """Whether a head asks for a WebSocket."""
    named = [token.strip() for token in fields.get(b"connection", b"").lower().split(b",")]
    return b"upgrade" in named and fields.get(b"upgrade", b"").lower() == b"websocket"


def without_upgrade(method: bytes, url: bytes, version: str, headers: list[Header]) -> bytes:
    """A head without the wish for another protocol."""
    kept = []
    for name, value in headers:
        if name == b"connection":
            tokens = value.split(b",")
            value = b",".join(one for one in tokens if one.strip().lower() not in (b"upgrade", b"http2-settings"))
        if name not in (b"upgrade", b"http2-settings"):
            kept.append((name, value))
    return head_bytes(method, url, version, kept)


def head_bytes(method: bytes, url: bytes, version: str, headers: list[Header]) -> bytes:
    """The bytes of a head."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"".join((b"%b %b HTTP/%b\r\n" % (method, url, version.encode()), *lines, b"\r\n"))


def least_size(method: bytes, url: bytes, headers: list[Header]) -> int:
    """The bytes that such a head takes at least: without blanks round the values."""
    line = len(method) + len(url) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(":\r\n") for name, value in headers) + len("\r\n")


def bad_framing(headers: list[Header], version: str) -> Refusal | None:
    """Why a request that names a transfer coding cannot be read: only `chunked` is known here.

    A proxy before us may read another coding differently, and find another request behind this one. Spec: RFC
    9112 6.1: an unknown coding is 501, `chunked` comes once and last, HTTP/1.0 has none; 6.3: no length beside it.
    """
    codings = b",".join(value for name, value in headers if name == b"transfer-encoding").lower()
    named = [coding.strip(b" \t") for coding in codings.split(b",")]
    if version != "1.1" or any(name == b"content-length" for name, _ in headers):
        return Refusal(400, "Transfer-Encoding is for HTTP/1.1, and not beside a Content-Length.\n")
    if any(coding != b"chunked" for coding in named):
        return Refusal(501, "Only the transfer coding chunked is supported.\n")
    return None if len(named) == 1 else Refusal(400, "A body can be chunked only once.\n")


def refusal_bytes(refusal: Refusal, headers: Iterable[Header]) -> bytes:
    """A refusal of a request with these headers, as far as they came; the connection ends after it."""
    accept = b",".join(value for name, value in headers if name == b"accept")
    kind, body = refusal.body(accept.decode("latin-1"))
    fields = {
        "content-type": kind,
        "content-length": str(len(body)),
        "connection": "close",
        **{name.lower(): value for name, value in refusal.headers},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return STATUS_LINES[refusal.status] + lines.encode("latin-1") + b"\r\n" + body


def address_of(found: Any) -> tuple[str, int | None] | None:
    """The address of a socket, as scopes have it."""
    if isinstance(found, tuple):
        return str(found[0]), int(found[1])
    return (found, None) if found and isinstance(found, str) else None
