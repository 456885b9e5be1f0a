"""Sessions that any node can serve: what the client said of itself is in the id, the rest on the backplane.

The rest is little: that the session has ended (a tombstone), and what it set (level, watched resources, where it
listens). A node looks for both when it meets a session first, and is told of changes; requests of a session that it
knows ask for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from msgspec import DecodeError, Struct
from msgspec.msgpack import Decoder, Encoder

from mcpd.errors import InternalError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.printable import printable
from mcpd.protocol.session import Session
from mcpd.protocol.types.base import ClientCapabilities, Implementation
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.backplane.node import Node
from mcpd.server.http.http_session import CannotRestore, HttpSession, Sealed
from mcpd.server.http.sharing import IdSealer, SealedId

log = logging.getLogger("mcpd")

_Set: TypeAlias = tuple[str | None, frozenset[str]]
"""A level, and watched resources."""

_TRIES = 8
_MOST_BYTES = 64 * 1024


class _Facts(Struct, array_like=True):
    """What a client said of itself."""

    capabilities: ClientCapabilities
    info: Implementation | None = None


class _Memory(Struct, array_like=True):
    """What was set in a session. `number` grows with each change: what is older is not taken."""

    number: int = 0
    level: str | None = "info"
    watched: list[str] = []
    listener: str = ""
    """The node of its newest GET stream."""


class SessionRecord(Struct, frozen=True):
    """What an id and the backplane say of a session: all that is needed to make it anew here.

    Streams and questions that are open stay where they are, and no request is sent on to where it began.
    """

    version: str
    principal: str
    capabilities: ClientCapabilities
    info: Implementation | None
    log_level: str | None
    watched: list[str]
    sealed: Sealed

    def open_version(self) -> Version | None:
        """Its version, None if this server has it no more."""
        return table.get(self.version) if self.version in table.LEGACY else None

    def restore(self, session: Session) -> None:
        """Make this the state of a new session, which was opened in its version. Raises InternalError for no memory."""
        client = ClientIdentity(self.capabilities, self.info)
        # Who has an id knows our answer, and goes on: it is initialized.
        session.restore(client, is_initialized=True, log_level=self.log_level)
        for uri in self.watched:
            session.watch(uri)


class _Load:
    """A session that is being looked for."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.has_ended = False


class SealedSessions:
    """What `Sessions` asks. `find` gives a session that is known here, by its uid; `end` ends it here."""

    def __init__(
        self,
        sealer: IdSealer,
        node: Node,
        find: Callable[[str], HttpSession | None],
        end: Callable[[HttpSession], None],
    ) -> None:
        self._sealer = sealer
        self._node = node
        self._backplane = node.backplane
        self._find = find
        self._end = end
        self._loads: set[_Load] = set()
        self.listens_at: Callable[[HttpSession, str], None] | None = None
        """Told on which node the newest GET stream of a session is, in the order in which they came."""
        node.on("ended", self._on_ended)
        node.on("memory", self._on_memory)

    async def name(self, session: HttpSession) -> None:
        """Give a session that was just initialized its id. Raises CannotRestore."""
        state = session.connection.session
        assert state.version is not None
        facts = _encode(_Facts(state.client.capabilities, state.client.info))
        session.id, sealed = self._sealer.seal(session.principal, state.version.name, facts)
        session.sealed = Sealed(sealed.uid, sealed.ends, sealed.rest)
        if sealed.facts is None:
            try:
                await self._backplane.set(_key(sealed.uid, "f"), facts, sealed.rest)
            except BackplaneAway:
                raise CannotRestore(_AWAY) from None

    async def load(self, session_id: str, principal: str) -> SessionRecord | None:
        """What is known of a session; None for one that has ended, or is none. Raises CannotRestore."""
        sealed = self._sealer.open(session_id, principal)
        if sealed is None:
            return None
        load = _Load(sealed.uid)
        self._loads.add(load)
        try:
            kinds = ("x", "m") if sealed.facts is not None else ("x", "m", "f")
            found = await asyncio.gather(*(self._backplane.get(_key(sealed.uid, kind)) for kind in kinds))
        except BackplaneAway:
            raise CannotRestore(_AWAY) from None
        finally:
            self._loads.discard(load)

        facts = found[2] if sealed.facts is None else sealed.facts
        if found[0] is not None or load.has_ended or facts is None:
            return None
        try:
            return _record(sealed, principal, facts, found[1])
        except (DecodeError, RecursionError):
            return None  # of another version of this program, or somebody else's

    def adopt(self, session: HttpSession, record: SessionRecord) -> None:
        """A session here is as `record` says: it was made from it, or doubted."""
        if session.sealed is None:
            session.sealed = record.sealed
        else:
            self._take(session, record.sealed.raw)
        listener = _memory(session.sealed.raw).listener
        if listener and self.listens_at is not None:
            self.listens_at(session, listener)

    # -- what is set -------------------------------------------------------------------------

    async def save(self, session: HttpSession) -> None:
        """Have all nodes know of what was set in a session, before its answer is sent.

        Raises CannotRestore if that cannot be; then it is as if it had not been set.
        """
        sealed, state = session.sealed, session.connection.session
        if sealed is None or sealed.has(state.log_level, state.watched):
            return

        sealed.saving = sealed.saving or asyncio.Lock()
        async with sealed.saving:
            if sealed.has(state.log_level, state.watched):
                return  # another request's change was saved with this one
            before = sealed.level, sealed.watched
            level, watched = state.log_level, frozenset(state.watched or ())
            try:
                await self._remember(session, lambda memory: _merge(memory, before, level, watched))
            except CannotRestore:
                _put(state, *before)
                raise

    async def listen(self, session: HttpSession) -> str:
        """The newest GET stream of a session is here now: gives the node that had it before. Raises CannotRestore."""
        assert session.sealed is not None
        before = _memory(session.sealed.raw).listener
        if before != self._node.id:

            def change(memory: _Memory) -> None:
                nonlocal before
                before, memory.listener = memory.listener, self._node.id

            await self._remember(session, change)
        return before

    async def _remember(self, session: HttpSession, change: Callable[[_Memory], None]) -> None:
        """Change what is remembered, whoever else does at the same time, and tell all nodes."""
        sealed, state = session.sealed, session.connection.session
        assert sealed is not None
        base = state.log_level, frozenset(state.watched or ())
        key, raw = _key(sealed.uid, "m"), sealed.raw
        try:
            for _ in range(_TRIES):
                memory = _memory(raw)
                change(memory)
                memory.number += 1
                new = _encode(memory)
                if len(new) > _MOST_BYTES:
                    raise CannotRestore("takes no more resources to watch for this session")
                if await self._backplane.swap(key, raw, new, sealed.rest):
                    self._take(session, new, base)
                    await self._node.tell_all("memory", sealed.uid, new)
                    return
                raw = await self._backplane.get(key)
        except BackplaneAway as error:
            log.debug("nothing can be remembered of a session: %s", printable(error))
            raise CannotRestore(_AWAY) from None
        except DecodeError:  # a newer version of this program has written it, or somebody else
            raise CannotRestore("cannot read what is remembered of this session") from None
        raise CannotRestore("is told too much of this session at once")

    def _take(self, session: HttpSession, raw: bytes | None, base: _Set | None = None) -> None:
        """What is remembered now, unless something newer is known.

        What was set here since `base`, by default what was remembered before, is not saved yet, and stays.
        """
        sealed, state = session.sealed, session.connection.session
        assert sealed is not None
        memory = _memory(raw)
        if raw is None or (sealed.raw is not None and memory.number <= _memory(sealed.raw).number):
            return
        level, watched = base or (sealed.level, sealed.watched)
        sealed.raw, sealed.level, sealed.watched = raw, memory.level, frozenset(memory.watched)
        _merge(memory, (level, watched), state.log_level, frozenset(state.watched or ()))
        _put(state, memory.level, frozenset(memory.watched))
        if memory.listener and self.listens_at is not None:
            self.listens_at(session, memory.listener)

    def _on_memory(self, _: str, body: list[object]) -> None:
        uid, raw = body
        session = self._find(str(uid))
        if session is not None and isinstance(raw, bytes):
            self._take(session, raw)

    # -- the end -----------------------------------------------------------------------------

    async def forget(self, session: HttpSession) -> None:
        """The session has ended, on all nodes. Raises CannotRestore if they cannot be told: then it goes on."""
        assert session.sealed is not None
        try:
            await self._backplane.set(_key(session.sealed.uid, "x"), b"", session.sealed.rest)
            await self._node.tell_all("ended", session.sealed.uid)
        except BackplaneAway:
            raise CannotRestore(_AWAY) from None

    def _on_ended(self, _: str, body: list[object]) -> None:
        uid = str(body[0])
        for load in self._loads:
            load.has_ended |= load.uid == uid
        session = self._find(uid)
        if session is not None:
            self._end(session)


_AWAY = "cannot reach what all its processes share"


def _key(uid: str, kind: str) -> str:
    # In braces, so that all keys of a session are in one slot of a cluster.
    return f"{{s:{uid}}}:{kind}"


def _record(sealed: SealedId, principal: str, raw_facts: bytes, raw: bytes | None) -> SessionRecord:
    facts, memory = _read_facts(raw_facts), _memory(raw)
    state = Sealed(sealed.uid, sealed.ends, sealed.rest, raw, memory.level, frozenset(memory.watched))
    return SessionRecord(
        version=sealed.version,
        principal=principal,
        capabilities=facts.capabilities,
        info=facts.info,
        log_level=memory.level,
        watched=memory.watched,
        sealed=state,
    )


def _memory(raw: bytes | None) -> _Memory:
    return _Memory() if raw is None else _read_memory(raw)


def _merge(memory: _Memory, before: _Set, level: str | None, now: frozenset[str]) -> None:
    """Put what was changed here into what others may have changed meanwhile."""
    if level != before[0]:
        memory.level = level
    memory.watched = sorted((set(memory.watched) | (now - before[1])) - (before[1] - now))


def _put(state: Session, level: str | None, watched: frozenset[str]) -> None:
    state.log_level = level
    for uri in set(state.watched or ()) - watched:
        state.unwatch(uri)
    try:
        for uri in watched:
            state.watch(uri)
    except InternalError as error:
        log.warning("not all resources of a session can be watched here: %s", printable(error))


_encode = Encoder().encode
_read_facts = Decoder(_Facts).decode
_read_memory = Decoder(_Memory).decode
