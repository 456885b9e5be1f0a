"""A target whose object is a server, as `--reload` follows it: its file is loaded again, with the modules beside it.

What the target's folder has is imported anew, all of it, and everything else stays as it is. The server that runs then
becomes the one that was made. If that cannot be loaded, what ran before runs on, and the modules are what they were.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import invalidate_caches
from importlib.util import cache_from_source
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mcpd.cli.user_errors import is_own
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.server import Server

if TYPE_CHECKING:
    from mcpd.serve_options import Options

log = logging.getLogger("mcpd")

IMPORT_SECONDS = 10.0
"""How long the import of a changed target may take."""

_MOST_ROUNDS = 10
"""How often it is loaded for one change, if its files change again meanwhile."""


class ReloadedTarget:
    """One target; `Watched` of `sources.watch`. `load` gives the server anew, or raises ConfigurationError."""

    def __init__(
        self, place: str, server: Server, load: Callable[[], Server | None], options: Options, began: int
    ) -> None:
        """`place` is the file or the module that the target names; it was loaded after `began`, in nanoseconds."""
        self.name = place
        self._server = server
        self._load = load
        self._options = options
        self._base = _base_of(place)
        # Whatever was written since may not be what was loaded.
        found = _stamps(self._own())
        self._stamps = {path: None if stamp and stamp[1] > began else stamp for path, stamp in found.items()}
        self._is_broken = False

    def folders(self) -> Sequence[str]:
        """Those that its modules are in."""
        return list(dict.fromkeys([self._base, *sorted({os.path.dirname(path) for path in self.files()})]))

    def files(self) -> Iterable[str]:
        """Its own and those of its modules; of a target that cannot be loaded, those that it had."""
        return list(self._stamps)

    def concerns(self, path: str) -> bool:
        """Whether it may be one of its modules."""
        return path.endswith(".py") and os.path.dirname(path) in self.folders()

    def refresh(self, paths: set[str]) -> None:
        """Let the server be what the files say now, if they say something else."""
        for _ in range(_MOST_ROUNDS):
            now = {path: _stamp(path) for path in self._stamps}
            if now == self._stamps and not (self._is_broken and paths):
                return
            self._load_again(now)
            paths = set()

    def _load_again(self, now: dict[str, tuple[int, int] | None]) -> None:
        """`now` are the stamps of the files before it."""
        before = self._own()
        for path in (path for path, stamp in now.items() if stamp != self._stamps[path]):
            _forget_bytecode(path)
        for name in before:
            del sys.modules[name]
        invalidate_caches()
        try:
            made = self._made()
            # Of what it had already as it was then: with the exchange somebody may write again.
            stamps = {path: now.get(path, stamp) for path, stamp in _stamps(self._own()).items()}
            self._exchange(made)
        except ConfigurationError as error:
            for name in self._own():
                del sys.modules[name]
            sys.modules.update(before)
            self._stamps, self._is_broken = now, True
            log.error("%s; what it had before is served", printable(error, 2500))
            return
        self._stamps, self._is_broken = stamps, False

    def _made(self) -> Server:
        """The server that the target makes now. Raises ConfigurationError."""
        found: list[Server | BaseException | None] = []

        def load() -> None:
            without, sys.dont_write_bytecode = sys.dont_write_bytecode, True
            try:
                found.append(self._load())
            except BaseException as error:
                found.append(error)
            finally:
                sys.dont_write_bytecode = without

        thread = threading.Thread(target=load, name="mcpd-import", daemon=True)
        thread.start()
        thread.join(IMPORT_SECONDS)
        if not found:
            raise ConfigurationError(f"{self.name}: its import did not end within {IMPORT_SECONDS:g} seconds")
        (made,) = found
        if isinstance(made, Server):
            return made
        if made is None or isinstance(made, ConfigurationError):
            raise made or ConfigurationError(f"{self.name}: it serves itself, and has no server to be exchanged")
        raise ConfigurationError(f"{self.name}: {type(made).__name__}: {made}")

    def _exchange(self, made: Server) -> None:
        """Raises ConfigurationError for what cannot be exchanged at all."""
        from mcpd.server.extensions.serving import configure
        from mcpd.server.reloading import take_over

        if hasattr(made, "offered") or hasattr(self._server, "offered"):
            raise ConfigurationError(f"{self.name}: its lists are functions of another library; restart to take it")
        said: Mapping[str, Mapping[str, Any]] = self._options.extensions
        try:
            configure(made.extensions, {id: values for id, values in said.items() if id in made.extensions})
        except ValueError as error:
            raise ConfigurationError(f"{self.name}: {error}") from error
        for what in take_over(self._server, made):
            log.warning("%s: %s changed; restart to take it", printable(self.name), printable(what))
        log.info("%s: has changed, and is served as it is now", printable(self.name))

    def _own(self) -> dict[str, ModuleType]:
        """The modules that were loaded from the target's folder, by name."""
        found: dict[str, ModuleType] = {}
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if name != "__main__" and isinstance(path, str) and path.endswith(".py") and is_own(path, self._base):
                found[name] = module
        return found


def _base_of(place: str) -> str:
    """The folder of a file, or that of the package that a module is in."""
    if os.path.isfile(place):
        return os.path.dirname(os.path.abspath(place))
    module = sys.modules.get(place.partition(".")[0])
    path: str | None = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if path is None:
        return os.getcwd()
    return os.path.dirname(os.path.abspath(path)) if path.endswith(".py") else os.path.abspath(path)


def _stamps(modules: Mapping[str, ModuleType]) -> dict[str, tuple[int, int] | None]:
    paths = [os.path.abspath(str(module.__file__)) for module in modules.values()]
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _forget_bytecode(path: str) -> None:
    """Python tells what it has compiled by seconds and size: of two edits in a second it would not see the other."""
    try:
        os.unlink(cache_from_source(path))
    except OSError:
        pass
