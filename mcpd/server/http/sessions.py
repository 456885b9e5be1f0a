"""Sessions of HTTP clients up to 2025-11-25: their ids, their ends, and how one that began elsewhere is found.

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
from mcpd.server.http.core import Core
from mcpd.server.http.http_session import CannotRestore, HttpSession
from mcpd.server.http.request import HttpRequest
from mcpd.server.http.resumable_streams import MemoryEventStore, ResumableStreams

if TYPE_CHECKING:
    from mcpd.server.http.nodes import Nodes
    from mcpd.server.http.sealed_sessions import SealedSessions

ENDED = "The session has ended, and this request with it. Send initialize, without a session id, to begin a new one"

SPARE_AFTER = 300.0
"""After so many seconds without a request a session that any node can make anew is forgotten here: it costs nothing."""

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
        self._make_streams = self._new_streams  # one for all
        self.shared: SealedSessions | None = None
        """What other processes know of these sessions, and these of theirs."""
        self.nodes: Nodes | None = None
        """What is said between the nodes of a service about its sessions."""
        self._by_uid: dict[str, HttpSession] = {}
        if core.sharing is not None and not core.settings.stateless:
            from mcpd.server.http.nodes import Nodes
            from mcpd.server.http.sealed_sessions import SealedSessions

            sharing = core.sharing
            self.shared = sealed = SealedSessions(sharing.sealer, sharing.node, self._by_uid.get, self.end)
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
        """A session that nobody can find yet: `add` it once its client is initialized, or `drop` it.

        One that began elsewhere has its id and its version already.
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
        if self._timer is None and (self._settings.session_idle_timeout > 0 or self.nodes is not None):
            self._schedule()

    def find(self, session_id: str, principal: str) -> HttpSession | None:
        """The session of that id, None if there is none or it is another principal's: a stranger sees no difference."""
        session = self._by_id.get(session_id)
        return session if session is not None and session.principal == principal else None

    async def name(self, session: HttpSession) -> None:
        """Give a session that was just initialized its last id, and tell other processes. Raises CannotRestore."""
        if self.shared is not None:
            await self.shared.name(session)

    async def save(self, session: HttpSession) -> None:
        """Tell other processes of a session, as far as they do not know. Raises CannotRestore if they have to know."""
        if self.shared is not None:
            await self.shared.save(session)

    async def restore(self, session_id: str, request: HttpRequest) -> HttpSession | None:
        """The session of that id, if it began in another process and is its client's; None if there is none.

        Also for one that is known here, but doubted. Raises CannotRestore if that cannot be told now, or there is no
        room for it.
        """
        principal = self._core.principal(request)
        found = self.find(session_id, principal)
        if found is None and session_id in self._by_id:
            return None
        shared = self.shared
        try:
            record = None if shared is None else await shared.load(session_id, principal)
        except CannotRestore:
            if found is not None:
                return found  # it may have ended elsewhere; but those that are known here are served
            raise

        found = self.find(session_id, principal)
        if found is not None and found.is_doubted and shared is not None:
            found.is_doubted = False
            if record is None:
                self.end(found)
                return None
            shared.adopt(found, record)
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
        if shared is not None:
            shared.adopt(session, record)
        self.add(session)
        return session

    async def delete(self, session: HttpSession) -> None:
        """End a session at its client's wish, in all processes. Raises CannotRestore if they cannot be told."""
        if self.shared is not None:
            await self.shared.forget(session)
        self.end(session)

    def touch(self, session: HttpSession) -> None:
        """Something came for the session, or was done for it: it is the last now to end for being idle."""
        session.touched = asyncio.get_running_loop().time()
        if self._by_id.pop(session.id, None) is None:
            self._by_owner[session.owner] += 1
            self._by_address[address_of(session.owner)] += 1
            if session.sealed is not None:
                self._by_uid[session.sealed.uid] = session
        self._by_id[session.id] = session

    def end(self, session: HttpSession) -> None:
        """End a session: its calls stop, its streams end, its id is not found any more (S25-041)."""
        if self._by_id.pop(session.id, None) is not None:
            for counter, key in ((self._by_owner, session.owner), (self._by_address, address_of(session.owner))):
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]
            if session.sealed is not None:
                self._by_uid.pop(session.sealed.uid, None)
        self.drop(session)

    def drop(self, session: HttpSession) -> None:
        """Let a session go that was never added, or not any more."""
        connection = session.connection
        for call in connection.session.in_flight:
            # Each waiting client gets an error: after an empty answer its call would wait for ever.
            answer = connection.stop(call, InvalidRequest(ENDED))
            if answer is not None:
                session.stopped = {**(session.stopped or {}), call.id: answer}

        connection.closed()
        session.clear_streams()
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

    def _schedule(self) -> None:
        delay = min(60.0, (self._settings.session_idle_timeout or SPARE_AFTER) / 4)
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        idle = self._settings.session_idle_timeout
        oldest = now - idle if idle > 0 else 0.0
        # While the backplane is away, only what is known here can be served.
        is_away = self.nodes is None or self._core.sharing is None or bool(self._core.sharing.trouble)
        spare = oldest if is_away else max(oldest, now - SPARE_AFTER)
        for session in self:
            if session.touched > spare:
                break
            if session.touched > oldest:
                if session.is_only_known:
                    self.end(session)
            elif not session.busy:
                self.end(session)
            elif self.shared is not None:
                self._core.spawn(self.save(session))

        self._timer = None
        if self._by_id:
            self._schedule()
