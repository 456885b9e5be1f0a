"""Who may see what: rules over an entry and the request, asked for each request.

What a rule hides does not exist for that request: it is in no list, and to call, read, get, complete or watch it is
answered as an unknown name is. An entry is seen if all rules that concern it say so; one that fails says no. A server
without rules has none of this: nothing is looked at, and this is not loaded.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from mcpd.errors import McpdError, as_told
from mcpd.protocol.printable import printable
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from mcpd.server.functions.annotations import is_coroutine_function
from mcpd.server.functions.threads import run_in_thread
from mcpd.server.registry.listing import ActiveExtensions, Entry, Listing
from mcpd.server.registry.rules import CatalogEntry, Component, EntryRule, VisibilityRule, names_of

if TYPE_CHECKING:
    from mcpd.server.registry.catalog import Catalog
    from mcpd.server.registry.entries import TemplateEntry

log = logging.getLogger("mcpd")

E = TypeVar("E", bound=Entry)

_Question: TypeAlias = tuple[Callable[..., Any], str, tuple[Any, ...]]
"""A rule, the key of the entry that it is asked about, and what it is told."""


_LISTED = {
    "tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
    "resources/templates/list": "templates",
}  # fmt: skip


class _Row(Struct, frozen=True):
    """An entry: its key in the listing, its own rule, and what rules are told of it."""

    key: str
    visible: EntryRule | None
    is_async: bool | None
    """What `visible` is."""
    told: CatalogEntry


async def view(catalog: Catalog, exchange: Exchange, method: str, params: Any) -> Catalog:
    """The catalog as a request sees it, as far as its method looks at it."""
    seen = catalog
    listed = _LISTED.get(method)
    if listed is not None:
        rows = {listed: _rows_of_all(catalog, listed)}
    else:
        found = _asked(catalog, method, params)
        rows = {name: list(_rows(catalog, name, entries)) for name, entries in found.items()}

    for name, each in rows.items():
        hidden = await _Asking(exchange).hidden(each, catalog.rules or ())
        if hidden:
            if seen is catalog:
                seen = copy.copy(catalog)
            setattr(seen, name, _Seen(getattr(catalog, name), hidden))
    return seen


_kept_rows: WeakKeyDictionary[Listing[Any], tuple[tuple[int, int], list[_Row]]] = WeakKeyDictionary()


def _rows_of_all(catalog: Catalog, name: str) -> list[_Row]:
    listing: Listing[Any] = getattr(catalog, name)
    # Before the entries are read: what changes meanwhile makes them anew next time. Parts of tools depend on tools.
    now = listing.generation, catalog.tools.generation
    kept = _kept_rows.get(listing)
    if kept is None or kept[0] != now:
        kept = _kept_rows[listing] = now, list(_rows(catalog, name, listing))
    return kept[1]


def _rows(catalog: Catalog, listing: str, entries: Iterable[Any]) -> Iterator[_Row]:
    component: Any = listing.removesuffix("s")
    for entry in entries:
        of_tool = entry.of_tool if listing == "resources" else None
        if of_tool is None:
            yield _row(entry.key, entry.visible, _described(component, entry))
        else:
            # A part of a tool is for those who see the tool.
            tool = catalog.tools.find(of_tool)
            if tool is not None:
                yield _row(entry.key, tool.visible, _described("tool", tool))


def _row(key: str, visible: EntryRule | None, told: CatalogEntry) -> _Row:
    return _Row(key, visible, None if visible is None else is_coroutine_function(visible), told)


class _Asking:
    """All that one request asks about one listing. What is hidden is not asked about any more."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._context = Context(exchange)
        self._hidden: set[str] = set()

    async def hidden(self, rows: list[_Row], rules: Iterable[VisibilityRule]) -> frozenset[str]:
        """The keys of what this request does not see."""
        plain: list[VisibilityRule] = []
        awaited: list[VisibilityRule] = []
        for rule in rules:
            (awaited if is_coroutine_function(rule) else plain).append(rule)

        if plain or any(row.is_async is False for row in rows):
            # What has to be awaited is, whatever is hidden meanwhile: a coroutine must not be left unawaited.
            for question, answer in await run_in_thread(self._ask_plain, rows, plain, exchange=self._exchange):
                await self._hear(question, answer)
        for question in self._questions(rows, awaited, True):
            await self._hear(question)
        return frozenset(self._hidden)

    def _questions(self, rows: list[_Row], rules: list[VisibilityRule], is_async: bool) -> Iterator[_Question]:
        hidden, context = self._hidden, self._context
        for row in rows:
            key, told = row.key, row.told
            own = row.visible
            if own is not None and row.is_async is is_async and key not in hidden:
                yield own, key, (context,)
            for rule in rules:
                if key not in hidden:
                    yield rule, key, (told, context)

    def _ask_plain(self, rows: list[_Row], rules: list[VisibilityRule]) -> list[tuple[_Question, Awaitable[Any]]]:
        """Ask plain rules, in a thread; gives what has to be awaited: of a lambda around an `async def`."""
        promises: list[tuple[_Question, Awaitable[Any]]] = []
        for question in self._questions(rows, rules, False):
            rule, key, told = question
            try:
                answer = rule(*told)
                if answer is True:
                    continue
                if answer is not False and isawaitable(answer):
                    promises.append((question, answer))
                elif not answer:
                    self._hidden.add(key)
            except BaseException as error:
                self._fail(question, error)
        return promises

    async def _hear(self, question: _Question, answer: Awaitable[Any] | None = None) -> None:
        """Hear an answer that is awaited; if there is none yet, ask for it."""
        rule, key, told = question
        try:
            if not await (rule(*told) if answer is None else answer):
                self._hidden.add(key)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self._fail(question, error)

    def _fail(self, question: _Question, error: BaseException) -> None:
        rule, key, _ = question
        name = getattr(rule, "__qualname__", repr(rule))
        told = as_told(error)
        log.error("visibility rule %s failed, which hides %s", printable(name), printable(key), exc_info=told)
        self._hidden.add(key)


def _described(component: Component, entry: Any) -> CatalogEntry:
    if component == "tool":
        tool = getattr(entry, "tool", None) or entry.listed(frozenset())
        return CatalogEntry(component="tool", name=entry.key, uri=None, tags=entry.tags, meta=tool.meta or {})
    names = names_of(component, entry)
    uri = entry.key if component in ("resource", "template") else None
    meta = entry.listed(frozenset()).meta
    return CatalogEntry(component=component, name=names[-1], uri=uri, tags=entry.tags, meta=meta or {})


def _asked(catalog: Catalog, method: str, params: Any) -> dict[str, list[Any]]:
    """The entries that a request may come upon, by the name of their listing."""
    if method == "tools/call":
        return {"tools": _found(catalog.tools, params.name)}
    if method == "prompts/get":
        return {"prompts": _found(catalog.prompts, params.name)}
    if method == "completion/complete" and hasattr(params.ref, "name"):
        return {"prompts": _found(catalog.prompts, params.ref.name)}

    if method == "completion/complete":
        uris = [params.ref.uri]
    elif method == "subscriptions/listen":
        uris = params.notifications.resource_subscriptions or []
    else:
        uris = [params.uri]
    keys = set(uris)
    if catalog.registered_uri is not None:
        keys |= {registered for uri in uris if (registered := catalog.registered_uri(uri)) is not None}
    return {
        "resources": [entry for key in keys for entry in _found(catalog.resources, key)],
        "templates": [
            entry for entry in catalog.templates if entry.key in keys or any(_matches(entry, uri) for uri in uris)
        ],
    }


def _matches(template: TemplateEntry, uri: str) -> bool:
    try:
        return template.match(uri) is not None
    except McpdError:
        return True  # it has something to say of that URI, which is for those that see it


def _found(listing: Listing[E], key: str) -> list[E]:
    entry = listing.offered(key)
    return [] if entry is None else [entry]


class _Seen(Listing[E]):
    """A listing without what is hidden from one request."""

    def __init__(self, inner: Listing[E], hidden: frozenset[str]) -> None:
        self._inner = inner
        self._hidden = hidden
        self.page_size = inner.page_size

    def __iter__(self) -> Iterator[E]:
        return (entry for entry in self._inner if entry.key not in self._hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, key: str, active: ActiveExtensions = frozenset()) -> E | None:
        return None if key in self._hidden else self._inner.get(key, active)

    def page(self, active: ActiveExtensions, cursor: str | None, hidden: frozenset[str] = frozenset()) -> Any:
        return self._inner.page(active, cursor, self._hidden | hidden)
