"""Ordered collections that are listed in pages, with opaque cursors.

Spec: 2026-07-28 server/utilities/pagination. Entries are numbered as they come, and a cursor is the number of
the last entry of its page: what comes and goes, that entry itself included, makes no page repeat or skip another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from mcpd.errors import InvalidParams, RegistrationError

if TYPE_CHECKING:
    from mcpd.server.registry.rules import EntryRule, Needs

ActiveExtensions = frozenset[str]
"""The ids of the extensions that are active for one request; in lists, the keys of the conditions that hold too."""


DECORATORS: Final = "decorators"
"""The owner of all that programs register themselves: with decorators, `add_tool` and their like."""


_NOTHING: Final[frozenset[str]] = frozenset()

_MOST_PAGES: Final = 1024
"""How many pages are kept; beyond them the oldest is made anew when it is asked for."""

_MOST_SEEN: Final = 64
"""How many pages are kept, if they are those of some callers only: their bytes are kept too."""


class Entry(Protocol):
    """One thing that is listed; for clients with the extension that it `requires`, None for all."""

    key: str
    requires: str | None
    tags: frozenset[str]
    is_enabled: bool
    """Whether it is there, if nothing was enabled or disabled since that concerns it."""
    visible: EntryRule | None
    """Who sees it; None: everybody."""
    needs: Needs | None
    """What those have to have who use it; None: nothing."""

    def listed(self, active: ActiveExtensions) -> Any:
        """The item as clients with those extensions see it."""


E = TypeVar("E", bound=Entry)


class Listing(Generic[E]):
    """Entries by key, in order of registration. `make_page(items, next_cursor)` builds a list result.

    Entries may come and go from any thread; pages are asked for in the event loop's. The same page is the
    same object until something changes, so that its bytes can be kept.
    """

    def __init__(
        self,
        what: str,
        make_page: Callable[[list[Any], str | None], Any],
        page_size: int,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """`lock` may be shared with others that change together, and is one that its holder can take again."""
        self.what = what
        self.page_size = page_size
        self._make_page = make_page

        self._entries: dict[str, E] = {}
        """All that are registered."""
        self._offered = self._entries
        """Those of them that are enabled; the same object while all are."""
        self._numbers: dict[str, int] = {}
        self._owners: dict[str, str] = {}
        """Who owns an entry, by its key; those of DECORATORS are not here."""
        self._next_number = 1

        self._pages: dict[tuple[ActiveExtensions, str | None, frozenset[str]], Any] = {}
        self._generation = 0
        self._lock = RLock() if lock is None else lock

        self.on_change: Callable[[], None] | None = None
        self.on_listed: Callable[[], None] | None = None
        """Called once, when the next page is made: a client wants to see what there is."""
        self.is_on: Callable[[E], bool] | None = None
        """Says of an entry that it is enabled; None: as it was registered."""
        self.is_unlisted: Callable[[E], bool] | None = None
        """Says of an entry that it can be used but is never listed; set it before the first page is asked for."""

    def __len__(self) -> int:
        return len(self._offered)

    def __iter__(self) -> Iterator[E]:
        return iter(list(self._offered.values()))

    @property
    def generation(self) -> int:
        """Another one whenever an entry came, went or may be listed otherwise."""
        return self._generation

    @property
    def registered(self) -> list[E]:
        """All entries, those that are disabled too."""
        return list(self._entries.values())

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str, active: ActiveExtensions = frozenset()) -> E | None:
        """The entry of that key, None if there is none with those extensions."""
        entry = self._offered.get(key)
        if entry is None or (entry.requires is not None and entry.requires not in active):
            return None
        return entry

    def find(self, key: str) -> E | None:
        """The entry of that key, whoever may see it; also one that is disabled."""
        return self._entries.get(key)

    def offered(self, key: str) -> E | None:
        """The entry of that key, whoever may see it, unless it is disabled."""
        return self._offered.get(key)

    def add(self, entry: E, *, replace: bool = False) -> None:
        """Add an entry. Raises RegistrationError if its key is taken and `replace` is false."""
        with self._lock:
            if not replace and entry.key in self._entries:
                raise self._taken(entry.key)
            self._number(entry.key)
            was_offered = entry.key in self._offered
            self._entries[entry.key] = entry
            if self._offered is not self._entries or self.is_on is not None or not entry.is_enabled:
                self._choose()
            is_seen = was_offered or entry.key in self._offered
        if is_seen:
            self.changed()

    def remove(self, key: str) -> bool:
        """Remove an entry; False if there was none."""
        with self._lock:
            if self._entries.pop(key, None) is None:
                return False
            is_seen = self._offered is self._entries or self._offered.pop(key, None) is not None
            del self._numbers[key]
            self._owners.pop(key, None)
        if is_seen:
            self.changed()
        return True

    def check(self, owner: str, entries: Iterable[E]) -> None:
        """Raise RegistrationError if these could not be all that `owner` has."""
        seen = set()
        for entry in entries:
            if entry.key in seen or (entry.key in self._entries and self._owner(entry.key) != owner):
                raise self._taken(entry.key)
            seen.add(entry.key)

    def exchange(self, owner: str, entries: Iterable[E]) -> dict[str, bool]:
        """Replace all entries of `owner`; gives the keys that are new, removed or changed, and whether removed.

        What stays keeps its place. Equal entries change nothing. `on_change` is not called; `check` comes first.
        """
        new = {entry.key: entry for entry in entries}
        touched: dict[str, bool] = {}

        with self._lock:
            # A new dict, put in place whole: whoever walks the entries meanwhile sees the old ones.
            found: dict[str, E] = {}
            for key, entry in self._entries.items():
                if self._owner(key) != owner:
                    found[key] = entry
                elif key in new:
                    found[key] = new[key]
                    if new[key] != entry:
                        touched[key] = False
                else:
                    touched[key] = True
                    del self._numbers[key]
                    self._owners.pop(key, None)

            for key, entry in new.items():
                if key not in found:
                    touched[key] = False
                    found[key] = entry
                    self._number(key)
                if owner != DECORATORS:
                    self._owners[key] = owner

            self._entries = found
            self._choose()
            if touched:
                self.forget_pages()
        return touched

    def switched(self) -> bool:
        """What is enabled may be something else now; whether it is. `on_change` is not called."""
        with self._lock:
            before = list(self._offered)
            self._choose()
            is_changed = before != list(self._offered)
            if is_changed:
                self.forget_pages()
        return is_changed

    def _choose(self) -> None:
        is_on = self.is_on
        found = {
            key: entry for key, entry in self._entries.items() if (entry.is_enabled if is_on is None else is_on(entry))
        }
        self._offered = self._entries if len(found) == len(self._entries) else found

    def _owner(self, key: str) -> str:
        return self._owners.get(key, DECORATORS)

    def _number(self, key: str) -> None:
        if key not in self._numbers:
            self._numbers[key] = self._next_number
            self._next_number += 1

    def _taken(self, key: str) -> RegistrationError:
        owner = self._owner(key)
        whose = "" if owner == DECORATORS else f" ({owner} has it)"
        return RegistrationError(f"There is a {self.what} {key!r} already{whose}; names are unique per server")

    def changed(self) -> None:
        """Forget the pages made so far, and tell whoever announces changes."""
        self.forget_pages()
        if self.on_change is not None:
            self.on_change()

    def forget_pages(self) -> None:
        """The next page is made anew."""
        with self._lock:
            self._generation += 1
            self._pages.clear()

    def page(self, active: ActiveExtensions, cursor: str | None, hidden: frozenset[str] = _NOTHING) -> Any:
        """One page, without what is `hidden`. Raises InvalidParams for a cursor that is not ours, `""` as well."""
        page = self._pages.get((active, cursor, hidden))
        if page is None:
            generation = self._generation
            if self.on_listed is not None:
                told, self.on_listed = self.on_listed, None
                told()
            page = self._build(active, cursor, hidden)
            with self._lock:
                # Not if an entry came or went meanwhile, from another thread.
                if generation == self._generation:
                    kept = [key for key in self._pages if key[2]] if hidden else list(self._pages)
                    if len(kept) >= (_MOST_SEEN if hidden else _MOST_PAGES):
                        del self._pages[kept[0]]
                    self._pages[active, cursor, hidden] = page
        return page

    @property
    def has_pages(self) -> bool:
        """Whether one has been made since something changed."""
        return bool(self._pages)

    def is_for_all(self, page: object) -> bool:
        """Whether this is a page of ours that every client gets, whatever extensions it offers."""
        if not any(page is one for one in list(self._pages.values())):
            return False
        return not any(entry.requires is not None or getattr(entry, "extension_meta", None) for entry in self)

    def _build(self, active: ActiveExtensions, cursor: str | None, hidden: frozenset[str]) -> Any:
        entries = [e for e in self if e.requires is None or e.requires in active]
        if hidden:
            entries = [entry for entry in entries if entry.key not in hidden]
        if self.is_unlisted is not None:
            entries = [entry for entry in entries if not self.is_unlisted(entry)]
        if cursor is not None:
            last = self._number_in(cursor)
            entries = [entry for entry in entries if self._numbers.get(entry.key, 0) > last]
        shown = entries[: self.page_size]
        following = _cursor(self._numbers.get(shown[-1].key, 0)) if len(entries) > len(shown) else None
        return self._make_page([entry.listed(active) for entry in shown], following)

    def _number_in(self, cursor: str) -> int:
        from binascii import a2b_base64  # a library to load, and few lists have a second page

        try:
            number = int(a2b_base64(cursor, strict_mode=True).decode())
        except ValueError:  # as is binascii's own error
            number = 0
        if not 0 < number < self._next_number or _cursor(number) != cursor:
            raise InvalidParams("cursor: not a cursor of this server; start again without one")
        return number


def _cursor(number: int) -> str:
    from binascii import b2a_base64

    return b2a_base64(str(number).encode(), newline=False).decode()
