"""JSON Schema that everybody reads: draft-07 validators, model vendors, and the frameworks between them.

One pass over every schema that was generated, msgspec's and pydantic's alike; one that an author gave as JSON is his.
It changes how things are said, hardly what: an enum has a type, an array `items`, a record `properties`; a tuple says
its length; nothing is a boolean schema but `additionalProperties`; no keyword or format that no standard has; types
stand where they are used (`inlining`). A schema admits at least what the function takes and gives: values are
checked by its types, never by this. What each rule is for is in docs/schemas.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from mcpd.registry.datetimes import DATETIME_FORMATS
from mcpd.registry.inlining import inlined, mapped
from mcpd.registry.patterns import portable

Direction = Literal["input", "output"]

AWARE_DATE_TIME: Final = "aware date-time"
AWARE_TIME: Final = "aware time"
"""Formats, in schemas that are not plain yet, of what always has an offset from UTC, as RFC 3339 has it."""

# Those that JSON Schema defines and draft-07 validators know. What we take may well be more.
_INPUT_FORMATS: Final = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "json-pointer", "regex",
     "relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid")
)  # fmt: skip
# Those that hold for whatever Python writes: a datetime may have no offset, a timedelta fractions, a URL a `|`.
_OUTPUT_FORMATS: Final = frozenset(("date", "ipv4", "uuid"))

_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (type(None), "null"),
    (list, "array"),
    (dict, "object"),
)
_SAID: Final = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
_WORDS: Final = ("title", "description", "examples", "deprecated")
_NULL: Final = {"type": "null"}


def plain(schema: Mapping[str, Any], direction: Direction) -> dict[str, Any]:
    """A generated schema, with its `$defs`, as it is shown to clients; what it is made of is not changed."""
    root = dict(schema)
    definitions = root.pop("$defs", {})
    whole = inlined(
        _rewritten(root, direction), {name: _rewritten(node, direction) for name, node in definitions.items()}
    )
    merged: dict[str, Any] = _merged(whole)
    return merged


def _rewritten(node: Any, direction: Direction) -> dict[str, Any]:
    """A schema with all rules kept but those that need to know what references lead to."""
    if not isinstance(node, dict):
        return {"not": {}} if node is False else {}
    node = _with_words_outside(_without_specials(node))
    found = mapped(node, lambda child: _rewritten(child, direction))

    _name_values(found)
    _say_text(found, direction)
    if found.get("type") == "array":
        _say_items(found)
    elif found.get("type") == "object":
        _say_members(found)

    multiple = found.get("multipleOf")
    if direction == "output" and isinstance(multiple, float) and not multiple.is_integer():
        del found["multipleOf"]  # validators calculate otherwise: 0.3 is no multiple of 0.1
    return found


def _without_specials(node: dict[str, Any]) -> dict[str, Any]:
    """A schema without the keywords of other standards, `const` and the like that say what others say, too."""
    node = dict(node)
    if "discriminator" in node:
        del node["discriminator"]
        if "oneOf" in node and "anyOf" not in node:
            node["anyOf"] = node.pop("oneOf")

    if "const" in node:
        node.setdefault("enum", [node["const"]])
        del node["const"]

    if isinstance(node.get("allOf"), list) and len(node["allOf"]) == 1 and isinstance(node["allOf"][0], dict):
        (part,) = node["allOf"]
        if part.keys().isdisjoint(node.keys() - set(_SAID)):
            del node["allOf"]
            node = {**part, **node}

    if node.get("items") is False:
        del node["items"]
        node.setdefault("maxItems", len(node.get("prefixItems", ())))
    return node


def _with_words_outside(node: dict[str, Any]) -> dict[str, Any]:
    """What an author said of the only branch beside null is said of the whole: clients look for it nowhere else."""
    branches = node.get("anyOf")
    if not isinstance(branches, list) or len(branches) != 2 or _NULL not in branches:
        return node
    at = 1 - branches.index(_NULL)
    if not isinstance(branches[at], dict):
        return node
    words = {key: value for key, value in branches[at].items() if key in _WORDS and node.get(key, value) == value}
    if not words:
        return node
    rest = {key: value for key, value in branches[at].items() if key not in words}
    return {**words, **node, "anyOf": [rest, _NULL] if at == 0 else [_NULL, rest]}


def _name_values(node: dict[str, Any]) -> None:
    """The type of each value of an enum; of several types each has its own branch, as no type is a list."""
    values = node.get("enum")
    if not isinstance(values, list) or isinstance(node.get("type"), str):
        return

    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(_type_of(value), []).append(value)
    branches = [_NULL if name == "null" else {"type": name, "enum": group} for name, group in groups.items()]

    if len(branches) == 1:
        del node["enum"]
        node.update(branches[0])
    elif branches and "anyOf" not in node:
        node.pop("type", None)
        del node["enum"]
        node["anyOf"] = branches


def _type_of(value: Any) -> str:
    return next(name for kind, name in _TYPES if isinstance(value, kind))


def _say_text(node: dict[str, Any], direction: Direction) -> None:
    """Formats and patterns that validators know and, of what we write, find kept."""
    if isinstance(node.get("pattern"), str):
        # pydantic's pattern of a Decimal knows no exponent, which a Decimal may be written with.
        is_number = direction == "output" and node["pattern"].startswith("^(?!^[-+.]*$)")
        pattern = None if is_number else portable(node["pattern"])
        if pattern is None:
            del node["pattern"]
        else:
            node["pattern"] = pattern

    if "format" not in node:
        return
    kind = node.pop("format")
    if not isinstance(kind, str) or node.get("type", "string") != "string":
        return

    if kind == "decimal":
        if direction == "input":
            del node["type"]
            node["anyOf"] = [{"type": "number"}, {"type": "string"}]
    elif kind in (AWARE_DATE_TIME, AWARE_TIME):
        node["format"] = kind.removeprefix("aware ")
    else:
        kind = DATETIME_FORMATS.get(kind, kind)
        kind = "uuid" if kind[:4] == "uuid" and kind[4:].isdigit() else kind
        if kind in (_INPUT_FORMATS if direction == "input" else _OUTPUT_FORMATS):
            node["format"] = kind


def _say_items(node: dict[str, Any]) -> None:
    """`items` of an array as one schema. In draft-07, `prefixItems` says nothing and `items` is of all of them."""
    node.pop("uniqueItems", None)  # a set takes one value twice; vendors refuse the keyword
    prefix = node.pop("prefixItems", None)
    if not isinstance(prefix, list):
        node.setdefault("items", {})
        return

    # A position has no name and no default, only a record's member has.
    kinds = [{key: value for key, value in item.items() if key not in ("default", "title")} for item in prefix]
    distinct = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
    is_mixed = len(distinct) > 1
    if node.get("maxItems", len(kinds) + 1) > len(kinds) and (rest := node.get("items", {})) not in distinct:
        distinct.append(rest)

    if {} in distinct or not distinct:
        node["items"] = {}
    else:
        node["items"] = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}

    if is_mixed or any("title" in item for item in prefix):
        order = "Items in this order: " + ", ".join(map(_called, prefix))
        said = node.get("description")
        node["description"] = f"{said}\n\n{order}" if said else order


def _called(item: Mapping[str, Any]) -> str:
    """A position of a tuple in a word: its name, else its type."""
    name = item.get("title") or item.get("$ref", "").rpartition("/")[2] or item.get("type")
    branches = item.get("anyOf")
    return " or ".join(map(_called, branches)) if not name and isinstance(branches, list) else str(name or "anything")


def _say_members(node: dict[str, Any]) -> None:
    """`properties` of a record, and what a map's values are. A map has no `properties`: some clients read a record
    without members there, and lose all that is in it."""
    if node.get("required") == []:
        del node["required"]

    patterns = node.get("patternProperties")
    if isinstance(patterns, dict) and len(patterns) == 1 and "properties" not in node:
        ((pattern, value),) = patterns.items()
        if node.get("additionalProperties", False) is False:
            del node["patternProperties"]
            node["additionalProperties"] = value
            if written := portable(pattern):
                node.setdefault("propertyNames", {"pattern": written})

    if isinstance(node.get("propertyNames"), dict) and node["propertyNames"].keys().isdisjoint(("type", "$ref")):
        node["propertyNames"] = {"type": "string", **node["propertyNames"]}

    if "properties" in node:
        return
    if node.get("additionalProperties") is False:
        node["properties"] = {}
    elif node.get("additionalProperties", {}) == {}:
        node["additionalProperties"] = True


def _merged(node: Any) -> Any:
    """A schema, all in its place, without a choice among choices, and without a choice of one."""
    if not isinstance(node, dict):
        return node
    found = mapped(node, _merged)
    return _with_flat_choice(found) if isinstance(found.get("anyOf"), list) else found


def _with_flat_choice(node: dict[str, Any]) -> dict[str, Any]:
    branches: list[Any] = []
    said: dict[str, Any] = {}
    for branch in node["anyOf"]:
        inner = [branch]
        if isinstance(branch, dict) and "anyOf" in branch and branch.keys() <= {"anyOf", *_SAID}:
            inner = branch["anyOf"]
            said |= {key: branch[key] for key in ("title", "description") if key in branch}
        branches += [one for one in inner if one not in branches]
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    if len(branches) == 1 and isinstance(branches[0], dict) and branches[0].keys().isdisjoint(rest.keys() - set(_SAID)):
        return {**said, **branches[0], **rest}
    return {**said, **{key: branches if key == "anyOf" else value for key, value in node.items()}}
