"""Types whose events another system keeps: a function finds what came after a cursor, for all ways of delivery.

A poll calls it with the client's own cursor. For streams and webhooks a `Watch` calls it now and then, once for all
subscribers with the same arguments.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from mcpd.errors import RegistrationError
from mcpd.protocol.principal import Principal
from mcpd.protocol.types.base import Result
from mcpd.protocol.types.events import EventParams, EventType, Occurrence, PollParams, PollResult
from mcpd.server.functions.annotations import is_coroutine_function
from mcpd.server.functions.threads import run_in_thread
from .declare import Batch, EventKind, Found, Subscriber, checked_id, timestamp_of
from .hub import Entry, Hub, Ring
from .streams import Stream
from .wire import Event, canonical

if TYPE_CHECKING:
    from mcpd.server.context.exchange import Exchange

# Returns what a server that is mounted has after a cursor: (arguments, cursor, user, most) -> a batch.
Remote = Callable[[Mapping[str, Any], str | None, Principal, int], Awaitable[Batch[Any]]]

_SHORTEST, _LONGEST = 1.0, 86_400.0
_SKIPPING = re.compile(r"\+(\d{1,9}):")


class SourceKind(EventKind):
    """A type whose function returns a `Batch` after a cursor."""

    is_source = True

    def __init__(self, name: str, function: Any, *, every: float = 30.0, remote: Remote | None = None, **more: Any):
        super().__init__(name, function, **more)
        if not _SHORTEST <= every <= _LONGEST:
            raise RegistrationError(f"event {name!r}, every: expected 1 second to a day, not {every!r}")
        self.every = every
        self._remote = remote
        if self.callee is not None and self.callee.context_name is not None:
            self.private = True  # what it finds for one user is not for another
        # Its cursors are those of the other system, which the hub does not know.
        self.replay = False

    async def check(self, cursor: str | None, subscriber: Subscriber, most: int) -> Batch[Any]:
        """Return what came after a cursor. Raises what the function raises."""
        batch: Any
        if self._remote is not None:
            batch = await self._remote(subscriber.context.arguments, cursor, subscriber.context.principal, most)
        elif is_coroutine_function(self.function):
            assert self.function is not None
            batch = await self.function(cursor, **subscriber.values)
        else:
            function: Any = self.function
            batch = await run_in_thread(lambda: function(cursor, **subscriber.values))

        if not isinstance(batch, Batch):
            raise TypeError(f"event {self.name!r}: its function must return a Batch, not {type(batch).__qualname__}")
        return batch

    async def look(
        self, cursor: str | None, subscriber: Subscriber, most: int, *, is_going_on: bool = False
    ) -> tuple[list[tuple[Event, str | None]], Batch[Any]]:
        """Return the events after a cursor, each with the cursor after it. A cursor that is refused leads to a gap.

        Without a cursor there are none, unless a watch goes on that has none.
        """
        base, skipped = _split(cursor)
        try:
            batch = await self.check(base, subscriber, most)
        except (LookupError, ValueError):
            if base is None:
                raise
            fresh = await self.check(None, subscriber, most)
            batch = Batch(cursor=fresh.cursor, truncated=True)

        events = [] if base is None and not is_going_on else [self._event(item) for item in batch.events]
        found: list[tuple[Event, str | None]] = []
        for number, (event, own) in enumerate(events[skipped:], skipped + 1):
            is_last = number == len(events)
            found.append((event, own or (_encoded(batch.cursor, 0) if is_last else _encoded(base, number))))
        return found, batch

    def look_for(self, hub: Any, subscription: str, subscriber: Subscriber) -> Callable[[], None] | None:
        """Look for events of a webhook subscription too. Returns what ends that."""
        watch = watch_for(hub, subscriber)
        watch.webhooks[subscription] = None

        def forget() -> None:
            watch.webhooks.pop(subscription, None)
            watch.leave()

        return forget

    def _event(self, item: Any) -> tuple[Event, str | None]:
        one = item if isinstance(item, Found) else Found(item)
        data, _ = self.written(one.payload)
        known = sha256(self.name.encode() + b"\0" + data).hexdigest()[:32] if one.id is None else checked_id(one.id)
        now = datetime.now().timestamp()
        return Event(self.name, known, timestamp_of(one.timestamp, now), data), _encoded(one.cursor, 0)


def remote_kind(described: EventType, remote: Remote, every: float) -> SourceKind:
    """Return a type of another server, with its schemas as they are."""
    return SourceKind(
        described.name,
        None,
        every=every,
        remote=remote,
        description=described.description,
        private=True,
        meta=described.meta,
        schemas=(described.input_schema, described.payload_schema),
    )


# A cursor inside of a batch is the cursor before it, and how many of its events to skip.


def _encoded(cursor: str | None, skipped: int) -> str | None:
    if cursor is None:
        return None
    return f"+{skipped}:{cursor}" if skipped or cursor.startswith("+") else cursor


def _split(cursor: str | None) -> tuple[str | None, int]:
    match = None if cursor is None else _SKIPPING.match(cursor)
    return (cursor, 0) if match is None or cursor is None else (cursor[match.end() :], int(match[1]))


def _is_old(event: Event, floor: float | None) -> bool:
    return floor is not None and datetime.fromisoformat(event.timestamp).timestamp() < floor


def _floor(hub: Hub, max_age_ms: int | None) -> float | None:
    return None if max_age_ms is None else hub.clock() - max_age_ms / 1000


async def poll_source(hub: Hub, subscriber: Subscriber, params: PollParams, most: int) -> Result:
    """Answer a poll with what the function finds after the client's cursor."""
    kind: Any = subscriber.kind
    found, batch = await kind.look(params.cursor, subscriber, most)
    floor = _floor(hub, params.max_age_ms)
    fresh = [one for one in found if not _is_old(one[0], floor)]
    shown, is_cut = fresh[:most], len(fresh) > most
    hub.delivered += len(shown)
    return PollResult(
        events=[
            Occurrence(event_id=event.id, name=event.name, timestamp=event.timestamp, data=Raw(event.data))
            for event, _ in shown
        ],
        cursor=shown[-1][1] if is_cut else _encoded(batch.cursor, 0),
        truncated=params.cursor is not None and (batch.truncated or len(fresh) < len(found)),
        has_more=params.cursor is not None and (is_cut or batch.has_more),
        next_poll_ms=max(2000, min(30_000, int(kind.every * 1000))),
    )


class Watch:
    """Looks for new events with one set of arguments, as long as somebody wants them."""

    def __init__(self, hub: Hub, key: Any, subscriber: Subscriber) -> None:
        self.hub = hub
        self.kind: Any = subscriber.kind
        self.cursor: str | None = None
        self.ring = Ring(*hub.settings.buffer)
        self.streams: dict[SourceStream, None] = {}
        self.webhooks: dict[str, None] = {}
        self.has_begun = asyncio.Event()
        self._key = key
        self._subscriber = subscriber
        self._count = count(1)
        self._task = hub.spawn(self._run())

    def leave(self) -> None:
        """End, if nobody is left."""
        if not self.streams and not self.webhooks:
            self.hub.watches.pop(self._key, None)
            self._task.cancel()

    def renew(self, kind: EventKind) -> None:
        """Look with the function of the type that replaces this one's."""
        if kind.name == self.kind.name:
            self.kind, self._subscriber = kind, kind.again(self._subscriber)

    async def _run(self) -> None:
        while True:
            pause = self.kind.every
            try:
                is_first = not self.has_begun.is_set()
                most = self.hub.settings.buffer[0]
                found, batch = await self.kind.look(self.cursor, self._subscriber, most, is_going_on=not is_first)
                if is_first or batch.cursor is not None:
                    self.cursor = _encoded(batch.cursor, 0)
                for event, cursor in found:
                    self._arrived(event, cursor)
                if batch.truncated and not is_first:
                    for stream in list(self.streams):
                        stream.say_gap()
                if batch.has_more and found:
                    pause = 0.0
                self.has_begun.set()
            except Exception as error:
                self.hub.failed(Event(self.kind.name, "", "", b""), error)
            await asyncio.sleep(pause)

    def _arrived(self, event: Event, cursor: str | None) -> None:
        self.hub.emitted += 1
        number = next(self._count)
        entry = Entry((number,), cursor or "", self.hub.clock(), event, None)
        self.ring.add(entry)
        for stream in list(self.streams):
            stream.offer(entry)
        for subscription in list(self.webhooks):
            self.hub.take(Event(event.name, event.id, event.timestamp, event.data, "", subscription), {})


def watch_for(hub: Hub, subscriber: Subscriber) -> Watch:
    """Return the watch that serves a subscriber; it begins with the first one."""
    whose = subscriber.context.principal.id if subscriber.kind.private else ""
    key = subscriber.kind.name, canonical(subscriber.context.arguments), whose
    watch = hub.watches.get(key)
    if watch is None:
        watch = hub.watches[key] = Watch(hub, key, subscriber)
    return watch


class SourceStream(Stream):
    """A stream of a type whose events another system keeps."""

    def __init__(self, hub: Hub, subscriber: Subscriber, exchange: Exchange, params: EventParams) -> None:
        super().__init__(hub, subscriber, exchange, ())
        self._kind: Any = subscriber.kind
        self._params = params
        self._last: str | None = params.cursor
        self._seen: set[str] = set()
        self._watch = watch_for(hub, subscriber)
        self._watch.streams[self] = None

    async def begin(self) -> Result:
        """Deliver until the client cancels, or the stream ends; then return its result."""
        watch = self._watch
        self.ring = watch.ring
        try:
            is_truncated = False
            early: list[tuple[Event, str | None]] = []
            await watch.has_begun.wait()  # or what comes until then would be found neither here nor by the watch
            if self._params.cursor is None:
                self._last = watch.cursor
                self.order = self._newest()
            else:
                self.order = self._newest()
                early, is_truncated = await self._missed(self._params.cursor)
            return await self.run(is_truncated, early)
        finally:
            watch.streams.pop(self, None)
            watch.leave()

    async def _missed(self, cursor: str | None) -> tuple[list[tuple[Event, str | None]], bool]:
        # Return what the other system has after the client's cursor. Meanwhile the watch fills its ring.
        floor = _floor(self.hub, self._params.max_age_ms)
        missed: list[tuple[Event, str | None]] = []
        is_truncated = False
        while True:
            found, batch = await self._kind.look(cursor, self.subscriber, self.hub.settings.buffer[0])
            is_truncated = is_truncated or batch.truncated
            for event, own in found:
                if _is_old(event, floor):
                    is_truncated = True
                else:
                    missed.append((event, own))
                self._seen.add(event.id)
            if is_truncated and not missed:
                self._last = _encoded(batch.cursor, 0)
            if not batch.has_more or not found or len(missed) >= self.hub.settings.buffer[0]:
                return missed, is_truncated
            cursor = found[-1][1]

    def say_gap(self) -> None:
        """Tell the client that the other system has lost events."""
        if not self._is_behind:
            self._last = self._watch.cursor
            self._say_active(True)

    def _newest(self) -> tuple[int, ...]:
        if not self._is_behind:
            self._last = self._watch.cursor or self._last
        return self._watch.ring.newest

    def _send(self, entry: Entry, *, is_early: bool = False) -> Any:
        if not is_early and entry.event.id in self._seen:
            self.order = entry.order
            return None
        return super()._send(entry)

    def _cursor_of(self, entry: Entry) -> str | None:
        self._last = entry.position or self._last
        return entry.position or None

    def _cursor(self) -> str | None:
        return self._last
