"""Conversion between the pydantic models of `compat.types` and the structs of `mcpd.types`, and checks of schemas.

Both are the same JSON. A model becomes a struct by way of its dump, as its own library writes it: with aliases, and
without members that are None.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

from msgspec import Struct, ValidationError, convert
from msgspec.json import decode
from pydantic import BaseModel

from mcpd.compat.types import features
from mcpd.errors import InternalError, LocalProtocolError
from mcpd.protocol.jsonrpc import explain
from mcpd.protocol.types import features as structs, interaction
from mcpd.protocol.types.base import EmptyResult, ObjectResult, Result
from mcpd.protocol.versions import table
from mcpd.server.context.questions import Question

log = logging.getLogger("mcpd")

S = TypeVar("S", bound=Struct)

REQUESTS: dict[str, type[features.BaseRequest]] = {
    method: model
    for method, model in features._MESSAGES.items()
    if method != "initialize" and not method.startswith("notifications/")
}
"""The requests that a client may send after the handshake, by method."""

RESULTS: dict[str, type[Result]] = {
    "tools/list": structs.ListToolsResult,
    "tools/call": structs.CallToolResult,
    "resources/list": structs.ListResourcesResult,
    "resources/templates/list": structs.ListResourceTemplatesResult,
    "resources/read": structs.ReadResourceResult,
    "prompts/list": structs.ListPromptsResult,
    "prompts/get": structs.GetPromptResult,
    "completion/complete": interaction.CompleteResult,
}
"""The results of requests. Those of other methods are empty."""

_EXTENSIBLE = (
    structs.ToolAnnotations, structs.Annotations, structs.TextContent, structs.ImageContent, structs.AudioContent,
    structs.ResourceLink, structs.EmbeddedResource,
)  # fmt: skip
"""Structs that may have members beyond the specification, which clients receive, too."""


def as_json(model: BaseModel) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def struct_of(members: Any, kind: type[S]) -> S:
    """Return JSON values as a struct. Raises InternalError if they do not fit."""
    try:
        return convert(members, kind)
    except ValidationError as error:
        raise InternalError(explain(error)) from error


def result_of(method: str, result: BaseModel, *, keeps_unknown: bool) -> Result:
    """Return the result of a method as a struct. A result that does not fit is sent as it is.

    With `keeps_unknown`, annotations and content blocks keep members that the specification does not have.
    """
    members = as_json(result)
    if method == "resources/read":
        # The contents are a union of structs without a tag; as dicts they are written unchanged.
        return structs.ReadResourceResult(contents=members.get("contents", []), meta=members.get("_meta"))

    try:
        struct = convert(members, RESULTS.get(method, EmptyResult))
        return cast("Result", _with_unknown(struct, members)) if keeps_unknown else struct
    except ValidationError:
        meta = members.pop("_meta", None)
        return ObjectResult(members=members, meta=meta)


def _with_unknown(value: Any, members: Any) -> Any:
    # Replaces extensible structs that lack members of the JSON with that JSON.
    if isinstance(value, list):
        return [_with_unknown(*pair) for pair in zip(value, members, strict=True)]
    if not isinstance(value, Struct):
        return value

    known = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
    if isinstance(value, _EXTENSIBLE) and not members.keys() <= {*known, "type"}:
        return members
    for name in known.keys() & members.keys():
        setattr(value, known[name], _with_unknown(getattr(value, known[name]), members[name]))
    return value


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


_QUESTIONS: dict[str, tuple[type[Struct], type[Struct], dict[str, Any]]] = {
    "sampling/createMessage": (interaction.CreateMessageParams, interaction.CreateMessageResult, {"sampling": {}}),
    "roots/list": (interaction.ListRootsParams, interaction.ListRootsResult, {"roots": {}}),
    "elicitation/create": (interaction.ElicitFormParams, interaction.ElicitResult, {"elicitation": {"form": {}}}),
    "elicitation/create url": (interaction.ElicitUrlParams, interaction.ElicitResult, {"elicitation": {"url": {}}}),
}


def question_of(request: features.BaseRequest) -> Question:
    """Return a request to a client as mcpd's `Question`. Raises LocalProtocolError for other requests."""
    method = request.method
    if method not in REFUSALS:
        raise LocalProtocolError(f"{method} cannot be sent to a client")

    params = {} if request.params is None else as_json(request.params)
    kind, result, needs = _QUESTIONS[f"{method} url" if params.get("mode") == "url" else method]
    return _RawQuestion(method, struct_of(params, kind), result, needs)


# -- JSON Schemas ----------------------------------------------------------------------------

_MAX_VALIDATORS = 1000

_validators: dict[int, tuple[dict[str, Any], Any]] = {}


def schema_problem(value: Any, schema: dict[str, Any]) -> str | None:
    """Return what is wrong with a value, in the words of `jsonschema`, or None. Raises an error for a bad schema.

    Without that package nothing is checked. The log mentions this once.
    """
    # Schemas are dicts, which cannot be keys. The id of one may be used again after its end, so it is compared.
    kept = _validators.get(id(schema))
    if kept is None or kept[0] is not schema:
        if len(_validators) >= _MAX_VALIDATORS:
            _validators.clear()
        kept = _validators[id(schema)] = schema, _validator(schema)
    if kept[1] is None:
        return None

    from jsonschema.exceptions import best_match

    problem = best_match(kept[1].iter_errors(value))
    return None if problem is None else str(problem.message)


def _validator(schema: dict[str, Any]) -> Any:
    try:
        from jsonschema.validators import validator_for
    except ImportError:
        _warn_once()
        return None

    kind = validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


@cache
def _warn_once() -> None:
    log.warning("arguments are not checked against their schemas: pip install 'mcpd-server[compat]'")


# -- the tables of `mcp_types.methods` -------------------------------------------------------


def __getattr__(name: str) -> Any:
    # The model of each request or of its result, by its method and a protocol version that has it. Few servers look at
    # these tables, and making them loads every protocol version.
    if name == "CLIENT_REQUESTS":
        return _by_version({"initialize": features.InitializeRequest, **REQUESTS})
    if name == "SERVER_RESULTS":
        # A struct and its model have the same name.
        models = {method: getattr(features, RESULTS.get(method, EmptyResult).__name__) for method in REQUESTS}
        return _by_version({"initialize": features.InitializeResult, **models})
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _by_version(models: Mapping[str, type[Any]]) -> Mapping[tuple[str, str], type[Any]]:
    known = {version: table.get(version).requests for version in table.SUPPORTED}
    return MappingProxyType(
        {
            (method, version): model
            for version, requests in known.items()
            for method, model in models.items()
            if method in requests
        }
    )
