"""Entries that a rule of who sees what cannot tell apart: it is asked about one of them, and its answer is that of all.

Theory of operation. Of most rules the answer depends on tags and on who asks, and a list has a thousand entries with
ten kinds of tags. So entries are put into groups: those of one group have the same component, tags and own rule. A rule
is told of the first of a group by an `Unnamed`, which notes whether the rule looked at more: a name, a URI, what there
is of `_meta`. If it did not, it came to its answer by what is the same in the whole group, and would come to it again.
If it did, or failed, it is asked about each entry, told as it is. Groups are made once for a listing, until it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from msgspec import Struct

from .rules import CatalogEntry, EntryRule

if TYPE_CHECKING:
    from .switches import Component

__all__ = ["Group", "Groups", "Row", "Unnamed"]

_MOST_UNIONS = 64
"""So many sets of hidden groups are kept as sets of keys."""


class Row(Struct, frozen=True):
    """An entry: its key in the listing, its own rule, and what rules are told of it; nothing where none is asked."""

    key: str
    visible: EntryRule | None
    told: CatalogEntry | None


class Group(Struct, eq=False):
    """Rows that are alike."""

    visible: EntryRule | None
    rows: list[Row]


class Groups:
    """The rows of one listing."""

    def __init__(self, rows: Iterable[Row]) -> None:
        found: dict[object, Group] = {}
        for row in rows:
            told = row.told
            alike = None if told is None else (told.component, told.tags, not told.meta)
            # Rules may be equal, or have no hash: it is this very one.
            found.setdefault((id(row.visible), alike), Group(row.visible, [])).rows.append(row)
        self._groups = list(found.values())
        self._unions: dict[frozenset[Group], frozenset[str]] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups)

    def keys_of(self, groups: Iterable[Group]) -> frozenset[str]:
        """The keys of all rows of some groups: the same object for the same groups, as a rule."""
        those = frozenset(groups)
        keys = self._unions.get(those)

        if keys is None:
            if len(self._unions) >= _MOST_UNIONS:
                self._unions.clear()
            keys = self._unions[those] = frozenset(row.key for group in those for row in group.rows)
        return keys


class Unnamed:
    """A `CatalogEntry`, to whoever is given it, that stands for others like it. `looked` tells that it does not any
    more: something of it was looked at that is its own.
    """

    __slots__ = ("_entry", "component", "looked", "tags")

    component: Component
    looked: bool
    tags: frozenset[str]

    def __init__(self, entry: CatalogEntry) -> None:
        put = object.__setattr__
        put(self, "_entry", entry)
        put(self, "component", entry.component)
        put(self, "tags", entry.tags)
        put(self, "looked", False)

    @property
    def _own(self) -> CatalogEntry:
        object.__setattr__(self, "looked", True)
        entry: CatalogEntry = object.__getattribute__(self, "_entry")
        return entry

    @property
    def name(self) -> str:
        return self._own.name

    @property
    def uri(self) -> str | None:
        return None if self.component in ("tool", "prompt") else self._own.uri

    @property
    def meta(self) -> Mapping[str, Any]:
        entry: CatalogEntry = object.__getattribute__(self, "_entry")
        return self._own.meta if entry.meta else {}

    # Whatever else can be done with an entry looks at all of it.

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # what `isinstance` asks
        return CatalogEntry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._own, name, value)  # which nobody may

    def __eq__(self, other: object) -> bool:
        return self._own == (other._own if type(other) is Unnamed else other)

    def __hash__(self) -> int:
        return hash(self._own)

    def __repr__(self) -> str:
        return repr(self._own)

    def __copy__(self) -> CatalogEntry:
        return self._own

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self._own.__reduce_ex__(protocol)
