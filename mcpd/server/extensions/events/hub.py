"""Where events arrive, and from where they go out: the types of a server, the last events of each, and cursors.

`emit` may be called from any thread. Everything else runs on the loop that serves. Streams, polls and webhooks all go
through `Subscriber.fit`, so they see the same events.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from itertools import count
from secrets import token_bytes, token_hex
from time import time
from typing import Any, Protocol

from msgspec import Struct

from mcpd.errors import ProtocolError, as_told
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from .declare import EventKind, Index, Subscriber, checked_id, principal_of, timestamp_of
from .settings import Events
from .wire import Event, EventFailure, Forbidden, NotFound, Unsupported, canonical, order_of

log = logging.getLogger("mcpd")

# Subscribers that one turn of the event loop serves.
SLICE = 500
# The data of the kept events of one type.
_MOST_RING_BYTES = 64 << 20
# Seconds between two questions whether a subscriber may still have its events.
_ASK_EVERY = 300.0

Order = tuple[int, ...]


class Entry(Struct, eq=False):
    """An event in its place."""

    order: Order
    position: str
    at: float
    event: Event
    payload: Any


class Listener(Protocol):
    """A stream as the hub sees it."""

    subscriber: Subscriber
    due: float
    """When its next heartbeat is due."""

    def offer(self, entry: Entry) -> None:
        """Send an event that has just arrived, if it is for this client."""

    def beat(self, now: float) -> None:
        """Send a heartbeat."""

    def terminate(self, failure: ProtocolError) -> None:
        """Tell the client why its subscription is over, and end."""

    def end(self) -> None:
        """End with the result."""


class Ring:
    """The last events of one type, within a number and an age."""

    def __init__(self, most: int, life: float) -> None:
        self._entries: deque[Entry] = deque()
        self.newest: Order = (0,)
        """The place of the last event."""
        self._most, self._life, self._bytes = most, life, 0
        self.lost: Order = ()
        """The place of the last event that was dropped."""
        self.last_at = 0.0

    def add(self, entry: Entry) -> None:
        """Keep an event, and drop those that are too many or too old."""
        self._entries.append(entry)
        self._bytes += len(entry.event.data)
        self.newest = entry.order
        self.last_at = entry.at
        while self._entries and (len(self._entries) > self._most or self._bytes > _MOST_RING_BYTES):
            self._drop()
        self.drop_old(entry.at)

    def _drop(self) -> None:
        oldest = self._entries.popleft()
        self._bytes -= len(oldest.event.data)
        self.lost = oldest.order

    def drop_old(self, now: float) -> None:
        """Drop the events that are too old."""
        while self._entries and self._entries[0].at < now - self._life:
            self._drop()

    def after(self, order: Order, most: int = SLICE) -> tuple[list[Entry], bool]:
        """Return the first events after a place, and whether there are more."""
        entries = self._entries
        if not entries or entries[-1].order <= order:
            return [], False
        found: list[Entry] = []
        for entry in reversed(entries):  # most callers are near the end
            if entry.order <= order:
                break
            found.append(entry)
        found.reverse()
        return found[:most], len(found) > most

    def since(self, order: Order, moment: float) -> Order:
        """Return the place of the last event after `order` that happened before `moment`; `order` without one."""
        for entry in reversed(self._entries):
            if entry.order <= order:
                break
            if entry.at < moment:
                return entry.order
        return order


class _Pump(deque[Entry]):
    # The events of a type with many subscribers that are on their way, and the task that delivers them.
    task: asyncio.Task[Any]


class Webhooks(Protocol):
    """The engine that delivers webhooks."""

    is_shared: bool

    def append(self, event: Event) -> None:
        """Write an event into the log that several nodes follow."""

    def emitted(self, event: Event, position: str) -> None:
        """Deliver an event. Never waits."""

    async def revoke(self, principal: str, name: str | None = None) -> None:
        """Ask again whether a principal may have its events."""

    async def end(self, name: str, failure: EventFailure) -> None:
        """End all subscriptions to a type."""

    async def flush(self) -> None:
        """Wait until all that was emitted is written."""


class Hub:
    """The event types of one server and their events. `keys` sign cursors; without any they end with the process."""

    def __init__(self, settings: Events, keys: Iterable[bytes]) -> None:
        self.settings = settings
        self.kinds: dict[str, EventKind] = {}
        self.rings: dict[str, Ring] = {}
        self.indexes: dict[str, Index] = {}
        self.streams: dict[Listener, None] = {}
        self.webhooks: Any = None
        self.channels: Callable[[EventKind, Entry], None] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.clock = time
        self.failures = self.emitted = self.delivered = 0
        """How many calls of authors' functions failed, and how many events were emitted, and went out but by webhooks.
        """
        self.newest: Order = (0,)
        self._keys = tuple(keys) or (token_bytes(32),)
        self._kid = hmac.digest(self._keys[0], b"kid", "sha256").hex()[:4]
        self._epoch = token_hex(4)
        self._count = count(1)
        self._ids = token_hex(8)
        self._id_count = count(1)
        self._pumps: dict[str, _Pump] = {}
        self._last_cursor: tuple[str, str, str] = ("", "", "")
        self._known: dict[str, Subscriber] = {}
        self._owners: dict[str, Index] = {}
        self._read: tuple[Event | None, Any] = (None, None)  # the last event that webhooks asked about, and its payload
        self._tasks: set[asyncio.Task[Any]] = set()
        self._beating: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._holds: dict[tuple[str, str, bytes], int] = {}
        self.watches: dict[Any, Any] = {}
        self._endings: dict[str, Callable[[], None]] = {}

    # -- types -------------------------------------------------------------------------------

    def add(self, kind: EventKind) -> None:
        """Add a type, or replace it. A change that old subscribers cannot know ends their subscriptions."""
        before = self.kinds.get(kind.name)
        kind.hub = self
        self.kinds[kind.name] = kind
        self.rings.setdefault(kind.name, Ring(*self.settings.buffer))
        if before is None:
            self.indexes[kind.name] = Index(kind.on)
            return
        feature = changed_feature(before.schemas, kind.schemas)
        if feature or before.is_source != kind.is_source:
            feature = feature or "inputSchema"
            self.end_type(kind.name, Unsupported(feature, reason="schema_changed"))
        else:
            self.on_loop(self._renew, kind)

    def _renew(self, kind: EventKind) -> None:
        # The subscribers of a type that was replaced use its new function.
        self.indexes[kind.name] = index = Index(kind.on)
        known = self._owners[kind.name] = Index(kind.on)
        for stream in self._streams_of(kind.name):
            stream.subscriber = kind.again(stream.subscriber)
            index.add(stream, stream.subscriber)
        for subscription, subscriber in list(self._known.items()):
            if subscriber.kind.name == kind.name:
                self._known[subscription] = again = kind.again(subscriber)
                known.add(subscription, again)
        for watch in self.watches.values():
            watch.renew(kind)

    def remove(self, name: str) -> bool:
        """Remove a type, and end its subscriptions. Returns False if there is none."""
        if self.kinds.pop(name, None) is None:
            return False
        self.end_type(name, NotFound("event", name))
        self.rings.pop(name, None)
        return True

    def end_type(self, name: str, failure: EventFailure) -> None:
        """End all subscriptions to a type."""
        for stream in self._streams_of(name):
            self.on_loop(stream.terminate, failure)
        if self.webhooks is not None:
            self.on_loop(lambda: self.spawn(self.webhooks.end(name, failure)))

    def _streams_of(self, name: str) -> list[Listener]:
        return [stream for stream in list(self.streams) if stream.subscriber.kind.name == name]

    # -- the loop ----------------------------------------------------------------------------

    def on_loop(self, step: Callable[..., object], *args: Any) -> None:
        """Call a function on the loop that serves; at once if this is its thread, or nothing is served yet."""
        loop = self.loop
        if loop is None or loop.is_closed():
            step(*args)
            return
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False

        if is_here:
            step(*args)
        else:
            loop.call_soon_threadsafe(step, *args)

    def enter(self) -> None:
        """Serve on the running loop from now on."""
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.get_running_loop()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in a task; its error is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("Work for events failed", exc_info=as_told(error))

    async def aclose(self) -> None:
        """End streams and timers."""
        for stream in list(self.streams):
            stream.end()
        for timer in (self._beating, self._asking):
            if timer is not None:
                timer.cancel()
        self._beating = self._asking = None
        for task in list(self._tasks):
            task.cancel()

    # -- emitting ----------------------------------------------------------------------------

    def emit(
        self,
        kind: EventKind,
        payload: Any,
        id: str | None = None,
        timestamp: str | float | datetime | None = None,
        to: Principal | str | None = None,
        subscription: str | None = None,
    ) -> str:
        """Check an event, encode it once, and hand it on. Returns its id; never waits."""
        data, read = kind.written(payload)
        known = f"evt_{self._ids}{next(self._id_count):x}" if id is None else checked_id(id)
        whom = to.id if isinstance(to, Principal) else to or ""
        if to is not None and not whom:
            raise ValueError("to: expected a user, and not the anonymous one")
        event = Event(kind.name, known, timestamp_of(timestamp, self.clock()), data, whom, subscription or "")
        self.on_loop(self._emit, event, read)
        return known

    def _emit(self, event: Event, payload: Any) -> None:
        self.emitted += 1
        self.take(event, payload)

    def take(self, event: Event, payload: Any) -> None:
        """Hand on an event: to the log that several nodes follow, or to the subscribers here."""
        if self.webhooks is not None and self.webhooks.is_shared:
            self.webhooks.append(event)
        else:
            self.arrived(str(next(self._count)), event, payload)

    def arrived(self, position: str, event: Event, payload: Any = None) -> None:
        """Deliver an event that has its place."""
        kind = self.kinds.get(event.name)
        if kind is None:
            return
        if payload is None:
            payload = kind.read_payload(event.data)
        order = order_of(position)
        entry = Entry(order, position, self.clock(), event, payload)
        self.newest = max(self.newest, order)
        self.rings[event.name].add(entry)
        # Streams get no events of one webhook; those of a source have places of their own.
        if not event.subscription and (self.indexes[event.name].count or event.name in self._pumps):
            self._deliver(entry)
        if self.webhooks is not None and not self.webhooks.is_shared:
            self._read = event, payload
            self.webhooks.emitted(event, position)
        if kind.channel and self.channels is not None:
            self.channels(kind, entry)

    def _deliver(self, entry: Entry) -> None:
        name = entry.event.name
        waiting = self._pumps.get(name)
        if waiting is not None:
            waiting.append(entry)
            return
        groups = list(self.indexes[name].hits(entry.payload))
        if sum(map(len, groups)) > SLICE and self.loop is not None:
            self._pumps[name] = pump = _Pump([entry])
            pump.task = self.spawn(self._pump(name))
            return

        for group in groups:
            for stream in list(group):
                stream.offer(entry)

    async def _pump(self, name: str) -> None:
        # Deliver the events of a type with many subscribers, in slices between which other work runs.
        waiting = self._pumps[name]
        try:
            while waiting:
                entry = waiting[0]
                streams = [stream for group in self.indexes[name].hits(entry.payload) for stream in group]
                for start in range(0, len(streams), SLICE):
                    for stream in streams[start : start + SLICE]:
                        stream.offer(entry)
                    await asyncio.sleep(0)
                waiting.popleft()
        finally:
            del self._pumps[name]

    def place_for(self, name: str) -> Order | None:
        """Return up to where all events of a type were offered to its streams; None while some are on their way."""
        return None if name in self._pumps else self.newest

    async def flush(self) -> None:
        """Wait until all that was emitted so far was offered to streams, and was taken by webhooks."""
        await asyncio.sleep(0)
        pumps = [waiting.task for waiting in self._pumps.values()]
        if pumps:
            await asyncio.wait(pumps)
        if self.webhooks is not None:
            await self.webhooks.flush()

    # -- cursors -----------------------------------------------------------------------------

    def use_epoch(self, epoch: str) -> None:
        """Give out cursors that other nodes, and this one after a restart, know too."""
        self._epoch = epoch

    def cursor(self, name: str, position: str) -> str | None:
        """Return a position as an opaque cursor; None for a type without replay."""
        kind = self.kinds.get(name)
        if kind is not None and not kind.replay:
            return None
        if self._last_cursor[:2] != (name, position):
            mac = self._mac(self._keys[0], name, self._epoch, position)
            self._last_cursor = (name, position, f"{self._kid}.{self._epoch}.{position}.{mac}")
        return self._last_cursor[2]

    def place(self, name: str, order: Order) -> str | None:
        """Return the cursor of a place."""
        return self.cursor(name, "-".join(map(str, order)))

    def position(self, name: str, cursor: str) -> str | None:
        """Return the position of a cursor; None for one that is not of this type, or of another epoch."""
        parts = cursor.split(".")
        if len(parts) != 4 or parts[1] != self._epoch or not cursor.isascii():
            return None
        _, epoch, position, mac = parts
        if any(hmac.compare_digest(mac, self._mac(key, name, epoch, position)) for key in self._keys):
            return position
        return None

    def _mac(self, key: bytes, name: str, epoch: str, position: str) -> str:
        return hmac.digest(key, f"{name}\0{epoch}.{position}".encode(), "sha256").hex()[:16]

    def begin(self, name: str, cursor: str | None, max_age_ms: int | None) -> tuple[Order, bool]:
        """Return the place after which a subscriber is served, and whether it has missed events."""
        kind, ring = self.kinds[name], self.rings[name]
        if cursor is None or not kind.replay:
            return self.newest, False
        position = self.position(name, cursor)
        if position is None:
            return self.newest, True
        order, now = order_of(position), self.clock()
        if order > self.newest:
            return self.newest, True
        ring.drop_old(now)
        is_lost = order < ring.lost
        begun = max(order, ring.lost)
        if max_age_ms is not None:
            floor = ring.since(begun, now - max_age_ms / 1000)
            is_lost, begun = is_lost or floor > begun, floor
        return begun, is_lost

    # -- for webhooks ------------------------------------------------------------------------

    def know(self, subscription: Any) -> None:
        """Keep a webhook subscription at hand, under its id. One that is known has the rights of its last refresh."""
        kind = self.kinds.get(subscription.name)
        if kind is None:
            return
        try:
            principal = principal_of(subscription.claims)
            subscriber = kind.subscriber(subscription.arguments, principal, "webhook", subscription.id)
        except ProtocolError:
            return  # its arguments no longer fit, and `end_type` has said so

        if (known := self._known.get(subscription.id)) is not None:
            known.context, known.values = subscriber.context, subscriber.values
            return
        self._known[subscription.id] = subscriber
        index = self._owners.setdefault(subscription.name, Index(kind.on))
        index.add(subscription.id, subscriber)
        if (end := kind.look_for(self, subscription.id, subscriber)) is not None:
            self._endings[subscription.id] = end

    def forget(self, subscription_id: str) -> None:
        """Forget a webhook subscription."""
        subscriber = self._known.pop(subscription_id, None)
        if subscriber is not None:
            self._owners[subscriber.kind.name].discard(subscription_id, subscriber)
            if (end := self._endings.pop(subscription_id, None)) is not None:
                end()

    def candidates(self, event: Event) -> list[str]:
        """Return the ids of the known subscriptions whose arguments admit an event."""
        index = self._owners.get(event.name)
        if index is None:
            return []
        return [each for group in index.hits(self._payload(event)) for each in group]

    def match(self, event: Event, subscription: Any) -> bytes | None:
        """Return the data of an event for a webhook subscription; None if it is not for it. Raises nothing."""
        if subscription.id not in self._known:
            self.know(subscription)
        subscriber = self._known.get(subscription.id)
        if subscriber is None:
            return None
        try:
            return subscriber.fit(event, self._payload(event))
        except Exception as error:
            self.failed(event, error)
            return None

    def _payload(self, event: Event) -> Any:
        # By identity: an author may give the same id to events of several types.
        if self._read[0] is not event:
            kind = self.kinds.get(event.name)
            self._read = event, None if kind is None else kind.read_payload(event.data)
        return self._read[1]

    def failed(self, event: Event, error: Exception) -> None:
        """Count and log a function of an author that has failed."""
        self.failures += 1
        log.error("event %s: its function failed", printable(event.name), exc_info=as_told(error))

    def replay(self, name: str, cursor: str, max_age: float | None) -> tuple[list[tuple[str, Event]], bool]:
        """Return the kept events after a cursor, with their positions, and whether some are missing."""
        order, is_lost = self.begin(name, cursor, None if max_age is None else int(max_age * 1000))
        entries, _ = self.rings[name].after(order, self.settings.buffer[0] + 1)
        return [(entry.position, entry.event) for entry in entries], is_lost

    async def authorize(self, subscription: Any) -> bool:
        """Whether a webhook subscription may go on."""
        self.know(subscription)
        subscriber = self._known.get(subscription.id)
        return subscriber is not None and await self.may(subscriber)

    async def ended(self, subscription: Any) -> None:
        """A webhook subscription is over."""
        subscriber = self._known.get(subscription.id)
        self.forget(subscription.id)
        if subscriber is not None:
            await self.release(subscriber)

    # -- access and hooks --------------------------------------------------------------------

    async def may(self, subscriber: Subscriber) -> bool:
        """Whether a subscriber may have its events; not if a function that decides fails."""
        kind, context = subscriber.kind, subscriber.context
        try:
            return await kind.is_visible(context) and bool(await kind.run_hook("authorize", context))
        except Exception as error:
            self.failures += 1
            log.error("event %s: .authorize failed", printable(kind.name), exc_info=as_told(error))
            return False

    def key_of(self, subscriber: Subscriber) -> tuple[str, str, bytes]:
        """Return what is equal for subscribers that share their set-up."""
        return subscriber.kind.name, subscriber.context.principal.id, canonical(subscriber.context.arguments)

    async def hold(self, subscriber: Subscriber) -> None:
        """Run `.subscribed` for the first subscriber with these arguments. Raises what it raises."""
        if not subscriber.kind.hooks:
            return
        key = self.key_of(subscriber)
        self._holds[key] = self._holds.get(key, 0) + 1
        if self._holds[key] == 1:
            try:
                await subscriber.kind.run_hook("subscribed", subscriber.context)
            except BaseException:
                self._drop_hold(key)
                raise

    def _drop_hold(self, key: tuple[str, str, bytes]) -> bool:
        left = self._holds.get(key, 0) - 1
        if left > 0:
            self._holds[key] = left
        else:
            self._holds.pop(key, None)
        return left <= 0

    async def release(self, subscriber: Subscriber) -> None:
        """Run `.unsubscribed` after the last subscriber with these arguments."""
        if not subscriber.kind.hooks or not self._drop_hold(self.key_of(subscriber)):
            return
        try:
            await subscriber.kind.run_hook("unsubscribed", subscriber.context)
        except Exception as error:
            self.failures += 1
            log.error("event %s: .unsubscribed failed", printable(subscriber.kind.name), exc_info=as_told(error))

    def subject_of(self, claims: bytes) -> str:
        """Return the subject of a webhook's subscriber."""
        return principal_of(claims).subject

    def is_open(self, name: str) -> bool:
        """Whether no function decides who may have the events of a type."""
        kind = self.kinds.get(name)
        return kind is not None and kind.is_open

    async def revoke(self, principal: Principal | str) -> None:
        """Ask again whether a user may have events; types without `.authorize` end its subscriptions."""
        whom = principal.id if isinstance(principal, Principal) else principal
        streams = [stream for stream in list(self.streams) if whom in stream.subscriber.to]
        await self._ask(streams, is_revoked=True)
        if self.webhooks is not None:
            await self.webhooks.revoke(whom)

    async def _ask(self, streams: Iterable[Listener], *, is_revoked: bool = False) -> None:
        for stream in streams:
            is_open = self.is_open(stream.subscriber.kind.name)
            if is_revoked if is_open else not await self.may(stream.subscriber):
                stream.terminate(Forbidden(reason="revoked"))

    # -- timers of streams -------------------------------------------------------------------

    def opened(self, stream: Listener) -> None:
        """Deliver to a stream from now on."""
        self.streams[stream] = None
        self.indexes[stream.subscriber.kind.name].add(stream, stream.subscriber)
        loop = asyncio.get_running_loop()
        if self._beating is None:
            self._beating = loop.call_later(self.settings.heartbeat, self._beat)
        if self._asking is None:
            self._asking = loop.call_later(_ASK_EVERY, self._ask_all)

    def closed(self, stream: Listener) -> None:
        """Deliver no more to a stream."""
        self.streams.pop(stream, None)
        index = self.indexes.get(stream.subscriber.kind.name)
        if index is not None:
            index.discard(stream, stream.subscriber)

    def _beat(self) -> None:
        # Streams are in the order in which they were last heard of, or nearly so.
        loop, every = asyncio.get_running_loop(), self.settings.heartbeat
        now = loop.time()
        due = now + every
        for done, stream in enumerate(list(self.streams)):
            if stream.due > now or done == SLICE:
                due = min(due, max(stream.due, now))
                break
            stream.beat(now)
            if stream in self.streams:
                del self.streams[stream]
                self.streams[stream] = None

        self._beating = loop.call_at(due, self._beat) if self.streams else None

    def _ask_all(self) -> None:
        self._asking = None
        if self.streams:
            self._asking = asyncio.get_running_loop().call_later(_ASK_EVERY, self._ask_all)
            self.spawn(self._ask(list(self.streams)))


def changed_feature(before: tuple[Any, Any], now: tuple[Any, Any]) -> str:
    """Return which schema changed so that old subscribers cannot go on: "inputSchema", "payloadSchema" or ""."""
    (old_input, old_payload), (new_input, new_payload) = before, now
    if _is_narrower(old_input, new_input, is_input=True):
        return "inputSchema"
    return "payloadSchema" if _is_narrower(old_payload, new_payload, is_input=False) else ""


def _is_narrower(old: Any, new: Any, *, is_input: bool) -> bool:
    # Additive changes are new members; those of arguments must not be required.
    if not isinstance(old, dict) or not isinstance(new, dict):
        return bool(old != new)
    members, kept = old.get("properties", {}), new.get("properties", {})
    if any(kept.get(name) != schema for name, schema in members.items()):
        return True
    needed, needs = set(old.get("required", ())), set(new.get("required", ()))
    return not (needs <= needed if is_input else needed <= needs)
