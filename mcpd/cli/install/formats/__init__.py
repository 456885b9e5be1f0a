"""Edits configuration files in place: everything but the edited member stays as it is, byte for byte.

Each format is a module with the functions `parse`, `put` and `drop` over the text of a file. `keys` lead to a member
from the top; with `in_list` the second key is the `name` of an object in a list. A scanner (`jsonc`, `toml`) or a
library (`yaml`) finds the positions, and the text itself is changed. The result is parsed again: unless everything
else in it is the same as before, the change is refused (D18).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from mcpd.errors import ConfigurationError

__all__ = ["drop", "format_named", "put"]


def with_change(document: dict[str, Any], keys: Sequence[str], value: Any, *, in_list: bool = False) -> dict[str, Any]:
    """Return a copy with `value` at `keys`, or without that member if it is None. New members are last."""
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
    return {**document, key: with_change(inner or {}, rest, value)}


def _in_list(items: list[Any], keys: Sequence[str], value: Any) -> list[Any]:
    name, *rest = keys
    made: list[Any] = []
    is_there = False
    for item in items:
        if isinstance(item, dict) and item.get("name") == name and not is_there:
            is_there = True
            item = with_change(item, rest, value) if rest else value
            if item is None:
                continue
        made.append(item)
    if not is_there and value is not None:
        made.append(value)
    return made


def line_end(text: str) -> str:
    """Return the line end of the first line of a text."""
    return "\r\n" if text[: text.find("\n") + 1].endswith("\r\n") else "\n"


def position(text: str, at: int) -> str:
    """Return `line 3, column 7` for an index."""
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


def format_named(name: str) -> ModuleType:
    """Return the module of the format `json`, `jsonc`, `toml` or `yaml`."""
    module = "jsonc" if name == "json" else name
    return import_module(f".{module}", __name__)


def put(format: ModuleType, text: str, keys: Sequence[str], value: Any, path: str, *, in_list: bool = False) -> str:
    """Call `format.put`, and check the result. Raises ConfigurationError if anything else in the text has changed."""
    before = format.parse(text, path)
    wanted = with_change(before, keys, value, in_list=in_list)
    if _same(before, wanted):
        return text
    return _checked(format, format.put(text, keys, value, in_list=in_list), [wanted], path)


def drop(format: ModuleType, text: str, keys: Sequence[str], path: str) -> str:
    """Call `format.drop`, and check the result. Raises ConfigurationError if anything else in the text has changed."""
    before = format.parse(text, path)
    wanted = [with_change(before, keys, None)]
    if not wanted[0].get(keys[0], True):
        wanted.append(with_change(before, keys[:1], None))  # a TOML table without any header left does not exist
    return _checked(format, format.drop(text, keys), wanted, path)


def _checked(format: ModuleType, made: str, wanted: Sequence[dict[str, Any]], path: str) -> str:
    try:
        found = format.parse(made, path)
    except ConfigurationError:
        found = None
    if found is None or not any(_same(found, each) for each in wanted):
        raise ConfigurationError(
            f"{path} cannot be edited safely as it is written, and was not changed; change it by hand "
            "(--print shows the entry)"
        )
    return made


def _same(a: Any, b: Any) -> bool:
    # Whether two values are equal, including their types. Order does not matter.
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    # NaN, which TOML and YAML can hold, is not equal to itself.
    return type(a) is type(b) and bool(a == b or (a != a and b != b))
