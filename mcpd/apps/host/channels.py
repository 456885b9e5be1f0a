"""The channels of Views: any two-way stream of messages, and WebSocket addresses that can be used once.

A message is one JSON-RPC text. `attach` accepts an object with `async send(str)` and `async receive()` (or `recv()`, as
WebSocket libraries name it), and a function `send(str)` whose program calls `ShownView.receive`.

With a `Relay`, a page in a browser only passes messages on between its frame and a socket. Each View has an address of
its own, `/view/<id>`, which nobody can guess. Only the page with the right `Origin` may connect, and only once; after
that the address is 410, and unknown addresses are 404. The end of the socket is the end of the frame.

Rules APP-X-08, APP-H-20 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from hmac import compare_digest
from os import urandom
from typing import Any, Protocol, TypeAlias

from websockets.http11 import Request

from mcpd.apps.host.view.context import HostContext
from mcpd.errors import ConfigurationError, McpdError, ProtocolError
from mcpd.protocol.channel import Channel, Receiver
from mcpd.protocol.principal import ANONYMOUS, Principal
from mcpd.protocol.printable import printable
from mcpd.transports.accepting import Acceptor
from mcpd.transports.address import authority, bind, parse
from mcpd.transports.authentication import Refusal, RequestHeaders
from mcpd.transports.guards import Access, Guard
from mcpd.transports.websocket.connection import WebSocketChannel
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits
from .shown_view import ShownView
from .tool_call import ToolCall

log = logging.getLogger("mcpd.host")

MAX_QUEUED_BYTES = 64 * 1024 * 1024


class MessageChannel(Protocol):
    """A channel with awaitable ends."""

    async def send(self, message: str) -> Any:
        """Send one message. Raises any exception if the channel is gone."""

    async def receive(self) -> str | bytes | None:
        """Return the next message of the View. None or an exception means that there will be no more."""


CallbackChannel: TypeAlias = Callable[[str], object]
"""Receives each message for the View; must not block."""

ViewChannel: TypeAlias = MessageChannel | CallbackChannel | Any


def attach(view: ShownView, channel: ViewChannel) -> Pump | None:
    """Start a View on a channel, and return its Pump if it needs one. Raises ConfigurationError for another object."""
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
        f"{channel!r} is not a channel for a View: pass an object with async send() and receive(), or a function"
    )


class ViewReceiver:
    def __init__(self, view: ShownView) -> None:
        self._view = view

    def receive(self, frame: bytes) -> None:
        self._view.receive(frame)

    def receive_error(self, error: ProtocolError) -> None:
        log.warning("%s: received an invalid message: %s", self._view.id, printable(error.message))

    def closed(self, error: McpdError | None = None) -> None:
        self._view.lost("the page closed the channel" if error is None else str(error))


class Pump:
    """Two tasks for a channel with awaitable ends: one sends the queued messages, one receives."""

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
        """Wait at most a second until the queue is sent, then close the channel if it has a `close`."""
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
    # Return whether the current task is being cancelled, and not something that the channel waited for.
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _name(error: BaseException) -> str:
    return str(error)[:300] or type(error).__name__


PATH = "/view/"
MAX_USED_ADDRESSES = 1024


PrepareView: TypeAlias = Callable[..., Awaitable[ShownView]]


class Relay:
    """A WebSocket address for the Views of one host and one page. `Host.listen_views` creates it."""

    def __init__(
        self,
        prepare_view: PrepareView,
        address: str,
        origin: str,
        *,
        hosts: Iterable[str] = (),
        limits: WebSocketLimits | None = None,
    ) -> None:
        # `origin` is the origin of the page (`http://host:port`), `hosts` are further names of this machine.
        self._address = parse(address)
        scheme, found, place = origin.lower().partition("://")
        if scheme not in ("http", "https") or not found or not place or any(char in place for char in "/?#, *"):
            text = f"origin {origin!r}: write scheme://host:port of the page, e.g. http://localhost:8000"
            raise ConfigurationError(text)

        guard = Guard(Access(hosts=tuple(hosts)), self._address.host)
        self._prepare_view = prepare_view
        self._endpoint = _ViewEndpoint(guard, limits or WebSocketLimits(), origin.lower())
        self._wait_seconds = 10.0
        self._acceptor: Acceptor | None = None
        self._is_listening = False
        self.base_url = ""
        """The beginning of the address of each View, `ws://host:port`, for `connect-src` of the page."""

    async def listen(self) -> None:
        """Start to listen. Raises ConfigurationError for an address that cannot be used."""
        # The id in the address of a View is a token.
        sockets = await bind(self._address, is_guarded=True)
        self.base_url = f"ws://{authority(sockets[0])}"
        self._acceptor = Acceptor(self._endpoint.connection_limit, sockets, self._endpoint.connect)
        await self._acceptor.start()
        self._is_listening = True

    async def open_view(
        self, call: ToolCall, *, proxy: bool = False, context: HostContext | None = None
    ) -> tuple[ShownView, str]:
        """Prepare a View and return it with the address to which its page has to connect, once and soon."""
        self._check_listening()
        view = await self._prepare_view(call, proxy=proxy, context=context)

        # The relay may have been closed while the document was read.
        try:
            self._check_listening()
        except ConfigurationError as error:
            view.lost(str(error))
            raise

        view_id = urandom(24).hex()
        timer = asyncio.get_running_loop().call_later(self._wait_seconds, self._endpoint.expire, view_id)
        self._endpoint.expected[view_id] = view, timer
        # The address ends with the View.
        view.ended.add_done_callback(lambda _: self._endpoint.forget(view_id))
        return view, f"{self.base_url}{PATH}{view_id}"

    async def aclose(self) -> None:
        """Stop listening. Connected Views lose their channel."""
        self._is_listening = False
        for view_id in list(self._endpoint.expected):
            self._endpoint.expire(view_id)
        if self._acceptor is not None:
            self._acceptor.close()
            await self._endpoint.aclose("the server is shutting down")
        while self._endpoint.closing:
            await asyncio.wait(self._endpoint.closing)

    def _check_listening(self) -> None:
        if not self._is_listening:
            raise ConfigurationError("the relay is not listening; call listen() first")


class _ViewEndpoint(Endpoint):
    """Decides who may connect: the guard of all transports, then the origin of the page, then the id."""

    def __init__(self, guard: Guard, limits: WebSocketLimits, origin: str) -> None:
        super().__init__(self._begin, guard, limits)
        self.expected: OrderedDict[str, tuple[ShownView, asyncio.TimerHandle]] = OrderedDict()
        self.closing: set[asyncio.Task[None]] = set()
        self._used: OrderedDict[str, None] = OrderedDict()
        self._origin = origin

    def check(self, headers: RequestHeaders) -> Principal | Refusal:
        # The origin of the page replaces those that other endpoints allow.
        refusal = self.guard.check_source(headers.get("host"), None)
        if refusal is not None:
            return refusal
        origin = headers.get("origin") or ""
        if not compare_digest(origin.lower().encode("utf-8", "replace"), self._origin.encode()):
            # This precedes the check of the id, so that another page learns nothing and uses up no address.
            return Refusal(403, f"Only the page at {self._origin} may connect to a View here.\n")
        return ANONYMOUS

    def refuse(self, request: Request) -> Refusal | None:
        path = request.path.partition("?")[0]
        view_id = path.removeprefix(PATH)
        if view_id in self._used:
            return Refusal(410, "This View was connected to already, or nobody came in time; open another one.\n")
        if not path.startswith(PATH) or view_id not in self.expected:
            return Refusal(404, "There is no View at this address.\n")
        if len(self.connections) > self.limits.max_connections:
            return Refusal(503, f"All {self.limits.max_connections} connections are in use.\n")
        return None

    def _begin(self, channel: Channel) -> Receiver:
        assert isinstance(channel, WebSocketChannel)
        view_id = channel.path.partition("?")[0].removeprefix(PATH)
        view, timer = self.expected.pop(view_id)
        timer.cancel()
        self._remember(view_id)
        loop = asyncio.get_running_loop()

        def close() -> None:
            closing = loop.create_task(channel.aclose("the View is closed"))
            self.closing.add(closing)
            closing.add_done_callback(self.closing.discard)

        # The View sends nothing before it receives a message, so the answer to the handshake is sent first.
        view.begin(channel.send, close)
        return ViewReceiver(view)

    def expire(self, view_id: str) -> None:
        if view_id in self.expected:
            view = self.expected[view_id][0]
            self.forget(view_id)
            view.lost("no page connected in time")

    def forget(self, view_id: str) -> None:
        found = self.expected.pop(view_id, None)
        if found is not None:
            found[1].cancel()
            self._remember(view_id)

    def _remember(self, view_id: str) -> None:
        self._used[view_id] = None
        if len(self._used) > MAX_USED_ADDRESSES:
            self._used.popitem(last=False)
