"""What waits to be delivered, in which order it is sent, and what follows from each answer. It keeps nothing itself.

Each host has a queue, in which its subscriptions take turns; hosts take turns, too. So a receiver that is slow or gone
delays its own deliveries only (EVT-062).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from secrets import token_hex
from time import time
from typing import Any, Literal, TypeAlias

from msgspec import Raw, Struct
from msgspec.json import encode

from mcpd.server.extensions.events.wire import Event
from .consent import message_headers
from .send import Answer, Category, Sender, Target, Unreached, read_url
from .store import Subscription

_FLYING = 256
_FLYING_BUSY = 128
_FLYING_EACH_HOST = 8
_FLYING_EACH = 4
_BACK_OFF = (1.0, 300.0)
_NEVER_AGAIN = (410, 413)
_SAMPLE, _SAMPLE_SECONDS, _MOST_FAILING = 100, 3600.0, 0.95
_ENVELOPE = 400

Outcome: TypeAlias = Literal["accepted", "abandoned"]


class DeliverySettings(Struct, frozen=True, kw_only=True):
    """Times in seconds, and limits. `rate` is deliveries a second to one host."""

    delays: tuple[float, ...] = (5.0, 30.0, 120.0, 360.0)
    window: float = 720.0
    rate: float = 50.0
    waiting: int = 1000
    waiting_bytes: int = 4 * 1024 * 1024
    waiting_bytes_each: int = 32 * 1024 * 1024
    waiting_bytes_total: int = 256 * 1024 * 1024
    failing_for: float = 24 * 3600.0
    ids: Literal["event", "message"] = "event"
    has_gaps: bool = True


class Item:
    """An event with its place in the log; `uses` counts the deliveries that hold it."""

    __slots__ = ("before", "event", "position", "uses")

    def __init__(self, event: Event, position: str, before: str | None) -> None:
        """`before` is the position before this one; None for an event that is sent outside the order."""
        self.event, self.position, self.before, self.uses = event, position, before, 0

    @property
    def size(self) -> int:
        """Its bytes in memory, about."""
        return len(self.event.data) + _ENVELOPE


class Delivery:
    """One event on its way to one subscription, or a `gap` without an item."""

    __slots__ = ("attempts", "cursor", "data", "first", "is_flying", "is_over", "item", "link", "timer")

    def __init__(self, link: Link, item: Item | None, data: bytes, attempts: int = 0) -> None:
        self.link, self.item, self.data, self.attempts = link, item, data, attempts
        self.cursor: str | None = ""  # "" until the first attempt
        self.first = 0.0
        self.is_flying = self.is_over = False
        self.timer: asyncio.TimerHandle | None = None


class Link:
    """A subscription whose events are delivered here."""

    __slots__ = (
        "attempts", "bytes", "checked", "due", "failures", "flying", "has_gap", "host", "is_queued", "raw", "record",
        "since", "tasks", "waiting",
    )  # fmt: skip

    def __init__(self, record: Subscription, raw: bytes, host: Host, now: float) -> None:
        self.record, self.raw, self.host = record, raw, host
        # By position, in the order of the log; and what can be sent now.
        self.waiting: dict[str, Delivery] = {}
        # Lists, because an empty deque or set takes as much memory as all the rest.
        self.due: list[Delivery] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.bytes = self.flying = 0
        self.has_gap = self.is_queued = False
        self.checked = now
        # Attempts and failures since a time, for the suspension.
        self.since, self.attempts, self.failures = now, 0, 0

    @property
    def is_suspended(self) -> bool:
        """Whether nothing is sent until a refresh."""
        return self.record.suspended > 0


class Host:
    """One receiving machine, by the origin of its URLs."""

    __slots__ = ("failures", "flying", "is_ready", "is_throttled", "links", "retry_at", "timer", "tokens", "tokens_at",
                 "uses")  # fmt: skip

    def __init__(self, now: float, rate: float) -> None:
        self.links: deque[Link] = deque()
        self.flying = self.failures = self.uses = 0
        self.retry_at = 0.0
        self.tokens, self.tokens_at = rate, now
        self.is_ready = self.is_throttled = False
        self.timer: asyncio.TimerHandle | None = None


class Deliveries:
    """All deliveries of this node. `check` is asked before each attempt; False drops the subscription."""

    clock: Callable[[], float] = staticmethod(time)

    def __init__(
        self,
        sender: Sender,
        settings: DeliverySettings,
        cursor_of: Callable[[str, str], str | None],
        check: Callable[[Link], Coroutine[Any, Any, bool]],
        ended: Callable[[Delivery, Outcome, str], None],
        suspended: Callable[[Link], None],
    ) -> None:
        self.settings = settings
        self.links: dict[str, Link] = {}
        self.by_name: dict[str, dict[str, Link]] = {}
        self.counts = {"accepted": 0, "failed": 0, "abandoned": 0, "dropped": 0, "gaps": 0}
        self._sender = sender
        self._cursor_of, self._check, self._ended, self._suspended = cursor_of, check, ended, suspended
        self._loop = asyncio.get_running_loop()
        self._hosts: dict[str, Host] = {}
        self._ready: deque[Host] = deque()
        self._flying = 0
        self._bytes = 0
        self._bytes_of: dict[str, int] = {}
        self._idle: list[asyncio.Future[None]] = []
        self.is_stopped = False
        self.position = ""
        """The newest position of the log that was handed out here."""

    # -- subscriptions -----------------------------------------------------------------------

    def add(self, record: Subscription, raw: bytes) -> Link:
        """Deliver for a subscription from now on, or take over what a refresh has changed."""
        link = self.links.get(record.id)
        if link is not None:
            was_suspended = link.is_suspended
            link.record, link.raw = record, raw
            if was_suspended and not link.is_suspended:
                self._revive(link)
            return link

        target = read_url(record.url)
        host = self._hosts.get(target.origin)
        if host is None:
            host = self._hosts[target.origin] = Host(self._loop.time(), self.settings.rate)
        host.uses += 1
        link = self.links[record.id] = Link(record, raw, host, self.clock())
        self.by_name.setdefault(record.name, {})[record.id] = link
        return link

    def _revive(self, link: Link) -> None:
        link.since, link.attempts, link.failures = self.clock(), 0, 0
        link.host.failures, link.host.retry_at = 0, 0.0
        for delivery in list(link.waiting.values()):
            if not delivery.is_flying:
                self._stop_timer(delivery)
                delivery.attempts, delivery.first = 0, 0.0  # suspension stops that clock (EVT-058)
                self._due(delivery)
        if link.has_gap:
            self._due(Delivery(link, None, b""), is_first=True)

    def remove(self, subscription: str) -> Link | None:
        """Drop a subscription with all that waits, and abort its attempts (EVT-046, EVT-063)."""
        link = self.links.pop(subscription, None)
        if link is None:
            return None
        named = self.by_name[link.record.name]
        del named[subscription]
        if not named:
            del self.by_name[link.record.name]
        for delivery in [*link.waiting.values(), *link.due]:
            if not delivery.is_over:
                self._leave(delivery)
        link.due.clear()
        for task in list(link.tasks):
            if task is not asyncio.current_task():
                task.cancel()
        link.host.uses -= 1
        if not link.host.uses:
            self._hosts.pop(read_url(link.record.url).origin, None)
        self._wake_idle()
        return link

    # -- what waits --------------------------------------------------------------------------

    def put(self, link: Link, item: Item, data: bytes, attempts: int = 0) -> None:
        """Let an event wait for a subscription, within the limits."""
        if item.position in link.waiting:
            return
        delivery = Delivery(link, item, data, attempts)
        link.waiting[item.position] = delivery
        self._count(delivery, 1)
        limits, principal = self.settings, link.record.principal
        while (
            len(link.waiting) > limits.waiting
            or link.bytes > limits.waiting_bytes
            or self._bytes_of.get(principal, 0) > limits.waiting_bytes_each
            or self._bytes > limits.waiting_bytes_total
        ) and self._drop_oldest(link):
            pass

        if not delivery.is_over:
            self._due(delivery)

    def _count(self, delivery: Delivery, sign: int) -> None:
        # Count a delivery that begins (1) or ends (-1) to wait. An event is counted once, whoever waits for it.
        item, link = delivery.item, delivery.link
        assert item is not None
        own = 0 if delivery.data is item.event.data else len(delivery.data)
        link.bytes += sign * (own + item.size)
        before, item.uses = item.uses, item.uses + sign
        self._bytes += sign * (own + (item.size if not before or not item.uses else 0))
        principal = link.record.principal
        left = self._bytes_of.pop(principal, 0) + sign * (own + item.size)
        if left > 0:
            self._bytes_of[principal] = left

    def _drop_oldest(self, link: Link) -> bool:
        delivery = next((each for each in link.waiting.values() if not each.is_flying), None)
        if delivery is None:
            return False
        self._leave(delivery)
        self.counts["dropped"] += 1
        self.gap(link)
        return True

    def gap(self, link: Link) -> None:
        """Tell a receiver once that events were skipped (EVT-065)."""
        if link.has_gap or not self.settings.has_gaps or self._cursor_of(link.record.name, self.position) is None:
            return
        link.has_gap = True
        self.counts["gaps"] += 1
        self._due(Delivery(link, None, b""), is_first=True)

    def _leave(self, delivery: Delivery) -> None:
        # The delivery is over, in whatever way.
        delivery.is_over = True
        self._stop_timer(delivery)
        link, item = delivery.link, delivery.item
        if item is None or link.waiting.get(item.position) is not delivery:
            return
        del link.waiting[item.position]
        self._count(delivery, -1)

    def _stop_timer(self, delivery: Delivery) -> None:
        if delivery.timer is not None:
            delivery.timer.cancel()
            delivery.timer = None

    def again(self, link: Link, event: Event, data: bytes) -> None:
        """Send an event once more that was given up; it is no part of the watermark."""
        self.put(link, Item(event, f"again {token_hex(4)}", None), data)

    def watermark(self, link: Link) -> str:
        """Return the position up to which all is acknowledged or abandoned (EVT-061)."""
        for delivery in link.waiting.values():
            if delivery.item is not None and delivery.item.before is not None:
                return delivery.item.before
        return self.position

    # -- order -------------------------------------------------------------------------------

    def _due(self, delivery: Delivery, *, is_first: bool = False) -> None:
        delivery.timer = None
        link = delivery.link
        if delivery.is_over:
            return
        if link.is_suspended:
            link.has_gap = link.has_gap or delivery.item is None
            return
        if is_first:
            link.due.insert(0, delivery)
        else:
            link.due.append(delivery)

        self._queue(link)

    def _queue(self, link: Link) -> None:
        if not link.is_queued and link.due and link.flying < _FLYING_EACH:
            link.is_queued = True
            link.host.links.append(link)
        self._make_ready(link.host)
        self._pump()

    def _make_ready(self, host: Host) -> None:
        if not host.is_ready and host.links:
            host.is_ready = True
            self._ready.append(host)

    def _pump(self) -> None:
        while self._ready and self._flying < _FLYING and not self.is_stopped:
            host = self._ready.popleft()
            host.is_ready = False
            delivery = self._next(host)
            if delivery is not None:
                self._start(delivery)
                self._make_ready(host)

    def _next(self, host: Host) -> Delivery | None:
        # Return what a host may be sent now. Otherwise the end of an attempt or a timer asks again.
        now = self._loop.time()
        # While many attempts are under way, slow hosts must leave room for others.
        most = _FLYING_EACH_HOST if self._flying < _FLYING_BUSY else 2
        if host.flying >= (1 if host.failures else most):
            return None
        if host.retry_at > now:
            self._later(host, host.retry_at)
            return None
        rate = self.settings.rate
        host.tokens = min(rate, host.tokens + (now - host.tokens_at) * rate)
        host.tokens_at = now
        host.is_throttled = host.tokens < 1
        if host.is_throttled:
            self._later(host, now + (1 - host.tokens) / rate)
            return None
        while host.links:
            link = host.links.popleft()
            link.is_queued = False
            while link.due:
                delivery = link.due.pop(0)
                if not delivery.is_over and not delivery.is_flying and not link.is_suspended:
                    host.tokens -= 1
                    if link.due and link.flying + 1 < _FLYING_EACH:
                        link.is_queued = True
                        host.links.append(link)
                    return delivery

        return None

    def _later(self, host: Host, at: float) -> None:
        if host.timer is None:
            host.timer = self._loop.call_at(at, self._on_time, host)

    def _on_time(self, host: Host) -> None:
        host.timer = None
        self._make_ready(host)
        self._pump()

    # -- attempts ----------------------------------------------------------------------------

    def _start(self, delivery: Delivery) -> None:
        link = delivery.link
        delivery.is_flying = True
        link.flying += 1
        link.host.flying += 1
        self._flying += 1
        task = self._loop.create_task(self._attempt(delivery))
        link.tasks.append(task)
        task.add_done_callback(lambda task: self._landed(delivery, task))

    def _landed(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        link = delivery.link
        link.tasks.remove(task)
        delivery.is_flying = False
        link.flying -= 1
        link.host.flying -= 1
        self._flying -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a delivery has failed", "exception": error, "task": task})
            self._leave(delivery)
        if not delivery.is_over and delivery.timer is None:
            self._due(delivery)  # no attempt was made
        self._queue(link)
        self._wake_idle()

    async def _attempt(self, delivery: Delivery) -> None:
        link = delivery.link
        if not await self._check(link) or delivery.is_over:
            return
        if link.is_suspended:
            return
        now = self.clock()
        body, message_id = self._body(delivery)
        delivery.attempts += 1
        delivery.first = delivery.first or now
        record = link.record
        headers = message_headers(record.id, message_id, record.keys(now), now, body)
        answer: Answer | None = None
        try:
            answer = await self._sender.post(read_url(record.url), headers, body)
            category: Category | None = None if answer.is_accepted else answer.category
        except Unreached as error:
            category = error.category

        if not delivery.is_over:
            self._answered(delivery, answer, category)

    def _body(self, delivery: Delivery) -> tuple[bytes, str]:
        # Return the body, the same in each attempt, and its id.
        link, item = delivery.link, delivery.item
        if item is None:
            if not delivery.cursor:
                link.has_gap = False  # what is dropped from now on is another gap
                cursor = self._cursor_of(link.record.name, self.watermark(link))
                delivery.data = encode({"type": "gap", "cursor": cursor})
                delivery.cursor = f"msg_gap_{token_hex(12)}"
            return delivery.data, delivery.cursor

        if delivery.cursor == "":
            delivery.cursor = self._cursor_of(link.record.name, self.watermark(link))
        event = item.event
        occurrence = {
            "eventId": event.id,
            "name": event.name,
            "timestamp": event.timestamp,
            "data": Raw(delivery.data),
            "cursor": delivery.cursor,
        }
        message_id = event.id if self.settings.ids == "event" else f"msg_{link.record.id[4:20]}_{event.id}"
        return encode(occurrence), message_id

    def _answered(self, delivery: Delivery, answer: Answer | None, category: Category | None) -> None:
        link, host, now = delivery.link, delivery.link.host, self.clock()
        record = link.record
        if now - link.since >= _SAMPLE_SECONDS:
            link.since, link.attempts, link.failures = now, 0, 0
        link.attempts += 1
        if category is None:
            self.counts["accepted"] += 1
            host.failures, host.retry_at = 0, 0.0
            record.last_delivery, record.failed_since, record.last_error = now, 0.0, ""
            self._finish(delivery, "accepted", "")
            return

        self.counts["failed"] += 1
        link.failures += 1
        record.last_error, record.failed_since = category, record.failed_since or now
        if answer is None:  # an answer, of whatever status, shows that the host is there
            host.failures += 1
            host.retry_at = self._loop.time() + min(_BACK_OFF[0] * 2 ** (host.failures - 1), _BACK_OFF[1])
        elif host.failures:
            host.failures, host.retry_at = 0, 0.0

        left = delivery.first + self.settings.window - now
        number = delivery.attempts - 1
        if (answer is not None and answer.status in _NEVER_AGAIN) or number >= len(self.settings.delays) or left <= 0:
            self._finish(delivery, "abandoned", category)
        else:
            delay = self.settings.delays[number] * random.uniform(0.8, 1.2)  # no secret
            if answer is not None and answer.retry_after is not None:
                delay = max(delay, answer.retry_after)
            delivery.timer = self._loop.call_later(min(delay, left), self._due, delivery)

        too_many = link.attempts >= _SAMPLE and link.failures > link.attempts * _MOST_FAILING
        if (too_many or now - record.failed_since >= self.settings.failing_for) and not link.is_suspended:
            record.suspended = now
            link.has_gap = link.has_gap or any(each.item is None for each in link.due)
            link.due.clear()
            self._suspended(link)

    def _finish(self, delivery: Delivery, outcome: Outcome, category: str) -> None:
        if outcome == "abandoned":
            self.counts["abandoned"] += 1
        self._leave(delivery)
        self._ended(delivery, outcome, category)

    # -- control bodies ----------------------------------------------------------------------

    async def terminate(self, record: Subscription, error: dict[str, Any], waits: Collection[float]) -> None:
        """Tell a receiver that a subscription, which is gone, has ended: a few tries (EVT-065)."""
        body = encode({"type": "terminated", "error": error})
        message_id = f"msg_terminated_{token_hex(12)}"
        target: Target = read_url(record.url)
        for wait in waits:
            await asyncio.sleep(wait)
            now = self.clock()
            headers = message_headers(record.id, message_id, record.keys(now), now, body)
            try:
                answer = await self._sender.post(target, headers, body)
            except Unreached:
                continue
            if answer.is_accepted or answer.status in _NEVER_AGAIN:
                return

    # -- the end -----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of deliveries that are not over."""
        return sum(len(link.waiting) for link in self.links.values())

    def _is_idle(self) -> bool:
        now = self._loop.time()
        return not self._flying and not any(link.due and link.host.retry_at <= now for link in self.links.values())

    def _wake_idle(self) -> None:
        if self._idle and self._is_idle():
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    async def idle(self) -> None:
        """Return once nothing can be sent now: all is accepted, or waits for its next attempt."""
        if not self._is_idle():
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    async def stop(self, grace: float) -> None:
        """Start no more attempts, and wait for those under way."""
        self.is_stopped = True
        tasks = [task for link in self.links.values() for task in link.tasks]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

        for link in self.links.values():
            for delivery in link.waiting.values():
                self._stop_timer(delivery)
        for host in self._hosts.values():
            if host.timer is not None:
                host.timer.cancel()
                host.timer = None
