"""Sessions that any node can serve: the id describes the client, and the backplane stores the rest.

An id contains what a node must know about the session, authenticated with the service's key:

    base64url(key 1 | flags 1 | issued 4 | uid 12 | version 1 | client n | mac 16)

`mac` covers the server's name, the principal and all bytes before it. Nothing is encrypted: the content is the client's
description of itself. An id that was changed, that has expired, or that belongs to another principal or server is
rejected.

The backplane has little: that the session has ended, and its settings (log level, subscribed resources, the node of its
GET stream). A node reads both when it receives the first request of a session, and is notified of changes. Later
requests read nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from struct import Struct as Layout
from time import time
from typing import NamedTuple, TypeAlias

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
from mcpd.server.backplane.node import Sharing
from .http_session import HttpSession, SharedState, Unavailable

log = logging.getLogger("mcpd")

LIFE = 7 * 24 * 3600.0
"""Seconds for which an id is valid; all processes must keep the key for this time."""

MOST_CHARACTERS = 700
"""Characters of an id. A longer description of the client is stored on the backplane, because proxies limit headers."""

_SKEW = 60.0
_MAC = 16
_HEAD = Layout(">BBI12sB")
_APART = 1
# The versions by number; a new revision comes last.
_VERSIONS = tuple(sorted(table.LEGACY))


class SealedId(NamedTuple):
    """The content of an id. `ends` is a time of `time.time`. `client` is None if it is stored on the backplane."""

    uid: str
    ends: float
    version: str
    client: bytes | None

    @property
    def rest(self) -> float:
        """Seconds after which no node accepts the id, with any clock difference."""
        return max(1.0, self.ends - time() + 2 * _SKEW)


class IdSealer:
    """Seals the ids of one server with the first of `keys`, and opens ids that were sealed with any of them."""

    def __init__(self, keys: Sequence[bytes], server_name: str) -> None:
        # With a byte that distinguishes most keys, so that only one must be tried.
        self._keys = [(hmac.digest(key, b"number", "sha256")[0], key) for key in keys]
        self._server = server_name.encode("utf-8", "surrogatepass")

    def seal(self, principal: str, version: str, client: bytes) -> tuple[str, SealedId]:
        """Return a new id and its content, without a description of the client that is too long."""
        number, key = self._keys[0]
        now, uid = int(time()), os.urandom(12)
        is_apart = (_HEAD.size + len(client) + _MAC) * 4 / 3 > MOST_CHARACTERS
        body = _HEAD.pack(number, _APART if is_apart else 0, now, uid, _VERSIONS.index(version))
        if not is_apart:
            body += client
        text = urlsafe_b64encode(body + self._mac(key, principal, body)).decode().rstrip("=")
        return text, SealedId(uid.hex(), now + LIFE, version, None if is_apart else client)

    def open(self, text: str, principal: str) -> SealedId | None:
        """Return the content of an id; None if it is invalid, expired, or belongs to another principal."""
        if not _HEAD.size + _MAC < len(text) <= MOST_CHARACTERS + 8:
            return None
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (ValueError, Base64Error):
            return None

        # An id must have one spelling: base64 accepts several last characters, and skips unknown ones.
        if len(raw) < _HEAD.size + _MAC or urlsafe_b64encode(raw).decode().rstrip("=") != text:
            return None

        body, mac = raw[:-_MAC], raw[-_MAC:]
        number, flags, issued, uid, version = _HEAD.unpack_from(body)
        if not any(
            each == number and hmac.compare_digest(mac, self._mac(key, principal, body)) for each, key in self._keys
        ):
            return None

        ends = issued + LIFE
        if ends + _SKEW < time() or version >= len(_VERSIONS):
            return None
        return SealedId(uid.hex(), ends, _VERSIONS[version], None if flags & _APART else body[_HEAD.size :])

    def _mac(self, key: bytes, principal: str, body: bytes) -> bytes:
        parts = (self._server, principal.encode("utf-8", "surrogatepass"), body)
        # With their lengths: otherwise the end of one part could be the beginning of the next.
        return hmac.digest(key, b"".join(b"%d:%s" % (len(part), part) for part in parts), "sha256")[:_MAC]


# A log level, and subscribed resources.
_Saved: TypeAlias = tuple[str | None, frozenset[str]]

_TRIES = 8
_MOST_BYTES = 64 * 1024


class _Client(Struct, array_like=True):
    # The description of a client in `initialize`.
    capabilities: ClientCapabilities
    info: Implementation | None = None


class _Settings(Struct, array_like=True):
    # The stored settings of a session. `number` grows with each change: older settings are ignored.
    number: int = 0
    level: str | None = "info"
    watched: list[str] = []
    listener: str = ""
    """The node of the newest GET stream."""


class SessionRecord(NamedTuple):
    """The state of a session from its id and the backplane, from which any node can restore it.

    Open streams and requests of the server stay on their node; no request is forwarded.
    """

    version: Version
    client: ClientIdentity
    shared: SharedState

    def restore(self, session: Session) -> None:
        """Restore the state in a new session of its version. Raises InternalError if the settings budget is used up."""
        # A client with an id has received the response to `initialize`: it is initialized.
        session.restore(self.client, is_initialized=True, log_level=self.shared.level)
        for uri in self.shared.watched:
            session.watch(uri)


class _Load(Struct, eq=False):
    # A session that is being loaded.
    uid: str
    has_ended: bool = False


class SealedSessions:
    """The shared state of all sessions. `find` returns a session of this process by its uid; `end` ends it here."""

    def __init__(
        self,
        sharing: Sharing,
        find: Callable[[str], HttpSession | None],
        end: Callable[[HttpSession], None],
    ) -> None:
        self._sealer = IdSealer(sharing.keys.of("session"), sharing.server_name)
        self._node = sharing.node
        self._backplane = sharing.node.backplane
        self._find = find
        self._end = end
        self._loads: set[_Load] = set()
        self.on_stream_node: Callable[[HttpSession, str], None] | None = None
        """Called with the node of a session's newest GET stream, in the order of the changes."""
        self._node.on("ended", self._on_ended)
        self._node.on("memory", self._on_settings)

    async def name(self, session: HttpSession) -> None:
        """Give a session that was just initialized its sealed id. Raises Unavailable."""
        state = session.connection.session
        assert state.version is not None
        client = _encode(_Client(state.client.capabilities, state.client.info))
        session.id, sealed = self._sealer.seal(session.principal, state.version.name, client)
        session.sealed = SharedState(sealed.uid, sealed.rest)
        if sealed.client is None:
            try:
                await self._backplane.set(_key(sealed.uid, "f"), client, sealed.rest)
            except BackplaneAway:
                raise Unavailable(_AWAY) from None

    async def load(self, session_id: str, principal: str) -> SessionRecord | None:
        """Return the state of a session; None if it has ended or never existed. Raises Unavailable."""
        sealed = self._sealer.open(session_id, principal)
        if sealed is None:
            return None
        load = _Load(sealed.uid)
        self._loads.add(load)
        try:
            kinds = ("x", "m") if sealed.client is not None else ("x", "m", "f")
            values = await asyncio.gather(*(self._backplane.get(_key(sealed.uid, kind)) for kind in kinds))
        except BackplaneAway:
            raise Unavailable(_AWAY) from None
        finally:
            self._loads.discard(load)

        client = values[2] if sealed.client is None else sealed.client
        if values[0] is not None or load.has_ended or client is None:
            return None
        try:
            return _record(sealed, client, values[1])
        except (DecodeError, RecursionError):
            return None  # written by another version of mcpd, or another program

    def adopt(self, session: HttpSession, record: SessionRecord) -> None:
        """Apply a loaded state to a session of this process, which was restored or doubtful."""
        if session.sealed is None:
            session.sealed = record.shared
        else:
            self._apply(session, record.shared.raw)
        listener = _settings(session.sealed.raw).listener
        if listener and self.on_stream_node is not None:
            self.on_stream_node(session, listener)

    # -- settings ----------------------------------------------------------------------------

    async def save(self, session: HttpSession) -> None:
        """Share changed settings with all nodes, before the response is sent.

        Raises Unavailable if that fails; then the change is reverted.
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
                await self._store(session, lambda settings: _merge(settings, before, level, watched))
            except Unavailable:
                _set(state, *before)
                raise

    async def listen(self, session: HttpSession) -> str:
        """Store that this node has the newest GET stream. Returns the previous node. Raises Unavailable."""
        assert session.sealed is not None
        before = _settings(session.sealed.raw).listener
        if before != self._node.id:

            def change(settings: _Settings) -> None:
                nonlocal before
                before, settings.listener = settings.listener, self._node.id

            await self._store(session, change)

        return before

    async def _store(self, session: HttpSession, change: Callable[[_Settings], None]) -> None:
        # Change the stored settings, even with concurrent changes, and notify all nodes.
        sealed, state = session.sealed, session.connection.session
        assert sealed is not None
        base = state.log_level, frozenset(state.watched or ())
        key, raw = _key(sealed.uid, "m"), sealed.raw
        try:
            for _ in range(_TRIES):
                settings = _settings(raw)
                change(settings)
                settings.number += 1
                new = _encode(settings)
                if len(new) > _MOST_BYTES:
                    raise Unavailable("accepts no more subscriptions of this session")
                if await self._backplane.swap(key, raw, new, sealed.rest):
                    self._apply(session, new, base)
                    await self._node.broadcast("memory", sealed.uid, new)
                    return
                raw = await self._backplane.get(key)
        except BackplaneAway as error:
            log.debug("the settings of a session cannot be stored: %s", printable(error))
            raise Unavailable(_AWAY) from None
        except DecodeError:  # written by a newer version of mcpd, or another program
            raise Unavailable("cannot read the stored settings of this session") from None

        raise Unavailable("receives too many changes of this session at once")

    def _apply(self, session: HttpSession, raw: bytes | None, base: _Saved | None = None) -> None:
        # Apply stored settings, unless this node has newer ones.
        # Changes of this node since `base`, by default the stored settings before, are not stored yet, and stay.
        sealed, state = session.sealed, session.connection.session
        assert sealed is not None
        settings = _settings(raw)
        if raw is None or (sealed.raw is not None and settings.number <= _settings(sealed.raw).number):
            return
        level, watched = base or (sealed.level, sealed.watched)
        sealed.raw, sealed.level, sealed.watched = raw, settings.level, frozenset(settings.watched)
        _merge(settings, (level, watched), state.log_level, frozenset(state.watched or ()))
        _set(state, settings.level, frozenset(settings.watched))
        if settings.listener and self.on_stream_node is not None:
            self.on_stream_node(session, settings.listener)

    def _on_settings(self, _: str, body: list[object]) -> None:
        uid, raw = body
        session = self._find(str(uid))
        if session is not None and isinstance(raw, bytes):
            self._apply(session, raw)

    # -- the end -----------------------------------------------------------------------------

    async def forget(self, session: HttpSession) -> None:
        """End a session on all nodes. Raises Unavailable if they cannot be notified; then it continues."""
        assert session.sealed is not None
        try:
            await self._backplane.set(_key(session.sealed.uid, "x"), b"", session.sealed.rest)
            await self._node.broadcast("ended", session.sealed.uid)
        except BackplaneAway:
            raise Unavailable(_AWAY) from None

    def _on_ended(self, _: str, body: list[object]) -> None:
        uid = str(body[0])
        for load in self._loads:
            load.has_ended |= load.uid == uid
        session = self._find(uid)
        if session is not None:
            self._end(session)


_AWAY = "cannot reach its backplane"


def _key(uid: str, kind: str) -> str:
    # The braces put all keys of a session into one slot of a cluster.
    return f"{{s:{uid}}}:{kind}"


def _record(sealed: SealedId, raw_client: bytes, raw: bytes | None) -> SessionRecord:
    client, settings = _read_client(raw_client), _settings(raw)
    shared = SharedState(sealed.uid, sealed.rest, raw, settings.level, frozenset(settings.watched))
    return SessionRecord(table.get(sealed.version), ClientIdentity(client.capabilities, client.info), shared)


def _settings(raw: bytes | None) -> _Settings:
    return _Settings() if raw is None else _read_settings(raw)


def _merge(settings: _Settings, before: _Saved, level: str | None, now: frozenset[str]) -> None:
    # Merge changes of this node into stored settings that other nodes may have changed.
    if level != before[0]:
        settings.level = level
    settings.watched = sorted((set(settings.watched) | (now - before[1])) - (before[1] - now))


def _set(state: Session, level: str | None, watched: frozenset[str]) -> None:
    state.log_level = level
    for uri in set(state.watched or ()) - watched:
        state.unwatch(uri)
    try:
        for uri in watched:
            state.watch(uri)
    except InternalError as error:
        log.warning("some subscriptions of a session do not fit into settings: %s", printable(error))


_encode = Encoder().encode
_read_client = Decoder(_Client).decode
_read_settings = Decoder(_Settings).decode
