"""What a View tells without asking anything: a function for each of its notifications, and the table of them.

Each gives the event for the program, or None if there is nothing to do. Not here: the handshake, which changes the
state of the View, and what is about a request in either direction (`machine`).

Spec: MCP Apps 2026-01-26, "Notifications from Views"; 2025-11-25 server/utilities/logging.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import UNSET, Raw
from msgspec.json import Decoder

from mcpd.host.view.context import ContainerDimensions
from mcpd.host.view.events import Event, Logged, SizeChanged, TeardownRequested
from mcpd.host.view.messages import SizeChangedParams
from mcpd.host.view.refusals import NotOffered
from mcpd.host.view.requests import ViewState, decode_params
from mcpd.protocol.types.base import LogMessageParams

_UNBOUNDED: Final = ContainerDimensions()

_decode_size = Decoder(SizeChangedParams).decode
_decode_log = Decoder(LogMessageParams).decode


def _size_changed(state: ViewState, params: Raw) -> Event | None:
    size = decode_params(_decode_size, params)
    container = state.feed.context.container_dimensions or _UNBOUNDED

    width, height = container.fit(size.width, size.height, limit=state.settings.limits.max_pixels)
    if width is None and height is None:
        return None
    return SizeChanged(width, height)


def _log_message(state: ViewState, params: Raw) -> Event | None:
    if state.capabilities.logging is None:
        raise NotOffered("this host does not offer logging")

    message = decode_params(_decode_log, params)
    data = None if message.data is UNSET else message.data
    return Logged(message.level, data, message.logger)


def _request_teardown(state: ViewState, params: Raw) -> Event | None:
    return TeardownRequested()


NOTIFICATIONS: Final[dict[str, Callable[[ViewState, Raw], Event | None]]] = {
    "ui/notifications/size-changed": _size_changed,
    "notifications/message": _log_message,
    "ui/notifications/request-teardown": _request_teardown,
}
"""All but those that `view` handles itself."""
