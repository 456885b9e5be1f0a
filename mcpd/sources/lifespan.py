"""What the tools of a folder share: opened once by a function in `lifespan.py`, given to parameters of its type.

The function yields one thing, once, with its type in the annotation. A parameter of that type is given it; if it is a
dataclass or the like, a parameter of the type of one of its members is given that member. Clients neither see such
parameters nor can they set them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import UnionType
from typing import Annotated, Any, Union

from mcpd.errors import RegistrationError
from mcpd.server.context.context import Context
from mcpd.server.functions.annotations import plain_function, resolved
from mcpd.server.functions.dependencies import Dependency

_NO_THINGS = ("builtins", "typing", "collections.abc", "types")


class Sharing:
    """The lifespan of a folder, and the types of what it gives."""

    def __init__(self, enter: Callable[[Any], AbstractAsyncContextManager[Any]], kind: Any) -> None:
        self.enter = enter
        """What `Server(lifespan=…)` takes."""
        self.given: dict[Any, Dependency] = {}
        """What gives a value of each type."""
        if kind is None:
            return
        self.given[kind] = Dependency(_whole, True)
        for name, hint in _members(kind).items():
            self.given.setdefault(hint, Dependency(_part(name), True))

    def give(self, function: Any) -> None:
        """Let parameters of the shared types be given by the server: their annotations say so from now on.

        Raises RegistrationError for an annotation that cannot be evaluated.
        """
        plain = plain_function(function)
        if not self.given or not inspect.isfunction(plain):
            return
        hints = resolved(plain, f"function {plain.__name__!r}")
        for name, hint in hints.items():
            dependency = self.given.get(_thing(hint)) if name != "return" else None
            if dependency is not None:
                plain.__annotations__[name] = Annotated[hint, dependency]


async def _whole(ctx: Context) -> Any:
    return ctx.lifespan


def _part(name: str) -> Callable[..., Any]:
    async def part(ctx: Context) -> Any:
        return getattr(ctx.lifespan, name)

    return part


def sharing_of(function: Any) -> Sharing:
    """From the function of `lifespan.py`: a generator, async or not, or what makes a context manager of either.

    It takes nothing, or the server. Raises RegistrationError.
    """
    plain = plain_function(function)
    if not inspect.isfunction(plain) or isinstance(function, type):
        raise RegistrationError("it is no function; write async def lifespan() -> AsyncIterator[Shared]: … yield …")
    takes = [
        slot for slot in inspect.signature(function).parameters.values() if slot.default is inspect.Parameter.empty
    ]
    if len(takes) > 1 or any(slot.kind is slot.KEYWORD_ONLY for slot in takes):
        raise RegistrationError("it takes nothing, or the server alone")

    make = function
    if inspect.isasyncgenfunction(function):
        make = asynccontextmanager(function)
    elif inspect.isgeneratorfunction(function):
        make = contextmanager(function)
    elif plain is function:
        raise RegistrationError("it yields nothing; write yield with what tools share, and what closes it behind that")

    @asynccontextmanager
    async def enter(server: Any) -> AsyncIterator[Any]:
        entered = make(server) if takes else make()
        if isinstance(entered, AbstractContextManager) and not isinstance(entered, AbstractAsyncContextManager):
            with entered as value:
                yield value
        else:
            async with entered as value:
                yield value

    enter.__qualname__ = plain.__qualname__
    return Sharing(enter, _yielded(plain))


def _yielded(plain: Any) -> Any:
    """The type of what it yields, by its annotation; None if that does not say."""
    hint = resolved(plain, f"function {plain.__name__!r}").get("return")
    kinds = typing.get_args(hint)
    return _thing(kinds[0]) if kinds else None


def _thing(hint: Any) -> Any:
    """The class that values of a hint have; None if it is none that a client could not give as well."""
    while typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    if typing.get_origin(hint) in (Union, UnionType):
        others = [one for one in typing.get_args(hint) if one is not type(None)]
        return _thing(others[0]) if len(others) == 1 else None
    kind = typing.get_origin(hint) or hint
    return hint if isinstance(kind, type) and kind.__module__ not in _NO_THINGS else None


def _members(kind: Any) -> dict[str, Any]:
    """The members of a class by name whose type no other member has."""
    kind = typing.get_origin(kind) or kind
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # of a class that is no record at all, anything may be written there
        return {}
    things = {name: _thing(hint) for name, hint in hints.items() if not name.startswith("_")}
    kinds = list(things.values())
    return {name: thing for name, thing in things.items() if thing is not None and kinds.count(thing) == 1}
