"""The settings of events. This module needs no other one of the package."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mcpd.errors import ConfigurationError

MODES = ("webhook", "push", "poll")
"""The ways in which events reach clients."""


class Events(Struct, frozen=True, kw_only=True):
    """How a server delivers its events, for `Server(events=…)`. Times are in seconds."""

    delivery: tuple[str, ...] = MODES
    """The ways that event types offer, unless they name their own."""
    store: str | None = None
    """Where webhook subscriptions and events are kept: sqlite:///PATH or redis://HOST; None for memory, or for the
    backplane of the processes that serve together."""
    buffer: tuple[int, float] = (10_000, 600.0)
    """How many events of a type are kept for clients that return with a cursor, and for how long."""
    heartbeat: float = 15.0
    """The time after which a quiet stream gets a heartbeat."""
    streams: int = 64
    """How many streams one client may have open."""
    ttl: float = 3600.0
    """For how long a webhook subscription lasts if its client asks for no time."""
    min_ttl: float = 60.0
    max_ttl: float = 86_400.0
    allow_endless: bool = False
    """Whether a client may subscribe without an end, which needs a store."""
    subscriptions: int = 100
    """How many webhook subscriptions one client may have."""
    all_subscriptions: int = 10_000
    allow: tuple[str, ...] = ()
    """URLs below which receivers need no proof that they want the events."""
    allow_private: tuple[str, ...] = ()
    """Origins of receivers that may have private addresses."""
    codes: Literal["sep", "sketch"] = "sep"
    """The error codes: those of SEP-3415, or those of the sketch before it."""
    webhook_id: Literal["event", "message"] = "event"
    """Whether `webhook-id` is the id of the event or one of the message."""
    profile: Literal["chatgpt"] | None = None
    """With "chatgpt" webhooks have neither `gap` nor `terminated`."""
    compat: bool = True
    """Whether the older capability `events` is announced too."""
    channel_rate: float = 0.2
    """How many texts per second a conversation gets at most, from event types with `channel=True`."""

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.delivery if mode not in MODES]
        if unknown or not self.delivery:
            raise ConfigurationError(f"Events: delivery must be some of {', '.join(MODES)}, not {self.delivery!r}")
        if self.buffer[0] < 0 or self.buffer[1] < 0 or self.heartbeat <= 0 or not self.min_ttl <= self.max_ttl:
            raise ConfigurationError("Events: a limit is negative, or min_ttl is more than max_ttl")
