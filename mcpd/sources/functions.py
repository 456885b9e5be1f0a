"""Finds the functions of a Python file that are tools: public functions with annotated parameters, defined in that
file.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NewType, TypeVar, Unpack, overload

from msgspec import Struct

from mcpd.server.functions.annotations import plain_function, untyped_context
from .files import Report

if TYPE_CHECKING:
    from mcpd.server.options import ToolOptions
else:
    # For programs that evaluate annotations: the module loads the HTTP server.
    ToolOptions = NewType("ToolOptions", dict)

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__mcpd_tool__"


@overload
def tool(function: F, /, **options: Unpack[ToolOptions]) -> F: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...


def tool(function: Any = None, /, **options: Any) -> Any:
    """Set options of a tool in a folder's `tools/`, such as `@mcpd.tool(title="Water a bed", ui="bed")`.

    Takes the options of `Server.tool` and returns the function unchanged. A function whose name begins with `_` becomes
    a tool too.

    With a server object, use its own decorator instead: `@server.tool`.
    """
    if function is None:
        return lambda given: tool(given, **options)
    plain_function(function).__dict__[_MARK] = options
    return function


def line_of(function: Any) -> int:
    line: int = plain_function(function).__code__.co_firstlineno
    return line


class ToolFunction(Struct, frozen=True, eq=False):
    name: str
    function: Any
    line: int
    options: dict[str, Any]


def tool_functions(module: ModuleType, path: str, report: Report) -> list[ToolFunction]:
    """Return the tools of a file in the order of their definitions. `__all__` decides what is public."""
    exported = getattr(module, "__all__", None)
    found: list[ToolFunction] = []
    for name, function in _own_functions(module):
        line = line_of(function)
        options: dict[str, Any] | None = plain_function(function).__dict__.get(_MARK)
        if options is None:
            if name.startswith("_") or (exported is not None and name not in exported):
                continue
            if _makes_a_context_manager(function):
                continue
            untyped = _untyped(function)
            if untyped:
                context = untyped_context(function)
                advice = context[1] if context else f"write def {name}({untyped[0]}: str, …), or _{name} for a helper"
                names = f"{', '.join(untyped)} {'has no type' if len(untyped) == 1 else 'have no types'}"
                report.warning(path, f"{name}: {names}, so it is not a tool; {advice}", line)
                continue
        found.append(ToolFunction(name, function, line, options or {}))

    return sorted(found, key=lambda tool: tool.line)


def _own_functions(module: ModuleType) -> Iterator[tuple[str, Any]]:
    # Yield the name and value of each function that the module defines, once.
    seen: set[int] = set()
    for name, value in list(vars(module).items()):
        if isinstance(value, type | functools.partial) or not callable(value):
            continue
        plain = plain_function(value)
        if not inspect.isfunction(plain) or plain.__name__ == "<lambda>":
            continue
        # Instances with `__call__` are not tools, but decorated functions are; these have `__wrapped__`.
        if not inspect.isfunction(value) and not hasattr(value, "__wrapped__"):
            continue
        if plain.__module__ != module.__name__ or id(plain) in seen:
            continue
        seen.add(id(plain))
        yield (name if plain.__name__ not in vars(module) else plain.__name__), value


def _makes_a_context_manager(function: Any) -> bool:
    # Return whether a decorator such as `contextlib.contextmanager` made the function from a generator.
    plain = plain_function(function)
    is_generator = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
    return is_generator and plain is not function


def _untyped(function: Any) -> list[str]:
    # Return the names of parameters without annotations that clients would have to provide.
    # Whoever uses `Depends` has loaded its module; a folder without it starts some milliseconds sooner.
    dependencies = sys.modules.get("mcpd.server.functions.dependencies")
    try:
        slots = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []

    return [
        slot.name
        for slot in slots
        if slot.annotation is slot.empty
        and not (dependencies and isinstance(slot.default, dependencies.Dependency))
        and slot.kind not in (slot.VAR_POSITIONAL, slot.VAR_KEYWORD)
    ]
