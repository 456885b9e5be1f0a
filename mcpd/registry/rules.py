"""Rules of who sees what: their types, and what they are told of an entry. They are asked in `visibility`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from mcpd.context.context import Context
from mcpd.registry.switches import Component


class CatalogEntry(Struct, frozen=True, kw_only=True):
    """A tool, resource, template or prompt, as a rule is told of it."""

    component: Component
    name: str
    uri: str | None
    """Of a resource its URI, of a template its URI template; None for tools and prompts."""
    tags: frozenset[str]
    meta: Mapping[str, Any]
    """Its `_meta`, without what extensions add; {} if there is none."""


VisibilityRule: TypeAlias = Callable[[CatalogEntry, Context], bool | Awaitable[bool]]
"""Whether whoever sends a request sees an entry; `def` or `async def`."""

EntryRule: TypeAlias = Callable[[Context], bool | Awaitable[bool]]
"""The same, of the one entry that it was given for."""
