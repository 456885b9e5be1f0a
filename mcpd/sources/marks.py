"""`mcpd.tool`: what a function in a folder's `tools/` may say of itself beside its signature and docstring."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NewType, TypeVar, Unpack, overload

from mcpd.registry.annotations import plain_function

if TYPE_CHECKING:
    from mcpd.server.options import ToolOptions
else:
    ToolOptions = NewType("ToolOptions", dict)  # for whoever evaluates annotations

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__mcpd_tool__"


@overload
def tool(function: F, /, **options: Unpack[ToolOptions]) -> F: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...


def tool(function: Any = None, /, **options: Any) -> Any:
    """Say more of a function in a folder's `tools/`, as `@mcpd.tool(title="Water a bed", ui="bed")`.

    Options are those of `Server.tool`; the function stays as it is. One whose name begins with `_` becomes a tool too.

    A server object of your own has a decorator of its own: `@server.tool`.
    """
    if function is None:
        return lambda given: tool(given, **options)
    plain_function(function).__dict__[_MARK] = options
    return function


def options_of(function: Any) -> dict[str, Any] | None:
    """What was said of a function; None if nothing was."""
    found: dict[str, Any] | None = getattr(plain_function(function), "__dict__", {}).get(_MARK)
    return found
