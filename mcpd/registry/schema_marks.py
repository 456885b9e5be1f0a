"""What msgspec knows of a type and does not put into its schema: the order of values, and which strings are dates.

Walks a type, as `msgspec.inspect` tells it, beside the schema that msgspec made of it, and changes that in place.
Models of pydantic say all of this themselves.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import inspect as types

from mcpd.registry.metadata import texts_beside
from mcpd.registry.plain_schema import AWARE_DATE_TIME, AWARE_TIME, Direction

_DATETIMES: dict[Any, str] = {
    types.DateTimeType: "python datetime",
    types.DateType: "python date",
    types.TimeType: "python time",
    types.TimeDeltaType: "python timedelta",
}
_RECORDS = (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType)


class Marks:
    """`mark(type, schema)` for the types of one document with these definitions. `hints` are what was annotated."""

    def __init__(self, definitions: dict[str, Any], hints: Iterable[Any], direction: Direction) -> None:
        self._definitions = definitions
        self._direction = direction
        self._seen: set[int] = set()
        # msgspec sorts the values of a Literal; the annotation alone knows better.
        self._written: dict[frozenset[Any], list[Any]] = {}
        for hint in hints:
            self._note_literals(hint)

    def mark(self, found: Any, schema: Any) -> None:
        """Mark a schema, and all that it is made of."""
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

    def _mark_datetime(self, found: Any, schema: dict[str, Any]) -> None:
        schema.pop("format", None)
        # Of datetimes and times, some have an offset from UTC always, some never, most as the caller likes.
        offset = getattr(found, "tz", None)
        if self._direction == "input":
            if offset is not False:
                schema["format"] = _DATETIMES[type(found)]
        elif isinstance(found, types.DateType):
            schema["format"] = "date"
        elif offset is True:
            schema["format"] = AWARE_TIME if isinstance(found, types.TimeType) else AWARE_DATE_TIME

    def _mark_record(self, found: Any, schema: dict[str, Any]) -> None:
        hints = self._note_members(found.cls)
        members = schema.get("properties", {})
        # A record as an array may have its tag in front.
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

    def _mark_union(self, found: Any, schema: dict[str, Any]) -> None:
        # msgspec puts structs after the rest, two or more of them in a choice of their own, and null at the end.
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

    def _note_members(self, kind: Any) -> dict[str, Any]:
        """The hints of a record's members, their literals noted."""
        kind = getattr(kind, "__origin__", kind)
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except Exception:  # msgspec has read them, in some way of its own
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


def _put_in_order(schema: dict[str, Any], values: list[Any]) -> None:
    if _key(values) == _key(schema.get("enum", ())):
        schema["enum"] = list(values)
