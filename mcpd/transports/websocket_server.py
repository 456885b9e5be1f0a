"""WebSocket on a port of its own: the listening sockets, who may connect, how many, and to what path.

Each connection has its own session; what goes on in it is `websocket`'s.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request

from mcpd.errors import ConfigurationError, ConnectionLost, McpdError
from mcpd.protocol.channel import Channel, Receiver
from mcpd.protocol.principal import ANONYMOUS, Principal
from mcpd.transports.accepting import Acceptor, ConnectionLimit, CountedConnections, WebSocketLimits
from mcpd.transports.address import Address, authority, bind, check_guarded, close, is_local, parse
from mcpd.transports.authentication import RequestHeaders
from mcpd.transports.guards import Access, Guard, Refusal
from mcpd.transports.websocket import WebSocketChannel
from mcpd.transports.websocket_handshake import Handshake

__all__ = ["Endpoint", "Limits", "WebSocketLimits", "WebSocketListener"]

_PATHS = ("/mcp", "/")
_IN_ORDER = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD)

Limits = WebSocketLimits
"""Its first name, for programs that were written with it."""

_DEFAULT_ACCESS = Access()
_DEFAULT_LIMITS = WebSocketLimits()


class Endpoint:
    """What the connections of one server share: who may connect, the limits, and who takes their frames.

    `accept` is called for each connection after its handshake and gives the receiver of its frames. Of `paths`
    the first is the one that is told to who asks for another. `on_refused` hears the status of each refusal.
    """

    def __init__(
        self,
        accept: Callable[[Channel], Receiver],
        guard: Guard,
        limits: WebSocketLimits = _DEFAULT_LIMITS,
        paths: Sequence[str] = _PATHS,
        connection_limit: ConnectionLimit | None = None,
        on_refused: Callable[[str], object] | None = None,
    ) -> None:
        self.accept = accept
        self.guard = guard
        self.limits = limits
        self.paths = paths
        self._on_refused = on_refused
        self.connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self.connections: CountedConnections[WebSocketChannel] = CountedConnections(self.connection_limit)
        self.authenticating = 0
        """How many handshakes wait to hear who they come from."""
        self.is_closed = False
        if guard.protection is not None:
            guard.protection.on_forget.append(self.turn_out)

    def turn_out(self, is_meant: Callable[[Principal], bool]) -> None:
        """Close the connections of these principals."""
        for channel in list(self.connections):
            channel.turn_out(is_meant)

    def connect(self) -> WebSocketChannel:
        """An asyncio protocol for one connection, which may have its handshake before it."""
        return WebSocketChannel(Handshake(self), self.limits, _why_it_ended, self)

    def check(self, headers: RequestHeaders) -> Principal | Refusal | Coroutine[Any, Any, Principal | Refusal]:
        """Who sends this handshake, or why it gets no WebSocket; to be awaited if that is not known at once."""
        refusal = self.guard.check_source(headers.get("host"), headers.get("origin"))
        if refusal is not None:
            return refusal
        if self.guard.authentication is None:
            return ANONYMOUS
        may_wait = self.authenticating < self.limits.max_authenticating
        found = self.guard.authentication.check(headers, may_wait=may_wait)
        if isinstance(found, Refusal) and self.guard.lets_in(found):
            return ANONYMOUS
        return found

    def refuse(self, request: Request) -> Refusal | None:
        """Why this handshake, of somebody who may come in, gets no WebSocket; RFC 6455 is checked elsewhere."""
        if self.is_closed:
            return Refusal(503, "The server is shutting down.\n")
        path = request.path.partition("?")[0]
        if path not in self.paths:
            return Refusal(404, f"Nothing is served at {path[:200]!r}: connect to {self.paths[0]}.\n")

        if len(self.connections) > self.limits.max_connections:
            return Refusal(
                503,
                f"All {self.limits.max_connections} connections are in use; try again later.\n",
                (("Retry-After", "5"),),
            )
        return None

    def refused(self, status: int) -> None:
        """A handshake was refused with this status."""
        if self._on_refused is not None:
            self._on_refused(str(status))

    def pause(self) -> None:
        """Read nothing more from anyone; calls that run may still be answered. `aclose` comes next."""
        self.is_closed = True
        for channel in self.connections:
            channel.pause()

    async def aclose(self, reason: str = "") -> None:
        """Close all connections with 1001, all at the same time and within the close time-out."""
        self.is_closed = True
        await asyncio.gather(*(channel.aclose(reason) for channel in list(self.connections)))


class WebSocketListener:
    """WebSocket on `:PORT`, `HOST:PORT` or `[IPV6]:PORT`. `url` is what to give to a client, once it has started.

    `connection_limit` counts all connections of the process. `sockets` are bound to that address already.
    `on_refused` hears the status of each handshake that is refused. Raises ConfigurationError for a host or origin that
    is none.
    """

    endpoint: Endpoint
    """Who may connect, and who has; from the start on."""

    def __init__(
        self,
        address: str | Address,
        access: Access = _DEFAULT_ACCESS,
        limits: WebSocketLimits = _DEFAULT_LIMITS,
        connection_limit: ConnectionLimit | None = None,
        sockets: Sequence[socket.socket] = (),
        on_refused: Callable[[str], object] | None = None,
    ) -> None:
        self.url = ""
        self._address = parse(address) if isinstance(address, str) else address
        self._access = access
        self._guard = Guard(access, self._address.host)
        self._limits = limits
        self._given = list(sockets)
        self._on_refused = on_refused
        self._connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self._acceptor: Acceptor | None = None

    async def start(self, accept: Callable[[Channel], Receiver]) -> None:
        """Begin to accept; `accept` gives the receiver of each connection.

        Raises ConfigurationError for an address that cannot be used, or is open to others without a token (D9).
        """
        sockets = self._given or await bind(self._address, is_guarded=self._access.is_guarded)
        if not self._access.is_guarded:
            check_guarded(self._address, sockets)
        self._connection_limit.check(self._limits.max_connections)
        self.endpoint = Endpoint(
            accept, self._guard, self._limits, connection_limit=self._connection_limit, on_refused=self._on_refused
        )
        self._acceptor = Acceptor(self._connection_limit, sockets, self.endpoint.connect)
        self.url = f"ws://{authority(sockets[0])}/mcp"
        try:
            self._access.locate("", f"http{self.url[2:]}", is_local=is_local(sockets))
        except ConfigurationError:
            close(sockets)
            raise
        await self._acceptor.start()

    def pause(self) -> None:
        """Accept nobody and read nothing more; calls that run may still be answered. `aclose` comes next."""
        if self._acceptor is not None:
            self._acceptor.close()
            self.endpoint.pause()

    async def aclose(self) -> None:
        """Accept no more, let what is queued be sent, and close every connection with 1001."""
        if self._acceptor is not None:
            self.pause()
            await self.endpoint.aclose("the server is shutting down")


def _why_it_ended(ended: ConnectionClosed, cause: str) -> McpdError | None:
    """What went wrong with a connection that is over; None if its client has closed it in order."""
    said, sent = ended.rcvd, ended.sent
    if said is None:
        return ConnectionLost(f"We closed the WebSocket: {sent}" if sent else "The WebSocket client went away")
    return None if said.code in _IN_ORDER else ConnectionLost(f"The WebSocket client closed: {said}")
