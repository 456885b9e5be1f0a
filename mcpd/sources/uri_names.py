"""The name of a server, as it stands in the URIs of what its folder has."""

from __future__ import annotations

import os

__all__ = ["PLAIN", "uri_name"]

PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""The bytes that a segment of a path may have as they are (RFC 3986 section 2.3)."""


def uri_name(name: str) -> str:
    """The name, with a dash for what a URI cannot have; `folder` if nothing is left of it."""
    plain = "".join(chr(byte) if byte in PLAIN else " " for byte in os.fsencode(name))
    return "-".join(plain.split()).strip("-.").lower() or "folder"
