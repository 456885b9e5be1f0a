"""Which function serves which method, and which capability has to be offered for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from ..context import Context
from ..registry.catalog import Catalog
from . import lifecycle, prompts, resources, subscriptions, tools, utilities

__all__ = ["HANDLERS", "bind"]

BoundHandler: TypeAlias = Callable[[Context, Any], Any]

HANDLERS: dict[str, Callable[[Catalog, Context, Any], Any]] = {
    "initialize": lifecycle.initialize,
    "server/discover": lifecycle.discover,
    "ping": lifecycle.ping,
    "tools/list": tools.list_tools,
    "tools/call": tools.call_tool,
    "resources/list": resources.list_resources,
    "resources/read": resources.read_resource,
    "resources/templates/list": resources.list_resource_templates,
    "resources/subscribe": subscriptions.subscribe,
    "resources/unsubscribe": subscriptions.unsubscribe,
    "prompts/list": prompts.list_prompts,
    "prompts/get": prompts.get_prompt,
    "completion/complete": utilities.complete,
    "logging/setLevel": utilities.set_level,
    "subscriptions/listen": subscriptions.listen,
}

_NEEDS = {"tools": "tools", "resources": "resources", "prompts": "prompts", "completion": "completions"}


def bind(catalog: Catalog) -> dict[str, BoundHandler]:
    """The handlers of one server. A method whose capability is not offered is not there.

    The dict grows by itself when the first tool, resource or prompt is registered.
    """
    handlers: dict[str, BoundHandler] = {}

    def refresh() -> None:
        for method, handler in HANDLERS.items():
            capability = _NEEDS.get(method.partition("/")[0])
            if method not in handlers and (capability is None or capability in catalog.offers):
                handlers[method] = partial(handler, catalog)

    catalog.on_offer = refresh
    refresh()
    return handlers
