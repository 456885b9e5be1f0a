"""What `serving` needs of a server, for type checkers; nothing here is used at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mcpd.dispatcher import ServerConnection
from mcpd.extensions.base import Extension
from mcpd.http import HttpApp, HttpSettings
from mcpd.protocol.channel import Channel
from mcpd.protocol.observer import Observer
from mcpd.protocol.session import Opening
from mcpd.server.lifespan import Lifespan
from mcpd.transports.authentication import Authenticator
from mcpd.transports.guards import Access


class Servable(Protocol):
    """What is served, see `app.Server`."""

    authenticate: Authenticator | None
    authenticate_timeout: float
    lifespan: Lifespan | None
    extensions: dict[str, Extension]

    @property
    def observers(self) -> Sequence[Observer]:
        """Who hears of its connections and calls."""

    def add_observer(self, observer: Observer) -> None:
        """Let one more hear what observers hear."""

    def connect(self, channel: Channel, opening: Opening) -> ServerConnection:
        """A connection for the client of this channel."""

    def protect(self, authenticate: Authenticator | None) -> None:
        """It is asked what those may do who send requests."""

    def allow_frames(self, size: int) -> None:
        """Send messages of up to so many bytes."""

    def http_app(self, access: Access, settings: HttpSettings | None = None, *, bound: str = "") -> HttpApp:
        """The ASGI application that answers over HTTP; `bound` is the host that is listened on."""
