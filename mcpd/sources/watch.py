"""`--reload`: update what is served when files change.

Theory of operation. A thread watches the files, so that changes take effect even while the event loop is busy. Running
calls continue with the code with which they started. Folders are watched one by one and not recursively, so that
`node_modules` or `.venv` cost nothing; their number is limited. If `--reload` was not given, the thread first polls the
files, so that a server whose files never change does not load watchfiles. After the first change the system's
notifications are used.
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
from .files import MAX_FOLDERS, Stamp, folders_below, stamp_of
from .folder import Folder
from .lookup import FILE, FOLDERS

if TYPE_CHECKING:
    from watchfiles import Change


log = logging.getLogger("mcpd")


_STEP_MS = 50
_DEBOUNCE_MS = 200
# Time after which the files are read once without a notification, for changes made before the watch began.
_FIRST_REFRESH_MS = 500
_POLL_SECONDS = 0.25
# The pause between two polls is this many times the CPU time of a poll. Wall-clock time would not do: if the system
# delays one poll, an edit would be noticed a minute later.
_POLL_PAUSE_FACTOR = 200
_LONG_PAUSE = 0.4
_MAX_SECONDS = 5.0
# How much later than a file's modification time the clock may be if it is read right after the write.
_CLOCK_STEP_NS = 20_000_000


class Watched(Protocol):
    """Something that is served from files and follows their changes."""

    name: str
    """The name used in the log."""

    def folders(self) -> Sequence[str]:
        """Return the folders to watch, each sub-folder separately."""

    def files(self) -> Iterable[str]:
        """Return the served files."""

    def concerns(self, path: str) -> bool:
        """Return whether a change of this path may concern what is served."""

    def refresh(self, paths: set[str]) -> None:
        """Serve the current files; `paths` have changed."""


def can_watch() -> bool:
    # A server whose files never change does not load watchfiles.
    from importlib.util import find_spec

    return find_spec("watchfiles") is not None


@contextmanager
def watching(watched: Sequence[Watched]) -> Iterator[None]:
    """Keep what is served up to date until the end of the block. Raises ConfigurationError without watchfiles."""
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
    # `began` is in nanoseconds. If polling is slow because of the number of files, watching starts at once.
    stamps, pause = seen = _poll(watched)
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
            except FileNotFoundError:  # a folder was deleted before it was watched
                stop.wait(_STEP_MS / 1000)
    except Exception as error:  # for example more folders than the system can watch
        log.warning("the system cannot report changes: %s; files are polled instead", printable(error))
        _poll_files(watched, stop)


# -- until something has changed ---------------------------------------------------------------

# The stamp of each file, and the seconds until the next poll.
_Poll = tuple[dict[str, Stamp | None], float]


def _poll_files(watched: Sequence[Watched], stop: threading.Event) -> None:
    poll: _Poll | None = _poll(watched)
    while poll is not None:
        for each in watched:
            _refresh(each, {each.name})
        # The stamps were taken before the files were read, so that a write in between counts as another change.
        poll = _wait_for_a_change(watched, stop, poll)


def _wait_for_a_change(watched: Sequence[Watched], stop: threading.Event, seen: _Poll) -> _Poll | None:
    # Return the first poll that differs from `seen`, or None when `stop` is set.
    stamps, pause = seen
    while not stop.wait(pause):
        now = _poll(watched)
        if now[0] != stamps:
            return now
        pause = now[1]
    return None


def _poll(watched: Sequence[Watched]) -> _Poll:
    began = thread_time()
    found = {path: stamp_of(path) for each in watched for path in each.files()}
    took = thread_time() - began
    return found, min(max(_POLL_SECONDS, _POLL_PAUSE_FACTOR * took), _MAX_SECONDS)


# -- from then on ------------------------------------------------------------------------------


def _follow(watched: Sequence[Watched], stop: threading.Event) -> None:
    # Refresh once, and after each change, until the set of folders changes.
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
        rust_timeout=_FIRST_REFRESH_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=False,
    )
    has_refreshed = False
    for changed in changes:
        paths = {path for _, path in changed}
        for each in watched:
            if not has_refreshed or any(each.concerns(path) for path in paths):
                _refresh(each, paths)
        # Also after the first refresh: a folder may have been created after the folders were listed.
        if (paths or not has_refreshed) and set(_folders(watched)) != known:
            return
        has_refreshed = True


def _folders(watched: Sequence[Watched]) -> list[str]:
    found = list(dict.fromkeys(path for each in watched for path in each.folders() if os.path.isdir(path)))
    if len(found) > MAX_FOLDERS:
        text = f"has more than {MAX_FOLDERS} folders; restart the server after changes in the others"
        log.warning("%s: %s", printable(watched[0].name), printable(text))
    return found[:MAX_FOLDERS]


def _refresh(watched: Watched, paths: set[str]) -> None:
    # Refresh. An error is logged and does not end the watch.
    try:
        watched.refresh(paths)
    except Exception as error:
        text = "%s: cannot be reloaded: %s; the previous version is served"
        log.error(text, printable(watched.name), printable(error))


class WatchedFolder:
    def __init__(self, folder: Folder) -> None:
        self.name = folder.root
        self._folder = folder
        self._tables = tuple(getattr(folder.configuration, name).folder for name in FOLDERS if name != "docs")

    def folders(self) -> Sequence[str]:
        """Return the folders to watch, those of offerings first, then others in which modules may be."""
        root = self._folder.root
        own = [os.path.join(root, *table.split("/")) for table in self._tables]
        if self._folder.docs is not None:
            own.append(self._folder.docs_folder)  # they may be outside the folder
        there = [path for path in own if os.path.isdir(path)]
        return list(dict.fromkeys([root, *folders_below(there), *folders_below([root])]))

    def files(self) -> Iterable[str]:
        for folder in self.folders():
            try:
                with os.scandir(folder) as entries:
                    found = [entry.path for entry in entries if entry.is_file()]
            except OSError:
                continue
            yield from filter(self.concerns, found)

    def concerns(self, path: str) -> bool:
        # Other data in the folder, such as files that tools write, does not count.
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
        if os.path.join(self._folder.root, FILE) in paths and self._folder.reconfigure():
            log.warning("mcpd.toml has changed; restart the server to apply it")
        self._folder.refresh(paths or None)
