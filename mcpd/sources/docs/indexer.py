"""Keeps the index of a folder up to date, in a thread."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from mcpd.protocol.printable import printable
from mcpd.sources.docs.readers.reading import ReaderProcess, read_page
from .files import MAX_LEFT_OUT, File, Tree, file_at, read_document, scan
from .index import IndexedFile, Store, is_broken, known_files, put_page, put_problem, remove, touch
from .page import DocsSettings, LeftOut, Page, Progress, UnreadablePage
from .words import Vocabulary

log = logging.getLogger("mcpd")

# Files in a batch, and seconds after which a batch ends. In memory, searches wait for a batch, so it is smaller.
_BATCH = (512, 0.4)
_BATCH_IN_MEMORY = (64, 0.02)
_BATCH_CHARACTERS = 8_000_000
_FEW_CHANGES = 100
_FEW_PAGES = 500
_MAX_PATHS = 1000  # after more changes, the whole folder is scanned


class _Stopped(Exception):
    """The indexer was asked to stop."""


class _Read(Struct):
    """The result of reading a file: a page, a problem, or neither if the content has not changed."""

    file: File
    digest: bytes | None
    page: Page | None
    problem: str | None


class Indexer:
    def __init__(self, folder: str, settings: DocsSettings, cache: str | None) -> None:
        self.folder = folder
        self.settings = settings
        self.process = ReaderProcess(settings.seconds_per_file)
        self._cache = cache
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._idle = threading.Event()
        self._store_there = threading.Event()
        self._changed: set[str] | None = None  # None: scan the whole folder
        self._thread: threading.Thread | None = None
        self.unreadable: dict[str, str] = {}
        self._left_out: list[LeftOut] = []
        self._store: Store | None = None
        self.files: dict[str, File] | None = None
        self.vocabulary = Vocabulary()
        self._since_vocabulary = 0
        self._broken: sqlite3.Error | None = None
        self._done = 0
        self._total = 0

    # -- from any thread -------------------------------------------------------------------------

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._wake.set()
                self._thread = threading.Thread(target=self._run, name="mcpd docs index", daemon=True)
                self._thread.start()

    def refresh(self, changed: Iterable[str] | None) -> None:
        """Check these paths again, or the whole folder."""
        paths = None if changed is None else set(changed)
        with self._lock:
            if paths is None or len(paths) > _MAX_PATHS:
                self._changed = None
            elif self._idle.is_set() and not self._wake.is_set():
                self._changed = paths
            elif self._changed is not None:
                self._changed |= paths
            self._idle.clear()
            self._wake.set()
        self.start()

    def use_scan(self, tree: Tree) -> None:
        """Use the result of a scan by the caller, if this indexer has not scanned yet."""
        if self.files is None:
            self.files = tree.files
            self._left_out = tree.left_out
            self._total = len(tree.files)

    def wait(self, seconds: float) -> bool:
        """Wait until all known changes are indexed. Returns whether that happened in time."""
        self.start()
        return self._idle.wait(max(0.0, seconds))

    def store(self) -> Store:
        """Return the index once it is open. Raises sqlite3.Error if it was closed."""
        self.start()
        self._store_there.wait()
        if self._store is None:
            raise sqlite3.ProgrammingError("the library is closed")
        return self._store

    @property
    def progress(self) -> Progress:
        if self._idle.is_set():
            return Progress(self._total, self._total)
        return Progress(min(self._done, self._total), max(self._total, 1))

    @property
    def left_out(self) -> list[LeftOut]:
        """The first files that are not pages, with the reasons."""
        found = [*self._left_out, *(LeftOut(path, why) for path, why in sorted(self.unreadable.items()))]
        return found[:MAX_LEFT_OUT]

    def titles(self) -> dict[str, tuple[str, str, int]]:
        """Return the title, description and order of each indexed page by path; empty if the index is not open."""
        if self._store is None:
            return {}
        try:
            with self._store.read() as connection:
                rows = connection.execute("SELECT path, title, description, place FROM files WHERE title IS NOT NULL")
                return {path: (title, description, place) for path, title, description, place in rows}
        except sqlite3.Error:  # closed or damaged, which the next search notices
            return {}

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self.process.close()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self.settings.seconds_per_file + 5)
        if self._store is not None:
            self._store.close()
            self._store = None
        self._store_there.set()
        self._idle.set()

    def broken(self, error: sqlite3.Error) -> None:
        # Only a damaged index is created again. In any case the folder is scanned.
        if isinstance(error, sqlite3.DatabaseError) and is_broken(error):
            self._broken = error
        self.refresh(None)

    # -- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._store = Store(self._cache, self.folder)
            if self._store.problem:
                log.warning("%s", printable(self._store.problem, 500))
        finally:
            self._store_there.set()

        while not self._stop.is_set():
            self._wake.wait()
            with self._lock:
                self._wake.clear()
                changed, self._changed = self._changed, set()
            if self._stop.is_set():
                return
            try:
                self._work(changed)
            except _Stopped:
                return
            except Exception:
                log.exception("the index of documents cannot be updated")

            with self._lock:
                if not self._wake.is_set():
                    self._idle.set()

    def _work(self, changed: set[str] | None) -> None:
        # Update the index. If its file fails, a new file or memory is used.
        for attempt in range(4):
            error, self._broken = self._broken, None
            try:
                if error is not None:
                    raise error
                self._bring_up_to_date(changed)
                return
            except sqlite3.Error as error:
                if attempt == 3 or self._store is None:
                    raise
                self._store = self._another_store(self._store, error)
                changed = None

    def _another_store(self, store: Store, error: sqlite3.Error) -> Store:
        store.close()
        if isinstance(error, sqlite3.DatabaseError) and is_broken(error) and not store.is_in_memory:
            store.delete()
            return Store(self._cache, self.folder)
        log.warning("the index of documents is kept in memory: %s", printable(error))
        return Store(None, self.folder)

    def _bring_up_to_date(self, changed: set[str] | None) -> None:
        assert self._store is not None
        with self._store.read() as connection:
            known = known_files(connection, None if self.files is None else changed)
        if changed is None or self.files is None:
            tree = scan(self.folder, self.settings, self._stop.is_set)
            files, self._left_out = tree.files, tree.left_out
            gone = [path for path in known if path not in files]
            to_do = [file for path, file in files.items() if not _is_known(file, known.get(path))]
        else:
            files, gone, to_do = self._changed_files(changed)
        if self._stop.is_set():
            raise _Stopped

        self.files = files
        self._total = len(files)
        self._done = len(files) - len(to_do)
        if gone:
            with self._store.change() as connection:
                for path in gone:
                    remove(connection, path)

        with self._store.read() as connection:
            problems = connection.execute("SELECT path, problem FROM files WHERE problem IS NOT NULL LIMIT 1000")
            self.unreadable = {path: problem for path, problem in problems if path in files}
        left = ((file, known.get(file.path)) for file in to_do)
        try:
            while self._index_some(left):
                if self._stop.is_set():
                    raise _Stopped
        finally:
            self.process.stop()

        self._read_vocabulary(len(to_do) + len(gone))

    def _read_vocabulary(self, changes: int) -> None:
        # Read the vocabulary again after many changes, or after any change in a small library.
        assert self._store is not None
        self._since_vocabulary += changes
        if self._since_vocabulary > _FEW_CHANGES or self._total <= _FEW_PAGES or not self.vocabulary:
            with self._store.read() as connection:
                self.vocabulary = Vocabulary.read(connection)
            self._since_vocabulary = 0

    def _changed_files(self, changed: set[str]) -> tuple[dict[str, File], list[str], list[File]]:
        files = dict(self.files or {})
        gone: list[str] = []
        to_do: list[File] = []
        for path in changed:
            file = file_at(self.folder, path, self.settings)
            if isinstance(file, File) and (path in files or len(files) < self.settings.max_files):
                files[path] = file
                to_do.append(file)
                continue
            below = [known for known in files if known == path or known.startswith(path + "/")]
            for known in below:
                del files[known]
            gone += below

        return files, gone, to_do

    def _index_some(self, left: Iterator[tuple[File, IndexedFile | None]]) -> bool:
        # Read one batch of files and write it. Returns False if nothing is left.
        assert self._store is not None
        limit, seconds = _BATCH_IN_MEMORY if self._store.is_in_memory else _BATCH
        until = time.monotonic() + seconds
        read: list[_Read] = []
        characters = 0
        for file, known in left:
            read.append(self._read(file, known))
            page = read[-1].page
            characters += len(page.text) if page is not None else 0
            if len(read) >= limit or characters > _BATCH_CHARACTERS or time.monotonic() > until or self._stop.is_set():
                break
        if not read:
            return False

        with self._store.change() as connection:
            for result in read:
                self._write(connection, result)
        self._done += len(read)
        return True

    def _read(self, file: File, known: IndexedFile | None) -> _Read:
        digest = None
        try:
            data, digest = read_document(self.folder, file, self.settings)
            if known is not None and known[3] == digest:
                return _Read(file, digest, None, None)
            return _Read(file, digest, read_page(file.path, data, process=self.process), None)
        except UnreadablePage as error:
            return _Read(file, digest, None, str(error))

    def _write(self, connection: sqlite3.Connection, read: _Read) -> None:
        path = read.file.path
        if read.problem is not None:
            if len(self.unreadable) < MAX_LEFT_OUT:
                self.unreadable[path] = read.problem
            put_problem(connection, read.file, read.digest, read.problem)
            return

        known = known_files(connection, [path]).get(path)
        if known is not None and known[3] == read.digest:  # unchanged, or another process has already indexed it
            if not _is_known(read.file, known):
                touch(connection, known[0], read.file)
        elif read.page is not None:
            self.unreadable.pop(path, None)
            put_page(connection, read.file, read.digest, read.page)


def _is_known(file: File, known: IndexedFile | None) -> bool:
    return known is not None and known[1] == file.size and known[2] == file.modified_ns
