"""Subscriptions to events of a server: `async with client.events("incident.created") as events:`.

A subscription arrives in one of three ways, which the program does not notice: the server sends webhooks to a
`Receiver`, or it writes on a request that stays open (push), or the client asks for new events now and then (poll).
Every way survives lost connections and restarts of the server: the subscription continues after the last cursor, and an
event that arrives twice is dropped.

Spec: SEP-3415.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from random import uniform
from typing import Any, Literal, NamedTuple, NoReturn, Self, TypeAlias

from msgspec import Raw, Struct
from msgspec.json import Decoder, decode

from mcpd.errors import (
    ConnectionLost,
    HttpError,
    InvalidParams,
    LocalProtocolError,
    McpdError,
    MethodNotFound,
    NoCompatibleDeliveryMode,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    TransportError,
)
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable
from mcpd.protocol.types.events import DeliveryStatus, EventType, Occurrence, PollResult, StreamParams, SubscribeResult
from .eras import ClientEra, ModernEra
from .limits import ClientLimits, Faults
from .receiver import Receiver

DeliveryMode: TypeAlias = Literal["auto", "webhook", "push", "poll"]

SILENT_SECONDS = 60.0
"""If a stream is silent for this long, it is opened again. Servers send heartbeats every 30 seconds or more often."""
MOST_IDS = 10_000
"""Ids of events that a subscription remembers, so that an event that arrives twice is dropped."""
TRIES = 12
"""Attempts in a row to reach the server again, before the error is raised."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
SHORTEST_POLL = 1.0
LONGEST_POLL = 600.0
LASTED_SECONDS = 10.0
_REFRESH_AT = 0.8
_LEAST_GRANT = 1.0
_END_SECONDS = 2.0
# Overhead of an event in memory beside its data.
_SMALL_BYTES = 200

# The codes of SEP-3415, each with its code in an earlier sketch, which servers in the field send.
_NOT_FOUND, _FORBIDDEN, _UNSUPPORTED = (-32023, -32011), (-32024, -32012), (-32026, -32014)
_FINAL = (*_FORBIDDEN, InvalidParams.code, MethodNotFound.code)

_read_event = Decoder(Occurrence).decode
_read_poll = Decoder(PollResult, strict=False).decode
_read_subscribed = Decoder(SubscribeResult, strict=False).decode
_read_other = Decoder(StreamParams, strict=False).decode


class Event(Struct, frozen=True):
    """An event. Its data comes from elsewhere: treat it as untrusted, like the result of a tool."""

    id: str
    name: str
    timestamp: str
    data: Any
    cursor: str | None = None
    """Pass it to `Client.events` to continue after this event; None if the server does not repeat events."""
    meta: Mapping[str, Any] | None = None


class EventGap(Struct, frozen=True):
    """Events were lost: the server no longer had them, or dropped them."""

    cursor: str | None = None


class Source(NamedTuple):
    """The parts of a client that its subscriptions use."""

    request: Callable[..., Awaitable[Raw]]
    list_events: Callable[[], Awaitable[list[EventType]]]
    connected: Callable[[], Awaitable[ClientEra]]
    """Connects again if necessary, and returns the era of the connection."""
    era: Callable[[], ClientEra]
    limits: ClientLimits
    faults: Faults
    webhook: Receiver | None
    is_closed: Callable[[], bool]
    """Whether the program has closed the client."""


class _Ended(Exception):
    """The subscription has ended, with this error of the server."""

    def __init__(self, error: RemoteError) -> None:
        self.error = error


class _Item(Struct, eq=False):
    """Something that waits for the program. `handled` is set when the program has taken the next one."""

    value: Event | EventGap | None
    cursor: str | None = None
    size: int = _SMALL_BYTES
    handled: asyncio.Future[None] | None = None


class EventSubscription:
    """The events of one type that fit some arguments: `async for event in subscription`.

    Open it with `async with`, which raises RemoteError if the server refuses it. A webhook is acknowledged when the
    program asks for the next event, or leaves the block without an exception. If the program fails before, the server
    sends the event again.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        delivery: DeliveryMode = "auto",
        cursor: str | None = None,
        max_age: float | None = None,
        gaps: bool = False,
    ) -> None:
        self.name = name
        self.mode: str = "" if delivery == "auto" else delivery
        """How events arrive: "webhook", "push" or "poll"; "" before the subscription is open."""
        self.cursor = cursor
        """The position after the events that the program has taken; None if the server has no positions."""
        self.gaps = 0
        """How often events were lost."""
        self.status: DeliveryStatus | None = None
        """The status of the webhooks, as the server described it at the last refresh."""

        self._source = source
        self._arguments = dict(arguments or {})
        self._delivery = delivery
        self._max_age = max_age
        self._shows_gaps = gaps
        # The position after the events that have arrived. The program may not have taken all of them.
        self._at = cursor
        self._ids: dict[str, None] = {}
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._waiting = self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._current: _Item | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        # Whether the server has accepted the subscription, and whether it has delivered anything since.
        self._opened: asyncio.Future[None] | None = None
        self._has_worked = False
        self._failures = 0
        self._is_lossy = False

    # ------------------------------------------------------------------------------- for the program

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise LocalProtocolError("a subscription can be opened only once; create another one")
        loop = asyncio.get_running_loop()
        self._opened = loop.create_future()
        self._task = loop.create_task(self._run())
        try:
            await asyncio.wait([self._opened, self._task], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self._stop()
            raise

        if not self._opened.done():
            self._raise()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._acknowledge()
        await self._stop()

    async def _stop(self) -> None:
        if self._current is not None and self._current.handled is not None:
            self._current.handled.cancel()
        while not self._queue.empty():
            if (waiting := self._queue.get_nowait().handled) is not None:
                waiting.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | EventGap:
        """Return the next event, and acknowledge the one before. Raises RemoteError when the server ends the
        subscription."""
        if self._task is None:
            raise LocalProtocolError("the subscription is not open: use it inside `async with`")
        self._acknowledge()
        while True:
            # Nothing follows the end, so it stays in the queue.
            if self._queue.empty() and self._task.done():
                self._raise()
            item = await self._queue.get()
            self._waiting -= 1
            self._bytes -= item.size
            if not self._waiting:
                self._room.set()
            if item.cursor is not None:
                self.cursor = item.cursor
            if item.value is not None:
                self._current = item
                return item.value

    def _acknowledge(self) -> None:
        item, self._current = self._current, None
        if item is not None and item.handled is not None and not item.handled.done():
            item.handled.set_result(None)

    def _raise(self) -> NoReturn:
        raise ConnectionLost("the subscription is closed") if self._error is None else self._error

    # ----------------------------------------------------------------------------------- what arrives

    def _put(self, item: _Item) -> None:
        self._waiting += 1
        self._bytes += item.size
        self._queue.put_nowait(item)
        if self._is_full:
            self._room.clear()

    @property
    def _is_full(self) -> bool:
        limits = self._source.limits
        return self._waiting > limits.waiting_messages or self._bytes > limits.waiting_bytes

    def _arrived(self, raw: Raw | bytes, handled: asyncio.Future[None] | None = None) -> bool:
        """Add an event. Return False if it arrived before. Raises MALFORMED."""
        return self._add(_read_event(raw), handled)

    def _add(self, found: Occurrence, handled: asyncio.Future[None] | None = None) -> bool:
        self._has_worked, self._failures = True, 0
        self._move(found.cursor)
        if found.event_id in self._ids:
            return False
        data = decode(found.data) if found.data else {}
        event = Event(found.event_id, found.name, found.timestamp, data, found.cursor, found.meta)
        self._ids[found.event_id] = None
        if len(self._ids) > MOST_IDS:
            del self._ids[next(iter(self._ids))]
        self._put(_Item(event, found.cursor, len(found.data) + _SMALL_BYTES, handled))
        return True

    def _move(self, cursor: str | None) -> None:
        # Spec: a null cursor is never stored: it says nothing about the position.
        if cursor is not None:
            self._at = cursor

    def _passed(self, cursor: str | None) -> None:
        # The server has nothing before this position: the program's moves there after the events that wait.
        if cursor is not None and cursor != self._at:
            self._at = cursor
            if self._waiting:
                self._put(_Item(None, cursor, 0))
            else:
                self.cursor = cursor

    def _lost_some(self, cursor: str | None) -> None:
        self.gaps += 1
        self._source.faults.log(
            logging.WARNING, "the server no longer has all events of %s; some were lost", printable(self.name)
        )
        self._move(cursor)
        self._put(_Item(EventGap(cursor) if self._shows_gaps else None, cursor))

    def _is_open(self) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    # ------------------------------------------------------------------------------------ deliveries

    async def _run(self) -> None:
        listed_again = False
        try:
            while True:
                try:
                    await self._deliver()
                except _Ended as ended:
                    # Spec: of a type that was removed or changed, the list is fetched again, once.
                    if self._has_worked:
                        listed_again = False
                    if ended.error.code not in _NOT_FOUND + _UNSUPPORTED or listed_again or not self._was_open:
                        raise ended.error from None
                    listed_again, self._has_worked = True, False
                    if self.name not in {each.name for each in await self._source.list_events()}:
                        raise ended.error from None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = error
        finally:
            # Wakes the program, which then finds the end.
            self._put(_Item(None))

    @property
    def _was_open(self) -> bool:
        return self._opened is not None and self._opened.done()

    async def _deliver(self) -> None:
        # Receive events in one way, until the server ends the subscription.
        mode = await self._choose() if self._delivery == "auto" else self._delivery
        self.mode = mode
        deliver: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "webhook": self._by_webhooks,
            "push": self._by_push,
            "poll": self._by_polls,
        }
        if mode not in deliver:
            raise LocalProtocolError(f"delivery={mode!r}: use 'auto', 'webhook', 'push' or 'poll'")
        if mode != "webhook" and not isinstance(self._source.era(), ModernEra):
            raise NoCompatibleDeliveryMode(f"{mode} needs protocol version 2026-07-28, which the server does not have")
        if mode == "webhook" and self._source.webhook is None:
            raise NoCompatibleDeliveryMode("webhooks need a receiver: Client(target, webhook=Receiver(url))")
        await deliver[mode]()

    async def _choose(self) -> str:
        found = next((each for each in await self._source.list_events() if each.name == self.name), None)
        if found is None:
            raise LocalProtocolError(f"the server has no event type {self.name!r}; Client.list_events() lists them")
        ours = ["webhook"] if self._source.webhook is not None else []
        if isinstance(self._source.era(), ModernEra):
            ours += ["push", "poll"]
        for mode in ours:
            if mode in found.delivery:
                return mode
        theirs = printable(" or ".join(found.delivery), 100)
        advice = "; webhooks need a receiver: Client(target, webhook=Receiver(url))" if "webhook" in theirs else ""
        raise NoCompatibleDeliveryMode(
            f"the server delivers {self.name} by {theirs}, this client by {' or '.join(ours) or 'nothing'}{advice}"
        )

    def _params(self, **more: Any) -> dict[str, Any]:
        params: dict[str, Any] = {"name": self.name, "arguments": self._arguments, "cursor": self._at, **more}
        # Spec: ignored without a cursor. Only the first request starts so far back.
        if self._max_age is not None and self._at is not None and not self._was_open:
            params["maxAgeMs"] = int(self._max_age * 1000)
        return params

    async def _ask(self, method: str, read: Callable[[Raw], Any], **more: Any) -> Any:
        # Send a request, again and again while the server cannot be reached. Raises _Ended if it refuses.
        while True:
            try:
                raw = await self._source.request(method, self._params(**more))
            except McpdError as error:
                await self._pause_after(error)
                continue
            try:
                return read(raw)
            except MALFORMED as error:
                raise ProtocolError(f"The server's response to {method} is invalid: {explain(error)}") from None

    async def _pause_after(self, error: McpdError) -> None:
        # Wait before the next attempt. Raises the error if another attempt is useless.
        if isinstance(error, RemoteError) and (error.code in _FINAL + _NOT_FOUND + _UNSUPPORTED or not self._was_open):
            raise _Ended(error)
        refused = isinstance(error, HttpError) and error.status < 500 and error.status not in (408, 429)
        may_pass = isinstance(error, (TransportError, RequestTimeout, RemoteError)) and not refused
        self._failures += 1
        if not may_pass or not self._was_open or self._failures >= TRIES or self._source.is_closed():
            raise error
        self._source.faults.log(
            logging.INFO, "events of %s are interrupted: %s", printable(self.name), printable(error, 500)
        )
        pause = min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE)
        await asyncio.sleep(uniform(pause, 1.1 * pause))

    async def _by_polls(self) -> None:
        while True:
            await self._room.wait()
            result: PollResult = await self._ask("events/poll", _read_poll)
            self._failures = 0
            if result.truncated:
                self._lost_some(None)
            before = self._at
            for found in result.events:
                # The cursor of the result is after all of them, so that an earlier one must not be stored.
                found.cursor = None
                self._add(found)
            self._passed(result.cursor)
            self._is_open()
            if result.has_more and (result.events or self._at != before):
                continue
            # Compared as integers, because JSON has numbers that are too large for a float.
            seconds = min(max(result.next_poll_ms, 0), 1000 * int(LONGEST_POLL)) / 1000
            seconds = max(seconds, SHORTEST_POLL)
            # Many clients must not poll at the same time.
            await asyncio.sleep(uniform(seconds, 1.1 * seconds))

    async def _by_push(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.wait()
            # Without a position, nothing that happens between two streams is repeated.
            self._is_lossy = self._was_open and self._at is None
            began = loop.time()
            try:
                await self._stream()
            except McpdError as error:
                await self._pause_after(error)
                continue
            # The server ended the stream, or was silent, or the program is behind.
            if self._room.is_set() and loop.time() - began < LASTED_SECONDS:
                self._failures += 1
                if self._failures >= TRIES:
                    raise ConnectionLost("The server ends each stream of events at once")
                await asyncio.sleep(min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE))

    async def _stream(self) -> None:
        # Receive notifications until the stream ends, is silent, or exceeds what may wait. Raises _Ended.
        ended: RemoteError | None = None
        loop = asyncio.get_running_loop()

        def receive(method: str, raw: Raw) -> None:
            nonlocal ended
            if clock.expired() or ended is not None:
                return
            clock.reschedule(loop.time() + SILENT_SECONDS)
            try:
                ended = self._notified(method, raw)
            except MALFORMED as error:
                text = "the server sent an invalid %s: %s"
                self._source.faults.log(logging.WARNING, text, printable(method), printable(explain(error)))
            if ended is not None or not self._room.is_set():
                clock.reschedule(loop.time())

        era = await self._source.connected()
        if not isinstance(era, ModernEra):
            raise NoCompatibleDeliveryMode("push needs protocol version 2026-07-28, which the server no longer has")
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENT_SECONDS) as clock:
                await era.listen(self._params(), receive, "events/stream")
        if ended is not None:
            raise _Ended(ended)

    def _notified(self, method: str, raw: Raw) -> RemoteError | None:
        # Process a notification of the stream. Return the error that has ended the subscription.
        kind = method.removeprefix("notifications/events/")
        if kind == "event":
            self._arrived(raw)
            return None
        found = _read_other(raw)
        if kind == "active":
            if found.truncated or self._is_lossy:
                self._lost_some(found.cursor)
            else:
                self._passed(found.cursor)
            self._is_lossy = False
            self._is_open()
        elif kind == "heartbeat":
            self._failures = 0
            self._passed(found.cursor)
        elif kind == "error" and found.error is not None:
            text = "the server could not deliver an event of %s: %s"
            self._source.faults.log(logging.WARNING, text, printable(self.name), printable(found.error.message, 500))
        elif kind == "terminated" and found.error is not None:
            return RemoteError(found.error.code, found.error.message, found.error.data)

        return None

    async def _by_webhooks(self) -> None:
        receiver = self._source.webhook
        assert receiver is not None
        terminated: asyncio.Future[RemoteError] = asyncio.get_running_loop().create_future()

        async def deliver(kind: str, body: Raw) -> None:
            if kind == "event":
                handled = asyncio.get_running_loop().create_future()
                if not self._room.is_set():
                    raise BufferError("too many events wait for the program")
                if self._arrived(body, handled):
                    await handled
                return

            found = _read_other(body)
            if kind == "gap":
                self._lost_some(found.cursor)
            elif kind == "terminated" and found.error is not None and not terminated.done():
                terminated.set_result(RemoteError(found.error.code, found.error.message, found.error.data))

        hook = receiver.hook(deliver)
        target = {"mode": "webhook", "url": receiver.url}
        try:
            while True:
                delivery = {**target, "secret": hook.secret}
                result: SubscribeResult = await self._ask("events/subscribe", _read_subscribed, delivery=delivery)
                hook.bind(result.id)
                self._failures, self.status = 0, result.delivery_status
                if result.truncated:
                    self._lost_some(result.cursor)
                elif not self._was_open:
                    self._passed(result.cursor)
                self._is_open()
                if self.status is not None and not self.status.active:
                    text = "the server had suspended its webhooks for %s (%s); it continues now"
                    self._source.faults.log(
                        logging.WARNING, text, printable(self.name), printable(self.status.last_error or "")
                    )
                with suppress(TimeoutError):
                    async with asyncio.timeout(_seconds_until(result.refresh_before)):
                        raise _Ended(await asyncio.shield(terminated))
        finally:
            if not hook.close() and hook.id and not terminated.done():
                with suppress(McpdError, TimeoutError, asyncio.CancelledError):
                    async with asyncio.timeout(_END_SECONDS):
                        params = {"name": self.name, "arguments": self._arguments, "delivery": target}
                        await self._source.request("events/unsubscribe", params)


def _seconds_until(refresh_before: str | None) -> float | None:
    # Seconds until the next refresh; None for a subscription without an end. Raises ProtocolError.
    if refresh_before is None:
        return None
    try:
        left = datetime.fromisoformat(refresh_before).timestamp() - time.time()
    except (ValueError, OverflowError):
        text = f"The server's response to events/subscribe is invalid: refreshBefore {refresh_before[:100]!r}"
        raise ProtocolError(text) from None
    return max(left * _REFRESH_AT, _LEAST_GRANT)
