"""Parameters of a tool that a function resolves, which may ask the client: `Annotated[T, Resolve(function)]`.

In earlier protocol versions the client is asked at once. In 2026-07-28 the result asks for input, and the functions are
called again with the responses.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from mcpd.compat.elicitation import AcceptedElicitation, CancelledElicitation, DeclinedElicitation
from mcpd.compat.errors import InvalidSignature, ToolError
from mcpd.compat.lowlevel.context import SharedContext
from mcpd.compat.sdk.functions import call, is_async

T = TypeVar("T")

_RESULTS = (AcceptedElicitation, DeclinedElicitation, CancelledElicitation)


class Resolve:
    """Marks a parameter whose value a function returns."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn


class Elicit(Generic[T]):
    """Returned by such a function to ask the user with a form for the fields of a model."""

    def __init__(self, message: str, schema: type[T]) -> None:
        self.message = message
        self.schema = schema


class Sample:
    """Returned by such a function to sample from the client's model."""

    def __init__(self, messages: list[Any], *, max_tokens: int, **options: Any) -> None:
        self.messages = messages
        self.options = {"max_tokens": max_tokens, **options}


class ListRoots:
    """Returned by such a function to list the client's roots."""


class _Parameter(NamedTuple):
    fn: Callable[..., Any]
    takes_result: bool  # the whole elicitation result, and not only its data


class Resolver:
    """The parameters of a tool that functions resolve. Raises InvalidSignature for functions with other parameters."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.parameters = _marked(fn)
        known = set(inspect.signature(fn).parameters) - self.parameters.keys()
        for parameter in self.parameters.values():
            _check(parameter.fn, known, ())

    async def values(self, arguments: dict[str, Any], context: Any) -> dict[str, Any]:
        """Return the values for a call with these arguments. Raises ToolError if the user did not accept a form."""
        resolved: dict[Any, Any] = {}  # a function that several parameters need is called once
        return {
            name: await _value(name, parameter, arguments, context, resolved)
            for name, parameter in self.parameters.items()
        }


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
            takes_result = any(map(_is_result, (kind, *get_args(kind))))
            found.update((name, _Parameter(mark.fn, takes_result)) for mark in marks if isinstance(mark, Resolve))
    return found


def _is_result(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, _RESULTS)


def _is_context(hint: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, SharedContext) for part in (hint, *get_args(hint)))


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
    name: str, parameter: _Parameter, arguments: dict[str, Any], context: Any, resolved: dict[Any, Any]
) -> Any:
    fn = parameter.fn
    if fn not in resolved:
        hints, marked = _hints(fn), _marked(fn)
        values: dict[str, Any] = {}
        for needed in inspect.signature(fn).parameters:
            if needed in marked:
                values[needed] = await _value(needed, marked[needed], arguments, context, resolved)
            else:
                values[needed] = context if _is_context(hints.get(needed)) else arguments[needed]
        result = await call(functools.partial(fn, **values), is_async=is_async(fn), in_thread=True)
        resolved[fn] = await _outcome(result, context)

    outcome = resolved[fn]
    if parameter.takes_result:
        return outcome
    if isinstance(outcome, AcceptedElicitation):
        return outcome.data
    raise ToolError(f"Resolver for parameter {name!r} could not resolve: elicitation was {outcome.action}")


async def _outcome(result: Any, context: Any) -> Any:
    if isinstance(result, Elicit):
        return await context.elicit(result.message, result.schema)
    if isinstance(result, Sample):
        result = await context.session.create_message(result.messages, **result.options)
    elif isinstance(result, ListRoots):
        result = await context.session.list_roots()
    return AcceptedElicitation.model_construct(action="accept", data=result)
