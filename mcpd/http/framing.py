"""What HTTP/1.1 says about where a request ends, and the bytes of answers that end a connection.

Of what uvicorn's connections leave open, `http1.py` decides by this.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from http import HTTPStatus

from ..transports.authentication import Refusal

__all__ = ["ANY_LENGTH", "TRANSFER", "bad_framing", "least_head_size", "refuse_bytes", "without_upgrade"]

TRANSFER = b"transfer-encoding"


class _AnyLength(int):
    """As the length of a body that is still to come: any may come, and it may end at any time."""

    def __sub__(self, other: int) -> _AnyLength:
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


ANY_LENGTH = _AnyLength(sys.maxsize)


def without_upgrade(method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head of a request once more, without the wish for another protocol."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in headers:
        if name == b"connection":
            value = b", ".join(
                token for token in value.split(b",") if token.strip().lower() not in (b"upgrade", b"http2-settings")
            )

        if name not in (b"upgrade", b"http2-settings"):
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def refuse_bytes(refusal: Refusal, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A refusal of a request with these headers, as far as they came; the connection ends after it."""
    accept = b",".join(value for name, value in headers if name == b"accept")
    kind, body = refusal.body(accept.decode("latin-1"))
    status = HTTPStatus(refusal.status)
    fields = {
        "content-type": kind,
        "content-length": str(len(body)),
        "connection": "close",
        **{name.lower(): value for name, value in refusal.headers},
    }
    head = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def bad_framing(headers: list[tuple[bytes, bytes]], version: str) -> Refusal | None:
    """Why a request that names a transfer coding cannot be read: only `chunked` is known here.

    What stands before us may read another coding differently, and find another request behind this one. Spec: RFC
    9112 6.1: an unknown coding is 501, `chunked` comes once and last, HTTP/1.0 has none; 6.3: no length beside it.
    """
    codings = b",".join(value for name, value in headers if name == TRANSFER).lower()
    named = [coding.strip(b" \t") for coding in codings.split(b",")]
    if version != "1.1" or any(name == b"content-length" for name, _ in headers):
        return Refusal(400, "Transfer-Encoding is for HTTP/1.1, and not beside a Content-Length.\n")
    if any(coding != b"chunked" for coding in named):
        return Refusal(501, "Of the transfer codings only chunked is known here.\n")
    return None if len(named) == 1 else Refusal(400, "A body can be chunked only once.\n")


def least_head_size(method: bytes, url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """The bytes that such a head takes at least: without blanks round values, which are no part of them."""
    line = len(method) + len(url) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(":\r\n") for name, value in headers) + len("\r\n")
