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
    from mcpd.server.context.asking import RequestStateCodec


class Peer(Protocol):
    """The connection as a request sees it."""

    loop: asyncio.AbstractEventLoop
    channel: Channel

    def say(self, method: str, params: Any, related_request: Call | None = None) -> Coroutine[Any, Any, None] | None:
        """Send a notification for `related_request`; dropped if the request was answered, or the version lacks the
        method.

        Returns a coroutine to await before the next notification, or None if there is nothing to wait for.
        """

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        """`say`, and wait if necessary."""

    def as_json(self, data: Any) -> Any:
        """Return any object as JSON values, or its `repr` without a better form. Never raises."""

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        """Send a request and return its raw result. Raises RemoteError, RequestTimeout or ConnectionLost."""

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Keep a subscription open; returns its result when the server ends it."""

    @property
    def state_codec(self) -> RequestStateCodec:
        """The codec for the states of multi round-trip requests."""
