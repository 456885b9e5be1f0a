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
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..context.context import Context
from ..context.exchange import Exchange
from ..errors import McpdError, as_told
from ..printable import printable
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


_Question: TypeAlias = tuple[str, Callable[..., Any], tuple[Any, ...]]
"""(key of an entry, rule, what it is asked)"""


async def view(catalog: Catalog, exchange: Exchange, method: str, params: Any) -> Catalog:
    """The catalog as a request sees it, as far as its method looks at it."""
    seen = catalog
    for name, entries in _asked(catalog, method, params).items():
        hidden = await _hidden(catalog, name, entries, exchange)
        if hidden:
            if seen is catalog:
                seen = copy.copy(catalog)
            setattr(seen, name, _Seen(getattr(catalog, name), hidden))
    return seen


async def _hidden(catalog: Catalog, listing: str, entries: Iterable[Any], exchange: Exchange) -> frozenset[str]:
    context = Context(exchange)
    component: Any = listing.removesuffix("s")
    plain: list[_Question] = []
    awaited: list[_Question] = []
    is_async: dict[int, bool] = {}
    """By the id of a rule: a list asks one of each entry, and to look at it takes longer than to ask it."""
    for entry in entries:
        of_tool = entry.of_tool if listing == "resources" else None
        if of_tool is None:
            questions = _questions(catalog, component, entry, context)
        else:
            # A part of a tool is for those who see the tool.
            tool = catalog.tools.find(of_tool)
            asked_of_tool = [] if tool is None else _questions(catalog, "tool", tool, context)
            questions = [(entry.key, rule, asked) for _, rule, asked in asked_of_tool]
        for question in questions:
            rule = question[1]
            of_rule = is_async.get(id(rule))
            if of_rule is None:
                of_rule = is_async[id(rule)] = is_coroutine_function(rule)
            (awaited if of_rule else plain).append(question)

    hidden: set[str] = set()
    if plain:
        hidden, promised = await run_in_thread(_refused, plain, exchange=exchange)
        awaited += promised
    for key, rule, asked in awaited:
        if key not in hidden or not asked:  # one that was asked already would be a coroutine that nobody awaits
            try:
                answer = rule(*asked)
                if not (await answer if answer.__class__ is CoroutineType or isawaitable(answer) else answer):
                    hidden.add(key)
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:
                _log(rule, key, error)
                hidden.add(key)
    return frozenset(hidden)


def _questions(catalog: Catalog, component: Component, entry: Any, context: Context) -> list[_Question]:
    """What is to be asked about an entry."""
    questions: list[_Question] = []
    if entry.visible is not None:
        questions.append((entry.key, entry.visible, (context,)))
    if catalog.rules:
        asked = (_described(component, entry), context)
        for rule in catalog.rules:
            questions.append((entry.key, rule, asked))
    return questions


def _refused(questions: list[_Question]) -> tuple[set[str], list[_Question]]:
    """What plain rules hide, and the questions whose answers have to be awaited: a lambda around an `async def`."""
    hidden: set[str] = set()
    promised: list[_Question] = []
    for key, rule, asked in questions:
        if key not in hidden:
            try:
                answer = rule(*asked)
                if answer is True:
                    continue
                if isawaitable(answer):
                    promised.append((key, _given(answer, rule), ()))  # by itself it would count as yes
                elif not answer:
                    hidden.add(key)
            except BaseException as error:
                _log(rule, key, error)
                hidden.add(key)
    return hidden, promised


def _given(answer: Awaitable[bool], rule: Callable[..., Any]) -> Callable[[], Awaitable[bool]]:
    """A rule that was asked already, under its name."""

    def given() -> Awaitable[bool]:
        return answer

    given.__qualname__ = getattr(rule, "__qualname__", repr(rule))
    return given


def _log(rule: Any, key: str, error: BaseException) -> None:
    name = getattr(rule, "__qualname__", repr(rule))
    log.error("visibility rule %s failed, which hides %s", printable(name), printable(key), exc_info=as_told(error))


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
    if method == "tools/list":
        return {"tools": list(catalog.tools)}
    if method == "prompts/list":
        return {"prompts": list(catalog.prompts)}
    if method == "resources/list":
        return {"resources": list(catalog.resources)}
    if method == "resources/templates/list":
        return {"templates": list(catalog.templates)}
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
