"""The connections of a server that receive notifications of changes; what each sends is in `subscriptions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.server.backplane.base import ChangeBus
    from mcpd.server.registry.catalog import Kind
    from .connection import ServerConnection


class Announcer:
    """Notifies the connections of one server of changes, each on its own event loop's thread.

    Through `bus` changes reach the clients of other servers, and changes of other servers reach these clients. All
    methods are safe to call from any thread.
    """

    def __init__(self, bus: ChangeBus | None = None) -> None:
        self._connections: set[ServerConnection] = set()
        self._remove = self._connections.discard  # one bound method for all connections
        self._buses: list[ChangeBus] = []
        if bus is not None:
            self.join(bus)

    def __len__(self) -> int:
        return len(self._connections)

    def join(self, bus: ChangeBus) -> None:
        """Publish changes on a bus, and receive the changes of other servers from it."""
        self._buses.append(bus)
        bus.subscribe(self)

    def add(self, connection: ServerConnection) -> None:
        """Notify the client of this connection until it ends."""
        self._connections.add(connection)
        connection.on_closed(self._remove)

    def changed(self, kind: Kind) -> None:
        """Announce that a list has changed, to the clients of all servers."""
        self._announce(kind, None)

    def updated(self, uri: str) -> None:
        """Announce that the contents of a resource have changed, to the clients of all servers."""
        self._announce("resources", uri)

    def _announce(self, kind: Kind, uri: str | None) -> None:
        self.notify(kind, uri)
        for bus in self._buses:
            bus.publish(kind, uri, self)

    def notify(self, kind: Kind, uri: str | None) -> None:
        """Notify the clients of this server that a list has changed or, if `uri` is given, a resource."""
        self.for_each(lambda connection: connection.subscriptions.notify(kind, uri))

    def missed(self) -> None:
        """Notify the clients of all resources that they watch: messages of a bus may have been lost."""
        self.for_each(lambda connection: connection.subscriptions.missed())

    def for_each(self, step: Callable[[ServerConnection], object]) -> None:
        """Call a function with each connection, on the thread of its loop."""
        for connection in list(self._connections):
            try:
                connection.loop.call_soon_threadsafe(step, connection)
            except RuntimeError:
                pass  # its loop is closed, and so is the connection
