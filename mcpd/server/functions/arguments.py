"""The slow path of `signature`: arguments that the strict decoder refused are repaired, or refused with a text.

Models write arguments in a slightly wrong form, such as `"3"` for 3 and `"[1, 2]"` for a list. `coerce` repairs exactly
these cases, if only one reading is possible:

- a string for any other type, if the schema admits no string;
- "True" and "False" for a boolean, and "1" or "0" if the schema admits no number;
- an integral float (3.0) for an integer;
- `2026-11-22 10:00` and the like for a datetime, if the schema's format is a Python type;
- null for an optional member that does not admit null, which is then left out.

Anything else stays an error: 3 for a string, "3.0" for an integer, "yes" for a boolean, " 3", "+3" and "007". Arguments
that fit their schema come back unchanged, because the set of admitted types is always over-estimated. `coerce` works on
any JSON Schema, does not validate, never raises, and follows no reference out of the document.

The text is for a model, which has to find its mistake from it: one line per problem, the argument's name first, JSON's
names for types, and the allowed values of an enum. Spec: 2025-11-25 server/tools, SEP-1303.
"""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from mcpd.errors import ArgumentsError, InvalidParams
from mcpd.protocol.jsonrpc import read_object
from mcpd.protocol.schemas import Schema, is_local, target_of
from .annotations import Values
from .results import dec_hook
from .type_hooks import complete

# Formats that mark a Python type in schemas that are not plain yet, and the formats that plain schemas show.
DATETIME_FORMATS: Final = {
    "python datetime": "date-time",
    "python date": "date",
    "python time": "time",
    "python timedelta": "duration",
}

# Longer texts are not dates, and parsing megabytes would take seconds.
_LONGEST: Final = 100

_UTC: Final = r"(?i) ?(?:utc|gmt|z)\Z"
_CLOCK: Final = r"(-?)(?:(\d{1,6}) days?,? )?(\d{1,4}):([0-5]\d)(?::([0-5]\d(?:\.\d{1,6})?))?\Z"


def reread(value: Any, kind: str) -> Any:
    """Return a string or number as JSON of `kind`, a key of DATETIME_FORMATS; unchanged if it cannot be read."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return value
    try:
        made = _MAKERS[kind](value)
    except (ValueError, OverflowError):
        return value
    return value if made is None else msgspec.to_builtins(made)


def _datetime(value: Any) -> datetime.datetime | None:
    if not isinstance(value, str):
        return None
    return datetime.datetime.fromisoformat(re.sub(_UTC, "+00:00", value.strip()))


def _date(value: Any) -> datetime.date | None:
    moment = _datetime(value)
    # A value with a time of day is more than a date.
    return moment.date() if moment is not None and moment.time() == datetime.time() else None


def _time(value: Any) -> datetime.time | None:
    if not isinstance(value, str) or ":" not in value:
        return None
    return datetime.time.fromisoformat(re.sub(_UTC, "+00:00", value.strip()))


def _timedelta(value: Any) -> datetime.timedelta | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return datetime.timedelta(seconds=value)

    if not isinstance(value, str):
        return None
    if weeks := re.match(r"(-?)P(\d{1,6})W\Z", value.strip()):
        return datetime.timedelta(weeks=int(weeks[1] + weeks[2]))

    clock = re.match(_CLOCK, value.strip())
    if clock is None:
        return None

    sign, days, hours, minutes, seconds = clock.groups()
    duration = datetime.timedelta(int(days or 0), float(seconds or 0), minutes=int(minutes), hours=int(hours))
    # str() of a negative timedelta puts the sign on the days only: "-1 day, 23:00:00" means -1 hour.
    if sign and days:
        return duration - 2 * datetime.timedelta(int(days))
    return -duration if sign else duration


_MAKERS: Final = {
    "python datetime": _datetime,
    "python date": _date,
    "python time": _time,
    "python timedelta": _timedelta,
}

_ALL: Final = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_NONE: Final[frozenset[str]] = frozenset()

# JSON's own grammar: float() and int() accept more ("1_0", "inf", " 3"), which is not meant. `re` compiles these
# patterns when they are first used.
_INTEGER = r"-?(?:0|[1-9][0-9]{0,300})\Z"
_NUMBER = r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?\Z"

# Larger floats are not exact integers.
_EXACT_FLOAT: Final = 2**53

# Limits the work on the event loop. Models never write as many values.
_MOST_VALUES: Final = 10_000

# Models do not write deeper structures as strings.
_DEPTH: Final = 4


def coerce(arguments: Values, schema: Schema) -> Values:
    """Return `arguments` with each value repaired that can only mean what `schema` requires.

    Returns the same object if there was nothing to do.
    """
    return _Coercion(schema).members(arguments, schema, _DEPTH) if arguments else arguments


def admitted_types(schema: Any, root: Schema) -> frozenset[str]:
    """Return the JSON types that a schema in the document `root` may admit."""
    return _Coercion(root)._admits(schema)


def follow(schema: Any, root: Schema) -> Any:
    """Return `schema`, or the target of its chain of local `$ref`s; None for a missing target or a circle."""
    seen = set()
    while isinstance(schema, dict) and "$ref" in schema:
        reference = schema["$ref"]
        if not is_local(reference) or reference in seen:
            return None
        seen.add(reference)
        schema = target_of(reference, root)
    return schema


class _Coercion(Struct, eq=False):
    # One call: the document that references point into, and the types found for its references.
    _root: Schema
    _admitted: dict[str, frozenset[str]] = {}
    _left: int = _MOST_VALUES

    def members(self, value: Values, schema: Any, depth: int) -> Values:
        schema = self._branch(schema, value, "object", "properties", "additionalProperties")
        if schema is None:
            return value

        properties = schema.get("properties")
        if not isinstance(properties, dict):
            properties = {}
        # With patternProperties, additionalProperties applies to fewer names.
        rest = None if "patternProperties" in schema else schema.get("additionalProperties")
        if not self._is_within_limit(value):
            return value

        changed: Schema = {}
        for name, member in value.items():
            repaired = self.value(member, properties.get(name, rest), depth)
            if repaired is not member:
                changed[name] = repaired

        if None in value.values() and (unset := self._unset(value, schema, properties)):
            return {name: changed.get(name, value[name]) for name in value if name not in unset}
        return {**value, **changed} if changed else value

    def _unset(self, value: Values, schema: Schema, properties: Schema) -> set[str]:
        # Return the members that are null but can only mean "leave out": models write null for "the default".
        required = schema.get("required")
        needed = required if isinstance(required, list) else ()
        return {
            name
            for name, member in value.items()
            if member is None
            and name in properties
            and name not in needed
            and "null" not in self._admits(properties[name])
        }

    def items(self, value: list[Any], schema: Any, depth: int) -> list[Any]:
        schema = self._branch(schema, value, "array", "items", "prefixItems")
        if schema is None:
            return value

        prefix = schema.get("prefixItems")
        if not isinstance(prefix, list):
            prefix = []
        rest = schema.get("items")
        if not self._is_within_limit(value):
            return value

        repaired = [
            self.value(item, prefix[index] if index < len(prefix) else rest, depth) for index, item in enumerate(value)
        ]
        return value if all(map(operator.is_, repaired, value)) else repaired

    def _is_within_limit(self, values: list[Any] | Values) -> bool:
        self._left -= len(values)
        return self._left >= 0

    def value(self, value: Any, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict):
            return value

        if isinstance(value, str):
            admitted = self._admits(schema)
            if "string" in admitted:
                return self._moment(value, schema)
            value = _parsed(value, admitted)
        elif isinstance(value, (float, int)) and "number" not in (admitted := self._admits(schema)):
            if "string" in admitted and "integer" not in admitted:
                return self._moment(value, schema)
            if "integer" in admitted and isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_FLOAT:
                return int(value)

        if depth and isinstance(value, dict):
            return self.members(value, schema, depth - 1)
        if depth and isinstance(value, list):
            return self.items(value, schema, depth - 1)
        return value

    def _moment(self, value: Any, schema: Any) -> Any:
        # Reread a date, time or duration if all string branches have the same format.
        kinds = set(self._string_formats(schema, 8))
        kind = kinds.pop() if len(kinds) == 1 else None
        return reread(value, kind) if kind in DATETIME_FORMATS else value

    def _string_formats(self, schema: Any, depth: int) -> Iterator[Any]:
        schema = follow(schema, self._root)
        branches = schema.get("anyOf", schema.get("oneOf")) if isinstance(schema, dict) else None
        if isinstance(branches, list) and depth:
            for branch in branches:
                yield from self._string_formats(branch, depth - 1)
        elif not isinstance(schema, dict):
            yield None
        elif "string" in self._admits(schema):
            yield schema.get("format")

    def _admits(self, schema: Any) -> frozenset[str]:
        # Return the JSON types that a schema may admit; rather too many than too few.
        if schema is False:
            return _NONE
        if not isinstance(schema, dict):
            return _ALL
        if "$ref" in schema:
            # Keywords beside `$ref` can only narrow the type, and did not count before 2019-09.
            return self._admits_reference(schema["$ref"])

        admitted = _ALL
        if "type" in schema:
            admitted &= _names(schema["type"])
        if isinstance(schema.get("enum"), list):
            admitted &= frozenset(map(json_type, schema["enum"]))
        if "const" in schema:
            admitted &= {json_type(schema["const"])}

        for keyword in ("anyOf", "oneOf"):
            if isinstance(branches := schema.get(keyword), list):
                admitted &= _NONE.union(*map(self._admits, branches))
        if isinstance(parts := schema.get("allOf"), list):
            admitted = admitted.intersection(*map(self._admits, parts))
        return admitted

    def _admits_reference(self, reference: Any) -> frozenset[str]:
        if not isinstance(reference, str):
            return _ALL
        if reference not in self._admitted:
            # A reference that is reached again admits anything, which ends the recursion safely.
            self._admitted[reference] = _ALL
            target = follow({"$ref": reference}, self._root)
            self._admitted[reference] = _ALL if target is None else self._admits(target)
        return self._admitted[reference]

    def _branch(self, schema: Any, value: Any, kind: str, *keywords: str) -> Schema | None:
        # Return the schema that describes the inside of an array or object: `schema`, or its only branch that can.
        for _ in range(8):
            schema = follow(schema, self._root)
            if not isinstance(schema, dict):
                return None
            if any(keyword in schema for keyword in keywords):
                return schema
            branches = schema.get("anyOf", schema.get("oneOf", schema.get("allOf")))
            if not isinstance(branches, list):
                return None
            fitting = [
                branch for branch in branches if kind in self._admits(branch) and not self._is_other(branch, value)
            ]
            if len(fitting) != 1:
                return None
            schema = fitting[0]
        return None

    def _is_other(self, branch: Any, value: Any) -> bool:
        # Return whether an object cannot match a branch: a required member is missing or a constant differs.
        branch = follow(branch, self._root)
        if not isinstance(branch, dict) or not isinstance(value, dict):
            return False

        required = branch.get("required")
        if isinstance(required, list) and any(isinstance(name, str) and name not in value for name in required):
            return True

        properties = branch.get("properties")
        return isinstance(properties, dict) and any(
            isinstance(schema, dict)
            and name in value
            and isinstance(allowed := [schema["const"]] if "const" in schema else schema.get("enum"), list)
            and value[name] not in allowed
            for name, schema in properties.items()
        )


def _names(types: Any) -> frozenset[str]:
    if isinstance(types, str):
        types = [types]
    if not isinstance(types, list):
        return _ALL
    names = frozenset(name for name in types if isinstance(name, str))
    # A number may be integral.
    return names | {"integer"} if "number" in names else names


def json_type(value: Any) -> str:
    """Return the name of a value's type in JSON Schema."""
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return "null"


_TYPE_NAMES: Final[tuple[tuple[type, str], ...]] = (
    (str, "string"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (list, "array"),
    (dict, "object"),
)


def _parsed(text: str, admitted: frozenset[str]) -> Any:
    if "integer" in admitted and re.match(_INTEGER, text):
        return int(text)

    if "number" in admitted and re.match(_NUMBER, text):
        number = float(text)
        # JSON has no infinity, but "1e999" is infinite as a float.
        return number if abs(number) != float("inf") else text

    if text in _WORDS:
        name, value = _WORDS[text]
        return value if name in admitted else text
    if text in _FLAGS and "boolean" in admitted:
        return _FLAGS[text]

    kind = _BRACKETS.get(text.lstrip()[:1])
    if kind is None or kind[0] not in admitted:
        return text
    try:
        value = _decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text
    return value if isinstance(value, kind[1]) else text


_WORDS: Final[dict[str, tuple[str, Any]]] = {
    "true": ("boolean", True),
    "false": ("boolean", False),
    "null": ("null", None),
}
_FLAGS: Final = {"True": True, "False": False, "1": True, "0": False}
_BRACKETS: Final[dict[str, tuple[str, type]]] = {"[": ("array", list), "{": ("object", dict)}
_decode: Final[Callable[[str], Any]] = msgspec.json.Decoder().decode

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
    """Parses the arguments of one function by its struct, and further arguments as values of one type (None: none).

    `reserved` is the name of the context parameter, which no argument may have.
    """

    def __init__(self, struct: type[Struct], extra: Any, reserved: str | None, schema: Callable[[], Schema]) -> None:
        self._struct = struct
        self._names = frozenset(struct.__struct_encode_fields__)
        self._extra = extra
        self._reserved = reserved
        self._schema = schema
        # Whether decoded values may lack defaults (see `type_hooks.complete`).
        self.is_incomplete = False

    def from_json(self, raw: bytes | msgspec.Raw) -> Values:
        """Return arguments from JSON, coerced by the schema. b"" and null mean no arguments.

        Raises ArgumentsError if they do not fit, InvalidParams if they are not a JSON object.
        """
        return self._made(read_object(raw, "arguments"), ArgumentsError)

    def from_strings(self, values: Mapping[str, str | None]) -> Values:
        """Return arguments from strings or None, coerced by the schema. Raises InvalidParams if they do not fit."""
        return self._made(dict(values), InvalidParams)

    def _made(self, values: Values, error: type[ArgumentsError | InvalidParams]) -> Values:
        schema = self._schema()
        values = coerce(values, schema)
        extra: Values = {}

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
        return {**msgspec.structs.asdict(made), **extra}

    def _problems(self, values: Values, schema: Schema) -> Iterator[str]:
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


def _line(name: str, message: str, schema: Schema) -> str:
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
    # Add how to write a list or object to the problem of a value that came as a string.
    is_compound = re.search(r"Expected `(array|object)[^`]*`, got `str`\Z", problem)
    return f"{problem}; write a JSON {is_compound[1]}" if is_compound else problem


def _allowed(path: str, schema: Schema) -> str | None:
    node: Any = schema
    for name, index, _ in re.findall(_STEP, path):
        node = inside(node, schema)
        if name and name in node.get("properties", ()):
            node = node["properties"][name]
        elif index and int(index) < len(node.get("prefixItems", ())):
            node = node["prefixItems"][int(index)]
        else:
            node = node.get("items" if index else "additionalProperties")
    values = inside(node, schema).get("enum", ())
    return ", ".join(msgspec.json.encode(value).decode() for value in values[:_MANY]) or None


def inside(schema: Any, root: Schema) -> Schema:
    """Resolve references, and the null of an Optional with one other branch; {} for any value."""
    for _ in range(16):
        schema = follow(schema, root)
        if not isinstance(schema, dict):
            return {}
        branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
        if len(branches) != 1:
            return schema
        schema = branches[0]
    return {}
