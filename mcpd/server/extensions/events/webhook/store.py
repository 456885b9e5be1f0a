"""Subscriptions of webhooks, their secrets, and the log of events, on a backplane: memory, SQLite or Redis.

Subscriptions belong to parts. The node that holds the lease of a part delivers its events, and writes down how far it
has come: a position of the log, and what is still to be delivered before it. Another node goes on from there, once the
lease is over. Only the holder writes that, by compare-and-set, so a node that slept through its lease notices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from os import urandom
from secrets import token_hex
from typing import Any, TypeAlias

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import encode as encode_json
from msgspec.msgpack import Decoder, Encoder

from mcpd.errors import ConfigurationError
from mcpd.protocol.state_keys import StateKeys
from mcpd.server.backplane.base import Backplane, BackplaneAway
from mcpd.server.backplane.memory import MemoryBackplane, OwnBus
from mcpd.server.extensions.events.wire import Event, order_of

PARTS = 8
_ENDLESS = 10 * 365 * 24 * 3600.0
# Seconds for which a record outlives its grant.
_MARGIN = 60.0
_LOG_ENTRIES, _LOG_LIFE = 50_000, 7 * 24 * 3600.0
_STATE_LIFE = 30 * 24 * 3600.0
_LETTERS, _LETTER_LIFE = 1000, 7 * 24 * 3600.0
_LETTER_BYTES = 64 * 1024 * 1024
_NONCE = 12


class Subscription(Struct, array_like=True):
    """What is kept of a subscription. `secrets` are the keys and until when each signs; the first one is current.

    Times are seconds since 1970. `claims` is what the caller wants to see again when access is judged.
    """

    id: str
    principal: str
    name: str
    arguments: bytes
    url: str
    secrets: tuple[tuple[bytes, float], ...]
    created: float
    expires: float | None
    claims: bytes = b""
    suspended: float = 0.0
    failed_since: float = 0.0
    last_error: str = ""
    last_delivery: float = 0.0
    after: str = ""
    """The position of the log from which a new subscription is served; "" for only what comes after it."""
    subject: str = ""
    """Another name of the principal, under which it is found too."""

    def is_over(self, now: float) -> bool:
        """Whether the grant has ended."""
        return self.expires is not None and self.expires <= now

    def keys(self, now: float) -> list[bytes]:
        """Return the keys that sign now."""
        return [key for number, (key, until) in enumerate(self.secrets) if not number or until > now]


class Letter(Struct, array_like=True):
    """A delivery that was given up."""

    event: Event
    category: str
    at: float


class PartState(Struct, array_like=True):
    """How far the deliveries of a part have come.

    All events up to `position` were matched. `waiting` has what is left of them by subscription: the position of each
    event and the attempts so far. All of these are behind `start`.
    """

    position: str = ""
    start: str = ""
    subscriptions: list[str] = []
    waiting: dict[str, list[tuple[str, int]]] = {}
    node: str = ""


# Kinds of entries of the log: an event, a subscription that is new or changed or gone, a loss of events, and the end of
# a type with the error that its subscribers get.
EVENT, CHANGED, LOST, ENDED, AGAIN = range(5)  # the last one is an event that may have been written before
Entry: TypeAlias = tuple[int, Any]

_encode = Encoder().encode
_read_subscription = Decoder(Subscription).decode
_read_state = Decoder(PartState).decode
_read_letter = Decoder(Letter).decode
_read_entry = Decoder(tuple[int, Any]).decode
_read_event = Decoder(Event).decode
_read_index = Decoder(dict[str, float]).decode


def subscription_id(server: str, principal: str, url: str, name: str, arguments: bytes) -> str:
    """Return the id of a subscription: the same for the same key, also after a restart (EVT-038, EVT-039)."""
    key = encode_json([server, principal, url, name, arguments.decode()])
    return f"sub_{sha256(key).hexdigest()[:32]}"


def part_of(subscription: str) -> int:
    """Return the part that a subscription belongs to."""
    return int(subscription[-2:], 16) % PARTS


def position_before(position: str) -> str:
    """Return a position that is directly before this one, whether or not an entry has it."""
    order = order_of(position)
    if order[-1]:
        return "-".join(map(str, (*order[:-1], order[-1] - 1)))
    return f"{order[0] - 1}-{2**64 - 1}"


def entry_of(data: bytes) -> Entry:
    """Decode an entry of the log."""
    kind, value = _read_entry(data)
    return kind, (_read_event(value) if kind in (EVENT, AGAIN) else value)


def event_entry(event: Event) -> bytes:
    """Encode an event for the log."""
    return _encode((EVENT, _encode(event)))


def again(entry: bytes) -> bytes:
    """Return the entry of an event that is written once more, because nobody has confirmed the first time."""
    return entry[:1] + bytes([AGAIN]) + entry[2:]


class _Sealing:
    # Seals secrets with the first key, and opens them with any.
    def __init__(self, keys: Sequence[bytes]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # an extra

        self._keys = [AESGCM(key) for key in keys]

    def seal(self, secret: bytes, context: bytes) -> bytes:
        nonce = urandom(_NONCE)
        return nonce + self._keys[0].encrypt(nonce, secret, context)

    def open(self, sealed: bytes, context: bytes) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        for key in self._keys:
            try:
                return key.decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
            except InvalidTag:
                pass
        return None


def _sealing(backplane: Backplane, keys: StateKeys) -> _Sealing | None:
    # Return what seals secrets; None where they stay in this process or in a file of this user alone.
    is_file = hasattr(backplane, "was_changed")
    try:
        if keys:
            return _Sealing(keys.of("events"))
        why = "set MCPD_STATE_KEY to 16 bytes or more"
    except ModuleNotFoundError:
        why = "pip install 'mcpd-server[auth]'"
    if is_file:
        return None
    raise ConfigurationError(f"the secrets of webhooks are not stored on a shared backplane in plain text: {why}")


class Store:
    """The subscriptions of one service as one node sees them. Its methods raise BackplaneAway."""

    def __init__(self, backplane: Backplane | None, namespace: str, keys: StateKeys, lease: float = 30.0) -> None:
        self.backplane: Backplane = MemoryBackplane() if backplane is None else backplane
        self.is_memory = isinstance(self.backplane, MemoryBackplane) and backplane is None
        self.node = token_hex(5)
        self.lease = lease
        self._prefix = f"{namespace}ev:"
        self._seal = None if isinstance(self.backplane, MemoryBackplane) else _sealing(self.backplane, keys)
        # Given-up deliveries have a longer life than subscriptions, and must not displace them.
        self._letters: Backplane = MemoryBackplane(_LETTER_BYTES) if self.is_memory else self.backplane
        self._log, self._channel = f"{self._prefix}log", f"{self._prefix}bus"

    def _key(self, subscription: str) -> str:
        return f"{self._prefix}s:{subscription}"

    # -- subscriptions -----------------------------------------------------------------------

    async def raw(self, subscription: str) -> bytes | None:
        """Return a stored subscription, to compare it with what was read before."""
        return await self.backplane.get(self._key(subscription))

    async def load(self, subscription: str) -> tuple[Subscription, bytes] | None:
        """Return a subscription and its stored form."""
        raw = await self.raw(subscription)
        if raw is None:
            return None
        found = self.opened(raw)
        return None if found is None else (found, raw)

    def opened(self, raw: bytes) -> Subscription | None:
        """Return a stored subscription; None if its secrets were sealed with keys that are gone."""
        try:
            found = _read_subscription(raw)
        except (DecodeError, ValidationError):
            return None  # written by another version

        if self._seal is not None:
            context = found.id.encode()
            keys = [(self._seal.open(key, context), until) for key, until in found.secrets]
            found.secrets = tuple((key, until) for key, until in keys if key is not None)
            if not keys or keys[0][0] is None:
                return None

        return found

    async def save(self, subscription: Subscription, old: bytes | None, now: float) -> bytes | None:
        """Store a subscription in place of `old`. Returns its stored form; None if another node was faster."""
        stored = subscription
        if self._seal is not None:
            context = subscription.id.encode()
            sealed = [(self._seal.seal(key, context), until) for key, until in subscription.secrets]
            stored = _read_subscription(_encode(subscription))
            stored.secrets = tuple(sealed)
        raw = _encode(stored)
        ttl = _ENDLESS if subscription.expires is None else subscription.expires - now + _MARGIN
        return raw if await self.backplane.swap(self._key(subscription.id), old, raw, ttl) else None

    async def remove(self, subscription: Subscription) -> None:
        """Delete a subscription."""
        await self.backplane.delete(self._key(subscription.id))
        for name in {subscription.principal, subscription.subject} - {""}:
            await self._index(name, lambda ids: ids.pop(subscription.id, None))

    async def enter(self, subscription: Subscription) -> None:
        """Add a subscription to those of its principal."""
        ends = subscription.expires or _ENDLESS * 10
        for name in {subscription.principal, subscription.subject} - {""}:
            await self._index(name, lambda ids: ids.__setitem__(subscription.id, ends))

    async def ids_of(self, principal: str, now: float) -> list[str]:
        """Return the ids of a principal's subscriptions."""
        raw = await self.backplane.get(self._of(principal))
        return [] if raw is None else [key for key, ends in _read_index(raw).items() if ends > now]

    def _of(self, principal: str) -> str:
        return f"{self._prefix}of:{sha256(principal.encode()).hexdigest()[:32]}"

    async def _index(self, principal: str, change: Callable[[dict[str, float]], object]) -> None:
        key = self._of(principal)
        while True:
            old = await self.backplane.get(key)
            ids = {} if old is None else _read_index(old)
            change(ids)
            if await self.backplane.swap(key, old, _encode(ids), _ENDLESS if ids else _MARGIN):
                return

    # -- the log -----------------------------------------------------------------------------

    async def append(self, entries: Sequence[bytes]) -> None:
        """Add entries to the log, and tell the other nodes."""
        await self.backplane.append(self._log, entries, _LOG_ENTRIES, _LOG_LIFE)
        if not isinstance(self.backplane, OwnBus) or not hasattr(self.backplane, "was_changed"):
            await self.backplane.publish(self._channel, self.node.encode())

    async def read(self, after: str, limit: int = 1000) -> list[tuple[str, bytes]]:
        """Return entries of the log with their positions, oldest first."""
        return await self.backplane.read(self._log, after, limit)

    async def changed(self, subscription: Subscription) -> None:
        """Tell the node that delivers for a subscription that it has changed."""
        await self.append([_encode((CHANGED, [subscription.id, subscription.created]))])

    async def lost(self) -> None:
        """Tell all nodes that events were lost before they reached the log."""
        await self.append([_encode((LOST, None))])

    async def ended(self, name: str, error: Mapping[str, Any]) -> None:
        """Tell all nodes that a type has ended."""
        await self.append([_encode((ENDED, [name, dict(error)]))])

    async def listen(self, receive: Callable[[], object]) -> None:
        """Call `receive` when the log may have grown. Writers of a shared file tell nobody (`is_silent`)."""
        self.backplane.on_gap(receive)
        await self.backplane.subscribe(self._channel, lambda _: receive())

    @property
    def is_silent(self) -> bool:
        """Whether other processes may write without a message, so that the log must be read again and again."""
        return hasattr(self.backplane, "was_changed")

    async def epoch(self) -> str:
        """Return what all nodes mark their cursors with, as long as the log exists."""
        key = f"{self._prefix}epoch"
        await self.backplane.set(key, token_hex(4).encode(), _ENDLESS, only_new=True)
        return (await self.backplane.get(key) or b"").decode()

    # -- parts -------------------------------------------------------------------------------

    async def claim(self, part: int) -> bool:
        """Take the lease of a part that nobody holds."""
        return await self.backplane.set(f"{self._prefix}l:{part}", self.node.encode(), self.lease, only_new=True)

    async def renew(self, part: int) -> bool:
        """Keep a lease. Returns False if another node has it now."""
        key, own = f"{self._prefix}l:{part}", self.node.encode()
        return await self.backplane.swap(key, own, own, self.lease) or await self.claim(part)

    async def release(self, part: int) -> None:
        """Let another node take a part over at once."""
        await self.backplane.delete(f"{self._prefix}l:{part}")

    async def state(self, part: int) -> tuple[PartState, bytes | None]:
        """Return how far a part has come, and the stored form."""
        raw = await self.backplane.get(f"{self._prefix}p:{part}")
        return (PartState() if raw is None else _read_state(raw)), raw

    async def put_state(self, part: int, state: PartState, old: bytes | None) -> bytes | None:
        """Write down how far a part has come. Returns the stored form; None if another node holds the part."""
        raw = _encode(state)
        return raw if await self.backplane.swap(f"{self._prefix}p:{part}", old, raw, _STATE_LIFE) else None

    # -- deliveries that were given up -------------------------------------------------------

    async def bury(self, subscription: str, letter: Letter) -> None:
        """Keep a delivery that was given up."""
        await self._letters.append(f"{self._prefix}d:{subscription}", [_encode(letter)], _LETTERS, _LETTER_LIFE)

    async def letters(self, subscription: str) -> list[Letter]:
        """Return the deliveries that were given up, oldest first."""
        found = await self._letters.read(f"{self._prefix}d:{subscription}", "", _LETTERS)
        return [_read_letter(entry) for _, entry in found if entry]

    async def forget_letters(self, subscription: str) -> None:
        """Drop the deliveries that were given up: a log keeps its last entry, which says nothing here."""
        await self._letters.append(f"{self._prefix}d:{subscription}", [b""], 1, 1.0)


async def quietly(work: Any) -> None:
    """Do something for which a backplane that is away is no error."""
    try:
        await work
    except (TimeoutError, BackplaneAway):
        pass
