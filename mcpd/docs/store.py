"""The file of an index, or its memory: a SQLite database that anyone may delete.

What is broken, of another program or of another version is deleted and made anew; where nothing can be written, the
index lives in memory. Several processes may use one file: one writes at a time, all read.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator

_APPLICATION = 0x6D637064
_VERSION = 1
_SECONDS_TO_WAIT = 15.0

_SCHEMA = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE files(
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, modified_ns INTEGER NOT NULL,
    hash BLOB, title TEXT, section TEXT, folder TEXT, description TEXT, kind TEXT, place INTEGER, problem TEXT);
CREATE TABLE chunks(
    id INTEGER PRIMARY KEY, heading TEXT NOT NULL, anchor TEXT NOT NULL, headings TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE code(id INTEGER PRIMARY KEY, language TEXT NOT NULL, before TEXT NOT NULL, text TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(
    title, headings, text, content='', tokenize="porter unicode61 remove_diacritics 2");
CREATE VIRTUAL TABLE vocabulary USING fts5vocab(words, 'row');
INSERT INTO words(words, rank) VALUES ('rank', 'bm25(6.0, 4.0, 1.0)');
INSERT INTO words(words, rank) VALUES ('hashsize', 8388608);
INSERT INTO words(words, rank) VALUES ('automerge', 8);
"""


class Store:
    """An open index. `writer` and `reader` are its connections; in memory they are one.

    `cache` is the file; None keeps the index in memory. `is_in_memory` says what it came to, `problem` why.
    """

    def __init__(self, cache: str | None, folder: str) -> None:
        self.problem = ""
        self.is_in_memory = True
        self._folder = folder
        self._cache = cache
        self.writing = threading.RLock()
        self.reading = self.writing
        if cache is not None:
            try:
                self._open_file(cache)
                return
            except (OSError, sqlite3.Error) as error:
                self.problem = f"the index cannot be kept in {cache} ({error}); it is kept in memory"
        self.writer = self.reader = self._in_memory()

    @contextlib.contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """A transaction that others wait for; what it changed makes a new generation."""
        with self.writing:
            connection = self.writer
            connection.execute("BEGIN IMMEDIATE")
            before = connection.total_changes
            try:
                yield connection
                if connection.total_changes != before:
                    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One state of the index, for some reads."""
        with self.reading:
            if self.is_in_memory:
                yield self.reader
                return
            self.reader.execute("BEGIN")
            try:
                yield self.reader
            finally:
                self.reader.execute("COMMIT")

    def generation(self, connection: sqlite3.Connection) -> str:
        """Which state of the index this is: another one after each change, and in each new index."""
        rows = dict(connection.execute("SELECT name, value FROM meta WHERE name IN ('identity', 'generation')"))
        return f"{rows['identity']}.{rows['generation']}"

    def close(self) -> None:
        """Close it; what runs in it ends first."""
        with self.writing, self.reading:
            for connection in {self.writer, self.reader}:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def delete(self) -> None:
        """Delete its file, which has to be closed."""
        if self._cache is not None:
            _delete(self._cache)

    # -- making it -----------------------------------------------------------------------------

    def _open_file(self, cache: str) -> None:
        os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)
        for attempt in range(2):
            try:
                self.writer = self._connected(cache)
                try:
                    self.reader = self._connected(cache)
                except BaseException:
                    self.writer.close()
                    raise
                break
            except sqlite3.DatabaseError as error:
                if attempt or not is_broken(error):
                    raise
                _delete(cache)
        self.reading = threading.RLock()
        self.is_in_memory = False

    def _connected(self, cache: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            cache, timeout=_SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA cache_size = -8000")  # of 1024 bytes: four times what it is by default
            connection.execute("BEGIN IMMEDIATE")
            self._make_or_check(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_or_check(self, connection: sqlite3.Connection) -> None:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables and not application:
            _make(connection, self._folder)
            return
        if (application, version) != (_APPLICATION, _VERSION):
            raise sqlite3.DatabaseError("file is not a database of this version")
        known = connection.execute("SELECT value FROM meta WHERE name = 'folder'").fetchone()
        if known is None or known[0] != self._folder:
            raise sqlite3.DatabaseError("file is not a database of this folder")
        connection.execute("SELECT count(*) FROM words WHERE words MATCH 'a'").fetchone()

    def _in_memory(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN")
        _make(connection, self._folder)
        connection.execute("COMMIT")
        return connection


def _make(connection: sqlite3.Connection, folder: str) -> None:
    for statement in _SCHEMA.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    values = [("folder", folder), ("identity", secrets.token_hex(6)), ("generation", 0)]
    connection.executemany("INSERT INTO meta VALUES (?, ?)", values)


def _delete(cache: str) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(cache + suffix)


def is_broken(error: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is wrong, so that a new one helps; not if it is busy, full or may not be written."""
    if isinstance(error, (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)):
        text = str(error)
        return "no such" in text or "malformed" in text or "has no column" in text
    return True
