"""Runs the user's code to load a target, and reports any exception in one line.

If the code imports another MCP library, `ImportWatch` puts the replacement of `mcpd.compat` in its place. A host waits
while this module is loaded, so it imports little.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.server import Server

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from mcpd.server.settings import Settings

T = TypeVar("T")

# The top-level packages that `mcpd.compat` replaces: the keys of `compat.install.LIBRARIES`.
LIBRARIES = ("mcp", "mcp_types", "fastmcp")


def may_need_library(place: str) -> bool:
    """Whether a target may have to run with its own library: that is installed, and the target's file is not mcpd's."""
    if not any(map(PathFinder.find_spec, LIBRARIES)) and not environments(place):
        return False
    return not imports_mcpd(place)


def imports_mcpd(path: str) -> bool:
    """Whether a file imports mcpd, as servers of mcpd do; False for what is no file."""
    try:
        with open(path, "rb") as file:
            return any(line.lstrip().startswith((b"from mcpd", b"import mcpd")) for line in file)
    except OSError:
        return False


def environments(place: str) -> list[str]:
    """The environment beside a target, in the nearest folder with a `.venv`, and the active one; without mcpd's own."""
    if "_MCPD_PYTHON" in os.environ:
        return []  # this is the environment of the target's header (`scripts`)
    folder = os.path.dirname(os.path.abspath(place)) if os.path.isfile(place) else os.getcwd()
    while not os.path.isdir(os.path.join(folder, ".venv")) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return [each for each in (os.path.join(folder, ".venv"), os.environ.get("VIRTUAL_ENV", "")) if _is_usable(each)]


def _is_usable(environment: str) -> bool:
    python = os.path.join(environment, "bin", "python")
    # Its Python is run, so it must not be anybody's.
    is_own = os.path.isfile(python) and os.stat(environment).st_uid in (0, os.getuid())
    return is_own and not os.path.samefile(environment, sys.prefix)


class LoadedBy(Protocol):
    """The caller that loads a target and serves the servers whose `run()` the target calls."""

    # Whether the target called `run()`.
    has_served: bool

    def run(self, server: Server, settings: Settings) -> None:
        """Serve until stopped; blocks."""

    async def serve(self, server: Server, settings: Settings) -> None:
        """Serve in the running event loop until stopped."""

    def take_words(self) -> None:
        """Called if the target is a program that reads the words after TARGET itself."""


class ImportWatch:
    """Watches the imports while a target is loaded: `with ImportWatch(loaded_by):`.

    The first import of another MCP library installs `mcpd.compat` for the rest of the process. With None, the target
    gets the libraries as they are installed.
    """

    def __init__(self, loaded_by: LoadedBy | None) -> None:
        self._loaded_by = loaded_by
        # Whether the target imports such a library.
        self.has_seen = False
        self.when_seen: Callable[[], None] = lambda: None

    def __enter__(self) -> ImportWatch:
        if self._loaded_by is not None:
            sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Find the replacement of a library; None for all other modules. Called by the import system."""
        if fullname.partition(".")[0] not in LIBRARIES:
            return None
        from mcpd.compat.install import finder, install, take_over

        if self._loaded_by is None or fullname.partition(".")[0] in sys.modules:
            return None
        self.has_seen = True
        self.when_seen()
        sys.meta_path.remove(self)
        install()
        take_over(self._loaded_by)
        return finder.find_spec(fullname, path, target)


class Loading(Struct, frozen=True):
    """How one target is loaded."""

    watch: ImportWatch
    loaded_by: LoadedBy | None

    def run(self, step: Callable[[], T]) -> T | None:
        """Run code of the target; None if it exits after it has served, for example with `sys.exit(0)`."""
        try:
            return step()
        except SystemExit as error:
            if self.has_served and not error.code:
                return None
            raise

    @property
    def has_served(self) -> bool:
        """Whether the target called `run()` and was served there."""
        return self.loaded_by is not None and self.loaded_by.has_served


def is_server(found: Any) -> bool:
    """Whether an object is a server, of mcpd or of a library that `mcpd.compat` replaces."""
    return isinstance(found, Server) or hasattr(type(found), "__mcpd_server__")


def guarded(name: str, step: Callable[[], T], function: str = "") -> T:
    """Run code of the user: the import of `name`, or a call of `function` in it."""
    # Raises ConfigurationError, with the place in the user's code, for any exception.
    serve: Any = Server.run
    # The caller serves: a file that serves itself while it is imported would never return.
    Server.run = _refuse_in_function if function else _refuse_to_run  # type: ignore[method-assign,assignment]

    try:
        return step()
    except ConfigurationError:
        raise
    except (Exception, SystemExit) as error:
        from mcpd.client.targets.grammar import UnknownTarget
        from .target_errors import explain, is_missing_module

        kind = UnknownTarget if is_missing_module(error, name, function) else ConfigurationError
        raise kind(explain(error, name, function)) from error
    finally:
        # An import that timed out may still run in its thread; it restores the method when it ends.
        if serve not in (_refuse_to_run, _refuse_in_function):
            Server.run = serve  # type: ignore[method-assign]


def _refuse_to_run(server: Server, **_: Any) -> NoReturn:
    raise ConfigurationError(
        f"the file of server {server.name!r} calls run() while it is imported; "
        'put that call under `if __name__ == "__main__":`'
    )


def _refuse_in_function(server: Server, **_: Any) -> NoReturn:
    raise ConfigurationError(f"the function calls run() of server {server.name!r}; return the server instead")
