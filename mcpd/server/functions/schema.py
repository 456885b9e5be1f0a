"""JSON Schemas (2020-12) of a function's arguments and result, from their types.

msgspec generates them. Here they get the form that MCP needs: an object schema without a name at the root, shared types
in `$defs`, parameter descriptions from the docstring, and pydantic's models among the rest. Arguments are coerced by
these schemas; clients see their plain form (`plain_schema`). Spec: 2025-11-25 server/tools (tool schemas), SEP-2106 for
output schemas of any root.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import NODEFAULT, Struct, inspect as types
from msgspec.inspect import type_info

from mcpd.protocol.schemas import Schema
from .hints import WrittenDefault, texts_beside
from .plain_schema import AWARE_DATE_TIME, AWARE_TIME, Direction, plain
from .results import to_builtins
from .type_hooks import ANYTHING, Definitions

__all__ = ["input_schema", "output_schema", "plain"]

_DATETIMES: dict[Any, str] = {
    types.DateTimeType: "python datetime",
    types.DateType: "python date",
    types.TimeType: "python time",
    types.TimeDeltaType: "python timedelta",
}
_RECORDS = (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType)


class Marks:
    """Adds to msgspec's schemas what msgspec knows but leaves out: the order of values, and which strings are dates.

    `hints` are the annotations of one document; `mark(type, schema)` changes a schema in place. pydantic's models need
    none of this.
    """

    def __init__(self, definitions: Schema, hints: Iterable[Any], direction: Direction) -> None:
        self._definitions = definitions
        self._direction = direction
        self._seen: set[int] = set()
        # msgspec sorts the values of a Literal; only the annotation has their order.
        self._written: dict[frozenset[Any], list[Any]] = {}
        for hint in hints:
            self._note_literals(hint)

    def mark(self, found: Any, schema: Any) -> None:
        """Mark a schema and all that it contains."""
        while isinstance(found, types.Metadata):
            found = found.type
        if isinstance(schema, dict) and "$ref" in schema:
            schema = self._definitions.get(schema["$ref"].rpartition("/")[2])
        if not isinstance(schema, dict) or id(schema) in self._seen:
            return
        self._seen.add(id(schema))

        if isinstance(found, _RECORDS):
            self._mark_record(found, schema)
        elif isinstance(found, types.UnionType):
            self._mark_union(found, schema)
        elif isinstance(found, types.CollectionType):
            self.mark(found.item_type, schema.get("items"))
        elif isinstance(found, types.TupleType):
            for kind, item in zip(found.item_types, schema.get("prefixItems", ()), strict=False):
                self.mark(kind, item)
        elif isinstance(found, types.DictType):
            self.mark(found.value_type, schema.get("additionalProperties"))
        elif isinstance(found, types.EnumType):
            _put_in_order(schema, [member.value for member in found.cls])
        elif isinstance(found, types.LiteralType):
            _put_in_order(schema, self._written.get(_key(found.values), []))
        elif isinstance(found, tuple(_DATETIMES)):
            self._mark_datetime(found, schema)

    def _mark_datetime(self, found: Any, schema: Schema) -> None:
        schema.pop("format", None)
        # Some datetimes and times always have an offset from UTC, some never, most may have one.
        offset = getattr(found, "tz", None)
        if self._direction == "input":
            if offset is not False:
                schema["format"] = _DATETIMES[type(found)]
        elif isinstance(found, types.DateType):
            schema["format"] = "date"
        elif offset is True:
            schema["format"] = AWARE_TIME if isinstance(found, types.TimeType) else AWARE_DATE_TIME

    def _mark_record(self, found: Any, schema: Schema) -> None:
        hints = self._note_members(found.cls)
        members = schema.get("properties", {})
        # A record written as an array may begin with its tag.
        items = schema.get("prefixItems", ())[-len(found.fields) :]

        for index, field in enumerate(found.fields):
            if items:
                self.mark(field.type, items[index])
                items[index].setdefault("title", field.name)
            else:
                member = members.get(field.encode_name)
                self.mark(field.type, member)
                for key, text in texts_beside(hints.get(field.name)).items():
                    member.setdefault(key, text)

    def _mark_union(self, found: Any, schema: Schema) -> None:
        # msgspec puts structs after the other types, two or more of them in an anyOf of their own, and null at the end.
        records, others = [], []
        for kind in found.types:
            bare = kind
            while isinstance(bare, types.Metadata):
                bare = bare.type
            if isinstance(bare, types.StructType) and not bare.array_like:
                records.append(bare)
            elif not isinstance(bare, types.NoneType):
                others.append(kind)

        branches = schema.get("anyOf", [])
        for kind, branch in zip(others, branches, strict=False):
            self.mark(kind, branch)

        rest = branches[len(others) :]
        if rest and "anyOf" in rest[0]:
            rest = rest[0]["anyOf"]
        for kind, branch in zip(records, rest, strict=False):
            self.mark(kind, branch)

    def _note_members(self, kind: Any) -> Schema:
        kind = getattr(kind, "__origin__", kind)
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except Exception:  # msgspec has read them in its own way
            return {}
        for hint in hints.values():
            self._note_literals(hint)
        return hints

    def _note_literals(self, hint: Any) -> None:
        hint = getattr(hint, "__supertype__", getattr(hint, "__value__", hint))
        origin = typing.get_origin(hint)
        if origin is Literal:
            values = list(typing.get_args(hint))
            self._written.setdefault(_key(values), values)
        elif origin is Annotated:
            self._note_literals(hint.__origin__)
        else:
            for part in typing.get_args(hint):
                self._note_literals(part)


def _key(values: Iterable[Any]) -> frozenset[Any]:
    return frozenset((type(value), value) for value in values)


def _put_in_order(schema: Schema, values: list[Any]) -> None:
    if _key(values) == _key(schema.get("enum", ())):
        schema["enum"] = list(values)


def input_schema(arguments: type[Struct], descriptions: Mapping[str, str], extra: Any = None) -> Schema:
    """Return the schema of a function's arguments.

    `arguments` has a field for each parameter. `descriptions` come from the docstring; `Meta(description=)` replaces
    them. `extra` is the type of further arguments, None if the function accepts only its own.
    """
    kinds = [arguments] if extra is None else [arguments, extra]
    schemas, definitions = _generated(kinds, "validation")
    root = definitions.pop(schemas[0]["$ref"].rpartition("/")[2])
    properties: Schema = root["properties"]
    for field in msgspec.structs.fields(arguments):
        member = properties[field.encode_name]
        member.pop(ANYTHING, None)
        if field.name in descriptions and not _is_described(member):
            member["description"] = descriptions[field.name]
        _show_default(member, field)

    schema: Schema = {"type": "object", "properties": properties}
    if "required" in root:
        schema["required"] = root["required"]
    if extra is None:
        schema["additionalProperties"] = False
    elif schemas[1].pop(ANYTHING, None) is None and schemas[1]:
        schema["additionalProperties"] = schemas[1]
    if definitions:
        schema["$defs"] = definitions
    return schema


def output_schema(hint: Any) -> Schema:
    """Return the schema of a return annotation, with a root of any type. Older versions' form is not made here."""
    schemas, definitions = _generated([hint], "serialization")
    root: Schema = schemas[0]

    if root.keys() == {"$ref"}:
        # Clients look at the root's type, so the shared type itself replaces the reference.
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


def _generated(kinds: list[Any], mode: Literal["validation", "serialization"]) -> tuple[Any, Schema]:
    models = Definitions(mode)
    schemas, definitions = msgspec.json.schema_components(kinds, schema_hook=models.hook)

    # msgspec used one of the models' names too, so they get other names.
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


def _drop_titles(model: Schema) -> None:
    # Remove titles that pydantic derives from names, such as "User Id" of `user_id`: they only cost tokens.
    for name, member in model.get("properties", {}).items():
        if isinstance(member, dict) and member.get("title") == name.title().replace("_", " ").strip():
            del member["title"]


def _show_default(member: Schema, field: msgspec.structs.FieldInfo) -> None:
    default = field.default
    if default is NODEFAULT:
        if not isinstance(field.default_factory, WrittenDefault):
            return  # an author's factory makes a new value for each call, so none is the default
        default = field.default_factory.value
    if default is msgspec.UNSET:
        return
    try:
        member["default"] = to_builtins(default)
    except (TypeError, ValueError):
        # A sentinel: the parameter is optional, without a default that could be shown.
        member.pop("default", None)


def _is_described(member: Schema) -> bool:
    return "description" in member or any(
        "description" in branch for branch in member.get("anyOf", ()) if "$ref" not in branch
    )


def _mentions(node: Any, reference: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == reference or any(_mentions(value, reference) for value in node.values())
    return isinstance(node, list) and any(_mentions(item, reference) for item in node)
