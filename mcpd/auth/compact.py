"""The parts of a compact JWS, before anybody has checked it. Pure. Spec: RFC 7515 3.1."""

from __future__ import annotations

import re
from binascii import a2b_base64
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

__all__ = ["bytes_in", "object_in", "segments_of"]

_segments = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)").fullmatch


def segments_of(text: str) -> tuple[str, str, str] | None:
    """Header, payload and signature; None for what is no compact JWS."""
    found = _segments(text)
    return None if found is None else (found[1], found[2], found[3])


def bytes_in(segment: str) -> bytes | None:
    """What a segment holds; None if it is no base64url."""
    try:
        return a2b_base64(segment.replace("-", "+").replace("_", "/") + "=" * (-len(segment) % 4), strict_mode=True)
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
