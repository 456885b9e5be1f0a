"""What the schema of a tool has to be like, so that clients that were never written for us can read it.

Each rule is there because some client failed without it. `broken` judges a schema alone;
whether validators and converters of others take it, `test_schema_validators` and `test_schema_converters` ask them.
Written without the code that it judges: nothing of it is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

__all__ = ["Direction", "Part", "broken", "parts"]

Direction = Literal["input", "output"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The keywords of draft-07 that are good for generated schemas, `$defs` for `definitions`, and those of an author's own.
_KEYWORDS = _words(
    """$defs $ref additionalProperties allOf anyOf contentEncoding contentMediaType contentSchema default deprecated
    description enum examples exclusiveMaximum exclusiveMinimum format items maximum maxItems maxLength maxProperties
    minimum minItems minLength minProperties multipleOf not oneOf pattern properties propertyNames readOnly required
    title type writeOnly"""
)
_ONE = ("items", "additionalProperties", "propertyNames", "not", "contentSchema")
_MANY = ("anyOf", "oneOf", "allOf")
_NAMED = ("properties", "$defs")
_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip
# Formats of draft-07, and two that came soon after and that its validators know, too.
_FORMATS = _words(
    """date date-time time duration email hostname ipv4 ipv6 json-pointer regex relative-json-pointer uri
    uri-reference uri-template uuid"""
)
# The formats that hold for all that a Python type can be. date-time and time do where an offset is asked for.
_HELD = frozenset(("date", "ipv4", "uuid", "date-time", "time"))
# What a schema may grow to when everything stands where it is used.
_LARGE = 2000


class Part(NamedTuple):
    """One schema inside another, and the way there."""

    path: str
    schema: Any
    under: str
    """The keyword it stands under; "" for the whole."""


def parts(schema: Any, path: str = "", under: str = "") -> Iterator[Part]:
    """A schema and all schemas in it, whatever stands where one should."""
    yield Part(path or "/", schema, under)
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        here = f"{path}/{keyword}"
        if keyword in _ONE and not (keyword == "additionalProperties" and isinstance(value, bool)):
            yield from parts(value, here, keyword)
        elif keyword in _MANY and isinstance(value, list):
            for index, child in enumerate(value):
                yield from parts(child, f"{here}/{index}", keyword)
        elif keyword in _NAMED and isinstance(value, dict):
            for name, child in value.items():
                yield from parts(child, f"{here}/{name}", keyword)


def broken(schema: Any, direction: Direction) -> list[str]:
    """The rules that a tool's schema breaks, a line each; [] if it is fine."""
    found = list(_broken_at_root(schema, direction))
    for part in parts(schema):
        if not isinstance(part.schema, dict):
            found.append(f"{part.path}: {part.schema!r} where a schema is expected")
            continue
        checks = (_keywords, _values, _objects, _arrays, _texts, _choices)
        found += [f"{part.path}: {line}" for check in checks for line in check(part, direction)]
    return found + list(_references(schema))


def _broken_at_root(schema: Any, direction: Direction) -> Iterator[str]:
    if direction == "input":
        if schema.get("type") != "object":
            yield "/: the input is no object"
        if not isinstance(schema.get("properties"), dict):
            yield "/: no properties; vendors refuse a request with such a tool"
    if "$ref" in schema:
        yield "/: a reference at the root, where clients look for the type"


def _keywords(part: Part, direction: Direction) -> Iterator[str]:
    strange = [keyword for keyword in part.schema if keyword not in _KEYWORDS and not keyword.startswith("x-")]
    if strange:
        yield f"keywords of no standard, or of later drafts alone: {', '.join(strange)}"
    if "type" in part.schema and not isinstance(part.schema["type"], str):
        yield f"type is {part.schema['type']!r}, not one name"
    if "$defs" in part.schema and part.path != "/":
        yield "$defs below the root"


def _values(part: Part, direction: Direction) -> Iterator[str]:
    values = part.schema.get("enum")
    if values is None:
        return
    kind = part.schema.get("type")
    if kind not in _TYPES:
        yield "an enum without a type"
    elif not all(isinstance(value, _TYPES[kind]) for value in values):
        yield f"an enum of type {kind} with other values: {values}"
    elif kind != "boolean" and any(isinstance(value, bool) for value in values):
        yield f"an enum of type {kind} with booleans: {values}"
    if not values or len({(type(value), repr(value)) for value in values}) != len(values):
        yield f"an enum that is empty or repeats itself: {values}"


def _objects(part: Part, direction: Direction) -> Iterator[str]:
    schema = part.schema
    if schema.get("type") != "object":
        if "properties" in schema:
            yield "properties without type object"
        return
    is_map = schema.get("additionalProperties", False) is not False
    if "properties" not in schema and not is_map:
        yield "an object that is neither a record with properties nor a map with additionalProperties"
    if part.path != "/" and is_map and schema.get("properties") == {}:
        yield "a map with empty properties: some clients make a record without members of it"
    missing = [name for name in schema.get("required", ()) if name not in schema.get("properties", ())]
    if missing:
        yield f"required, and not among the properties: {missing}"
    if schema.get("required") == []:
        yield "an empty list of what is required"


def _arrays(part: Part, direction: Direction) -> Iterator[str]:
    schema = part.schema
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield "an array whose items are no schema"
    if schema.get("minItems", 0) > schema.get("maxItems", float("inf")):
        yield "more items at least than at most"


def _texts(part: Part, direction: Direction) -> Iterator[str]:
    kind = part.schema.get("format")
    if kind is None:
        return
    if kind not in (_FORMATS if direction == "input" else _HELD):
        yield f"the format {kind!r} in an {direction} schema"
    if part.schema.get("type") != "string":
        yield f"the format {kind!r} without type string"


def _choices(part: Part, direction: Direction) -> Iterator[str]:
    branches = part.schema.get("anyOf")
    if branches is None:
        return
    if len(branches) < 2:
        yield "a choice of one"
    if any(isinstance(branch, dict) and "anyOf" in branch for branch in branches):
        yield "a choice among choices"
    if any(branches.index(branch) != index for index, branch in enumerate(branches)):
        yield "a choice that offers one thing twice"


def _references(schema: Any) -> Iterator[str]:
    """References lead to what contains itself, and to nothing that stands further on."""
    definitions = schema.get("$defs", {})
    uses = {name: _used(node) for name, node in definitions.items()}
    found = _used({key: value for key, value in schema.items() if key != "$defs"}).union(*uses.values())
    if strange := sorted(name for name in found if name not in definitions):
        yield f"references to what is not there: {strange}"
        return
    is_large = _expanded(schema, definitions, {}) > _LARGE
    for name in definitions:
        if not re.fullmatch(r"\w+", name, re.ASCII):
            yield f"$defs/{name}: some clients take letters, digits and underscores only"
        if name not in found:
            yield f"$defs/{name}: nothing refers to it"
        if name not in _reachable(name, uses) and not is_large:
            yield f"$defs/{name}: it does not contain itself, and could stand where it is used"
    seen: set[str] = set()
    for name, used in uses.items():
        seen.add(name)
        ahead = {other for other in used - seen if name not in _reachable(other, uses)}
        if ahead:
            yield f"$defs/{name}: refers to what stands further on: {sorted(ahead)}"


def _used(node: Any) -> set[str]:
    references = [part.schema.get("$ref") for part in parts(node) if isinstance(part.schema, dict)]
    return {reference.removeprefix("#/$defs/") for reference in references if reference is not None}


def _expanded(node: Any, definitions: dict[str, Any], sizes: dict[str, int]) -> int:
    """How many parts there are if each reference is followed, once on each way; `sizes` is what is known of names."""
    size = 0
    for part in parts(node):
        size += 1
        reference = part.schema.get("$ref") if isinstance(part.schema, dict) else None
        if reference is not None and part.under != "$defs":
            name = reference.removeprefix("#/$defs/")
            if name not in sizes:
                sizes[name] = 1  # on the way down it is itself again
                sizes[name] = _expanded(definitions[name], definitions, sizes)
            size += sizes[name]
    return size


def _reachable(name: str, uses: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(uses[name])
    while ahead:
        other = ahead.pop()
        if other not in found:
            found.add(other)
            ahead += uses[other]
    return found
