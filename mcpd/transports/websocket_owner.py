"""What a WebSocket connection knows of the server that it belongs to: the limits, and what all connections share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from ..channel import Channel, Receiver
from ..principal import Principal
from ..serve_defaults import MAX_FRAME_BYTES
from .accepting import ConnectionLimit, CountedConnections
from .websocket_handshake import Admission

__all__ = ["ConnectionOwner", "OpenConnection", "WebSocketLimits"]


class WebSocketLimits(Struct, frozen=True, kw_only=True):
    """What one client may use. Times are in seconds; a `ping_interval` of 0 sends no pings.

    Reading stops while more than 1 MiB waits for a client; `max_queued_bytes` is for what calls that run
    already still answer, and bounds the memory that a client which does not read can hold.
    `max_connections` is for all of them together, those in their handshake too; `max_authenticating` for those of
    whom it is not known yet who they are.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    max_queued_bytes: int = 256 * 1024 * 1024
    max_connections: int = 1000
    max_authenticating: int = 256
    open_timeout: float = 10.0
    close_timeout: float = 2.0
    ping_interval: float = 20.0
    ping_timeout: float = 20.0


class OpenConnection(Protocol):
    """One of them, as far as its owner goes."""

    def pause(self) -> None:
        """Read nothing more; calls that run may still be answered."""

    def turn_out(self, is_meant: Callable[[Principal], bool]) -> None:
        """Close it, if it was opened by one of these principals."""

    async def aclose(self, reason: str = "") -> None:
        """Close it with 1001, within the close time-out."""


class ConnectionOwner(Admission, Protocol):
    """What the connections of one server share, see `websocket_server.Endpoint`."""

    limits: WebSocketLimits
    connections: CountedConnections[OpenConnection]
    connection_limit: ConnectionLimit
    is_closed: bool

    def accept(self, channel: Channel, /) -> Receiver:
        """The receiver of this connection's frames, once its handshake is done."""
