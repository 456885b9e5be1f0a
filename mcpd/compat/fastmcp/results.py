"""`ToolResult`, and how the value that a function returned becomes one: content blocks, and structured content.

The schemas of structured content, and those of arguments, are listed without titles.
"""

from __future__ import annotations

import types
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import pydantic_core
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from mcpd.compat.contents import Audio, File, Image, as_block
from mcpd.compat.errors import ToolError
from mcpd.compat.sdk.functions import includes
from mcpd.compat.types.base import ContentBlock, TextContent
from mcpd.compat.types.features import CallToolResult
from mcpd.protocol.schemas import subschemas
from mcpd.server.functions.plain_schema import inlined

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
        found = ToolResult(value.content, value.structuredContent, value.meta, value.isError)
        return found.model_copy(update={"content": value.content})

    # Content becomes structured content only if the author gave an output schema.
    content = _blocks(value)
    has_content = isinstance(value, _CONTENT) or (
        isinstance(value, (list, tuple)) and any(isinstance(item, _CONTENT) for item in value)
    )
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
    """Return a value as content blocks. A list without content in it is a single text."""
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
        except UnicodeDecodeError:
            return TextContent(text=b64encode(item).decode())
    return TextContent(text=item if isinstance(item, str) else _ANYTHING.dump_json(item, fallback=str).decode())


def _jsonable(value: Any, annotation: Any = Any) -> Any:
    """Return a value as JSON values, serialized according to its annotation."""
    if annotation in (None, ..., Any) or isinstance(annotation, str) or annotation.__class__ is type(Any):
        return _ANYTHING.dump_python(value, mode="json")
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

_KEYWORDS = frozenset(["type", "properties", "$ref", "items", "allOf", "oneOf", "anyOf", "required"])
_NAMING = frozenset(["title", "description", "deprecated", "readOnly", "writeOnly"])
_DEFINITIONS = "#/$defs/"


def dereferenced(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace references by their definitions, except in definitions that contain themselves."""
    definitions = schema.get("$defs")
    if not definitions:
        return schema
    return inlined({name: value for name, value in schema.items() if name != "$defs"}, definitions)


def pruned(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove titles, and follow a reference at the root."""
    root = _definition(schema, schema.get("$ref"))
    if "type" not in schema and root is not None:
        schema = {**{name: value for name, value in schema.items() if name != "$ref"}, **root}
    _remove_titles(schema)
    return schema


def _definition(schema: dict[str, Any], ref: Any) -> dict[str, Any] | None:
    if not isinstance(ref, str) or not ref.startswith(_DEFINITIONS):
        return None
    found = schema.get("$defs", {}).get(ref.removeprefix(_DEFINITIONS))
    return found if isinstance(found, dict) else None


def _remove_titles(node: dict[str, Any]) -> None:
    if isinstance(node.get("title"), str) and (not _KEYWORDS.isdisjoint(node) or _NAMING.issuperset(node)):
        del node["title"]
    for child in subschemas(node):
        _remove_titles(child)


def is_object(schema: dict[str, Any]) -> bool:
    found: dict[str, Any] | None = schema
    seen = []
    while found is not None and found not in seen:
        if found.get("type") == "object" or "properties" in found:
            return True
        seen.append(found)
        found = _definition(schema, found.get("$ref"))
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


def output_schema(hint: Any) -> dict[str, Any] | None:
    """Return the schema of structured results for a return annotation, None for other results."""
    if hint is None or hint is Any or hint is ... or isinstance(hint, str) or _is_untyped_list(hint):
        return None
    if includes(hint, (bytes, CallToolResult, ToolResult)):
        return None

    bare = _without_content(hint)
    try:
        schema = _schema(bare)
        if not is_object(schema):
            schema = _schema(_WrappedResult[bare])  # type: ignore[valid-type]
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
