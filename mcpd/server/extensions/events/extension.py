"""Events as an extension of a server. It is added with the first event type."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.json import encode

from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.types.events import EVENTS, ChannelParams, EventType, ListEventsResult
from mcpd.server.context.exchange import Exchange
from mcpd.server.extensions.base import Extension, ExtensionHost, Method
from mcpd.server.registry.entries import Listing, Problem
from .declare import EventKind
from .hub import Entry, Hub
from .methods import METHODS, NOTIFICATIONS, Leases, Rates, has_polls
from .settings import Events
from .wire import EventFailure

if TYPE_CHECKING:
    from mcpd.server.backplane.base import Backplane

log = logging.getLogger("mcpd")

CHANNEL = "claude/channel"


class EventsExtension(Extension):
    """The event types of a server."""

    def __init__(self, settings: Events | None = None) -> None:
        super().__init__(EVENTS, settings={"listChanged": True})
        self._given = settings or Events()
        self.rate = Rates()
        self.stream_counts: dict[object, int] = {}
        self._shared: Backplane | None = None
        self._engine: Any = None
        self._opening: asyncio.Lock | None = None

    def bind(self, server: Any) -> None:
        """Add the extension to a server, and announce it."""
        self.server = server
        self.hub = Hub(self._given, server.state_keys.of("cursor"))
        self.leases = Leases(self.hub)

        def make_page(items: list[Any], cursor: str | None) -> ListEventsResult:
            return ListEventsResult(events=items, next_cursor=cursor)

        self.listing: Listing[EventKind] = Listing("event", make_page, server.catalog.tools.page_size)
        self.listing.on_change = self._changed
        self.requests.update(METHODS)
        self.server_notifications.update(NOTIFICATIONS)
        server.catalog.events = self
        server.announce(self)

    def _changed(self) -> None:
        assert self.server is not None
        catalog = self.server.catalog
        catalog.offer("events")
        if catalog.on_change is not None:
            catalog.on_change("events")

    # -- types -------------------------------------------------------------------------------

    def add(self, kind: EventKind, *, replace: bool = False) -> None:
        """Add a type. Raises RegistrationError for a name that is taken."""
        self.listing.add(kind, replace=replace)
        self.hub.add(kind)
        if kind.channel and self.hub.channels is None:
            self.hub.channels = self._to_channels

    def declaring(
        self, name: str, payload: Any, options: Mapping[str, Any], every: float | None = None
    ) -> Callable[[Callable[..., Any]], EventKind]:
        """Return the decorator of a type; with `every` of one that another system keeps."""

        def declare(function: Callable[..., Any]) -> EventKind:
            if every is None:
                kind = EventKind(name, function, payload=payload, **options)
            else:
                from .sources import SourceKind  # few servers have one

                kind = SourceKind(name, function, payload=payload, every=every, **options)
            self.add(kind)
            return kind

        return declare

    def add_remote(self, described: EventType, remote: Any, *, every: float = 30.0) -> None:
        """Add a type of another server. `remote(arguments, cursor, user, most)` returns a `Batch` of its events."""
        from .sources import remote_kind  # for mounts

        self.add(remote_kind(described, remote, every), replace=True)

    def remove(self, name: str) -> bool:
        """Remove a type, and end its subscriptions. Returns False for an unknown name."""
        return self.listing.remove(name) and self.hub.remove(name)

    def emit(self, name: str, payload: Any, **options: Any) -> str:
        """Emit an event of a type by its name. Raises KeyError for an unknown one."""
        kind = self.hub.kinds.get(name)
        if kind is None:
            raise KeyError(f"there is no event type {name!r}")
        return kind.emit(payload, **options)

    # -- for the server ----------------------------------------------------------------------

    def admits(self, client: ClientIdentity) -> bool:
        """Clients need not declare the extension (EVT-004)."""
        return True

    def capabilities_for(self, exchange: Exchange, extensions: dict[str, Any]) -> dict[str, Any] | None:
        """Return the older capability `events`, and put the extension into `extensions`, as far as a client gets it."""
        is_declared = isinstance((exchange.client.capabilities.extensions or {}).get(EVENTS), dict)
        if not len(self.listing) or not (has_polls(exchange) or is_declared):
            extensions.pop(EVENTS, None)
            return None
        extensions[EVENTS] = {"listChanged": True} if has_polls(exchange) else {}
        return {} if self.hub.settings.compat else None

    @property
    def experimental(self) -> dict[str, Any] | None:
        """The capability of channels, if a type has one."""
        return {CHANNEL: {}} if any(kind.channel for kind in self.listing) else None

    def handler(self, name: str, method: Method) -> Callable[[Exchange, Any], Any]:
        """Return the handler of a method."""
        run: Any = method.run

        def handle(exchange: Exchange, params: Any) -> Any:
            self.hub.enter()
            try:
                result = run(self, exchange, params)
            except EventFailure as failure:
                raise self._coded(failure) from None
            return self._later(result) if asyncio.iscoroutine(result) else result

        return handle

    async def _later(self, work: Any) -> Any:
        try:
            return await work
        except EventFailure as failure:
            raise self._coded(failure) from None

    def _coded(self, failure: EventFailure) -> EventFailure:
        failure.code = failure.code_in(self.hub.settings.codes)  # type: ignore[misc]  # of this one error
        return failure

    def problems(self) -> list[Problem]:
        """Return types that would send everything to everybody, and payloads that invite instructions to models."""
        return [problem for kind in self.listing.registered for problem in _problems_of(kind)]

    def succeed(self, other: Extension) -> None:
        """Take over the streams and events of a server that is replaced with this one's."""
        if isinstance(other, EventsExtension):
            mine, self.hub = self.hub.kinds, other.hub
            listed = {name: (kind.described, kind.offered, kind.schemas) for name, kind in self.hub.kinds.items()}
            self.leases, self._engine, self.stream_counts = other.leases, other._engine, other.stream_counts
            for name in [name for name in self.hub.kinds if name not in mine]:
                self.hub.remove(name)
            for kind in mine.values():
                self.hub.add(kind)
            self.hub.channels = self._to_channels if any(kind.channel for kind in mine.values()) else None
            if listed != {name: (kind.described, kind.offered, kind.schemas) for name, kind in mine.items()}:
                self._changed()

    def leave(self, server: ExtensionHost) -> None:
        """The server is replaced by one without events: end all subscriptions."""
        for name in list(self.hub.kinds):
            self.hub.remove(name)

    # -- channels ----------------------------------------------------------------------------

    def _to_channels(self, kind: EventKind, entry: Entry) -> None:
        server: Any = self.server
        server.each_connection(lambda connection: self.hub.spawn(self._to_channel(kind, entry, connection)))

    async def _to_channel(self, kind: EventKind, entry: Entry, connection: Any) -> None:
        # Put the text of an event into the conversation of one client.
        session = connection.session
        if not (session.is_initialized or (session.phase == "modern" and connection.channel.is_multiplexed)):
            return
        user = connection.channel.origin().user
        subscriber = kind.subscriber(b"{}", user, "channel")
        if not await self.hub.may(subscriber):
            return
        try:
            data = subscriber.fit(entry.event, entry.payload)
            if data is None or not self.rate.take(("channel", id(connection)), self.hub.settings.channel_rate, 5):
                return
            text = kind.channel(entry.payload) if callable(kind.channel) else f"{kind.name}: {data.decode()}"
        except Exception as error:
            self.hub.failed(entry.event, error)
            return

        meta = {"event": kind.name, "event_id": entry.event.id, "time": entry.event.timestamp}
        self.hub.delivered += 1
        await connection.notify("notifications/claude/channel", ChannelParams(content=text, meta=meta))

    # -- serving -----------------------------------------------------------------------------

    @property
    def webhooks(self) -> Any:
        """The engine of webhooks; None before the first subscription."""
        return self._engine

    def counts(self) -> dict[str, int]:
        """Return what metrics and the status show of its events."""
        hub, engine = self.hub, self._engine
        sent = {} if engine is None else engine.deliveries.counts
        return {
            "emitted": hub.emitted,
            "delivered": hub.delivered + sent.get("accepted", 0),
            "failed": hub.failures + sent.get("failed", 0),
            "subscriptions": len(hub.streams) + (0 if engine is None else len(engine.deliveries.links)),
        }

    async def open_webhooks(self) -> Any:
        """Return the engine of webhooks, and start it if nothing has."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._engine is None:
                engine = import_module(f"{__package__}.webhook.engine")  # with the first subscription
                self._engine = self.hub.webhooks = await engine.open_engine(self.hub, self.server, self._shared)
        return self._engine

    def share(self, backplane: Backplane) -> None:
        """Keep subscriptions and events on the backplane of the processes that serve together."""
        self._shared = backplane

    async def start(self) -> None:
        """Begin to deliver what a store holds."""
        self.hub.enter()
        if self._shared is not None or self.hub.settings.store is not None:
            await self.open_webhooks()

    async def aclose(self) -> None:
        """End streams, and stop the engine."""
        self.leases.end()
        if self._engine is not None:
            engine, self._engine, self.hub.webhooks = self._engine, None, None
            await engine.aclose()
        await self.hub.aclose()


# A payload whose schema is longer, or that has such fields, is likely to carry texts of strangers.
_MOST_SCHEMA = 4096
_TEXTS = frozenset(("body", "html", "content"))


def _problems_of(kind: EventKind) -> Iterator[Problem]:
    where = f"event {kind.name}"
    inputs, payload = kind.schemas
    has_arguments = isinstance(inputs, dict) and bool(inputs.get("properties"))
    if has_arguments and not kind.on and not kind.is_source and kind.decide is None:
        text = "its arguments decide nothing, so every subscriber gets every event; name them in on=, or write a body"
        yield Problem(where, text)
    if isinstance(payload, dict):
        if len(encode(payload)) > _MOST_SCHEMA:
            yield Problem(where, "the schema of its payload is over 4 KiB; send an id, and let clients ask", False)
        for name in sorted(_TEXTS.intersection(payload.get("properties", {}))):
            yield Problem(where, f"its payload has {name}, which models may take for instructions; send an id", False)
