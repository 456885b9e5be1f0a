"""What events are on the wire: an emitted event, canonical arguments, positions, and the errors of SEP-3415.

The codes of the errors are provisional, so each has those of the SEP and those of the sketch before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.json import encode

from mcpd.errors import ProtocolError


class Event(Struct, frozen=True, array_like=True):
    """An emitted event. `data` is JSON; `to` and `subscription` name the only ones who may get it."""

    name: str
    id: str
    timestamp: str
    data: bytes
    to: str = ""
    subscription: str = ""


def canonical(arguments: Mapping[str, Any]) -> bytes:
    """Return JSON that is the same for equal arguments (RFC 8785, as far as identity needs it)."""
    return encode(_plain(arguments), order="deterministic")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def order_of(position: str) -> tuple[int, ...]:
    """Return what positions of one log are compared by."""
    return tuple(map(int, position.split("-"))) if position else ()


class EventFailure(ProtocolError):
    """An error of the extension. `code` is the one of the SEP; `sketch` the one that older clients know."""

    sketch: ClassVar[int] = -32603

    def code_in(self, codes: str) -> int:
        """Return the code in one of the two sets, "sep" or "sketch"."""
        return self.sketch if codes == "sketch" else self.code


class NotFound(EventFailure):
    """There is no such event type or subscription; `kind` is "event" or "subscription"."""

    code = -32023
    sketch = -32011

    def __init__(self, kind: str, name: str = "") -> None:
        what = "event" if kind == "event" else "subscription"
        super().__init__(f"Unknown {what}: {name}" if name else f"Unknown {what}", {"kind": kind})


class Forbidden(EventFailure):
    """The caller may not have these events."""

    code = -32024
    sketch = -32012

    def __init__(self, message: str = "You may not receive these events", reason: str = "") -> None:
        super().__init__(message, {"reason": reason} if reason else None)


class ResourceExhausted(EventFailure):
    """A limit is reached."""

    code = -32025
    sketch = -32013

    def __init__(self, limit: str, most: int | None = None, message: str = "") -> None:
        data: dict[str, Any] = {"limit": limit} if most is None else {"limit": limit, "max": most}
        super().__init__(message or f"The limit of {limit} is reached: end some, or try later", data)


class Unsupported(EventFailure):
    """The event type does not have the feature: "deliveryMode", "inputSchema" or "payloadSchema"."""

    code = -32026
    sketch = -32014

    def __init__(self, feature: str, value: str | None = None, reason: str | None = None, message: str = "") -> None:
        data = {"feature": feature, "value": value, "reason": reason}
        text = message or f"Not supported by this event: {feature}{'' if value is None else f' {value}'}"
        super().__init__(text, {name: each for name, each in data.items() if each is not None})


class CallbackEndpointError(EventFailure):
    """The receiver of a webhook did not prove that it wants these events. `reason` is a category, never its answer."""

    code = -32027
    sketch = -32015

    def __init__(self, reason: str) -> None:
        super().__init__(f"The webhook's receiver cannot be used: {reason}", {"reason": reason})


def error_object(failure: ProtocolError, codes: str) -> dict[str, Any]:
    """Return a failure as the member `error` of a message."""
    code = failure.code_in(codes) if isinstance(failure, EventFailure) else failure.code
    error = {"code": code, "message": failure.message}
    return error if failure.data is None else {**error, "data": failure.data}
