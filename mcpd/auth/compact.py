"""The parts of a compact JWS, before anybody has checked it. Pure. Spec: RFC 7515 3.1."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# From base64url to base64, and from all else, the signs of plain base64 among it, to what is neither.
_TO_BASE64 = bytes(code if code in _ALPHABET else {45: 43, 95: 47}.get(code, 33) for code in range(256))
_PADDING = (b"", b"===", b"==", b"=")


def segments_of(text: str) -> tuple[str, str, str] | None:
    """Header, payload and signature; None for what is no compact JWS. What is in them `bytes_in` looks at."""
    parts = text.split(".", 3)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def bytes_in(segment: str) -> bytes | None:
    """What a segment holds; None if it is no base64url."""
    try:
        data = segment.encode("ascii").translate(_TO_BASE64)
        return a2b_base64(data + _PADDING[len(data) % 4], strict_mode=True)
    except ValueError:
        return None


def object_in(segment: str) -> dict[str, Any] | None:
    """The JSON object that a segment is; None if it is none."""
    data = bytes_in(segment)
    if data is None:
        return None
    try:
        found = decode(data)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None
