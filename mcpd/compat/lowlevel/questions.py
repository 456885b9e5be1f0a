"""Requests to a client as questions of ours."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.json import decode

from mcpd.compat.types.base import BaseRequest
from mcpd.compat.wire import as_json, struct_of
from mcpd.errors import LocalProtocolError
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    ListRootsParams,
    ListRootsResult,
)
from mcpd.server.context.questions import Question

__all__ = ["METHODS", "RawQuestion", "question_of"]

METHODS: dict[str, tuple[type[Struct], type[Struct], dict[str, Any], str]] = {
    "sampling/createMessage": (CreateMessageParams, CreateMessageResult, {"sampling": {}}, "Sampling not supported"),
    "elicitation/create": (
        ElicitFormParams,
        ElicitResult,
        {"elicitation": {"form": {}}},
        "Elicitation not supported",
    ),
    "roots/list": (ListRootsParams, ListRootsResult, {"roots": {}}, "List roots not supported"),
}
"""Of a method: its params, its result, the capability it needs, and what is said where a client lacks that."""


class RawQuestion(Question):
    """A question whose answer is given as the JSON that came."""

    def read(self, raw: Any) -> Any:
        """The answer."""
        return decode(raw)


def question_of(request: BaseRequest) -> RawQuestion:
    """A request to a client as a question of ours. Raises LocalProtocolError for one that is none."""
    method = METHODS.get(request.method)
    if method is None:
        raise LocalProtocolError(f"{request.method} cannot be asked of a client")
    params = {} if request.params is None else as_json(request.params)
    kind, result, needs, _ = method
    if params.get("mode") == "url":
        kind, needs = ElicitUrlParams, {"elicitation": {"url": {}}}
    return RawQuestion(request.method, struct_of(params, kind), result, needs)
