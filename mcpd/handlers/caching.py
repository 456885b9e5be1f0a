"""Hints on the results that clients may keep: put round the handlers of a server that has any, and no other.

A page of a list is one object for all who see the same, so a hint is written into it once. Public is only what is the
catalog's own page, and the same for every caller: what a rule of visibility, a condition or a middleware has a part in
stays private, whatever its author said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, TypeAlias

from mcpd.context.exchange import Exchange
from mcpd.protocol.types.base import CacheableResult
from mcpd.protocol.types.resources import ReadResourceResult
from mcpd.registry.cache import CacheHint, apply_hint, as_private
from mcpd.registry.catalog import Catalog

_Handler: TypeAlias = Callable[[Exchange, Any], Any]


def put_hints(
    wrap: Callable[[Callable[[str, _Handler], _Handler]], None], catalog: Catalog, hints: Mapping[str, CacheHint]
) -> None:
    """Write hints into results; call it once, before any middleware is added."""

    def wrapped(method: str, handler: _Handler) -> _Handler:
        hint = hints.get(method)
        return handler if hint is None and method != "resources/read" else _hinted(catalog, hint, handler)

    wrap(wrapped)


def _hinted(catalog: Catalog, hint: CacheHint | None, handler: _Handler) -> _Handler:
    async def later(exchange: Exchange, work: Any) -> Any:
        return finish(exchange, await work)

    def finish(exchange: Exchange, result: Any) -> Any:
        if not isinstance(result, CacheableResult):
            return result
        if hint is not None:
            apply_hint(result, hint)
        return (
            result if result.cache_scope != "public" or _is_for_all(catalog, exchange, result) else as_private(result)
        )

    def handle(exchange: Exchange, params: Any) -> Any:
        result = handler(exchange, params)
        return later(exchange, result) if result.__class__ is CoroutineType else finish(exchange, result)

    return handle


def _is_for_all(catalog: Catalog, exchange: Exchange, result: CacheableResult) -> bool:
    """Whether every caller would get this."""
    if catalog.rules is not None or catalog.conditions:
        return False
    if isinstance(result, ReadResourceResult):
        own = exchange.own_result
        return own is None or own is result  # its author said so, and no middleware has changed it
    return any(
        listing.is_for_all(result) for listing in (catalog.tools, catalog.resources, catalog.templates, catalog.prompts)
    )
