"""Rules that decide which callers may see an entry, and which may use it.

Visibility rules are applied in `visibility.py`, scopes in `handlers/access.py`. Switches are `Server.enable` and
`Server.disable`; the last one that matches an entry decides. A condition is a function that decides for each request
whether something holds, for example that a backend can be reached; if it fails or takes too long, it does not hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from mcpd.auth.metadata import is_scope
from mcpd.errors import RegistrationError
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import is_failure
from mcpd.server.functions.annotations import Function
from mcpd.server.functions.signature import bind
from mcpd.server.functions.threads import run_in_thread

Component: TypeAlias = Literal["tool", "resource", "template", "prompt"]
"""A kind of entry."""


class _Switch(Struct, frozen=True):
    is_on: bool
    names: frozenset[str] | None
    tags: frozenset[str] | None
    components: frozenset[str] | None

    def concerns(self, component: Component, entry: Any) -> bool:
        # Return whether an entry matches all given criteria. Several names, tags or kinds mean "any of these".
        if self.components is not None and component not in self.components:
            return False
        if self.tags is not None and self.tags.isdisjoint(entry.tags):
            return False
        return self.names is None or not self.names.isdisjoint(names_of(component, entry))

    @property
    def key(self) -> object:
        # Equal for switches that match the same entries.
        return self.names, self.tags, self.components


class Switches:
    """All calls of `enable` and `disable`, in order."""

    def __init__(self) -> None:
        self._switches: list[_Switch] = []
        # The state of entries that no switch matches; None means as registered.
        self._is_on: bool | None = None

    def turn(
        self,
        is_on: bool,
        *,
        names: Collection[str] | str | None,
        tags: Collection[str] | str | None,
        components: Collection[Component] | Component | None,
        only: bool = False,
    ) -> None:
        """Enable or disable entries; with `only` all others get the opposite state. Raises RegistrationError."""
        kinds = _set_of(components, "components")
        switch = _Switch(is_on, _set_of(names, "names"), _set_of(tags, "tags"), kinds)
        what = "enable" if is_on else "disable"
        if switch.names is None and switch.tags is None and kinds is None:
            raise RegistrationError(f"{what}: pass names=, tags= or components=")
        unknown = (kinds or frozenset()).difference(get_args(Component))
        if unknown:
            known = ", ".join(get_args(Component))
            raise RegistrationError(f"{what}, components: there is no {min(unknown)!r}, only {known}")
        if only:
            self._is_on = not is_on
            self._switches.clear()
        # A repeated switch replaces the former one and comes last.
        self._switches = [*(other for other in self._switches if other.key != switch.key), switch]

    def is_on(self, component: Component, entry: Any) -> bool:
        """Return whether an entry is enabled."""
        for switch in reversed(self._switches):
            if switch.concerns(component, entry):
                return switch.is_on
        return bool(entry.is_enabled) if self._is_on is None else self._is_on


def names_of(component: Component, entry: Any) -> tuple[str, ...]:
    """Return the names of an entry: its name, and its URI if it has one."""
    if component in ("tool", "prompt"):
        return (entry.key,)
    return entry.key, entry.listed(frozenset()).name


def _set_of(given: Collection[str] | str | None, what: str) -> frozenset[str] | None:
    if given is None:
        return None
    names = frozenset((given,) if isinstance(given, str) else given)
    if not all(isinstance(one, str) for one in names):
        raise RegistrationError(f"{what}: expected a set of strings, got {given!r}")
    return names


class CatalogEntry(Struct, frozen=True, kw_only=True):
    """A tool, resource, template or prompt, as a visibility rule sees it."""

    component: Component
    name: str
    uri: str | None
    """The URI of a resource, or the URI template of a template; None for tools and prompts."""
    tags: frozenset[str]
    meta: Mapping[str, Any]
    """Its `_meta` without additions of extensions; {} without any."""


VisibilityRule: TypeAlias = Callable[[CatalogEntry, Context], bool | Awaitable[bool]]
"""A function, `def` or `async def`, that returns whether the caller sees an entry."""

EntryRule: TypeAlias = Callable[[Context], bool | Awaitable[bool]]
"""A visibility rule for the one entry that it was given for."""

ScopesOf: TypeAlias = Callable[[Mapping[str, Any]], Sequence[str]]
"""A function that returns the scopes that a call needs, given its arguments as received."""


class Needs(Struct, frozen=True):
    """What callers need to use an entry: `scopes`, or the scopes that `by_arguments` returns. `is_anonymous` means
    nothing.
    """

    scopes: tuple[str, ...] = ()
    by_arguments: ScopesOf | None = None
    is_anonymous: bool = False


def checked_needs(
    scopes: Collection[str] | ScopesOf | None, anonymous: bool, where: str, *, hide: bool = False
) -> Needs | None:
    """Return the needs that the options of an entry express; None for none. Raises RegistrationError."""
    if anonymous and (scopes or hide):
        raise RegistrationError(f"{where}: anonymous=True excludes scopes= and hide=")
    if hide and (not scopes or callable(scopes)):
        raise RegistrationError(f"{where}: hide=True requires scopes=[…]")
    if scopes is None or scopes == () or scopes == []:
        return Needs(is_anonymous=True) if anonymous else None
    if callable(scopes):
        return Needs(by_arguments=scopes)
    if isinstance(scopes, str) or not all(is_scope(str(one)) for one in scopes):
        raise RegistrationError(f'{where}, scopes: expected a list of scopes like ["notes.read"], got {scopes!r}')
    return Needs(tuple(dict.fromkeys(scopes)))


def sees(needs: Needs) -> Callable[[Context], bool]:
    """Return a rule that shows an entry only to callers with its scopes."""
    return lambda ctx: ctx.has_scopes(*needs.scopes)


log = logging.getLogger("mcpd")

CONDITION_TIMEOUT = 5.0
"""The time limit of a condition, in seconds. The client waits for its list meanwhile."""


class Condition:
    """One condition. Its `key` is added to the active extensions if it holds; it is only evaluated with the extension
    `requires`.
    """

    def __init__(self, key: str, function: Function, requires: str, what: str) -> None:
        """`what` is for messages. Raises RegistrationError unless the function takes a Context or nothing."""
        callee = bind(function, context_type=lambda: Context)
        if callee.arguments.__struct_fields__:
            names = ", ".join(callee.arguments.__struct_fields__)
            raise RegistrationError(f"{what} takes nothing or a Context, but this one takes {names}")
        self.key = key
        self.requires = requires
        self.what = what
        self._callee = callee
        self._running: set[object] = set()
        self._overdue: set[object] = set()

    async def holds(self, exchange: Exchange) -> bool:
        """Return whether it holds now. Never raises."""
        self._overdue &= self._running
        if self._overdue:
            return False  # an earlier thread still runs, and a second one would wait as long

        token = object()
        try:
            async with asyncio.timeout(CONDITION_TIMEOUT):
                if self._callee.is_async:
                    return bool(await self._callee.call_strings({}, exchange))
                return bool(await run_in_thread(self._call, exchange, token, exchange=exchange))
        except TimeoutError:
            self._overdue.add(token)
            log.warning("%s takes longer than %g seconds and counts as false", self.what, CONDITION_TIMEOUT)
        except BaseException as error:
            if not is_failure(error):
                raise
            log.warning("%s failed and counts as false", self.what, exc_info=error)

        return False

    def _call(self, exchange: Exchange, token: object) -> Any:
        self._running.add(token)
        try:
            return self._callee.call_strings({}, exchange)
        finally:
            self._running.discard(token)


async def with_conditions(
    conditions: Iterable[Condition], active: frozenset[str], exchange: Exchange
) -> frozenset[str]:
    """Return the active extensions and the keys of the conditions that hold for this request.

    Conditions run concurrently.
    """
    asked = [condition for condition in conditions if condition.requires in active]
    answers = await asyncio.gather(*(condition.holds(exchange) for condition in asked))
    return active.union(condition.key for condition, holds in zip(asked, answers, strict=True) if holds)
