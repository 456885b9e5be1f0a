"""`--reload`: what is served is looked at again when something of it has changed on disk.

Theory of operation. In a thread of its own: what it finds is exchanged at once, whatever the event loop does meanwhile.
Calls that run go on with what they began with. Folders are watched one by one, each without those below it: what a
project keeps there besides, `node_modules` or `.venv`, costs nothing, and there is a bound. Where nobody asked for it
the thread begins by looking at the files from time to time, so that a server that nobody edits has loaded nothing;
with the first change it is the system that tells of them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import thread_time
from typing import TYPE_CHECKING, Protocol

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.sources.files import MOST_FOLDERS, folders_below
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import FILE, FOLDERS

if TYPE_CHECKING:
    from watchfiles import Change


log = logging.getLogger("mcpd")


_STEP_MS = 50
_DEBOUNCE_MS = 200
_LOOK_MS = 500
"""After which a look is taken though nothing is said to have changed: once, for what did before the watch began."""
_GLANCE_SECONDS = 0.25
_GLANCE_SHARE = 200
"""Between two looks at all files passes this many times what one took of the processor, or more. Never by the clock:
where the system made a look wait for a moment, an edit would then wait for a minute."""
_LONG_PAUSE = 0.4
_MOST_SECONDS = 5.0
_CLOCK_STEP_NS = 20_000_000
"""So much later than a file's time the clock may be that is read at once after it."""


class Watched(Protocol):
    """What is served from files, and is to follow them."""

    name: str
    """What it is called in the log."""

    def folders(self) -> Sequence[str]:
        """The folders in which something may change, those below each named for themselves."""

    def files(self) -> Iterable[str]:
        """The files that are served."""

    def concerns(self, path: str) -> bool:
        """Whether a change there may be one of what is served."""

    def refresh(self, paths: set[str]) -> None:
        """Serve what is there now; `paths` have changed."""


def can_watch() -> bool:
    """Whether the library is there that tells of changes. Loads nothing."""
    from importlib.util import find_spec

    return find_spec("watchfiles") is not None


@contextmanager
def watching(watched: Sequence[Watched]) -> Iterator[None]:
    """Keep what is served from these up to date, until the end of the block. Raises ConfigurationError."""
    if not can_watch():
        raise ConfigurationError("--reload needs watchfiles: pip install 'mcpd-server[watch]'")
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(watched, stop), name="mcpd-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(2.0)


def watch_later(watched: Sequence[Watched], stop: threading.Event, began: int) -> None:
    """The same, until `stop` is set; with a change since `began`, in nanoseconds, it is loaded how changes are told.

    At once, where there are so many files that looking at them would take long to find one that has changed.
    """
    stamps, pause = seen = _look(watched)
    has_changed = any(stamp is None or stamp[1] > began - _CLOCK_STEP_NS for stamp in stamps.values())
    if has_changed or pause > _LONG_PAUSE or _wait_for_a_change(watched, stop, seen) is not None:
        for each in watched:
            _refresh(each, set())
        _watch(watched, stop)


def _watch(watched: Sequence[Watched], stop: threading.Event) -> None:
    try:
        while not stop.is_set():
            try:
                _follow(watched, stop)
            except FileNotFoundError:  # a folder went before it was watched
                stop.wait(_STEP_MS / 1000)
    except Exception as error:  # such as more folders than the system lets be watched
        log.warning(
            "the system does not tell what changes: %s; files are looked at from time to time", printable(error)
        )
        _look_from_time_to_time(watched, stop)


# -- until something has changed ---------------------------------------------------------------

_Look = tuple[dict[str, tuple[int, int] | None], float]
"""Size and time of each file, None for one that cannot be had; and after how many seconds to look again."""


def _look_from_time_to_time(watched: Sequence[Watched], stop: threading.Event) -> None:
    look: _Look | None = _look(watched)
    while look is not None:
        for each in watched:
            _refresh(each, {each.name})
        # Since before the files were read: what is written while they are is another change.
        look = _wait_for_a_change(watched, stop, look)


def _wait_for_a_change(watched: Sequence[Watched], stop: threading.Event, seen: _Look) -> _Look | None:
    """The first look that is not as `seen`; None with the end before it."""
    stamps, pause = seen
    while not stop.wait(pause):
        now = _look(watched)
        if now[0] != stamps:
            return now
        pause = now[1]
    return None


def _look(watched: Sequence[Watched]) -> _Look:
    began = thread_time()
    found: dict[str, tuple[int, int] | None] = {}
    for each in watched:
        for path in each.files():
            try:
                status = os.stat(path)
                found[path] = status.st_size, status.st_mtime_ns
            except OSError:
                found[path] = None
    took = thread_time() - began
    return found, min(max(_GLANCE_SECONDS, _GLANCE_SHARE * took), _MOST_SECONDS)


# -- from then on ------------------------------------------------------------------------------


def _follow(watched: Sequence[Watched], stop: threading.Event) -> None:
    """Take a look, and one after each change; until there are other folders than at first."""
    import watchfiles

    plain = watchfiles.DefaultFilter()
    folders = _folders(watched)
    known = set(folders)

    def is_wanted(change: Change, path: str) -> bool:
        if not plain(change, path):
            return False
        return any(each.concerns(path) for each in watched) or path in known or os.path.isdir(path)

    changes = watchfiles.watch(
        *folders,
        watch_filter=is_wanted,
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        stop_event=stop,
        rust_timeout=_LOOK_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=False,
    )
    has_looked = False
    for changed in changes:
        paths = {path for _, path in changed}
        for each in watched:
            if not has_looked or any(each.concerns(path) for path in paths):
                _refresh(each, paths)
        # With the first look too: a folder may have been made after those to be watched were listed.
        if (paths or not has_looked) and set(_folders(watched)) != known:
            return
        has_looked = True


def _folders(watched: Sequence[Watched]) -> list[str]:
    found = list(dict.fromkeys(path for each in watched for path in each.folders() if os.path.isdir(path)))
    if len(found) > MOST_FOLDERS:
        text = f"has more than {MOST_FOLDERS} folders; what changes in the others is seen with the next start"
        log.warning("%s: %s", printable(watched[0].name), printable(text))
    return found[:MOST_FOLDERS]


def _refresh(watched: Watched, paths: set[str]) -> None:
    """Take a look. Nothing that goes wrong in it ends the watch."""
    try:
        watched.refresh(paths)
    except Exception as error:
        log.error("%s: cannot be loaded anew: %s; what it had is served", printable(watched.name), printable(error))


class WatchedFolder:
    """The folder of one server; `Watched` of `watch`."""

    def __init__(self, folder: Folder) -> None:
        self.name = folder.root
        self._folder = folder
        self._tables = tuple(getattr(folder.configuration, name).folder for name in FOLDERS if name != "docs")

    def folders(self) -> Sequence[str]:
        """Its sub-folders first, and what is below them; then others, where modules may be."""
        root = self._folder.root
        own = [os.path.join(root, *table.split("/")) for table in self._tables]
        if self._folder.docs is not None:
            own.append(self._folder.docs_folder)  # which may be elsewhere
        there = [path for path in own if os.path.isdir(path)]
        return list(dict.fromkeys([root, *folders_below(there), *folders_below([root])]))

    def files(self) -> Iterable[str]:
        """Those in its folders that concern it."""
        for folder in self.folders():
            try:
                with os.scandir(folder) as entries:
                    found = [entry.path for entry in entries if entry.is_file()]
            except OSError:
                continue
            yield from filter(self.concerns, found)

    def concerns(self, path: str) -> bool:
        """Whether what is at a path may be offered; data that tools write beside is not."""
        docs = self._folder.docs_folder
        if self._folder.configuration.docs.enabled and (path == docs or path.startswith(os.path.join(docs, ""))):
            return True
        below = os.path.relpath(path, self._folder.root)
        if below.startswith(os.pardir + os.sep):
            return False
        if below.endswith(".py") or below == FILE:
            return True
        return any(below == table or below.startswith(f"{table}{os.sep}") for table in self._tables)

    def refresh(self, paths: set[str]) -> None:
        """Offer what is there now."""
        if any(os.path.basename(path) == FILE and os.path.dirname(path) == self._folder.root for path in paths):
            log.warning("mcpd.toml has changed; it is read when the server is started again")
        self._folder.refresh(paths or None)
