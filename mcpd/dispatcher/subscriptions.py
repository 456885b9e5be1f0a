"""What one connection wants to hear of unasked: legacy list changes and watched resources, and `subscriptions/listen`.

Spec: 2026-07-28 basic/patterns/subscriptions; 2025-11-25 server/{tools,resources,prompts}.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypeAlias

from ..channel import Channel
from ..jsonrpc import Id
from ..session import Call, Session
from ..types.base import META
from ..types.notifications import CancelledParams, NotificationParams
from ..types.resources import ResourceUpdatedParams
from ..types.rounds import AcknowledgedParams, ListenResult, SubscriptionFilter

__all__ = ["Kind", "Subscriptions"]

Kind: TypeAlias = Literal["tools", "prompts", "resources"]

_SUBSCRIPTION = f"{META}subscriptionId"


class _Listener:
    """One open `subscriptions/listen`."""

    __slots__ = ("call", "ended", "lists", "uris")

    def __init__(self, call: Call, wanted: SubscriptionFilter, ended: asyncio.Future[None]) -> None:
        self.call = call
        self.ended = ended
        flags = {
            "tools": wanted.tools_list_changed,
            "prompts": wanted.prompts_list_changed,
            "resources": wanted.resources_list_changed,
        }
        self.lists = {kind for kind, is_wanted in flags.items() if is_wanted}
        self.uris = set(wanted.resource_subscriptions or ())


class Subscriptions:
    """The listeners of one connection. What a slow reader has not taken yet is said once, not many times."""

    def __init__(self, session: Session, channel: Channel) -> None:
        self._session = session
        self._channel = channel
        self._listeners: dict[Id, _Listener] = {}
        self._late: dict[tuple[str, str | None], None] = {}
        self._draining: asyncio.Task[None] | None = None

    async def listen(self, call: Call, wanted: SubscriptionFilter) -> ListenResult:
        """Acknowledge, then deliver until the call is cancelled (silence) or `end_all` (a result)."""
        listener = _Listener(call, wanted, asyncio.get_running_loop().create_future())
        # The acknowledgement is the first message of the subscription (S26-092, S26-093).
        acknowledged = AcknowledgedParams(notifications=wanted, meta={_SUBSCRIPTION: call.id})
        self._send("notifications/subscriptions/acknowledged", acknowledged, call)
        self._listeners[call.id] = listener
        try:
            await listener.ended
        finally:
            del self._listeners[call.id]
        return ListenResult(meta={_SUBSCRIPTION: call.id})

    def end_all(self) -> None:
        """End all subscriptions from our side: each gets its result, then on a shared channel the `cancelled`.

        Spec: the subscriptions page asks for the result, the cancellation page for the notification (S26-094).
        """
        for listener in self._listeners.values():
            if not listener.ended.done():
                listener.ended.set_result(None)
                if self._channel.is_shared:
                    listener.ended.get_loop().call_soon(self._say_cancelled, listener.call)

    def _say_cancelled(self, call: Call) -> None:
        params = CancelledParams(request_id=call.id, reason="the server ended the subscription")
        frame = self._session.notify("notifications/cancelled", params)
        if frame is not None:
            self._channel.send(frame, call.id)

    def changed(self, kind: Kind) -> None:
        """A list of that kind is another one now."""
        self._announce(f"notifications/{kind}/list_changed", kind, None)

    def updated(self, uri: str) -> None:
        """A resource holds something else now."""
        self._announce("notifications/resources/updated", "", uri)

    def _announce(self, method: str, kind: str, uri: str | None) -> None:
        if self._channel.is_congested:
            self._late[method, uri] = None
            if self._draining is None:
                self._draining = asyncio.ensure_future(self._catch_up())
            return
        for listener in list(self._listeners.values()):
            if uri in listener.uris if uri is not None else kind in listener.lists:
                self._send(method, _params(uri, {_SUBSCRIPTION: listener.call.id}), listener.call)
        session = self._session
        if session.is_initialized and (uri is None or uri in session.subscribed):
            self._send(method, _params(uri, None), None)

    async def _catch_up(self) -> None:
        await self._channel.drain()
        late, self._late, self._draining = self._late, {}, None
        for method, uri in late:
            self._announce(method, method.split("/")[1] if uri is None else "", uri)

    def _send(self, method: str, params: Any, call: Call | None) -> None:
        frame = self._session.notify(method, params, call)
        if frame is not None:
            self._channel.send(frame, None if call is None else call.id)


def _params(uri: str | None, meta: dict[str, Any] | None) -> Any:
    if uri is not None:
        return ResourceUpdatedParams(uri=uri, meta=meta)
    return None if meta is None else NotificationParams(meta=meta)
