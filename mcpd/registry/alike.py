"""Entries that a rule of who sees what cannot tell apart: it is asked about one of them, and its answer is that of all.

Theory of operation. Of most rules the answer depends on tags and on who asks, and a list has a thousand entries with
ten kinds of tags. So entries are put into groups: those of one group have the same component, tags and own rule. A rule
is told of an entry that has only what the group has in common (`unnamed`), and whether it looked at more is noted: at a
name, a URI, what there is of `_meta`. If it did not, it came to its answer by what is the same in the whole group, and
would come to it again. If it did, or failed, it is asked about each entry, told as it is. Groups are made once for a
listing, until it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from .rules import CatalogEntry, EntryRule

__all__ = ["Group", "Groups", "Look", "Row", "unnamed"]

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


class Look:
    """Gives one of the entries that another stands for, which lacks what is asked for; `was_taken` if it did."""

    __slots__ = ("_entry", "was_taken")

    def __init__(self, entry: CatalogEntry) -> None:
        self._entry = entry
        self.was_taken = False

    def __call__(self) -> CatalogEntry:
        self.was_taken = True
        return self._entry


def unnamed(entry: CatalogEntry) -> tuple[CatalogEntry, Look]:
    """An entry that stands for all that are like this one, and what tells whether it still does.

    It is of the same class, and only what they have in common is set in it: what reads another member, or all of them,
    asks for the one. Functions of msgspec ask for nothing, and raise AttributeError.
    """
    look = Look(entry)
    stands = CatalogEntry(component=entry.component, name="", uri=None, tags=entry.tags, meta={})
    vars(stands)["look"] = look
    own = ["name"]
    if entry.component not in ("tool", "prompt"):
        own.append("uri")
    if entry.meta:
        own.append("meta")
    for name in own:
        getattr(CatalogEntry, name).__delete__(stands)  # it is frozen only to who sets an attribute
    return stands, look
