"""Listeners for clients other than the host on stdio, from the options of serving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Listener
from mcpd.server.dispatcher.observing import refusal_counter
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.guards import Access
from .settings import Settings

if TYPE_CHECKING:
    from .core import ServerCore


def listeners_of(server: ServerCore, settings: Settings) -> list[Listener]:
    """Return all listeners except stdin."""
    check_ports(settings)
    listeners: list[Listener] = []
    if settings.ws is not None or settings.http is not None:
        connection_limit = ConnectionLimit()
        if settings.ws is not None:
            listeners.append(_websocket_listener(server, settings.ws, settings, connection_limit))
        if settings.http is not None:
            listeners.append(_http_listener(server, settings.http, settings, connection_limit))
    return [*listeners, *settings.listeners]


def check_ports(settings: Settings) -> None:
    """Raise ConfigurationError if `ws` and `http` are the same address, whose port only one of them can use."""
    address = settings.ws
    has_any_port = address is None or address.endswith(":0")
    if not has_any_port and address == settings.http and "ws" not in settings.sockets:
        raise ConfigurationError(f"--http and --ws cannot share {address}: leave out --ws, --http serves WebSocket too")


def take_handed_over(settings: Settings) -> None:
    """Put the sockets that `fd://` names into `settings`, with the addresses that they are bound to.

    Raises ConfigurationError.
    """
    from mcpd.transports.address import address_of
    from mcpd.transports.systemd import HANDED_OVER, sockets_at

    for name in ("ws", "http", "metrics"):
        address = getattr(settings, name)
        if address is not None and address.startswith(HANDED_OVER) and name not in settings.sockets:
            sockets = sockets_at(address)
            settings.sockets = {**settings.sockets, name: sockets}
            setattr(settings, name, str(address_of(sockets)))


def host_of(auth: object) -> tuple[str, ...]:
    """Return the host name that clients use according to the authenticator's public URL; () if unknown."""
    from mcpd.transports.authentication import Protection

    if not isinstance(auth, Protection) or not auth.public_url:
        return ()
    from urllib.parse import urlsplit

    return (urlsplit(auth.public_url).netloc,)


def _access(server: ServerCore, settings: Settings) -> Access:
    access = Access(
        token=settings.token,
        authenticate=settings.auth,
        authenticate_timeout=server.authenticate_timeout,
        insecure=settings.insecure,
        hosts=(*settings.allowed_hosts, *host_of(settings.auth or server.authenticate)),
        origins=settings.allowed_origins,
    )
    access = access.or_by(server.authenticate)
    server.protect(access.authenticate)
    return access


def _websocket_listener(
    server: ServerCore, address: str, settings: Settings, connection_limit: ConnectionLimit
) -> Listener:
    from mcpd.transports.websocket.server import WebSocketLimits, WebSocketListener

    limits = settings.ws_limits or WebSocketLimits()
    if settings.max_frame_bytes is not None:
        limits = structs.replace(limits, max_frame_bytes=settings.max_frame_bytes)
    sockets = settings.sockets.get("ws", ())
    on_refused = refusal_counter(server.observers)
    return WebSocketListener(address, _access(server, settings), limits, connection_limit, sockets, on_refused)


def _http_listener(server: ServerCore, address: str, settings: Settings, connection_limit: ConnectionLimit) -> Listener:
    from mcpd.server.http.listener import HttpListener
    from mcpd.transports.address import parse
    from .http import HttpSettings

    parsed = parse(address)
    access = _access(server, settings)
    details = settings.http_settings or HttpSettings()
    if settings.max_frame_bytes is not None:
        details = structs.replace(details, max_body_bytes=settings.max_frame_bytes)
    app = server.http_app(access, details, bound=parsed.host)
    overseer = settings.overseer
    return HttpListener(
        app, parsed, access, connection_limit, settings.sockets.get("http", ()),
        lambda: overseer is not None and overseer.is_last_on_sockets, settings.socket_mode,
    )  # fmt: skip
