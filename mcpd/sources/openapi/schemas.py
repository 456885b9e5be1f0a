"""Converts schemas of OpenAPI documents to JSON Schema that all clients read.

OpenAPI 3.0 has a dialect of its own: `nullable`, `exclusiveMinimum: true`, no keywords beside `$ref`. The result goes
through `plain`, like the schemas of functions. Its size is limited, whatever references repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpd.errors import RegistrationError
from mcpd.protocol.printable import printable
from mcpd.protocol.schemas import Schema, mapped
from mcpd.server.functions.json_schema import JsonSchema
from mcpd.server.functions.plain_schema import Direction, plain
from .document import Document, Resolver, Unusable, look_up

_MOST_PARTS: Final = 20_000
_DEEPEST: Final = 60
_KEPT: Final = frozenset(
    ("additionalProperties", "allOf", "anyOf", "const", "contains", "contentEncoding", "contentMediaType", "default",
     "dependentRequired", "dependentSchemas", "deprecated", "description", "else", "enum", "examples",
     "exclusiveMaximum", "exclusiveMinimum", "format", "if", "items", "maxItems", "maxLength", "maxProperties",
     "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern",
     "patternProperties", "prefixItems", "properties", "propertyNames", "required", "then", "title", "type",
     "uniqueItems")
)  # fmt: skip
_WORDS: Final = ("title", "description", "default")
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_NULL: Final = {"type": "null"}


class SchemaWriter:
    """Converts the schemas of one tool's arguments ("input") or of its result ("output")."""

    def __init__(self, direction: Direction, document: Document) -> None:
        self._direction: Direction = direction
        self._document = document
        self._is_old = document.is_old
        self._definitions: dict[str, Schema] = {}
        # The names of definitions by the identity of their content, which the document keeps alive.
        self._names: dict[int, str] = {}
        self._left = _MOST_PARTS

    def finish(self, schema: Schema) -> tuple[Schema, JsonSchema]:
        """Return a schema of converted parts, with its definitions, and the check for it. Raises Unusable."""
        try:
            whole = plain({**schema, "$defs": self._definitions}, self._direction)
            # A pattern of an untrusted document may take forever; the API checks it.
            return whole, JsonSchema(_without_patterns(whole), "its schema")
        except (RegistrationError, RecursionError, TypeError, AttributeError, ValueError) as error:
            raise Unusable(f"its schema is not valid: {printable(error, 300)}") from None

    def convert(self, node: Any, resolver: Resolver, depth: int = 0) -> Schema:
        """Return one schema of the document. Raises Unusable."""
        if isinstance(node, bool):
            return {} if node else {"not": {}}
        self._left -= 1
        self._document.parts_left -= 1
        if not isinstance(node, dict) or min(self._left, self._document.parts_left) < 0 or depth > _DEEPEST:
            raise Unusable("its schema is too large, nested too deep, or not an object")
        kept = {str(key): value for key, value in node.items() if key in _KEPT}
        reference = node.get("$ref", node.get("$dynamicRef"))
        if not isinstance(reference, str):
            return self._members(kept, resolver, depth, is_nullable=self._is_old and node.get("nullable") is True)
        if self._is_old:
            kept = {key: value for key, value in kept.items() if key in _WORDS}
        beside = self._members(kept, resolver, depth)
        return {**beside, "$ref": f"#/$defs/{self._named(reference, resolver, depth)}"}

    def _named(self, reference: str, resolver: Resolver, depth: int) -> str:
        content, there = look_up(reference, resolver)
        name = self._names.get(id(content))
        if name is None:
            base = name = reference.rpartition("/")[2] or "Type"
            while name in self._definitions:
                name = f"{base}_{len(self._definitions)}"
            self._names[id(content)] = name
            self._definitions[name] = {}  # for references from inside
            self._definitions[name] = self.convert(content, there, depth + 1)
        return name

    def _members(self, kept: Schema, resolver: Resolver, depth: int, *, is_nullable: bool = False) -> Schema:
        for exclusive, bound in _BOUNDS:
            if isinstance(kept.get(exclusive), bool) and kept.pop(exclusive) and bound in kept:
                kept[exclusive] = kept.pop(bound)
        kinds = kept.get("type")
        if isinstance(kinds, list) and len(kinds) == 2 and "null" in kinds:
            kept["type"], is_nullable = next((kind for kind in kinds if kind != "null"), "null"), True
        if self._direction == "output" and kept.get("additionalProperties") is False:
            del kept["additionalProperties"]  # an API may add members at any time
        properties, required = kept.get("properties"), kept.get("required")
        if isinstance(properties, dict):
            # Only servers send members that are `readOnly`, and only clients those that are `writeOnly`.
            mark = "readOnly" if self._direction == "input" else "writeOnly"
            hidden = {name for name, each in properties.items() if isinstance(each, dict) and each.get(mark) is True}
            kept["properties"] = {str(name): each for name, each in properties.items() if name not in hidden}
            kept["required"] = [name for name in required if name not in hidden] if isinstance(required, list) else []

        schema = mapped(kept, lambda child: self.convert(child, resolver, depth + 1))
        if not is_nullable:
            return schema
        if isinstance(schema.get("enum"), list):
            schema["enum"] = [value for value in schema["enum"] if value is not None]
        words: Schema = {key: schema.pop(key) for key in _WORDS if key in schema}
        return {**words, "anyOf": [schema, _NULL]}


def _without_patterns(node: Any) -> Any:
    if not isinstance(node, Mapping):
        return node
    kept = {key: value for key, value in node.items() if key not in ("pattern", "patternProperties")}
    return mapped(kept, _without_patterns)
