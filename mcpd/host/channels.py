"""Adapters: whatever a program sends and receives messages by becomes the channel of a View.

A message is one JSON-RPC text. Three kinds are taken: an object with `async send(str)` and `async receive()`
(or `recv()`, as WebSocket libraries call it), a function `send(str)` whose program calls `ShownView.receive`,
and our own channels. No rule of MCP Apps lives here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from mcpd.errors import ConfigurationError, McpdError, ProtocolError
from mcpd.host.shown import ShownView
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd.host")

MAX_QUEUED_BYTES = 64 * 1024 * 1024


class MessageChannel(Protocol):
    """What a View is reached through."""

    async def send(self, message: str) -> Any:
        """Send one message. Raises anything when the channel is gone."""

    async def receive(self) -> str | bytes | None:
        """The View's next message. None, or any exception, when there will be no more."""


CallbackChannel: TypeAlias = Callable[[str], object]
"""Takes each message for the View; must not block."""

ViewChannel: TypeAlias = MessageChannel | CallbackChannel | Any


def attach(view: ShownView, channel: ViewChannel) -> Pump | None:
    """Let the View begin on this channel; a Pump if it needs one. Raises ConfigurationError for what is none."""
    receive = getattr(channel, "receive", None) or getattr(channel, "recv", None)
    send = getattr(channel, "send", None)
    if send is not None and receive is not None:
        pump = Pump(view, send, receive, getattr(channel, "close", None))
        pump.begin()
        return pump

    if callable(channel):
        view.begin(lambda message: channel(message.decode()))
        return None

    raise ConfigurationError(
        f"{channel!r} is no channel for a View: give an object with async send() and receive(), or a function"
    )


class ViewReceiver:
    """What a transport of ours calls, on behalf of a View."""

    def __init__(self, view: ShownView) -> None:
        self._view = view

    def receive(self, frame: bytes) -> None:
        """One message."""
        self._view.receive(frame)

    def receive_error(self, error: ProtocolError) -> None:
        """What arrived was no message; the View goes on."""
        log.warning("%s: what arrived was no message: %s", self._view.id, printable(error.message))

    def closed(self, error: McpdError | None = None) -> None:
        """The page is gone, and the View with it."""
        self._view.lost("the page closed the channel" if error is None else str(error))


class Pump:
    """Two tasks for one channel with awaitable ends: one sends what is queued, one receives."""

    def __init__(
        self,
        view: ShownView,
        send: Callable[[str], Awaitable[Any]],
        receive: Callable[[], Awaitable[str | bytes | None]],
        close: Callable[[], Any] | None,
    ) -> None:
        self._view = view
        self._send = send
        self._receive = receive
        self._close = close
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._is_closing = False
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start both, and the View."""
        self._tasks = [asyncio.ensure_future(self._send_all()), asyncio.ensure_future(self._receive_all())]
        self._view.begin(self._put, self._stop)

    def _put(self, message: bytes) -> None:
        self._queued_bytes += len(message)
        if self._queued_bytes > MAX_QUEUED_BYTES:
            raise McpdError(f"more than {MAX_QUEUED_BYTES} bytes wait to be read")
        self._queue.append(message)
        self._wake.set()

    async def _send_all(self) -> None:
        try:
            while True:
                while self._queue:
                    message = self._queue.popleft()
                    self._queued_bytes -= len(message)
                    await self._send(message.decode())
                if self._is_closing:
                    break
                self._wake.clear()
                await self._wake.wait()
        except (Exception, asyncio.CancelledError) as error:
            if _is_stopped(error):
                raise
            self._view.lost(f"the channel does not take messages: {_name(error)}")

    async def _receive_all(self) -> None:
        reason = "the channel is closed"
        try:
            while (message := await self._receive()) is not None:
                self._view.receive(message)
        except (Exception, asyncio.CancelledError) as error:
            if _is_stopped(error):
                raise
            reason = f"the channel is closed: {_name(error)}"
        self._view.lost(reason)

    def _stop(self) -> None:
        self._is_closing = True
        self._wake.set()
        self._tasks[1].cancel()

    async def wait_closed(self) -> None:
        """Wait until what was queued is sent, within a second, and close the channel if it can be closed."""
        _, pending = await asyncio.wait(self._tasks, timeout=1)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)

        if self._close is not None:
            try:
                closing = self._close()
                if hasattr(closing, "__await__"):
                    await closing
            except Exception as error:
                log.info("%s: the channel did not close: %s", self._view.id, printable(_name(error)))


def _is_stopped(error: BaseException) -> bool:
    """Whether it is us who are cancelled, and not something of the channel's that it waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _name(error: BaseException) -> str:
    return str(error)[:300] or type(error).__name__
