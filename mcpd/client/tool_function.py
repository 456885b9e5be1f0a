"""What a tool is as a function: see `functions`, which makes them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, Signature
from typing import Any, Optional, Protocol, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct
from msgspec.json import decode

from mcpd.client.results import plain_value
from mcpd.client.schema_types import SchemaTypes, allows_null
from mcpd.errors import ConfigurationError
from mcpd.protocol.types.tools import CallToolResult, Tool

__all__ = ["AwaitedToolFunction", "ToolFunction"]


Answer_co = TypeVar("Answer_co", covariant=True)


class ToolFunction(Protocol[Answer_co]):
    """A tool as a function. Arguments are given by position or name, also by the names that the schema has for them."""

    __name__: str
    __qualname__: str
    __module__: str
    __doc__: str | None
    __annotations__: dict[str, Any]
    __signature__: Signature
    schema: dict[str, Any]
    """The JSON Schema of the arguments, as the server gave it."""
    tool: Tool
    """The tool, as it was listed: its own name, title, description, annotations."""

    def __call__(self, *args: Any, **kwargs: Any) -> Answer_co:
        """What the tool returned, as JSON has it.

        Raises ToolError with its text if it failed, TypeError for arguments that it does not have, and what
        `Client.call_tool` raises.
        """


AwaitedToolFunction: TypeAlias = ToolFunction[Coroutine[Any, Any, Any]]
"""One whose call is awaited."""


def awaited_functions(
    tools: Iterable[Tool],
    names: tuple[str, ...],
    call: Callable[[str, dict[str, Any]], Coroutine[Any, Any, CallToolResult]],
) -> list[AwaitedToolFunction]:
    """A coroutine function for each tool, of `names` only if there are any; `call` calls one.

    Raises ConfigurationError for a name that no tool has.
    """

    def make(plan: _Plan) -> Any:
        async def function(*args: Any, **kwargs: Any) -> Any:
            return plan.value(await call(plan.tool.name, plan.arguments(args, kwargs)))

        return function

    return _all(tools, names, make)


def plain_functions(
    tools: Iterable[Tool], names: tuple[str, ...], call: Callable[[str, dict[str, Any]], CallToolResult]
) -> list[ToolFunction[Any]]:
    """The same as plain functions."""

    def make(plan: _Plan) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            return plan.value(call(plan.tool.name, plan.arguments(args, kwargs)))

        return function

    return _all(tools, names, make)


def _all(tools: Iterable[Tool], names: tuple[str, ...], make: Callable[[_Plan], Any]) -> list[Any]:
    found = {tool.name: tool for tool in tools if _is_for_models(tool)}
    for name in names:
        if name not in found:
            near = get_close_matches(name, found, 3) or list(found)[:10]
            said = f"there are {', '.join(near)}" if near else "there is none at all"
            raise ConfigurationError(f"there is no tool {name!r}: {said}")

    taken: set[str] = set()
    functions = []
    for name in names or found:
        plan = _Plan(found[name])
        function = make(plan)
        function.__name__ = function.__qualname__ = _identifier(name, taken)
        function.__module__ = __name__
        function.__doc__ = plan.doc
        function.__signature__ = plan.signature
        function.__annotations__ = plan.annotations
        function.schema = plan.schema
        function.tool = plan.tool
        functions.append(function)
    return functions


class _Argument(Struct, frozen=True):
    """What a parameter of a function is to its tool."""

    key: str
    """Its name in the schema."""
    drops_none: bool
    """None means that it was not given: the tool has no use for it."""


class _Plan:
    """What a function is made of, and what its calls need."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.schema = _as_dict(tool.input_schema)
        self._arguments: dict[str, _Argument] = {}
        self._others: str | None = None
        self.signature = self._signature()
        self.annotations = {one.name: one.annotation for one in self.signature.parameters.values()}
        self.annotations["return"] = self.signature.return_annotation
        self._names = {argument.key: name for name, argument in self._arguments.items() if argument.key != name}
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
            drops_none = False
            if key not in needed:
                default = part.get("default") if isinstance(part, Mapping) else None
                drops_none = not allows_null(kind) and kind is not Any
                if default is None and drops_none:
                    kind = Optional[kind]  # noqa: UP045 - `|` is not for all that a schema can say
            self._arguments[name] = _Argument(key, drops_none)
            parameters.append(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind))

        parameters.sort(key=lambda one: one.default is not Parameter.empty)
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
        for name, argument in self._arguments.items():
            part = properties[argument.key] if isinstance(properties, Mapping) else None
            said = part.get("description") if isinstance(part, Mapping) else None
            if isinstance(said, str) and said.strip():
                lines.append(f"    {name}: {' '.join(said.split())}")
        if lines and not re.search(r"^\s*(Args|Arguments|Parameters):", text, re.MULTILINE):
            text = "\n".join([*([text, ""] if text else []), "Args:", *lines])
        return text or None

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The tool's arguments from those of a call: what was not given is not sent. Raises TypeError."""
        names = self._names
        given = {names.get(key, key): value for key, value in kwargs.items()} if names else kwargs
        bound = self.signature.bind(*args, **given).arguments
        others = bound.pop(self._others, {}) if self._others else {}
        found = {}
        for name, value in bound.items():
            argument = self._arguments[name]
            if value is not None or not argument.drops_none:
                found[argument.key] = value
        return {**others, **found}

    def value(self, result: CallToolResult) -> Any:
        """What the tool returned."""
        value = plain_value(result)
        # Versions before 2026-07-28 know objects only: what is none is wrapped, and the schema too.
        is_wrapped = isinstance(value, dict) and value.keys() == {"result"} and result.structured_content is not UNSET
        return value["result"] if is_wrapped and _wraps(_as_dict(self.tool.output_schema)) else value


def _wraps(schema: Mapping[str, Any]) -> bool:
    """Whether an output schema is that of an object which has nothing but a result."""
    properties, required = schema.get("properties"), schema.get("required")
    is_one = isinstance(properties, Mapping) and list(properties) == ["result"]
    return is_one and (required == ["result"] or schema.get("x-fastmcp-wrap-result") is True)


def _as_dict(schema: Any) -> dict[str, Any]:
    found = decode(schema) if isinstance(schema, Raw) else schema
    return found if isinstance(found, dict) else {}


def _identifier(name: str, taken: set[str]) -> str:
    """A name that Python takes, and that no other has."""
    wanted = re.sub(r"\W", "_", name) or "_"
    if wanted[0].isdigit():
        wanted = f"_{wanted}"
    if keyword.iskeyword(wanted) or wanted in ("self", "cls"):
        wanted += "_"  # what is called so is taken for a method's
    base, number = wanted, 1
    while wanted in taken:
        number += 1
        wanted = f"{base}_{number}"
    taken.add(wanted)
    return wanted


def _is_for_models(tool: Tool) -> bool:
    """Whether a model may call it: some are for an App alone. Spec: MCP Apps 2026-01-26, visibility."""
    shown = tool.meta.get("ui") if tool.meta else None
    visibility = shown.get("visibility") if isinstance(shown, dict) else None
    if isinstance(visibility, str):
        return visibility == "model"
    return visibility is None or (isinstance(visibility, list) and "model" in visibility)
