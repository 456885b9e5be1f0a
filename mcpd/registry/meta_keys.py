"""Checks the names of `_meta` keys: an optional prefix of labels and a slash, then a name.

Spec: 2026-07-28 basic/index, `_meta`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcpd.errors import RegistrationError

_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_KEY = rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:{_NAME})?"


def is_meta_key(key: str) -> bool:
    """Whether a key of `_meta` may be named so, e.g. `com.example/unit` (S26-027, S26-028)."""
    prefix, slash, name = key.partition("/")
    if slash and key.isascii() and name.isalnum() and all(map(str.isalpha, prefix.split("."))):
        return True  # as most are; to compile the pattern costs start-up
    return re.fullmatch(_KEY, key) is not None


def checked_meta(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A copy. Raises RegistrationError for a key that no client need accept."""
    if meta is None:
        return None
    for key in meta:
        if not is_meta_key(key):
            raise RegistrationError(
                f"_meta key {key!r}: write a name, or prefix/name such as com.example/unit, of letters, digits, - _ ."
            )
    return dict(meta)
