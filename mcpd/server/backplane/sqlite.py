"""The backplane of one machine that survives restarts, `sqlite:///path`: values and logs in a file.

Processes may share the file, but messages of its bus stay inside a process: `was_changed` says when to look.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import time
from typing import TypeVar

from mcpd.errors import ConfigurationError
from .base import BackplaneAway
from .memory import OwnBus

_T = TypeVar("_T")
_WAIT = 2.0
# Number of writes after which expired data is deleted from the file.
_SWEEP_EVERY = 256

_TABLES = """
CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value BLOB NOT NULL, ends REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS kv_ends ON kv (ends);
CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, entry BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS log_name ON log (name, id);
CREATE TABLE IF NOT EXISTS life (name TEXT PRIMARY KEY, ends REAL NOT NULL) WITHOUT ROWID;
"""


class SqliteBackplane(OwnBus):
    """See `Backplane`. Raises ConfigurationError if the file cannot be opened or is not a database.

    Times in the file are from the machine's clock.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__()
        self.away_since: float | None = None
        self._writes = 0
        self._open()

    def _open(self) -> None:
        self._is_closed = False
        self._version = 0
        try:
            self._db = _opened(self.path)
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(f"backplane sqlite://{self.path}: {why}; choose a writable file") from None
        # One thread: SQLite has one writer at a time, and a statement is faster than a change of threads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mcpd-sqlite")

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._db.close)
            self._thread.shutdown(wait=False)

    async def was_changed(self) -> bool:
        """Return whether another process may have written to the file since the last call. This reads no data."""
        before = self._version
        self._version = await self._run(lambda: self._db.execute("PRAGMA data_version").fetchone()[0])
        return self._version != before

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._is_closed:
            try:
                self._open()
            except ConfigurationError as error:
                raise BackplaneAway(str(error)) from None

        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            self.away_since = self.away_since or loop.time()
            raise BackplaneAway(f"the backplane's file cannot be used: {error}") from None

        self.away_since = None
        return result

    async def _write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        # Run `work` in a transaction. Now and then expired data is deleted first.
        return await self._run(lambda: self._in_transaction(work))

    def _in_transaction(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if self._writes % _SWEEP_EVERY == 0:
                self._sweep()
            self._writes += 1
            result = work(self._db)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

        self._db.execute("COMMIT")
        return result

    def _sweep(self) -> None:
        now = time()
        self._db.execute("DELETE FROM kv WHERE ends <= ?", (now,))
        for (name,) in self._db.execute("SELECT name FROM life WHERE ends <= ?", (now,)).fetchall():
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._db.execute("DELETE FROM log WHERE name = ?", (name,))
        self._db.execute("DELETE FROM life WHERE name = ?", (name,))

    def _is_over(self, name: str) -> bool:
        row = self._db.execute("SELECT ends FROM life WHERE name = ?", (name,)).fetchone()
        return row is None or row[0] <= time()

    def _live(self, name: str, ttl: float) -> None:
        # Set the lifetime of a log, and delete the rest of an expired one of that name.
        if self._is_over(name):
            self._drop(name)
        self._db.execute("INSERT OR REPLACE INTO life VALUES (?, ?)", (name, time() + ttl))

    # -- values ------------------------------------------------------------------------------

    def _get(self, key: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM kv WHERE key = ? AND ends > ?", (key, time())).fetchone()
        return None if row is None else row[0]

    async def get(self, key: str) -> bytes | None:
        return await self._run(lambda: self._get(key))

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if only_new and self._get(key) is not None:
                return False
            db.execute("INSERT OR REPLACE INTO kv VALUES (?, ?, ?)", (key, value, time() + ttl))
            return True

        return await self._write(work)

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if self._get(key) != old:
                return False
            db.execute("INSERT OR REPLACE INTO kv VALUES (?, ?, ?)", (key, new, time() + ttl))
            return True

        return await self._write(work)

    async def delete(self, key: str) -> None:
        await self._write(lambda db: db.execute("DELETE FROM kv WHERE key = ?", (key,)))

    # -- logs --------------------------------------------------------------------------------

    async def append(self, name: str, entries: Sequence[bytes], most: int, ttl: float) -> None:
        name = "l" + name

        def work(db: sqlite3.Connection) -> None:
            self._live(name, ttl)
            db.executemany("INSERT INTO log (name, entry) VALUES (?, ?)", [(name, entry) for entry in entries])
            db.execute(
                "DELETE FROM log WHERE name = ? AND id <= "
                "(SELECT id FROM log WHERE name = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (name, name, most),
            )

        await self._write(work)

    async def read(self, name: str, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        name = "l" + name

        def work() -> list[tuple[str, bytes]]:
            if self._is_over(name):
                return []
            rows = self._db.execute(
                "SELECT id, entry FROM log WHERE name = ? AND id > ? ORDER BY id LIMIT ?",
                (name, int(after) if after else 0, limit),
            )
            return [(str(number), entry) for number, entry in rows]

        return await self._run(work)


def _opened(path: str) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # readable by this user only
    db = sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_TABLES)
    except sqlite3.Error:
        db.close()
        raise

    return db
