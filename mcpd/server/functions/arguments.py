"""The slow path of `signature`: arguments that the strict decoder refused are repaired, or refused with a text.

The text is for a model, which has to find its mistake from it: one line per problem, the argument's name first, JSON's
names for types, and the allowed values of an enum. Spec: 2025-11-25 server/tools, SEP-1303.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from mcpd.errors import ArgumentsError, InvalidParams
from mcpd.protocol.jsonrpc import read_object
from mcpd.server.functions.coercion import coerce, follow
from mcpd.server.functions.results import dec_hook
from mcpd.server.functions.type_hooks import complete

# msgspec ends its messages with " - at `$.a[0].b`", or "`key` in `$.a`" for the key of an object. `re` compiles these
# patterns when they are first used.
_WHERE = r"(?s)(.*) - at (`key` in )?`\$(.*)`\Z"
_MISSING = r"(?s)Object missing required field `(.*)`\Z"
_UNKNOWN = r"(?s)Object contains unknown field `(.*)`\Z"
_STEP = r"\.([^.\[]+)|\[(\d+)\]|(\[\.\.\.\])"

# Unknown names come from the peer, so their number and length are limited.
_MANY: Final = 20
_LONG: Final = 60


class ArgumentParser:
    """Parses the arguments of one function into a struct, and further arguments into values of one type (None: none).

    `reserved` is the name of the context parameter, which no argument may have.
    """

    def __init__(
        self, struct: type[Struct], extra: Any, reserved: str | None, schema: Callable[[], dict[str, Any]]
    ) -> None:
        self._struct = struct
        self._names = frozenset(struct.__struct_encode_fields__)
        self._extra = extra
        self._reserved = reserved
        self._schema = schema
        self.is_incomplete = False
        """Whether decoded values may lack defaults (see `type_hooks.complete`)."""

    def from_json(self, raw: bytes | msgspec.Raw) -> tuple[Struct, dict[str, Any]]:
        """Return arguments from JSON, coerced by the schema, and further ones. b"" and null mean no arguments.

        Raises ArgumentsError if they do not fit, InvalidParams if they are not a JSON object.
        """
        return self._made(read_object(raw, "arguments"), ArgumentsError)

    def from_strings(self, values: Mapping[str, str | None]) -> tuple[Struct, dict[str, Any]]:
        """Return arguments from strings or None, coerced by the schema. Raises InvalidParams if they do not fit."""
        return self._made(dict(values), InvalidParams)

    def _made(
        self, values: dict[str, Any], error: type[ArgumentsError | InvalidParams]
    ) -> tuple[Struct, dict[str, Any]]:
        schema = self._schema()
        values = coerce(values, schema)
        extra: dict[str, Any] = {}

        try:
            made = _converted(values, self._struct)
            if self._extra is not None:
                if self._reserved in values:
                    raise msgspec.ValidationError(f"Unknown argument {self._reserved}")
                extra = {name: _converted(values[name], self._extra) for name in values if name not in self._names}
        except msgspec.ValidationError as invalid:
            problems = self._problems(values, schema)
            if error is InvalidParams:
                problems = map(_as_json, problems)
            raise error("\n".join(problems) or str(invalid)) from invalid

        if self.is_incomplete:
            complete(made)
            complete(extra)
        return made, extra

    def _problems(self, values: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
        types = {}
        for field in msgspec.structs.fields(self._struct):
            types[field.encode_name] = field.type
            if field.required and field.encode_name not in values:
                yield f"{field.encode_name}: Missing, but required"

        strangers = 0
        for name, value in values.items():
            if name in types or (self._extra is not None and name != self._reserved):
                try:
                    _converted(value, types.get(name, self._extra))
                except msgspec.ValidationError as invalid:
                    yield _line(name, str(invalid), schema)
            elif (strangers := strangers + 1) <= _MANY:
                known = ", ".join(list(types)[:_MANY]) + (", …" if len(types) > _MANY else "")
                known = f"there are: {known}" if types else "none are taken"
                yield f"{name if len(name) <= _LONG else name[:_LONG] + '…'}: Unknown argument; {known}"


def _converted(value: Any, kind: Any) -> Any:
    # Through JSON, because msgspec.convert has other rules for some types, and none for Raw.
    return msgspec.json.decode(msgspec.json.encode(value), type=kind, dec_hook=dec_hook)


def _line(name: str, message: str, schema: dict[str, Any]) -> str:
    match = re.match(_WHERE, message)
    text, key, path = match.groups() if match else (message, None, None)
    path = f".{name}{path or ''}"
    if found := re.match(_MISSING, text):
        return f"{path[1:]}.{found[1]}: Missing, but required"
    if found := re.match(_UNKNOWN, text):
        return f"{path[1:]}.{found[1]}: Unknown field"
    if text.startswith("Invalid enum value") and (allowed := _allowed(path, schema)):
        text = f"{text}; expected one of {allowed}"
    return f"{path[1:]}{', a key' if key else ''}: " + " ".join(text.split())


def _as_json(problem: str) -> str:
    """Add how to write a list or object to the problem of a value that came as a string."""
    is_compound = re.search(r"Expected `(array|object)[^`]*`, got `str`\Z", problem)
    return f"{problem}; write a JSON {is_compound[1]}" if is_compound else problem


def _allowed(path: str, schema: dict[str, Any]) -> str | None:
    """Return the values of the `enum` at a path of this schema, if there is one."""
    found: Any = schema
    for name, index, _ in re.findall(_STEP, path):
        found = _inside(found, schema)
        if name and name in found.get("properties", ()):
            found = found["properties"][name]
        elif index and int(index) < len(found.get("prefixItems", ())):
            found = found["prefixItems"][int(index)]
        else:
            found = found.get("items" if index else "additionalProperties")
    values = _inside(found, schema).get("enum", ())
    return ", ".join(msgspec.json.encode(value).decode() for value in values[:_MANY]) or None


def _inside(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    schema = follow(schema, root)
    if isinstance(schema, dict) and "anyOf" in schema:
        branches = [branch for branch in schema["anyOf"] if branch != {"type": "null"}]
        schema = follow(branches[0], root) if len(branches) == 1 else None
    return schema if isinstance(schema, dict) else {}
