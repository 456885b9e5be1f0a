"""Reads the JSON Schemas of arguments and forms: types, choices and limits, also as short texts.

Schemas come from servers. They may contain values of the wrong type and endless references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.json import decode, encode

from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.references import is_local, target_of

_MOST_CHOICES = 5
_DEEPEST = 8
_FORMATS = {
    "email": "an e-mail address",
    "uri": "a URL",
    "date": "such as 2026-01-31",
    "date-time": "such as 2026-01-31T12:00:00Z",
}


class Choice(NamedTuple):
    """One of the allowed values, with its title."""

    value: Any
    title: str


class Schema:
    """A schema, and the document in which its references are looked up."""

    def __init__(self, node: Any, root: Mapping[str, Any]) -> None:
        self.root = root
        self.node: Mapping[str, Any] = _resolved(node, root)

    @property
    def properties(self) -> dict[str, Schema]:
        """The schemas of an object's named members."""
        found: dict[str, Schema] = {}
        for node in self._all_of():
            members = node.get("properties")
            if isinstance(members, dict):
                found |= {name: Schema(member, self.root) for name, member in members.items()}
        return found

    @property
    def required(self) -> list[str]:
        """The names of an object's required members."""
        found: dict[str, None] = {}
        for node in self._all_of():
            names = node.get("required")
            if isinstance(names, list):
                found |= {name: None for name in names if isinstance(name, str)}
        return list(found)

    @property
    def is_closed(self) -> bool:
        """Whether an object must not have other members."""
        return any(node.get("additionalProperties") is False for node in self._all_of())

    @property
    def items(self) -> Schema:
        """The schema of an array's items."""
        return Schema(self.node.get("items"), self.root)

    @property
    def default(self) -> Any:
        """The default; None without a default."""
        return self.node.get("default")

    @property
    def description(self) -> str:
        """The first line of the description, otherwise the title."""
        for name in ("description", "title"):
            text = self.node.get(name)
            if isinstance(text, str) and text.strip():
                return text.strip().splitlines()[0]
        return ""

    @property
    def types(self) -> list[str]:
        """The JSON types that the schema names; [] for any type."""
        found: dict[str, None] = {}
        for schema in self.alternatives():
            said = schema.node.get("type")
            names = said if isinstance(said, list) else [said]
            found |= {name: None for name in names if isinstance(name, str)}
            if said is None and isinstance(schema.node.get("properties"), dict):
                found["object"] = None
        return list(found)

    @property
    def choices(self) -> list[Choice]:
        """The allowed values if the schema lists them; otherwise []."""
        found: list[Choice] = []
        for schema in self.alternatives():
            node = schema.node
            values = node.get("enum")
            if "const" in node:
                title = node.get("title")
                found.append(Choice(node["const"], title if isinstance(title, str) else plain(node["const"])))
            elif isinstance(values, list):
                names = node.get("enumNames")
                titles = names if isinstance(names, list) and len(names) == len(values) else map(plain, values)
                found += [Choice(value, str(title)) for value, title in zip(values, titles, strict=True)]
            elif node.get("type") == "boolean":
                return []
            elif node.get("type") != "null":
                return []  # one alternative allows any value
        return found

    def alternatives(self, depth: int = 0) -> Iterator[Schema]:
        """The schemas in `anyOf` or `oneOf`; otherwise the schema itself."""
        for name in ("anyOf", "oneOf"):
            nodes = self.node.get(name)
            if isinstance(nodes, list) and nodes and depth < _DEEPEST:
                for node in nodes:
                    yield from Schema(node, self.root).alternatives(depth + 1)
                return
        yield self

    def _all_of(self) -> Iterator[Mapping[str, Any]]:
        yield self.node
        nodes = self.node.get("allOf")
        for node in nodes if isinstance(nodes, list) else ():
            yield _resolved(node, self.root)


def read_schema(raw: Any) -> Schema:
    """Read a schema from raw JSON or an object; anything else allows any value."""
    if isinstance(raw, Raw):
        try:
            raw = decode(raw)
        except MALFORMED:
            raw = {}
    root = raw if isinstance(raw, dict) else {}
    return Schema(root, root)


def _resolved(node: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a local `$ref` refers to, otherwise the node itself."""
    for _ in range(_DEEPEST):
        if not isinstance(node, dict):
            return {}
        reference = node.get("$ref")
        if not is_local(reference):
            return node
        found = target_of(reference, root)
        beside = {name: value for name, value in node.items() if name != "$ref"}
        node = {**found, **beside} if isinstance(found, dict) else beside
    return node if isinstance(node, dict) else {}


def type_text(schema: Schema, depth: int = 0) -> str:
    """The type as a short text: `integer`, `spring|autumn`, `string[]`, `string|null`."""
    choices = schema.choices
    if choices:
        shown = [plain(choice.value) for choice in choices[:_MOST_CHOICES]]
        return "|".join([*shown, "…"] if len(choices) > _MOST_CHOICES else shown)
    said: dict[str, None] = {}
    for each in schema.alternatives():
        for name in Schema(each.node, each.root).types:
            said[_array_text(each, depth) if name == "array" else name] = None
    return "|".join(said) or "any"


def _array_text(schema: Schema, depth: int) -> str:
    if depth == _DEEPEST:
        return "array"
    item = type_text(schema.items, depth + 1)
    return f"({item})[]" if "|" in item else f"{item}[]"


def limits_text(schema: Schema) -> str:
    """The other limits of a value, such as `1 to 12` or `an e-mail address`; "" without limits."""
    node, said = schema.node, []
    low, high = (node.get(name) for name in ("minimum", "maximum"))
    if _is_number(low) and _is_number(high):
        said.append(f"{low} to {high}")
    elif _is_number(low):
        said.append(f"{low} or more")
    elif _is_number(high):
        said.append(f"{high} or less")
    for name, words in (("minLength", "at least {} characters"), ("maxLength", "at most {} characters")):
        if _is_number(node.get(name)):
            said.append(words.format(node[name]))
    form = node.get("format")
    if isinstance(form, str):
        said.append(_FORMATS.get(form, f"in the format {form}"))
    return ", ".join(said)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(value: Any) -> str:
    """A text as it is, any other value as JSON."""
    return value if isinstance(value, str) else encode(value).decode()
