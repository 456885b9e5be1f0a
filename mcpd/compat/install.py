"""Takes the place of other libraries in a process: when their modules are imported, and when their servers run.

A finder in front of all others answers for the modules in the tables of `names` only. It returns modules without code
that look up each name when it is first used, so that only what a server uses is loaded.

A server often imports more than it uses: a transport for an option that nobody passes, a base class of its login. So
the import of a missing name gives a stand-in, and each use of that raises `NotHere`. If the import is guarded by `try`
and `except ImportError`, it fails at once, because the code then takes another path.

A server whose program calls `run()` is served by the program itself, or by `mcpd serve` if that has loaded the program.
`mcpd serve` takes over before the program's own code runs. Its options for transports and addresses then override the
program's options.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from os.path import commonprefix
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .names import MISSING, MODULES, Names

if TYPE_CHECKING:
    from mcpd.server.app import Server
    from mcpd.server.settings import Settings

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
    return f"{name} is not supported by mcpd.compat; to run the server with {library} itself: --library always"


def refuse(name: str, library: str) -> NoReturn:
    raise NotHere(missing_text(name, library))


def warn_of_unused(option: str, value: Any, default: Any = None) -> None:
    """Log that an option does nothing here, unless its value is the default."""
    if value is not None and value != default:
        log.warning(
            "%s does nothing here: mcpd.compat does not have the part of the library that it configures",
            printable(option),
        )


PRIVATE = re.compile(
    r"_(mcp_)?(list_(tools|resources|resource_templates|prompts)|call_tool|read_resource|get_prompt|render_prompt)"
    r"(_mcp|_middleware)?|_setup_handlers"
)
"""Private methods of the libraries that servers override."""


def refuse_overrides(server: Any, ours: type, library: str) -> None:
    """Raise NotHere if a server overrides a private method that nothing calls here. The override may hide tools."""
    for place in (vars(server), *(vars(kind) for kind in type(server).__mro__ if not issubclass(ours, kind))):
        for name in place:
            # The methods that exist here are called here, so overriding those works.
            if PRIVATE.fullmatch(name) and not hasattr(ours, name):
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
    # Returns whether the frame is at a readable statement that imports the module or names of it.
    names: list[str] = []
    for node in _statements(frame):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return any(f"{name}.".startswith(f"{module}.") for name in names)


def _is_guarded(frame: FrameType | None) -> bool:
    # Returns whether an ImportError would be caught, in this frame or in a caller.
    is_first = True
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OURS):
            return False
        if not path.startswith((_PYTHON, "<frozen importlib")):
            if any(is_guard(node, is_first) for node in _statements(frame)):
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


def is_guard(node: ast.AST, is_first: bool = True) -> bool:
    """Return whether a statement catches the ImportError of an import in its body; the first one also by Exception."""
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
    # Yields the statements that contain the frame's line; a `try` only if its body contains it.
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


LIBRARIES = {"mcp": "the official SDK", "mcp_types": "the official SDK", "fastmcp": "fastmcp"}
"""The top-level modules that are replaced, and what people call their library."""


class Facade(ModuleType):
    """A module of another library, with names that are defined here."""

    def __init__(self, name: str, names: Names) -> None:
        super().__init__(name)
        self.__names = names
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self.__dir__()

        value = self.__names.find(name)
        if value is MISSING:
            if name.startswith("__"):
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
            if f"{self.__name__}.{name}" in known_modules():
                return import_module(f"{self.__name__}.{name}")
            value = find_name(self.__name__, name)
        if value is MISSING:
            return self._missing(name)

        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted(self.__names.all())

    def _missing(self, name: str) -> Any:
        from dis import opmap  # needed for errors only

        text = missing_text(f"{self.__name__}.{name}", LIBRARIES[_top(self.__name__)])
        frame = sys._getframe(2)
        if frame.f_code.co_code[frame.f_lasti] != opmap["IMPORT_FROM"]:
            raise AttributeError(text, name=name, obj=self)
        if not stands_in(self.__name__, 2):
            # Python would replace the message of an AttributeError in `from … import`.
            raise MissingName(text, name=self.__name__)
        return stand_in(name, text)


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = _top(fullname)
        if top not in LIBRARIES or _is_real(top):
            return None

        _need_pydantic(top)
        names = known_modules().get(fullname) or _missing_module(fullname)
        # Every module is a package, since a later version of the library may have submodules in it.
        loader: Any = self
        return ModuleSpec(fullname, loader, origin="mcpd.compat", loader_state=names, is_package=True)

    # It is its own loader, for which the import system needs two methods only. `importlib.abc.Loader` would load a
    # dozen modules.
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Facade(spec.name, spec.loader_state)

    def exec_module(self, module: ModuleType) -> None:
        """These modules have no code."""


finder = _Finder()
"""The entry of `sys.meta_path` that `install` adds."""
_threads: dict[str, bool] = {"used": False}


def install(*, threads: bool = False) -> None:
    """Replace the modules of other libraries in this process. It is safe to call this twice.

    Plain functions run one after another in the thread of the event loop, as in those libraries. With `threads` they
    run in threads, as in servers of mcpd. Raises ConfigurationError if one of the libraries was already imported.
    """
    # Classes of two libraries would meet in one server otherwise.
    loaded = [top for top in LIBRARIES if top in sys.modules and _is_real(top)]
    if loaded:
        raise ConfigurationError(
            f"{loaded[0]} is already imported: call mcpd.compat.install() before the first import of it"
        )

    _threads["used"] = threads
    if finder not in sys.meta_path:
        # It is the first finder, so that an installed library is not found before.
        sys.meta_path.insert(0, finder)


def uninstall() -> None:
    """Stop replacing modules of other libraries. Those that were imported stay."""
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)


def serves_in_threads() -> bool:
    """Return whether plain functions run in threads: by `install(threads=True)`, or MCPD_COMPAT_THREADS=1."""
    return _threads["used"] or os.environ.get("MCPD_COMPAT_THREADS", "").lower() in ("1", "true", "yes", "on")


@cache
def known_modules() -> dict[str, Names]:
    """Return the names of every module that can be found, and of the packages above them."""
    modules = dict(MODULES)
    for name in MODULES:
        while name := name.rpartition(".")[0]:
            modules.setdefault(name, Names())
    return modules


def find_name(module: str, name: str) -> Any:
    """Return the object that `from module import name` finds; MISSING if there is none."""
    value = known_modules().get(module, Names()).find(name)
    if value is not MISSING:
        return value
    # It may be a name that this module of the library imports from another one.
    near = sorted(
        (other for other in known_modules() if _top(other) == _top(module) or other == "mcp.types"),
        key=lambda other: -len(commonprefix((other, module))),
    )
    values = (known_modules()[other].find(name) for other in near)
    # The search ends at the first match, since each table may load modules.
    return next((value for value in values if value is not MISSING), MISSING)


def _missing_module(module: str) -> Names:
    # Returns an empty table for an unknown module. Raises MissingModule if the importing code handles that.
    if not stands_in(module, 2):
        raise MissingModule(missing_text(module, LIBRARIES[_top(module)]), name=module)
    return Names()


def _top(module: str) -> str:
    return module.partition(".")[0]


def _is_real(top: str) -> bool:
    # Returns whether the library itself was imported before. Then all its modules are its own.
    module = sys.modules.get(top)
    return module is not None and not isinstance(module, Facade)


def _need_pydantic(top: str) -> None:
    try:
        import pydantic  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            f"a server of {LIBRARIES[top]} needs pydantic: {sys.executable} -m pip install 'mcpd-server[compat]'"
        ) from None


# -- running ---------------------------------------------------------------------------------


class Program(Protocol):
    """Serves the servers of a program."""

    def run(self, server: Server, settings: Settings, /) -> None:
        """Serve until stopped. Blocks."""

    async def serve(self, server: Server, settings: Settings, /) -> None:
        """Serve until stopped, in the running event loop."""


class _Standalone:
    # The program serves itself, as with `python old_server.py`.

    def run(self, server: Server, settings: Settings) -> None:
        from mcpd.server.serving import run

        run(server, settings)

    async def serve(self, server: Server, settings: Settings) -> None:
        from mcpd.server.serving import serve_here

        await serve_here(server, settings)


_current: list[Program] = [_Standalone()]


def current_program() -> Program:
    """Return who serves a server whose program calls `run()`."""
    return _current[-1]


def is_taken_over() -> bool:
    """Return whether `mcpd serve` serves, and not the program itself."""
    return not isinstance(current_program(), _Standalone)


def take_over(program: Program) -> None:
    """Let `program` serve every server whose program calls `run()`."""
    _current[:] = [program]
