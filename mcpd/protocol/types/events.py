"""Events: the extension of 2026-07-28 by which clients learn of what happens while nobody calls.

Most servers and clients never load this module. Times are RFC 3339 texts, durations are milliseconds. A cursor is
written even if it is null, because clients in the field require the member.

Spec: SEP-3415.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Raw, field

from .base import META, NO_JSON, NO_META, Meta, Params, Result, Wire

# The id of the extension.
EVENTS = f"{META}events"

Mode: TypeAlias = Literal["poll", "push", "webhook"]


def _null() -> Any:
    return field(default_factory=lambda: None)  # a plain default would not be encoded


class EventType(Wire, kw_only=True):
    """A kind of event that a server offers. `input_schema` describes the arguments of a subscription to it."""

    name: str
    description: str | None = None
    delivery: list[str]
    input_schema: dict[str, Any] | Raw
    payload_schema: dict[str, Any] | Raw
    meta: Meta = NO_META


class Occurrence(Wire, kw_only=True):
    """One event. `cursor` is absent in results of `events/poll`, which have one for all their events."""

    event_id: str
    name: str
    timestamp: str
    data: Raw = NO_JSON
    cursor: str | None = None
    meta: Meta = NO_META


class ListEventsResult(Result, kw_only=True):
    """One page of the event types of a server."""

    events: list[EventType]
    next_cursor: str | None = None


class EventParams(Params, kw_only=True):
    """The params of `events/stream`, and those that `events/poll` and `events/subscribe` share."""

    name: str
    arguments: Raw = NO_JSON
    cursor: str | None = None
    max_age_ms: int | None = None


class PollParams(EventParams, kw_only=True):
    """The params of `events/poll`."""

    max_events: int | None = None


class PollResult(Result, kw_only=True):
    """Events in order of production; `cursor` continues after the last one."""

    events: list[Occurrence]
    cursor: str | None = _null()
    truncated: bool = field(default_factory=lambda: False)
    has_more: bool = field(default_factory=lambda: False)
    next_poll_ms: int = field(default_factory=lambda: 0)


class Delivery(Wire, kw_only=True):
    """Where a server sends webhooks, and the client's secret for their signatures."""

    mode: str = "webhook"
    url: str
    secret: str = ""


class SubscribeParams(EventParams, kw_only=True):
    """The params of `events/subscribe`. `ttl_ms` is NO_JSON for the server's default, and null for no end."""

    delivery: Delivery
    ttl_ms: Raw = NO_JSON


class DeliveryStatus(Wire, kw_only=True):
    """How the deliveries of a subscription go. `active` is False if this refresh has revived the subscription."""

    active: bool = field(default_factory=lambda: True)
    last_delivery_at: str | None = _null()
    last_error: str | None = _null()
    failed_since: str | None = _null()
    throttled: bool = False
    retry_after_ms: int | None = None


class SubscribeResult(Result, kw_only=True):
    """A webhook subscription. `refresh_before` is None if it has no end."""

    id: str
    refresh_before: str | None = _null()
    cursor: str | None = _null()
    truncated: bool = field(default_factory=lambda: False)
    delivery_status: DeliveryStatus | None = None


class UnsubscribeParams(Params, kw_only=True):
    """The params of `events/unsubscribe`, which name the subscription by its key."""

    name: str
    arguments: Raw = NO_JSON
    delivery: Delivery


class EventError(Wire, kw_only=True):
    """The JSON-RPC error of an event, or of a subscription that has ended."""

    code: int
    message: str
    data: Any = None


class StreamParams(Params, kw_only=True):
    """The params of each notification of a stream, as far as they are not an `Occurrence`."""

    cursor: str | None = _null()
    truncated: bool = False
    error: EventError | None = None


# -- the notifications of a stream, as a server writes them -------------------------------------


class ActiveParams(Wire, kw_only=True):
    """A stream has begun, or goes on after a gap."""

    cursor: str | None
    truncated: bool
    meta: Meta = NO_META


class HeartbeatParams(Wire, kw_only=True):
    """A stream without events is alive."""

    cursor: str | None
    meta: Meta = NO_META


class ProblemParams(Wire, kw_only=True):
    """One event could not be sent, or the stream is over."""

    error: EventError
    meta: Meta = NO_META


class StreamEvent(Wire, kw_only=True):
    """An event on a stream, with its cursor."""

    event_id: str
    name: str
    timestamp: str
    data: Raw
    cursor: str | None
    meta: Meta = NO_META


class ChannelParams(Wire, kw_only=True):
    """A text for a running conversation (`notifications/claude/channel`)."""

    content: str
    meta: dict[str, str]
