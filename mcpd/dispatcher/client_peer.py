"""What a connection says to its client beside answers: notifications, requests of ours, subscriptions.

It is the `Peer` of every request of the connection. Nothing of it is made before it is asked for: over HTTP a
connection may be for one request, which needs none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from msgspec import Raw

from mcpd.errors import LocalProtocolError, McpdError
from mcpd.protocol.jsonrpc import as_json
from mcpd.protocol.session import Call, Session

if TYPE_CHECKING:
    from mcpd.context.request_state import RequestStateCodec
    from mcpd.dispatcher.outgoing import OutgoingRequests
    from mcpd.dispatcher.subscriptions import Subscriptions
    from mcpd.protocol.channel import Channel
    from mcpd.protocol.types.interaction import ListenResult, SubscriptionFilter

_TURN_BYTES = 64 * 1024
"""After so many bytes about one call the event loop turns: a reader may be so fast that nothing ever has to wait."""


class ClientPeer:
    """The client as the requests of one connection reach it. `ServerConnection` derives from it, and sets all this."""

    __slots__ = ("_ended", "_get_state_codec", "_on_closed", "_outgoing", "_subscriptions", "channel", "loop",
                 "session", "to_builtins")  # fmt: skip

    session: Session
    channel: Channel
    loop: asyncio.AbstractEventLoop
    to_builtins: Callable[[Any], Any]
    """Makes JSON values of what is logged; the server's own knows more types."""
    _get_state_codec: Callable[[], RequestStateCodec] | None
    _ended: asyncio.Future[McpdError | None] | None
    _on_closed: tuple[Callable[[Any], object], ...]
    _subscriptions: Subscriptions | None
    _outgoing: OutgoingRequests | None

    @property
    def subscriptions(self) -> Subscriptions:
        """The change notifications that this client has subscribed to."""
        if self._subscriptions is None:
            from mcpd.dispatcher.subscriptions import Subscriptions  # many a client never hears of a change

            self._subscriptions = Subscriptions(self.session, self.channel)
        return self._subscriptions

    @property
    def ended(self) -> asyncio.Future[McpdError | None]:
        """Done when the peer will send no more; its result is the error that ended it, or None."""
        if self._ended is None:
            self._ended = self.loop.create_future()
        return self._ended

    def on_closed(self, callback: Callable[[Self], object]) -> None:
        """Have this called with the connection, at once, when the peer will send no more.

        It is what `ended` is for, without a future for each of thousands of connections that wait.
        """
        self._on_closed = (*self._on_closed, callback)

    def say(self, method: str, params: Any, related_request: Call | None = None) -> Coroutine[Any, Any, None] | None:
        """Send a notification. Gives a coroutine that the caller has to await before it says more; mostly None.

        That waits while the peer does not read, and lets others go on if one call says much.
        """
        frame = self.session.notify(method, params, related_request)
        if frame is None:
            return None

        channel = self.channel
        if related_request is None:
            channel.send(frame, None, method)
            return self._pause(None)

        channel.send(frame, related_request.id, method)
        told = related_request.told = related_request.told + len(frame)
        return self._pause(related_request) if told > _TURN_BYTES or channel.is_congested else None

    async def _pause(self, related_request: Call | None) -> None:
        if self.channel.is_congested:
            await self.channel.drain()
        else:
            # Nothing has to be waited for; but who never waits would let no other call have its turn.
            await asyncio.sleep(0)

        if related_request is not None:
            related_request.told = 1  # not 0: its answer leaves apart from what was said before it

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        """`say`, with what is to be awaited after it."""
        pause = self.say(method, params, related_request)
        if pause is not None:
            await pause

    def as_json(self, data: Any) -> Any:
        """Any object as JSON values that can be sent, its `repr` if it has no better form. Never raises."""
        return as_json(data, self.to_builtins)

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        """Ask the client something as part of `related_request`, and give its raw result.

        Raises RemoteError if it answers with an error, RequestTimeout, ConnectionLost.
        """
        if self._outgoing is None:
            from mcpd.dispatcher.outgoing import OutgoingRequests  # few servers ask anything, and this costs start-up

            self._outgoing = OutgoingRequests(self.session, self.channel, self.loop)
        return await self._outgoing.request(method, params, related_request, timeout)

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Keep a subscription open until it is cancelled or the server ends it."""
        return self.subscriptions.listen(call, wanted)

    @property
    def state_codec(self) -> RequestStateCodec:
        """What seals the states of multi round-trip requests."""
        if self._get_state_codec is None:
            raise LocalProtocolError("this connection has no key to seal states with")
        return self._get_state_codec()
