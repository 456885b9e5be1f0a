"""`Depends` and its resolution: functions whose results become parameters of a tool, resource or prompt.

Theory of operation. `read` makes a `Source` of each `Depends` when a function is registered, and of its own
dependencies. For a call, `Calling` calls the sources one after another, in the order of the parameters; plain functions
run in threads. Values are kept in `_Values`, which belongs to the request, so everything that runs for it shares them.
Whoever created it closes it: the last opened first, with the exception that ended the call. A source cannot be closed
while a plain function uses it in a thread; a call that is cancelled meanwhile waits for that.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import typing
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from inspect import Parameter
from types import CoroutineType
from typing import Any, Self, TypeAlias, TypeVar, overload

from msgspec import Struct

from mcpd.errors import RegistrationError
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from .annotations import (
    Function,
    Values,
    find_kind,
    is_annotated,
    is_coroutine_function,
    plain_function,
    resolved,
)
from .thread_steps import ThreadStep

T = TypeVar("T")


class Dependency(Struct, frozen=True):
    """The mark that `Depends` leaves in a signature. Without a function it means the class of the annotation."""

    function: Function | None
    use_cache: bool


@overload
def Depends(
    function: Callable[
        ...,
        AbstractAsyncContextManager[T] | AbstractContextManager[T] | AsyncIterator[T] | Iterator[T] | Awaitable[T],
    ],
    *,
    use_cache: bool = True,
) -> T: ...


@overload
def Depends(function: Callable[..., T], *, use_cache: bool = True) -> T: ...


@overload
def Depends(function: None = None, *, use_cache: bool = True) -> Any: ...


def Depends(function: Any = None, *, use_cache: bool = True) -> Any:  # noqa: N802 - the field's name for it
    """A parameter whose value comes from `function`: `db: Annotated[Database, Depends(get_db)]` or `= Depends(get_db)`.

    Clients neither see such a parameter nor set it. `function` is called before the function that depends on it, once
    per request for all parameters that name it (`use_cache=False`: each time). It may be `def` or `async def`, and take
    a Context, its own dependencies, and arguments of the call by name. A generator is resumed, or a context manager
    left, after the call, in reverse order, with the exception that ended the call if there was one. Without a function
    the class of the annotation is called.
    """
    return Dependency(function, use_cache)


def dependency_of(parameter: Parameter, hint: Any) -> Dependency | None:
    """Return the dependency of a parameter, or None if its value comes from the client."""
    dependency = parameter.default if isinstance(parameter.default, Dependency) else _dependency_in(hint)
    if dependency is None or dependency.function is not None:
        return dependency
    return Dependency(_class_of(hint), dependency.use_cache)


def _dependency_in(hint: Any) -> Dependency | None:
    # Return the dependency in an `Annotated`, at any depth. If one were missed, clients could set the parameter.
    for item in getattr(hint, "__metadata__", ()):
        if isinstance(item, Dependency):
            return item
    dependencies = map(_dependency_in, typing.get_args(hint)) if typing.get_origin(hint) is not typing.Literal else ()
    return next((one for one in dependencies if one is not None), None)


def _class_of(hint: Any) -> Function | None:
    while hasattr(hint, "__metadata__"):
        hint = hint.__origin__
    origin = typing.get_origin(hint) or hint
    return origin if isinstance(origin, type) and origin is not Any else None


# Replacements by dependency, see `Server.override`.
Overrides: TypeAlias = Mapping[Function, Function]

_Make: TypeAlias = Callable[[Any], Any]

_NONE = Parameter.empty


class Source(Struct, frozen=True, eq=False):
    """A function that returns the value of a parameter, and what it takes itself."""

    function: Function
    # The function, or a context manager for a generator.
    enter: Function
    # Whether it runs on the event loop's thread.
    is_async: bool
    use_cache: bool
    context: tuple[str, _Make] | None
    # The parameters that receive arguments of the call.
    arguments: Sequence[str]
    sources: Mapping[str, Source]
    # Whether it or one of its dependencies takes arguments of the call.
    takes_arguments: bool


def read(dependency: Dependency, arguments: Sequence[str], where: str, outer: tuple[Function, ...] = ()) -> Source:
    """Return the source for a dependency. `arguments` are the arguments of the call; `where` names the function in
    messages.

    `outer` are the functions that depend on it. Raises RegistrationError for a dependency that cannot be called.
    """
    function = dependency.function
    if function is None or not callable(function):
        raise RegistrationError(f"{where}: Depends takes a function, or no argument beside a class; got {function!r}")
    plain = plain_function(getattr(function, "__init__", None) if isinstance(function, type) else function)
    name = getattr(function, "__qualname__", repr(function)).rpartition("<locals>.")[2]
    where = f"{where}, dependency {name}"
    if not isinstance(function, Hashable):
        raise RegistrationError(f"{where}: it is not hashable, so its value cannot be cached")
    if function in outer:
        raise RegistrationError(f"{where}: it depends on itself")

    is_on_loop = is_coroutine_function(function) or inspect.isasyncgenfunction(plain)
    if isinstance(function, type):
        is_on_loop = hasattr(function, "__aenter__")
    enter = function
    if inspect.isasyncgenfunction(function):
        enter = asynccontextmanager(function)
    elif inspect.isgeneratorfunction(function):
        enter = contextmanager(function)

    context: tuple[str, _Make] | None = None
    taken: list[str] = []
    sources: dict[str, Source] = {}
    for parameter, hint in _parameters(function, plain, where):
        kind: Any = find_kind(hint, Context)
        inner = dependency_of(parameter, hint)
        if inner is not None:
            sources[parameter.name] = read(inner, arguments, where, (*outer, function))
        elif kind is not None:
            if is_on_loop and getattr(kind, "is_for_threads", False):
                raise RegistrationError(
                    f"{where}: it is async; annotate the parameter as Context and await its methods"
                )
            context = parameter.name, kind._of
        elif parameter.name in arguments:
            taken.append(parameter.name)
        elif parameter.default is _NONE:
            raise RegistrationError(
                f"{where}, parameter {parameter.name!r}: it has no value: it is not an argument of the call and has no "
                "default; give it one, Depends or a Context"
            )
    return Source(
        function=function,
        enter=enter,
        is_async=is_on_loop,
        use_cache=dependency.use_cache,
        context=context,
        arguments=taken,
        sources=sources,
        takes_arguments=bool(taken) or any(source.takes_arguments for source in sources.values()),
    )


def _parameters(function: Function, plain: Any, where: str) -> list[tuple[Parameter, Any]]:
    hints = resolved(plain, where) if is_annotated(plain) else {}
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []  # a class without a signature, such as dict, is called without arguments
    by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    annotated = []
    for parameter in parameters:
        if parameter.kind in by_name:
            annotated.append((parameter, hints.get(parameter.name, parameter.annotation)))
        elif parameter.kind is Parameter.POSITIONAL_ONLY and parameter.default is _NONE:
            raise RegistrationError(
                f"{where}, parameter {parameter.name!r}: values are passed by name, so it cannot be positional only"
            )
    return annotated


# -- a call ------------------------------------------------------------------------------------


class Calling:
    """One function with dependencies."""

    def __init__(
        self,
        function: Function,
        where: str,
        dependencies: Mapping[str, Dependency],
        arguments: Sequence[str],
        overrides: Overrides,
    ) -> None:
        self._function = function
        self._is_async = is_coroutine_function(function)
        self._where = where
        self._arguments = arguments
        self._sources = {name: read(dependency, arguments, where) for name, dependency in dependencies.items()}
        self._overrides = overrides
        self._instead: dict[tuple[Function, bool], Source] = {}

    async def call(self, values: Values, context: Mapping[str, Any], exchange: Exchange) -> Any:
        """Call the function with the arguments `values`, the further values `context`, and its dependencies."""
        held: _Values | None = exchange.dependencies
        if held is not None:  # created for the same request, which will close it
            return await self._call(held, values, context, exchange)

        exchange.dependencies = held = _Values()
        try:
            result = await self._call(held, values, context, exchange)
        except GeneratorExit:
            raise  # nothing can be awaited now
        except BaseException as error:
            await held.close(error)
            raise
        finally:
            exchange.dependencies = None
        await held.close(None)
        return result

    async def _call(self, held: _Values, values: Values, context: Mapping[str, Any], exchange: Exchange) -> Any:
        frame = _Call(self, held, values, exchange)
        injected = {name: await frame.value_of(source) for name, source in self._sources.items()}
        if self._is_async:
            return await self._function(**values, **context, **injected)
        return await ThreadStep(exchange).run(self._function, values | {**context, **injected})

    def used(self, source: Source) -> Source:
        """Return the source to call: the replacement of an override if there is one."""
        if source.function not in self._overrides:
            return source
        key = self._overrides[source.function], source.use_cache
        replacement = self._instead.get(key)
        if replacement is None:
            replacement = self._instead[key] = read(Dependency(*key), self._arguments, self._where)
        return replacement


class _Call(Struct, eq=False):
    # One call. Values that depend on its arguments are kept here, not for the whole request.
    calling: Calling
    held: _Values
    arguments: Mapping[str, Any]
    exchange: Exchange
    kept: _Kept = {}

    async def value_of(self, source: Source) -> Any:
        source = self.calling.used(source)
        if not source.use_cache:
            return await self._make(source)
        kept = self.kept if source.takes_arguments else self.held.kept
        while (future := kept.get(source.function)) is not None:
            if future.done():
                return future.result()
            await asyncio.wait([future])  # a concurrent call is making the value; if it fails, this one tries

        kept[source.function] = future = asyncio.get_running_loop().create_future()
        try:
            value = await self._make(source)
        except BaseException:
            del kept[source.function]
            future.cancel()
            raise
        future.set_result(value)
        return value

    async def _make(self, source: Source) -> Any:
        values = {name: await self.value_of(inner) for name, inner in source.sources.items()}
        values |= {name: self.arguments[name] for name in source.arguments}
        if source.context is not None:
            name, make = source.context
            values[name] = make(self.exchange)
        opened = _OpenSource(source, self.exchange)
        self.held.opened.append(opened)
        return await opened.open(values)


_Kept: TypeAlias = dict[Function, "asyncio.Future[Any]"]


class _Values(Struct, eq=False):
    # The values of one request's dependencies, and the sources to close.
    kept: _Kept = {}
    opened: list[_OpenSource] = []

    async def close(self, error: BaseException | None) -> None:
        # Close all sources, the last opened first. An exception raised by one is passed to the remaining ones.
        #
        # Raises the exception that ended the call then, unless that is `error` itself.
        ended = error
        while self.opened:
            try:
                await self.opened.pop().close(ended)
            except BaseException as other:
                ended = other
        try:
            if ended is not None and ended is not error:
                raise ended
        finally:
            del ended, error  # avoids a cycle with their tracebacks


class _OpenSource:
    # One source that was called. All its steps share context variables, as steps of one function would.
    def __init__(self, source: Source, exchange: Exchange) -> None:
        self._source = source
        self._exchange = exchange
        self._context = contextvars.copy_context()
        self._manager: Any = None
        self._is_awaited = False

    async def open(self, values: Values) -> Any:
        if self._source.is_async:
            value = self._source.enter(**values)
            if value.__class__ is CoroutineType:
                value = await value
            value = self._entered(value)
        else:
            value = await ThreadStep(self._exchange).run(self._context.run, {}, self._begin, values)

        if self._manager is None and _is_own(value, AbstractAsyncContextManager, self._source, "__aenter__"):
            entered = await value.__aenter__()
            self._manager, self._is_awaited = value, True
            return entered
        return value

    def _begin(self, values: Values) -> Any:
        return self._entered(self._source.enter(**values))

    def _entered(self, given: Any) -> Any:
        # Enter a plain context manager. Anything else is returned as it is.
        is_async = _is_own(given, AbstractAsyncContextManager, self._source, "__aenter__")
        if is_async or not _is_own(given, AbstractContextManager, self._source, "__enter__"):
            return given
        entered = given.__enter__()
        self._manager = given
        return entered

    async def close(self, error: BaseException | None) -> None:
        # Close the source. Exceptions are passed on, whatever `__exit__` returns.
        why = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        try:
            if self._is_awaited:
                await self._manager.__aexit__(*why)
            elif self._manager is not None and self._source.is_async:
                self._manager.__exit__(*why)
            elif self._manager is not None:
                leave = self._manager.__exit__
                await ThreadStep(self._exchange, has_to_run=True).run(self._context.run, {}, leave, *why)
        finally:
            del why, error


def _is_own(given: Any, kind: type, source: Source, method: str) -> bool:
    # Return whether a result is to be entered, and is not an open object that merely has the methods.
    if isinstance(source.function, type):
        return hasattr(source.function, method)
    return kind in type(given).__mro__


class Override:
    """A replacement for one dependency, active at once; as a context manager, until the end of the block."""

    def __init__(
        self,
        overrides: dict[Function, Function],
        dependency: Function,
        replacement: Function,
    ) -> None:
        for given in (dependency, replacement):
            if not callable(given):
                raise RegistrationError(f"override: pass the function in Depends and its replacement; got {given!r}")
        self._overrides = overrides
        self._dependency = dependency
        self._before = overrides.get(dependency)
        overrides[dependency] = replacement

    def end(self) -> None:
        """Restore what was called before."""
        if self._before is None:
            self._overrides.pop(self._dependency, None)
        else:
            self._overrides[self._dependency] = self._before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()
