"""Hearing of changes: `subscriptions/listen` in modern versions, `resources/subscribe` before.

A modern server tells nothing that was not asked for, so that a client which wants to hear of changes keeps one
listening request open; a new one replaces it, without a gap, when something else is to be watched.

Spec: 2026-07-28 basic/patterns/subscriptions; 2025-11-25 server/resources, subscriptions.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from ..errors import McpdError, TransportError
from ..jsonrpc import MALFORMED
from ..types.base import META
from ..types.rounds import ListenParams, SubscriptionFilter
from .callbacks import Callbacks
from .connection import Connection

__all__ = ["Subscription"]

log = logging.getLogger("mcpd.client")

ACKNOWLEDGED_SECONDS = 5.0
AGAIN_SECONDS = 1.0


class _Meta(Struct):
    subscription: int | str | None = field(name=f"{META}subscriptionId", default=None)


class _Acknowledged(Struct):
    meta: _Meta | None = field(name="_meta", default=None)


_read_acknowledged = Decoder(_Acknowledged).decode


class Subscription:
    """What one client wants to hear of."""

    def __init__(self, connection: Connection, callbacks: Callbacks) -> None:
        self._connection = connection
        self._callbacks = callbacks
        self._uris: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._acknowledged: asyncio.Event = asyncio.Event()
        self._listening: int | str | None = None
        connection.on_acknowledged = self._on_acknowledged

    @property
    def _is_modern(self) -> bool:
        version = self._connection.session.version
        return version is not None and version.is_modern

    async def begin(self) -> None:
        """Listen for changes of lists, if the program wants to hear of any."""
        if self._is_modern and self._callbacks.list_changed is not None and not self._filter().is_empty:
            await self._listen_anew()

    async def watch(self, uri: str) -> None:
        """Hear of changes of this resource too."""
        if not self._is_modern:
            await self._connection.request("resources/subscribe", {"uri": uri}, timeout=60)
        elif uri not in self._uris:
            self._uris[uri] = None
            await self._listen_anew()

    async def unwatch(self, uri: str) -> None:
        """Hear of them no longer."""
        if not self._is_modern:
            await self._connection.request("resources/unsubscribe", {"uri": uri}, timeout=60)
        elif uri in self._uris:
            del self._uris[uri]
            await self._listen_anew()

    async def end(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _filter(self) -> _Filter:
        offered = self._connection.session.server_capabilities
        wants = self._callbacks.list_changed is not None
        return _Filter(
            tools_list_changed=wants and offered.tools is not None and offered.tools.list_changed,
            prompts_list_changed=wants and offered.prompts is not None and offered.prompts.list_changed,
            resources_list_changed=wants and offered.resources is not None and offered.resources.list_changed,
            resource_subscriptions=list(self._uris) or None,
        )

    async def _listen_anew(self) -> None:
        """Open the new subscription first, then end the old one: nothing is missed in between."""
        old, self._task = self._task, None
        wanted = self._filter()
        if not wanted.is_empty:
            self._acknowledged = asyncio.Event()
            self._task = asyncio.ensure_future(self._listen(wanted))
            acknowledged = asyncio.ensure_future(self._acknowledged.wait())
            await asyncio.wait(
                [acknowledged, self._task], timeout=ACKNOWLEDGED_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            acknowledged.cancel()
        if old is not None:
            old.cancel()
            await asyncio.wait([old])

    async def _listen(self, wanted: SubscriptionFilter) -> None:
        """Keep a subscription open; one that the server ends is opened again while the connection lives."""
        connection = self._connection
        while True:
            try:
                request_id = connection.session.request("subscriptions/listen", ListenParams(notifications=wanted))
                self._listening = request_id
                await connection.answer(request_id, "subscriptions/listen", None)
            except TransportError:
                return
            except McpdError as error:
                log.warning("changes of the server's lists will not be heard of: %s", error)
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def _on_acknowledged(self, params: Raw) -> None:
        try:
            meta = _read_acknowledged(params).meta
        except MALFORMED:
            return
        if meta is not None and meta.subscription == self._listening:
            self._acknowledged.set()


class _Filter(SubscriptionFilter):
    """A filter that knows whether it lets anything through."""

    @property
    def is_empty(self) -> bool:
        lists = self.tools_list_changed or self.prompts_list_changed or self.resources_list_changed
        return not (lists or self.resource_subscriptions)
