"""Notifications that the program wants: `Interests`, and the subscription of modern versions, `subscriptions/listen`.

A modern server only sends notifications that were requested, so a client keeps one `subscriptions/listen` request open.
When the requested notifications change, a new request replaces the old one without a gap.

Spec: 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from msgspec import Raw, Struct, field
from msgspec.json import Decoder, encode

from mcpd.client.callbacks import Callbacks
from mcpd.client.connection import ClientConnection
from mcpd.client.session import NotificationReceived
from mcpd.errors import ConnectionLost, McpdError, ProtocolError, RequestTimeout, TransportError
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import META, LogLevel, ServerCapabilities
from mcpd.protocol.types.interaction import AcknowledgedParams, ListenParams, SubscriptionFilter


class Interests:
    """The notifications that the program wants, which each new connection requests again."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self.uris: set[str] = set()
        self.log_level: LogLevel | None = None

    @property
    def is_listening(self) -> bool:
        """Whether the program receives notifications without sending requests."""
        callbacks = self._callbacks
        hears_log = callbacks.log is not None and self.log_level is not None
        return callbacks.list_changed is not None or bool(self.uris) or hears_log

    def may_have_changed(self, offered: ServerCapabilities) -> Iterator[tuple[str, Raw]]:
        """Yield the notifications that may have been missed, as method and params."""
        if self._callbacks.list_changed is not None:
            lists = {"tools": offered.tools, "prompts": offered.prompts, "resources": offered.resources}
            for kind, capability in lists.items():
                if capability is not None and capability.list_changed:
                    yield f"notifications/{kind}/list_changed", Raw(b"{}")
        for uri in sorted(self.uris):
            yield "notifications/resources/updated", Raw(encode({"uri": uri}))


log = logging.getLogger("mcpd.client")

ACKNOWLEDGED_SECONDS = 5.0
AGAIN_SECONDS = 1.0
LONGEST_PAUSE = 30.0
LASTED_SECONDS = 10.0


class _Meta(Struct):
    subscription: Id | None = field(name=f"{META}subscriptionId", default=None)


class _Notification(Struct):
    meta: _Meta | None = field(name="_meta", default=None)


_read_notification = Decoder(_Notification).decode
_read_acknowledged = Decoder(AcknowledgedParams).decode

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_SUBSCRIBED = frozenset(
    (
        _ACKNOWLEDGED,
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    )
)
"""Notifications that a modern server sends on a subscription only."""


class Subscription:
    """The subscription of one connection."""

    def __init__(self, connection: ClientConnection, callbacks: Callbacks) -> None:
        self._connection = connection
        self._callbacks = callbacks
        self._uris: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._interests = Interests(callbacks)
        self._again: set[Id] = set()
        """Requests that replace a subscription which the server had ended."""
        self._changing = asyncio.Lock()
        self._acknowledged: dict[Id, asyncio.Future[SubscriptionFilter | None]] = {}
        """The open requests, and what the server acknowledged for each; None if the acknowledgement is invalid."""
        connection.is_wanted = self._is_wanted

    async def begin(self, interests: Interests) -> None:
        """Request the notifications that the program wants. Refusals are logged."""
        self._interests = interests
        if self._callbacks.list_changed is not None or interests.uris:
            try:
                await self._listen_to(frozenset(interests.uris), ACKNOWLEDGED_SECONDS)
            except ConnectionLost:
                raise
            except McpdError as error:
                log.warning("notifications of changes cannot be received: %s", printable(error))

    async def subscribe(self, uri: str, timeout: float | None) -> None:
        """Subscribe to changes of a resource. If an error is raised, nothing has changed."""
        async with self._changing:
            if uri not in self._uris or self._task is None or self._task.done():
                await self._listen_to(self._uris | {uri}, timeout, added=uri)

    async def unsubscribe(self, uri: str, timeout: float | None) -> None:
        """End the subscription to a resource."""
        async with self._changing:
            if uri in self._uris:
                await self._listen_to(self._uris - {uri}, timeout)

    async def end(self) -> None:
        """Stop listening."""
        if self._task is not None:
            await _stop(self._task)

    def _filter(self, uris: frozenset[str]) -> _Filter:
        offered = self._connection.session.server_capabilities
        wants = self._callbacks.list_changed is not None
        return _Filter(
            tools_list_changed=wants and offered.tools is not None and offered.tools.list_changed,
            prompts_list_changed=wants and offered.prompts is not None and offered.prompts.list_changed,
            resources_list_changed=wants and offered.resources is not None and offered.resources.list_changed,
            resource_subscriptions=sorted(uris) or None,
        )

    async def _listen_to(self, uris: frozenset[str], timeout: float | None, added: str | None = None) -> None:
        """Open the new subscription first, then end the old one, so that no notification is missed.

        If the server refuses the new one, or leaves out `added`, the old one stays open. Raises RemoteError,
        RequestTimeout, ConnectionLost, ProtocolError.
        """
        wanted, task = self._filter(uris), None
        if not wanted.is_empty:
            acknowledged = self._connection.loop.create_future()
            task = self._connection.loop.create_task(self._listen(wanted, acknowledged))
            try:
                async with asyncio.timeout(timeout):
                    agreed = await acknowledged
                self._look_at(wanted, agreed, added)
            except TimeoutError:
                await _stop(task)
                raise RequestTimeout(
                    f"The server did not acknowledge subscriptions/listen within {timeout:g} s"
                ) from None
            except BaseException:
                await _stop(task)
                raise

        old, self._task, self._uris = self._task, task, uris
        if old is not None:
            await _stop(old)

    def _look_at(self, wanted: SubscriptionFilter, agreed: SubscriptionFilter | None, added: str | None) -> None:
        """Log what the server left out of its acknowledgement. Raises ProtocolError if `added` is missing.

        Spec: "The client SHOULD check the acknowledged filter … and handle any unsupported types gracefully".
        """
        if agreed is None:
            return
        told_of = agreed.resource_subscriptions or ()
        if added is not None and added not in told_of:
            raise ProtocolError(f"The server does not report changes of {added}: its acknowledgement leaves it out")

        missing = [uri for uri in wanted.resource_subscriptions or () if uri not in told_of]
        missing += [name.replace("_", " ") for name in _LISTS if getattr(wanted, name) and not getattr(agreed, name)]
        if missing:
            text = "the server does not report all changes that were requested: %s"
            self._connection.session.faults.log(logging.WARNING, text, printable(", ".join(missing), 300))

    async def _listen(
        self, wanted: SubscriptionFilter, acknowledged: asyncio.Future[SubscriptionFilter | None]
    ) -> None:
        """Keep a subscription open. If the server ends it, open it again while the connection lives."""
        connection, params = self._connection, ListenParams(notifications=wanted)
        pause = AGAIN_SECONDS
        while True:
            request = connection.session.request("subscriptions/listen", params)
            self._acknowledged[request.id] = acknowledged
            began = connection.loop.time()
            if acknowledged.done():
                self._again.add(request.id)
            error: McpdError | None = None
            try:
                await connection.answer(request, None)
            except McpdError as raised:
                error = raised
            finally:
                del self._acknowledged[request.id]
                self._again.discard(request.id)

            if not acknowledged.done():
                acknowledged.set_exception(
                    error or ProtocolError("The server ended a subscription without acknowledging it")
                )
                return
            if connection.is_lost:
                return
            if error is not None and not isinstance(error, TransportError):
                log.warning("notifications of changes are no longer received: %s", printable(error))
                return

            # If each request has its own connection, only the subscription's may be interrupted, again and again.
            pause = AGAIN_SECONDS if error is None or connection.loop.time() - began > LASTED_SECONDS else pause * 2
            await asyncio.sleep(min(pause, LONGEST_PAUSE))

    def _is_wanted(self, notification: NotificationReceived) -> bool:
        """Drop notifications that belong to no open subscription.

        Spec: on stdio "clients MUST use this field to correlate notifications with their originating subscription".
        """
        if notification.method not in _SUBSCRIBED:
            return True

        try:
            meta = _read_notification(notification.params).meta
        except MALFORMED:
            meta = None
        acknowledged = None if meta is None or meta.subscription is None else self._acknowledged.get(meta.subscription)

        if acknowledged is None:
            text = "the server sent a %s that belongs to no subscription"
            self._connection.session.faults.log(logging.INFO, text, printable(notification.method))
        elif notification.method != _ACKNOWLEDGED:
            return True
        elif not acknowledged.done():
            acknowledged.set_result(_agreed(notification))
        elif meta is not None and meta.subscription in self._again:
            self._again.discard(meta.subscription)
            self._connection.loop.call_soon(self._report_missed_changes)
        return False

    def _report_missed_changes(self) -> None:
        """Report changes that may have happened between two subscriptions."""
        self._interests.uris.update(self._uris)
        for method, params in self._interests.may_have_changed(self._connection.session.server_capabilities):
            self._connection.report_change(method, params)


def _agreed(notification: NotificationReceived) -> SubscriptionFilter | None:
    """Return the acknowledged filter; None if it is invalid."""
    try:
        return _read_acknowledged(notification.params).notifications
    except MALFORMED:
        return None


_LISTS = ("tools_list_changed", "prompts_list_changed", "resources_list_changed")


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


class _Filter(SubscriptionFilter):
    """A filter that knows whether it is empty."""

    @property
    def is_empty(self) -> bool:
        lists = self.tools_list_changed or self.prompts_list_changed or self.resources_list_changed
        return not (lists or self.resource_subscriptions)
