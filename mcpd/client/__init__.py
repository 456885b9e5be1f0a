"""The client: requests to any MCP server, in every protocol version.

    client, blocking   `Client` and its twin without asyncio; start here. `group` has several servers as one.
    link, connection   reconnecting to one server, and one connection: time limits, callbacks of the server.
    session, messages  the protocol without I/O. `eras` are the two ways to speak it: sessions, independent requests.
    callbacks          functions of the program that the server may call.
    tasks              calls that continue after their request was answered.
    events, receiver   subscriptions to events of a server, and webhooks that bring them.
    results            lists, typed results and their cache; `tool_function` makes Python functions of tools.
    targets/, target   what a client can connect to, and how it connects; `http/` is the HTTP transport.
    auth/              authorization.

A server in the same process is a target like any other. Of `mcpd.server` only helpers for schemas, forms and URI
templates are imported, when they are first used. Names are imported on access, because a command starts its server
before it imports the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpd.client.targets.named import CommandTarget, FileTarget, UrlTarget
    from .callbacks import Callbacks
    from .client import Client
    from .events import Event, EventGap, EventSubscription
    from .limits import ClientLimits
    from .receiver import Receiver
    from .tasks import TaskHandle

__all__ = [
    "Callbacks",
    "Client",
    "ClientLimits",
    "CommandTarget",
    "Event",
    "EventGap",
    "EventSubscription",
    "FileTarget",
    "Receiver",
    "TaskHandle",
    "UrlTarget",
]

_HOMES = {
    "Callbacks": ".callbacks",
    "Client": ".client",
    "ClientLimits": ".limits",
    "CommandTarget": ".targets.named",
    "Event": ".events",
    "EventGap": ".events",
    "EventSubscription": ".events",
    "FileTarget": ".targets.named",
    "Receiver": ".receiver",
    "TaskHandle": ".tasks",
    "UrlTarget": ".targets.named",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
