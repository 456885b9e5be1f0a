"""`Depends`: how a parameter says that the server, not the client, gives its value.

Found in signatures by `dependency_of`; resolved in `dependencies`. A program that never writes `Depends` loads neither.
"""

from __future__ import annotations

import typing
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from inspect import Parameter as Slot
from typing import Any, TypeVar, overload

from msgspec import Struct

T = TypeVar("T")


class Dependency(Struct, frozen=True):
    """What `Depends` leaves in a signature; without a function it is the class that the parameter is annotated with."""

    function: Callable[..., Any] | None
    use_cache: bool


@overload
def Depends(function: Callable[..., AbstractAsyncContextManager[T]], *, use_cache: bool = True) -> T: ...


@overload
def Depends(function: Callable[..., AbstractContextManager[T]], *, use_cache: bool = True) -> T: ...


@overload
def Depends(function: Callable[..., AsyncGenerator[T, Any] | AsyncIterator[T]], *, use_cache: bool = True) -> T: ...


@overload
def Depends(function: Callable[..., Generator[T, Any, Any] | Iterator[T]], *, use_cache: bool = True) -> T: ...


@overload
def Depends(function: Callable[..., Awaitable[T]], *, use_cache: bool = True) -> T: ...


@overload
def Depends(function: Callable[..., T], *, use_cache: bool = True) -> T: ...


@overload
def Depends(function: None = None, *, use_cache: bool = True) -> Any: ...


def Depends(function: Any = None, *, use_cache: bool = True) -> Any:  # noqa: N802 - the field's name for it
    """A parameter whose value `function` gives: `db: Annotated[Database, Depends(get_db)]`, or `= Depends(get_db)`.

    Clients neither see such a parameter nor can they set it. `function` is called before the function that wants it,
    once for each request however many want it (`use_cache=False`: each time). It may be `async def` or not, and take
    a Context, dependencies of its own, and arguments of the call by their names. What a generator yields, or a context
    manager gives, is closed after the call, in reverse order, with the exception that ended the call if there was one.
    Without a function it is the class that the parameter is annotated with.
    """
    return Dependency(function, use_cache)


def dependency_of(slot: Slot, hint: Any) -> Dependency | None:
    """What `Depends` says of a parameter; None if there is none: then its value comes from the client."""
    if isinstance(slot.default, Dependency):
        found = slot.default
    else:
        noted = _noted(hint)
        if noted is None:
            return None
        found = noted
    return Dependency(_class_of(hint), found.use_cache) if found.function is None else found


def _noted(hint: Any) -> Dependency | None:
    """The one in an `Annotated`, wherever in a hint it stands: overlooked, it would be the client's to give."""
    for item in getattr(hint, "__metadata__", ()):
        if isinstance(item, Dependency):
            return item
    found = map(_noted, typing.get_args(hint)) if typing.get_origin(hint) is not typing.Literal else ()
    return next((one for one in found if one is not None), None)


def _class_of(hint: Any) -> Callable[..., Any] | None:
    while hasattr(hint, "__metadata__"):
        hint = hint.__origin__
    origin = typing.get_origin(hint) or hint
    return origin if isinstance(origin, type) and origin is not Any else None
