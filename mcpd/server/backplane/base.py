"""Interfaces of everything that processes may share. Each has an implementation in memory, and others may replace it.

`tests/server/backplane/test_contracts.py` states the rules for every implementation; a new one must pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol, TypeAlias

Kind: TypeAlias = Literal["tools", "prompts", "resources", "events"]


class Subscriber(Protocol):
    """Receives changes, for the clients of one server."""

    def notify(self, kind: Kind, uri: str | None) -> None:
        """A list has changed on another server or, if `uri` is given, a resource.

        Called from any thread; must neither wait nor raise.
        """


class ChangeBus(Protocol):
    """Passes changes between servers that offer the same entries, so that the clients of each are notified."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Pass the changes of other servers to this subscriber, each once and in order, while it exists.

        The bus does not keep the subscriber alive.
        """

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop notifying a subscriber. Safe to call twice."""

    def publish(self, kind: Kind, uri: str | None, by: Subscriber) -> None:
        """Notify all subscribers except `by`. Safe from any thread; neither waits nor raises."""


class EventStore(Protocol):
    """Keeps the events of one session's streams, within limits, for clients that lose a connection and resume.

    A stream has a number, and its events have increasing numbers.
    """

    def add(self, stream: int, number: int, data: bytes) -> Iterable[int]:
        """Store an event. Returns the numbers of the streams that have no stored event any more.

        Neither waits nor raises. Above the limits the oldest events of all streams are dropped. The newest event is
        stored whatever its size, unless the memory of the process is used up (`--max-memory`).
        """

    async def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        """Return the stored events of a stream after that number, with their numbers, in order."""

    def clear(self) -> None:
        """Drop all events, because the session has ended. Safe to call twice."""


class BackplaneAway(OSError):
    """The backplane cannot be reached, or refuses to write. The command may have been executed."""


Receive: TypeAlias = Callable[[bytes], object]
"""Receives the messages of a channel, in the event loop's thread. It must not wait; its exceptions are logged."""


class Backplane(Protocol):
    """Values by key, logs and a bus that the nodes of one service share. Keys and names are ASCII.

    Times are in seconds, and all data has a lifetime, which each write renews. All methods belong to one event loop.
    They raise BackplaneAway within 3 s if the backplane does not answer, and immediately while it is known to be away.
    """

    @property
    def away_since(self) -> float | None:
        """The event loop's time when the backplane became unreachable; None while it is reachable."""

    async def aclose(self) -> None:
        """Close all connections. Safe to call twice. A later command opens them again."""

    # -- values ------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; None if it has no value, or the lifetime is over."""

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        """Store a value for `ttl` seconds. With `only_new` an existing value stays, and False is returned."""

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Replace the value `old` by `new`. Returns False for another value. With `old` None there must be no value."""

    async def delete(self, key: str) -> None:
        """Delete a value, if the key has one."""

    # -- logs --------------------------------------------------------------------------------

    async def append(self, name: str, entries: Sequence[bytes], most: int, ttl: float) -> None:
        """Append entries to a log, keep the newest `most`, and set its lifetime."""

    async def read(self, name: str, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """Return the first entries after an id ("": from the beginning), with their ids, oldest first."""

    # -- the bus -----------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message to all subscribers, on all nodes. Returns their number."""

    async def subscribe(self, channel: str, receive: Receive) -> None:
        """Call `receive` with each message of a channel, in order.

        Messages are lost while the connection is lost. It is restored automatically, and then the functions given to
        `on_gap` are called. This also holds if the method raises BackplaneAway.
        """

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        """End a subscription. Never raises; safe to call twice."""

    def on_gap(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever messages may have been lost, once all channels are subscribed again."""
