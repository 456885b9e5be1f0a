"""`subscriptions/listen`, and before it `resources/subscribe`, `resources/unsubscribe`.

Spec: 2026-07-28 basic/patterns/subscriptions; 2025-11-25 server/resources.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mcpd.context.exchange import Exchange
from mcpd.errors import InvalidParams, ResourceNotFound
from mcpd.handlers.lifecycle import check_session
from mcpd.protocol.session import WATCH_BYTES
from mcpd.protocol.types.base import EmptyResult
from mcpd.protocol.types.resources import SubscribeParams
from mcpd.registry.catalog import Catalog

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import ListenParams, ListenResult

MAX_WATCHED = 10_000
"""How many resources one subscription, or one legacy session, may watch."""


def listen(catalog: Catalog, exchange: Exchange, params: ListenParams) -> Coroutine[Any, Any, ListenResult]:
    """Open a subscription, with what of its filter this server can honour."""
    from mcpd.protocol.types.interaction import SubscriptionFilter  # noqa: PLC0415 - not every client listens

    wanted = params.notifications
    uris = wanted.resource_subscriptions
    if uris is not None and len(uris) > MAX_WATCHED:
        raise InvalidParams(f"notifications.resourceSubscriptions: at most {MAX_WATCHED} resources in one subscription")

    if uris:
        exchange.hold(sum(map(len, uris)) + WATCH_BYTES * len(uris))
    honoured = SubscriptionFilter(
        tools_list_changed=wanted.tools_list_changed and "tools" in catalog.offers,
        prompts_list_changed=wanted.prompts_list_changed and "prompts" in catalog.offers,
        resources_list_changed=wanted.resources_list_changed and "resources" in catalog.offers,
        resource_subscriptions=uris if "resources" in catalog.offers else None,
    )
    return exchange.listen(honoured)


def subscribe(catalog: Catalog, exchange: Exchange, params: SubscribeParams) -> EmptyResult:
    """Watch a resource for this session. Raises ResourceNotFound, MethodNotFound without a session."""
    check_session(exchange)
    if not catalog.has_resource(params.uri, catalog.active_extensions(exchange)):
        raise ResourceNotFound(params.uri)
    if exchange.watch(params.uri) > MAX_WATCHED:
        exchange.unwatch(params.uri)
        raise InvalidParams(f"uri: at most {MAX_WATCHED} resources are watched for one client")
    return EmptyResult()


def unsubscribe(catalog: Catalog, exchange: Exchange, params: SubscribeParams) -> EmptyResult:
    """No longer watch a resource; one that was not watched is no error. Raises MethodNotFound without a session."""
    check_session(exchange)
    exchange.unwatch(params.uri)
    return EmptyResult()
