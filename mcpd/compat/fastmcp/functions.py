"""`Function`: a function of the author's, with what clients give it apart from what it is given here.

What clients give is read by pydantic, as a call of a function without the other parameters: so that texts of errors
name the function and the parameter.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, validate_call

from mcpd.compat.fastmcp.context import Context
from mcpd.compat.fastmcp.dependencies import CurrentContext, Dependency, OptionalCurrentContext, resolved
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.protocol.printable import printable
from mcpd.server.functions.annotations import untyped_context
from mcpd.server.functions.threads import run_in_thread

__all__ = ["Function", "function_name", "is_async"]

log = logging.getLogger("mcpd")


def function_name(fn: Any) -> str:
    """What a function is called; of a callable object its class, of a partial what it calls."""
    while isinstance(fn, functools.partial) and not hasattr(fn, "__name__"):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


def is_async(fn: Any) -> bool:
    """Whether calling it gives something to await."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


class Function:
    """A function, and which of its parameters clients give. `what` is its kind, for errors: "tools"."""

    def __init__(self, fn: Any, what: str, *, takes_keywords: bool = False) -> None:
        self.name = function_name(fn)
        self._first = fn
        if isinstance(fn, staticmethod):
            fn = fn.__func__
        elif not inspect.isroutine(fn) and not isinstance(fn, functools.partial):
            fn = fn.__call__
        self.fn: Callable[..., Any] = fn
        self.signature = inspect.signature(fn)
        self.hints = _hints(fn)
        self.injected = self._find_injected()
        if context := untyped_context(fn, "Context"):
            text = "function %s: parameter %s has no annotation, so clients are asked for it; %s"
            log.warning(text, printable(self.name), printable(context[0]), printable(context[1]))
        self._refuse(what, takes_keywords)

    def _refuse(self, what: str, takes_keywords: bool) -> None:
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise ValueError(f"Functions with *args are not supported as {what}")
            if parameter.kind is parameter.VAR_KEYWORD and not takes_keywords:
                raise ValueError(f"Functions with **kwargs are not supported as {what}")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ValueError(f"Functions with positional-only parameters are not supported as {what}")

    def _find_injected(self) -> dict[str, Dependency[Any]]:
        found: dict[str, Dependency[Any]] = {}
        for name, parameter in self.signature.parameters.items():
            hint = self.hints.get(name, parameter.annotation)
            if isinstance(parameter.default, Dependency):
                found[name] = parameter.default
            elif _is_context(hint):
                found[name] = CurrentContext() if parameter.default is parameter.empty else OptionalCurrentContext()
            elif get_origin(hint) is Annotated:
                found.update((name, mark) for mark in get_args(hint)[1:] if isinstance(mark, Dependency))
        return found

    @property
    def doc(self) -> str | None:
        """Its docstring, else that of what it is called with."""
        return _doc(self._first) or _doc(self.fn)

    @cached_property
    def given(self) -> dict[str, inspect.Parameter]:
        """The parameters that clients give."""
        return {name: one for name, one in self.signature.parameters.items() if name not in self.injected}

    @cached_property
    def returns(self) -> Any:
        """The return annotation; `inspect.Signature.empty` if there is none."""
        written = self.signature.return_annotation
        return None if written is None else self.hints.get("return", written)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """What reads the arguments into those of a call."""
        return TypeAdapter(self._reader())

    @cached_property
    def _named(self) -> Callable[..., Any]:
        reader: Callable[..., Any] = validate_call(self._reader())
        return reader

    def _reader(self) -> Any:

        def call(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
            return signature.bind(*args, **kwargs)

        signature = inspect.Signature(list(self.given.values()))
        wrapper: Any = call
        wrapper.__name__ = wrapper.__qualname__ = self.name
        wrapper.__signature__ = signature
        wrapper.__module__ = self.fn.__module__
        wrapper.__annotations__ = {
            name: self.hints.get(name, one.annotation)
            for name, one in self.given.items()
            if name in self.hints or one.annotation is not one.empty
        }
        return wrapper

    def read(self, arguments: dict[str, Any], *, by_name: bool = False) -> dict[str, Any]:
        """The arguments of a call. Raises pydantic's ValidationError for what does not fit, which names the call, or
        `by_name` the function."""
        bound = self._named(**arguments) if by_name else self.adapter.validate_python(arguments)
        values = {**bound.arguments}
        for name, parameter in self.given.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                values.update(values.pop(name, {}))
        return values

    async def call(self, values: dict[str, Any], *, in_thread: bool = True) -> Any:
        """Call it with these, and with what it is given besides; a generator gives the list of what it yields."""
        async with AsyncExitStack() as stack:
            more = await resolved(self.injected, stack) if self.injected else {}
            whole = functools.partial(self.fn, **values, **more)
            if is_async(self.fn) or inspect.isasyncgenfunction(self.fn) or not in_thread:
                result = whole()
            else:
                result = await run_in_thread(functools.partial(_all, whole), exchange=current_exchange.get(None))
            if inspect.isawaitable(result):
                result = await result
            if inspect.isasyncgen(result):
                return [item async for item in result]
            return list(result) if inspect.isgenerator(result) else result


def _all(function: Callable[[], Any]) -> Any:
    result = function()
    return list(result) if inspect.isgenerator(result) else result


def _hints(fn: Any) -> dict[str, Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        return {name: _with_description(hint) for name, hint in get_type_hints(fn, include_extras=True).items()}
    except Exception:  # names that cannot be found here; pydantic says so, where it needs them
        return {}


def _with_description(hint: Any) -> Any:
    """`Annotated[str, "the text"]` as this library reads it: with the text as its description."""
    if get_origin(hint) is Annotated and len(found := get_args(hint)) == 2 and isinstance(found[1], str):
        return Annotated[found[0], Field(description=found[1])]
    return hint


def _is_context(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_context(get_args(hint)[0])
    if origin in (Union, UnionType):
        return any(_is_context(one) for one in get_args(hint))
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, Context)


def _doc(fn: Any) -> str | None:
    if isinstance(fn, functools.partial):
        return inspect.getdoc(fn.func) if fn.__doc__ == functools.partial.__doc__ else inspect.getdoc(fn)
    if inspect.isroutine(fn) or isinstance(fn, type):
        return inspect.getdoc(fn)
    return inspect.getdoc(type(fn)) if "__doc__" in vars(type(fn)) else None
