"""`mcp.server.streamable_http`: the names of a store of events. mcpd keeps events itself, and asks no such store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["EventCallback", "EventId", "EventMessage", "EventStore", "StreamId"]

StreamId: TypeAlias = str
EventId: TypeAlias = str


@dataclass
class EventMessage:
    """A message of a stream, with its number there."""

    message: Any
    event_id: EventId | None = None


EventCallback: TypeAlias = Callable[[EventMessage], Awaitable[None]]


class EventStore(ABC):
    """What a server may have of its own, and is not used: mcpd resumes streams from its own memory."""

    @abstractmethod
    async def store_event(self, stream_id: StreamId, message: Any) -> EventId:
        """Keep a message."""

    @abstractmethod
    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        """Send what came after one."""
