"""Annotations of a function as real types: what each parameter takes and what comes back.

Finds the plain function behind partials, bound methods, decorators and callable objects, resolves
annotations written as strings where that function would. Decides nothing about JSON.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from types import FunctionType, MethodType, NoneType, UnionType
from typing import Annotated, Any, Union

from mcpd.errors import RegistrationError

if sys.version_info >= (3, 14):
    import annotationlib  # `inspect` has loaded it

PLAIN_TYPES = (Any, str, int, float, bool)
"""Types that need no second look."""

_NONE = inspect.Parameter.empty

_UNUSUAL = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def plain_function(function: Any) -> Any:
    """The function whose names, annotations and docstring count for `function`; itself if there is no other."""
    for _ in range(32):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif method := call_method(function):
            return method
        else:
            break
    return function


def call_method(function: Any) -> FunctionType | None:
    """The `__call__` that makes an object callable, if it is one written in Python."""
    if isinstance(function, (FunctionType, type)) or not callable(function):
        return None
    method = type(function).__call__
    return method if isinstance(method, FunctionType) else None


def docstring_of(function: Any) -> str | None:
    """What a function says of itself; a callable object, what its method or its class says."""
    if isinstance(function, functools.partial) and vars(function).get("__doc__"):
        return inspect.getdoc(function)
    text: str | None = inspect.getdoc(plain_function(function))
    if text is None and call_method(function):
        return type(function).__doc__
    return text


def is_coroutine_function(function: Any) -> bool:
    """Whether calling it gives a coroutine; looks through partials and at `__call__`, not through decorators."""
    while isinstance(function, (functools.partial, staticmethod)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return inspect.iscoroutinefunction(call_method(function) or function)


def takes_positions_only(function: Any) -> bool:
    """Whether a decorator's function takes `*args` and no names, whatever signature it shows."""
    while isinstance(function, (functools.partial, MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    function = call_method(function) or function
    if not isinstance(function, FunctionType) or not hasattr(function, "__wrapped__"):
        return False
    return function.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) == inspect.CO_VARARGS


def resolved(function: Any, where: str) -> dict[str, Any]:
    """The annotations of a plain function by name, "return" too, strings evaluated.

    A function inside a function may name what is local there, as far as it still can be found: what
    it closes over, and the variables of the enclosing calls while they run, as they do when a
    decorator brings us here. `where` names the function in a RegistrationError.
    """
    try:
        try:
            return typing.get_type_hints(function, include_extras=True)
        except NameError:
            return typing.get_type_hints(function, localns=_local_names(function), include_extras=True)
    except NameError as error:
        raise RegistrationError(
            f"{where}{_annotation_naming(function, error.name)} names {error.name!r}, which is not defined there "
            "at run time; import or define it before the function, outside `if TYPE_CHECKING:`"
        ) from error
    except Exception as error:  # an annotation is any expression, and may fail in any way
        raise RegistrationError(f"{where}: an annotation cannot be evaluated: {error}") from error


def is_annotated(function: Any) -> bool:
    """Whether it can have annotations, right or wrong, which not everything that is called can."""
    try:
        return hasattr(function, "__annotations__")
    except Exception:  # from Python 3.14 on, that evaluates them
        return True


def written_annotations(thing: Any) -> dict[str, Any]:
    """The annotations that a class or function has of its own, as far as they can be evaluated; raises nothing.

    Up to Python 3.13 they are what the class statement or `def` made them. From 3.14 on they are evaluated when they
    are asked for, and may name what is not there: such a one is a ForwardRef. If one fails otherwise there are none.
    """
    if sys.version_info >= (3, 14):
        try:
            return annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF)
        except Exception:  # an annotation is any expression
            return {}
    written: dict[str, Any] = (
        vars(thing).get("__annotations__", {}) if isinstance(thing, type) else thing.__annotations__
    )
    return written


def read_plainly(function: Any) -> tuple[list[inspect.Parameter], dict[str, Any]] | None:
    """The parameters, and the hint of each and of "return", of a `def` or `async def` without decorators whose
    annotations are classes; None for all others, and for what may have to be refused.

    Of such, `inspect.signature` and `resolved` give the same, for four times the work: a server may have many tools.
    """
    if type(function) is not FunctionType or function.__dict__:  # where decorators leave what they wrapped
        return None
    code = function.__code__
    if code.co_flags & _UNUSUAL or code.co_posonlyargcount:
        return None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if names[:1] in (("self",), ("cls",)):
        return None
    try:
        written = function.__annotations__
    except Exception:  # from Python 3.14 on they are evaluated now, and `resolved` says what is wrong
        return None

    hints = {name: NoneType if hint is None else hint for name, hint in written.items()}
    if not all(isinstance(hint, type) for hint in hints.values()):
        return None
    defaults = dict(zip(reversed(names[: code.co_argcount]), reversed(function.__defaults__ or ()), strict=False))
    defaults |= function.__kwdefaults__ or {}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if at < code.co_argcount else inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name, _NONE),
            annotation=hints.get(name, _NONE),
        )
        for at, name in enumerate(names)
    ]
    return parameters, {**dict.fromkeys((*names, "return"), _NONE), **hints}


def _local_names(function: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    enclosing = function.__qualname__.split(".<locals>")[:-1]
    prefixes = {".<locals>".join(enclosing[: end + 1]) for end in range(len(enclosing))}

    frame = inspect.currentframe() if prefixes else None
    while frame is not None:
        if frame.f_code.co_qualname in prefixes and frame.f_globals is function.__globals__:
            # Outermost frames come last, and must not hide the names of inner ones. Python keeps the names that a
            # function's annotations use nowhere else while the function around it runs.
            names = {**inspect.getargvalues(frame).locals, **names}
        frame = frame.f_back

    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return names


def _annotation_naming(function: Any, name: str | None) -> str:
    for parameter, annotation in written_annotations(function).items():
        if name and name in str(annotation):
            return ", return annotation" if parameter == "return" else f", parameter {parameter!r}: its annotation"
    return ": an annotation"


def own_hints(hints: dict[str, Any], plain: Any, slots: list[inspect.Parameter]) -> dict[str, Any]:
    """The hint of each parameter: the plain function's, but what a decorator put into a signature of its own."""
    written = getattr(plain, "__annotations__", {})
    own = {
        slot.name: hints[slot.name]
        if slot.name in hints and (slot.annotation is written[slot.name] or isinstance(slot.annotation, str))
        else slot.annotation
        for slot in slots
    }
    own["return"] = hints.get("return", _NONE)
    return own


def find_kind(hint: Any, kind: type) -> type | None:
    """`kind` or the subclass of it that a hint is, also as Optional, Annotated or generic; None if it is neither."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return find_kind(hint.__origin__, kind)
    if origin is Union or origin is UnionType:
        found = (find_kind(member, kind) for member in typing.get_args(hint))
        return next((one for one in found if one is not None), None)
    given = origin or hint
    return given if kind in getattr(given, "__mro__", ()) else None


def plain_field(slot: inspect.Parameter, hint: Any) -> tuple[Any, ...] | None:
    """A parameter as a field for msgspec.defstruct, if that takes no second look; else None: then `hints` has one."""
    if hint not in PLAIN_TYPES:
        return None
    if slot.default is _NONE:
        return (slot.name, hint)
    return (slot.name, hint, slot.default) if type(slot.default) in PLAIN_TYPES else None


def may_need_pydantic(hint: Any) -> bool:
    """Whether pydantic may have to read a hint, without a close look at it."""
    if hint in PLAIN_TYPES or hint is None or hint is _NONE:
        return False
    return "pydantic" in sys.modules or _has_union(hint)


def _has_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, UnionType) or any(map(_has_union, typing.get_args(hint)))


def untyped_context(function: Any, kind: str = "") -> tuple[str, str] | None:
    """The parameter that is named as a context and has no annotation, and how to write it; None if there is none.

    `kind` is the class to write, by default the one of ours that fits the function.
    """
    try:
        slots = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    for name in ("ctx", "context"):
        if name in slots and slots[name].annotation is _NONE and slots[name].default is _NONE:
            kind = kind or ("Context" if is_coroutine_function(function) else "SyncContext")
            return name, f"for the context of the request write {name}: {kind}"
    return None
