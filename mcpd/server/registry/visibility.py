"""Applies visibility rules: for each request, the part of the catalog that it may see.

A hidden entry does not exist for the request: it is in no list, and calling, reading, getting, completing or watching
it fails like an unknown name. An entry is visible if all rules for it return true; a rule that fails hides it. Servers
without rules never load this module.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Iterable, Iterator
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from mcpd.errors import McpdError, as_told
from mcpd.protocol.methods import entries_named
from mcpd.protocol.printable import printable
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from mcpd.server.functions.annotations import Function, is_coroutine_function
from mcpd.server.functions.threads import run_in_thread
from .entries import ActiveExtensions, Entry, Listing
from .rules import CatalogEntry, Component, EntryRule, VisibilityRule, names_of

if TYPE_CHECKING:
    from .catalog import Catalog
    from .entries import TemplateEntry

log = logging.getLogger("mcpd")

E = TypeVar("E", bound=Entry)

# A rule, the key of its entry, and the rule's arguments.
_RuleCall: TypeAlias = tuple[Function, str, tuple[Any, ...]]

_LISTED = {
    "tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
    "resources/templates/list": "templates",
}  # fmt: skip


class _Row(Struct, frozen=True):
    # An entry: its key in the list, its own rule, and what rules see of it.
    key: str
    visible: EntryRule | None
    # Whether `visible` is a coroutine function.
    is_async: bool | None
    described: CatalogEntry


async def view(catalog: Catalog, exchange: Exchange, method: str, params: Any) -> Catalog:
    """Return the catalog as a request sees it, restricted to the lists that its method uses."""
    seen = catalog
    listed = _LISTED.get(method)
    if listed is not None:
        rows = {listed: _rows_of_all(catalog, listed)}
    else:
        entries_by_list = _entries_of(catalog, method, params)
        rows = {name: list(_rows(catalog, name, entries)) for name, entries in entries_by_list.items()}

    for name, each in rows.items():
        hidden = await _Evaluation(exchange).hidden(each, catalog.rules or [])
        if hidden:
            if seen is catalog:
                seen = copy.copy(catalog)
            setattr(seen, name, _Seen(getattr(catalog, name), hidden))
    return seen


_kept_rows: WeakKeyDictionary[Listing[Any], tuple[tuple[int, int], list[_Row]]] = WeakKeyDictionary()


def _rows_of_all(catalog: Catalog, name: str) -> list[_Row]:
    listing: Listing[Any] = getattr(catalog, name)
    # Read before the entries, so that a change meanwhile invalidates the rows. Parts of tools depend on tools.
    now = listing.generation, catalog.tools.generation
    kept = _kept_rows.get(listing)
    if kept is None or kept[0] != now:
        kept = _kept_rows[listing] = now, list(_rows(catalog, name, listing))
    return kept[1]


def _rows(catalog: Catalog, listing: str, entries: Iterable[Any]) -> Iterator[_Row]:
    component: Any = listing.removesuffix("s")
    for entry in entries:
        of_tool = entry.of_tool if listing == "resources" else None
        # A part of a tool is visible to everybody who sees the tool.
        subject = entry if of_tool is None else catalog.tools.find(of_tool)
        if subject is not None:
            rule = subject.visible
            is_async = None if rule is None else is_coroutine_function(rule)
            yield _Row(entry.key, rule, is_async, _described(component if of_tool is None else "tool", subject))


class _Evaluation:
    # Evaluates all rules for one request and one list. Hidden entries are not evaluated again.
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._context = Context(exchange)
        self._hidden: set[str] = set()

    async def hidden(self, rows: list[_Row], rules: list[VisibilityRule]) -> frozenset[str]:
        awaited = [rule for rule in rules if is_coroutine_function(rule)]
        plain = [rule for rule in rules if rule not in awaited]
        if plain or any(row.is_async is False for row in rows):
            # Every coroutine is awaited, even for entries that are hidden by then.
            for call, answer in await run_in_thread(self._call_plain, rows, plain, exchange=self._exchange):
                await self._await_rule(call, answer)
        for call in self._rule_calls(rows, awaited, True):
            await self._await_rule(call)
        return frozenset(self._hidden)

    def _rule_calls(self, rows: list[_Row], rules: list[VisibilityRule], is_async: bool) -> Iterator[_RuleCall]:
        hidden, context = self._hidden, self._context
        for row in rows:
            key, described = row.key, row.described
            own = row.visible
            if own is not None and row.is_async is is_async and key not in hidden:
                yield own, key, (context,)
            for rule in rules:
                if key not in hidden:
                    yield rule, key, (described, context)

    def _call_plain(self, rows: list[_Row], rules: list[VisibilityRule]) -> list[tuple[_RuleCall, Awaitable[Any]]]:
        # Call plain rules, in a thread. Returns coroutines to await, as a lambda may return one.
        promises: list[tuple[_RuleCall, Awaitable[Any]]] = []
        for call in self._rule_calls(rows, rules, False):
            rule, key, arguments = call
            try:
                answer = rule(*arguments)
                if answer is True:
                    continue
                if answer is not False and isawaitable(answer):
                    promises.append((call, answer))
                elif not answer:
                    self._hidden.add(key)
            except BaseException as error:
                self._fail(call, error)
        return promises

    async def _await_rule(self, call: _RuleCall, answer: Awaitable[Any] | None = None) -> None:
        rule, key, arguments = call
        try:
            if not await (rule(*arguments) if answer is None else answer):
                self._hidden.add(key)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self._fail(call, error)

    def _fail(self, call: _RuleCall, error: BaseException) -> None:
        rule, key, _ = call
        name = getattr(rule, "__qualname__", repr(rule))
        log.error("visibility rule %s failed, which hides %s", printable(name), printable(key), exc_info=as_told(error))
        self._hidden.add(key)


def _described(component: Component, entry: Any) -> CatalogEntry:
    if component == "tool":
        tool = getattr(entry, "tool", None) or entry.listed(frozenset())
        return CatalogEntry(component="tool", name=entry.key, uri=None, tags=entry.tags, meta=tool.meta or {})
    names = names_of(component, entry)
    uri = entry.key if component in ("resource", "template") else None
    meta = entry.listed(frozenset()).meta
    return CatalogEntry(component=component, name=names[-1], uri=uri, tags=entry.tags, meta=meta or {})


def _entries_of(catalog: Catalog, method: str, params: Any) -> dict[str, list[Any]]:
    listing, names = entries_named(method, params)
    if listing in ("tools", "prompts"):
        return {listing: _found(getattr(catalog, listing), names)}

    keys = set(names)
    if catalog.registered_uri is not None:
        keys |= {registered for uri in names if (registered := catalog.registered_uri(uri)) is not None}
    return {
        "resources": _found(catalog.resources, keys),
        "templates": [
            entry for entry in catalog.templates if entry.key in keys or any(_matches(entry, uri) for uri in names)
        ],
    }


def _matches(template: TemplateEntry, uri: str) -> bool:
    try:
        return template.match(uri) is not None
    except McpdError:
        return True  # its error is for callers that see it


def _found(listing: Listing[E], keys: Iterable[str]) -> list[E]:
    return [entry for key in keys if (entry := listing.find_enabled(key)) is not None]


class _Seen(Listing[E]):
    # A list without the entries that are hidden from one request.
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
