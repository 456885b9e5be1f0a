"""Annotations of a function as real types: what each parameter takes and what comes back.

Finds the plain function behind partials, bound methods, decorators and callable objects, resolves
annotations written as strings where that function would, and brings what other libraries write into
`Annotated` to msgspec's `Meta`. Decides nothing about JSON.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from types import FunctionType, MethodType, UnionType
from typing import Annotated, Any, Union

from msgspec import Meta

from ..errors import RegistrationError

__all__ = ["call_method", "is_coroutine_function", "is_kind_of", "normalised", "plain_function", "resolved"]

_CONSTRAINTS = ("ge", "gt", "le", "lt", "max_length", "min_length", "multiple_of", "pattern")


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


def is_coroutine_function(function: Any) -> bool:
    """Whether calling it gives a coroutine; looks through partials and at `__call__`, not through decorators."""
    while isinstance(function, (functools.partial, staticmethod)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return inspect.iscoroutinefunction(call_method(function) or function)


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


def _local_names(function: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    enclosing = function.__qualname__.split(".<locals>")[:-1]
    prefixes = {".<locals>".join(enclosing[: end + 1]) for end in range(len(enclosing))}
    frame = sys._getframe(1) if prefixes else None
    while frame is not None:
        if frame.f_code.co_qualname in prefixes and frame.f_globals is function.__globals__:
            # Outermost frames come last, and must not hide the names of inner ones.
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return names


def _annotation_naming(function: Any, name: str | None) -> str:
    for parameter, annotation in function.__annotations__.items():
        if name and name in str(annotation):
            return ", return annotation" if parameter == "return" else f", parameter {parameter!r}: its annotation"
    return ": an annotation"


def is_kind_of(hint: Any, kind: type) -> bool:
    """Whether a hint is `kind` or a subclass, also as Optional, Annotated or generic."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return is_kind_of(hint.__origin__, kind)
    if origin is Union or origin is UnionType:
        return any(is_kind_of(member, kind) for member in typing.get_args(hint))
    return kind in getattr(origin or hint, "__mro__", ())


def normalised(hint: Any, where: str, *, has_none_default: bool) -> Any:
    """A parameter's hint as msgspec should read it.

    `object` means anything here. A default of None admits null although the annotation does not say
    so: a model reads the default in the schema and sends it. `Annotated[int, "text"]`, `Doc` and the
    constraints of pydantic's `Field` and of annotated-types become one `Meta`.
    """
    if hint is object or hint is inspect.Parameter.empty:
        return Any
    if typing.get_origin(hint) is Annotated:
        extra = _meta_of(hint.__metadata__)
        if extra:
            try:
                hint = Annotated[hint, Meta(**extra)]
            except (TypeError, ValueError) as error:
                raise RegistrationError(f"{where}: {error}") from error
    if has_none_default and hint is not Any:
        return typing.Optional[hint]  # noqa: UP045 - the only spelling that takes any form of hint
    return hint


def _meta_of(metadata: tuple[Any, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, Meta):
            continue
        description = item if isinstance(item, str) else _text(item, "description") or _text(item, "documentation")
        if description:
            found.setdefault("description", description)
        if title := _text(item, "title"):
            found.setdefault("title", title)
        # pydantic keeps its constraints in a list of such objects.
        inner = getattr(item, "metadata", None)
        for part in (item, *inner) if isinstance(inner, list) else (item,):
            for name in _CONSTRAINTS:
                value = getattr(part, name, None)
                if value is not None and not callable(value):
                    found.setdefault(name, value)
    if any(isinstance(item, Meta) and item.description is not None for item in metadata):
        found.pop("description", None)
    return found


def _text(item: Any, name: str) -> str | None:
    value = getattr(item, name, None)
    # A class or a str has attributes of these names that are methods.
    return value if isinstance(value, str) and not isinstance(item, (str, type)) else None
