"""A folder that is served, as `--reload` watches it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

from mcpd.sources.folder import Folder
from mcpd.sources.lookup import FILE, FOLDERS
from mcpd.sources.watch import folders_below

log = logging.getLogger("mcpd")


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
