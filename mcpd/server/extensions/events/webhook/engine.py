"""`Webhooks`: subscriptions of webhooks from their consent to their end.

Spec: SEP-3415, webhook subscriptions. EVT-035 to 048, 065, 068, 069.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec import Raw
from msgspec.json import decode

from mcpd.errors import InvalidParams
from mcpd.protocol.types.base import NO_JSON
from mcpd.protocol.types.events import DeliveryStatus, SubscribeResult
from mcpd.server.backplane.node import namespace_of, open_backplane
from mcpd.server.extensions.events.wire import (
    CallbackEndpointError,
    Event,
    EventFailure,
    Forbidden,
    ResourceExhausted,
    canonical,
    error_object,
)
from .consent import CHALLENGES, Consent, Refused, TooManyChallenges
from .delivery import DeliverySettings, Item, Link
from .following import Audience, Following
from .send import Sender, read_secret, read_url
from .store import Store, Subscription, position_before, subscription_id

if TYPE_CHECKING:
    from mcpd.server.backplane.base import Backplane

_ROTATION = 600.0
_MOST_IN_MEMORY = 3600.0
_TERMINATED_WAITS = (0.0, 10.0, 40.0)


async def open_engine(hub: Any, server: Any, shared: Backplane | None) -> Webhooks:
    """Start the webhooks of a server. Without a store of their own they use the backplane that processes share."""
    settings = hub.settings
    own = None if settings.store is None else open_backplane(settings.store, server.name)
    store = Store(own or shared, f"{namespace_of(server.name)}:", server.state_keys)
    webhooks = Webhooks(hub, store, server.name, owns_backplane=own is not None)
    if webhooks.is_shared:
        webhooks.follow(hub.arrived)
    await webhooks.open()
    return webhooks


class Webhooks(Following):
    """The webhooks of one server. `sender` and `delivery` replace what the settings of the hub say."""

    def __init__(
        self,
        hub: Audience,
        store: Store,
        server: str,
        *,
        sender: Sender | None = None,
        delivery: DeliverySettings | None = None,
        owns_backplane: bool = False,
    ) -> None:
        settings = hub.settings
        super().__init__(
            hub,
            store,
            sender or Sender(settings.allow_private),
            delivery or DeliverySettings(ids=settings.webhook_id, has_gaps=settings.profile != "chatgpt"),
        )
        self.consent = Consent(self._sender, settings.allow)
        self._server = server
        self._owns_backplane = owns_backplane
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def aclose(self, grace: float = 5.0) -> None:
        """Wait for attempts under way, and leave the rest to the store. Safe to call twice."""
        await super().aclose(grace)
        if self._owns_backplane:
            await self.store.backplane.aclose()

    # -- subscribing -------------------------------------------------------------------------

    def id_of(self, principal: str, name: str, arguments: Mapping[str, Any], url: str) -> str:
        """Return the id of a subscription (EVT-039)."""
        return subscription_id(self._server, principal, url, name, canonical(arguments))

    async def subscribe(
        self,
        principal: str,
        name: str,
        arguments: Mapping[str, Any],
        url: str,
        secret: str,
        *,
        ttl: Raw = NO_JSON,
        cursor: str | None = None,
        max_age: float | None = None,
        claims: bytes = b"",
        subscribed: Callable[[], Awaitable[None]] | None = None,
    ) -> SubscribeResult:
        """Begin or refresh a subscription.

        Args:
            ttl: The suggested milliseconds as JSON; null asks for no end.
            cursor: Where a new subscription begins; it has no effect while the subscription lives (EVT-045).
            claims: Kept for the hub until the next refresh.
            subscribed: Called for a new subscription, once its receiver has agreed.

        Raises InvalidParams and the failures of the extension.
        """
        try:
            read_url(url)
            key = read_secret(secret)
            seconds = _seconds(ttl)
        except ValueError as error:
            raise InvalidParams(str(error)) from None

        subscription = self.id_of(principal, name, arguments, url)
        lock = self._locks.setdefault(subscription, asyncio.Lock())
        async with lock:
            while True:
                now = self.clock()
                found = await self.store.load(subscription)
                if found is not None and not found[0].is_over(now):
                    result = await self._refresh(*found, key, self._expires(now, seconds), claims)
                else:
                    if found is not None:
                        await self._lapse(found[0])
                    await self._admit(principal, now)
                    await self._ask(principal, url, subscription, key)
                    now = self.clock()
                    record = Subscription(
                        subscription, principal, name, canonical(arguments), url, ((key, 0.0),), now,
                        self._expires(now, seconds), claims, subject=self.hub.subject_of(claims),
                    )  # fmt: skip
                    result = await self._begin(record, cursor, max_age, subscribed)
                if result is not None:
                    return result

    async def _begin(
        self,
        record: Subscription,
        cursor: str | None,
        max_age: float | None,
        subscribed: Callable[[], Awaitable[None]] | None,
    ) -> SubscribeResult | None:
        # Keep a new subscription; None if another node was faster.
        missed: list[tuple[str, Event]] = []
        is_truncated = False
        if cursor is not None and self.hub.cursor(record.name, self.deliveries.position) is not None:
            missed, is_truncated = self.hub.replay(record.name, cursor, max_age)
        record.after = position_before(missed[0][0]) if missed else ""
        if subscribed is not None:
            await subscribed()
        raw = await self.store.save(record, None, record.created)
        if raw is None:
            return None
        await self.store.enter(record)
        await self._announce(record, raw)
        if not self.is_shared:
            link = self.deliveries.links[record.id]
            for position, event in missed:
                self._offer(link, Item(event, position, position_before(position)))

        return self._result(record, after=record.after, truncated=is_truncated)

    async def _ask(self, principal: str, url: str, subscription: str, key: bytes) -> None:
        try:
            await self.consent.ask(principal, url, subscription, key)
        except Refused as error:
            raise CallbackEndpointError(error.category) from None
        except TooManyChallenges:
            raise ResourceExhausted("challenges", CHALLENGES) from None

    async def _refresh(
        self, record: Subscription, raw: bytes, key: bytes, expires: float | None, claims: bytes
    ) -> SubscribeResult | None:
        # Extend a subscription and replace its secret; None if another node has changed it meanwhile (EVT-040, 045).
        link = self.deliveries.links.get(record.id)
        known = record if link is None else link.record
        status = self._status(known, link)
        now = self.clock()
        if record.secrets[0][0] != key:
            old = [(each, until or now + _ROTATION) for each, until in record.secrets if each != key]
            record.secrets = ((key, 0.0), *[pair for pair in old if pair[1] > now][:2])
        record.expires, record.suspended, record.failed_since, record.claims = expires, 0.0, 0.0, claims
        record.last_delivery = known.last_delivery
        new = await self.store.save(record, raw, now)
        if new is None:
            return None
        await self.store.enter(record)
        await self._announce(record, new)
        self.consent.remember(record.principal, record.url)
        return self._result(record, status=status)

    async def _announce(self, record: Subscription, raw: bytes) -> None:
        if not self.is_shared:
            await self._take_inbox()  # what was emitted before is not for it
            self._link(record, raw)
            return
        if record.id in self.deliveries.links:
            self._link(record, raw)
        await self.store.changed(record)
        self._wake.set()

    def _expires(self, now: float, seconds: float | None) -> float | None:
        # Return the end of a grant (EVT-041 to 043). In memory it is an hour at most: a restart loses it anyway.
        settings = self.hub.settings
        if seconds == _ENDLESS and settings.allow_endless and self.is_shared:
            return None
        most = settings.max_ttl if self.is_shared else min(settings.max_ttl, _MOST_IN_MEMORY)
        return now + max(settings.min_ttl, min(settings.ttl if seconds is None else seconds, most))

    async def _admit(self, principal: str, now: float) -> None:
        settings = self.hub.settings
        if len(await self.store.ids_of(principal, now)) >= settings.subscriptions:
            raise ResourceExhausted("subscriptions", settings.subscriptions)
        if len(self.deliveries.links) + self._others >= settings.all_subscriptions:
            raise ResourceExhausted("subscriptions", settings.all_subscriptions)

    def _result(
        self, record: Subscription, *, after: str = "", truncated: bool = False, status: DeliveryStatus | None = None
    ) -> SubscribeResult:
        link = self.deliveries.links.get(record.id)
        position = after or (self.deliveries.position if link is None else self.deliveries.watermark(link))
        return SubscribeResult(
            id=record.id,
            refresh_before=_iso(record.expires),
            cursor=self.hub.cursor(record.name, position),
            truncated=truncated,
            delivery_status=status,
        )

    def _status(self, record: Subscription, link: Link | None) -> DeliveryStatus:
        return DeliveryStatus(
            active=not record.suspended,
            last_delivery_at=_iso(record.last_delivery or None),
            failed_since=_iso(record.failed_since or None),
            last_error=record.last_error or None,
            throttled=link is not None and link.host.is_throttled,
        )

    # -- ending ------------------------------------------------------------------------------

    async def unsubscribe(self, principal: str, name: str, arguments: Mapping[str, Any], url: str) -> bool:
        """End a subscription. Returns False if there is none."""
        found = await self.store.load(self.id_of(principal, name, arguments, url))
        if found is None or found[0].is_over(self.clock()):
            return False
        await self._remove(found[0])
        return True

    async def revoke(self, principal: str, name: str | None = None) -> None:
        """End those subscriptions of a principal that it has no access to any more, of all types or of one."""
        for subscription in await self.store.ids_of(principal, self.clock()):
            found = await self.store.load(subscription)
            if found is None or name not in (None, found[0].name):
                continue
            if self.hub.is_open(found[0].name) or not await self.hub.authorize(found[0]):
                await self._end(found[0], self._forbidden("Access was revoked"))

    async def end(self, name: str, failure: EventFailure) -> None:
        """End all subscriptions of a type, because it is removed or has changed (EVT-069)."""
        error = error_object(failure, self.hub.settings.codes)
        if self.is_shared:
            await self.store.ended(name, error)
            self._wake.set()
            return
        for link in list(self.deliveries.by_name.get(name, {}).values()):
            await self._end(link.record, error)

    async def _end(self, record: Subscription, error: Mapping[str, Any]) -> None:
        await self._remove(record)
        if self.hub.settings.profile != "chatgpt":
            self._spawn(self.deliveries.terminate(record, dict(error), _TERMINATED_WAITS))

    def _forbidden(self, why: str) -> dict[str, Any]:
        return error_object(Forbidden(why), self.hub.settings.codes)

    async def _lapse(self, record: Subscription) -> None:
        await self._remove(record, is_told=False)

    async def _remove(self, record: Subscription, *, is_told: bool = True) -> None:
        self.deliveries.remove(record.id)
        await self.store.remove(record)
        self._touch(record)
        if is_told and self.is_shared:
            await self.store.changed(record)
        self.hub.know(record)  # if it was delivered by another node
        await self.hub.ended(record)

    # -- for operators -----------------------------------------------------------------------

    def status(self) -> list[dict[str, Any]]:
        """Return what is known here of each subscription, without secrets; of URLs without their query."""
        return [
            {
                "id": link.record.id,
                "name": link.record.name,
                "url": link.record.url.partition("?")[0],
                "arguments": decode(link.record.arguments),
                "expires": _iso(link.record.expires),
                "waiting": len(link.waiting),
                "active": not link.is_suspended,
                "lastError": link.record.last_error or None,
                "lastDeliveryAt": _iso(link.record.last_delivery or None),
            }
            for link in self.deliveries.links.values()
        ]

    async def failed(self, subscription: str) -> list[dict[str, Any]]:
        """Return the deliveries of a subscription that were given up, oldest first."""
        letters = await self.store.letters(subscription)
        return [
            {"eventId": each.event.id, "name": each.event.name, "error": each.category, "at": _iso(each.at)}
            for each in letters
        ]

    async def retry(self, subscription: str) -> int:
        """Send again what was given up. Returns how many events that are: none if another node delivers them."""
        link = self.deliveries.links.get(subscription)
        if link is None:
            return 0
        letters = await self.store.letters(subscription)
        await self.store.forget_letters(subscription)
        for each in letters:
            self.deliveries.again(link, each.event, each.event.data)
        return len(letters)

    async def drop(self, subscription: str) -> bool:
        """End a subscription for its operator. Returns False if there is none."""
        found = await self.store.load(subscription)
        if found is None:
            return False
        await self.store.forget_letters(subscription)
        await self._end(found[0], self._forbidden("The operator has ended it"))
        return True


_ENDLESS = float("inf")


def _seconds(ttl: Raw) -> float | None:
    # Return the suggested seconds, infinity for no end, None without a suggestion. Raises ValueError (EVT-042).
    if not bytes(ttl):
        return None
    value = decode(ttl)
    if value is None:
        return _ENDLESS
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("ttlMs must be an integer of 0 or more, or null")
    return value / 1000


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
