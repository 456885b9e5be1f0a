"""Conversion between the pydantic models of `compat.types` and the structs of `mcpd.types`, and checks of schemas.

Both are the same JSON. A model becomes a struct by way of its dump, as its own library writes it: with aliases, and
without members that are None.
"""

from __future__ import annotations

import logging
from typing import Any, TypeVar, cast

from msgspec import Struct, ValidationError, convert
from msgspec.json import decode
from pydantic import BaseModel

from mcpd.compat.types import features
from mcpd.compat.types.base import BaseRequest
from mcpd.errors import InternalError, LocalProtocolError
from mcpd.protocol.jsonrpc import explain
from mcpd.protocol.types.base import EmptyResult, ObjectResult, Result
from mcpd.protocol.types.features import (
    Annotations,
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    ToolAnnotations,
)
from mcpd.protocol.types.interaction import CompleteResult
from mcpd.server.context.questions import Question

log = logging.getLogger("mcpd")

S = TypeVar("S", bound=Struct)

REQUESTS: dict[str, type[BaseRequest]] = {
    "ping": features.PingRequest,
    "tools/list": features.ListToolsRequest,
    "tools/call": features.CallToolRequest,
    "resources/list": features.ListResourcesRequest,
    "resources/templates/list": features.ListResourceTemplatesRequest,
    "resources/read": features.ReadResourceRequest,
    "resources/subscribe": features.SubscribeRequest,
    "resources/unsubscribe": features.UnsubscribeRequest,
    "prompts/list": features.ListPromptsRequest,
    "prompts/get": features.GetPromptRequest,
    "completion/complete": features.CompleteRequest,
    "logging/setLevel": features.SetLevelRequest,
}
"""The requests that a client may send, by method."""

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

_EXTENSIBLE = (ToolAnnotations, Annotations, TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
"""Structs that may have members beyond the specification, which clients receive, too."""


def as_json(model: BaseModel) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def struct_of(members: Any, kind: type[S]) -> S:
    """Return JSON values as a struct. Raises InternalError if they do not fit."""
    try:
        return convert(members, kind)
    except ValidationError as error:
        raise InternalError(explain(error)) from error


def result_of(method: str, result: BaseModel, *, keeps_unknown: bool = True) -> Result:
    """Return the result of a method as a struct. A result that does not fit is sent as it is.

    With `keeps_unknown`, annotations and content blocks keep members that the specification does not have.
    """
    members = as_json(result)
    if method == "resources/read":
        # The contents are a union of structs without a tag; as dicts they are written unchanged.
        return ReadResourceResult(contents=members.get("contents", []), meta=members.get("_meta"))

    try:
        found = convert(members, _RESULTS[method])
        return cast("Result", _with_unknown(found, members)) if keeps_unknown else found
    except (ValidationError, KeyError):
        meta = members.pop("_meta", None)
        return ObjectResult(members=members, meta=meta)


def _with_unknown(found: Any, members: Any) -> Any:
    """Replace extensible structs that lack members of the JSON with that JSON."""
    if isinstance(found, list):
        return [_with_unknown(*pair) for pair in zip(found, members, strict=True)]
    if not isinstance(found, Struct):
        return found

    known = dict(zip(found.__struct_encode_fields__, found.__struct_fields__, strict=True))
    if isinstance(found, _EXTENSIBLE) and not members.keys() <= {*known, "type"}:
        return members
    for name in known.keys() & members.keys():
        value = getattr(found, known[name])
        if isinstance(value, (list, Struct)):
            setattr(found, known[name], _with_unknown(value, members[name]))
    return found


# -- requests to clients ---------------------------------------------------------------------

REFUSALS = {
    "sampling/createMessage": "Sampling not supported",
    "elicitation/create": "Elicitation not supported",
    "roots/list": "List roots not supported",
}
"""The methods that a client may serve, with the error message of the official SDK for a client that does not."""


class _RawQuestion(Question):
    # The response is passed on as the JSON that the client sent.
    def read(self, raw: Any) -> Any:
        return decode(raw)


def question_of(request: BaseRequest) -> Question:
    """Return a request to a client as mcpd's `Question`. Raises LocalProtocolError for other requests."""
    from mcpd.protocol.types.interaction import (
        CreateMessageParams,
        CreateMessageResult,
        ElicitFormParams,
        ElicitResult,
        ElicitUrlParams,
        ListRootsParams,
        ListRootsResult,
    )

    params = {} if request.params is None else as_json(request.params)
    kind: type[Struct]
    result: type[Struct]
    needs: dict[str, Any]
    if request.method == "sampling/createMessage":
        kind, result, needs = CreateMessageParams, CreateMessageResult, {"sampling": {}}
    elif request.method == "roots/list":
        kind, result, needs = ListRootsParams, ListRootsResult, {"roots": {}}
    elif request.method != "elicitation/create":
        raise LocalProtocolError(f"{request.method} cannot be sent to a client")
    elif params.get("mode") == "url":
        kind, result, needs = ElicitUrlParams, ElicitResult, {"elicitation": {"url": {}}}
    else:
        kind, result, needs = ElicitFormParams, ElicitResult, {"elicitation": {"form": {}}}
    return _RawQuestion(request.method, struct_of(params, kind), result, needs)


# -- JSON Schemas ----------------------------------------------------------------------------

_MOST_CHECKERS = 1000

_checkers: dict[int, tuple[dict[str, Any], Any]] = {}
_warned: set[str] = set()


def schema_problem(value: Any, schema: dict[str, Any]) -> str | None:
    """Return what is wrong with a value, in the words of `jsonschema`, or None. Raises an error for a bad schema.

    Without that package nothing is checked. The log mentions this once.
    """
    found = _checkers.get(id(schema))
    if found is None or found[0] is not schema:
        if len(_checkers) >= _MOST_CHECKERS:
            _checkers.clear()
        found = _checkers[id(schema)] = schema, _checker(schema)
    if found[1] is None:
        return None

    problem = found[1](value)
    return None if problem is None else str(problem.message)


def _checker(schema: dict[str, Any]) -> Any:
    try:
        from jsonschema import exceptions, validators
    except ImportError:
        if not _warned:
            _warned.add("jsonschema")
            log.warning("arguments are not checked against their schemas: pip install 'mcpd-server[compat]'")
        return None

    kind = validators.validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema)
    return lambda value: exceptions.best_match(validator.iter_errors(value))
