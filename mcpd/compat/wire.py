"""Between the pydantic models of `compat.types` and the structs of `mcpd.protocol.types`.

Both are the same JSON. Models become structs by way of what they dump, as their own library writes it on the wire:
aliases, without members that are None.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from msgspec import Struct, ValidationError, convert
from pydantic import BaseModel

from mcpd.errors import InternalError
from mcpd.protocol.jsonrpc import explain
from mcpd.protocol.types.base import EmptyResult, ObjectResult, Result
from mcpd.protocol.types.content import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcpd.protocol.types.interaction import CompleteResult
from mcpd.protocol.types.prompts import GetPromptResult, ListPromptsResult
from mcpd.protocol.types.resources import ListResourcesResult, ListResourceTemplatesResult, ReadResourceResult
from mcpd.protocol.types.tools import CallToolResult, ListToolsResult, ToolAnnotations

__all__ = ["as_json", "result_of", "struct_of"]

S = TypeVar("S", bound=Struct)

_RESULTS: dict[str, type[Result]] = {
    "tools/list": ListToolsResult,
    "tools/call": CallToolResult,
    "resources/list": ListResourcesResult,
    "resources/templates/list": ListResourceTemplatesResult,
    "prompts/list": ListPromptsResult,
    "prompts/get": GetPromptResult,
    "completion/complete": CompleteResult,
    "resources/subscribe": EmptyResult,
    "resources/unsubscribe": EmptyResult,
    "logging/setLevel": EmptyResult,
    "ping": EmptyResult,
}


_OPEN = (ToolAnnotations, Annotations, TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
"""What may have members beside those of the specification, which clients are sent, too."""


def as_json(model: BaseModel) -> Any:
    """A model as its JSON values."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def struct_of(members: Any, kind: type[S]) -> S:
    """JSON values as a struct. Raises InternalError for what does not fit."""
    try:
        return convert(members, kind)
    except ValidationError as error:
        raise InternalError(explain(error)) from error


def _with_unknown(found: Any, members: Any) -> Any:
    """A result as structs; hints and content blocks with members that the structs lack are the JSON they came as."""
    if isinstance(found, list):
        return [_with_unknown(*pair) for pair in zip(found, members, strict=True)]
    if not isinstance(found, Struct):
        return found
    known = dict(zip(found.__struct_encode_fields__, found.__struct_fields__, strict=True))
    if isinstance(found, _OPEN) and not members.keys() <= {*known, "type"}:
        return members
    for name in known.keys() & members.keys():
        value = getattr(found, known[name])
        if isinstance(value, (list, Struct)):
            setattr(found, known[name], _with_unknown(value, members[name]))
    return found


def result_of(method: str, result: BaseModel, *, keeps_unknown: bool = True) -> Result:
    """The result of a method as a struct; one that our structs cannot hold goes out as it is.

    If it `keeps_unknown`, so do hints and content blocks with members that the specification does not have.
    """
    members = as_json(result)
    if method == "resources/read":
        # A union of structs without a tag: dicts are written as they are.
        return ReadResourceResult(contents=members.get("contents", []), meta=members.get("_meta"))
    try:
        found = convert(members, _RESULTS[method])
        return cast("Result", _with_unknown(found, members)) if keeps_unknown else found
    except (ValidationError, KeyError):
        meta = members.pop("_meta", None)
        return ObjectResult(members=members, meta=meta)
