"""Names and modules of another library that are missing here. Using one raises an error that names it.

A server often imports more than it uses: a transport for an option that nobody passes, a base class of its login. So
the import of a missing name gives a stand-in, and each use of that raises `NotHere`. If the import is guarded by `try`
and `except ImportError`, it fails at once, because the code then takes another path.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import logging
import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType
from typing import Any, NoReturn

from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

_IMPORT_ERRORS = frozenset(("ImportError", "ModuleNotFoundError"))
_ALL_ERRORS = frozenset(("Exception", "BaseException"))
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PYTHON = os.path.dirname(importlib.__file__)


class MissingName(ImportError):
    """`from module import name` for a missing name."""


class MissingModule(ModuleNotFoundError):
    """`import module` for a missing module."""


class NotHere(NotImplementedError):
    """A part of another library is used that is missing here."""


def missing_text(name: str, library: str) -> str:
    return f"{name} is not supported by mcpd.compat; run the server with {library} itself, as in: python server.py"


def refuse(name: str, library: str) -> NoReturn:
    raise NotHere(missing_text(name, library))


def warn_of_unused(option: str, value: Any, default: Any = None) -> None:
    """Log that an option does nothing here, unless its value is the default."""
    if value is not None and value != default:
        log.warning(
            "%s does nothing here: mcpd.compat does not have the part of the library that it configures",
            printable(option),
        )


_PRIVATE = re.compile(
    r"_(mcp_)?(list_(tools|resources|resource_templates|prompts)|call_tool|read_resource|get_prompt|render_prompt)"
    r"(_mcp|_middleware)?|_setup_handlers"
)


def refuse_overrides(server: Any, ours: type, library: str) -> None:
    """Raise NotHere if a server overrides a private method that nothing calls here. The override may hide tools."""
    for place in (vars(server), *(vars(kind) for kind in type(server).__mro__ if not issubclass(ours, kind))):
        for name in place:
            if _PRIVATE.fullmatch(name) and not hasattr(ours, name):
                refuse(f"{type(server).__name__}.{name}, an override of a private method,", library)


class _StandIn(type):
    """The type of stand-ins. They are classes, since most imports are for annotations and base classes."""

    text: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotHere(cls.text)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotHere(cls.text)


def stand_in(name: str, text: str) -> Any:
    """Return a class that raises NotHere with this text when it or a subclass is called, or an attribute is read."""
    members = {"__module__": __name__, "text": text, "__class_getitem__": classmethod(lambda cls, _: cls)}
    return _StandIn(name, (), members)


def _is_import(frame: FrameType, module: str) -> bool:
    """Return whether the frame is at a readable statement that imports the module or names of it."""
    names: list[str] = []
    for node in _statements(frame):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return any(f"{name}.".startswith(f"{module}.") for name in names)


def _is_guarded(frame: FrameType | None) -> bool:
    """Return whether an ImportError would be caught, in this frame or in a caller."""
    is_first = True
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OURS):
            return False
        if not path.startswith((_PYTHON, "<frozen importlib")):
            if any(_catches(node, is_first) for node in _statements(frame)):
                return True
            is_first = False
        frame = frame.f_back
    return False


def stands_in(module: str, depth: int) -> bool:
    """Return whether the import of a missing name gives a stand-in: it is a statement, and no ImportError is caught.

    The statement is above `depth` frames of this package.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None and _is_import(frame, module) and not _is_guarded(frame)


def _catches(node: ast.stmt, is_first: bool) -> bool:
    if isinstance(node, ast.With):
        names = {name for item in node.items for name in _named(item.context_expr)}
        return "suppress" in names and not names.isdisjoint(_IMPORT_ERRORS | _ALL_ERRORS)
    if not isinstance(node, ast.Try):
        return False
    names = {name for handler in node.handlers for name in _named(handler.type)}
    # A handler for every exception guards an import only if it surrounds nothing but imports.
    is_short = all(isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign) for statement in node.body)
    return not names.isdisjoint(_IMPORT_ERRORS) or (is_first and is_short and not names.isdisjoint(_ALL_ERRORS))


def _named(caught: ast.expr | None) -> set[str]:
    if caught is None:
        return {"BaseException"}
    return {getattr(node, "id", "") or getattr(node, "attr", "") for node in ast.walk(caught)}


def _statements(frame: FrameType) -> Iterator[ast.stmt]:
    """Yield the statements that contain the frame's line; a `try` only if its body contains it."""
    line = frame.f_lineno
    for node in ast.walk(_tree(frame.f_code.co_filename)):
        if isinstance(node, ast.stmt):
            first, last = (node.body[0], node.body[-1]) if isinstance(node, ast.Try) else (node, node)
            if first.lineno <= line <= (last.end_lineno or 0):
                yield node


@lru_cache(8)
def _tree(path: str) -> ast.AST:
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])
