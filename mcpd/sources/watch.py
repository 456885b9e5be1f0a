"""`--reload`: a folder is looked at again when something in it has changed, and the server offers what is there then.

In a thread of its own: what it finds is exchanged at once, whatever the event loop does meanwhile. Calls that run go on
with what they began with.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from ..printable import printable
from .folder import Folder
from .lookup import FILE, FOLDERS

if TYPE_CHECKING:
    from watchfiles import Change

__all__ = ["watching"]

log = logging.getLogger("mcpd")

_STEP_MS = 50
_DEBOUNCE_MS = 200
_LOOK_MS = 500
"""After which a look is taken though nothing is said to have changed: once, for what did before the watch began."""


@contextmanager
def watching(folders: Sequence[Folder]) -> Iterator[None]:
    """Keep what these folders' servers offer up to date, until the end of the block. Raises ConfigurationError."""
    try:
        import watchfiles
    except ImportError:
        raise ConfigurationError("--reload needs watchfiles: pip install 'mcpd-server[watch]'") from None
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(watchfiles, folders, stop), name="mcpd-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(2.0)


def _watch(watchfiles: Any, folders: Sequence[Folder], stop: threading.Event) -> None:
    plain = watchfiles.DefaultFilter()

    def is_wanted(change: Change, path: str) -> bool:
        return plain(change, path) and any(_concerns(folder, path) for folder in folders)

    changes = watchfiles.watch(
        *_roots(folders),
        watch_filter=is_wanted,
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        stop_event=stop,
        rust_timeout=_LOOK_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
    )
    has_looked = False
    try:
        for changed in changes:
            paths = {path for _, path in changed}
            for folder in folders:
                if not has_looked or any(_concerns(folder, path) for path in paths):
                    _refresh(folder, paths)
            has_looked = True
    except Exception as error:  # such as more folders than the system lets be watched
        log.error("what changes is not seen any more: %s; start the server again after a change", printable(error))


def _refresh(folder: Folder, paths: set[str]) -> None:
    """Take a look. Nothing that goes wrong in a folder ends the watch."""
    if any(os.path.basename(path) == FILE and os.path.dirname(path) == folder.root for path in paths):
        log.warning("mcpd.toml has changed; it is read when the server is started again")
    try:
        folder.refresh(paths or None)
    except Exception as error:
        log.error("%s: cannot be loaded anew: %s; what it had is served", printable(folder.root), printable(error))


def _concerns(folder: Folder, path: str) -> bool:
    """Whether what is at a path may be offered by a folder; data that its tools write beside is not."""
    docs = folder.docs_folder
    if folder.configuration.docs.enabled and (path == docs or path.startswith(os.path.join(docs, ""))):
        return True
    below = os.path.relpath(path, folder.root)
    if below.startswith(os.pardir + os.sep):
        return False
    if below.endswith(".py") or below == FILE:
        return True
    tables = (getattr(folder.configuration, name).folder for name in FOLDERS if name != "docs")
    return any(below == table or below.startswith(f"{table}{os.sep}") for table in tables)


def _roots(folders: Sequence[Folder]) -> list[str]:
    """What is watched: the folders, and documents outside of them."""
    roots = [folder.root for folder in folders]
    for folder in folders:
        docs = folder.docs_folder
        if folder.docs is not None and not any(
            docs.startswith(os.path.join(root, "")) or docs == root for root in roots
        ):
            roots.append(docs)
    return roots
