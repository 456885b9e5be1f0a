"""What a change makes of a document: the same for all formats, on plain objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def changed(document: dict[str, Any], keys: Sequence[str], value: Any, *, in_list: bool = False) -> dict[str, Any]:
    """A copy of the document with `value` at `keys`, or without that member if it is None. New members are last."""
    key, *rest = keys
    if not rest:
        made = dict(document)
        if value is None:
            made.pop(key, None)
        else:
            made[key] = value
        return made

    inner = document.get(key)
    if isinstance(inner, list) or (inner is None and in_list):
        return {**document, key: _in_list(inner or [], rest, value)}
    if inner is None and value is None:
        return dict(document)
    return {**document, key: changed(inner or {}, rest, value)}


def _in_list(items: list[Any], keys: Sequence[str], value: Any) -> list[Any]:
    name, *rest = keys
    made: list[Any] = []
    is_there = False
    for item in items:
        if isinstance(item, dict) and item.get("name") == name and not is_there:
            is_there = True
            item = changed(item, rest, value) if rest else value
            if item is None:
                continue
        made.append(item)
    if not is_there and value is not None:
        made.append(value)
    return made


def line_end(text: str) -> str:
    """How lines end in a text, by its first line."""
    return "\r\n" if text[: text.find("\n") + 1].endswith("\r\n") else "\n"


def position(text: str, at: int) -> str:
    """`line 3, column 7` for an index."""
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
