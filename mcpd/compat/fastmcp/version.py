"""Which version of the library servers find: the one whose lists and results these are."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "4.2.3"
