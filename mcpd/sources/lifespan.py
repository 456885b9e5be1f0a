"""The lifespan of a folder: a function in `lifespan.py` that opens what the tools share.

The function yields one object; its return annotation gives the type. A parameter annotated with that type receives the
object itself. If the type is a class with annotated attributes, a parameter annotated with the type of one attribute
receives that attribute. Clients neither see nor set these parameters.
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

_PLAIN_MODULES = ("builtins", "typing", "collections.abc", "types")


class Lifespan:
    """The lifespan of a folder, and the types of the objects that it provides."""

    def __init__(self, enter: Callable[[Any], AbstractAsyncContextManager[Any]], kind: Any) -> None:
        self.enter = enter
        """The argument of `Server(lifespan=…)`."""
        self.given: dict[Any, Dependency] = {}
        """The dependency that provides a value of each type."""
        if kind is None:
            return
        self.given[kind] = Dependency(_whole, True)
        for name, hint in _members(kind).items():
            self.given.setdefault(hint, Dependency(_part(name), True))

    def give(self, function: Any) -> None:
        """Annotate parameters of the shared types, so that the server provides them. Raises RegistrationError."""
        plain = plain_function(function)
        if not self.given or not inspect.isfunction(plain):
            return
        hints = resolved(plain, f"function {plain.__name__!r}")
        for name, hint in hints.items():
            dependency = self.given.get(_shared_class(hint)) if name != "return" else None
            if dependency is not None:
                plain.__annotations__[name] = Annotated[hint, dependency]


async def _whole(ctx: Context) -> Any:
    return ctx.lifespan


def _part(name: str) -> Callable[..., Any]:
    async def part(ctx: Context) -> Any:
        return getattr(ctx.lifespan, name)

    return part


def lifespan_of(function: Any) -> Lifespan:
    """Return the lifespan for a generator, async or not, or a context manager. Raises RegistrationError."""
    plain = plain_function(function)
    if not inspect.isfunction(plain) or isinstance(function, type):
        raise RegistrationError("it is not a function; write async def lifespan() -> AsyncIterator[Shared]: … yield …")
    takes = [
        slot for slot in inspect.signature(function).parameters.values() if slot.default is inspect.Parameter.empty
    ]
    if len(takes) > 1 or any(slot.kind is slot.KEYWORD_ONLY for slot in takes):
        raise RegistrationError("it must take no argument, or only the server")

    make = function
    if inspect.isasyncgenfunction(function):
        make = asynccontextmanager(function)
    elif inspect.isgeneratorfunction(function):
        make = contextmanager(function)
    elif plain is function:
        raise RegistrationError("it does not yield; yield the object that tools share, and close it after the yield")

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
    return Lifespan(enter, _yielded(plain))


def _yielded(plain: Any) -> Any:
    # Return the annotated type of the yielded object, or None without an annotation.
    hint = resolved(plain, f"function {plain.__name__!r}").get("return")
    kinds = typing.get_args(hint)
    return _shared_class(kinds[0]) if kinds else None


def _shared_class(hint: Any) -> Any:
    # Return the class of a type hint's values, or None if clients could send such a value.
    while typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    if typing.get_origin(hint) in (Union, UnionType):
        others = [one for one in typing.get_args(hint) if one is not type(None)]
        return _shared_class(others[0]) if len(others) == 1 else None
    kind = typing.get_origin(hint) or hint
    return hint if isinstance(kind, type) and kind.__module__ not in _PLAIN_MODULES else None


def _members(kind: Any) -> dict[str, Any]:
    # Return the attributes of a class whose type no other attribute has.
    kind = typing.get_origin(kind) or kind
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # classes may have anything as annotations
        return {}
    things = {name: _shared_class(hint) for name, hint in hints.items() if not name.startswith("_")}
    kinds = list(things.values())
    return {name: thing for name, thing in things.items() if thing is not None and kinds.count(thing) == 1}
