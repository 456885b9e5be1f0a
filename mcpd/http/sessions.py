"""Sessions of HTTP clients up to 2025-11-25: their ids, their ends, and which stream each message takes.

A session is one channel: what belongs to a request goes to that request's reply, everything else to the newest
GET stream, and to one stream only (S25-037). Spec: 2025-11-25 basic/transports, session management.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections import Counter, deque
from collections.abc import Iterator
from os import urandom

from ..backplane.base import EventStore
from ..backplane.memory import MemoryEventStore
from ..budget import address_of
from ..errors import InternalError, InvalidRequest
from ..jsonrpc import Id
from ..principal import ANONYMOUS, Origin, Principal
from ..versions.table import Version
from .core import Answering, Core
from .event_stream import EventStreamResponse
from .reply import Reply
from .request import HttpRequest
from .resumable_streams import ResumableStream, ResumableStreams
from .shared_sessions import CannotRestore, Saved, SharedSessions

__all__ = ["HttpSession", "Sessions"]

ENDED = "The session has ended, and this request with it. Send initialize, without a session id, to begin a new one"

_ID_BYTES = 24
_MOST_HELD = 64
_MOST_LISTENING = 16


class HttpSession:
    """One session, as a channel. `connection` is set right after it was made."""

    is_multiplexed = False
    connection: Answering

    __slots__ = ("_held", "_latest", "_next_stream", "busy", "connection", "id", "listening", "owner", "principal",
                 "replies", "saved", "stopped", "streams", "touched", "user")  # fmt: skip

    def __init__(self, id: str, principal: str, streams: ResumableStreams) -> None:
        self.id = id
        self.principal = principal
        self.streams = streams
        self.replies: dict[Id, Reply] = {}
        """The replies of the requests that are worked on."""
        self.listening: list[ResumableStream] = []
        """The GET streams that are connected, the newest last."""
        self.stopped: dict[Id, bytes] = {}
        """The answers to requests that were worked on when the session ended: errors."""
        self.owner = ""
        """The client behind it, as far as that is known: who it is and from where."""
        self.user: Principal = ANONYMOUS
        """The principal that initialized it. Its later requests come from the same one, maybe with other scopes."""
        self.busy = 0
        """How many HTTP requests of this session have a client that waits: with any, it is not idle."""
        self.touched = 0.0
        self.saved: Saved | None = None
        """What other processes know of it, if they share sessions."""
        self._latest: Reply | EventStreamResponse | None = None
        self._held: deque[bytes] | None = None
        self._next_stream = 0

    # -- as a channel ------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """Whether the stream that was last written to is behind. Streams do not wait for each other."""
        return self._latest is not None and self._latest.is_congested

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Say something on the stream of the request it belongs to, else on the newest GET stream, or hold it."""
        reply = None if related_request_id is None else self.replies.get(related_request_id)
        if reply is not None:
            self._latest = reply
            reply.send(frame)
            return

        for stream in reversed(self.listening):
            if stream.response is not None and stream.response.is_open:
                self._latest = stream.response
                stream.push(frame)
                return
        self._hold(frame)

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """The same: on an event stream each message is an event of its own."""
        self.send(frame, related_request_id)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The HTTP request that carries a request which is worked on; without that, what is known of the session."""
        reply = None if related_request_id is None else self.replies.get(related_request_id)
        return Origin("http", self.user) if reply is None else reply.request.origin()

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
        for stream in list(self.listening):
            if stream.response is not None:
                await stream.response.end()

    # -- streams -----------------------------------------------------------------------------

    def new_stream(self, *, is_listening: bool = False) -> ResumableStream:
        """A new event stream of this session."""
        self._next_stream += 1
        return ResumableStream(self._next_stream, self.streams, primes=self._has_polling, is_listening=is_listening)

    @property
    def _has_polling(self) -> bool:
        """Whether its version lets a client come back for the rest of a stream that we close (2025-11-25)."""
        version = self.connection.session.version
        return version is not None and version.has_polling

    def close_stream(self, related_request_id: Id) -> None:
        """Let go of the connection on which the client waits for the answer to that request; the work goes on."""
        reply = self.replies.get(related_request_id)
        if reply is not None and self._has_polling:
            reply.release_connection()

    def listen(self, stream: ResumableStream) -> bool:
        """Make a connected GET stream the one for what belongs to no request; False if there are too many."""
        if len(self.listening) >= _MOST_LISTENING:
            return False
        self.listening.append(stream)
        held, self._held = self._held, None
        for frame in held or ():
            stream.push(frame)
        return True

    def leave(self, stream: ResumableStream) -> None:
        """A GET stream is not connected any more."""
        if stream in self.listening:
            self.listening.remove(stream)
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
        self._by_owner: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._make_store = core.settings.event_store or self._memory_store
        self.shared: SharedSessions | None = None
        """What other processes know of these sessions, and these of theirs."""
        store = core.settings.session_store
        if store is not None and not core.settings.stateless:
            self.shared = SharedSessions(store, core.settings.session_idle_timeout, self._ended_elsewhere)

    def _memory_store(self, session_id: str) -> EventStore:
        return MemoryEventStore(self._settings.max_stored_events, self._settings.max_stored_bytes)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._by_id.values()))

    def new(self, request: HttpRequest, session_id: str | None = None, version: Version | None = None) -> HttpSession:
        """A session that nobody can find yet: `add` it once its client is initialized, or `drop` it.

        One that began elsewhere has its id and its version already.
        """
        settings = self._settings
        if session_id is None:
            session_id = urlsafe_b64encode(urandom(_ID_BYTES)).decode()
        streams = ResumableStreams(session_id, self._make_store, settings.retry_ms)
        session = HttpSession(session_id, self._core.principal(request), streams)
        opening = self._core.opening(request, version, is_stateless=settings.stateless)
        session.connection = self._core.connect(session, opening)
        session.owner = self._core.owner(request)
        session.user = request.user
        return session

    def make_room(self, request: HttpRequest) -> bool:
        """Whether this client can have one more session; at the limit another one may end for it.

        That is one of the client with most sessions, counting the new one: the one that was idle longest, or if its
        clients all wait for something, the one that was heard of longest ago. Of its own a client loses idle ones
        only: if it waits on all of them, and nobody has more, there is no room for it.
        """
        if len(self._by_id) < self._settings.max_sessions:
            return True

        newcomer = self._core.owner(request)
        own = self._by_owner[newcomer]
        crowded = self._most_crowded(newcomer)
        most = max(
            count + (owner == newcomer) for owner, count in self._by_owner.items() if address_of(owner) == crowded
        )

        busiest: HttpSession | None = None
        for session in self._by_id.values():
            count = self._by_owner[session.owner] + (session.owner == newcomer)
            if count < most or address_of(session.owner) != crowded:
                continue
            if not session.busy:
                self.end(session)
                return True
            if busiest is None and session.owner != newcomer and count > own + 1:
                busiest = session

        if busiest is None:
            return False
        self.end(busiest)
        return True

    def _most_crowded(self, newcomer: str) -> str:
        """The address with most sessions, counting the new one: tokens may be made up, as many as sessions."""
        own = address_of(newcomer)
        return max(self._by_address, key=lambda address: self._by_address[address] + (address == own))

    def add(self, session: HttpSession) -> None:
        """From now on the session can be found."""
        self.touch(session)
        if self._timer is None and self._settings.session_idle_timeout > 0:
            self._schedule()

    def find(self, session_id: str, principal: str) -> HttpSession | None:
        """The session of that id, None if there is none or it is another principal's: a stranger sees no difference."""
        session = self._by_id.get(session_id)
        return session if session is not None and session.principal == principal else None

    async def save(self, session: HttpSession) -> None:
        """Tell other processes of a session, as far as they do not know."""
        if self.shared is not None:
            session.saved = await self.shared.save(session.id, session.connection.session, session.saved)

    async def restore(self, session_id: str, request: HttpRequest) -> HttpSession | None:
        """The session of that id, if it began in another process and is its client's; None if there is none.

        Raises CannotRestore if that cannot be told now, or there is no room for it.
        """
        record = None if self.shared is None else await self.shared.load(session_id)
        principal = self._core.principal(request)
        found = self.find(session_id, principal)
        if found is not None or session_id in self._by_id:
            return found  # another request was faster

        version = None if record is None else record.open_version()
        if record is None or version is None or record.principal != principal:
            return None
        if not self.make_room(request):
            raise CannotRestore("has as many sessions as it takes (setting max_sessions)")

        session = self.new(request, session_id, version)
        try:
            record.restore(session.connection.session)
        except InternalError:
            self.drop(session)
            raise CannotRestore("has no memory for this session") from None
        self.add(session)
        return session

    async def delete(self, session: HttpSession) -> None:
        """End a session at its client's wish, in all processes."""
        self.end(session)
        if self.shared is not None:
            await self.shared.delete(session.id)

    def _ended_elsewhere(self, session_id: str) -> None:
        session = self._by_id.get(session_id)
        if session is not None:
            self.end(session)

    def touch(self, session: HttpSession) -> None:
        """Something came for the session, or was done for it: it is the last now to end for being idle."""
        session.touched = asyncio.get_running_loop().time()
        if self._by_id.pop(session.id, None) is None:
            self._by_owner[session.owner] += 1
            self._by_address[address_of(session.owner)] += 1
        self._by_id[session.id] = session

    def end(self, session: HttpSession) -> None:
        """End a session: its calls stop, its streams end, its id is not found any more (S25-041)."""
        if self._by_id.pop(session.id, None) is not None:
            for counter, key in ((self._by_owner, session.owner), (self._by_address, address_of(session.owner))):
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]
        self.drop(session)

    def drop(self, session: HttpSession) -> None:
        """Let a session go that was never added, or not any more."""
        connection = session.connection
        for call in connection.session.in_flight:
            # Each waiting client gets an error: after an empty answer its call would wait for ever.
            answer = connection.stop(call, InvalidRequest(ENDED))
            if answer is not None:
                session.stopped[call.id] = answer

        connection.closed()
        session.streams.clear()
        for stream in session.listening:
            if stream.response is not None:
                self._core.spawn(stream.response.end())

    def end_all(self) -> None:
        """End all sessions, and expire no more."""
        for session in self:
            self.end(session)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.shared is not None:
            self.shared.close()

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
            elif self.shared is not None:
                self._core.spawn(self.save(session))

        self._timer = None
        if self._by_id:
            self._schedule()
