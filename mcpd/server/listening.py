"""The listeners of a server that others than its host connect to, by the options of serving."""

from __future__ import annotations

from msgspec import structs

from ..listener import Listener
from ..serve_options import Settings
from ..transports.accepting import ConnectionLimit
from ..transports.guards import Access
from .servable import Servable

__all__ = ["listeners_of"]


def listeners_of(server: Servable, settings: Settings) -> list[Listener]:
    """All that others connect to, which is not stdin."""
    found: list[Listener] = []
    if settings.ws is not None or settings.http is not None:
        connection_limit = ConnectionLimit()
        if settings.ws is not None:
            found.append(_websocket_listener(server, settings.ws, settings, connection_limit))
        if settings.http is not None:
            found.append(_http_listener(server, settings.http, settings, connection_limit))
    return [*found, *settings.listeners]


def _access(server: Servable, settings: Settings) -> Access:
    access = Access(
        token=settings.token,
        authenticate_timeout=server.authenticate_timeout,
        insecure=settings.insecure,
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
    )
    return access.or_by(server.authenticate)


def _websocket_listener(
    server: Servable, address: str, settings: Settings, connection_limit: ConnectionLimit
) -> Listener:
    from ..transports.websocket_server import WebSocketLimits, WebSocketListener

    limits = settings.ws_limits or WebSocketLimits()
    if settings.max_frame_bytes is not None:
        limits = structs.replace(limits, max_frame_bytes=settings.max_frame_bytes)
    return WebSocketListener(address, _access(server, settings), limits, connection_limit)


def _http_listener(server: Servable, address: str, settings: Settings, connection_limit: ConnectionLimit) -> Listener:
    from ..http import HttpSettings
    from ..http.listener import HttpListener
    from ..transports.address import parse

    parsed = parse(address)
    access = _access(server, settings)
    details = settings.http_settings or HttpSettings()
    if settings.max_frame_bytes is not None:
        details = structs.replace(details, max_body_bytes=settings.max_frame_bytes)
    return HttpListener(server.http_app(access, details, bound=parsed.host), parsed, access, connection_limit)
