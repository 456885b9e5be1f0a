"""References within a JSON Schema, such as `#/$defs/Bed`, which names another part of the same document.

Spec: JSON Schema 2020-12, 8.2.3.1 and 9.2; RFC 6901, 6 (a JSON Pointer as the fragment of a URI).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_local(reference: object) -> bool:
    """Return whether a value of `$ref` is a path within the document: no anchor, and no other document."""
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))


def target_of(reference: object, root: Any) -> Any:
    """Return the part of the document `root` that a reference names.

    None if it is not a path within the document, or if there is nothing at its end. Chains of references are not
    followed.
    """
    if not isinstance(reference, str) or not is_local(reference):
        return None

    found = root
    for step in reference.split("/")[1:]:
        key = _unescaped(step)
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _unescaped(step: str) -> str:
    if "%" in step:
        from urllib.parse import unquote  # noqa: PLC0415  # few references need it, and no start does

        step = unquote(step)
    return step.replace("~1", "/").replace("~0", "~")
