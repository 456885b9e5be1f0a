"""What is written into an index: pages, and that they are gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from msgspec import structs

from mcpd.docs.chunks import chunks_of, indexed
from mcpd.docs.names import folder_of
from mcpd.docs.page import Page
from mcpd.docs.tree import File

CHUNK_BITS = 12
"""The number of a chunk is its file's, then so many bits."""
CODE_BITS = 10
"""The number of a block of code is its chunk's, then so many bits."""

_COLUMNS = "path, size, modified_ns, hash, folder, kind, problem, title, section, description, place"

Known = tuple[int, int, int, bytes | None]
"""What the index knows of a file: its number, its size, when it was modified in ns, and the hash of what it held."""


def known_files(connection: sqlite3.Connection, paths: Iterable[str] | None = None) -> dict[str, Known]:
    """All files of the index, or those of some paths, by path; those without a hash could not be read."""
    sql = "SELECT path, id, size, modified_ns, hash FROM files"
    if paths is None:
        rows = connection.execute(sql).fetchall()
    else:
        rows = [row for path in paths for row in connection.execute(f"{sql} WHERE path = ?", (path,))]
    return {path: (number, size, modified, digest) for path, number, size, modified, digest in rows}


def put_page(connection: sqlite3.Connection, file: File, digest: bytes, page: Page) -> None:
    """Add a page, in place of what was there."""
    number = _put_file(connection, file, digest, page, None)
    chunks: list[tuple[int, str, str, str, str]] = []
    words: list[tuple[int, str, str, str]] = []
    code: list[tuple[int, str, str, str]] = []
    title = indexed(page.title)
    for at, chunk in enumerate(chunks_of(page), number << CHUNK_BITS):
        chunks.append((at, chunk.heading, chunk.anchor, chunk.headings, chunk.text))
        words.append((at, title, indexed(chunk.headings), indexed(chunk.text)))
        for place, block in enumerate(chunk.code[: 1 << CODE_BITS], at << CODE_BITS):
            code.append((place, block.language, block.before, block.text))

    connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", chunks)
    connection.executemany("INSERT INTO words(rowid, title, headings, text) VALUES (?, ?, ?, ?)", words)
    if code:
        connection.executemany("INSERT INTO code VALUES (?, ?, ?, ?)", code)


def put_problem(connection: sqlite3.Connection, file: File, digest: bytes | None, problem: str) -> None:
    """Note that a file cannot be read, so that it is tried again only when it has changed, or may find its library."""
    if "pip install" in problem:
        file, digest = structs.replace(file, size=-1), None
    _put_file(connection, file, digest, None, problem)


def touch(connection: sqlite3.Connection, number: int, file: File) -> None:
    """Note that a file was written, and holds what it held."""
    connection.execute("UPDATE files SET size = ?, modified_ns = ? WHERE id = ?", (file.size, file.modified_ns, number))


def remove(connection: sqlite3.Connection, path: str) -> None:
    """Forget a file, if it is known."""
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
    # No INSERT OR REPLACE: SQLite begins a savepoint for it, at which FTS5 writes out what it has gathered.
    if row is None:
        marks = ", ".join("?" * len(values))
        return connection.execute(f"INSERT INTO files({_COLUMNS}) VALUES ({marks})", values).lastrowid or 0
    _forget(connection, row[0])
    changes = _COLUMNS.replace(",", " = ?,") + " = ?"
    connection.execute(f"UPDATE files SET {changes} WHERE id = ?", (*values, row[0]))
    number: int = row[0]
    return number


def _forget(connection: sqlite3.Connection, number: int) -> None:
    """Delete the chunks of a file. The index of words is told what it was given, as it keeps no copy."""
    first, end = number << CHUNK_BITS, (number + 1) << CHUNK_BITS
    title = connection.execute("SELECT title FROM files WHERE id = ?", (number,)).fetchone()[0]
    rows = connection.execute("SELECT id, headings, text FROM chunks WHERE id >= ? AND id < ?", (first, end)).fetchall()
    connection.executemany(
        "INSERT INTO words(words, rowid, title, headings, text) VALUES ('delete', ?, ?, ?, ?)",
        [(at, indexed(title or ""), indexed(headings), indexed(text)) for at, headings, text in rows],
    )
    connection.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (first, end))
    connection.execute("DELETE FROM code WHERE id >= ? AND id < ?", (first << CODE_BITS, end << CODE_BITS))
