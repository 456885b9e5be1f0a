"""Views over WebSocket: a page in a browser needs only to pass messages on between its frame and a socket.

Each View gets an address of its own, `/view/<id>`: nobody can guess it, it can be connected to once, and only by
the page that it is for, which its `Origin` shows. Afterwards it is 410, and whatever was never given is 404.
A text frame is one message, both ways; the socket's end is the frame's end.

Rules APP-X-08, APP-H-20 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from hmac import compare_digest
from os import urandom
from typing import Protocol

from websockets.http11 import Request

from mcpd.errors import ConfigurationError
from mcpd.host.call import ToolCall
from mcpd.host.channels import ViewReceiver
from mcpd.host.shown import ShownView
from mcpd.host.view.context import HostContext
from mcpd.protocol.channel import Channel, Receiver
from mcpd.protocol.principal import ANONYMOUS, Principal
from mcpd.transports.accepting import Acceptor
from mcpd.transports.address import Address, authority, bind, parse
from mcpd.transports.authentication import Refusal, RequestHeaders
from mcpd.transports.guards import Access, Guard
from mcpd.transports.websocket.connection import WebSocketChannel
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits

log = logging.getLogger("mcpd.host")

PATH = "/view/"
_REMEMBERED = 1024


class ViewMaker(Protocol):
    """Makes a View whose channel comes later: a `Host`."""

    async def prepare_view(
        self, call: ToolCall, *, proxy: bool = False, context: HostContext | None = None
    ) -> ShownView:
        """See `Host.prepare_view`."""


class Relay:
    """A listening address for the Views of one host, and of one page. Made by `Host.listen_views`."""

    def __init__(
        self, maker: ViewMaker, origin: str, guard: Guard, limits: WebSocketLimits, wait_seconds: float
    ) -> None:
        self._maker = maker
        self._endpoint = _ViewEndpoint(guard, limits, origin)
        self._wait_seconds = wait_seconds
        self._acceptor: Acceptor | None = None
        self._is_listening = False
        self.base_url = ""
        """What the address of each View begins with: `ws://host:port`, for a page's `connect-src`."""

    async def listen(self, address: Address) -> None:
        """Begin to listen. Raises ConfigurationError for an address that cannot be used."""
        # Whoever connects has to know an id, which is a token of its own.
        sockets = await bind(address, is_guarded=True)
        self.base_url = f"ws://{authority(sockets[0])}"
        self._acceptor = Acceptor(self._endpoint.connection_limit, sockets, self._endpoint.connect)
        await self._acceptor.start()
        self._is_listening = True

    async def open_view(
        self, call: ToolCall, *, proxy: bool = False, context: HostContext | None = None
    ) -> tuple[ShownView, str]:
        """A View for a call, and the address at which its page is to connect: once, and soon.

        The View's life begins when the page connects. Raises what `Host.open_view` raises.
        """
        self._check_listening()
        view = await self._maker.prepare_view(call, proxy=proxy, context=context)

        # Closed while the document was read: nobody could connect any more.
        try:
            self._check_listening()
        except ConfigurationError as error:
            view.lost(str(error))
            raise

        view_id = urandom(24).hex()
        timer = asyncio.get_running_loop().call_later(self._wait_seconds, self._endpoint.expire, view_id)
        self._endpoint.expected[view_id] = view, timer
        # Gone before anybody came: its address goes too.
        view.ended.add_done_callback(lambda _: self._endpoint.forget(view_id))
        return view, f"{self.base_url}{PATH}{view_id}"

    async def aclose(self) -> None:
        """Listen no more; Views that are connected lose their channel."""
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
            raise ConfigurationError("the relay does not listen")


class _ViewEndpoint(Endpoint):
    """Who may connect to what: the same guard as everywhere, then the page's origin, then the id."""

    def __init__(self, guard: Guard, limits: WebSocketLimits, origin: str) -> None:
        super().__init__(self._begin, guard, limits)
        self.expected: OrderedDict[str, tuple[ShownView, asyncio.TimerHandle]] = OrderedDict()
        self.closing: set[asyncio.Task[None]] = set()
        self._used: OrderedDict[str, None] = OrderedDict()
        self._origin = origin

    def check(self, headers: RequestHeaders) -> Principal | Refusal:
        """The page may come in, whose origin takes the place of those that other servers allow."""
        refusal = self.guard.check_source(headers.get("host"), None)
        if refusal is not None:
            return refusal
        origin = headers.get("origin") or ""
        if not compare_digest(origin.lower().encode("utf-8", "replace"), self._origin.encode()):
            # Before the id is looked at: another page learns nothing, and uses up nothing.
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

        # The View says nothing before it is spoken to, so that the answer to the handshake leaves first.
        view.begin(channel.send, close)
        return ViewReceiver(view)

    def expire(self, view_id: str) -> None:
        """Nobody came for this View, and nobody will."""
        if view_id in self.expected:
            view = self.expected[view_id][0]
            self.forget(view_id)
            view.lost("no page connected in time")

    def forget(self, view_id: str) -> None:
        """The address is no good any more."""
        found = self.expected.pop(view_id, None)
        if found is not None:
            found[1].cancel()
            self._remember(view_id)

    def _remember(self, view_id: str) -> None:
        self._used[view_id] = None
        if len(self._used) > _REMEMBERED:
            self._used.popitem(last=False)


async def open_relay(
    maker: ViewMaker, address: str, origin: str, *, hosts: Iterable[str] = (), limits: WebSocketLimits | None = None
) -> Relay:
    """Listen at `address` for the page at `origin` (`http://host:port`); `hosts` are more names of this machine."""
    parsed = parse(address)
    scheme, found, rest = origin.lower().partition("://")
    if scheme not in ("http", "https") or not found or not rest or any(char in rest for char in "/?#, *"):
        raise ConfigurationError(f"origin {origin!r}: write the page's scheme://host:port, e.g. http://localhost:8000")
    guard = Guard(Access(hosts=tuple(hosts)), parsed.host)
    relay = Relay(maker, origin.lower(), guard, limits or WebSocketLimits(), 10.0)
    await relay.listen(parsed)
    return relay
