"""`Resolve`: parameters that a function of their own finds, which may ask the client: `Annotated[T, Resolve(f)]`.

A question is asked as any other one of ours: in legacy sessions at once, in modern versions by rounds, which call the
functions again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from mcpd.compat.elicitation import AcceptedElicitation, CancelledElicitation, DeclinedElicitation
from mcpd.compat.fastmcp1.errors import InvalidSignature
from mcpd.compat.fastmcp1.signature import is_async
from mcpd.compat.mcpserver.context import Context
from mcpd.compat.mcpserver.errors import ToolError
from mcpd.server.functions.threads import run_in_thread

__all__ = ["Elicit", "ListRoots", "Resolve", "Resolver", "Sample"]

T = TypeVar("T")

_RESULTS = (AcceptedElicitation, DeclinedElicitation, CancelledElicitation)


class Resolve:
    """The parameter is what this function gives."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn


class Elicit(Generic[T]):
    """What such a function gives to ask the user, by a form with the fields of a model."""

    def __init__(self, message: str, schema: type[T]) -> None:
        self.message = message
        self.schema = schema


class Sample:
    """What it gives to ask the client's model."""

    def __init__(self, messages: list[Any], *, max_tokens: int, **options: Any) -> None:
        self.messages = messages
        self.options = {"max_tokens": max_tokens, **options}


class ListRoots:
    """What it gives to ask for the client's roots."""


class _Parameter:
    def __init__(self, fn: Callable[..., Any], wants_result: bool) -> None:
        self.fn = fn
        self.wants_result = wants_result


class Resolver:
    """The parameters of a tool that are resolved. Raises InvalidSignature for functions that cannot be."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.parameters = _marked(fn)
        known = set(inspect.signature(fn).parameters) - self.parameters.keys()
        for one in self.parameters.values():
            _check(one.fn, known, ())

    async def values(self, arguments: dict[str, Any], context: Any) -> dict[str, Any]:
        """Them, for a call with these arguments. Raises ToolError for a question that was not answered."""
        made: dict[Any, Any] = {}
        return {name: await _value(name, one, arguments, context, made) for name, one in self.parameters.items()}


def _hints(fn: Any) -> dict[str, Any]:
    try:
        return get_type_hints(fn if inspect.isroutine(fn) else type(fn).__call__, include_extras=True)
    except Exception:  # a name that cannot be found
        return {}


def _marked(fn: Callable[..., Any]) -> dict[str, _Parameter]:
    found: dict[str, _Parameter] = {}
    for name, hint in _hints(fn).items():
        if name != "return" and get_origin(hint) is Annotated:
            kind, *marks = get_args(hint)
            wants = any(_is_result(one) for one in (kind, *get_args(kind)))
            found.update((name, _Parameter(mark.fn, wants)) for mark in marks if isinstance(mark, Resolve))
    return found


def _is_result(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, _RESULTS)


def _is_context(hint: Any) -> bool:
    return any(isinstance(one, type) and issubclass(one, Context) for one in (hint, *get_args(hint)))


def _check(fn: Callable[..., Any], known: set[str], above: tuple[Any, ...]) -> None:
    name = getattr(fn, "__name__", type(fn).__name__)
    if fn in above:
        raise InvalidSignature(f"Resolver {name!r} has a cyclic dependency")
    hints, marked = _hints(fn), _marked(fn)
    for parameter in inspect.signature(fn).parameters:
        if parameter in marked:
            _check(marked[parameter].fn, known, (*above, fn))
        elif not _is_context(hints.get(parameter)) and parameter not in known:
            raise InvalidSignature(
                f"Resolver {name!r} parameter {parameter!r} cannot be resolved: expected a Context, an "
                "Annotated[_, Resolve(...)], or a tool argument by name"
            )


async def _value(
    name: str, parameter: _Parameter, arguments: dict[str, Any], context: Any, made: dict[Any, Any]
) -> Any:
    fn = parameter.fn
    if fn not in made:
        hints, marked = _hints(fn), _marked(fn)
        given: dict[str, Any] = {}
        for one in inspect.signature(fn).parameters:
            if one in marked:
                given[one] = await _value(one, marked[one], arguments, context, made)
            else:
                given[one] = context if _is_context(hints.get(one)) else arguments[one]
        result = await fn(**given) if is_async(fn) else await run_in_thread(lambda: fn(**given))
        made[fn] = await _answer(result, context)
    outcome = made[fn]
    if parameter.wants_result:
        return outcome
    if isinstance(outcome, AcceptedElicitation):
        return outcome.data
    raise ToolError(f"Resolver for parameter {name!r} could not resolve: elicitation was {outcome.action}")


async def _answer(given: Any, context: Any) -> Any:
    if isinstance(given, Elicit):
        return await context.elicit(given.message, given.schema)
    if isinstance(given, Sample):
        given = await context.session.create_message(given.messages, **given.options)
    elif isinstance(given, ListRoots):
        given = await context.session.list_roots()
    return AcceptedElicitation.model_construct(action="accept", data=given)
