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
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from ..context.context import Context
from ..context.exchange import Exchange
from ..errors import McpdError, as_told
from ..printable import printable
from .alike import Group, Groups, Look, Row, unnamed
from .annotations import is_coroutine_function
from .pages import ActiveExtensions, Entry, Listing
from .rules import CatalogEntry
from .switches import Component, names_of
from .threads import run_in_thread

if TYPE_CHECKING:
    from .catalog import Catalog
    from .entries import TemplateEntry

__all__ = ["view"]

log = logging.getLogger("mcpd")

E = TypeVar("E", bound=Entry)


_LISTED = {
    "tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
    "resources/templates/list": "templates",
}  # fmt: skip


class _Question(Struct):
    """What is to be asked about the entries of a group: of all at once, if the rule cannot tell them apart."""

    rule: Callable[..., Any]
    group: Group
    is_of_entry: bool
    """It is the group's own rule, which is told of nothing but the request."""

    def of_all(self, told: CatalogEntry, context: Context) -> Any:
        return self.rule(context) if self.is_of_entry else self.rule(told, context)

    def of_one(self, row: Row, context: Context) -> Any:
        return self.rule(context) if self.is_of_entry else self.rule(row.told, context)


class _Promise(Struct):
    """An answer of a plain rule that has to be awaited: a lambda around an `async def`. About a group or one row."""

    answer: Awaitable[Any]
    question: _Question
    look: Look | None
    row: Row | None


async def view(catalog: Catalog, exchange: Exchange, method: str, params: Any) -> Catalog:
    """The catalog as a request sees it, as far as its method looks at it."""
    seen = catalog
    listed = _LISTED.get(method)
    if listed is not None:
        groups = {listed: _groups_of_all(catalog, listed)}
    else:
        found = _asked(catalog, method, params)
        groups = {name: Groups(_rows(catalog, name, entries)) for name, entries in found.items()}

    for name, each in groups.items():
        hidden = await _Asking(catalog, each, exchange).hidden()
        if hidden:
            if seen is catalog:
                seen = copy.copy(catalog)
            setattr(seen, name, _Seen(getattr(catalog, name), hidden))
    return seen


_groups: WeakKeyDictionary[Listing[Any], tuple[tuple[int, int], Groups]] = WeakKeyDictionary()


def _groups_of_all(catalog: Catalog, name: str) -> Groups:
    listing: Listing[Any] = getattr(catalog, name)
    # Before the entries are read: what changes meanwhile makes them anew next time. Parts of tools depend on tools.
    now = listing.generation, catalog.tools.generation
    kept = _groups.get(listing)
    if kept is None or kept[0] != now:
        kept = _groups[listing] = now, Groups(_rows(catalog, name, listing))
    return kept[1]


def _rows(catalog: Catalog, listing: str, entries: Iterable[Any]) -> Iterator[Row]:
    component: Any = listing.removesuffix("s")
    for entry in entries:
        of_tool = entry.of_tool if listing == "resources" else None
        if of_tool is None:
            yield Row(entry.key, entry.visible, _described(component, entry))
        else:
            # A part of a tool is for those who see the tool.
            tool = catalog.tools.find(of_tool)
            if tool is not None:
                yield Row(entry.key, tool.visible, _described("tool", tool))


class _Asking:
    """All that one request asks about one listing. What is hidden is not asked about any more."""

    def __init__(self, catalog: Catalog, groups: Groups, exchange: Exchange) -> None:
        self._rules = catalog.rules or ()
        self._groups = groups
        self._exchange = exchange
        self._context = Context(exchange)
        self._whole: set[Group] = set()
        self._single: set[str] = set()
        """The keys of what is hidden: of groups as a whole, and of single rows of others."""

    async def hidden(self) -> frozenset[str]:
        """The keys of what this request does not see."""
        plain: list[_Question] = []
        awaited: list[_Question] = []
        rules = [(rule, is_coroutine_function(rule)) for rule in self._rules]
        is_async: dict[int, bool] = {}
        """By the id of a group's own rule: to look at it takes longer than to ask it."""

        for group in self._groups:
            visible = group.visible
            if visible is not None:
                of_rule = is_async.get(id(visible))
                if of_rule is None:
                    of_rule = is_async[id(visible)] = is_coroutine_function(visible)
                (awaited if of_rule else plain).append(_Question(visible, group, True))
            for rule, of_rule in rules:
                (awaited if of_rule else plain).append(_Question(rule, group, False))

        promises: list[_Promise] = []
        if plain:
            promises = await run_in_thread(self._ask_all, plain, exchange=self._exchange)
        for question in awaited:
            await self._ask_later(question)
        for promise in promises:
            await self._hear(promise)

        keys = self._groups.keys_of(self._whole) if self._whole else frozenset()
        return keys | self._single if self._single else keys

    def _open(self, group: Group) -> list[Row]:
        single = self._single
        return [row for row in group.rows if row.key not in single] if single else group.rows

    # -- plain rules, in a thread ------------------------------------------------------------

    def _ask_all(self, questions: list[_Question]) -> list[_Promise]:
        """Ask plain rules; gives what has to be awaited."""
        promises: list[_Promise] = []
        for question in questions:
            if question.group not in self._whole:
                self._ask(question, promises)
        return promises

    def _ask(self, question: _Question, promises: list[_Promise]) -> None:
        group, context = question.group, self._context
        if len(group.rows) > 1:
            told, look = _unnamed(group)
            try:
                answer = question.of_all(told, context)
                if isawaitable(answer):
                    promises.append(_Promise(answer, question, look, None))  # by itself it would count as yes
                    return
                is_hidden = not answer
            except BaseException:
                pass  # each by itself: what fails is logged with its key
            else:
                if not look.was_taken:
                    if is_hidden:
                        self._whole.add(group)
                    return

        rule, is_of_entry = question.rule, question.is_of_entry
        for row in self._open(group):
            try:
                answer = rule(context) if is_of_entry else rule(row.told, context)
                if answer is True:
                    continue
                if answer is not False and isawaitable(answer):
                    promises.append(_Promise(answer, question, None, row))
                elif not answer:
                    self._single.add(row.key)
            except BaseException as error:
                self._fail(rule, row, error)

    # -- what is awaited ---------------------------------------------------------------------

    async def _ask_later(self, question: _Question) -> None:
        group, context = question.group, self._context
        if group in self._whole:
            return

        if len(group.rows) > 1:
            told, look = _unnamed(group)
            try:
                is_hidden = not await _answer(question.of_all(told, context))
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException:
                pass  # each by itself, as above
            else:
                if not look.was_taken:
                    if is_hidden:
                        self._whole.add(group)
                    return

        await self._ask_each(question)

    async def _ask_each(self, question: _Question) -> None:
        for row in self._open(question.group):
            try:
                if not await _answer(question.of_one(row, self._context)):
                    self._single.add(row.key)
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:
                self._fail(question.rule, row, error)

    async def _hear(self, promise: _Promise) -> None:
        """Await what was asked already; whatever is hidden meanwhile, or it would be a coroutine nobody awaits."""
        question, look, row = promise.question, promise.look, promise.row
        try:
            is_hidden = not await promise.answer
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            if row is not None:
                self._fail(question.rule, row, error)
                return
        else:
            if row is not None or (look is not None and not look.was_taken):
                if is_hidden and row is not None:
                    self._single.add(row.key)
                elif is_hidden:
                    self._whole.add(question.group)
                return

        if question.group not in self._whole:
            await self._ask_each(question)

    def _fail(self, rule: Callable[..., Any], row: Row, error: BaseException) -> None:
        name = getattr(rule, "__qualname__", repr(rule))
        told = as_told(error)
        log.error("visibility rule %s failed, which hides %s", printable(name), printable(row.key), exc_info=told)
        self._single.add(row.key)


def _unnamed(group: Group) -> tuple[CatalogEntry, Look]:
    told = group.rows[0].told
    assert told is not None
    return unnamed(told)


async def _answer(given: Any) -> Any:
    return await given if given.__class__ is CoroutineType or isawaitable(given) else given


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
