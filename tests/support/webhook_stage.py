"""Nodes that deliver webhooks to a receiver of the test, on any store, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from msgspec import Raw
from support.webhook_receiver import Receiver, patient, trusting

from mcpd.protocol.state_keys import StateKeys
from mcpd.protocol.types.events import SubscribeResult
from mcpd.server.backplane.base import Backplane
from mcpd.server.extensions.events.settings import Events
from mcpd.server.extensions.events.webhook.delivery import DeliverySettings
from mcpd.server.extensions.events.webhook.engine import Webhooks
from mcpd.server.extensions.events.webhook.send import Sender
from mcpd.server.extensions.events.webhook.store import Store, Subscription
from mcpd.server.extensions.events.wire import Event, order_of

__all__ = ["KEYS", "Node", "event", "secret_of"]

KEYS = StateKeys([b"the state key of all nodes here"])
_BEGAN = 1_700_000_000.0


def secret_of(number: int = 0) -> str:
    """One of several secrets."""
    return "whsec_" + b64encode(bytes(range(number, number + 32))).decode()


def event(number: int, name: str = "incident", **data: Any) -> Event:
    """An event whose id has its number."""
    return Event(name, f"E{number}", "2026-11-28T00:00:00Z", json.dumps({"number": number, **data}).encode())


class Node:
    """One process of a service. It is its own hub: the members of `arguments` have to be those of `data`."""

    def __init__(
        self,
        receiver: Receiver,
        backplane: Backplane | None = None,
        lease: float = 30.0,
        delivery: dict[str, Any] | None = None,
        origins: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        self.receiver = receiver
        self.loop = asyncio.get_running_loop()
        self.began = _BEGAN - self.loop.time()
        self.events: list[tuple[str, Event]] = []
        self.newest = (0,)
        self.known: dict[str, Subscription] = {}
        self.gone: list[Subscription] = []
        self.revoked: set[str] = set()
        self.without_replay: set[str] = set()
        self.settings = Events(**settings)
        self.store = Store(backplane, "test:", KEYS, lease)
        self.backplane = self.store.backplane
        gaps = {"has_gaps": self.settings.profile is None}
        self.hooks = Webhooks(
            self,
            self.store,
            "test",
            sender=patient(Sender((receiver.origin, *origins), trusting(), receiver.resolve)),
            delivery=DeliverySettings(**{"rate": 100_000.0, **gaps, **(delivery or {})}),
        )
        self.hooks.deliveries.clock = self.hooks.consent.clock = lambda: self.began + self.loop.time()
        if self.hooks.is_shared:
            self.hooks.follow(self.arrived)

    # -- the hub -----------------------------------------------------------------------------

    def know(self, subscription: Subscription) -> None:
        """Keep it."""
        self.known[subscription.id] = subscription

    def forget(self, subscription_id: str) -> None:
        """Forget it."""
        self.known.pop(subscription_id, None)

    def candidates(self, event: Event) -> Iterable[str]:
        """All of the type."""
        return [key for key, each in self.known.items() if each.name == event.name]

    def match(self, event: Event, subscription: Subscription) -> bytes | None:
        """By equality."""
        if event.to not in ("", subscription.principal):
            return None
        data = json.loads(event.data)
        wanted = json.loads(subscription.arguments)
        return event.data if all(data.get(name) == value for name, value in wanted.items()) else None

    def cursor(self, name: str, position: str) -> str | None:
        """The position, readable."""
        return None if name in self.without_replay else f"at {position}"

    def use_epoch(self, epoch: str) -> None:
        """Cursors here are readable."""

    def replay(self, name: str, cursor: str, max_age: float | None) -> tuple[list[tuple[str, Event]], bool]:
        """What this process has seen."""
        order = order_of(cursor.removeprefix("at "))
        return [each for each in self.events if order_of(each[0]) > order and each[1].name == name], False

    def arrived(self, position: str, event: Event) -> None:
        """An event of the log."""
        self.events.append((position, event))

    def is_open(self, name: str) -> bool:
        """Some may have been revoked."""
        return False

    def subject_of(self, claims: bytes) -> str:
        """The principal has no other name."""
        return ""

    async def authorize(self, subscription: Subscription) -> bool:
        """Unless it was revoked."""
        return subscription.principal not in self.revoked

    async def ended(self, subscription: Subscription) -> None:
        """Keep it for the test."""
        self.forget(subscription.id)
        self.gone.append(subscription)

    # -- what tests do -----------------------------------------------------------------------

    def emit(self, *events: Event) -> None:
        """Emit events."""
        for each in events:
            if self.hooks.is_shared:
                self.hooks.append(each)
            else:
                position = str(len(self.events) + 1)
                self.events.append((position, each))
                self.hooks.emitted(each, position)

    async def subscribe(
        self, principal: str = "ada", path: str = "/in", secret: int = 0, ttl: str = "", **options: Any
    ) -> SubscribeResult:
        """Subscribe to incidents; `ttl` is JSON."""
        name = options.pop("name", "incident")
        arguments = options.pop("arguments", {})
        url = path if ":" in path else self.receiver.origin + path
        await self.hooks.open()
        return await self.hooks.subscribe(
            principal, name, arguments, url, secret_of(secret), ttl=Raw(ttl.encode()), **options
        )

    async def unsubscribe(self, principal: str = "ada", path: str = "/in", **arguments: Any) -> bool:
        """End a subscription."""
        return await self.hooks.unsubscribe(principal, "incident", arguments, self.receiver.origin + path)

    async def aclose(self, grace: float = 5.0) -> None:
        """Shut down."""
        await self.hooks.aclose(grace)

    async def die(self) -> None:
        """End as by kill -9: nothing is written or released any more."""
        self.store.backplane = _Gone()
        await self.hooks.aclose(0)


class _Gone:
    # A backplane that nothing reaches.
    away_since = 0.0

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> Any:
            from mcpd.server.backplane.base import BackplaneAway

            raise BackplaneAway("this node is dead")

        return fail
