"""Change notifications of a connection: legacy `list_changed` and `resources/subscribe`, and `subscriptions/listen`.

Spec: 2026-07-28 basic/patterns/subscriptions; 2025-11-25 server/{tools,resources,prompts}.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mcpd.protocol.envelope import SUBSCRIPTION_ID
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.session import Call, Session
from mcpd.protocol.types.base import CancelledParams, Meta, NotificationParams
from mcpd.protocol.types.features import ResourceUpdatedParams
from mcpd.protocol.types.interaction import AcknowledgedParams, ListenResult, SubscriptionFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.protocol.channel import Channel
    from mcpd.server.backplane.base import Kind


class _Subscription:
    # One open `subscriptions/listen`.
    __slots__ = ("call", "ended", "lists", "uris")

    def __init__(self, call: Call, wanted: SubscriptionFilter, ended: asyncio.Future[None]) -> None:
        self.call = call
        self.ended = ended
        flags = {
            "tools": wanted.tools_list_changed,
            "prompts": wanted.prompts_list_changed,
            "resources": wanted.resources_list_changed,
            "events": wanted.events_list_changed,
        }
        # Thousands of these may be open at once: a set takes 216 bytes even if it is empty.
        self.lists = tuple(kind for kind, is_wanted in flags.items() if is_wanted)
        self.uris = frozenset(wanted.resource_subscriptions) if wanted.resource_subscriptions else ()


class Subscriptions:
    """The subscriptions of one connection. `send` is `ServerConnection.send`.

    A change that happens several times in one iteration of the event loop, or while a slow client has not read what is
    queued for it, is sent once.
    """

    __slots__ = ("_channel", "_due", "_listeners", "_scheduled", "_send_frame", "_session")

    def __init__(self, session: Session, channel: Channel, send: Callable[..., None]) -> None:
        self._session = session
        self._channel = channel
        self._send_frame = send
        self._listeners: dict[Id, _Subscription] = {}
        self._due: dict[tuple[str, str | None], None] | None = None
        self._scheduled: asyncio.Handle | asyncio.Future[None] | None = None

    async def listen(self, call: Call, wanted: SubscriptionFilter) -> ListenResult:
        """Acknowledge, then deliver until the client cancels (no response) or `end_all` is called (a result)."""
        listener = _Subscription(call, wanted, asyncio.get_running_loop().create_future())
        # The acknowledgement is the first message of the subscription (S26-092, S26-093).
        acknowledged = AcknowledgedParams(notifications=wanted, meta={SUBSCRIPTION_ID: call.id})
        self._send("notifications/subscriptions/acknowledged", acknowledged, call)
        del wanted, acknowledged  # the subscription may last for hours
        self._listeners[call.id] = listener

        try:
            await listener.ended
        finally:
            del self._listeners[call.id]
        return ListenResult(meta={SUBSCRIPTION_ID: call.id})

    def keep(self, call: Call, ended: asyncio.Future[None]) -> None:
        """Let `end_all` end another kind of subscription too, by setting `ended`."""
        self._listeners[call.id] = _Subscription(call, SubscriptionFilter(), ended)

    def drop(self, call: Call) -> None:
        """Forget a subscription that was kept."""
        self._listeners.pop(call.id, None)

    def end_all(self) -> None:
        """End all subscriptions: each receives its result, then on a shared channel a cancellation.

        Spec: the subscriptions page demands the result, the cancellation page the notification (S26-094).
        """
        for listener in self._listeners.values():
            if not listener.ended.done():
                listener.ended.set_result(None)
                if self._channel.is_multiplexed and listener.call.method == "subscriptions/listen":
                    listener.ended.get_loop().call_soon(self._send_cancelled, listener.call)

    def _send_cancelled(self, call: Call) -> None:
        params = CancelledParams(request_id=call.id, reason="the server ended the subscription")
        frame = self._session.notify("notifications/cancelled", params)
        if frame is not None:
            # After the result, which may be delayed too.
            self._send_frame(frame, call.id, "notifications/cancelled", is_separate=True)

    def notify(self, kind: Kind, uri: str | None) -> None:
        """Notify the client of a changed list or, if `uri` is given, of a changed resource, if it has subscribed."""
        listeners = self._listeners.values()
        if uri is None:
            if self._session.is_initialized or any(kind in listener.lists for listener in listeners):
                self._schedule(f"notifications/{kind}/list_changed", None)
        elif self._is_watched(uri) or any(uri in listener.uris for listener in listeners):
            self._schedule("notifications/resources/updated", uri)

    def missed(self) -> None:
        """Notify the client once of each resource that it watches: changes of other servers may have been missed."""
        watched = {uri for listener in self._listeners.values() for uri in listener.uris}
        for uri in watched.union(self._session.watched or ()):
            self.notify("resources", uri)

    def _is_watched(self, uri: str) -> bool:
        return self._session.is_initialized and self._session.is_watched(uri)

    def _schedule(self, method: str, uri: str | None) -> None:
        # Send a notification in the next iteration of the event loop, once.
        if self._due is None:
            self._due = {}
        self._due[method, uri] = None
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._send_due)

    def _send_due(self) -> None:
        if self._channel.is_congested:
            # At most one task, which waits until the client has read enough or has left.
            self._scheduled = asyncio.ensure_future(self._drain())
            return

        self._scheduled = None
        due, self._due = self._due, None
        for method, uri in due or ():
            kind = method.split("/")[1]
            for listener in list(self._listeners.values()):
                if uri in listener.uris if uri is not None else kind in listener.lists:
                    self._send(method, _params(uri, {SUBSCRIPTION_ID: listener.call.id}), listener.call)
            if self._session.is_initialized if uri is None else self._is_watched(uri):
                self._send(method, _params(uri, None), None)

    async def _drain(self) -> None:
        await self._channel.drain()
        self._send_due()

    def _send(self, method: str, params: Any, call: Call | None) -> None:
        frame = self._session.notify(method, params, call)
        if frame is not None:
            if call is not None:
                call.bytes_sent = 1
            self._send_frame(frame, None if call is None else call.id, method)


def _params(uri: str | None, meta: Meta) -> Any:
    if uri is not None:
        return ResourceUpdatedParams(uri=uri, meta=meta)
    return None if meta is None else NotificationParams(meta=meta)
