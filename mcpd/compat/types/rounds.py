"""`InputRequiredResult`: an answer of 2026-07-28 that asks the client first, and what comes with the next round."""

from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from mcpd.compat.types import asking
from mcpd.compat.types.base import BaseRequest, Result

__all__ = [
    "InputRequest",
    "InputRequests",
    "InputRequiredResult",
    "InputResponse",
    "InputResponses",
    "request_of",
    "responses",
]

InputRequest: TypeAlias = asking.ElicitRequest | asking.CreateMessageRequest | asking.ListRootsRequest
InputResponse: TypeAlias = asking.ElicitResult | asking.CreateMessageResult | asking.ListRootsResult
InputRequests: TypeAlias = dict[str, InputRequest]
InputResponses: TypeAlias = dict[str, InputResponse]


class InputRequiredResult(Result):
    """Questions, each by a name of the server's, and a state that comes back with the answers."""

    resultType: Literal["input_required"] = "input_required"
    inputRequests: dict[str, Any] | None = None
    requestState: str | None = None


def responses(came: dict[str, Any] | None) -> InputResponses | None:
    """The answers, each as the result that it is."""
    if came is None:
        return None
    reads: TypeAdapter[Any] = TypeAdapter(InputResponse)
    return {name: reads.validate_python(one) for name, one in came.items()}


def request_of(asked: Any) -> InputRequest:
    """A question as its model, of a model or a dict."""
    found: InputRequest = asked if isinstance(asked, BaseRequest) else TypeAdapter(InputRequest).validate_python(asked)  # type: ignore[assignment]
    return found
