"""`Peer`: how a running request sends notifications and requests to its client. The dispatcher implements it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

if TYPE_CHECKING:
    from mcpd.protocol.channel import Channel
    from mcpd.protocol.session import Call
    from mcpd.protocol.types.interaction import ListenResult, SubscriptionFilter
    from mcpd.server.context.request_state import RequestStateCodec


class Peer(Protocol):
    """The connection as a context sees it."""

    loop: asyncio.AbstractEventLoop
    channel: Channel

    def say(self, method: str, params: Any, related_request: Call | None = None) -> Coroutine[Any, Any, None] | None:
        """Send a notification for `related_request`; dropped if that is answered, or the version has no such.

        Gives a coroutine that the caller has to await before it says more, or None if there is nothing to wait for.
        """

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        """`say`, with what is to be awaited after it."""

    def as_json(self, data: Any) -> Any:
        """Any object as JSON values that can be sent, its `repr` if it has no better form. Never raises."""

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        """Ask the client, and give its raw result. Raises RemoteError, RequestTimeout, ConnectionLost."""

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Keep a subscription open; gives its result when the server ends it."""

    @property
    def state_codec(self) -> RequestStateCodec:
        """What seals the states of multi round-trip requests."""
