"""`Application`: what a listener of HTTP runs. `app.HttpApp` has an MCP endpoint, `pages.PageApp` only pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from mcpd.http.core import HttpSettings
from mcpd.http.request import Receive, Scope, Send
from mcpd.protocol.channel import Channel, Ending, Receiver
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits


class Application(Protocol):
    """An ASGI application, with what its listener has to know of it."""

    settings: HttpSettings

    async def start(self) -> None:
        """Begin: its listener listens, and nobody was answered yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Spec: ASGI 3."""

    def refused(self, status: int) -> None:
        """Something was refused before it was a request here."""

    @property
    def endings(self) -> Iterable[Ending]:
        """All that may have work running, which gets the time to be answered."""

    def new_endpoint(
        self, accept: Callable[[Channel], Receiver], limits: WebSocketLimits, connection_limit: ConnectionLimit
    ) -> Endpoint:
        """Who may connect by WebSocket on the same port; `accept` is what the listener was given."""

    def drain(self) -> None:
        """Begin nothing new; what runs goes on."""

    async def aclose(self) -> None:
        """End everything."""
