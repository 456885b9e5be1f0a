"""Python types from JSON Schemas, for the annotations of tool functions.

Literal for choices, TypedDict for objects, unions, and Any if no type describes the schema. References within the
schema are followed; a schema that refers to itself ends in a plain object.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from msgspec.json import encode

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    # pydantic does not accept the standard TypedDict before Python 3.12.
    from typing_extensions import TypedDict

from mcpd.protocol.references import target_of

_MOST_TYPES = 2000
_MOST_CHOICES = 500
_DEEPEST = 40

_PLAIN: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}


class SchemaTypes:
    """Converts one schema. `of(part, name)` is the type of a part; TypedDicts are named after `name`."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._made: dict[str, Any] = {}
        self._open: set[str] = set()
        self._names: set[str] = set()
        self._left = _MOST_TYPES

    def of(self, schema: Any, name: str, depth: int = 0) -> Any:
        """Return the type of a schema. Never raises: an invalid schema is Any."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0 or depth > _DEEPEST:
            return Any
        if isinstance(reference := schema.get("$ref"), str):
            return self._referred(reference, name, depth)
        if (choices := _choices(schema)) is not None:
            return choices

        for key in ("anyOf", "oneOf"):
            if isinstance(members := schema.get(key), list) and members:
                return _union([self.of(member, name, depth + 1) for member in members])
        if isinstance(members := schema.get("allOf"), list) and members:
            schema = self._merged(schema, members)
            if schema is None:
                return Any

        kind = schema.get("type")
        if isinstance(kind, list):
            return _union([self._plain(one, schema, name, depth) for one in kind]) if kind else Any
        return self._plain(kind, schema, name, depth)

    def _plain(self, kind: Any, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        if isinstance(kind, str) and kind in _PLAIN:
            return _PLAIN[kind]
        if kind == "array" or (kind is None and "items" in schema):
            return list[self.of(schema.get("items"), f"{name}_item", depth + 1)]  # type: ignore[misc]
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, name, depth)
        return Any

    def _object(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(properties, Mapping) or not properties:
            value = self.of(others, f"{name}_value", depth + 1) if isinstance(others, Mapping) else Any
            return dict[str, value]  # type: ignore[valid-type]
        if isinstance(others, Mapping) and others:
            return dict[str, Any]  # no type describes these members and any others of one type

        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        fields: dict[str, Any] = {}
        for key, part in properties.items():
            kind = self.of(part, f"{name}_{key}", depth + 1)
            fields[str(key)] = kind if key in needed else NotRequired[kind]
        title = schema.get("title")
        make: Any = TypedDict  # type checkers only accept literal names
        made = make(self._class_name(title if isinstance(title, str) else name), fields)
        if isinstance(text := schema.get("description"), str):
            made.__doc__ = text
        return made

    def _class_name(self, name: str) -> str:
        words = re.split(r"\W+|_", name)
        wanted = base = "".join(word[:1].upper() + word[1:] for word in words if word)[:80] or "Object"
        if base[0].isdigit():
            wanted = base = f"Object{base}"
        number = 1
        while wanted in self._names:
            number += 1
            wanted = f"{base}{number}"
        self._names.add(wanted)
        return wanted

    def _referred(self, reference: str, name: str, depth: int) -> Any:
        """Return the type of a reference. A reference to a schema that contains it is a plain object."""
        if reference in self._open:
            found = target_of(reference, self._root)
            is_object = isinstance(found, Mapping) and (found.get("type") == "object" or "properties" in found)
            return dict[str, Any] if is_object else Any
        if reference in self._made:
            return self._made[reference]

        found = target_of(reference, self._root)
        self._open.add(reference)
        try:
            kind = self.of(found, reference.rpartition("/")[2] or name, depth + 1)
        finally:
            self._open.discard(reference)
        self._made[reference] = kind
        return kind

    def _merged(self, schema: Mapping[str, Any], members: list[Any]) -> dict[str, Any] | None:
        """Merge the schemas of `allOf` if they are simple enough: objects, or one schema with annotations beside it."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for member in members[:_MOST_CHOICES]:
            steps = 0
            while isinstance(member, Mapping) and isinstance(member.get("$ref"), str) and steps < _DEEPEST:
                member, steps = target_of(member["$ref"], self._root), steps + 1
            if not isinstance(member, Mapping) or "allOf" in member:
                return None
            for key, value in member.items():
                if key == "properties" and isinstance(value, Mapping):
                    merged[key] = {**merged.get(key, {}), **value}
                elif key == "required" and isinstance(value, list):
                    merged[key] = [*merged.get(key, []), *value]
                else:
                    merged.setdefault(key, value)
        return merged


def allows_null(kind: Any) -> bool:
    """Whether None is a value of a type that was made from a schema."""
    if kind is None or kind is type(None):
        return True
    members = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return None in members
    return type(None) in members and typing.get_origin(kind) not in (dict, list)


def _choices(schema: Mapping[str, Any]) -> Any:
    """Return the Literal of a schema that lists its values; None if there is no such Literal."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not 0 < len(values) <= _MOST_CHOICES:
        return None
    if not all(value is None or isinstance(value, (str, bool, int)) for value in values):
        return None
    distinct = {encode(value): value for value in values}
    return Literal[tuple(distinct.values())]


def _union(kinds: list[Any]) -> Any:
    return Any if Any in kinds else typing.Union[tuple(kinds)]  # noqa: UP007 - of a variable number
