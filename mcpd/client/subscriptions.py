"""Hearing of changes in modern versions: `subscriptions/listen`.

A modern server tells nothing that was not asked for, so that a client which wants to hear of changes keeps one
listening request open; a new one replaces it, without a gap, when something else is to be watched.

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
from mcpd.client.session import Notified
from mcpd.errors import ConnectionLost, McpdError, ProtocolError, RequestTimeout, TransportError
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import META, LogLevel, ServerCapabilities
from mcpd.protocol.types.interaction import AcknowledgedParams, ListenParams, SubscriptionFilter


class Wishes:
    """The notifications that the program wants, which each new connection requests again."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self.uris: set[str] = set()
        self.log_level: LogLevel | None = None

    @property
    def is_listening(self) -> bool:
        """Whether the program hears of the server without asking it anything."""
        callbacks = self._callbacks
        hears_log = callbacks.log is not None and self.log_level is not None
        return callbacks.list_changed is not None or bool(self.uris) or hears_log

    def may_have_changed(self, offered: ServerCapabilities) -> Iterator[tuple[str, Raw]]:
        """The notifications that may have been missed, by method and params."""
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


class _Told(Struct):
    meta: _Meta | None = field(name="_meta", default=None)


_read_told = Decoder(_Told).decode
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
"""What a modern server sends on a subscription and nowhere else."""


class Subscription:
    """What one client wants to hear of."""

    def __init__(self, connection: ClientConnection, callbacks: Callbacks) -> None:
        self._connection = connection
        self._callbacks = callbacks
        self._uris: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._wishes = Wishes(callbacks)
        self._again: set[Id] = set()
        """Of these requests those that came after one which had ended."""
        self._changing = asyncio.Lock()
        self._acknowledged: dict[Id, asyncio.Future[SubscriptionFilter | None]] = {}
        """The listening requests that are open, and what of them the server agreed to: None if it did not say."""
        connection.is_wanted = self._is_wanted

    async def begin(self, wishes: Wishes) -> None:
        """Listen for changes of lists, if the program wants to hear of any, and of what it watched before."""
        self._wishes = wishes
        if self._callbacks.list_changed is not None or wishes.uris:
            try:
                await self._listen_to(frozenset(wishes.uris), ACKNOWLEDGED_SECONDS)
            except ConnectionLost:
                raise
            except McpdError as error:
                log.warning("changes at the server will not be on_response of: %s", printable(error))

    async def watch(self, uri: str, timeout: float | None) -> None:
        """Hear of changes of this resource too. Raises as a request does; then all is as it was before."""
        async with self._changing:
            if uri not in self._uris or self._task is None or self._task.done():
                await self._listen_to(self._uris | {uri}, timeout, added=uri)

    async def unwatch(self, uri: str, timeout: float | None) -> None:
        """Hear of them no longer."""
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
        """Open the new subscription first, then end the old one: nothing is missed in between.

        The old one stays if the server does not agree to the new one, or leaves `added` out of it. Raises RemoteError,
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
        """What the server will not tell of is logged. Raises ProtocolError if that is what was just asked for.

        Spec: "The client SHOULD check the acknowledged filter … and handle any unsupported types gracefully".
        """
        if agreed is None:
            return
        told_of = agreed.resource_subscriptions or ()
        if added is not None and added not in told_of:
            raise ProtocolError(f"The server does not tell when {added} changes: it left it out of what it agreed to")

        missing = [uri for uri in wanted.resource_subscriptions or () if uri not in told_of]
        missing += [name.replace("_", " ") for name in _LISTS if getattr(wanted, name) and not getattr(agreed, name)]
        if missing:
            text = "the server does not tell of all that was asked for: %s"
            self._connection.session.faults.say(logging.WARNING, text, printable(", ".join(missing), 300))

    async def _listen(
        self, wanted: SubscriptionFilter, acknowledged: asyncio.Future[SubscriptionFilter | None]
    ) -> None:
        """Keep a subscription open; one that the server ends is opened again while the connection lives."""
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
                acknowledged.set_exception(error or ProtocolError("The server ended what it had not acknowledged"))
                return
            if connection.is_lost:
                return
            if error is not None and not isinstance(error, TransportError):
                log.warning("changes at the server will not be on_response of any more: %s", printable(error))
                return

            # Where each request has a connection of its own, only that of the subscription may be cut, again and again.
            pause = AGAIN_SECONDS if error is None or connection.loop.time() - began > LASTED_SECONDS else pause * 2
            await asyncio.sleep(min(pause, LONGEST_PAUSE))

    def _is_wanted(self, told: Notified) -> bool:
        """Changes that no open subscription asked for are dropped: they are late, or nobody's.

        Spec: on stdio "clients MUST use this field to correlate notifications with their originating subscription".
        """
        if told.method not in _SUBSCRIBED:
            return True

        try:
            meta = _read_told(told.params).meta
        except MALFORMED:
            meta = None
        acknowledged = None if meta is None or meta.subscription is None else self._acknowledged.get(meta.subscription)

        if acknowledged is None:
            text = "a %s that belongs to no subscription"
            self._connection.session.faults.say(logging.INFO, text, printable(told.method))
        elif told.method != _ACKNOWLEDGED:
            return True
        elif not acknowledged.done():
            acknowledged.set_result(_agreed(told))
        elif meta is not None and meta.subscription in self._again:
            self._again.discard(meta.subscription)
            self._connection.loop.call_soon(self._tell_of_what_was_missed)
        return False

    def _tell_of_what_was_missed(self) -> None:
        """Between two subscriptions nothing was on_response."""
        self._wishes.uris.update(self._uris)
        for method, params in self._wishes.may_have_changed(self._connection.session.server_capabilities):
            self._connection.tell(method, params)


def _agreed(told: Notified) -> SubscriptionFilter | None:
    """What an acknowledgement says will be told; None if it cannot be read."""
    try:
        return _read_acknowledged(told.params).notifications
    except MALFORMED:
        return None


_LISTS = ("tools_list_changed", "prompts_list_changed", "resources_list_changed")


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


class _Filter(SubscriptionFilter):
    """A filter that knows whether it lets anything through."""

    @property
    def is_empty(self) -> bool:
        lists = self.tools_list_changed or self.prompts_list_changed or self.resources_list_changed
        return not (lists or self.resource_subscriptions)
