"""The limits of files, and the names of the extension on the wire. This module needs no other one of the package."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

SCHEME: Final = "mcpd-file"
"""The scheme of the URIs of returned files."""
RETURNED: Final = f"{SCHEME}:///{{id}}/{{name}}"
"""The template of the URIs of returned files."""


class FileSettings(Struct, frozen=True, kw_only=True):
    """The limits of files."""

    max_bytes: int = 64 << 20
    """The largest size of one file."""
    max_bytes_each: int = 256 << 20
    """The bytes of all files of one caller."""
    max_bytes_all: int = 1 << 30
    """The bytes of all files."""
    max_count_each: int = 256
    """The number of files of one caller, including uploads that have begun."""
    max_inline_bytes: int = 256 << 10
    """The largest file inside a message: as a data URI in an argument, or as an embedded resource in a result."""
    unused: float = 600.0
    """The seconds for which an upload waits for its call, and for which a returned file can be read."""
    used: float = 3600.0
    """The seconds for which a call may use its files."""
    fetch_seconds: float = 60.0
    """The seconds within which a file is fetched from a URL."""
