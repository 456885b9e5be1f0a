"""Registers handlers of version 2, functions of a context and params, with a low-level server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcpd.compat.mcpserver.requests import REQUESTS, handler_of
from mcpd.compat.missing import refuse

__all__ = ["add", "add_all"]

_NAMED = {
    "on_ping": "ping",
    "on_list_tools": "tools/list",
    "on_call_tool": "tools/call",
    "on_list_resources": "resources/list",
    "on_list_resource_templates": "resources/templates/list",
    "on_read_resource": "resources/read",
    "on_subscribe_resource": "resources/subscribe",
    "on_unsubscribe_resource": "resources/unsubscribe",
    "on_list_prompts": "prompts/list",
    "on_get_prompt": "prompts/get",
    "on_completion": "completion/complete",
    "on_set_logging_level": "logging/setLevel",
}

# What clients tell, and subscriptions, which are ours to serve.
_TAKEN = frozenset(("on_progress", "on_roots_list_changed", "on_subscriptions_listen"))


def add_all(server: Any, handlers: Mapping[str, Callable[..., Awaitable[Any]] | None]) -> None:
    """Register what a constructor was given: `on_call_tool=…`. Raises TypeError for what there is not."""
    for name, handler in handlers.items():
        if name in _NAMED and handler is not None:
            add(server, _NAMED[name], handler)
        elif name not in _NAMED and name not in _TAKEN:
            raise TypeError(f"Server.__init__() got an unexpected keyword argument {name!r}")


def add(server: Any, method: str, handler: Callable[..., Awaitable[Any]]) -> None:
    """Serve a method. Raises NotHere for one that the specification does not have."""
    request = REQUESTS.get(method)
    if request is None:
        refuse(f"add_request_handler({method!r}), a method of one's own,", "the official SDK")
    server.keeps_unknown = False
    server.request_handlers[request] = handler_of(handler, server.middleware)
