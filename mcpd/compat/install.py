"""Finds the modules of other libraries here: `import mcp.types` gives a module whose names are ours.

Theory of operation. A finder in front of all others answers for the modules in the tables of `LIBRARIES`, and for
nothing else. What it gives is a module without code, which looks up each name when it is first asked for, so that
nothing is loaded that a server does not use. What a table does not have is an error that says so in a line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from os.path import commonprefix
from threading import RLock
from types import ModuleType
from typing import Any

from mcpd.compat.names import Names
from mcpd.errors import ConfigurationError

__all__ = ["LIBRARIES", "Facade", "finder", "install", "known_modules", "serves_in_threads", "uninstall"]

LIBRARIES = {
    "mcp": ("the official SDK", ("lowlevel.names", "fastmcp1.names", "mcpserver.names")),
    "mcp_types": ("the official SDK", ()),
    "fastmcp": ("fastmcp", ("fastmcp.names",)),
}
"""The first part of a library's modules: what people call it, and where the tables of its modules are."""


class Facade(ModuleType):
    """A module of another library, with our names."""

    def __init__(self, name: str, names: Names) -> None:
        super().__init__(name, names.doc)
        self.__names = names
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self.__dir__()
        found = _MISSING if name.startswith("__") else self.__names.find(name)
        if found is _MISSING:
            return self._missing(name)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return sorted(self.__names.all())

    def _missing(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        whole = f"{self.__name__}.{name}"
        if whole in known_modules():
            return import_module(whole)
        found = _elsewhere(self.__name__, name)
        if found is not _MISSING:
            setattr(self, name, found)
            return found

        from dis import opmap  # on the way to an error only

        from mcpd.compat.missing import MissingName, importing, is_guarded, is_import, stand_in, text_of

        text = text_of(whole, _library(self.__name__))
        frame = importing(2)
        if frame is None or frame.f_code.co_code[frame.f_lasti] != opmap["IMPORT_FROM"]:
            raise AttributeError(text, name=name, obj=self)
        if not is_import(frame, self.__name__) or is_guarded(frame):
            # `from … import`: an AttributeError would be answered with a text that does not say this.
            raise MissingName(text, name=self.__name__)
        return stand_in(name, text)


_MISSING: Any = Names.MISSING


class _Loader:
    # No `importlib.abc.Loader`, which would load a dozen modules first; that the import system needs both is enough.
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Facade(spec.name, spec.loader_state)

    def exec_module(self, module: ModuleType) -> None:
        """There is no code to run."""


_LOADER: Any = _Loader()


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top not in LIBRARIES or _is_real(top):
            return None
        _need_pydantic(top)
        names = known_modules().get(fullname)
        if names is None:
            if any(module.startswith(f"{fullname}.") for module in known_modules()):
                names = Names()
                known_modules()[fullname] = names
            else:
                names = _of_missing(fullname)
        # Any may be asked for a module in it, which there is in a later version.
        return ModuleSpec(fullname, _LOADER, origin="mcpd.compat", loader_state=names, is_package=True)


finder = _Finder()
"""What the import system asks once `install` was called."""
_lock = RLock()
_threads: dict[str, bool] = {"used": False}


def install(*, threads: bool = False) -> None:
    """From now on the modules of other libraries are ours, in this process. Safe to call twice.

    Plain functions run one after another in the event loop's thread, as those libraries do it; with `threads` they
    run in threads, as ours do. Raises ConfigurationError if one of the libraries was imported before.
    """
    loaded = [top for top in LIBRARIES if top in sys.modules and _is_real(top)]
    if loaded:
        raise ConfigurationError(
            f"{loaded[0]} was imported already: call mcpd.compat.install() before the first import of it"
        )
    with _lock:
        _threads["used"] = threads
        if finder not in sys.meta_path:
            sys.meta_path.insert(0, finder)


def uninstall() -> None:
    """From now on such modules are found as they would be without us; those that were imported stay."""
    with _lock:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


def serves_in_threads() -> bool:
    """Whether plain functions run in threads: `install(threads=True)`, or MCPD_COMPAT_THREADS in the environment."""
    import os

    return _threads["used"] or os.environ.get("MCPD_COMPAT_THREADS", "").lower() in ("1", "true", "yes", "on")


@cache
def known_modules() -> dict[str, Names]:
    """Every module that can be found, and what it holds."""
    found: dict[str, Names] = {}
    for _, tables in LIBRARIES.values():
        for table in tables:
            for name, names in import_module(f"{__package__}.{table}").MODULES.items():
                found[name] = found[name].joined(names) if name in found else names
    for name in list(found):
        parent = name.rpartition(".")[0]
        while parent:
            found.setdefault(parent, Names())
            parent = parent.rpartition(".")[0]
    return found


def _elsewhere(module: str, name: str) -> Any:
    """A name that this module imports from a neighbour in that library, and that servers import from it in turn."""
    top = module.partition(".")[0]
    near = sorted(
        (other for other in known_modules() if other.partition(".")[0] == top or other == "mcp.types"),
        key=lambda other: -len(commonprefix((other, module))),
    )
    for other in near:
        names = known_modules()[other]
        if name in names.all():
            return names.find(name)
    return _MISSING


def _of_missing(module: str) -> Names:
    """An empty module in the place of one that is not here. Raises MissingModule where the code is ready for that."""
    from mcpd.compat.missing import MissingModule, importing, is_guarded, is_import, text_of

    frame = importing(2)
    if frame is None or not is_import(frame, module) or is_guarded(frame):
        raise MissingModule(text_of(module, _library(module)), name=module)
    return Names()


def _library(module: str) -> str:
    return LIBRARIES[module.partition(".")[0]][0]


def _is_real(top: str) -> bool:
    """Whether the library itself was imported before; then all of it is its own."""
    module = sys.modules.get(top)
    return module is not None and not isinstance(module, Facade)


def _need_pydantic(top: str) -> None:
    try:
        import pydantic  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            f"a server of {_library(top)} needs pydantic: {sys.executable} -m pip install 'mcpd-server[compat]'"
        ) from None
