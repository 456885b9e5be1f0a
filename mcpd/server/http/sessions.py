"""The sessions of HTTP clients up to 2025-11-25: limits, expiry, and sessions that began in another process.

Spec: 2025-11-25 basic/transports, session management.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator
from os import urandom
from typing import TYPE_CHECKING

from mcpd.errors import InternalError, InvalidRequest
from mcpd.protocol.budget import address_of
from mcpd.protocol.versions.table import Version
from mcpd.server.backplane.base import EventStore
from .core import Core
from .http_session import HttpSession, Unavailable
from .request import HttpRequest
from .resumable_streams import MemoryEventStore, ResumableStreams

if TYPE_CHECKING:
    from .nodes import Nodes
    from .sealed_sessions import SealedSessions

ENDED = "The session has ended, and this request with it. Send initialize, without a session id, to start a new one"

MANY_SESSIONS = "has reached its limit of sessions (setting max_sessions)"

SPARE_AFTER = 300.0
"""Seconds without a request after which a session is dropped here, if any node can restore it."""

_ID_BYTES = 24


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
        self._make_streams = self._new_streams  # one bound method for all
        self.shared: SealedSessions | None = None
        """The state of the sessions that other processes share."""
        self.nodes: Nodes | None = None
        """The other processes of the service."""
        self._by_uid: dict[str, HttpSession] = {}
        if core.sharing is not None and not core.settings.stateless:
            from .nodes import Nodes
            from .sealed_sessions import SealedSessions

            sharing = core.sharing
            self.shared = sealed = SealedSessions(sharing, self._by_uid.get, self.end)
            self.nodes = Nodes(core, sharing, sealed, self._by_uid)

    def _memory_store(self, session_id: str) -> EventStore:
        return MemoryEventStore(self._settings.max_stored_events, self._settings.max_stored_bytes)

    def _new_streams(self, session_id: str) -> ResumableStreams:
        return ResumableStreams(session_id, self._make_store, self._settings.retry_ms)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._by_id.values()))

    def new(self, request: HttpRequest, session_id: str | None = None, version: Version | None = None) -> HttpSession:
        """Create a session that cannot be found yet: `add` it once its client is initialized, or `drop` it.

        A session that began in another process has its id and version already.
        """
        settings = self._settings
        if session_id is None:
            session_id = urlsafe_b64encode(urandom(_ID_BYTES)).decode()
        session = HttpSession(session_id, self._core.principal(request), self._make_streams)
        if self.nodes is not None:
            self.nodes.join(session)
        opening = self._core.opening(request, version, is_stateless=settings.stateless)
        session.connection = self._core.connect(session, opening)
        session.owner = self._core.owner(request)
        session.user = request.user
        return session

    def make_room(self, request: HttpRequest) -> bool:
        """Return whether this client can have one more session. At the limit another session ends for it.

        It belongs to the client with the most sessions, counting the new one: the session that was idle longest or, if
        all of them have running requests, the one with the oldest request. A client loses only its own idle sessions:
        if all are busy, and no other client has more, the new session is refused.
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
        # Return the address with the most sessions, counting the new one. Tokens can be invented, addresses cannot.
        own = address_of(newcomer)
        return max(self._by_address, key=lambda address: self._by_address[address] + (address == own))

    def add(self, session: HttpSession) -> None:
        """Make a session findable."""
        self.touch(session)
        if self._timer is None and (self._settings.session_idle_timeout > 0 or self.nodes is not None):
            self._schedule()

    def find(self, session_id: str, principal: str) -> HttpSession | None:
        """Return the session with this id and principal; None also for one of another principal."""
        session = self._by_id.get(session_id)
        return session if session is not None and session.principal == principal else None

    def has(self, session: HttpSession) -> bool:
        """Whether a session has not ended."""
        return self._by_id.get(session.id) is session

    async def get(self, session_id: str, request: HttpRequest) -> HttpSession | None:
        """Return the session of a request, also one that began in another process; None for an unknown session.

        Raises Unavailable if that cannot be determined now.
        """
        session = self.find(session_id, self._core.principal(request))
        if self.shared is not None and (session is None or session.is_doubtful):
            session = await self._restore(self.shared, session_id, request)
        if session is not None and session.connection.session.opening.part != request.part:
            return None  # it belongs to another part of the server
        return session

    async def name(self, session: HttpSession) -> None:
        """Give a session that was just initialized its final id. Raises Unavailable."""
        if self.shared is not None:
            await self.shared.name(session)

    async def save(self, session: HttpSession) -> None:
        """Share changed settings of a session with other processes. Raises Unavailable if that fails."""
        if self.shared is not None:
            await self.shared.save(session)

    async def _restore(self, shared: SealedSessions, session_id: str, request: HttpRequest) -> HttpSession | None:
        principal = self._core.principal(request)
        session = self.find(session_id, principal)
        if session is None and session_id in self._by_id:
            return None  # it belongs to another principal
        try:
            record = await shared.load(session_id, principal)
        except Unavailable:
            if session is not None:
                return session  # it may have ended elsewhere, but sessions of this process are served anyway
            raise

        # Meanwhile another request may have restored it, or it may have ended here.
        session = self.find(session_id, principal)
        if session is not None and session.is_doubtful:
            session.is_doubtful = False
            if record is None:
                self.end(session)
                return None
            shared.adopt(session, record)

        if session is not None or record is None or session_id in self._by_id:
            return session

        if not self.make_room(request):
            raise Unavailable(MANY_SESSIONS)
        session = self.new(request, session_id, record.version)
        try:
            record.restore(session.connection.session)
        except InternalError:
            self.drop(session)
            raise Unavailable("has no memory for this session") from None

        shared.adopt(session, record)
        self.add(session)
        return session

    async def delete(self, session: HttpSession) -> None:
        """End a session at the request of its client, in all processes. Raises Unavailable if that fails."""
        if self.shared is not None:
            await self.shared.forget(session)
        self.end(session)

    def touch(self, session: HttpSession) -> None:
        """Mark a session as the one that was used last."""
        session.touched = asyncio.get_running_loop().time()
        if self._by_id.pop(session.id, None) is None:
            self._by_owner[session.owner] += 1
            self._by_address[address_of(session.owner)] += 1
            if session.uid:
                self._by_uid[session.uid] = session
        self._by_id[session.id] = session

    def end(self, session: HttpSession) -> None:
        """End a session: its calls stop, its streams end, and its id is not found any more (S25-041)."""
        if self._by_id.pop(session.id, None) is not None:
            for counter, key in ((self._by_owner, session.owner), (self._by_address, address_of(session.owner))):
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]
            self._by_uid.pop(session.uid, None)
        self.drop(session)

    def drop(self, session: HttpSession) -> None:
        """Close a session that was never added, or was removed."""
        connection = session.connection
        for call in connection.session.in_flight:
            # Each waiting client gets an error: after an empty response its call would wait forever.
            answer = connection.fail(call, InvalidRequest(ENDED))
            if answer is not None:
                session.stopped = {**(session.stopped or {}), call.id: answer}

        connection.closed()
        session.clear_streams()
        for stream in session.listening:
            if stream.response is not None:
                self._core.spawn(stream.response.end())

    def end_all(self) -> None:
        """End all sessions, and stop the timer."""
        for session in self:
            self.end(session)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        delay = min(60.0, (self._settings.session_idle_timeout or SPARE_AFTER) / 4)
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        idle = self._settings.session_idle_timeout
        oldest = now - idle if idle > 0 else 0.0
        # While the backplane is away, only sessions of this process can be served.
        is_away = self.nodes is None or self._core.sharing is None or bool(self._core.sharing.trouble)
        spare = oldest if is_away else max(oldest, now - SPARE_AFTER)
        for session in self:
            if session.touched > spare:
                break
            if session.touched > oldest:
                if session.is_restorable:
                    self.end(session)
            elif not session.busy:
                self.end(session)
            elif self.shared is not None:
                self._core.spawn(self.save(session))

        self._timer = None
        if self._by_id:
            self._schedule()
