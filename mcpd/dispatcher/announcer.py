"""The connections of a server that are told of changes; what each of them is told is said in `subscriptions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

Kind: TypeAlias = 'Literal["tools", "resources", "prompts"]'  # a text: `Literal[…]` is made at each start

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Protocol

    from mcpd.backplane.base import ChangeBus

    class Subscribed(Protocol):
        """What a client has subscribed to."""

        def notify(self, kind: Kind, uri: str | None) -> None:
            """A list of that kind has changed, or that resource."""

        def missed(self) -> None:
            """Resources may have changed, unheard."""

    class SubscribedConnection(Protocol):
        """A connection whose client is notified of changes."""

        loop: asyncio.AbstractEventLoop

        @property
        def subscriptions(self) -> Subscribed:
            """What its client has subscribed to."""

        def on_closed(self, callback: Callable[[SubscribedConnection], object]) -> None:
            """Have this called when the client is gone."""


class Announcer:
    """The connections of one server that are notified of changes, each on its own event loop's thread.

    Over `bus` changes reach the clients of other servers, and changes of other servers these clients.
    """

    def __init__(self, bus: ChangeBus | None = None) -> None:
        self._connections: set[SubscribedConnection] = set()
        self._leave = self._connections.discard  # one for all
        self._buses: list[ChangeBus] = []
        if bus is not None:
            self.join(bus)

    def __len__(self) -> int:
        return len(self._connections)

    def join(self, bus: ChangeBus) -> None:
        """From now on hear of others' changes there, and tell them of these."""
        self._buses.append(bus)
        bus.subscribe(self)

    def add(self, connection: SubscribedConnection) -> None:
        """Tell the client of this connection too, until it ends."""
        self._connections.add(connection)
        connection.on_closed(self._leave)

    def changed(self, kind: Kind) -> None:
        """A list of that kind has changed. Safe from any thread, as all of this."""
        self._announce(kind, None)

    def updated(self, uri: str) -> None:
        """The contents of a resource have changed."""
        self._announce("resources", uri)

    def _announce(self, kind: Kind, uri: str | None) -> None:
        self.notify(kind, uri)
        for bus in self._buses:
            bus.publish(kind, uri, self)

    def notify(self, kind: Kind, uri: str | None) -> None:
        """Tell the clients of this server that a list has changed or, if `uri` is given, that resource."""
        for connection in list(self._connections):
            try:
                connection.loop.call_soon_threadsafe(connection.subscriptions.notify, kind, uri)
            except RuntimeError:
                pass  # its loop is closed, and so is the connection

    def missed(self) -> None:
        """What was said on a bus may not have been heard: all watched resources may have changed."""
        for connection in list(self._connections):
            try:
                connection.loop.call_soon_threadsafe(connection.subscriptions.missed)
            except RuntimeError:
                pass  # its loop is closed, and so is the connection
