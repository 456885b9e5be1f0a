"""Names and modules of another library that are not here: they fail when they are used, in one line that names them.

A server often imports more than it uses: a transport for a flag that nobody gives, a base class of its login. So an
import of what is not here gives a stand-in, whose every use raises `NotHere`. Only where the import is guarded, by
`try` and `except ImportError`, it fails at once, since the code has something else to do then.
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

__all__ = [
    "MissingModule",
    "MissingName",
    "NotHere",
    "importing",
    "is_guarded",
    "is_import",
    "refuse",
    "refuse_overrides",
    "stand_in",
    "text_of",
    "warn_of_unheard",
]

log = logging.getLogger("mcpd")

_IMPORT_ERRORS = frozenset(("ImportError", "ModuleNotFoundError"))
_ALL_ERRORS = frozenset(("Exception", "BaseException"))
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PYTHON = os.path.dirname(importlib.__file__)


class MissingName(ImportError):
    """`from module import name`, for a name that is not here."""


class MissingModule(ModuleNotFoundError):
    """`import module`, for a module that is not here."""


class NotHere(NotImplementedError):
    """Something of another library is used that is not here."""


def text_of(name: str, library: str) -> str:
    """What they say."""
    return (
        f"{name} is not among what mcpd.compat has of {library}; "
        "run the server with that library instead, as in: python server.py"
    )


def refuse(what: str, library: str) -> NoReturn:
    """Raise NotHere for this."""
    raise NotHere(text_of(what, library))


def warn_of_unheard(option: str, given: Any, usual: Any = None) -> None:
    """Say that an option does nothing here, unless it is given as what it is without being given."""
    if given is not None and given != usual:
        log.warning("%s does nothing here: mcpd.compat has no part of the library that it is for", printable(option))


_PRIVATE = re.compile(
    r"_(mcp_)?(list_(tools|resources|resource_templates|prompts)|call_tool|read_resource|get_prompt|render_prompt)"
    r"(_mcp|_middleware)?|_setup_handlers"
)


def refuse_overrides(server: Any, ours: type, library: str) -> None:
    """Raise NotHere if a server has a method in the place of a private one, which here nothing would call: it may be
    there to show less."""
    for place in (vars(server), *(vars(kind) for kind in type(server).__mro__ if not issubclass(ours, kind))):
        for name in place:
            if _PRIVATE.fullmatch(name) and not hasattr(ours, name):
                refuse(f"{type(server).__name__}.{name}, in the place of a private method,", library)


class _StandIn(type):
    """The type of stand-ins. They are classes, since annotations and base classes are what imports are mostly for."""

    text: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotHere(cls.text)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotHere(cls.text)


def stand_in(name: str, text: str) -> Any:
    """A class of this name that raises NotHere with this text when it, or a subclass, is called or asked for more."""
    members = {"__module__": __name__, "text": text, "__class_getitem__": classmethod(lambda cls, _: cls)}
    return _StandIn(name, (), members)


def is_import(frame: FrameType, module: str) -> bool:
    """Whether this frame is at a statement that imports this module, or names of it, and whose source can be read."""
    for node in _statements(frame):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            if any(f"{name}.".startswith(f"{module}.") for name in names):
                return True
    return False


def is_guarded(frame: FrameType | None) -> bool:
    """Whether an ImportError would be caught: in this frame, or by one that called it, up to what runs the program."""
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


def importing(depth: int) -> FrameType | None:
    """The frame of the import statement: `depth` of our frames, and those of the import system, are skipped."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame


def _catches(node: ast.stmt, is_first: bool) -> bool:
    if isinstance(node, ast.With):
        names = {name for item in node.items for name in _named(item.context_expr)}
        return "suppress" in names and not names.isdisjoint(_IMPORT_ERRORS | _ALL_ERRORS)
    if not isinstance(node, ast.Try):
        return False
    names = {name for handler in node.handlers for name in _named(handler.type)}
    # What catches everything is a guard if it is there for imports, and not round the whole program.
    is_short = all(isinstance(one, ast.Import | ast.ImportFrom | ast.Assign) for one in node.body)
    return not names.isdisjoint(_IMPORT_ERRORS) or (is_first and is_short and not names.isdisjoint(_ALL_ERRORS))


def _named(caught: ast.expr | None) -> set[str]:
    if caught is None:
        return {"BaseException"}
    nodes = list(ast.walk(caught))
    return {one.id for one in nodes if isinstance(one, ast.Name)} | {
        one.attr for one in nodes if isinstance(one, ast.Attribute)
    }


def _statements(frame: FrameType) -> Iterator[ast.stmt]:
    """The statements that the frame's line is in; of a `try`, only if it is in what that watches over."""
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
