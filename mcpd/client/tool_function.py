"""Tools as Python functions with types, made from their schemas, for programs and agent libraries.

A function takes the tool's arguments as parameters, returns its value, and raises ToolError if the tool failed. Its
name, docstring, signature and annotations are derived from the schema. Types are Literal for choices, TypedDict for
objects, unions, and Any if no type describes the schema. A schema that refers to itself ends in a plain object.
"""

from __future__ import annotations

import keyword
import re
import sys
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, Signature
from typing import Any, Literal, NotRequired, Optional, Protocol, TypeAlias, TypeVar

from msgspec import UNSET, Raw
from msgspec.json import decode, encode

from mcpd.errors import ConfigurationError
from mcpd.protocol.schemas import target_of
from mcpd.protocol.types.features import CallToolResult, Tool
from .results import plain_value

__all__ = ["AwaitedToolFunction", "ToolFunction"]

Answer_co = TypeVar("Answer_co", covariant=True)


class ToolFunction(Protocol[Answer_co]):
    """A tool as a function. Arguments are passed by position or by name; the names of the schema are accepted, too."""

    __name__: str
    __qualname__: str
    __module__: str
    __doc__: str | None
    __annotations__: dict[str, Any]
    __signature__: Signature
    schema: dict[str, Any]
    """The JSON Schema of the arguments, as the server sent it."""
    tool: Tool
    """The listed tool, with its own name, title, description and annotations."""

    def __call__(self, *args: Any, **kwargs: Any) -> Answer_co:
        """Call the tool, and return its JSON value.

        Raises ToolError with the tool's text if it failed, TypeError for unknown or missing arguments, and the errors
        of `Client.call_tool`.
        """


AwaitedToolFunction: TypeAlias = ToolFunction[Coroutine[Any, Any, Any]]
"""A tool as a coroutine function."""


def awaited_functions(
    tools: Iterable[Tool],
    names: tuple[str, ...],
    call: Callable[[str, dict[str, Any]], Coroutine[Any, Any, CallToolResult]],
) -> list[AwaitedToolFunction]:
    """Return a coroutine function for each tool, or for the tools of these `names`. `call` calls a tool.

    Raises ConfigurationError for a name that no tool has.
    """

    def make(plan: _Plan) -> Any:
        async def function(*args: Any, **kwargs: Any) -> Any:
            return plan.value(await call(plan.tool.name, plan.arguments(args, kwargs)))

        return function

    return _functions(tools, names, make)


def plain_functions(
    tools: Iterable[Tool], names: tuple[str, ...], call: Callable[[str, dict[str, Any]], CallToolResult]
) -> list[ToolFunction[Any]]:
    def make(plan: _Plan) -> Any:
        return lambda *args, **kwargs: plan.value(call(plan.tool.name, plan.arguments(args, kwargs)))

    return _functions(tools, names, make)


def _functions(tools: Iterable[Tool], names: tuple[str, ...], make: Callable[[_Plan], Any]) -> list[Any]:
    known = {tool.name: tool for tool in tools if _is_for_models(tool)}
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 3) or list(known)[:10]
            listed = f"similar or available tools: {', '.join(near)}" if near else "the server has no tools"
            raise ConfigurationError(f"no tool {name!r}; {listed}")

    taken: set[str] = set()
    functions = []
    for name in names or known:
        plan = _Plan(known[name])
        function = make(plan)
        function.__name__ = function.__qualname__ = _identifier(name, taken)
        function.__module__, function.__doc__ = __name__, plan.doc
        function.__signature__, function.__annotations__ = plan.signature, plan.annotations
        function.schema, function.tool = plan.schema, plan.tool
        functions.append(function)
    return functions


class _Plan:
    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.schema = _as_dict(tool.input_schema)
        self._keys: dict[str, str] = {}
        """The names in the schema, by parameter."""
        self._drops_none: set[str] = set()
        """Parameters for which None means that the argument is missing, because the schema does not allow null."""
        self._others: str | None = None
        self.signature = self._signature()
        self.annotations = {parameter.name: parameter.annotation for parameter in self.signature.parameters.values()}
        self.annotations["return"] = self.signature.return_annotation
        self._names = {key: name for name, key in self._keys.items() if key != name}
        self.doc = self._doc()

    def _signature(self) -> Signature:
        types = SchemaTypes(self.schema)
        properties = self.schema.get("properties")
        required = self.schema.get("required")
        needed = required if isinstance(required, list) else []
        taken: set[str] = set()
        parameters: list[Parameter] = []

        for key, part in properties.items() if isinstance(properties, Mapping) else ():
            name = _identifier(key, taken)
            kind = types.of(part, key)
            default: Any = Parameter.empty
            if key not in needed:
                default = part.get("default") if isinstance(part, Mapping) else None
                if not allows_null(kind) and kind is not Any:
                    self._drops_none.add(name)
                    kind = Optional[kind] if default is None else kind  # noqa: UP045 - `|` does not support all types
            self._keys[name] = key
            parameters.append(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind))

        # Python requires that parameters with defaults come last; the sort keeps their order otherwise.
        parameters.sort(key=lambda parameter: parameter.default is not Parameter.empty)
        others = self.schema.get("additionalProperties")
        if others is True or (isinstance(others, Mapping) and others):
            self._others = _identifier("others", taken)
            kind = types.of(others, "other")
            parameters.append(Parameter(self._others, Parameter.VAR_KEYWORD, annotation=kind))
        return Signature(parameters, return_annotation=self._returns())

    def _returns(self) -> Any:
        schema = self.tool.output_schema
        if schema is None:
            return Any

        found = _as_dict(schema)
        types = SchemaTypes(found)
        name = f"{self.tool.name}_result"
        return types.of(found["properties"]["result"] if _wraps(found) else found, name)

    def _doc(self) -> str | None:
        text = (self.tool.description or self.tool.title or "").strip()
        properties = self.schema.get("properties")
        lines = []
        for name, key in self._keys.items():
            part = properties[key] if isinstance(properties, Mapping) else None
            description = part.get("description") if isinstance(part, Mapping) else None
            if isinstance(description, str) and description.strip():
                lines.append(f"    {name}: {' '.join(description.split())}")

        if lines and not re.search(r"^\s*(Args|Arguments|Parameters):", text, re.MULTILINE):
            text = "\n".join([*([text, ""] if text else []), "Args:", *lines])
        return text or None

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        # Return the tool's arguments. Arguments that were not passed are left out. Raises TypeError.
        names = self._names
        given = {names.get(key, key): value for key, value in kwargs.items()} if names else kwargs
        bound = self.signature.bind(*args, **given).arguments
        others = bound.pop(self._others, {}) if self._others else {}
        dropped = {name for name, value in bound.items() if value is None} & self._drops_none
        return {**others, **{self._keys[name]: value for name, value in bound.items() if name not in dropped}}

    def value(self, result: CallToolResult) -> Any:
        value = plain_value(result)
        # Versions before 2026-07-28 only allow objects, so other values and their schemas are wrapped.
        is_wrapped = isinstance(value, dict) and value.keys() == {"result"} and result.structured_content is not UNSET
        return value["result"] if is_wrapped and _wraps(_as_dict(self.tool.output_schema)) else value


def _wraps(schema: Mapping[str, Any]) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    is_one = isinstance(properties, Mapping) and list(properties) == ["result"]
    return is_one and (required == ["result"] or schema.get("x-fastmcp-wrap-result") is True)


def _as_dict(schema: Any) -> dict[str, Any]:
    found = decode(schema) if isinstance(schema, Raw) else schema
    return found if isinstance(found, dict) else {}


def _identifier(name: str, taken: set[str]) -> str:
    wanted = re.sub(r"\W", "_", name) or "_"
    if wanted[0].isdigit():
        wanted = f"_{wanted}"
    if keyword.iskeyword(wanted) or wanted in ("self", "cls"):
        wanted += "_"  # libraries skip parameters with these names
    return _unique(wanted, taken, "_")


def _unique(base: str, taken: set[str], separator: str) -> str:
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}{separator}{number}"
    taken.add(name)
    return name


def _is_for_models(tool: Tool) -> bool:
    # Whether a model may call the tool. Spec: MCP Apps 2026-01-26, visibility.
    shown = tool.meta.get("ui") if tool.meta else None
    visibility = shown.get("visibility") if isinstance(shown, dict) else None
    if isinstance(visibility, str):
        return visibility == "model"
    return visibility is None or (isinstance(visibility, list) and "model" in visibility)


if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    # pydantic does not accept the standard TypedDict before Python 3.12.
    from typing_extensions import TypedDict

_MOST_TYPES = 2000
_MOST_CHOICES = 500
_DEEPEST = 40

_PLAIN: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}


class SchemaTypes:
    """Converts one schema. `of(part, name)` is the type of a part; TypedDicts are named after `name`."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._made: dict[str, Any] = {}
        self._open: set[str] = set()
        self._names: set[str] = set()
        self._left = _MOST_TYPES

    def of(self, schema: Any, name: str, depth: int = 0) -> Any:
        """Return the type of a schema. Never raises: an invalid schema is Any."""
        # Counted over the whole schema: `allOf` and `anyOf` may multiply.
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0 or depth > _DEEPEST:
            return Any
        if isinstance(reference := schema.get("$ref"), str):
            return self._referred(reference, name, depth)
        if (choices := _choices(schema)) is not None:
            return choices

        for key in ("anyOf", "oneOf"):
            if isinstance(members := schema.get(key), list) and members:
                return _union([self.of(member, name, depth + 1) for member in members])
        if isinstance(members := schema.get("allOf"), list) and members:
            schema = self._merged(schema, members)
            if schema is None:
                return Any

        kind = schema.get("type")
        if isinstance(kind, list):
            return _union([self._plain(one, schema, name, depth) for one in kind]) if kind else Any
        return self._plain(kind, schema, name, depth)

    def _plain(self, kind: Any, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        if isinstance(kind, str) and kind in _PLAIN:
            return _PLAIN[kind]
        if kind == "array" or (kind is None and "items" in schema):
            return list[self.of(schema.get("items"), f"{name}_item", depth + 1)]  # type: ignore[misc]
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, name, depth)
        return Any

    def _object(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(properties, Mapping) or not properties:
            value = self.of(others, f"{name}_value", depth + 1) if isinstance(others, Mapping) else Any
            return dict[str, value]  # type: ignore[valid-type]
        if isinstance(others, Mapping) and others:
            return dict[str, Any]  # no type describes these members and any others of one type

        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        fields: dict[str, Any] = {}
        for key, part in properties.items():
            kind = self.of(part, f"{name}_{key}", depth + 1)
            fields[str(key)] = kind if key in needed else NotRequired[kind]
        title = schema.get("title")
        make: Any = TypedDict  # type checkers only accept literal names
        made = make(self._class_name(title if isinstance(title, str) else name), fields)
        if isinstance(text := schema.get("description"), str):
            made.__doc__ = text
        return made

    def _class_name(self, name: str) -> str:
        words = re.split(r"\W+|_", name)
        wanted = "".join(word[:1].upper() + word[1:] for word in words if word)[:80] or "Object"
        return _unique(f"Object{wanted}" if wanted[0].isdigit() else wanted, self._names, "")

    def _referred(self, reference: str, name: str, depth: int) -> Any:
        # Return the type of a reference. A reference to a schema that contains it is a plain object.
        # A schema that contains itself would never end.
        if reference in self._open:
            found = target_of(reference, self._root)
            is_object = isinstance(found, Mapping) and (found.get("type") == "object" or "properties" in found)
            return dict[str, Any] if is_object else Any
        if reference in self._made:
            return self._made[reference]

        found = target_of(reference, self._root)
        self._open.add(reference)
        try:
            kind = self.of(found, reference.rpartition("/")[2] or name, depth + 1)
        finally:
            self._open.discard(reference)
        # Kept, so that one definition is one class.
        self._made[reference] = kind
        return kind

    def _merged(self, schema: Mapping[str, Any], members: list[Any]) -> dict[str, Any] | None:
        # Merge the schemas of `allOf` if they are simple enough: objects, or one schema with annotations beside it.
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for member in members[:_MOST_CHOICES]:
            steps = 0
            while isinstance(member, Mapping) and isinstance(member.get("$ref"), str) and steps < _DEEPEST:
                member, steps = target_of(member["$ref"], self._root), steps + 1
            if not isinstance(member, Mapping) or "allOf" in member:
                return None
            for key, value in member.items():
                if key == "properties" and isinstance(value, Mapping):
                    merged[key] = {**merged.get(key, {}), **value}
                elif key == "required" and isinstance(value, list):
                    merged[key] = [*merged.get(key, []), *value]
                else:
                    merged.setdefault(key, value)
        return merged


def allows_null(kind: Any) -> bool:
    """Whether None is a value of a type that was made from a schema."""
    if kind is None or kind is type(None):
        return True
    members = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return None in members
    return type(None) in members and typing.get_origin(kind) not in (dict, list)


def _choices(schema: Mapping[str, Any]) -> Any:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not 0 < len(values) <= _MOST_CHOICES:
        return None
    if not all(value is None or isinstance(value, (str, bool, int)) for value in values):
        return None
    distinct = {encode(value): value for value in values}
    return Literal[tuple(distinct.values())]


def _union(kinds: list[Any]) -> Any:
    return Any if Any in kinds else typing.Union[tuple(kinds)]  # noqa: UP007 - of a variable number
