"""Takes the place of other libraries in a process: when their modules are imported, and when their servers run.

A finder in front of all others answers for the modules in the tables of `names` only. It returns modules without code
that look up each name when it is first used, so that only what a server uses is loaded.

A server whose program calls `run()` is served by the program itself, or by `mcpd serve` if that has loaded the program.
`mcpd serve` takes over before the program's own code runs. Its options for transports and addresses then override the
program's options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from os.path import commonprefix
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from mcpd.compat.missing import MissingModule, MissingName, missing_text, stand_in, stands_in
from mcpd.compat.names import MODULES, Names
from mcpd.errors import ConfigurationError

if TYPE_CHECKING:
    from mcpd.server.app import Server
    from mcpd.server.settings import Settings

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
        if value is Names.MISSING:
            if name.startswith("__"):
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
            if f"{self.__name__}.{name}" in known_modules():
                return import_module(f"{self.__name__}.{name}")
            value = _name_of_neighbor(self.__name__, name)
        if value is Names.MISSING:
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


class _Loader:
    # The import system needs these two methods only, and `importlib.abc.Loader` would load a dozen modules.
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Facade(spec.name, spec.loader_state)

    def exec_module(self, module: ModuleType) -> None:
        """These modules have no code."""


_LOADER: Any = _Loader()


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
        return ModuleSpec(fullname, _LOADER, origin="mcpd.compat", loader_state=names, is_package=True)


finder = _Finder()
"""The entry of `sys.meta_path` that `install` adds."""
_lock = RLock()
_threads: dict[str, bool] = {"used": False}


def install(*, threads: bool = False) -> None:
    """Replace the modules of other libraries in this process. It is safe to call this twice.

    Plain functions run one after another in the thread of the event loop, as in those libraries. With `threads` they
    run in threads, as in servers of mcpd. Raises ConfigurationError if one of the libraries was already imported.
    """
    loaded = [top for top in LIBRARIES if top in sys.modules and _is_real(top)]
    if loaded:
        raise ConfigurationError(
            f"{loaded[0]} is already imported: call mcpd.compat.install() before the first import of it"
        )

    with _lock:
        _threads["used"] = threads
        if finder not in sys.meta_path:
            sys.meta_path.insert(0, finder)


def uninstall() -> None:
    """Stop replacing modules of other libraries. Those that were imported stay."""
    with _lock:
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


def _name_of_neighbor(module: str, name: str) -> Any:
    """Find a name that this module of the library imports from another one, and that servers import from this one."""
    near = sorted(
        (other for other in known_modules() if _top(other) == _top(module) or other == "mcp.types"),
        key=lambda other: -len(commonprefix((other, module))),
    )
    values = (known_modules()[other].find(name) for other in near)
    return next((value for value in values if value is not Names.MISSING), Names.MISSING)


def _missing_module(module: str) -> Names:
    """Return an empty table for an unknown module. Raises MissingModule if the importing code handles that."""
    if not stands_in(module, 2):
        raise MissingModule(missing_text(module, LIBRARIES[_top(module)]), name=module)
    return Names()


def _top(module: str) -> str:
    return module.partition(".")[0]


def _is_real(top: str) -> bool:
    """Return whether the library itself was imported before. Then all its modules are its own."""
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
