"""The index: a SQLite database in a file or in memory, and the code that writes pages into it.

A file that is damaged or that belongs to another program or version is deleted and created again. If no file can be
written, the index is kept in memory. Several processes may share a file; one writes at a time.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from .files import File
from .page import CodeBlock, Page, folder_of

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
    """An open index: `cache` is its file, or None for memory. `problem` says why a file could not be used."""

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
                self.problem = f"the index cannot be written to {cache} ({error}); it is kept in memory"
        self.writer = self.reader = self._in_memory()

    @contextlib.contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        # A change of the generation ends the validity of cursors.
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
        # All statements of the block see one state of the index.
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
        # Each new index has another identity, so that a cursor of an old one is not taken for its own.
        rows = dict(connection.execute("SELECT name, value FROM meta WHERE name IN ('identity', 'generation')"))
        return f"{rows['identity']}.{rows['generation']}"

    def close(self) -> None:
        with self.writing, self.reading:
            for connection in {self.writer, self.reader}:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def delete(self) -> None:
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
            connection.execute("PRAGMA cache_size = -8000")  # in KiB, four times the default
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
    # Only a damaged file is deleted: a new one does not help if it is busy, full or read-only.
    if isinstance(error, (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)):
        text = str(error)
        return "no such" in text or "malformed" in text or "has no column" in text
    return True


# The last chunk of a page contains the rest.
MAX_CHUNKS = 4096

_MAX_CHARACTERS = 12_000
_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


class Chunk(Struct):
    """A part of a page that is indexed separately: the text below one heading, or a part of it."""

    heading: str
    """The heading above the text, or ""."""
    anchor: str
    headings: str
    """The searchable headings: this one and those above it; in the first chunk, the description."""
    start: int
    text: str
    code: list[CodeBlock]


def chunks_of(page: Page) -> list[Chunk]:
    """Return the chunks of a page in order; there is at least one."""
    headings = page.headings
    found: list[Chunk] = []
    if not headings or page.text[: headings[0].start].strip() or page.description:
        end = headings[0].start if headings else len(page.text)
        _add(found, Chunk("", "", page.description, 0, page.text[:end], []))

    above: list[tuple[int, str]] = []
    last = len(headings) - 1
    for at, heading in enumerate(headings):
        while above and above[-1][0] >= heading.level:
            above.pop()
        above.append((heading.level, heading.title))
        end = headings[at + 1].start if at < last else len(page.text)
        names = " / ".join(title for _, title in above[-3:])
        _add(found, Chunk(heading.title, heading.anchor, names, heading.start, page.text[heading.start : end], []))

    if len(found) > MAX_CHUNKS:
        found[MAX_CHUNKS - 1].text = page.text[found[MAX_CHUNKS - 1].start :]
        del found[MAX_CHUNKS:]
    at = 0
    for block in page.code:
        while at + 1 < len(found) and found[at + 1].start <= block.start:
            at += 1
        found[at].code.append(block)

    return found


def _add(found: list[Chunk], chunk: Chunk) -> None:
    # Append a chunk. Long text is split at an empty line, otherwise at a line or a space.
    while len(chunk.text) > _MAX_CHARACTERS:
        places = (chunk.text.rfind(gap, _MAX_CHARACTERS // 2, _MAX_CHARACTERS) for gap in ("\n\n", "\n", " "))
        cut = next((place for place in places if place >= 0), _MAX_CHARACTERS)
        remaining = structs.replace(chunk, start=chunk.start + cut, text=chunk.text[cut:], code=[])
        chunk.text = chunk.text[:cut]
        found.append(chunk)
        chunk = remaining
    found.append(chunk)


def indexed(text: str) -> str:
    # Some scripts have no spaces between words, so that each of their characters counts as a word.
    return text if text.isascii() else _CJK.sub(r" \1 ", text)


# The rowid of a chunk is the file's id shifted by this many bits, plus its position.
CHUNK_BITS = 12
# The id of a code block is the chunk's id shifted by this many bits, plus its position.
CODE_BITS = 10

_COLUMNS = "path, size, modified_ns, hash, folder, kind, problem, title, section, description, place"

IndexedFile = tuple[int, int, int, bytes | None]
"""The id, size, modification time (ns) and hash of an indexed file."""


def known_files(connection: sqlite3.Connection, paths: Iterable[str] | None = None) -> dict[str, IndexedFile]:
    # Files without a hash could not be read.
    sql = "SELECT path, id, size, modified_ns, hash FROM files"
    if paths is None:
        rows = connection.execute(sql).fetchall()
    else:
        rows = [row for path in paths for row in connection.execute(f"{sql} WHERE path = ?", (path,))]
    return {path: (number, size, modified, digest) for path, number, size, modified, digest in rows}


def put_page(connection: sqlite3.Connection, file: File, digest: bytes | None, page: Page) -> None:
    number = _put_file(connection, file, digest, page, None)
    chunks, words, code = [], [], []
    title = indexed(page.title)
    for at, chunk in enumerate(chunks_of(page), number << CHUNK_BITS):
        chunks.append((at, chunk.heading, chunk.anchor, chunk.headings, chunk.text))
        words.append((at, title, indexed(chunk.headings), indexed(chunk.text)))
        for place, block in enumerate(chunk.code[: 1 << CODE_BITS], at << CODE_BITS):
            code.append((place, block.language, block.before, block.text))

    connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", chunks)
    connection.executemany("INSERT INTO words(rowid, title, headings, text) VALUES (?, ?, ?, ?)", words)
    connection.executemany("INSERT INTO code VALUES (?, ?, ?, ?)", code)


def put_problem(connection: sqlite3.Connection, file: File, digest: bytes | None, problem: str) -> None:
    # The file is read again when it changes, or after a missing library may have been installed.
    if "pip install" in problem:
        file, digest = structs.replace(file, size=-1), None
    _put_file(connection, file, digest, None, problem)


def touch(connection: sqlite3.Connection, number: int, file: File) -> None:
    connection.execute("UPDATE files SET size = ?, modified_ns = ? WHERE id = ?", (file.size, file.modified_ns, number))


def remove(connection: sqlite3.Connection, path: str) -> None:
    row = connection.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
    if row is not None:
        _forget(connection, row[0])
        connection.execute("DELETE FROM files WHERE id = ?", row)


def _put_file(
    connection: sqlite3.Connection, file: File, digest: bytes | None, page: Page | None, problem: str | None
) -> int:
    row = connection.execute("SELECT id FROM files WHERE path = ?", (file.path,)).fetchone()
    values = (
        file.path, file.size, file.modified_ns, digest, folder_of(file.path), file.kind, problem,
        *((page.title, page.section, page.description, page.order) if page else (None,) * 4),
    )  # fmt: skip
    # INSERT OR REPLACE would begin a savepoint, at which FTS5 writes out its pending data.
    if row is None:
        marks = ", ".join("?" * len(values))
        return connection.execute(f"INSERT INTO files({_COLUMNS}) VALUES ({marks})", values).lastrowid or 0
    _forget(connection, row[0])
    changes = _COLUMNS.replace(",", " = ?,") + " = ?"
    connection.execute(f"UPDATE files SET {changes} WHERE id = ?", (*values, row[0]))
    number: int = row[0]
    return number


def _forget(connection: sqlite3.Connection, number: int) -> None:
    # Delete the chunks of a file. FTS5 keeps no copy of the text, so it needs the old values for this.
    first, end = number << CHUNK_BITS, (number + 1) << CHUNK_BITS
    title = connection.execute("SELECT title FROM files WHERE id = ?", (number,)).fetchone()[0]
    rows = connection.execute("SELECT id, headings, text FROM chunks WHERE id >= ? AND id < ?", (first, end)).fetchall()
    connection.executemany(
        "INSERT INTO words(words, rowid, title, headings, text) VALUES ('delete', ?, ?, ?, ?)",
        [(at, indexed(title or ""), indexed(headings), indexed(text)) for at, headings, text in rows],
    )
    connection.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (first, end))
    connection.execute("DELETE FROM code WHERE id >= ? AND id < ?", (first << CODE_BITS, end << CODE_BITS))
