"""An application as one node of a service: its backplane, and session ids that any node can open.

An id contains what a node must know about the session, authenticated with the service's key:

    base64url(key 1 | flags 1 | issued 4 | uid 12 | version 1 | client n | mac 16)

`mac` covers the server's name, the principal and all bytes before it. Nothing is encrypted: the content is the client's
description of itself. An id that was changed, that has expired, or that belongs to another principal or server is
rejected.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from os import urandom
from struct import Struct as Layout
from time import time
from typing import TYPE_CHECKING, NamedTuple

from mcpd.errors import ConfigurationError
from mcpd.protocol.observer import Observer
from mcpd.protocol.state_keys import StateKeys
from mcpd.protocol.versions import table
from mcpd.server.backplane.base import Backplane
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.backplane.node import ListDigest, Node, NodeChanges
from mcpd.server.backplane.opening import open_backplane, timed_backplane
from mcpd.server.dispatcher.observing import HookedObserver

if TYPE_CHECKING:
    from mcpd.server.dispatcher.announcer import Announcer

LIFE = 7 * 24 * 3600.0
"""Seconds for which an id is valid; all processes must keep the key for this time."""

MOST_CHARACTERS = 700
"""Characters of an id. A longer description of the client is stored on the backplane, because proxies limit headers."""

_SKEW = 60.0
_MAC = 16
_HEAD = Layout(">BBI12sB")
_APART = 1
_VERSIONS = tuple(sorted(table.LEGACY))
"""The versions by number; a new revision comes last."""


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
        self._keys = [(_number_of(key), key) for key in keys]
        self._server = server_name.encode("utf-8", "surrogatepass")

    def seal(self, principal: str, version: str, client: bytes) -> tuple[str, SealedId]:
        """Return a new id and its content, without a description of the client that is too long."""
        number, key = self._keys[0]
        now, uid = int(time()), urandom(12)
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


def _number_of(key: bytes) -> int:
    """Return a byte that distinguishes most keys, so that only one must be tried."""
    return hmac.digest(key, b"number", "sha256")[0]


class Sharing:
    """One node of a service. Without `is_shared` it is the only one, and subscribes to nothing."""

    def __init__(
        self,
        backplane: Backplane,
        keys: StateKeys,
        server_name: str,
        announcer: Announcer | None,
        list_digest: ListDigest | None = None,
        *,
        is_shared: bool,
    ) -> None:
        self.node = Node(backplane, keys)
        self.sealer = IdSealer(keys.of("session"), server_name)
        self.changes = NodeChanges(self.node, list_digest)
        self.is_shared = is_shared
        if is_shared and announcer is not None:
            announcer.join(self.changes)
            self.node.on_gap(announcer.missed)

    async def start(self) -> None:
        """Connect to the other nodes; safe to call again."""
        if self.is_shared:
            await self.node.start()
            self.changes.start()

    async def aclose(self) -> None:
        """Disconnect from the other nodes."""
        if self.is_shared:
            await self.node.aclose()

    @property
    def trouble(self) -> str:
        """The problem of the backplane as text; empty if it can be reached."""
        since = self.node.backplane.away_since
        if since is None:
            return ""
        return f"backplane away for {asyncio.get_running_loop().time() - since:.0f} s"


def make_sharing(
    backplane: str | Backplane | None,
    keys: StateKeys,
    server_name: str,
    announcer: Announcer | None,
    observers: Iterable[Observer] = (),
    list_digest: ListDigest | None = None,
) -> Sharing | None:
    """Return the node for these settings; None without a backplane and a key. Observers count commands.

    Raises ConfigurationError.
    """
    if backplane is None:
        if not keys:
            return None
        return Sharing(MemoryBackplane(), keys, server_name, announcer, is_shared=False)

    if isinstance(backplane, str):
        if not keys and not backplane.startswith("memory:"):
            raise ConfigurationError(
                "a backplane needs a secret that all processes share: set MCPD_STATE_KEY to 16 bytes or more, "
                "for example by openssl rand -base64 32"
            )
        backplane = open_backplane(backplane, server_name)
    counters = [observer.backplane_answered for observer in observers if isinstance(observer, HookedObserver)]
    keys = keys or StateKeys([os.urandom(32)])
    return Sharing(timed_backplane(backplane, counters), keys, server_name, announcer, list_digest, is_shared=True)
