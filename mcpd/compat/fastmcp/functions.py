"""An author's function: parameters that clients fill in or that are injected, its docstring, and its results.

pydantic validates the arguments as a call of a function with the first kind of parameters only. That way its errors
name the function and the parameter. A value that a function returned becomes content blocks and structured content.
The schemas of that, and those of arguments, are listed without titles.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, validate_call
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from mcpd.compat.contents import Audio, File, Image, as_block
from mcpd.compat.errors import ToolError
from mcpd.compat.lowlevel.session import SharedContext
from mcpd.compat.sdk.functions import call, includes, remove_titles, type_hints, warn_of_untyped_context
from mcpd.compat.types.features import CallToolResult, ContentBlock, TextContent
from mcpd.server.functions.annotations import call_method, docstring_of, is_coroutine_function
from mcpd.server.functions.docstring import parse
from .context import CurrentContext, Dependency, OptionalCurrentContext, resolve


class Function:
    """A function for a component. `kind` is the plural that errors name, such as "tools".

    Raises ValueError for parameters that clients cannot fill in, and for a lambda without a `name`.
    """

    def __init__(self, fn: Any, kind: str, *, name: str | None = None, takes_keywords: bool = False) -> None:
        named = fn
        while isinstance(named, functools.partial) and not hasattr(named, "__name__"):
            named = named.func
        self.name = getattr(named, "__name__", None) or type(named).__name__
        self.component_name = name or self.name
        self._original = fn
        # A callable object is called by its method, whose signature has the parameters.
        if isinstance(fn, staticmethod):
            fn = fn.__func__
        elif not inspect.isroutine(fn) and not isinstance(fn, functools.partial):
            fn = fn.__call__
        self.fn: Callable[..., Any] = fn
        # The signature names the parameters. The types in it may be strings, so hints are read beside it.
        self.signature = inspect.signature(fn)
        self.hints = {name: _with_description(hint) for name, hint in type_hints(fn).items()}
        self.injected = self._find_injected()
        warn_of_untyped_context(fn, self.name)
        self._check(kind, takes_keywords)

    def _check(self, kind: str, takes_keywords: bool) -> None:
        if self.component_name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        for parameter in self.signature.parameters.values():
            # Clients send arguments by name, so a function must accept all of them by name.
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise ValueError(f"Functions with *args are not supported as {kind}")
            if parameter.kind is parameter.VAR_KEYWORD and not takes_keywords:
                raise ValueError(f"Functions with **kwargs are not supported as {kind}")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ValueError(f"Functions with positional-only parameters are not supported as {kind}")

    def _find_injected(self) -> dict[str, Dependency[Any]]:
        injected: dict[str, Dependency[Any]] = {}
        for name, parameter in self.signature.parameters.items():
            hint = self.hints.get(name, parameter.annotation)
            if isinstance(parameter.default, Dependency):
                injected[name] = parameter.default
            elif includes(hint, SharedContext):
                injected[name] = CurrentContext() if parameter.default is parameter.empty else OptionalCurrentContext()
            elif get_origin(hint) is Annotated:
                injected.update((name, mark) for mark in get_args(hint)[1:] if isinstance(mark, Dependency))
        return injected

    @property
    def doc(self) -> str | None:
        """The docstring of the function, or of the class of a callable object."""
        kind = type(self._original)
        of_class = inspect.getdoc(kind) if kind.__doc__ and call_method(self._original) else None
        return of_class or docstring_of(self._original)

    @cached_property
    def arguments(self) -> dict[str, inspect.Parameter]:
        """The parameters that clients fill in."""
        return {name: parameter for name, parameter in self.signature.parameters.items() if name not in self.injected}

    @cached_property
    def returns(self) -> Any:
        """The return annotation, or `inspect.Signature.empty`."""
        written = self.signature.return_annotation
        return None if written is None else self.hints.get("return", written)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Validates arguments, and has their schema."""
        return TypeAdapter(self._binder())

    @cached_property
    def _validated_call(self) -> Callable[..., Any]:
        function: Callable[..., Any] = validate_call(self._binder())
        return function

    def _binder(self) -> Any:
        def bind(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
            return signature.bind(*args, **kwargs)

        signature = inspect.Signature(list(self.arguments.values()))
        wrapper: Any = bind
        wrapper.__name__ = wrapper.__qualname__ = self.name
        wrapper.__signature__ = signature
        # pydantic evaluates strings in the function's own module.
        wrapper.__module__ = self.fn.__module__
        wrapper.__annotations__ = {
            name: self.hints.get(name, parameter.annotation)
            for name, parameter in self.arguments.items()
            if name in self.hints or parameter.annotation is not parameter.empty
        }
        return wrapper

    def validated(self, arguments: dict[str, Any], *, by_name: bool = False) -> dict[str, Any]:
        """Return the arguments of a call. Raises pydantic's ValidationError, which names the call, or with `by_name`
        the function."""
        bound = self._validated_call(**arguments) if by_name else self.adapter.validate_python(arguments)
        values = {**bound.arguments}
        for name, parameter in self.arguments.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                values.update(values.pop(name, {}))
        return values

    async def call(self, values: dict[str, Any], *, in_thread: bool = True) -> Any:
        """Call the function with these values and the injected ones. A generator's items are returned as a list."""
        async with AsyncExitStack() as stack:
            injected = await resolve(self.injected, stack) if self.injected else {}
            function = functools.partial(self.fn, **values, **injected)
            # Only calls that may block go to a thread.
            is_plain = not is_coroutine_function(self.fn) and not inspect.isasyncgenfunction(self.fn)
            result = await call(functools.partial(_call_fully, function), in_thread=in_thread and is_plain)
            return [item async for item in result] if inspect.isasyncgen(result) else result


def _call_fully(function: Callable[[], Any]) -> Any:
    result = function()
    return list(result) if inspect.isgenerator(result) else result


def _with_description(hint: Any) -> Any:
    # Returns `Annotated[str, "text"]` with the text as its description.
    if get_origin(hint) is Annotated and len(parts := get_args(hint)) == 2 and isinstance(parts[1], str):
        return Annotated[parts[0], Field(description=parts[1])]
    return hint


# -- docstrings ------------------------------------------------------------------------------

# The layouts are Google's ("Args:" over an indented block), NumPy's (a heading over dashes) and reST's (":param x:").

_HEADING = re.compile(r"^(\w[\w\s-]*):(?:\s+\S.*)?\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\(.*?\))?:\s*(.*)$")
_OTHER_SECTION = re.compile(
    r"^(?:(?P<heading>\w[\w ]*)\n-{3,}\s*|:(?:param|arg|argument|key|keyword|type|returns?|rtype|raises?)\b.*)$",
    re.MULTILINE,
)
"""The beginning of a section in NumPy's layout, or of a field in reST."""
_ARGUMENTS = frozenset(("args", "arguments", "params", "parameters"))
_ITEMIZED = _ARGUMENTS | {"exceptions", "raises"}
_KNOWN = _ARGUMENTS | frozenset(
    ("keyword args", "keyword arguments", "other args", "other arguments", "other params", "other parameters",
     "type args", "type arguments", "type params", "type parameters", "type aliases", "raises", "exceptions",
     "returns", "yields", "receives", "examples", "attributes", "functions", "methods", "classes", "modules",
     "warns", "warnings", "attention", "caution", "danger", "error", "example", "hint", "important", "note", "notes",
     "raise", "references", "return", "see also", "see-also", "tip", "todo", "warning", "yield")
)  # fmt: skip
"""Headings that end a description. Text under any other heading is part of it, unless one of these follows."""


def described(doc: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the description in a docstring and the texts of the parameters, in the way of `fastmcp`."""
    if not doc:
        return None, {}

    sections = _sections(doc.split("\n"))
    if any(name in _KNOWN and not (name in _ITEMIZED and _is_prose(block)) for name, block in sections):
        texts: dict[str, str] = {}
        for name, block in sections:
            if name in _ARGUMENTS:
                texts.update(_entries(block))
        prose = ("\n".join(block).strip() for name, block in sections if not name)
        return next(filter(None, prose), None), texts

    for other in _OTHER_SECTION.finditer(doc):
        if other["heading"] is None or other["heading"].lower() in _KNOWN:
            return doc[: other.start()].strip() or None, parse(doc).parameters
    return doc, {}


def dropped_lines(doc: str | None) -> list[str]:
    """Return the lines about arguments that `fastmcp` drops, since they are not `name: text`."""
    lines: list[str] = []
    for name, block in _sections((doc or "").split("\n")):
        if name in _ARGUMENTS and not _is_prose(block):
            indent = _indent(block)
            outermost = (line[indent:].rstrip() for line in block if line[indent : indent + 1].strip())
            lines += (line for line in outermost if not _ENTRY.match(line))
    return lines


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    # Returns each heading with its indented block. Lines outside of sections have the heading "".
    sections: list[tuple[str, list[str]]] = [("", [])]
    is_code = False
    at = 0
    while at < len(lines):
        is_code ^= lines[at].lstrip().startswith("```")
        heading = None if is_code or (at and lines[at - 1].strip()) else _HEADING.match(lines[at])
        end = at + 1
        if heading is None or not "".join(lines[end : end + 1]).startswith(" "):
            sections[-1][1].append(lines[at])
        else:
            while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
                end += 1
            sections += [(heading[1].lower(), lines[at + 1 : end]), ("", [])]
        at = end
    return sections


def _indent(block: list[str]) -> int:
    return next((len(line) - len(line.lstrip()) for line in block if line.strip()), 0)


def _is_prose(block: list[str]) -> bool:
    # Returns whether none of the outermost lines has a colon.
    indent = _indent(block)
    return not any(":" in line and line[indent : indent + 1].strip() for line in block)


def _entries(block: list[str]) -> dict[str, str]:
    # Returns the texts of `name (type): text`. Lines that are indented below lose two indents, or all they have.
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    indent = _indent(block)
    for line in block:
        text = line[indent:]
        if text[:1].strip():
            entry = _ENTRY.match(text)
            current = [] if entry is None else entries.setdefault(entry[1], [entry[2]])
        else:
            current.append(line[2 * indent :] if line.startswith(2 * indent * " ") else line.lstrip())
    return {name: "\n".join(texts).rstrip("\n") for name, texts in entries.items()}


T = TypeVar("T")

# Infinity and NaN are kept, so that they are rejected and do not become null.
_WITH_INFINITY = ConfigDict(ser_json_inf_nan="constants")
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any, config=_WITH_INFINITY)

_BLOCKS: tuple[type, ...] = ContentBlock.__args__
_CONTENT: tuple[type, ...] = (*_BLOCKS, Image, Audio, File)


class ToolResult(BaseModel):
    """A complete result: content, structured content, `_meta`, and whether the tool failed."""

    content: list[Any]
    structured_content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    is_error: bool = False

    def __init__(
        self,
        content: Any = None,
        structured_content: Any = None,
        meta: dict[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        if content is None and structured_content is None:
            raise ValueError("Either content or structured_content must be provided")
        if structured_content is not None:
            plain = _jsonable(structured_content)
            if not isinstance(plain, dict):
                raise ValueError(
                    f"structured_content must be a dict or None. Got {type(plain).__name__}: {plain!r}. "
                    "Tools should wrap non-dict values based on their output_schema."
                )
            if content is None:
                content = structured_content
            structured_content = plain
        super().__init__(content=_blocks(content), structured_content=structured_content, meta=meta, is_error=is_error)

    def to_mcp_result(self) -> CallToolResult:
        return CallToolResult(
            content=self.content, structuredContent=self.structured_content, isError=self.is_error, meta=self.meta
        )


def tool_result(value: Any, schema: dict[str, Any] | None, annotation: Any) -> ToolResult:
    """Return the value of a function as a result.

    Raises ValueError if the schema asks for JSON that the value cannot be, and ToolError for NaN and infinity.
    """
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, CallToolResult):
        result = ToolResult(value.content, value.structuredContent, value.meta, value.isError)
        return result.model_copy(update={"content": value.content})

    # Content becomes structured content only if the author gave an output schema.
    content = _blocks(value)
    items = value if isinstance(value, (list, tuple)) else [value]
    has_content = any(isinstance(item, _CONTENT) for item in items)
    if isinstance(value, bytes) or (schema is None and has_content):
        return ToolResult(content)

    try:
        plain = _jsonable(value, annotation)
    except (pydantic_core.PydanticSerializationError, UnicodeDecodeError):
        if schema is not None:
            raise
        return ToolResult(content)
    if not has_content:
        _reject_non_finite(plain)
        content = _blocks(plain)
    if schema is None:
        return ToolResult(content, plain if isinstance(plain, dict) else None)
    if schema.get(_WRAPS):
        return ToolResult(content, {"result": plain}, {"fastmcp": {"wrap_result": True}})
    return ToolResult(content, plain)


def _blocks(value: Any) -> list[Any]:
    # Returns a value as content blocks. A list without content in it is a single text.
    if value is None:
        return []
    if isinstance(value, (list, tuple)) and (not value or any(isinstance(item, _CONTENT) for item in value)):
        return [_block(item) for item in value]
    return [_block(value)]


def _block(item: Any) -> Any:
    item = as_block(item)
    if isinstance(item, _BLOCKS):
        return item
    if isinstance(item, bytes):
        try:
            return TextContent(text=item.decode())
        # Bytes without a MIME type fit into no content block.
        except UnicodeDecodeError:
            return TextContent(text=b64encode(item).decode())
    return TextContent(text=item if isinstance(item, str) else _ANYTHING.dump_json(item, fallback=str).decode())


def _jsonable(value: Any, annotation: Any = Any) -> Any:
    # A value is serialized according to its annotation, if it is one that pydantic knows.
    if annotation in (None, ...) or isinstance(annotation, str):
        annotation = Any
    try:
        return _adapter(annotation).dump_python(value, mode="json")
    except (PydanticSchemaGenerationError, AttributeError):
        return _ANYTHING.dump_python(value, mode="json")


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=_WITH_INFINITY)
    except PydanticUserError:  # a model, which has its own configuration
        return TypeAdapter(annotation)


def _reject_non_finite(value: Any, path: str = "$") -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ToolError(
            f"Tool result contains a non-finite float ({value!r}) at {path}; JSON cannot represent NaN or Infinity"
        )
    if isinstance(value, dict):
        for name, member in value.items():
            _reject_non_finite(member, f"{path}.{name}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            _reject_non_finite(item, f"{path}[{index}]")


# -- schemas ---------------------------------------------------------------------------------

_WRAPS = "x-fastmcp-wrap-result"
"""The keyword of an output schema whose results are the member `result` of an object."""

_DEFINITIONS = "#/$defs/"


def pruned(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove titles, and follow a reference at the root."""
    root = _definition(schema, schema.get("$ref"))
    # Clients expect an object at the root, and pydantic puts a reference there for recursive models.
    if "type" not in schema and root is not None:
        schema = {**{name: value for name, value in schema.items() if name != "$ref"}, **root}
    remove_titles(schema)
    return schema


def _definition(schema: dict[str, Any], ref: Any) -> dict[str, Any] | None:
    if not isinstance(ref, str) or not ref.startswith(_DEFINITIONS):
        return None
    definition = schema.get("$defs", {}).get(ref.removeprefix(_DEFINITIONS))
    return definition if isinstance(definition, dict) else None


def is_object(schema: dict[str, Any]) -> bool:
    node: dict[str, Any] | None = schema
    seen = []
    while node is not None and node not in seen:
        if node.get("type") == "object" or "properties" in node:
            return True
        seen.append(node)
        node = _definition(schema, node.get("$ref"))
    return False


@dataclass
class _WrappedResult(Generic[T]):
    result: T


class _NoSchema:
    """Replaces types whose values are content, and not structured output."""


class _ByName(GenerateJsonSchema):
    """Uses the names of members, and not their aliases, unless a class is serialized by alias."""

    def model_schema(self, schema: Any) -> Any:
        return self._named(super().model_schema, schema, schema["cls"].model_config.get("serialize_by_alias"))

    def dataclass_schema(self, schema: Any) -> Any:
        return self._named(super().dataclass_schema, schema, (schema.get("config") or {}).get("serialize_by_alias"))

    def _named(self, make: Any, schema: Any, by_alias: bool | None) -> Any:
        before, self.by_alias = self.by_alias, bool(by_alias)
        try:
            return make(schema)
        finally:
            self.by_alias = before


def result_schema(hint: Any) -> dict[str, Any] | None:
    """Return the schema of structured results for a return annotation, None for other results."""
    is_absent = any(hint is absent for absent in (None, Any, ..., inspect.Signature.empty))
    if is_absent or isinstance(hint, str) or _is_untyped_list(hint):
        return None
    if includes(hint, (bytes, CallToolResult, ToolResult)):
        return None

    bare = _without_content(hint)
    try:
        schema = _schema(bare)
        if not is_object(schema):
            schema = _schema(_WrappedResult[bare])  # type: ignore[valid-type]
            # Clients of the library unwrap such a result again.
            schema[_WRAPS] = True
    except (PydanticSchemaGenerationError, TypeError):
        return None
    return pruned(schema) or None


def _schema(hint: Any) -> dict[str, Any]:
    return TypeAdapter(hint).json_schema(mode="serialization", by_alias=False, schema_generator=_ByName)


def _is_untyped_list(hint: Any) -> bool:
    # The items of such a list decide what it becomes.
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    origin, arguments = get_origin(hint), get_args(hint)
    lists = (list, tuple, Sequence)
    if hint in lists or (origin in lists and not arguments):
        return True
    if origin is tuple:
        return arguments == (Any, ...)
    return origin in lists and all(argument is Any for argument in arguments)


def _without_content(hint: Any) -> Any:
    try:
        if hint in (*_CONTENT, ToolResult):
            return _NoSchema
    except TypeError:  # it cannot be compared
        return hint

    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_without_content(arguments[0]), *arguments[1:])]
    if origin is None or not any(isinstance(argument, type) or get_origin(argument) for argument in arguments):
        return hint
    changed = tuple(map(_without_content, arguments))
    if changed == arguments:
        return hint
    return Union[changed] if origin in (Union, types.UnionType) else origin[changed]  # noqa: UP007
