"""Reloads a target whose files change while it is served.

All modules from the target's folder are imported again, all others stay. The new server then replaces the content of
the running one. If the import fails, the old server and the old modules stay in use.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import invalidate_caches
from importlib.util import cache_from_source
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.server import Server
from .target_errors import is_own

if TYPE_CHECKING:
    from mcpd.server.settings import Options

log = logging.getLogger("mcpd")

# How long the import of a changed target may take.
IMPORT_SECONDS = 10.0

# How often a target is loaded again if its files change during the import.
_MOST_ROUNDS = 10


class ReloadedTarget:
    """A target to reload; implements `Watched` of `sources.watch`."""

    def __init__(
        self, place: str, server: Server, load: Callable[[], Server | None], options: Options, began: int
    ) -> None:
        """`place` is the file or module of the target, which was loaded after `began` (nanoseconds).

        `load` loads the target again, and raises ConfigurationError if that fails.
        """
        self.name = place
        self._server = server
        self._load = load
        self._options = options
        self._base = _base_of(place)
        # A file that was written since may differ from what was loaded.
        found = _stamps(self._own())
        self._stamps = {path: None if stamp and stamp[1] > began else stamp for path, stamp in found.items()}
        self._is_broken = False

    def folders(self) -> Sequence[str]:
        """The folders of its modules."""
        return list(dict.fromkeys([self._base, *sorted({os.path.dirname(path) for path in self.files()})]))

    def files(self) -> Iterable[str]:
        """The files of its modules, as of the last import that succeeded."""
        return list(self._stamps)

    def concerns(self, path: str) -> bool:
        """Whether a file may be one of its modules."""
        return path.endswith(".py") and os.path.dirname(path) in self.folders()

    def refresh(self, paths: set[str]) -> None:
        """Load the target again if its files have changed."""
        for _ in range(_MOST_ROUNDS):
            now = {path: _stamp(path) for path in self._stamps}
            if now == self._stamps and not (self._is_broken and paths):
                return
            self._load_again(now)
            paths = set()

    def _load_again(self, now: dict[str, tuple[int, int] | None]) -> None:
        before = self._own()
        for path in (path for path, stamp in now.items() if stamp != self._stamps[path]):
            # Python compares seconds and sizes, and would miss the second of two quick edits.
            with suppress(OSError):
                os.unlink(cache_from_source(path))
        for name in before:
            del sys.modules[name]
        invalidate_caches()
        try:
            made = self._made()
            # Keep the stamps from before the import: a file may be written again meanwhile.
            stamps = {path: now.get(path, stamp) for path, stamp in _stamps(self._own()).items()}
            self._take_over(made)
        except ConfigurationError as error:
            for name in self._own():
                del sys.modules[name]
            sys.modules.update(before)
            self._stamps, self._is_broken = now, True
            log.error("%s; the previous version stays in use", printable(error, 2500))
            return

        self._stamps, self._is_broken = stamps, False

    def _made(self) -> Server:
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
            raise ConfigurationError(f"{self.name}: its import took more than {IMPORT_SECONDS:g} seconds")
        (made,) = found
        if isinstance(made, Server):
            return made
        if made is None or isinstance(made, ConfigurationError):
            raise made or ConfigurationError(f"{self.name}: it runs its own server, which cannot be replaced")
        raise ConfigurationError(f"{self.name}: {type(made).__name__}: {made}")

    def _take_over(self, made: Server) -> None:
        from mcpd.server.extensions.serving import configure
        from mcpd.server.reloading import take_over

        if hasattr(made, "offered") or hasattr(self._server, "offered"):
            raise ConfigurationError(f"{self.name}: servers of another library cannot be reloaded; restart mcpd")
        given: Mapping[str, Mapping[str, Any]] = self._options.extensions
        try:
            configure(made.extensions, {id: values for id, values in given.items() if id in made.extensions})
        except ValueError as error:
            raise ConfigurationError(f"{self.name}: {error}") from error
        for what in take_over(self._server, made):
            log.warning("%s: %s changed; restart mcpd to apply this", printable(self.name), printable(what))
        log.info("%s: reloaded", printable(self.name))

    def _own(self) -> dict[str, ModuleType]:
        found: dict[str, ModuleType] = {}
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if name != "__main__" and isinstance(path, str) and path.endswith(".py") and is_own(path, self._base):
                found[name] = module
        return found


def _base_of(place: str) -> str:
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
