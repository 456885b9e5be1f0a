"""Who is at the other end of a WebSocket: what the handshake and the socket say of it."""

from __future__ import annotations

import asyncio

from ..jsonrpc import Id
from ..principal import ANONYMOUS, Origin, Principal
from .websocket_handshake import HandshakeFields

__all__ = ["WebSocketPeer"]


class WebSocketPeer:
    """The part of a connection that knows its client; a base of `WebSocketChannel`."""

    __slots__ = ()

    _transport: asyncio.Transport | None
    _fields: HandshakeFields | None

    @property
    def path(self) -> str:
        """What the handshake asked for, with its query; empty until it is accepted."""
        return "" if self._fields is None else self._fields.path

    @property
    def user(self) -> Principal:
        """Who opened it, as far as anybody asked."""
        return ANONYMOUS if self._fields is None else self._fields.user

    @property
    def peer(self) -> str:
        """The address that the client connects from, empty if it has none."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) and name else ""

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The handshake."""
        return Origin("websocket") if self._fields is None else self._fields.origin()
