"""Sessions of HTTP clients up to 2025-11-25: their ids, their ends, and which stream each message takes.

A session is one channel: what belongs to a request goes to that request's reply, everything else to the newest
GET stream, and to one stream only (S25-037). Spec: 2025-11-25 basic/transports, session management.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Iterator
from os import urandom

from ...jsonrpc import Id
from .core import Answering, Core
from .event_store import EventStore, Track
from .reply import Reply
from .stream import EventStream

__all__ = ["HttpSession", "Sessions"]

_ID_BYTES = 24
_MOST_HELD = 64
_MOST_LISTENING = 16


class HttpSession:
    """One session, as a channel. `connection` is set right after it was made."""

    is_shared = False
    connection: Answering

    __slots__ = ("_held", "_latest", "_next_track", "busy", "connection", "id", "listening", "principal", "replies",
                 "store", "touched")  # fmt: skip

    def __init__(self, principal: str, store: EventStore) -> None:
        self.id = urlsafe_b64encode(urandom(_ID_BYTES)).decode()
        self.principal = principal
        self.store = store
        self.replies: dict[Id, Reply] = {}
        """The replies of the requests that are worked on."""
        self.listening: list[Track] = []
        """The GET streams that are connected, the newest last."""
        self.busy = 0
        """How many HTTP requests of this session are open: with any, it is not idle."""
        self.touched = 0.0
        self._latest: Reply | EventStream | None = None
        self._held: deque[bytes] | None = None
        self._next_track = 0

    # -- as a channel ------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """Whether the stream that was last written to is behind. Streams do not wait for each other."""
        return self._latest is not None and self._latest.is_congested

    def send(self, frame: bytes, about: Id | None = None) -> None:
        """Say something on the stream of the request it belongs to, else on the newest GET stream, or hold it."""
        reply = None if about is None else self.replies.get(about)
        if reply is not None:
            self._latest = reply
            reply.send(frame)
            return
        for track in reversed(self.listening):
            if track.sink is not None and track.sink.is_open:
                self._latest = track.sink
                track.push(frame)
                return
        self._hold(frame)

    def _hold(self, frame: bytes) -> None:
        if self._held is None:
            self._held = deque(maxlen=_MOST_HELD)
        if frame not in self._held:  # that a list changed is news once
            self._held.append(frame)

    async def drain(self) -> None:
        """Wait until the stream that was last written to is not far behind."""
        if self._latest is not None:
            await self._latest.drain()

    async def aclose(self, reason: str = "") -> None:
        """End all its GET streams."""
        for track in list(self.listening):
            if track.sink is not None:
                await track.sink.end()

    # -- streams -----------------------------------------------------------------------------

    def new_track(self, *, is_listening: bool = False) -> Track:
        """A new event stream of this session."""
        self._next_track += 1
        version = self.connection.session.version
        primes = version is not None and version.has_polling
        return Track(self._next_track, self.store, primes=primes, is_listening=is_listening)

    def listen(self, track: Track) -> bool:
        """Make a connected GET stream the one for what belongs to no request; False if there are too many."""
        if len(self.listening) >= _MOST_LISTENING:
            return False
        self.listening.append(track)
        held, self._held = self._held, None
        for frame in held or ():
            track.push(frame)
        return True

    def leave(self, track: Track) -> None:
        """A GET stream is not connected any more."""
        if track in self.listening:
            self.listening.remove(track)
        self.forget_latest()

    def forget_latest(self) -> None:
        """Something that was written to has ended; what holds on to it holds all that it was made of."""
        self._latest = None


class Sessions:
    """All sessions of one endpoint, those that were idle longest first."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._settings = core.settings
        self._by_id: dict[str, HttpSession] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._by_id.values()))

    def new(self, principal: str) -> HttpSession:
        """A session that nobody can find yet: `add` it once its client is initialized, or `drop` it."""
        settings = self._settings
        session = HttpSession(
            principal, EventStore(settings.max_stored_events, settings.max_stored_bytes, settings.retry_ms)
        )
        session.connection = self._core.connect(session, hears_changes=True)
        session.connection.session.principal = principal
        return session

    def make_room(self) -> bool:
        """Whether one more session can be; at the limit the one that was idle longest ends for it."""
        if len(self._by_id) < self._settings.max_sessions:
            return True
        idle = next((session for session in self._by_id.values() if not session.busy), None)
        if idle is None:
            return False
        self.end(idle)
        return True

    def add(self, session: HttpSession) -> None:
        """From now on the session can be found."""
        self.touch(session)
        if self._timer is None and self._settings.session_idle_timeout > 0:
            self._schedule()

    def find(self, session_id: str, principal: str) -> HttpSession | None:
        """The session of that id, None if there is none, or if it is somebody else's: to a stranger the same."""
        session = self._by_id.get(session_id)
        return session if session is not None and session.principal == principal else None

    def touch(self, session: HttpSession) -> None:
        """Something came for the session, or was done for it: it is the last now to end for being idle."""
        session.touched = asyncio.get_running_loop().time()
        self._by_id.pop(session.id, None)
        self._by_id[session.id] = session

    def end(self, session: HttpSession) -> None:
        """End a session: its calls stop, its streams end, its id is nobody's (S25-041)."""
        self._by_id.pop(session.id, None)
        self.drop(session)

    def drop(self, session: HttpSession) -> None:
        """Let a session go that was never added, or not any more."""
        connection = session.connection
        for call in list(connection.session.in_flight.values()):
            connection.cancel(call)
        connection.closed()
        for track in session.listening:
            if track.sink is not None:
                self._core.spawn(track.sink.end())

    def end_all(self) -> None:
        """End all sessions, and expire no more."""
        for session in self:
            self.end(session)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        delay = min(60.0, self._settings.session_idle_timeout / 4)
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        oldest = asyncio.get_running_loop().time() - self._settings.session_idle_timeout
        for session in self:
            if session.touched > oldest:
                break
            if not session.busy:
                self.end(session)
        self._timer = None
        if self._by_id:
            self._schedule()
