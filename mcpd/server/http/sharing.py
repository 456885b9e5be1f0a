"""What makes an application one node of a service: the key, the backplane, and what is heard over it."""

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
from typing import NamedTuple, Protocol

from mcpd.errors import ConfigurationError
from mcpd.protocol.observer import Observer
from mcpd.protocol.state_keys import StateKeys
from mcpd.protocol.versions import table
from mcpd.server.backplane.base import Backplane, ChangeBus, Kind
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.backplane.node import ListDigest, Node, NodeChanges
from mcpd.server.backplane.opening import open_backplane, timed_backplane
from mcpd.server.dispatcher.observing import HookedObserver

LIFE = 7 * 24 * 3600.0
"""For so many seconds an id is good, in which all processes have to keep the key."""

MOST_CHARACTERS = 700
"""What makes an id longer is kept apart from it: proxies limit headers."""

_SKEW = 60.0
_MAC = 16
_HEAD = Layout(">BBI12sB")
_APART = 1
_VERSIONS = tuple(sorted(table.LEGACY))
"""By number; a new revision comes last."""


class SealedId(NamedTuple):
    """What an id says. `ends` is a time of `time.time`; without `facts` they are kept apart."""

    uid: str
    ends: float
    version: str
    facts: bytes | None

    @property
    def rest(self) -> float:
        """For how many seconds more it opens anywhere, whatever the clocks say."""
        return max(1.0, self.ends - time() + 2 * _SKEW)


class IdSealer:
    """Seals ids with the first of `keys`, and opens those that any of them sealed, of one server."""

    def __init__(self, keys: Sequence[bytes], server_name: str) -> None:
        self._keys = [(_number_of(key), key) for key in keys]
        self._server = server_name.encode("utf-8", "surrogatepass")

    def seal(self, principal: str, version: str, facts: bytes) -> tuple[str, SealedId]:
        """A new id, and what it says; it holds no facts if they are too many."""
        number, key = self._keys[0]
        now, uid = int(time()), urandom(12)
        is_apart = (_HEAD.size + len(facts) + _MAC) * 4 / 3 > MOST_CHARACTERS
        body = _HEAD.pack(number, _APART if is_apart else 0, now, uid, _VERSIONS.index(version))
        if not is_apart:
            body += facts
        text = urlsafe_b64encode(body + self._mac(key, principal, body)).decode().rstrip("=")
        return text, SealedId(uid.hex(), now + LIFE, version, None if is_apart else facts)

    def open(self, text: str, principal: str) -> SealedId | None:
        """What an id says; None if it is not one of this principal's, or not any more."""
        if not _HEAD.size + _MAC < len(text) <= MOST_CHARACTERS + 8:
            return None
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (ValueError, Base64Error):
            return None
        # Each id has one spelling: base64 has several for the last character, and passes over what it does not know.
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
        # With their lengths: else the end of one could be the beginning of the next.
        return hmac.digest(key, b"".join(b"%d:%s" % (len(part), part) for part in parts), "sha256")[:_MAC]


def _number_of(key: bytes) -> int:
    """A byte that tells most keys apart, so that only one has to be tried."""
    return hmac.digest(key, b"number", "sha256")[0]


class Changing(Protocol):
    """A server whose clients are told of changes."""

    def notify(self, kind: Kind, uri: str | None) -> None:
        """On another node a list of that kind has changed, or that resource."""

    def missed(self) -> None:
        """What was said may not have been heard."""

    def join(self, bus: ChangeBus) -> None:
        """Hear of others' changes there, and tell of these."""


class Sharing:
    """One node. Without `is_shared` nobody else is there, and nothing is listened to."""

    def __init__(
        self,
        backplane: Backplane,
        keys: StateKeys,
        server_name: str,
        changing: Changing | None,
        list_digest: ListDigest | None = None,
        *,
        is_shared: bool,
    ) -> None:
        self.node = Node(backplane, keys)
        self.sealer = IdSealer(keys.of("session"), server_name)
        self.changes = NodeChanges(self.node, list_digest)
        self.is_shared = is_shared
        if is_shared and changing is not None:
            changing.join(self.changes)
            self.node.on_gap(changing.missed)

    async def start(self) -> None:
        """Take part from now on; safe to call again."""
        if self.is_shared:
            await self.node.start()
            self.changes.start()

    async def aclose(self) -> None:
        """Leave."""
        if self.is_shared:
            await self.node.aclose()

    @property
    def trouble(self) -> str:
        """What is wrong with the backplane, for people; empty if nothing is."""
        since = self.node.backplane.away_since
        if since is None:
            return ""
        return f"backplane away for {asyncio.get_running_loop().time() - since:.0f} s"


def make_sharing(
    backplane: str | Backplane | None,
    keys: StateKeys,
    server_name: str,
    changing: Changing | None,
    observers: Iterable[Observer] = (),
    list_digest: ListDigest | None = None,
) -> Sharing | None:
    """Of the settings; None without a backplane and without a key. Observers may watch what it is asked.

    Raises ConfigurationError.
    """
    if backplane is None:
        if not keys:
            return None
        return Sharing(MemoryBackplane(), keys, server_name, changing, is_shared=False)

    if isinstance(backplane, str):
        if not keys and not backplane.startswith("memory:"):
            raise ConfigurationError(
                "a backplane needs a secret that all processes have: set MCPD_STATE_KEY to 16 bytes or more, "
                "for example by openssl rand -base64 32"
            )
        backplane = open_backplane(backplane, server_name)
    counters = [observer.backplane_answered for observer in observers if isinstance(observer, HookedObserver)]
    keys = keys or StateKeys([os.urandom(32)])
    return Sharing(timed_backplane(backplane, counters), keys, server_name, changing, list_digest, is_shared=True)
