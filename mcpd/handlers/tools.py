"""`tools/list` and `tools/call`. Spec: 2026-07-28 server/tools."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from mcpd.context.exchange import Exchange
from mcpd.errors import InvalidParams
from mcpd.protocol.types.base import PageParams
from mcpd.protocol.types.tools import CallToolParams, CallToolResult, ListToolsResult
from mcpd.registry.catalog import Catalog
from mcpd.registry.pages import ActiveExtensions


def list_tools(
    catalog: Catalog, exchange: Exchange, params: PageParams
) -> ListToolsResult | Coroutine[Any, Any, ListToolsResult]:
    """One page of the tools that this client gets to see."""
    active = catalog.active_extensions(exchange)
    if active and catalog.conditions:
        return _list_under_conditions(catalog, exchange, params, active)
    page: ListToolsResult = catalog.tools.page(active, params.cursor)
    return page


async def _list_under_conditions(
    catalog: Catalog, exchange: Exchange, params: PageParams, active: ActiveExtensions
) -> ListToolsResult:
    page: ListToolsResult = catalog.tools.page(await catalog.active_in_lists(exchange, active), params.cursor)
    return page


def call_tool(catalog: Catalog, exchange: Exchange, params: CallToolParams) -> Coroutine[Any, Any, CallToolResult]:
    """Run a tool. Raises InvalidParams for one that this client cannot see."""
    entry = catalog.tools.get(params.name)
    if entry is None:
        # Only a tool that needs an extension makes us look at what the client offers.
        entry = catalog.tools.get(params.name, catalog.active_extensions(exchange))
    if entry is None:
        raise InvalidParams(f"Unknown tool: {params.name}")
    return entry.run(params.arguments, exchange)
