"""JSON schemas as this library lists them: without titles, without definitions that nothing needs, inlined."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema

from mcpd.compat.fastmcp.media import Audio, File, Image
from mcpd.compat.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from mcpd.compat.types.tools import CallToolResult
from mcpd.server.functions.plain_schema import inlined, subschemas

__all__ = ["WRAPS", "dereferenced", "is_object", "output_schema", "pruned"]

WRAPS = "x-fastmcp-wrap-result"
"""Of an output schema: results are the member `result` of an object."""

_KEYWORDS = frozenset(["type", "properties", "$ref", "items", "allOf", "oneOf", "anyOf", "required"])
_NAMING = frozenset(["title", "description", "deprecated", "readOnly", "writeOnly"])

T = TypeVar("T")


@dataclass
class _WrappedResult(Generic[T]):
    result: T


class _NoSchema:
    """In the place of types whose values are content, and no structured output."""


_CONTENT = (Image, Audio, File, TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)


def dereferenced(schema: dict[str, Any]) -> dict[str, Any]:
    """Each reference replaced by what it names; what contains itself stays where it is."""
    definitions = schema.get("$defs")
    if not definitions:
        return schema
    return inlined({name: value for name, value in schema.items() if name != "$defs"}, definitions)


def pruned(schema: dict[str, Any]) -> dict[str, Any]:
    """Without titles; a reference at the root is followed, and definitions that nothing needs go."""
    schema = _rooted(schema)
    _drop_titles(schema)
    needed: set[str] = set()
    waiting = [{name: value for name, value in schema.items() if name != "$defs"}]
    definitions = schema.get("$defs", {})
    while waiting:
        for name in _names_in(waiting.pop()) - needed:
            needed.add(name)
            if name in definitions:
                waiting.append(definitions[name])
    if definitions:
        left = {name: value for name, value in definitions.items() if name in needed}
        schema = {name: value for name, value in schema.items() if name != "$defs"}
        if left:
            schema["$defs"] = left
    return schema


def _rooted(schema: dict[str, Any]) -> dict[str, Any]:
    ref = schema.get("$ref")
    if "type" in schema or not isinstance(ref, str) or not ref.startswith("#/$defs/"):
        return schema
    target = schema.get("$defs", {}).get(ref.removeprefix("#/$defs/"))
    if not isinstance(target, dict):
        return schema
    return {**{name: value for name, value in schema.items() if name != "$ref"}, **target}


def _drop_titles(node: dict[str, Any]) -> None:
    if isinstance(node.get("title"), str) and (not _KEYWORDS.isdisjoint(node) or _NAMING.issuperset(node)):
        del node["title"]
    for child in subschemas(node):
        _drop_titles(child)


def _names_in(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*(_names_in(one) for one in node))
    if not isinstance(node, dict):
        return set()
    ref = node.get("$ref")
    found = {ref.removeprefix("#/$defs/")} if isinstance(ref, str) and ref.startswith("#/$defs/") else set()
    return found.union(*(_names_in(one) for one in node.values()))


def is_object(schema: dict[str, Any]) -> bool:
    """Whether it describes objects."""
    root, seen = schema, set()
    while True:
        if schema.get("type") == "object" or "properties" in schema:
            return True
        ref = schema.get("$ref")
        if not isinstance(ref, str) or ref in seen or not ref.startswith("#/$defs/"):
            return False
        seen.add(ref)
        schema = root.get("$defs", {}).get(ref.removeprefix("#/$defs/"), {})


class _ByName(GenerateJsonSchema):
    """Members by their names, unless a class says that it is written by its aliases."""

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


def output_schema(hint: Any, without: tuple[type, ...] = ()) -> dict[str, Any] | None:
    """The schema of structured results by a return annotation; None if they have none. `without`: more such types."""
    if hint is None or hint is Any or hint is ... or isinstance(hint, str) or _is_loose(hint):
        return None
    if _has(hint, (bytes,), deep=False) or _has(hint, (CallToolResult, *without), deep=False):
        return None
    bare = _replaced(hint, frozenset((*_CONTENT, *without)))
    try:
        schema = _schema(bare)
        if not is_object(schema):
            schema = _schema(_WrappedResult[bare])  # type: ignore[valid-type]
            schema[WRAPS] = True
    except (PydanticSchemaGenerationError, TypeError):
        return None
    return pruned(schema) or None


def _schema(hint: Any) -> dict[str, Any]:
    return TypeAdapter(hint).json_schema(mode="serialization", by_alias=False, schema_generator=_ByName)


def _is_loose(hint: Any) -> bool:
    """Whether it is a list of anything: what is in it decides what it becomes."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    kinds, arguments = (list, tuple, Sequence), get_args(hint)
    if hint in kinds or (get_origin(hint) in kinds and not arguments):
        return True
    origin = get_origin(hint)
    if origin is tuple:
        return arguments == (Any, ...)
    return origin in (list, Sequence, kinds[2]) and all(one is Any for one in arguments)


def _has(hint: Any, kinds: tuple[type, ...], *, deep: bool) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_has(one, kinds, deep=deep) for one in get_args(hint))
    if origin is Annotated:
        return _has(get_args(hint)[0], kinds, deep=deep)
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, kinds)


def _replaced(hint: Any, kinds: frozenset[type]) -> Any:
    try:
        if hint in kinds:
            return _NoSchema
    except TypeError:  # it cannot be hashed
        return hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_replaced(arguments[0], kinds), *arguments[1:])]
    if origin is None or not any(isinstance(one, type) or get_origin(one) for one in arguments):
        return hint
    changed = tuple(_replaced(one, kinds) for one in arguments)
    if changed == arguments:
        return hint
    return Union[changed] if origin in (Union, types.UnionType) else origin[changed]  # noqa: UP007
