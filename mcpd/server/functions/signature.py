"""A plain Python function as something that can be described to a model and called with JSON.

`bind` reads the signature once; the `Callee` it gives decodes arguments straight into a struct made
for that function, so that arguments that fit cost one decode and one call. Schemas and docstring are
only looked at when they are asked for. Annotations decide, names never do: the context parameter is
the one annotated with the context's type. Knows nothing of tools, prompts or resources, runs no
function in a thread, awaits nothing. Spec: 2025-11-25 server/tools, SEP-1303.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter as Slot
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict

from mcpd.errors import RegistrationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.server.functions.annotations import (
    PLAIN_TYPES,
    call_method,
    docstring_of,
    find_kind,
    is_coroutine_function,
    may_need_pydantic,
    own_hints,
    plain_field,
    plain_function,
    read_plainly,
    resolved,
    takes_positions_only,
)
from mcpd.server.functions.docstring import Docstring, parse
from mcpd.server.functions.results import awaited, data_type, dec_hook

if TYPE_CHECKING:
    from mcpd.server.functions.arguments import ArgumentParser
    from mcpd.server.functions.dependencies import Dependency, Overrides
    from mcpd.server.functions.type_hooks import StandIn


class Argument(Struct, frozen=True):
    """One argument of a function, as a prompt lists it."""

    name: str
    title: str | None
    description: str | None
    required: bool


class _Plan(Struct, frozen=True):
    """What the signature says."""

    name: str
    arguments: type[Struct]
    context_name: str | None
    # The parameters in their order.
    names: tuple[str, ...]
    # From what the caller of `call` has for a context to what the function gets: the class method `_of` of its class.
    make_context: Callable[[Any], Any]
    extra: Any
    returns: Any
    # Whether values lack defaults when they are decoded.
    is_incomplete: bool
    # Whether the arguments are of types that msgspec surely reads.
    is_plain: bool
    # What gives the values of the parameters that are neither arguments nor the context.
    dependencies: dict[str, Dependency]


class Callee:
    """A function with its arguments as a struct; made by `bind`.

    `call(raw, context)` decodes the arguments and calls the function with the context where it wants
    one; of a coroutine function it gives the coroutine. It raises ArgumentsError, with a text for the
    model, before the function runs. Schemas are shared: whoever changes one takes a copy.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        plan: _Plan,
        is_content: Callable[[Any], bool] | None,
        overrides: Overrides | None = None,
    ) -> None:
        self.function = function
        called = _by_position(function, plan) if takes_positions_only(function) else function
        self._called = called
        self.name = plan.name
        self.arguments = plan.arguments
        self.context_name = plan.context_name
        self.make_context = plan.make_context
        self.returns = plan.returns
        self.is_async = is_coroutine_function(function)
        kind = getattr(plan.make_context, "__self__", None)
        if self.is_async and getattr(kind, "is_for_threads", False):
            raise RegistrationError(f"function {plan.name!r} is async: it takes a Context, and awaits what that does")
        self._is_content = is_content
        self._plan = plan
        self._extra = plan.extra
        self._is_incomplete = plan.is_incomplete
        if not plan.is_plain:
            self._decode  # noqa: B018 - types that cannot be read are refused now, not in a request
        if plan.dependencies:
            self._invoke = _depending(called, plan, {} if overrides is None else overrides)
            self.is_async = True  # whatever the function is, its dependencies are awaited
        else:
            self._invoke = _invoker(called, plan)
        # Now, not in a request: pydantic takes its time when it is imported.
        self._is_dumped = may_need_pydantic(plan.returns) and _is_stand_in(self.output_type)

    def __repr__(self) -> str:
        return f"<Callee {self.name}({', '.join(self.arguments.__struct_fields__)})>"

    # Made when they are first wanted: of a server's many tools most are listed, and few called.

    @functools.cached_property
    def _decode(self) -> Callable[[bytes | Raw], Struct]:
        decode = msgspec.json.Decoder(self.arguments, dec_hook=dec_hook).decode
        if not self._is_incomplete:
            return decode
        from mcpd.server.functions.type_hooks import completed  # few functions take such classes

        return completed(decode)

    @functools.cached_property
    def call(self) -> Callable[..., Any]:
        """Decodes the arguments, and calls the function."""
        call = _caller(self._plan, self._decode, lambda raw: self._parser.from_json(raw), self._invoke)
        return _dumping(call, self.output_type, self.is_async) if self._is_dumped else call

    def read(self, raw: bytes | Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in `raw` as (args, kwargs) for the function; the context goes in by name.

        Raises ArgumentsError if they do not fit, InvalidParams if they are no JSON object.
        """
        if self._extra is not None:
            values, extra = self._parser.from_json(raw)
            return (), {**asdict(values), **extra}
        try:
            values = self._decode(raw)
        except MALFORMED:
            values, _ = self._parser.from_json(raw)
        return (), asdict(values)

    def call_strings(self, values: Mapping[str, str | None], context: Any = None) -> Any:
        """Call the function with strings, as URI variables and prompt arguments are, made into what it takes.

        Raises InvalidParams if they do not fit.
        """
        return self._invoke(*self._parser.from_strings(values), context)

    def call_values(self, values: dict[str, Any], context: Any = None) -> Any:
        """Call the function with values that are what it takes already, by the names of its parameters."""
        return self._invoke(self.arguments(**values), {}, context)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments as callers write them; without the context and what **kwargs would take."""
        return self.arguments.__struct_encode_fields__

    @functools.cached_property
    def argument_list(self) -> tuple[Argument, ...]:
        """The arguments one by one, described."""
        members = self.input_schema.get("properties", {})
        required = self.input_schema.get("required", ())
        return tuple(
            Argument(name, _said(member, "title"), _said(member, "description"), name in required)
            for name, member in members.items()
        )

    @functools.cached_property
    def argument_schema(self) -> dict[str, Any]:
        """The JSON Schema by which arguments are repaired: it says of tuples and dates what the shown one cannot."""
        schema: dict[str, Any] = _schema().input_schema(self.arguments, self._docstring.parameters, self._extra)
        return schema

    @functools.cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments: an object, closed unless the function takes **kwargs."""
        schema: dict[str, Any] = _schema().plain(self.argument_schema, "input")
        return schema

    @functools.cached_property
    def has_output_schema(self) -> bool:
        """Whether what comes back is data; not so for text, content, and what is not annotated."""
        return self.output_type is not None

    @functools.cached_property
    def output_type(self) -> Any:
        """What comes back, as a type that msgspec reads; None if it is no data."""
        return data_type(self.returns, self._is_content)

    @functools.cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of what comes back, with a root of any type; None without `has_output_schema`."""
        return _schema().plain(_schema().output_schema(self.output_type), "output") if self.has_output_schema else None

    @property
    def title(self) -> str | None:
        """The docstring's first line, if it can be a heading."""
        return self._docstring.title

    @property
    def description(self) -> str:
        """The docstring without what it says of arguments and exceptions; "" if there is none."""
        docstring = self._docstring
        others = [f"{name}: {text}" for name, text in docstring.parameters.items() if name not in self._plan.names]
        return "\n".join((f"{docstring.description}\n", *others)).strip() if others else docstring.description

    @functools.cached_property
    def _parser(self) -> ArgumentParser:
        """What reads the arguments that are not JSON as msgspec wants it; many a process never sees such."""
        from mcpd.server.functions.arguments import ArgumentParser

        parser = ArgumentParser(self.arguments, self._extra, self.context_name, lambda: self.argument_schema)
        parser.is_incomplete = self._is_incomplete
        return parser

    @functools.cached_property
    def _docstring(self) -> Docstring:
        return parse(docstring_of(self.function))


def bind(
    function: Callable[..., Any],
    *,
    context_type: Callable[[], type | None] | None = None,
    is_content: Callable[[Any], bool] | None = None,
    overrides: Overrides | None = None,
) -> Callee:
    """Read a function's signature: plain, async, method, partial or callable object.

    The parameter annotated with the class that `context_type` gives, once the annotations are read, gets the caller's
    context. `is_content` says of a
    return type that its values are content already and no data. A function with dependencies has to be called with
    an Exchange, and gives a coroutine; `overrides` are looked at then. Raises RegistrationError.
    """
    plain = plain_function(function)
    name: str = type(function).__name__ if call_method(function) else getattr(plain, "__name__", repr(plain))
    if isinstance(function, functools.partial):
        name = vars(function).get("__name__", name)  # one that was given a name
    where = f"function {name!r}"
    plainly = read_plainly(function)
    if plainly is not None:
        return Callee(function, _plan(name, *plainly, context_type and context_type()), is_content, overrides)
    if not _is_function(function):
        raise RegistrationError(f"{where}: not a function; give a function, a bound method or a callable object")
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise RegistrationError(f"{where}: it is a generator; return a list instead of yielding")

    hints = resolved(plain, where)
    try:
        slots = list(inspect.signature(_bare(function)).parameters.values())
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"{where}: its signature cannot be read: {error}") from error
    if slots and slots[0].name in ("self", "cls") and _is_unbound_method(function, slots[0]):
        raise RegistrationError(f"{where}: it is a method of a class; register the bound method of an instance")

    plan = _plan(name, slots, own_hints(hints, plain, slots), context_type and context_type())
    return Callee(function, plan, is_content, overrides)


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """A partial without what `functools.update_wrapper` wrote on it, which hides the arguments that it holds."""
    if isinstance(function, functools.partial) and "__wrapped__" in vars(function):
        return functools.partial(function.func, *function.args, **function.keywords)
    return function


def _is_function(given: object) -> bool:
    return callable(given) and not isinstance(given, type)


def _plan(name: str, slots: list[Slot], hints: dict[str, Any], context_type: type | None) -> _Plan:
    fields: list[Any] = []
    context: Slot | None = None
    make_context: Callable[[Any], Any] = _as_it_is
    extra: Any = None
    is_plain = True
    dependencies: dict[str, Dependency] = {}
    dependency_of = _finder_of_dependencies()

    for slot in slots:
        where = f"function {name!r}, parameter {slot.name!r}"
        if slot.kind is Slot.POSITIONAL_ONLY or slot.kind is Slot.VAR_POSITIONAL:
            wraps = "; if a decorator returns this function, write @functools.wraps(…) above it there"
            text = f"{where}: arguments come by name, so it cannot be positional only or *args"
            raise RegistrationError(text + (wraps if slot.kind is Slot.VAR_POSITIONAL else ""))
        if slot.name.startswith("__"):
            raise RegistrationError(f"{where}: names with two leading underscores belong to Python; rename it")
        hint = hints[slot.name]
        if isinstance(hint, str):
            raise RegistrationError(f"{where}: the annotation {hint!r} cannot be resolved")

        if dependency_of is not None and (dependency := dependency_of(slot, hint)) is not None:
            dependencies[slot.name] = dependency
            continue

        if context_type is not None and slot.kind is not Slot.VAR_KEYWORD:
            kind = find_kind(hint, context_type)
            if kind is not None:
                if context is not None:
                    raise RegistrationError(f"{where}: {context.name!r} is the {context_type.__name__} already")
                context, make_context = slot, getattr(kind, "_of", _as_it_is)
                continue

        if slot.kind is Slot.VAR_KEYWORD:
            extra = _readable(hint, where)
        else:
            field = plain_field(slot, hint)
            is_plain = is_plain and field is not None
            fields.append(field or _argument(slot, hint, where))

    arguments = _struct(name, fields, is_open=extra is not None)
    return _Plan(
        name=name,
        arguments=arguments,
        context_name=context.name if context else None,
        names=tuple(slot.name for slot in slots),
        make_context=make_context,
        extra=extra,
        returns=awaited(hints["return"]),
        is_plain=is_plain,
        is_incomplete=any(map(_needs_completion, (extra, *(field[1] for field in fields)))),
        dependencies=dependencies,
    )


# The second look at hints that are more than plain types is loaded with the first of them.


def _argument(slot: Slot, hint: Any, where: str) -> tuple[Any, ...]:
    from mcpd.server.functions.hints import argument

    return argument(slot, hint, where)


def _readable(hint: Any, where: str) -> Any:
    from mcpd.server.functions.hints import readable

    return readable(hint, where)


def _needs_completion(hint: Any) -> bool:
    if hint is None or hint in PLAIN_TYPES:
        return False
    from mcpd.server.functions.type_hooks import needs_completion

    return needs_completion(hint)


def _is_stand_in(kind: Any) -> bool:
    if kind is None:
        return False
    from mcpd.server.functions.type_hooks import StandIn

    return isinstance(kind, StandIn)


def _finder_of_dependencies() -> Callable[[Slot, Any], Dependency | None] | None:
    """What finds a `Depends` in a parameter; None if nobody has written one in this process."""
    module = sys.modules.get("mcpd.server.functions.dependencies")
    return None if module is None else module.dependency_of


def _depending(
    function: Callable[..., Any], plan: _Plan, overrides: Overrides
) -> Callable[[Struct, dict[str, Any], Any], Any]:
    """`_invoker` for a function with dependencies: gives a coroutine."""
    from mcpd.server.functions.dependencies import Calling  # few functions have any

    arguments = plan.arguments.__struct_fields__
    calling = Calling(function, f"function {plan.name!r}", plan.dependencies, arguments, overrides)
    name, make = plan.context_name, plan.make_context
    return lambda values, extra, exchange: calling.call(
        {**asdict(values), **extra}, {} if name is None else {name: make(exchange)}, exchange
    )


def _struct(name: str, fields: list[Any], *, is_open: bool) -> type[Struct]:
    try:
        return msgspec.defstruct(
            f"{name}_arguments",
            fields,
            kw_only=True,  # so that a required parameter may follow one with a default
            forbid_unknown_fields=not is_open,
            gc=False,
        )
    except ValueError as error:  # two names of one parameter
        raise RegistrationError(f"function {name!r}: {error}") from error


def _said(member: dict[str, Any], key: str) -> str | None:
    """What a schema says of itself, or the branch of it that is not null."""
    for node in (member, *member.get("anyOf", ())):
        if "$ref" not in node and key in node:
            text: str = node[key]
            return text
    return None


def _is_unbound_method(function: Any, first: Slot) -> bool:
    outer = getattr(function, "__qualname__", "").rpartition(".")[0]
    return first.annotation is Slot.empty and bool(outer) and not outer.endswith("<locals>")


def _as_it_is(context: Any) -> Any:
    return context


def _by_position(function: Callable[..., Any], plan: _Plan) -> Callable[..., Any]:
    """A decorator's function that takes `*args` only, called by name like all others."""
    names = plan.names

    def call(**values: Any) -> Any:
        return function(*(values[name] for name in names))

    return call


def _invoker(function: Callable[..., Any], plan: _Plan) -> Callable[[Struct, dict[str, Any], Any], Any]:
    """How to call the function with (values, further arguments, context): by name, as decorators expect it."""
    name, make = plan.context_name, plan.make_context
    if name is None:
        return lambda values, extra, context: function(**asdict(values), **extra)
    return lambda values, extra, context: function(**asdict(values), **extra, **{name: make(context)})


def _caller(
    plan: _Plan,
    decode: Callable[[bytes | Raw], Struct],
    recover: Callable[[bytes | Raw], tuple[Struct, dict[str, Any]]],
    invoke: Callable[[Struct, dict[str, Any], Any], Any],
) -> Callable[..., Any]:
    if plan.extra is not None:
        return lambda raw, context=None: invoke(*recover(raw), context)

    def call(raw: bytes | Raw, context: Any = None) -> Any:
        try:
            values = decode(raw)
        except MALFORMED:
            values, _ = recover(raw)
        return invoke(values, {}, context)

    return call


def _dumping(call: Callable[..., Any], kind: StandIn, is_async: bool) -> Callable[..., Any]:
    """A caller whose results are written by pydantic, as their annotation says."""

    async def call_async(raw: bytes | Raw, context: Any = None) -> Any:
        return kind.dump(await call(raw, context))

    return call_async if is_async else lambda raw, context=None: kind.dump(call(raw, context))


def _schema() -> Any:
    # Most servers are asked for a schema only after they have answered; till then its code can wait.
    from mcpd.server.functions import schema

    return schema
