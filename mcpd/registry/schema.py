"""JSON Schemas (2020-12) of what a function takes and gives back, out of its types.

msgspec makes them; here they get the shape MCP wants: an object schema at the root without a name of
its own, shared types in `$defs`, parameter descriptions from the docstring, pydantic's models among
the rest. Arguments are repaired by these schemas; what clients are shown is the plain form of them
(`plain_schema`). Loaded when the first schema is asked for. Never sees values, never validates.
Spec: 2025-11-25 server/tools (tool schemas), SEP-2106 for output schemas of any root.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.inspect import type_info

from mcpd.registry.hints import WrittenDefault
from mcpd.registry.hooks import to_builtins
from mcpd.registry.msgspec_hooks import ANYTHING, Definitions
from mcpd.registry.plain_schema import plain
from mcpd.registry.schema_marks import Marks

__all__ = ["input_schema", "output_schema", "plain"]


def input_schema(arguments: type[Struct], descriptions: Mapping[str, str], extra: Any = None) -> dict[str, Any]:
    """The schema of a function's arguments.

    `arguments` has a field for each parameter, `descriptions` come from the docstring and yield to
    those of `Meta(description=)`. `extra` is the type of further arguments, None if there may be none.
    """
    kinds = [arguments] if extra is None else [arguments, extra]
    schemas, definitions = _generated(kinds, "validation")
    root = definitions.pop(schemas[0]["$ref"].rpartition("/")[2])
    properties: dict[str, Any] = root["properties"]
    for field in msgspec.structs.fields(arguments):
        member = properties[field.encode_name]
        member.pop(ANYTHING, None)
        if field.name in descriptions and not _is_described(member):
            member["description"] = descriptions[field.name]
        _show_default(member, field)

    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if "required" in root:
        schema["required"] = root["required"]
    if extra is None:
        schema["additionalProperties"] = False
    elif schemas[1].pop(ANYTHING, None) is None and schemas[1]:
        schema["additionalProperties"] = schemas[1]
    if definitions:
        schema["$defs"] = definitions
    return schema


def output_schema(hint: Any) -> dict[str, Any]:
    """The schema of a return annotation, with a root of any type; older versions' view of it is not made here."""
    schemas, definitions = _generated([hint], "serialization")
    root: dict[str, Any] = schemas[0]

    if root.keys() == {"$ref"}:
        # The host looks at the root's type: the shared type itself stands there, not a reference to it.
        reference: str = root["$ref"]
        name = reference.rpartition("/")[2]
        root = dict(definitions[name])
        if not _mentions(definitions, reference):
            del definitions[name]

    root.pop("title", None)
    root.pop(ANYTHING, None)
    if definitions:
        root["$defs"] = definitions
    return root


def _generated(kinds: list[Any], mode: Literal["validation", "serialization"]) -> tuple[Any, dict[str, Any]]:
    models = Definitions(mode)
    schemas, definitions = msgspec.json.schema_components(kinds, schema_hook=models.hook)

    # A name that msgspec gave away too: once more, with other names for the models.
    if not models.found.keys().isdisjoint(definitions):
        models = Definitions(mode, frozenset(definitions))
        schemas, definitions = msgspec.json.schema_components(kinds, schema_hook=models.hook)

    for definition in definitions.values():
        if definition.get("required") == []:
            del definition["required"]
    for definition in models.found.values():
        _drop_titles(definition)

    marks = Marks(definitions, kinds, "input" if mode == "validation" else "output")
    for kind, schema in zip(kinds, schemas, strict=True):
        marks.mark(type_info(kind), schema)
    return schemas, {**definitions, **models.found}


def _drop_titles(model: dict[str, Any]) -> None:
    """Without the titles that pydantic makes of names, "User Id" of `user_id`: they say nothing and cost much."""
    for name, member in model.get("properties", {}).items():
        if isinstance(member, dict) and member.get("title") == name.title().replace("_", " ").strip():
            del member["title"]


def _show_default(member: dict[str, Any], field: msgspec.structs.FieldInfo) -> None:
    default = field.default
    if default is NODEFAULT:
        if not isinstance(field.default_factory, WrittenDefault):
            return  # a factory of the author's makes another value for each call: none of them is the default
        default = field.default_factory.value
    if default is msgspec.UNSET:
        return
    try:
        member["default"] = to_builtins(default)
    except (TypeError, ValueError):
        # A sentinel: the parameter may be left out, and that is all there is to show.
        member.pop("default", None)


def _is_described(member: dict[str, Any]) -> bool:
    return "description" in member or any(
        "description" in branch for branch in member.get("anyOf", ()) if "$ref" not in branch
    )


def _mentions(node: Any, reference: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == reference or any(_mentions(value, reference) for value in node.values())
    return isinstance(node, list) and any(_mentions(item, reference) for item in node)
