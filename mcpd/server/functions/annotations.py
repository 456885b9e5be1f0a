"""Annotations of a function as real types: what each parameter takes and what the function returns.

Finds the plain function behind partials, bound methods, decorators and callable objects, and resolves annotations
written as strings in that function's scope. Knows nothing of JSON.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable
from types import FunctionType, MethodType, UnionType
from typing import Annotated, Any, TypeAlias, Union

from mcpd.errors import RegistrationError

if sys.version_info >= (3, 14):
    import annotationlib  # `inspect` has loaded it

# A function of an author, or another callable.
Function: TypeAlias = Callable[..., Any]

# Values of arguments, by name.
Values: TypeAlias = dict[str, Any]

# Types that msgspec reads as they are.
PLAIN_TYPES = (Any, str, int, float, bool)

_NONE = inspect.Parameter.empty


def plain_function(function: Any) -> Any:
    """Return the function whose names, annotations and docstring count for `function`; by default `function` itself."""
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
    """Return the `__call__` of a callable object if it is written in Python, otherwise None."""
    if isinstance(function, (FunctionType, type)) or not callable(function):
        return None
    method = type(function).__call__
    return method if isinstance(method, FunctionType) else None


def docstring_of(function: Any) -> str | None:
    """Return the docstring of a function, or of a callable object's method or class."""
    if isinstance(function, functools.partial) and vars(function).get("__doc__"):
        return inspect.getdoc(function)
    text: str | None = inspect.getdoc(plain_function(function))
    if text is None and call_method(function):
        return type(function).__doc__
    return text


def is_coroutine_function(function: Any) -> bool:
    """Return whether a call returns a coroutine. Looks through partials and `__call__`, not through decorators."""
    while isinstance(function, (functools.partial, staticmethod)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return inspect.iscoroutinefunction(call_method(function) or function)


def takes_positions_only(function: Any) -> bool:
    """Return whether a decorator's function takes `*args` and no keywords, whatever signature it shows."""
    while isinstance(function, (functools.partial, MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    function = call_method(function) or function
    if not isinstance(function, FunctionType) or not hasattr(function, "__wrapped__"):
        return False
    return function.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) == inspect.CO_VARARGS


def resolved(function: Any, where: str) -> dict[str, Any]:
    """Return the annotations of a plain function by name, including "return", with strings evaluated.

    Annotations of a nested function may use local names, if they are still available: variables in its closure, and
    variables of enclosing calls that are still running, as they are while a decorator runs. `where` names the function
    in a RegistrationError.
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
    except Exception as error:  # an annotation is any expression and may raise anything
        raise RegistrationError(f"{where}: an annotation cannot be evaluated: {error}") from error


def is_annotated(function: Any) -> bool:
    """Return whether an object can have annotations, valid or not."""
    try:
        return hasattr(function, "__annotations__")
    except Exception:  # Python 3.14 evaluates them here
        return True


def written_annotations(thing: Any) -> dict[str, Any]:
    """Return the annotations that a class or function has of its own, as far as they can be evaluated. Never raises.

    Up to Python 3.13 these are the objects that the class statement or `def` stored. From 3.14 on they are evaluated
    now; a name that cannot be resolved becomes a ForwardRef. If one fails otherwise, the result is empty.
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


def _local_names(function: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    enclosing = function.__qualname__.split(".<locals>")[:-1]
    prefixes = {".<locals>".join(enclosing[: end + 1]) for end in range(len(enclosing))}

    frame = inspect.currentframe() if prefixes else None
    while frame is not None:
        if frame.f_code.co_qualname in prefixes and frame.f_globals is function.__globals__:
            # Outer frames come last and must not hide names of inner ones. Python keeps the names that only a
            # function's annotations use while the enclosing function runs.
            names = {**inspect.getargvalues(frame).locals, **names}
        frame = frame.f_back

    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def _annotation_naming(function: Any, name: str | None) -> str:
    for parameter, annotation in written_annotations(function).items():
        if name and name in str(annotation):
            return ", return annotation" if parameter == "return" else f", parameter {parameter!r}: its annotation"
    return ": an annotation"


def own_hints(hints: dict[str, Any], plain: Any, parameters: list[inspect.Parameter]) -> dict[str, Any]:
    """Return the hint of each parameter. Hints that a decorator put into its own signature win over the plain
    function's.
    """
    written = getattr(plain, "__annotations__", {})
    own = {
        parameter.name: hints[parameter.name]
        if parameter.name in hints
        and (parameter.annotation is written[parameter.name] or isinstance(parameter.annotation, str))
        else parameter.annotation
        for parameter in parameters
    }
    own["return"] = hints.get("return", _NONE)
    return own


def find_kind(hint: Any, kind: type) -> type | None:
    """Return `kind`, or its subclass that a hint is, also inside Optional, Annotated or a generic; None without one."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return find_kind(hint.__origin__, kind)
    if origin is Union or origin is UnionType:
        kinds = (find_kind(member, kind) for member in typing.get_args(hint))
        return next((one for one in kinds if one is not None), None)
    given = origin or hint
    return given if kind in getattr(given, "__mro__", ()) else None


def plain_field(parameter: inspect.Parameter, hint: Any) -> tuple[Any, ...] | None:
    """Return a parameter as a field for msgspec.defstruct, or None if `hints` must read it."""
    if hint not in PLAIN_TYPES:
        return None
    if parameter.default is _NONE:
        return (parameter.name, hint)
    return (parameter.name, hint, parameter.default) if type(parameter.default) in PLAIN_TYPES else None


def may_need_pydantic(hint: Any) -> bool:
    """Return whether pydantic may be needed to read a hint, by a quick check."""
    if hint in PLAIN_TYPES or hint is None or hint is _NONE:
        return False
    return "pydantic" in sys.modules or _has_union(hint)


def _has_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, UnionType) or any(map(_has_union, typing.get_args(hint)))


def untyped_context(function: Any, kind: str = "") -> tuple[str, str] | None:
    """Return the name of an unannotated context parameter and how to write it, or None.

    `kind` is the class to suggest; by default the context class that fits the function.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    for name in ("ctx", "context"):
        if name in parameters and parameters[name].annotation is _NONE and parameters[name].default is _NONE:
            kind = kind or ("Context" if is_coroutine_function(function) else "SyncContext")
            return name, f"for the context of the request write {name}: {kind}"
    return None
