"""`HttpChannel`: a client's channel on which each message is an HTTP request of its own.

What is sent when: nothing overtakes the handshake of a legacy session, so many requests are open at a time, what is
given up is cut or said so. Spec: 2026-07-28 basic/transports/streamable-http; 2025-11-25 basic/transports.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any

from ...channel import Heading, Receiver
from ...errors import HttpError, McpdError, SessionLost, TransportError
from ...jsonrpc import Id, Request, decode
from ...principal import Origin
from ...printable import printable
from .exchange import Outgoing, ask, tell
from .http_sse import HttpSse
from .inbound import Inbound
from .link import Link
from .listening import listen
from .requester import Requester

__all__ = ["HttpChannel"]

log = logging.getLogger("mcpd.client")

_HIGH_WATER = 1024 * 1024
_TELLING = 20
"""So many messages that want no answer are on their way at a time."""
_DELETE_SECONDS = 2.0
_FALL_BACK = (400, 404, 405)
_CANCELLED = "notifications/cancelled"


class HttpChannel:
    """The client's end. Make it with `open_http` of `open`."""

    is_multiplexed = False

    def __init__(self, link: Link, max_frame_bytes: int) -> None:
        self._link = link
        self._requester = Requester(link)
        self._max_frame_bytes = max_frame_bytes
        self._inbound: Inbound | None = None
        self._old: HttpSse | None = None

        self._asking: dict[Id, tuple[Outgoing, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()
        self._waiting: deque[Outgoing] = deque()
        self._queued_bytes = 0
        self._taken: asyncio.Future[None] | None = None
        self._shakes_hands = False
        """A message is on its way that others must not overtake."""
        self._is_closed = False

    # ------------------------------------------------------------------------------------------ sending

    def start(self, receiver: Receiver) -> None:
        """From now on hand what arrives to `receiver`, which has to be a `RequestReceiver` too."""
        self._inbound = Inbound(receiver, self._link, self._max_frame_bytes)

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one message."""
        self.send_headed(frame, related_request_id, method, None)

    send_apart = send

    def send_headed(
        self, frame: bytes, related_request_id: Id | None, method: str | None, heading: Heading | None
    ) -> None:
        """Queue one message; without a heading it is looked at to tell what it is."""
        if self._is_closed:
            return
        if heading is None:
            heading = Heading(isinstance(decode(frame), Request))
        message = Outgoing(frame, related_request_id, method, heading)
        if method == _CANCELLED and self._take_back(message):
            return
        self._queued_bytes += len(frame)
        if self._waiting or not self._may_go(message):
            self._waiting.append(message)
            self._go_on()
        else:
            self._send_now(message)

    def _take_back(self, cancelled: Outgoing) -> bool:
        """Forget a request that still waits; whether there is nothing to say about it."""
        for message in self._waiting:
            if message.heading.is_request and message.id == cancelled.id:
                self._waiting.remove(message)
                self._sent(message)
                return True

        asking = None if cancelled.id is None else self._asking.get(cancelled.id)
        if asking is None:
            return True
        message, task = asking
        if not message.heading.in_session:
            # Spec: 2026-07-28 basic/patterns/cancellation: to close the stream is to give up.
            task.cancel()
        return not message.heading.in_session

    def _may_go(self, message: Outgoing) -> bool:
        if self._shakes_hands:
            return False
        if message.heading.is_request:
            return len(self._asking) < self._link.options.connections
        return len(self._telling) < _TELLING

    def _go_on(self) -> None:
        """Send of what waits as much as may be: requests that have to wait hold up nothing but requests."""
        for _ in range(len(self._waiting)):
            message = self._waiting.popleft()
            if self._may_go(message):
                self._send_now(message)
            else:
                self._waiting.append(message)

    def _send_now(self, message: Outgoing) -> None:
        if message.heading.is_request:
            assert message.id is not None
            if message.method == "initialize":
                self._shakes_hands = True
            task = self._do(self._ask(message))
            self._asking[message.id] = message, task
            task.add_done_callback(lambda _: self._asked(message))
            return

        if message.method == "notifications/initialized":
            self._shakes_hands = True
            if message.heading.version is not None:
                self._requester.version = {"MCP-Protocol-Version": message.heading.version}
        task = self._do(self._tell(message))
        self._telling.add(task)
        task.add_done_callback(lambda task: self._told(message, task))

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _sent(self, message: Outgoing) -> None:
        self._queued_bytes -= len(message.frame)
        taken, self._taken = self._taken, None
        if taken is not None and not taken.done():
            taken.set_result(None)

    # --------------------------------------------------------------------------------------- one message

    async def _ask(self, message: Outgoing) -> None:
        inbound = self._inbound
        assert inbound is not None
        try:
            if self._old is not None:
                await self._old.post(message)
            elif message.method == "initialize":
                await self._initialize(message, inbound)
            else:
                await ask(self._requester, inbound, message)
        except SessionLost as error:
            inbound.failed(message.id, error)
            inbound.closed(error)
        except McpdError as error:
            inbound.failed(message.id, error)
        except Exception as error:
            log.exception("a request over HTTP failed in a way that is not known")
            inbound.failed(message.id, TransportError(f"{self._link.name}: {type(error).__name__}: {error}"))

    def _asked(self, message: Outgoing) -> None:
        assert message.id is not None
        self._asking.pop(message.id, None)
        if message.method == "initialize":
            self._shakes_hands = False
        self._sent(message)
        if self._waiting:
            self._go_on()

    async def _initialize(self, message: Outgoing, inbound: Inbound) -> None:
        """Ask; a server that refuses the POST may be one that has the old transport."""
        try:
            await ask(self._requester, inbound, message)
        except HttpError as error:
            if error.status not in _FALL_BACK:
                raise
            old = HttpSse(self._requester, inbound)
            try:
                await old.open()
            except TransportError as refused:
                raise HttpError(
                    f"{error}; nor is it an HTTP+SSE server of 2024-11-05: {refused}", error.status
                ) from error
            self._old = old
            self._do(old.run())
            await old.post(message)

    async def _tell(self, message: Outgoing) -> None:
        inbound = self._inbound
        assert inbound is not None
        try:
            if self._old is not None:
                await self._old.post(message)
            else:
                await tell(self._requester, message)
        except SessionLost as error:
            inbound.closed(error)
        except McpdError as error:
            inbound.failed(None, error)
        except Exception:
            log.exception("a message over HTTP failed in a way that is not known")

    def _told(self, message: Outgoing, task: asyncio.Task[None]) -> None:
        self._telling.discard(task)
        self._sent(message)
        if message.method == "notifications/initialized":
            self._shakes_hands = False
            if self._old is None and not self._is_closed and self._inbound is not None:
                self._do(listen(self._requester, self._inbound))
        elif message.method == _CANCELLED and message.id is not None and message.id in self._asking:
            # A legacy server has heard of it, and answers no more: its stream would stay open for nothing.
            self._asking[message.id][1].cancel()
        if self._waiting and not self._is_closed:
            self._go_on()

    # ------------------------------------------------------------------------------------------- the rest

    @property
    def is_congested(self) -> bool:
        """More than 1 MiB waits for the server to take it."""
        return self._queued_bytes > _HIGH_WATER

    async def drain(self) -> None:
        """Wait until the server has taken most of what was sent."""
        while self.is_congested and not self._is_closed:
            if self._taken is None:
                self._taken = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._taken)

    def pause(self) -> None:
        """Read no stream until `resume`."""
        if self._inbound is not None:
            self._inbound.pause()

    def resume(self) -> None:
        """Read on."""
        if self._inbound is not None:
            self._inbound.resume()

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The server at the other end."""
        return Origin("http")

    async def aclose(self, reason: str = "") -> None:
        """Say what is on its way within bounds, end the session, and close all connections. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._waiting.clear()
        try:
            for _, task in self._asking.values():
                task.cancel()
            await self._say_goodbye()
            await self._cancel()
        finally:
            await self._link.aclose()

    async def _say_goodbye(self) -> None:
        """Let what is told arrive, and end the session: within two seconds."""
        requester = self._requester
        try:
            async with asyncio.timeout(_DELETE_SECONDS):
                if self._telling:
                    await asyncio.wait(self._telling)
                if requester.session:
                    fields = {**requester.session, **requester.version}
                    (await requester.request("DELETE", self._link.url, fields)).close()
        except (TimeoutError, McpdError) as error:
            log.debug("the session was not ended: %s", printable(error))

    async def _cancel(self) -> None:
        left = self._tasks - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
