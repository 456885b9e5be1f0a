"""Sessions that several processes serve: each saves what the others have to know of its own, in a `SessionStore`.

Requests whose session is known here ask the store nothing; only a change is saved, before its answer is sent. A
session that has ended by its client's wish ends in all processes. One that was idle here ends here alone, and in the
store when nobody has used it for as long anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from msgspec import DecodeError

from ..backplane.base import SessionStore
from ..printable import printable
from ..session import Session
from .session_records import SessionRecord, read_record, record_of

__all__ = ["CannotRestore", "Saved", "SharedSessions"]

log = logging.getLogger("mcpd")

_MOST_BYTES = 64 * 1024
"""A client that says more of itself, or watches more, is served by the process where it began."""


class CannotRestore(Exception):
    """A session cannot be found out about, or not be taken over, now."""


class Saved:
    """What was last saved of a session, and when."""

    __slots__ = ("at", "record")

    def __init__(self, record: bytes, at: float) -> None:
        self.record = record
        self.at = at


class _Connection(Protocol):
    @property
    def session(self) -> Session: ...


class _Kept(Protocol):
    """A session of HTTP, as far as this knows it."""

    id: str
    saved: Saved | None

    @property
    def connection(self) -> _Connection: ...


class _Load:
    """A record that is being asked for."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.was_deleted = False


class SharedSessions:
    """The records of sessions. `ended` is called, in the event loop's thread, with the id of one that ended elsewhere.

    `life` is for how many seconds a session is kept that nobody uses; 0 for ever.
    """

    def __init__(self, store: SessionStore, life: float, ended: Callable[[str], None]) -> None:
        self._store = store
        self._life = life
        self._ended = ended
        self._loads: set[_Load] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unwatch: Callable[[], object] | None = None

    async def name(self, session: _Kept) -> None:
        """A session that was just initialized: its id stays as it is."""
        await self.save(session)

    async def save(self, session: _Kept) -> None:
        """Save what has changed since, or else after half of its life.

        A store that is away is logged: the session goes on here.
        """
        session.saved = await self._save(session.id, session.connection.session, session.saved)

    def adopt(self, session: _Kept, record: SessionRecord) -> None:
        """A session was made from a record, and is all of it."""

    async def _save(self, session_id: str, session: Session, saved: Saved | None) -> Saved | None:
        loop = self._watch()
        record = record_of(session)
        is_young = saved is not None and (not self._life or loop.time() - saved.at < self._life / 2)
        if saved is not None and is_young and saved.record == record:
            return saved

        if len(record) > _MOST_BYTES:
            if saved is None or saved.record != record:
                log.warning("a session of %d bytes is not saved for other processes", len(record))
            return Saved(record, loop.time())

        try:
            await self._store.put(session_id, record, self._life)
        except OSError as error:
            log.warning("a session could not be saved for other processes: %s", printable(error))
            return None
        return Saved(record, loop.time())

    def _watch(self) -> asyncio.AbstractEventLoop:
        """Learn of sessions that end elsewhere, also after `close`; returns the running loop, in which they end."""
        if self._unwatch is None:
            self._unwatch = self._store.watch(self._deleted)
        self._loop = asyncio.get_running_loop()
        return self._loop

    async def load(self, session_id: str, principal: str) -> SessionRecord | None:
        """What is known of a session; None for one that has ended, or never was. Raises CannotRestore."""
        self._watch()
        load = _Load(session_id)
        self._loads.add(load)
        try:
            data = await self._store.get(session_id)
            return None if data is None or load.was_deleted else read_record(data)
        except OSError as error:
            log.warning("the sessions of other processes cannot be asked for: %s", printable(error))
            raise CannotRestore("cannot tell now whether this session exists") from None
        except DecodeError:
            return None  # of another version of this program
        finally:
            self._loads.discard(load)

    async def forget(self, session: _Kept) -> None:
        """The session has ended, in all processes."""
        try:
            await self._store.delete(session.id)
        except OSError as error:
            log.warning("a session's end could not be told to other processes: %s", printable(error))

    def close(self) -> None:
        """Hear of no more ends."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _deleted(self, session_id: str) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._end, session_id)
            except RuntimeError:
                pass  # it is closed, and all sessions here with it

    def _end(self, session_id: str) -> None:
        for load in self._loads:
            load.was_deleted |= load.session_id == session_id
        self._ended(session_id)
