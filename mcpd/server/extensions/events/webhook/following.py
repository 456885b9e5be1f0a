"""The events of webhooks on their way from where they are emitted to the subscriptions of this node.

In memory, events come from this process, and their positions are the hub's. On a backplane all nodes append to one log,
and each follows it for the parts that it holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from mcpd.protocol.printable import printable
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.extensions.events.settings import Events
from mcpd.server.extensions.events.wire import Event, order_of
from .delivery import Deliveries, Delivery, DeliverySettings, Item, Link, Outcome
from .send import Sender
from .store import (
    AGAIN,
    CHANGED,
    ENDED,
    EVENT,
    LOST,
    PARTS,
    Letter,
    PartState,
    Store,
    Subscription,
    again,
    entry_of,
    event_entry,
    part_of,
)

log = logging.getLogger("mcpd.events")

_TICK = 5.0
_SAVE_EVERY = 0.25
_LOOK_EVERY = 0.5
_AGAIN_AFTER = 0.5
_SLICE = 256
_BATCH = 1000
_DEAD_FOR = 7 * 24 * 3600.0
_RECENT = 20_000
_MOST_UNSENT, _MOST_UNSENT_BYTES = 10_000, 16 * 1024 * 1024


class Audience(Protocol):
    """What webhooks ask the hub. None of it raises."""

    settings: Events
    newest: tuple[int, ...]

    def know(self, subscription: Subscription) -> None:
        """A subscription is delivered here from now on."""

    def forget(self, subscription_id: str) -> None:
        """It is no longer delivered here."""

    def candidates(self, event: Event) -> Iterable[str]:
        """Return the ids of the known subscriptions that `match` has to be asked about."""

    def match(self, event: Event, subscription: Subscription) -> bytes | None:
        """Return `data` as this subscriber gets it, `event.data` itself if it is unchanged; None if it is not meant."""

    def cursor(self, name: str, position: str) -> str | None:
        """Return the cursor of a position; None for a type without replay."""

    def use_epoch(self, epoch: str) -> None:
        """Make cursors that the other nodes know."""

    def replay(self, name: str, cursor: str, max_age: float | None) -> tuple[list[tuple[str, Event]], bool]:
        """Return the events behind a cursor with their positions, and whether some are missing."""

    def is_open(self, name: str) -> bool:
        """Return whether everybody has access to a type, so that only `revoke` takes it away."""

    def subject_of(self, claims: bytes) -> str:
        """Return the name of a user as authors know it, besides the principal."""

    async def authorize(self, subscription: Subscription) -> bool:
        """Return whether the subscriber still has access."""

    async def ended(self, subscription: Subscription) -> None:
        """A subscription has ended."""


class _Part:
    # A part that this node holds: what was stored, up to which position its subscriptions were matched, and what was
    # waiting before that.
    def __init__(self, state: PartState, raw: bytes | None) -> None:
        self.raw = raw
        self.matched = order_of(state.position)
        self.waiting = {key: dict(waiting) for key, waiting in state.waiting.items()}
        self.is_dirty = True


class Following:
    """What takes events to subscriptions, in the running event loop. Its methods raise BackplaneAway."""

    authorize_every = 300.0

    def __init__(self, hub: Audience, store: Store, sender: Sender, delivery: DeliverySettings) -> None:
        self.hub = hub
        self.store = store
        self.deliveries = Deliveries(sender, delivery, hub.cursor, self._check, self._delivered, self._suspended)
        self.deliveries.position = "-".join(map(str, hub.newest)) if store.is_memory else ""
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self._parts: dict[int, _Part] = {}
        self._others = 0
        # Where this node reads on in the log; None while nobody here wants to know.
        self._position: str | None = None
        self._arrived: Callable[[str, Event], object] | None = None
        self._told: tuple[int, ...] = ()
        # Where the newest events were read first.
        self._recent: dict[tuple[str, str], str] = {}
        self._inbox: deque[tuple[str, Event]] = deque()
        self._taking = asyncio.Lock()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._has_lost = False
        self._wake = asyncio.Event()
        self._settled: list[asyncio.Future[None]] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._runner: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._tick_at = self._save_at = 0.0

    @property
    def is_shared(self) -> bool:
        """Whether events go through a log that other nodes, or this one after a restart, read too."""
        return not self.store.is_memory

    @property
    def clock(self) -> Callable[[], float]:
        """The time in seconds since 1970."""
        return self.deliveries.clock

    # -- its life ----------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin to deliver, also what a store has from before. Safe to call again."""
        if self._runner is not None:
            return
        if not self.store.is_memory:
            try:
                self.hub.use_epoch(await self.store.epoch())
                await self.store.listen(self._wake.set)
                await self._tick()
                await self._follow()  # clients that return with a cursor find what the log has
            except BackplaneAway as error:
                log.warning("webhooks wait for their store: %s", printable(error))

        self._runner = asyncio.create_task(self._run(), name="mcpd-webhooks")

    async def stored(self) -> None:
        """Return once all events so far are in the log, or wait for their receivers."""
        waiter = self._loop.create_future()
        self._settled.append(waiter)
        self._wake.set()
        await waiter

    async def flush(self) -> None:
        """Return once all events so far are stored, and were sent to receivers that can be reached now."""
        await self.stored()
        await self.deliveries.idle()

    async def aclose(self, grace: float = 5.0) -> None:
        """Wait for attempts under way, and leave the rest to the store. Safe to call twice."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        runner.cancel()
        await asyncio.wait([runner])
        self._settle()
        await self.deliveries.stop(grace)
        if self.store.is_memory:
            if self.deliveries.waiting or self._inbox:
                log.warning("%d deliveries of webhooks are lost: no store keeps them", self.deliveries.waiting)
        else:
            try:
                await self._send_out()
                await self._save()
                for part in self._parts:
                    await self.store.release(part)
            except BackplaneAway as error:
                log.warning("the webhooks' last state is not stored: %s", printable(error))

        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        await self._sender.aclose()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        async def quietly() -> None:
            try:
                await work
            except BackplaneAway:
                pass

        task = asyncio.ensure_future(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda _: work.close())  # in case it was cancelled before it began
        return task

    async def _run(self) -> None:
        while True:
            pause = _TICK
            self._wake.clear()
            try:
                if self._loop.time() >= self._tick_at:
                    await self._tick()
                await self._take_inbox()
                if not self.store.is_memory:
                    await self._send_out()
                    await self._follow()
                    if self._loop.time() >= self._save_at:
                        await self._save()
                    pause = _LOOK_EVERY if self.store.is_silent else pause
                if not self._inbox and not self._unsent:
                    self._settle()
                if any(part.is_dirty for part in self._parts.values()):
                    pause = min(pause, max(0.0, self._save_at - self._loop.time()))
            except BackplaneAway as error:
                self._settle(error)
                pause = _AGAIN_AFTER
            except Exception:
                log.exception("webhooks could not go on; they try again")
                pause = _AGAIN_AFTER
            try:
                async with asyncio.timeout(min(pause, max(0.0, self._tick_at - self._loop.time()))):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _settle(self, error: BackplaneAway | None = None) -> None:
        for waiter in self._settled:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(BackplaneAway(str(error)))
        self._settled.clear()

    # -- events ------------------------------------------------------------------------------

    def emitted(self, event: Event, position: str) -> None:
        """Take an event of this process, in the event loop's thread."""
        self._inbox.append((position, event))
        self._wake.set()

    def append(self, event: Event) -> None:
        """Take an event for the log, in the event loop's thread. Over the limit the oldest that wait are dropped."""
        data = event_entry(event)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        while len(self._unsent) > _MOST_UNSENT or self._unsent_bytes > _MOST_UNSENT_BYTES:
            self._unsent_bytes -= len(self._unsent.popleft())
            self._has_lost = True
        self._wake.set()

    def follow(self, arrived: Callable[[str, Event], object]) -> None:
        """Call `arrived` with the position of each event of the log, and the event, in order."""
        self._arrived = arrived
        self._position = ""
        self._wake.set()

    async def _take_inbox(self) -> None:
        async with self._taking:  # one event after the other, or cursors would pass some
            while self._inbox:
                position, event = self._inbox.popleft()
                await self._take(event, position, self.deliveries.position)
                self.deliveries.position = position

    async def _send_out(self) -> None:
        if self._has_lost:
            await self.store.lost()
            self._has_lost = False
        while self._unsent:
            batch = [self._unsent[number] for number in range(min(len(self._unsent), _BATCH))]
            try:
                await self.store.append(batch)
            except BackplaneAway:
                for number, data in enumerate(batch):
                    if number < len(self._unsent) and self._unsent[number] is data:
                        self._unsent[number] = again(data)
                raise
            for data in batch:
                # The bound may have dropped some meanwhile, which have been written all the same.
                if self._unsent and self._unsent[0] is data:
                    self._unsent_bytes -= len(self._unsent.popleft())

    async def _follow(self) -> None:
        while self._position is not None:
            found = await self.store.read(self._position, _BATCH)
            for position, data in found:
                before, self._position = self._position, position
                await self._read(position, before, data)
                self.deliveries.position = position
            if len(found) < _BATCH:
                return

    async def _read(self, position: str, before: str, data: bytes) -> None:
        kind, value = entry_of(data)
        if kind in (EVENT, AGAIN):
            first = self._recent.setdefault((value.name, value.id), position)
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
            if kind == AGAIN and first != position:
                return
            order = order_of(position)
            if self._arrived is not None and order > self._told:  # otherwise a new part made this node read again
                self._told = order
                self._arrived(position, value)
            await self._take(value, position, before)
        elif kind == CHANGED:
            await self._changed(value[0], value[1], position)
        elif kind == LOST:
            for link in list(self.deliveries.links.values()):
                if self._is_new(link, position):
                    self.deliveries.gap(link)
        elif kind == ENDED:
            for link in list(self.deliveries.by_name.get(value[0], {}).values()):
                if self._is_new(link, position):
                    await self._end(link.record, value[1])

    def _is_new(self, link: Link, position: str) -> bool:
        # Whether an entry of the log was not handled before for this subscription.
        return order_of(position) > self._parts[part_of(link.record.id)].matched

    async def _take(self, event: Event, position: str, before: str) -> None:
        item = Item(event, position, before)
        if event.name not in self.deliveries.by_name:
            return
        order = order_of(position) if self._parts else ()
        for number, subscription in enumerate(list(self.hub.candidates(event))):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            link = self.deliveries.links.get(subscription)
            if link is None:
                continue  # it has ended meanwhile
            record = link.record
            attempts = 0
            if self._parts:
                part = self._parts[part_of(record.id)]
                if order <= part.matched:
                    kept = part.waiting.get(record.id, {}).pop(position, None)
                    if kept is None:
                        continue  # it was delivered or given up before this node took over
                    attempts = kept
                part.is_dirty = True
            self._offer(link, item, attempts)

    def _offer(self, link: Link, item: Item, attempts: int = 0) -> None:
        data = self.hub.match(item.event, link.record)
        if data is not None:
            self.deliveries.put(link, item, data, attempts)

    async def _changed(self, subscription: str, created: float, position: str) -> None:
        # A subscription is new, or has changed, or is gone.
        part = self._parts.get(part_of(subscription))
        if part is None or order_of(position) <= part.matched:
            return
        part.is_dirty = True
        found = await self.store.load(subscription)
        if found is None or found[0].is_over(self.clock()):
            self._unlink(subscription)
            return
        record, raw = found
        link = self.deliveries.links.get(subscription)
        if link is not None and link.record.created != record.created:
            self._unlink(subscription)  # it has ended and begun again
            link = None
        is_new = link is None
        if is_new and record.created > created:
            return  # another entry follows
        link = self._link(record, raw)
        if is_new and record.after:
            at = record.after
            while found_log := await self.store.read(at, _BATCH):
                for each, data in found_log:
                    if order_of(each) >= order_of(position):
                        return
                    kind, event = entry_of(data)
                    if kind not in (EVENT, AGAIN) or event.name != record.name:
                        pass
                    elif kind == EVENT or self._recent.get((event.name, event.id)) == each:
                        self._offer(link, Item(event, each, at))
                    at = each

    def _link(self, record: Subscription, raw: bytes) -> Link:
        # Deliver for a stored subscription. What this node knows of its failures is newer than what is stored.
        link = self.deliveries.links.get(record.id)
        if link is not None and not (link.is_suspended and not record.suspended):
            old = link.record
            record.failed_since, record.last_error = old.failed_since, old.last_error
            record.last_delivery = old.last_delivery
        self.hub.know(record)
        return self.deliveries.add(record, raw)

    def _unlink(self, subscription: str) -> None:
        # Deliver no longer for a subscription, whether or not it goes on elsewhere.
        if self.deliveries.remove(subscription) is not None:
            self.hub.forget(subscription)

    # -- parts -------------------------------------------------------------------------------

    async def _tick(self) -> None:
        self._tick_at = self._loop.time() + min(_TICK, self.store.lease / 3)
        if not self.store.is_memory:
            self._others = 0
            for part in range(PARTS):
                if part in self._parts:
                    if not await self.store.renew(part):
                        self._give_up(part)
                elif await self.store.claim(part):
                    await self._take_over(part)
                else:
                    self._others += len((await self.store.state(part))[0].subscriptions)

        # Beside the events: the functions of authors that it calls may take long.
        if self._looking is None or self._looking.done():
            self._looking = self._spawn(self._look_after())

    async def _take_over(self, part: int) -> None:
        state, raw = await self.store.state(part)
        held = _Part(state, raw)
        for subscription in state.subscriptions:
            found = await self.store.load(subscription)
            if found is not None:
                self._link(*found)

        self._parts[part] = held
        # Written at once, so that the node before notices.
        if not await self._put(part, held, state):
            return
        start = state.start if state.waiting else state.position
        if self._position is None or order_of(start) < order_of(self._position):
            self._position = start

    def _give_up(self, part: int) -> None:
        # Another node has the part now.
        self._parts.pop(part, None)
        for subscription in [each for each in self.deliveries.links if part_of(each) == part]:
            self._unlink(subscription)

    async def _save(self) -> None:
        self._save_at = self._loop.time() + _SAVE_EVERY
        position = self._position or ""
        dirty = {part: held for part, held in self._parts.items() if held.is_dirty}
        if not dirty:
            return
        states = {part: PartState(position, position, [], {}) for part in dirty}
        for subscription, link in self.deliveries.links.items():
            state = states.get(part_of(subscription))
            if state is None:
                continue
            state.subscriptions.append(subscription)
            waiting = [
                (each.item.position, each.attempts, each.item.before)
                for each in link.waiting.values()
                if each.item is not None and each.item.before is not None
            ]
            if waiting:
                state.waiting[subscription] = [(at, attempts) for at, attempts, _ in waiting]
                state.start = min(state.start, waiting[0][2] or "", key=order_of)

        size = 0
        for part, state in states.items():
            held = dirty[part]
            if order_of(position) < held.matched:
                continue  # this node still reads what was matched before it
            if await self._put(part, held, state):
                held.matched = order_of(position)
                for subscription, lost in held.waiting.items():
                    if lost and subscription in self.deliveries.links:  # the log keeps them no longer
                        self.deliveries.gap(self.deliveries.links[subscription])
                held.waiting = {}
                size += len(held.raw or b"")

        # Large states are written less often.
        self._save_at = self._loop.time() + _SAVE_EVERY + size / 4_000_000

    async def _put(self, part: int, held: _Part, state: PartState) -> bool:
        state.node = self.store.node
        held.is_dirty = False
        raw = await self.store.put_state(part, state, held.raw)
        if raw is None:
            self._give_up(part)
            return False
        held.raw = raw
        return True

    async def _look_after(self) -> None:
        # End what has lapsed, ask again for access, and forget receivers that were silent for a week.
        now = self.clock()
        for link in list(self.deliveries.links.values()):
            record = link.record
            if record.is_over(now):
                await self._check(link)  # another node may have refreshed it
            elif now - link.checked >= self.authorize_every:
                link.checked = now
                if not await self.hub.authorize(record):
                    await self._end(record, self._forbidden("Access was revoked"))
            elif record.expires is None and link.is_suspended and now - record.suspended >= _DEAD_FOR:
                await self._end(record, self._forbidden("Nothing was accepted for a week"))

    # -- attempts ----------------------------------------------------------------------------

    async def _check(self, link: Link) -> bool:
        # Whether an attempt may be made. Another node may have changed or removed the subscription (EVT-075).
        record = link.record
        if not self.store.is_memory:
            try:
                raw = await self.store.raw(record.id)
            except BackplaneAway:
                raw = link.raw  # as far as is known
            if raw is None:
                self._unlink(record.id)
                self._touch(record)
                return False
            if raw != link.raw:
                changed = self.store.opened(raw)
                if changed is not None:
                    record = self._link(changed, raw).record

        if record.is_over(self.clock()):
            await self._lapse(record)
            return False
        return self.deliveries.links.get(record.id) is link

    def _delivered(self, delivery: Delivery, outcome: Outcome, category: str) -> None:
        record, item = delivery.link.record, delivery.item
        self._touch(record)
        if outcome == "abandoned" and item is not None:
            event = Event(item.event.name, item.event.id, item.event.timestamp, delivery.data)
            self._spawn(self.store.bury(record.id, Letter(event, category, self.clock())))

    def _touch(self, record: Subscription) -> None:
        # The state of a part is to be written again.
        part = self._parts.get(part_of(record.id))
        if part is not None:
            part.is_dirty = True
            self._wake.set()

    def _suspended(self, link: Link) -> None:
        record = link.record
        log.warning("webhook %s is suspended: %s", printable(record.id), printable(record.last_error))
        self._spawn(self._keep_suspension(link))

    async def _keep_suspension(self, link: Link) -> None:
        raw = await self.store.save(link.record, link.raw, self.clock())
        link.raw = raw or link.raw

    # -- what subscriptions end with; see `Webhooks` -----------------------------------------

    async def _lapse(self, record: Subscription) -> None:
        raise NotImplementedError

    async def _end(self, record: Subscription, error: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def _forbidden(self, why: str) -> dict[str, Any]:
        raise NotImplementedError
