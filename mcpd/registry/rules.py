"""Rules of who sees what: their types, and what they are told of an entry. They are asked in `visibility`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from ..context.context import Context
from .switches import Component

__all__ = ["CatalogEntry", "EntryRule", "VisibilityRule"]


class CatalogEntry(Struct, frozen=True, kw_only=True, dict=True):
    """A tool, resource, template or prompt, as a rule is told of it."""

    component: Component
    name: str
    uri: str | None
    """Of a resource its URI, of a template its URI template; None for tools and prompts."""
    tags: frozenset[str]
    meta: Mapping[str, Any]
    """Its `_meta`, without what extensions add; {} if there is none."""

    if not TYPE_CHECKING:
        # Hidden from type checkers: to them a name that is not here is a mistake.
        def __getattr__(self, name):
            """A member that is not set: in an entry that stands for others, see `alike`, which hears of it."""
            look = vars(self).get("look")
            if look is None or name not in self.__struct_fields__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(look(), name)

        # What reads all of it reads that of the one it has it from.

        def _whole(self):
            look = vars(self).get("look")
            return self if look is None else look()

        def __repr__(self):
            return Struct.__repr__(self._whole())

        def __rich_repr__(self):
            return Struct.__rich_repr__(self._whole())

        def __eq__(self, other):
            return Struct.__eq__(self._whole(), other._whole() if type(other) is CatalogEntry else other)

        def __hash__(self):
            return Struct.__hash__(self._whole())

        def __copy__(self):
            return self._whole()  # it is frozen

        def __reduce__(self):
            return Struct.__reduce__(self._whole())


VisibilityRule: TypeAlias = Callable[[CatalogEntry, Context], bool | Awaitable[bool]]
"""Whether whoever sends a request sees an entry; `def` or `async def`."""

EntryRule: TypeAlias = Callable[[Context], bool | Awaitable[bool]]
"""The same, of the one entry that it was given for."""
