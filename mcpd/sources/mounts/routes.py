"""Finds the mounted server for requests about entries, tasks and subscriptions.

A wrapper of the server's handlers. Entries are in the catalog once the lists of a mount are known, so the first request
that names one waits for them. Tasks name their mount in their id, watched resources in their URI.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mcpd.client.eras import ModernEra
from mcpd.errors import InvalidParams, McpdError
from mcpd.protocol.methods import METHODS, entries_named
from mcpd.protocol.printable import printable
from mcpd.protocol.types.interaction import ListenParams, SubscriptionFilter
from mcpd.server.context.exchange import Exchange, Handler, finished
from .carried import mount_of, own_id, tagged
from .entries import MountedResource, MountedTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from mcpd.server.registry.catalog import Catalog
    from .upstream import Connection, Upstream

log = logging.getLogger("mcpd.mounts")

_TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Mounted(Protocol):
    """The mounts of one server."""

    by_name: dict[str, Upstream]

    def offered(self, name: str, exchange: Exchange) -> Upstream | None:
        """Return a mount as the user of a request sees it; None if the request may not use it."""


def routing(mounts: Mounted, catalog: Catalog) -> Callable[[str, Handler], Handler]:
    """Return the wrapper of a server's handlers."""
    routes = _Routes(mounts, catalog)
    return routes.wrapped


def follow_tasks(
    mounts: Mounted, exchange: Exchange, ids: Iterable[str]
) -> tuple[list[str], list[Coroutine[Any, Any, None]]]:
    """Return which tasks of a subscription are those of mounted servers, and what sends their notifications."""
    found: dict[Upstream, list[str]] = {}
    for task_id in dict.fromkeys(ids):
        upstream = mounts.offered(mount_of(task_id), exchange)
        with suppress(InvalidParams):  # of another user
            if upstream is not None:
                found.setdefault(upstream, []).append(own_id(task_id, upstream.name, exchange))
    known = [tagged(own, upstream.name, exchange) for upstream, each in found.items() for own in each]
    return known, [_follow(upstream, own, exchange) for upstream, own in found.items()]


async def _follow(upstream: Upstream, ids: list[str], exchange: Exchange) -> None:
    # Pass the notifications of these tasks on, as long as the client listens.
    from .relay import relay_of

    try:
        connection = await upstream.connection(exchange)
        era, relay = connection.era, relay_of(connection)
        if isinstance(era, ModernEra):
            listening = ListenParams(notifications=SubscriptionFilter(task_ids=ids))
            heard = partial(relay.task_changed, exchange)
            await era.listen(listening, heard, envelope=relay.envelope(exchange.call))
    except McpdError as error:
        # The client asks for the task instead.
        log.info("mount %s reports no changes of tasks: %s", printable(upstream.name), printable(error))


class _Routes:
    def __init__(self, mounts: Mounted, catalog: Catalog) -> None:
        self._mounts = mounts
        self._catalog = catalog
        # Tasks that watch resources again after a connection was lost, by connection.
        self._tasks: set[asyncio.Task[None]] = set()

    def wrapped(self, method: str, handler: Handler) -> Handler:
        if method in _TASK_METHODS:
            return self._task(method, handler)
        if method == "resources/subscribe":
            return self._known(self._subscribe(handler))
        if method == "resources/unsubscribe":
            return self._unsubscribe(handler)
        if method == "subscriptions/listen":
            return self._known(self._listen(handler))
        row = METHODS.get(method)
        return self._known(handler) if row is not None and (row.subject or method == "completion/complete") else handler

    def _mounts_for(self, exchange: Exchange) -> list[Upstream]:
        principal = exchange.call.session.opening.principal
        return [each.for_user(principal) for each in self._mounts.by_name.values()]

    def _known(self, handler: Handler) -> Handler:
        # The first request that names an entry waits until the entries are known.
        async def wait(exchange: Exchange, params: Any) -> Any:
            for _ in range(2):  # the first lists may say that each user has lists of its own
                await asyncio.gather(*(each.ready(exchange) for each in self._mounts_for(exchange) if not each.lists))
            return await finished(handler(exchange, params))

        def handle(exchange: Exchange, params: Any) -> Any:
            is_known = all(each.lists for each in self._mounts_for(exchange))
            if is_known or self._is_there(exchange.call.method, params):
                return handler(exchange, params)
            return wait(exchange, params)

        return handle

    def _is_there(self, method: str, params: Any) -> bool:
        # Whether the entries that a request names are known already.
        kind, names = entries_named(method, params)
        if kind == "resources":
            active = frozenset(self._catalog.extensions)
            return all(self._catalog.has_resource(uri, active) for uri in names)
        return bool(kind) and all(name in getattr(self._catalog, kind) for name in names)

    def _task(self, method: str, handler: Handler) -> Handler:
        def handle(exchange: Exchange, params: Any) -> Any:
            upstream = self._mounts.offered(mount_of(getattr(params, "task_id", "")), exchange)
            if upstream is None:
                return handler(exchange, params)
            from .relay import forward  # a start with a manifest needs none of it

            return upstream.call(exchange, lambda connection: forward(connection, method, exchange.call.raw, exchange))

        return handle

    # -- subscriptions -----------------------------------------------------------------------

    def _subscribe(self, handler: Handler) -> Handler:
        async def handle(exchange: Exchange, params: Any) -> Any:
            result = await finished(handler(exchange, params))
            await self._watch(exchange, [params.uri])
            return result

        return handle

    def _unsubscribe(self, handler: Handler) -> Handler:
        async def handle(exchange: Exchange, params: Any) -> Any:
            result = await finished(handler(exchange, params))
            await self._unwatch(exchange, [params.uri])
            return result

        return handle

    def _listen(self, handler: Handler) -> Handler:
        async def handle(exchange: Exchange, params: Any) -> Any:
            uris = params.notifications.resource_subscriptions
            if not uris:
                return await finished(handler(exchange, params))
            await self._watch(exchange, uris)
            try:
                return await finished(handler(exchange, params))
            finally:
                await self._unwatch(exchange, uris)

        return handle

    def _found(self, exchange: Exchange, uris: Iterable[str]) -> Mapping[tuple[Upstream, str], str]:
        # Return the URIs of mounted servers, by mount and the URI there.
        found = {}
        part = None if self._catalog.part_for is None else self._catalog.part_for(exchange)
        catalog = part or self._catalog
        for uri in uris:
            entry: Any = catalog.resources.get(uri, frozenset(catalog.extensions))
            if entry is None:
                entry = next((each for each in catalog.templates if each.match(uri) is not None), None)
            if isinstance(entry, (MountedResource, MountedTemplate)):
                found[entry.upstream, entry.own_uri(uri)] = uri
        return found

    async def _watch(self, exchange: Exchange, uris: Iterable[str]) -> None:
        for (upstream, own), uri in self._found(exchange, uris).items():
            try:
                await self._watch_one(upstream, own, uri, exchange)
            except McpdError as error:
                # Own changes are still notified, and the mounted server may have none to report.
                log.warning(
                    "mount %s: %s cannot be watched: %s", printable(upstream.name), printable(own), printable(error)
                )

    async def _watch_one(self, upstream: Upstream, own: str, uri: str, exchange: Exchange) -> None:
        from .relay import relay_of

        connection = await upstream.connection(exchange)
        resources = connection.session.server_capabilities.resources
        if resources is None or not resources.subscribe:
            return
        relay = relay_of(connection)
        if relay.on_lost is None:
            relay.on_lost = lambda: self._watch_again(connection)
        await relay.watches.add(own, uri, exchange)
        exchange.peer.on_closed(lambda peer: self._start(relay.watches.discard(own, peer)))

    async def _unwatch(self, exchange: Exchange, uris: Iterable[str]) -> None:
        from .relay import relay_of

        for (upstream, own), _ in self._found(exchange, uris).items():
            for connection in upstream.connections():
                await relay_of(connection).watches.discard(own, exchange.peer)

    def _watch_again(self, connection: Connection) -> None:
        from .relay import relay_of

        if connection.upstream.is_open and len(relay_of(connection).watches):
            self._start(self._resume(connection))

    async def _resume(self, lost: Connection) -> None:
        # Watch everything again on a new connection, and notify once: something may have been missed.
        from .relay import relay_of

        pause = _FIRST_PAUSE
        left = relay_of(lost).watches.watchers()
        while left and lost.upstream.is_open:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            for own, uri, exchange in list(left):
                try:
                    await self._watch_one(lost.upstream, own, uri, exchange)
                except McpdError:
                    break
                left.remove((own, uri, exchange))
                exchange.peer.subscriptions.notify("resources", uri)  # type: ignore[attr-defined]

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
