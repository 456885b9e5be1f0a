"""Cache hints for lists and resources: how long, and by whom, results may be kept.

A page of a list is one object for all clients that see the same, so a hint is written into it once. "public" is only
kept for the catalog's own pages and contents that are the same for every caller. A result that depends on visibility
rules, conditions or middleware stays private, whatever its author set.

Spec: 2026-07-28 server/utilities/caching; rules S26-128 to S26-132. Older versions have no such members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from mcpd.errors import RegistrationError
from mcpd.protocol.methods import METHODS
from mcpd.protocol.types.base import CacheableResult, RawResult
from mcpd.protocol.types.features import ReadResourceResult
from mcpd.server.context.exchange import Exchange, Handler
from .catalog import Catalog

CacheableMethod: TypeAlias = Literal[
    "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"
]

# The methods whose results can have a hint.
CACHEABLE = tuple(method for method, row in METHODS.items() if row.is_cacheable)

_MOST_SECONDS = 2**53 // 1000


class CacheHint(Struct, frozen=True):
    """A result is fresh for `ttl` seconds. `scope` says who may keep it: "private" only the caller, "public" everybody,
    including shared caches. Results that depend on the caller are never sent as public.
    """

    ttl: float
    scope: Literal["private", "public"] = "private"


def checked_hint(hint: Any, where: str) -> CacheHint | None:
    """Return a valid hint, or None for None. Raises RegistrationError."""
    if hint is None:
        return None
    if not isinstance(hint, CacheHint):
        raise RegistrationError(f"{where}: expected CacheHint(seconds), as in CacheHint(60), got {hint!r}")
    ttl: Any = hint.ttl
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 <= ttl <= _MOST_SECONDS:
        raise RegistrationError(f"{where}: CacheHint's ttl is 0 or more seconds, not {hint.ttl!r}")
    if hint.scope not in ("private", "public"):
        raise RegistrationError(f"{where}: CacheHint's scope is private or public, not {hint.scope!r}")
    return hint


def checked_hints(given: CacheHint | Mapping[Any, CacheHint] | None, where: str) -> dict[str, CacheHint]:
    """Return hints by method; a single hint applies to all lists and to `server/discover`. Raises RegistrationError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        hint = checked_hint(given, where)
        return {} if hint is None else dict.fromkeys((m for m in CACHEABLE if m != "resources/read"), hint)
    hints: dict[str, CacheHint] = {}
    for method, one in given.items():
        if method not in CACHEABLE:
            raise RegistrationError(f"{where}: {method!r} has no hint, only {', '.join(CACHEABLE)}")
        hint = checked_hint(one, where)
        if hint is not None:
            hints[method] = hint
    return hints


def apply_hint(result: CacheableResult, hint: CacheHint) -> None:
    """Write a hint into a result that has none yet."""
    if result.ttl_ms is UNSET:
        result.ttl_ms = round(hint.ttl * 1000)
        if result.cache_scope is UNSET:
            result.cache_scope = hint.scope


def as_private(result: CacheableResult) -> CacheableResult:
    """Return the result with the scope "private"."""
    return replace(result, cache_scope="private") if result.cache_scope == "public" else result


def put_hints(
    wrap: Callable[[Callable[[str, Handler], Handler]], None], catalog: Catalog, hints: Mapping[str, CacheHint]
) -> None:
    """Wrap handlers so that they write hints into results. Must be called once, before middleware is added."""

    def wrapped(method: str, handler: Handler) -> Handler:
        hint = hints.get(method)
        return handler if hint is None and method != "resources/read" else _hinted(catalog, hint, handler)

    wrap(wrapped)


def _hinted(catalog: Catalog, hint: CacheHint | None, handler: Handler) -> Handler:
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
    if catalog.rules is not None or catalog.conditions:
        return False
    if isinstance(result, (ReadResourceResult, RawResult)):
        own = exchange.own_result
        return own is None or own is result  # set by its author, and unchanged by middleware
    return any(
        listing.is_for_all(result) for listing in (catalog.tools, catalog.resources, catalog.templates, catalog.prompts)
    )
