"""Streams: one long request per subscription, on which events arrive as notifications.

A stream is either at the end, and gets each event as it arrives, or behind, and reads the ring of its type: at the
begin, and while its client does not read. So nothing waits in memory for one client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from mcpd.errors import InternalError, ProtocolError
from mcpd.protocol.envelope import SUBSCRIPTION_ID
from mcpd.protocol.types.base import Result
from mcpd.protocol.types.events import ActiveParams, EventError, HeartbeatParams, ProblemParams, StreamEvent
from mcpd.protocol.types.interaction import ListenResult
from .declare import Subscriber
from .hub import SLICE, Entry, Hub, Order
from .wire import Event, error_object

if TYPE_CHECKING:
    from mcpd.server.context.exchange import Exchange

# What may wait for a client that does not read.
_MOST_WAITING, _MOST_WAITING_BYTES = 1000, 1 << 20


class Stream:
    """One open stream."""

    def __init__(self, hub: Hub, subscriber: Subscriber, exchange: Exchange, order: Order) -> None:
        self.subscriber = subscriber
        self.hub = hub
        self.order = order
        self.due = 0.0
        """When the next heartbeat is due."""
        self._call = exchange.call
        self._peer: Any = exchange.peer
        self._meta = {SUBSCRIPTION_ID: exchange.call.id}
        self._name = subscriber.kind.name
        self._is_behind = True
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._lagging = asyncio.Event()
        self.ring = hub.rings[self._name]

    async def run(self, is_truncated: bool, early: Sequence[tuple[Event, str | None]] = ()) -> Result:
        """Deliver until the client cancels, or the stream ends; then return its result. `early` are events before."""
        session = self._call.session
        session.max_in_flight += 1  # it does not count among the requests that are worked on (EVT-032)
        self._peer.subscriptions.keep(self._call, self.ended)
        try:
            self._say_active(is_truncated)
            self.hub.opened(self)
            serving = asyncio.ensure_future(self._serve(early))
            try:
                await asyncio.wait((serving, self.ended), return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
            finally:
                serving.cancel()
        finally:
            self._is_over = True
            self.hub.closed(self)
            self._peer.subscriptions.drop(self._call)
            session.max_in_flight -= 1

        return ListenResult(meta=self._meta)

    def end(self) -> None:
        """End the stream with its result."""
        if not self.ended.done():
            self.ended.set_result(None)

    def terminate(self, failure: ProtocolError) -> None:
        """Tell the client that the subscription is over, and end the stream."""
        if not self._is_over:
            self._is_over = True
            self._say("terminated", ProblemParams(error=self._error(failure), meta=self._meta))
            self.end()

    # -- events ------------------------------------------------------------------------------

    def offer(self, entry: Entry) -> None:
        """Send an event that has just arrived, unless the client is behind or it is not for it."""
        if self._is_behind or self._is_over or entry.order <= self.order:
            return
        if self._peer.channel.is_congested:
            self._is_behind = True
            self._lagging.set()
            return
        pause = self._send(entry)
        if pause is not None:
            pause.close()
            self._call.bytes_sent = 1

    def beat(self, now: float) -> None:
        """Send a heartbeat if nothing else was sent for a while."""
        self.due = now + self.hub.settings.heartbeat
        if self._is_behind or self._is_over or self._peer.channel.is_congested:
            return
        self.order = max(self.order, self._newest())
        self._say("heartbeat", HeartbeatParams(cursor=self._cursor(), meta=self._meta))

    async def _serve(self, early: Sequence[tuple[Event, str | None]]) -> None:
        for event, cursor in early:
            pause = self._send(Entry(self.order, cursor or "", 0.0, event, None), is_early=True)
            if pause is not None:
                await pause
        while True:
            await self._catch_up()
            await self._lagging.wait()
            self._lagging.clear()
            await self._peer.channel.drain()
            self._skip()

    async def _catch_up(self) -> None:
        ring = self.ring
        while not self.ended.done():
            entries, has_more = ring.after(self.order)
            for entry in entries:
                pause = self._send(entry)
                if pause is not None:
                    await pause
                if self.ended.done():
                    return
            if not has_more and not ring.after(self.order, 1)[0]:
                self._is_behind = False
                return
            await asyncio.sleep(0)

    def _skip(self) -> None:
        # The client has not read for long: of what waits for it, only the last events are sent.
        ring = self.ring
        waiting, _ = ring.after(self.order, self.hub.settings.buffer[0] + SLICE)
        is_lost = self.order < ring.lost
        size, kept = 0, 0
        for entry in reversed(waiting):
            size += len(entry.event.data)
            if kept == _MOST_WAITING or size > _MOST_WAITING_BYTES:
                is_lost = True
                break
            kept += 1

        if is_lost:
            first = len(waiting) - kept
            self.order = waiting[first - 1].order if first else max(self.order, ring.lost)
            self._say_active(True)

    def _send(self, entry: Entry, *, is_early: bool = False) -> Any:
        # Send an event if it is for this client. Returns what to await before the next one, or None.
        self.order = entry.order
        event = entry.event
        try:
            data = self.subscriber.fit(event, entry.payload)
        except Exception as error:
            self.hub.failed(event, error)
            problem = InternalError(f"The event {event.id} could not be made for this subscription")
            return self._post("error", ProblemParams(error=self._error(problem), meta=self._meta))

        if data is None:
            return None
        self.hub.delivered += 1
        return self._post("event", StreamEvent(
            event_id=event.id, name=event.name, timestamp=event.timestamp, data=Raw(data),
            cursor=self._cursor_of(entry), meta=self._meta,
        ))  # fmt: skip

    def _newest(self) -> Order:
        return self.hub.place_for(self._name) or self.order

    def _error(self, failure: ProtocolError) -> EventError:
        return EventError(**error_object(failure, self.hub.settings.codes))

    def _cursor_of(self, entry: Entry) -> str | None:
        return self.hub.cursor(self._name, entry.position)

    def _cursor(self) -> str | None:
        return self.hub.place(self._name, self.order)

    def _say_active(self, is_truncated: bool) -> None:
        self._say("active", ActiveParams(cursor=self._cursor(), truncated=is_truncated, meta=self._meta))

    def _say(self, what: str, params: Any) -> None:
        pause = self._post(what, params)
        if pause is not None:
            pause.close()

    def _post(self, what: str, params: Any) -> Any:
        # Send a notification. Returns what to await before the next one, or None.
        self.due = self._loop.time() + self.hub.settings.heartbeat
        return self._peer.notify_nowait(f"notifications/events/{what}", params, self._call)
