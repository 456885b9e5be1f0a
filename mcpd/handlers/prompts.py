"""`prompts/list` and `prompts/get`. Spec: 2026-07-28 server/prompts."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from mcpd.context.exchange import Exchange
from mcpd.errors import InvalidParams
from mcpd.protocol.types.base import PageParams
from mcpd.protocol.types.prompts import GetPromptParams, GetPromptResult, ListPromptsResult
from mcpd.registry.catalog import Catalog


def list_prompts(catalog: Catalog, exchange: Exchange, params: PageParams) -> ListPromptsResult:
    """One page of prompts."""
    page: ListPromptsResult = catalog.prompts.page(catalog.active_extensions(exchange), params.cursor)
    return page


def get_prompt(
    catalog: Catalog, exchange: Exchange, params: GetPromptParams
) -> GetPromptResult | Coroutine[Any, Any, GetPromptResult]:
    """A prompt's messages. Raises InvalidParams for an unknown prompt or a missing argument."""
    entry = catalog.prompts.get(params.name, catalog.active_extensions(exchange))
    if entry is None:
        raise InvalidParams(f"Unknown prompt: {params.name}")
    return entry.run(params.arguments or {}, exchange)
