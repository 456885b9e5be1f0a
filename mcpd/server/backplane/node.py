"""One process as the others see it over a backplane: its id, what it is told, and what it tells.

What is said is sealed by the service's key: nobody else who reaches the backplane can say anything. A request to be
run is never said.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Coroutine
from secrets import token_bytes, token_hex
from time import time
from typing import Any, TypeAlias
from weakref import WeakSet

from msgspec import DecodeError, ValidationError
from msgspec.msgpack import Decoder, Encoder

from mcpd.protocol.printable import printable
from mcpd.protocol.state_keys import StateKeys
from mcpd.server.backplane.base import Backplane, BackplaneAway, Kind, Subscriber

log = logging.getLogger("mcpd")

NODE_ID_LENGTH = 10
_ALL = "all"
_LEASE, _RENEW_EVERY = 15.0, 5.0
_WAITS = (0.1, 0.3, 0.6)
"""In seconds, for a node that does not hear: nobody is to wait for longer than 3."""
_OLDEST = 60.0
_SKEW = 60.0
"""By so much clocks may differ."""
_MAC = 16
_MOST_POSTED = 10_000
_MOST_SENDERS = 10_000

Take: TypeAlias = Callable[[str, Any], object]
"""Takes what another node said: its id, and what belongs to the kind of message. What it raises is logged."""


class Node:
    """This process on a backplane. `on` says who takes what; `start` begins to listen, once a loop runs.

    `refused` counts what was forged, too old, or said twice.
    """

    def __init__(self, backplane: Backplane, keys: StateKeys) -> None:
        self.id = token_hex(NODE_ID_LENGTH // 2)
        self.backplane = backplane
        self.refused = 0
        self.dropped = 0
        self._keys = keys.of("bus")
        self._takes: dict[str, Take] = {}
        self._gaps: list[Callable[[], object]] = []
        self._said = 0
        self._heard: dict[tuple[str, str], int] = {}
        self._posted: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Future[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._subscribed: list[tuple[str, Callable[[bytes], None]]] = []
        backplane.on_gap(self._tell_gap)

    # -- its life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen from now on; safe to call again. A backplane that is away is listened to once it is back."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        try:
            while not await self.backplane.set(f"n:{self.id}", b"1", _LEASE, only_new=True):
                self.id = token_hex(NODE_ID_LENGTH // 2)  # somebody has that one
        except BackplaneAway:
            pass  # it is random all the same
        self._subscribed = [(channel, self._hears(channel)) for channel in (_ALL, f"n:{self.id}")]
        subscribing = (self.backplane.subscribe(*each) for each in self._subscribed)
        for found in await asyncio.gather(*subscribing, return_exceptions=True):
            if isinstance(found, BackplaneAway):
                log.warning("serving without the backplane until it is back: %s", printable(found))
            elif found is not None:
                raise found
        self._renewing = asyncio.create_task(self._renew(), name="mcpd-node")

    async def _renew(self) -> None:
        """Show that this node lives."""
        while True:
            await asyncio.sleep(_RENEW_EVERY)
            try:
                await self.backplane.set(f"n:{self.id}", b"1", _LEASE)
            except BackplaneAway:
                pass

    async def aclose(self) -> None:
        """Send what was posted, and leave. Safe to call twice; `start` joins again."""
        self._starting = None
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
            for channel, hear in self._subscribed:
                await self.backplane.unsubscribe(channel, hear)
            try:
                await self.backplane.delete(f"n:{self.id}")
            except BackplaneAway:
                pass

        if self._posted:
            await asyncio.wait(self._posted, timeout=1)
        await self.backplane.aclose()

    def on(self, kind: str, take: Take) -> None:
        """Who takes messages of one kind."""
        self._takes[kind] = take

    def on_gap(self, told: Callable[[], object]) -> None:
        """Call this when something may have been missed, once all is heard again."""
        self._gaps.append(told)

    def _tell_gap(self) -> None:
        for told in self._gaps:
            told()

    # -- speaking ----------------------------------------------------------------------------

    async def tell(self, node: str, kind: str, *body: Any) -> int:
        """Tell one node; 0 if it is gone. Raises BackplaneAway."""
        return await self._publish(f"n:{node}", kind, body)

    async def tell_surely(self, node: str, kind: str, *body: Any) -> bool:
        """The same for what is said once; False if that node is gone.

        One that says that it is there and does not hear connects to the backplane again, or has ended without a word
        up to 15 s ago: it gets time. Raises BackplaneAway, also if it does not hear after that.
        """
        for wait in (*_WAITS, None):
            if await self.tell(node, kind, *body):
                return True
            if await self.backplane.get(f"n:{node}") is None:
                return False
            if wait is not None:
                await asyncio.sleep(wait)
        raise BackplaneAway("that node does not hear")

    async def tell_all(self, kind: str, *body: Any) -> None:
        """Tell all other nodes. Raises BackplaneAway."""
        await self._publish(_ALL, kind, body)

    def post(self, work: Coroutine[Any, Any, object]) -> None:
        """Do that without anybody waiting for it: what of it cannot be said is lost, and counted in `dropped`."""
        if len(self._posted) >= _MOST_POSTED:
            self.dropped += 1
            work.close()
            return
        task = asyncio.ensure_future(self._do_quietly(work))
        self._posted.add(task)
        task.add_done_callback(self._posted.discard)

    async def _do_quietly(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except BackplaneAway:
            self.dropped += 1

    async def _publish(self, channel: str, kind: str, body: Any) -> int:
        # Numbered and handed over in one go: what one node says is heard in its order.
        self._said += 1
        message = _encode((time(), self.id, self._said, kind, body))
        return await self.backplane.publish(channel, _mac(self._keys[0], channel, message) + message)

    # -- hearing -----------------------------------------------------------------------------

    def _hears(self, channel: str) -> Callable[[bytes], None]:
        def hear(data: bytes) -> None:
            self._hear(channel, data)

        return hear

    def _hear(self, channel: str, data: bytes) -> None:
        mac, message = data[:_MAC], data[_MAC:]
        if not any(hmac.compare_digest(mac, _mac(key, channel, message)) for key in self._keys):
            self.refused += 1
            return
        try:
            at, sender, number, kind, body = _decode(message)
        except (DecodeError, ValidationError):
            self.refused += 1
            return
        if sender == self.id:
            return
        heard = (sender, channel)
        if not -_SKEW - 1 <= time() - at <= _OLDEST + _SKEW or number <= self._heard.get(heard, 0):
            self.refused += 1
            return

        if len(self._heard) >= _MOST_SENDERS:
            self._heard.clear()
        self._heard[heard] = number
        take = self._takes.get(kind)
        if take is not None:  # else it is of a newer version of this program
            take(sender, body)


def _mac(key: bytes, channel: str, message: bytes) -> bytes:
    return hmac.digest(key, channel.encode() + b"\0" + message, "sha256")[:_MAC]


_encode = Encoder().encode
_decode = Decoder(tuple[float, str, int, str, list[Any]]).decode

_LIFE = 7 * 24 * 3600.0
_KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources")
_MARK = 6
"""Bytes of a mark that are its own. What follows is the digest of the list, if there is one."""

ListDigest: TypeAlias = Callable[[Kind], bytes]
"""Gives what is the same for equal lists, on every node; empty if that cannot be told. Never raises."""


class NodeChanges:
    """A `ChangeBus` over a backplane. Beside what is said there is a mark of each kind's last change, which tells a
    node that heard nothing for a while whether it missed one.

    Nodes whose files change at the same time have the same list in the end. With `list_digest` one that has the list
    already that another one tells of says nothing: its clients heard of it when it got that.
    """

    def __init__(self, node: Node, list_digest: ListDigest | None = None) -> None:
        self._node = node
        self._list_digest = list_digest
        self._due: dict[tuple[Kind, str | None], None] = {}
        self._unsaid: dict[Kind, bytes] = {}
        """Marks of changes here of which not all have been told."""
        self._subscribers: WeakSet[Subscriber] = WeakSet()
        self._marks: dict[Kind, bytes | None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        node.on("changed", self._take)
        node.on_gap(self._gap)

    def start(self) -> None:
        """From now on changes are said: the event loop of the node runs."""
        self._loop = asyncio.get_running_loop()
        self._node.post(self._look(tells=False))

    def subscribe(self, subscriber: Subscriber) -> None:
        """See `ChangeBus`."""
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """See `ChangeBus`."""
        self._subscribers.discard(subscriber)

    def publish(self, kind: Kind, uri: str | None, by: Subscriber) -> None:
        """See `ChangeBus`."""
        if self._loop is None:
            return  # nobody is served yet, and what was registered before that is no change
        try:
            self._loop.call_soon_threadsafe(self._changed, kind, uri)
        except RuntimeError:
            pass  # it is closed

    def _changed(self, kind: Kind, uri: str | None) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._say_due)  # each once, of all that comes in this turn
        self._due[kind, uri] = None

    def _say_due(self) -> None:
        due, self._due = self._due, {}
        for kind, uri in due:
            if uri is None:
                self._say(kind)
            else:
                self._node.post(self._node.tell_all("changed", kind, uri, b""))

    def _say(self, kind: Kind) -> None:
        digest = b"" if self._list_digest is None else self._list_digest(kind)
        mark = self._unsaid[kind] = token_bytes(_MARK) + digest
        self._node.post(self._say_mark(kind, mark))

    async def _say_mark(self, kind: Kind, mark: bytes) -> None:
        keeping = asyncio.ensure_future(self._keep(kind, mark))
        try:
            await self._node.tell_all("changed", kind, None, mark)
        finally:
            await keeping
        if self._unsaid.get(kind) == mark:
            del self._unsaid[kind]

    async def _keep(self, kind: Kind, mark: bytes) -> None:
        await self._node.backplane.set(f"c:{kind}", mark, _LIFE)
        self._marks[kind] = mark

    def _take(self, _: str, body: Any) -> None:
        kind, uri, mark = body
        if uri is None:
            self._marks[kind] = mark
            if self._has(kind, mark):
                return
        self._tell(kind, uri)

    def _has(self, kind: Kind, mark: bytes) -> bool:
        """Whether the list that the mark is of is the one of this node."""
        return len(mark) > _MARK and self._list_digest is not None and self._list_digest(kind) == mark[_MARK:]

    def _tell(self, kind: Kind, uri: str | None) -> None:
        for subscriber in list(self._subscribers):
            subscriber.notify(kind, uri)

    def _gap(self) -> None:
        self._node.post(self._catch_up())

    async def _catch_up(self) -> None:
        await self._look(tells=True)
        for kind in list(self._unsaid):  # behind the look: it would hide what others said before
            self._say(kind)

    async def _look(self, *, tells: bool) -> None:
        """Read the marks; with `tells` say of each kind that has another one, and another list, that it has changed."""
        marks = await asyncio.gather(*(self._node.backplane.get(f"c:{kind}") for kind in _KINDS))
        for kind, mark in zip(_KINDS, marks, strict=True):
            if mark is not None and mark != self._marks.get(kind):
                self._marks[kind] = mark
                if tells and not self._has(kind, mark):
                    self._tell(kind, None)

    @property
    def moved(self) -> list[Kind]:
        """The kinds that have ever changed, as far as that is known."""
        return [kind for kind in _KINDS if self._marks.get(kind) is not None]
