"""Functions that are marked to be tools, resources or prompts, before there is a server: `@tool`."""

from __future__ import annotations

import functools
import inspect
from types import MethodType
from typing import Any

__all__ = ["Marked", "mark"]


class Marked:
    """What a function is to be, and with which options."""

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        self.kind = kind
        self.options = options

    def bare(self, function: Any) -> Any:
        """The function as if it was not marked."""
        bare = functools.partial(function)
        functools.update_wrapper(bare, function)
        for name in ("__fastmcp__", "__wrapped__"):
            bare.__dict__.pop(name, None)
        return bare


def mark(kind: str, name_or_fn: Any, name: str | None, options: dict[str, Any]) -> Any:
    """A decorator, or a function that is decorated at once. Raises TypeError for anything else."""
    if isinstance(name_or_fn, classmethod):
        raise TypeError(f"To decorate a classmethod, use @classmethod above @{kind}.")

    def put(function: Any) -> Any:
        target: Any = function.__func__ if isinstance(function, (staticmethod, MethodType)) else function
        target.__fastmcp__ = Marked(kind, {"name": name, **options})
        return function

    if inspect.isroutine(name_or_fn):
        return put(name_or_fn)
    if isinstance(name_or_fn, str):
        if name is not None:
            raise TypeError("Cannot specify name both as first argument and keyword")
        name = name_or_fn
    elif name_or_fn is not None:
        raise TypeError(f"Invalid first argument: {type(name_or_fn)}")
    return put
