"""A plain Python function as a callable with JSON arguments and a description for models.

`bind` reads the signature once. Its `Callee` decodes arguments straight into a struct made for the function, so that
valid arguments cost one decode and one call. Schemas and the docstring are read when they are first needed. Annotations
decide, names never do: the context parameter is the one annotated with the context's type. Runs no function in a thread
and awaits nothing. Spec: 2025-11-25 server/tools, SEP-1303.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict

from mcpd.errors import RegistrationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.schemas import Schema
from .annotations import (
    PLAIN_TYPES,
    Function,
    Values,
    call_method,
    docstring_of,
    find_kind,
    is_coroutine_function,
    may_need_pydantic,
    own_hints,
    plain_field,
    plain_function,
    resolved,
    takes_positions_only,
)
from .docstring import Docstring, parse
from .results import awaited, data_type, dec_hook

if TYPE_CHECKING:
    from .arguments import ArgumentParser
    from .dependencies import Dependency, Overrides
    from .type_hooks import StandIn


class Callee:
    """A function with its arguments as a struct; made by `bind`.

    `call(raw, context)` decodes the arguments and calls the function, with the context if it takes one. For a coroutine
    function it returns the coroutine. It raises ArgumentsError, with a text for the model, before the function runs.
    Schemas are shared and must not be changed.
    """

    def __init__(
        self,
        function: Function,
        name: str,
        parameters: list[tuple[Parameter, Any]],
        returns: Any,
        *,
        context_type: type | None,
        is_content: Callable[[Any], bool] | None,
        overrides: Overrides | None,
    ) -> None:
        """`parameters` are the function's, each with its annotation as a type."""
        self.function = function
        self.name = name
        self.returns = awaited(returns)
        self.is_async = is_coroutine_function(function)
        self.context_name: str | None = None
        # Converts the caller's context to what the function receives: the class method `_of` of its annotation.
        self.make_context: Callable[[Any], Any] = _unchanged
        self._is_content = is_content
        self._names = tuple(parameter.name for parameter, _ in parameters)
        self._extra: Any = None
        self._dependencies: dict[str, Dependency] = {}

        fields = self._read(parameters, context_type)
        self.arguments = _struct(name, [field for field, _ in fields], is_open=self._extra is not None)
        # Whether decoded values may lack defaults (`type_hooks.complete`).
        self._is_incomplete = any(map(_needs_completion, (self._extra, *(field[1] for field, _ in fields))))
        if not all(is_plain for _, is_plain in fields):
            self._decode  # noqa: B018 - types that cannot be read are refused now, not in a request

        self._invoke = self._invoker({} if overrides is None else overrides)
        # At registration, because pydantic takes long to import.
        self._is_dumped = may_need_pydantic(self.returns) and _is_stand_in(self.output_type)

    def _read(self, parameters: list[tuple[Parameter, Any]], context_type: type | None) -> list[tuple[Any, bool]]:
        # Return the arguments as fields of a struct, and whether msgspec certainly reads their types. Stores the
        # context, the dependencies and the type of further arguments.
        fields: list[tuple[Any, bool]] = []
        dependency_of = _finder_of_dependencies()
        for parameter, hint in parameters:
            where = f"function {self.name!r}, parameter {parameter.name!r}"
            _check_parameter(parameter, hint, where)
            if dependency_of is not None and (dependency := dependency_of(parameter, hint)) is not None:
                self._dependencies[parameter.name] = dependency
            elif parameter.kind is Parameter.VAR_KEYWORD:
                from .hints import readable  # few functions take further arguments

                self._extra = readable(hint, where)
            elif context_type is not None and (kind := find_kind(hint, context_type)) is not None:
                self._take_context(parameter, kind, context_type, where)
            else:
                field = plain_field(parameter, hint)
                is_plain = field is not None
                if field is None:
                    from .hints import argument  # loaded with the first hint beyond plain types

                    field = argument(parameter, hint, where)
                fields.append((field, is_plain))
        return fields

    def _take_context(self, parameter: Parameter, kind: type, context_type: type, where: str) -> None:
        if self.context_name is not None:
            raise RegistrationError(f"{where}: {self.context_name!r} is the {context_type.__name__} already")
        if self.is_async and getattr(kind, "is_for_threads", False):
            raise RegistrationError(
                f"function {self.name!r} is async; annotate the parameter as Context and await its methods"
            )
        self.context_name, self.make_context = parameter.name, getattr(kind, "_of", _unchanged)

    def _invoker(self, overrides: Overrides) -> Callable[[Values, Any], Any]:
        # Return a function (values, context) that calls the function by name, as decorators expect.
        function, names, context_name, make = self.function, self._names, self.context_name, self.make_context
        if takes_positions_only(function):
            by_position = function

            def function(**values: Any) -> Any:
                return by_position(*(values[name] for name in names))

        if self._dependencies:
            from .dependencies import Calling  # few functions have any

            self.is_async = True  # dependencies are awaited
            arguments = self.arguments.__struct_fields__
            calling = Calling(function, f"function {self.name!r}", self._dependencies, arguments, overrides)
            return lambda values, exchange: calling.call(
                values, {} if context_name is None else {context_name: make(exchange)}, exchange
            )
        if context_name is None:
            return lambda values, context: function(**values)
        return lambda values, context: function(**values, **{context_name: make(context)})

    def __repr__(self) -> str:
        return f"<Callee {self.name}({', '.join(self.arguments.__struct_fields__)})>"

    # These are made when first used: most of a server's many tools are listed, and few are called.

    @functools.cached_property
    def _decode(self) -> Callable[[bytes | Raw], Struct]:
        decode = msgspec.json.Decoder(self.arguments, dec_hook=dec_hook).decode
        if not self._is_incomplete:
            return decode
        from .type_hooks import completed  # few functions take such classes

        return completed(decode)

    @functools.cached_property
    def call(self) -> Function:
        """Decode the arguments and call the function."""
        call = self._caller()
        return _dumping(call, self.output_type, self.is_async) if self._is_dumped else call

    def _caller(self) -> Function:
        invoke = self._invoke
        if self._extra is not None:
            return lambda raw, context=None: invoke(self._parser.from_json(raw), context)
        decode = self._decode

        def call(raw: bytes | Raw, context: Any = None) -> Any:
            try:
                values = asdict(decode(raw))
            except MALFORMED:
                values = self._parser.from_json(raw)
            return invoke(values, context)

        return call

    def check(self, raw: bytes | Raw) -> None:
        """Decode the arguments. Raises ArgumentsError if they do not fit, as `call` does."""
        try:
            if self._extra is None:
                self._decode(raw)
                return
        except MALFORMED:
            pass
        self._parser.from_json(raw)

    def call_strings(self, values: Mapping[str, str | None], context: Any = None) -> Any:
        """Call the function with strings, such as URI variables and prompt arguments, coerced to its types.

        Raises InvalidParams if they do not fit.
        """
        return self._invoke(self._parser.from_strings(values), context)

    def call_values(self, values: Values, context: Any = None) -> Any:
        """Call the function with values of its types, by parameter name."""
        return self._invoke(asdict(self.arguments(**values)), context)

    @property
    def uses_request(self) -> bool:
        """Whether the function, or a dependency of it, may take the context."""
        return self.context_name is not None or bool(self._dependencies)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments as callers write them, without the context and those that **kwargs takes."""
        return self.arguments.__struct_encode_fields__

    @functools.cached_property
    def argument_schema(self) -> Schema:
        """The JSON Schema for coercion. It has details of tuples and dates that the plain schema cannot express."""
        schema: Schema = _schema().input_schema(self.arguments, self._docstring.parameters, self._extra)
        return schema

    @functools.cached_property
    def input_schema(self) -> Schema:
        """The JSON Schema of the arguments: an object, closed unless the function takes **kwargs."""
        return _schema().plain(self.argument_schema, "input")  # type: ignore[no-any-return]

    @functools.cached_property
    def output_type(self) -> Any:
        """The type of the result as msgspec reads it; None if it is not data."""
        return data_type(self.returns, self._is_content)

    @functools.cached_property
    def output_schema(self) -> Schema | None:
        """The JSON Schema of the result, with a root of any type; None for text and content."""
        kind = self.output_type
        return None if kind is None else _schema().plain(_schema().output_schema(kind), "output")

    @property
    def title(self) -> str | None:
        """The docstring's first line, if it can be a heading."""
        return self._docstring.title

    @property
    def description(self) -> str:
        """The docstring without the parts about arguments and exceptions; "" without a docstring."""
        docstring = self._docstring
        others = [f"{name}: {text}" for name, text in docstring.parameters.items() if name not in self._names]
        return "\n".join((f"{docstring.description}\n", *others)).strip() if others else docstring.description

    @functools.cached_property
    def _parser(self) -> ArgumentParser:
        from .arguments import ArgumentParser

        parser = ArgumentParser(self.arguments, self._extra, self.context_name, lambda: self.argument_schema)
        parser.is_incomplete = self._is_incomplete
        return parser

    @functools.cached_property
    def _docstring(self) -> Docstring:
        return parse(docstring_of(self.function))


def bind(
    function: Function,
    *,
    context_type: Callable[[], type | None] | None = None,
    is_content: Callable[[Any], bool] | None = None,
    overrides: Overrides | None = None,
) -> Callee:
    """Read a function's signature: plain, async, method, partial or callable object.

    The parameter annotated with the class that `context_type` returns receives the caller's context. `is_content` says
    whether a return type is content and not data. A function with dependencies must be called with an Exchange and
    returns a coroutine; `overrides` are looked up at each call. Raises RegistrationError.
    """
    plain = plain_function(function)
    name: str = type(function).__name__ if call_method(function) else getattr(plain, "__name__", repr(plain))
    if isinstance(function, functools.partial):
        name = vars(function).get("__name__", name)  # a partial with a name of its own
    where = f"function {name!r}"
    if isinstance(function, type) or not callable(function):
        raise RegistrationError(f"{where}: not a function; give a function, a bound method or a callable object")
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise RegistrationError(f"{where}: it is a generator; return a list instead")

    hints = resolved(plain, where)
    try:
        parameters = list(inspect.signature(_bare(function)).parameters.values())
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"{where}: its signature cannot be read: {error}") from error
    if parameters and parameters[0].name in ("self", "cls") and _is_unbound_method(function, parameters[0]):
        raise RegistrationError(f"{where}: it is a method of a class; register the bound method of an instance")

    own = own_hints(hints, plain, parameters)
    return Callee(
        function,
        name,
        [(parameter, own[parameter.name]) for parameter in parameters],
        own["return"],
        context_type=context_type and context_type(),
        is_content=is_content,
        overrides=overrides,
    )


def _bare(function: Function) -> Function:
    # Return a partial without the attributes of `functools.update_wrapper`, which hide the arguments that it holds.
    if isinstance(function, functools.partial) and "__wrapped__" in vars(function):
        return functools.partial(function.func, *function.args, **function.keywords)
    return function


def _check_parameter(parameter: Parameter, hint: Any, where: str) -> None:
    if parameter.kind is Parameter.POSITIONAL_ONLY or parameter.kind is Parameter.VAR_POSITIONAL:
        wraps = "; if a decorator returns this function, write @functools.wraps(…) above it there"
        text = f"{where}: arguments are passed by name, so it cannot be positional only or *args"
        raise RegistrationError(text + (wraps if parameter.kind is Parameter.VAR_POSITIONAL else ""))
    if parameter.name.startswith("__"):
        raise RegistrationError(f"{where}: names with two leading underscores are reserved; rename it")
    if isinstance(hint, str):
        raise RegistrationError(f"{where}: the annotation {hint!r} cannot be resolved")


def _needs_completion(hint: Any) -> bool:
    if hint is None or hint in PLAIN_TYPES:
        return False
    from .type_hooks import needs_completion

    return needs_completion(hint)


def _is_stand_in(kind: Any) -> bool:
    if kind is None:
        return False
    from .type_hooks import StandIn

    return isinstance(kind, StandIn)


def _finder_of_dependencies() -> Callable[[Parameter, Any], Dependency | None] | None:
    # Return the function that finds a `Depends` in a parameter; None if none was written in this process.
    module = sys.modules.get("mcpd.server.functions.dependencies")
    return None if module is None else module.dependency_of


def _struct(name: str, fields: list[Any], *, is_open: bool) -> type[Struct]:
    try:
        return msgspec.defstruct(
            f"{name}_arguments",
            fields,
            kw_only=True,  # a required parameter may follow an optional one
            forbid_unknown_fields=not is_open,
            gc=False,
        )
    except ValueError as error:  # a name that is given twice
        raise RegistrationError(f"function {name!r}: {error}") from error


def _is_unbound_method(function: Any, first: Parameter) -> bool:
    outer = getattr(function, "__qualname__", "").rpartition(".")[0]
    return first.annotation is Parameter.empty and bool(outer) and not outer.endswith("<locals>")


def _unchanged(context: Any) -> Any:
    return context


def _dumping(call: Function, kind: StandIn, is_async: bool) -> Function:
    # Return a caller whose results pydantic writes, by their annotation.
    async def call_async(raw: bytes | Raw, context: Any = None) -> Any:
        return kind.dump(await call(raw, context))

    return call_async if is_async else lambda raw, context=None: kind.dump(call(raw, context))


def _schema() -> Any:
    # A server often answers its first requests before a schema is needed.
    from . import schema

    return schema
