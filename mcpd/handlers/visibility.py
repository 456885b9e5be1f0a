"""Handlers that see the catalog as a request may: `registry.visibility` in place of the whole of it.

The table has them from the first rule on, and for the methods that look at entries only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any

from msgspec import structs

from mcpd.context.exchange import Exchange
from mcpd.registry.catalog import Catalog
from mcpd.registry.visibility import view

METHODS = frozenset((
    "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "resources/subscribe",
    "prompts/list", "prompts/get", "completion/complete", "subscriptions/listen",
))  # fmt: skip


def seeing(
    catalog: Catalog, method: str, handler: Callable[[Catalog, Exchange, Any], Any]
) -> Callable[[Exchange, Any], Coroutine[Any, Any, Any]]:
    """The handler of a method, on what the rules let a request see."""

    async def handle(exchange: Exchange, params: Any) -> Any:
        seen = await view(catalog, exchange, method, params)
        if method == "subscriptions/listen":
            params = _watchable(seen, exchange, params)
        result = handler(seen, exchange, params)
        if isawaitable(result):
            result = await result
        if method == "resources/read" and result.cache_scope == "public":
            from mcpd.registry.cache import as_private  # noqa: PLC0415 - few resources are public

            result = as_private(result)
        return result

    return handle


def _watchable(seen: Catalog, exchange: Exchange, params: Any) -> Any:
    """The params with only those resources that can be read: what is hidden, and what is not there, look the same."""
    wanted = params.notifications
    if not wanted.resource_subscriptions:
        return params
    active = seen.active_extensions(exchange)
    uris = [uri for uri in wanted.resource_subscriptions if seen.has_resource(uri, active)]
    return structs.replace(params, notifications=structs.replace(wanted, resource_subscriptions=uris))
