"""JSON Schemas as data: the subschemas of one, and references such as `#/$defs/Bed` to another part of the document.

Spec: JSON Schema 2020-12, 8.2.3.1 and 9.2; RFC 6901, 6 (a JSON Pointer as the fragment of a URI).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]


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

    node = root
    for step in reference.split("/")[1:]:
        key = _unescaped(step)
        if isinstance(node, Mapping):
            node = node.get(key)
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _unescaped(step: str) -> str:
    if "%" in step:
        from urllib.parse import unquote  # noqa: PLC0415  # few references need it, and no start does

        step = unquote(step)
    return step.replace("~1", "/").replace("~0", "~")


# Keywords whose value is a schema, a list of schemas, or schemas by name. The values of all other keywords are data.
_ONE: Final = frozenset(
    ("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
     "unevaluatedItems", "unevaluatedProperties")
)  # fmt: skip
_MANY: Final = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
# Boolean schemas are common here, and all clients read them.
_FLAGS: Final = frozenset(("additionalProperties", "unevaluatedItems", "unevaluatedProperties"))


def mapped(node: Mapping[str, Any], change: Callable[[Any], Any]) -> Schema:
    """Return a schema with each direct subschema changed."""
    changed: Schema = {}
    for keyword, value in node.items():
        if keyword in _NAMED and isinstance(value, dict):
            changed[keyword] = {name: change(child) for name, child in value.items()}
        elif keyword in _MANY and isinstance(value, list):
            changed[keyword] = [change(child) for child in value]
        elif keyword in _ONE and (isinstance(value, dict) or (isinstance(value, bool) and keyword not in _FLAGS)):
            changed[keyword] = change(value)
        else:
            changed[keyword] = value
    return changed


def children(node: Mapping[str, Any]) -> Iterator[tuple[str, str, Schema]]:
    """Yield each direct subschema that is an object, with its keyword, and its name under that keyword or ""."""
    for keyword, value in node.items():
        members: Mapping[str, Any] = value if keyword in _NAMED and isinstance(value, dict) else {}
        for name, child in members.items():
            if isinstance(child, dict):
                yield keyword, name, child
        parts = value if keyword in _MANY and isinstance(value, list) else [value] if keyword in _ONE else []
        for child in parts:
            if isinstance(child, dict):
                yield keyword, "", child


def subschemas(node: Mapping[str, Any]) -> list[Schema]:
    return [child for _, _, child in children(node)]
