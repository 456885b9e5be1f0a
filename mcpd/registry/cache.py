"""How long clients may keep what they got: hints for lists and resources, and where `public` would say too much.

Spec: 2026-07-28 server/utilities/caching; rules S26-128 to S26-132. Older versions have no such members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from mcpd.errors import RegistrationError
from mcpd.protocol.types.base import CacheableResult

CacheableMethod: TypeAlias = Literal[
    "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"
]

CACHEABLE: tuple[CacheableMethod, ...] = (
    "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read",
)  # fmt: skip
"""The methods whose results have a hint."""

_MOST_SECONDS = 2**53 // 1000


class CacheHint(Struct, frozen=True):
    """A result is fresh for `ttl` seconds. `scope` is who may keep it: "private" for the one who asked, "public" for
    everybody, shared caches too. What depends on who asks is never sent as public.
    """

    ttl: float
    scope: Literal["private", "public"] = "private"


def checked_hint(hint: Any, where: str) -> CacheHint | None:
    """A hint as it was given; None for none. Raises RegistrationError."""
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
    """Hints by method; one alone is for all lists and for `server/discover`. Raises RegistrationError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        hint = checked_hint(given, where)
        return {} if hint is None else dict.fromkeys((m for m in CACHEABLE if m != "resources/read"), hint)
    found: dict[str, CacheHint] = {}
    for method, one in given.items():
        if method not in CACHEABLE:
            raise RegistrationError(f"{where}: {method!r} has no hint, only {', '.join(CACHEABLE)}")
        hint = checked_hint(one, where)
        if hint is not None:
            found[method] = hint
    return found


def apply_hint(result: CacheableResult, hint: CacheHint) -> None:
    """Write a hint into a result that has none yet."""
    if result.ttl_ms is UNSET:
        result.ttl_ms = round(hint.ttl * 1000)
        if result.cache_scope is UNSET:
            result.cache_scope = hint.scope


def as_private(result: CacheableResult) -> CacheableResult:
    """The result for nobody but the one who asked."""
    return replace(result, cache_scope="private") if result.cache_scope == "public" else result
