"""The entries of the catalog, as protocols, and their lists: a function, a file or another server may be behind one.

`tools.FunctionTool`, `resources.FunctionResource`, `resources.FunctionTemplate` and `prompts.FunctionPrompt` are
entries with functions. A class that derives from one of the protocols inherits defaults: visible to every client,
without additions of extensions.

Lists have pages with opaque cursors. Entries are numbered in order of arrival, and a cursor is the number of the last
entry of its page. So no page repeats or skips an entry when others come and go, including that last one.
Spec: 2026-07-28 server/utilities/pagination.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Raw, Struct

from mcpd.errors import InvalidParams, RegistrationError
from mcpd.protocol.types.features import (
    CallToolResult,
    GetPromptResult,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    Tool,
)
from mcpd.server.context.exchange import Exchange

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import Completion
    from mcpd.protocol.wire.headers import Mirror
    from .rules import Condition, EntryRule, Needs

# The ids of the extensions that are active for one request; in lists, also the keys of the conditions that hold.
ActiveExtensions = frozenset[str]

# The owner of everything that programs register with decorators, `add_tool` and the like.
DECORATORS: Final = "decorators"

_NOTHING: Final[frozenset[str]] = frozenset()

# The maximum number of cached pages; the oldest is dropped.
_MOST_PAGES: Final = 1024

# The maximum number of cached pages for callers with hidden entries, whose bytes are cached too.
_MOST_SEEN: Final = 64


class Entry(Protocol):
    """One item of a list, for clients with the extension that it `requires`; None means all."""

    key: str
    requires: str | None = None
    tags: frozenset[str] = frozenset()
    # Whether it is enabled, unless `Server.enable` or `disable` changed that.
    is_enabled: bool = True
    # Its own visibility rule; None shows it to everybody.
    visible: EntryRule | None = None
    # What callers need to use it; None means nothing.
    needs: Needs | None = None

    def listed(self, active: ActiveExtensions) -> Any:
        """Return the item as clients with these extensions see it."""


E = TypeVar("E", bound=Entry)


class Listing(Generic[E]):
    """Entries by key, in order of registration. `make_page(items, next_cursor)` builds a list result.

    Entries may change from any thread; pages are requested on the event loop's thread. Until something changes the same
    page is the same object, so that its bytes can be cached.
    """

    def __init__(
        self,
        what: str,
        make_page: Callable[[list[Any], str | None], Any],
        page_size: int,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """`lock` is reentrant, and may be shared with lists that change together."""
        self.what = what
        self.page_size = page_size
        self._make_page = make_page

        self._entries: dict[str, E] = {}
        # The enabled entries; the same object if all are enabled.
        self._offered = self._entries
        self._numbers: dict[str, int] = {}
        # The owners of entries by key, except DECORATORS.
        self._owners: dict[str, str] = {}
        self._next_number = 1

        self._pages: dict[tuple[ActiveExtensions, str | None, frozenset[str]], Any] = {}
        self._generation = 0
        self._lock = RLock() if lock is None else lock

        self.on_change: Callable[[], None] | None = None
        # Called once, when the next page is made.
        self.on_listed: Callable[[], None] | None = None
        # Returns whether an entry is enabled; None means as it was registered.
        self.is_on: Callable[[E], bool] | None = None
        # Returns whether an entry can be used but is never listed. Must be set before the first page is requested.
        self.is_unlisted: Callable[[E], bool] | None = None

    def __len__(self) -> int:
        return len(self._offered)

    def __iter__(self) -> Iterator[E]:
        return iter(list(self._offered.values()))

    @property
    def generation(self) -> int:
        """A number that changes whenever an entry came, went or may be listed differently."""
        return self._generation

    @property
    def registered(self) -> list[E]:
        """All entries, including disabled ones."""
        return list(self._entries.values())

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str, active: ActiveExtensions = frozenset()) -> E | None:
        """Return the entry with this key, or None if it does not exist with these extensions."""
        entry = self._offered.get(key)
        if entry is None or (entry.requires is not None and entry.requires not in active):
            return None
        return entry

    def find(self, key: str) -> E | None:
        """Return the entry with this key, even a disabled one."""
        return self._entries.get(key)

    def find_enabled(self, key: str) -> E | None:
        """Return the entry with this key, unless it is disabled."""
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
        """Remove an entry. Returns False if there was none."""
        with self._lock:
            if self._entries.pop(key, None) is None:
                return False
            is_seen = self._offered is self._entries or self._offered.pop(key, None) is not None
            del self._numbers[key]
            self._owners.pop(key, None)
        if is_seen:
            self.changed()
        return True

    def restricted(self, keep: Callable[[E], bool]) -> Listing[E]:
        """Return a list of the entries that are enabled now and that `keep` accepts."""
        part: Listing[E] = Listing(self.what, self._make_page, self.page_size)
        part.is_unlisted = self.is_unlisted
        for entry in self:
            if keep(entry):
                part.add(entry)
        return part

    def check(self, owner: str, entries: Iterable[E]) -> None:
        """Raise RegistrationError if `owner` cannot have these entries."""
        seen = set()
        for entry in entries:
            if entry.key in seen or (entry.key in self._entries and self._owner(entry.key) != owner):
                raise self._taken(entry.key)
            seen.add(entry.key)

    def exchange(self, owner: str, entries: Iterable[E]) -> dict[str, bool]:
        """Replace all entries of `owner`. Returns the keys that were added, removed or changed, and whether removed.

        Remaining entries keep their place; equal entries change nothing. Does not call `on_change`. Call `check` first.
        """
        new = {entry.key: entry for entry in entries}
        touched: dict[str, bool] = {}

        with self._lock:
            # A new dict replaces the old one at once, for threads that iterate over the entries.
            merged: dict[str, E] = {}
            for key, entry in self._entries.items():
                if self._owner(key) != owner:
                    merged[key] = entry
                elif key in new:
                    merged[key] = new[key]
                    if new[key] != entry:
                        touched[key] = False
                else:
                    touched[key] = True
                    del self._numbers[key]
                    self._owners.pop(key, None)

            for key, entry in new.items():
                if key not in merged:
                    touched[key] = False
                    merged[key] = entry
                    self._number(key)
                if owner != DECORATORS:
                    self._owners[key] = owner

            self._entries = merged
            self._choose()
            if touched:
                self.forget_pages()
        return touched

    def switched(self) -> bool:
        """Decide again which entries are enabled. Returns whether that changed. Does not call `on_change`."""
        with self._lock:
            before = list(self._offered)
            self._choose()
            is_changed = before != list(self._offered)
            if is_changed:
                self.forget_pages()
        return is_changed

    def _choose(self) -> None:
        is_on = self.is_on
        enabled = {
            key: entry for key, entry in self._entries.items() if (entry.is_enabled if is_on is None else is_on(entry))
        }
        self._offered = self._entries if len(enabled) == len(self._entries) else enabled

    def owner_of(self, key: str) -> str | None:
        """Return the source that an entry is from; None for one that a program registered."""
        return self._owners.get(key)

    def _owner(self, key: str) -> str:
        return self._owners.get(key, DECORATORS)

    def _number(self, key: str) -> None:
        if key not in self._numbers:
            self._numbers[key] = self._next_number
            self._next_number += 1

    def _taken(self, key: str) -> RegistrationError:
        owner = self._owner(key)
        whose = "" if owner == DECORATORS else f" by {owner}"
        return RegistrationError(f"{self.what} {key!r} is already registered{whose}; names are unique per server")

    def changed(self) -> None:
        """Drop cached pages and call `on_change`."""
        self.forget_pages()
        if self.on_change is not None:
            self.on_change()

    def forget_pages(self) -> None:
        """Drop cached pages."""
        with self._lock:
            self._generation += 1
            self._pages.clear()

    def page(self, active: ActiveExtensions, cursor: str | None, hidden: frozenset[str] = _NOTHING) -> Any:
        """Return one page, without `hidden` entries. Raises InvalidParams for a cursor that is not ours, including
        `""`.
        """
        page = self._pages.get((active, cursor, hidden))
        if page is None:
            generation = self._generation
            if self.on_listed is not None:
                told, self.on_listed = self.on_listed, None
                told()
            page = self._build(active, cursor, hidden)
            with self._lock:
                # Not if an entry changed meanwhile in another thread.
                if generation == self._generation:
                    kept = [key for key in self._pages if key[2]] if hidden else list(self._pages)
                    if len(kept) >= (_MOST_SEEN if hidden else _MOST_PAGES):
                        del self._pages[kept[0]]
                    self._pages[active, cursor, hidden] = page
        return page

    @property
    def has_pages(self) -> bool:
        """Whether a page has been made since the last change."""
        return bool(self._pages)

    def is_for_all(self, page: object) -> bool:
        """Return whether this is a page that every client receives, regardless of its extensions."""
        if not any(page is one for one in list(self._pages.values())):
            return False
        return not any(entry.requires is not None or _is_changed(entry) for entry in self)

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
        following = make_cursor(str(self._numbers.get(shown[-1].key, 0))) if len(entries) > len(shown) else None
        return self._make_page([entry.listed(active) for entry in shown], following)

    def _number_in(self, cursor: str) -> int:
        text = read_cursor(cursor)
        number = int(text) if text.isdecimal() and len(text) < 20 else 0
        if not 0 < number < self._next_number or make_cursor(str(number)) != cursor:
            raise InvalidParams("cursor: not a cursor of this server; start again without one")
        return number


def _is_changed(entry: Any) -> bool:
    # Whether an extension shows more of an entry to its clients.
    added: Mapping[str, ToolMeta] = getattr(entry, "extension_meta", {})
    return any(each.condition is not None or each.meta(frozenset((name,))) for name, each in added.items())


def make_cursor(text: str) -> str:
    """Return a text as an opaque cursor."""
    from binascii import b2a_base64  # few lists have a second page

    return b2a_base64(text.encode(), newline=False).decode()


def read_cursor(cursor: str) -> str:
    """Return the text of a cursor; "" if it is none of `make_cursor`."""
    from binascii import a2b_base64

    try:
        text = a2b_base64(cursor, strict_mode=True).decode()
    except ValueError:  # binascii.Error is a ValueError
        return ""
    return text if make_cursor(text) == cursor else ""


class Problem(Struct, frozen=True):
    """A problem of an entry, in words for its author; printed by `mcpd check`.

    An error fails for some client, a warning is worth fixing.
    """

    where: str
    """The entry or place, e.g. `tool forecast`."""
    text: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


T = TypeVar("T")
Later: TypeAlias = T | Coroutine[Any, Any, T]
"""A result or a coroutine of one."""


class ToolMeta(Protocol):
    """The `_meta` that one extension adds to a tool."""

    condition: Condition | None
    """A condition for `meta`, beside the extension; its key is among the active extensions if it holds."""

    def meta(self, active: ActiveExtensions) -> Mapping[str, Any]:
        """Return the `_meta` that only clients with this extension see."""


class ToolEntry(Entry, Protocol):
    """A tool; `key` is its name."""

    @property
    def extension_meta(self) -> Mapping[str, ToolMeta]:
        """The additions of extensions, by the extension's id."""
        return {}

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The arguments that HTTP headers repeat, by `x-mcp-header` in the input schema."""
        return ()

    def listed(self, active: ActiveExtensions) -> Tool:
        """Return the tool as `tools/list` shows it with these extensions active."""

    def run(self, arguments: Raw, exchange: Exchange) -> Coroutine[Any, Any, CallToolResult]:
        """Call the tool. `arguments` are the JSON as received, or `types.base.NO_JSON` if there were none."""


class ResourceEntry(Entry, Protocol):
    """A resource; `key` is its URI."""

    of_tool: str | None = None
    """The tool that it is a part of: visible to everybody who sees that tool, regardless of rules for resources. `""`
    is a part of several tools that is visible to everybody.
    """

    @property
    def extension_data(self) -> Mapping[str, Any]:
        """Data of extensions about the resource, beside what is listed, by the extension's id."""
        return {}

    def listed(self, active: ActiveExtensions) -> Resource:
        """Return the resource as `resources/list` shows it with these extensions active."""

    def run(self, uri: str, exchange: Exchange) -> Later[ReadResourceResult]:
        """Read the resource. `uri` is the URI that the client sent. Raises ResourceNotFound."""


class Completing(Protocol):
    """An entry with arguments that clients complete. `Server.completion` goes before its own completion."""

    @property
    def arguments(self) -> Collection[str]:
        """The names of its arguments."""
        return ()

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        """Return suggestions for an argument that begins with `value`; `others` are the arguments known so far."""
        from mcpd.protocol.types.interaction import Completion  # few clients ask

        return Completion(values=[])


class TemplateEntry(Entry, Completing, Protocol):
    """A family of resources; `key` is its URI template."""

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        """Return the template as `resources/templates/list` shows it with these extensions active."""

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in a URI, or None if the URI does not match.

        Raises InvalidParams for forbidden values, such as `..` in a path.
        """

    def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> Later[ReadResourceResult]:
        """Read the resource of a URI that matches. Raises ResourceNotFound."""


class PromptEntry(Entry, Completing, Protocol):
    """A prompt; `key` is its name."""

    def listed(self, active: ActiveExtensions) -> Prompt:
        """Return the prompt as `prompts/list` shows it with these extensions active."""

    def run(self, arguments: dict[str, str | None], exchange: Exchange) -> Later[GetPromptResult]:
        """Return its messages. An argument that is None was left empty. Raises InvalidParams for a missing or unknown
        one.
        """


class Entries(Struct, frozen=True, kw_only=True):
    """All entries of one owner, for `Server.replace`. None means none of that kind ever, `()` none now."""

    tools: Sequence[ToolEntry] | None = None
    resources: Sequence[ResourceEntry] | None = None
    templates: Sequence[TemplateEntry] | None = None
    prompts: Sequence[PromptEntry] | None = None
    problems: Sequence[Problem] = ()
    """The items that were left out, with reasons, for `mcpd check`."""
