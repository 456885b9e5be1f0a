"""The methods of events. Each checks in this order: principal, event, mode, arguments, access, limits (EVT-013)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from msgspec import Raw

from mcpd.errors import InvalidParams
from mcpd.protocol.types.base import EmptyResult, PageParams, Result
from mcpd.protocol.types.events import (
    EventParams,
    Occurrence,
    PollParams,
    PollResult,
    SubscribeParams,
    UnsubscribeParams,
)
from mcpd.protocol.versions import table
from mcpd.server.context.exchange import OPEN_TO_MANY, Exchange, finished
from mcpd.server.extensions.base import Method
from mcpd.server.registry.entries import Listing
from .declare import EventContext, EventKind, Subscriber, claims_of
from .hub import SLICE, Entry, Hub
from .wire import Forbidden, NotFound, ResourceExhausted, Unsupported

# Milliseconds between two polls: right after an event, and when nothing happens.
_SOON_MS, _LATE_MS = 2_000, 30_000
# Polls and subscriptions of one client per second, and how many may come at once.
_POLLS, _SUBSCRIBES, _BURST = 20.0, 10.0, 100


# Seconds for which the hooks of a type stay set up for a client that polls.
_LEASE = 300.0
_MOST_RATES = 10_000


class Rates:
    """How often something may be done, by key."""

    def __init__(self) -> None:
        self._left: dict[Any, tuple[float, float]] = {}

    def take(self, key: Any, rate: float, burst: float) -> bool:
        """Whether something may be done once more: `rate` times a second, and `burst` at once."""
        now = monotonic()
        left, when = self._left.pop(key, (burst, now))
        left = min(burst, left + (now - when) * rate)
        self._left[key] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > _MOST_RATES:
            del self._left[next(iter(self._left))]
        return left >= 1


class Leases:
    """Keeps the hooks of types set up for clients that poll, for some minutes after each poll."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._timers: dict[Any, asyncio.TimerHandle] = {}

    async def extend(self, subscriber: Subscriber) -> None:
        """Begin or prolong the lease of a client with these arguments."""
        if "subscribed" not in subscriber.kind.hooks and "unsubscribed" not in subscriber.kind.hooks:
            return
        key = self._hub.key_of(subscriber)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(_LEASE, self._over, key, subscriber)
        if timer is None:
            try:
                await self._hub.hold(subscriber)
            except BaseException:
                self._timers.pop(key).cancel()  # the next poll sets it up again
                raise

    def _over(self, key: Any, subscriber: Subscriber) -> None:
        self._timers.pop(key, None)
        self._hub.spawn(self._hub.release(subscriber))

    def end(self) -> None:
        """End all leases, without their hooks: the process ends."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class Served(Protocol):
    """The events of a server, as its methods see them."""

    hub: Hub
    listing: Listing[EventKind]
    rate: Rates
    leases: Leases
    stream_counts: dict[object, int]

    async def open_webhooks(self) -> Any:
        """Return the engine of webhooks."""


def has_polls(exchange: Exchange) -> bool:
    """Return whether the client's version has polls and streams, and not only webhooks."""
    return exchange.call.session.vocabulary.request(exchange.call.version, "events/poll") is not None


def modes_for(exchange: Exchange) -> frozenset[str]:
    """Return the modes that a caller can use."""
    origin = exchange.origin
    modes = {"poll", "push"} if has_polls(exchange) else set()
    if origin.user.is_authenticated and origin.transport != "stdio":
        modes.add("webhook")
    return frozenset(modes)


async def list_events(events: Served, exchange: Exchange, params: PageParams) -> Result:
    """Return one page of the event types that this caller may see and can use."""
    modes, hidden = modes_for(exchange), set()
    context = EventContext(principal=exchange.origin.user)
    for kind in events.listing:
        if modes.isdisjoint(kind.offered) or not await _is_visible(events.hub, kind, context):
            hidden.add(kind.name)
    result: Result = events.listing.page(modes, params.cursor, frozenset(hidden))
    return result


async def _is_visible(hub: Hub, kind: EventKind, context: EventContext) -> bool:
    try:
        return await kind.is_visible(context)
    except Exception as error:
        from .wire import Event

        hub.failed(Event(kind.name, "", "", b""), error)
        return False


async def _subscriber(
    hub: Hub, exchange: Exchange, name: str, arguments: Raw, mode: str, subscription: str = ""
) -> Subscriber:
    # Return who asks for events. Raises the first fault.
    kind, principal = hub.kinds.get(name), exchange.origin.user
    if kind is None or not await _is_visible(hub, kind, EventContext(principal=principal, mode=mode)):
        raise NotFound("event", name)
    subscriber = _plainly(kind, exchange, arguments, mode, subscription)
    if "authorize" in kind.hooks and not await hub.may(subscriber):
        raise Forbidden
    return subscriber


def _plainly(kind: EventKind, exchange: Exchange, arguments: Raw, mode: str, subscription: str = "") -> Subscriber:
    if mode not in kind.offered:
        raise Unsupported("deliveryMode", mode)
    return kind.subscriber(arguments, exchange.origin.user, mode, subscription)


def _check_age(params: EventParams) -> None:
    if params.max_age_ms is not None and params.max_age_ms < 0:
        raise InvalidParams("maxAgeMs: expected a number of milliseconds, not a negative one")


def owner_of(exchange: Exchange) -> object:
    """Return whose share of the limits a request uses."""
    user = exchange.origin.user
    session = exchange.call.session
    return user.id or session.owner or id(session)


# -- poll ----------------------------------------------------------------------------------------


def poll(events: Served, exchange: Exchange, params: PollParams) -> Any:
    """Return the events after a cursor. Without a cursor there are none, and a cursor to begin with."""
    hub = events.hub
    _check_age(params)
    most = SLICE if params.max_events is None else params.max_events
    if most < 1:
        raise InvalidParams("maxEvents: expected at least 1")
    kind = hub.kinds.get(params.name)
    if kind is None or kind.is_source or kind.shows is not None or kind.hooks:
        return _poll_checked(events, exchange, params, min(most, SLICE))
    subscriber = _plainly(kind, exchange, params.arguments, "poll")
    _count_poll(events, exchange)
    return _polled(hub, subscriber, params, min(most, SLICE))


async def _poll_checked(events: Served, exchange: Exchange, params: PollParams, most: int) -> Result:
    hub = events.hub
    subscriber = await _subscriber(hub, exchange, params.name, params.arguments, "poll")
    _count_poll(events, exchange)
    if subscriber.kind.is_source:
        from .sources import poll_source  # few servers have one

        return await poll_source(hub, subscriber, params, most)
    await events.leases.extend(subscriber)
    result = _polled(hub, subscriber, params, most)
    return await finished(result)  # type: ignore[no-any-return]


def _count_poll(events: Served, exchange: Exchange) -> None:
    if exchange.origin.transport in OPEN_TO_MANY and not events.rate.take(("poll", owner_of(exchange)), _POLLS, _BURST):
        raise ResourceExhausted("polls", int(_POLLS), f"At most {_POLLS:g} polls a second: wait nextPollMs")


def _polled(hub: Hub, subscriber: Subscriber, params: PollParams, most: int) -> Any:
    name = subscriber.kind.name
    order, is_truncated = hub.begin(name, params.cursor, params.max_age_ms)
    ring = hub.rings[name]
    if params.cursor is not None:
        entries, has_more = ring.after(order)
        if entries:
            return _collected(hub, subscriber, is_truncated, most, (entries, has_more))

    quiet = int((hub.clock() - ring.last_at) * 1000)
    return PollResult(
        events=[],
        cursor=hub.place(name, hub.newest),
        truncated=is_truncated,
        has_more=False,
        next_poll_ms=max(_SOON_MS, min(quiet, _LATE_MS)),
    )


async def _collected(
    hub: Hub, subscriber: Subscriber, is_truncated: bool, most: int, found: tuple[list[Entry], bool]
) -> PollResult:
    kind, ring = subscriber.kind, hub.rings[subscriber.kind.name]
    events: list[Occurrence] = []
    entries, is_more = found
    order, newest = entries[0].order, hub.newest
    while True:
        for number, entry in enumerate(entries, 1):
            order = entry.order
            try:
                data = subscriber.fit(entry.event, entry.payload)
            except Exception as error:
                hub.failed(entry.event, error)
                continue
            if data is not None:
                event = entry.event
                events.append(Occurrence(
                    event_id=event.id, name=event.name, timestamp=event.timestamp, data=Raw(data)
                ))  # fmt: skip
                if len(events) == most:
                    is_more = is_more or number < len(entries)
                    break
        if len(events) == most or not is_more:
            break
        await asyncio.sleep(0)  # a long ring whose events are mostly for others
        entries, is_more = ring.after(order)
        newest = hub.newest

    hub.delivered += len(events)
    return PollResult(
        events=events,
        cursor=hub.place(kind.name, order if is_more else max(order, newest)),
        truncated=is_truncated,
        has_more=is_more,
        next_poll_ms=_SOON_MS,
    )


# -- streams and webhooks ------------------------------------------------------------------------


async def stream(events: Served, exchange: Exchange, params: EventParams) -> Result:
    """Open a stream of events."""
    hub = events.hub
    _check_age(params)
    subscriber = await _subscriber(hub, exchange, params.name, params.arguments, "push")
    owner, most = owner_of(exchange), hub.settings.streams
    count = events.stream_counts.get(owner, 0)
    if count >= most:
        raise ResourceExhausted("streams", most)
    events.stream_counts[owner] = count + 1
    try:
        await hub.hold(subscriber)
        try:
            return await _streamed(hub, exchange, subscriber, params)
        finally:
            hub.spawn(hub.release(subscriber))
    finally:
        events.stream_counts[owner] -= 1
        if not events.stream_counts[owner]:
            del events.stream_counts[owner]


async def _streamed(hub: Hub, exchange: Exchange, subscriber: Subscriber, params: EventParams) -> Result:
    if hub.kinds.get(params.name) is not subscriber.kind:
        raise NotFound("event", params.name)  # it was removed while its hooks ran
    if subscriber.kind.is_source:
        from .sources import SourceStream  # few servers have one

        return await SourceStream(hub, subscriber, exchange, params).begin()
    from .streams import Stream  # few clients open one

    order, is_truncated = hub.begin(params.name, params.cursor, params.max_age_ms)
    return await Stream(hub, subscriber, exchange, order).run(is_truncated)


def _webhook_user(exchange: Exchange) -> Any:
    user = exchange.origin.user
    if "webhook" not in modes_for(exchange):
        raise Forbidden("Webhooks need a caller with an identity: send a token", "no_principal")
    return user


async def subscribe(events: Served, exchange: Exchange, params: SubscribeParams) -> Result:
    """Subscribe a webhook, or refresh its subscription."""
    user = _webhook_user(exchange)
    _check_age(params)
    mode = params.delivery.mode
    try:
        subscriber = await _subscriber(events.hub, exchange, params.name, params.arguments, mode)
    except Forbidden:
        if events.hub.webhooks is not None:  # it may have been a refresh, and what it refreshed is over too
            await events.hub.webhooks.revoke(user.id, params.name)
        raise

    if mode != "webhook":
        raise Unsupported("deliveryMode", mode)
    if not events.rate.take(("subscribe", user.id), _SUBSCRIBES, _BURST):
        raise ResourceExhausted("subscribes", int(_SUBSCRIBES))
    engine = await events.open_webhooks()

    async def subscribed() -> None:
        await events.hub.hold(subscriber)

    result: Result = await engine.subscribe(
        user.id,
        params.name,
        dict(subscriber.context.arguments),
        params.delivery.url,
        params.delivery.secret,
        ttl=params.ttl_ms,
        cursor=params.cursor,
        max_age=None if params.max_age_ms is None else params.max_age_ms / 1000,
        claims=claims_of(user),
        subscribed=subscribed,
    )
    return result


async def unsubscribe(events: Served, exchange: Exchange, params: UnsubscribeParams) -> Result:
    """End a webhook subscription."""
    user = _webhook_user(exchange)
    from mcpd.protocol.jsonrpc import read_object

    arguments = read_object(params.arguments, "arguments")
    engine = await events.open_webhooks()
    if not await engine.unsubscribe(user.id, params.name, arguments, params.delivery.url):
        raise NotFound("subscription")
    return EmptyResult()


_MODERN = table.MODERN
# Clients that speak an older version have webhooks only, for ChatGPT (EVT-002).
_ROWS: dict[str, tuple[Any, Callable[..., Any], Any]] = {
    "events/list": (PageParams, list_events, None),
    "events/poll": (PollParams, poll, _MODERN),
    "events/stream": (EventParams, stream, _MODERN),
    "events/subscribe": (SubscribeParams, subscribe, None),
    "events/unsubscribe": (UnsubscribeParams, unsubscribe, None),
}

METHODS = {name: Method(params=params, run=run, versions=versions) for name, (params, run, versions) in _ROWS.items()}

NOTIFICATIONS = {
    **{f"notifications/events/{what}": _MODERN for what in ("active", "event", "heartbeat", "error", "terminated")},
    "notifications/events/list_changed": _MODERN,
    "notifications/claude/channel": None,
}
