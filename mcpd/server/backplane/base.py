"""What may be shared between processes, as small interfaces: each has one in memory, and others may take its place.

What holds for every implementation is in `tests/server/backplane/test_contracts.py`, which a new one has to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

Kind: TypeAlias = Literal["tools", "prompts", "resources"]


class Subscriber(Protocol):
    """Tells the clients of one server."""

    def notify(self, kind: Kind, uri: str | None) -> None:
        """On another server a list of that kind has changed or, if `uri` is given, that resource.

        Called from any thread; never waits and never raises.
        """


class ChangeBus(Protocol):
    """Between servers that offer the same: the clients of each hear of the changes on all."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """From now on tell this one of the changes of the others, each once and in their order, while it exists.

        The bus does not keep it alive.
        """

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Tell it no more. Safe to call twice."""

    def publish(self, kind: Kind, uri: str | None, by: Subscriber) -> None:
        """Tell all but `by`. Safe from any thread; never waits and never raises."""


class EventStore(Protocol):
    """The events of one session's streams, kept within bounds for clients that lose a connection and resume.

    A stream is known by its number, an event by its number in the stream, which grows.
    """

    def add(self, stream: int, number: int, data: bytes) -> Iterable[int]:
        """Keep an event, and give the numbers of the streams of which nothing is kept any more.

        Never waits and never raises. Over its bounds the oldest events of all streams are forgotten. The newest
        is kept whatever its size, unless the process has no memory for it (`--max-memory`): then not even that.
        """

    async def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        """The events of a stream that follow that number, with theirs, in their order, as far as they are kept."""

    def clear(self) -> None:
        """The session has ended: forget all. Safe to call twice."""


class BackplaneAway(OSError):
    """The backplane cannot be reached, or refuses to write. What was asked may have been done."""


class Item(NamedTuple):
    """Something of a queue that was claimed: its id in the queue, and what was pushed."""

    id: str
    data: bytes


Receive: TypeAlias = Callable[[bytes], object]
"""Takes what was published on a channel, in the event loop's thread. Never waits; what it raises is logged."""


class Backplane(Protocol):
    """What the nodes of one service share: values by key, logs, a bus, queues. Keys and names are ASCII.

    Times are in seconds, and everything has a life: after that it is gone, unless it was written again. All methods
    belong to one event loop. Each raises BackplaneAway within 3 s if the backplane does not answer, and at once while
    it is known to be away.
    """

    @property
    def away_since(self) -> float | None:
        """The event loop's time since when it has not been reached; None while it is there."""

    async def aclose(self) -> None:
        """Close all connections. Safe to call twice. A later use opens them again."""

    # -- values ------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """The value; None if there is none, or its life is over."""

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        """Keep a value for so long. With `only_new` False if there is one already, which then stays as it is."""

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Put `new` in the place of `old` (None: of nothing); False, with nothing done, if there is another value."""

    async def delete(self, key: str) -> None:
        """Forget a value. No error if there is none."""

    # -- logs --------------------------------------------------------------------------------

    async def append(self, name: str, entries: Sequence[bytes], most: int, ttl: float) -> None:
        """Write entries at the end of a log, which lives for so long from now on and keeps the `most` newest."""

    async def read(self, name: str, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """The first entries behind that id (""; from the beginning), with their ids, oldest first."""

    # -- the bus -----------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """Tell all who listen, on all nodes, and give how many they are: 0 if nobody heard it."""

    async def subscribe(self, channel: str, receive: Receive) -> None:
        """From now on call `receive` with all that is published there, in order, each once.

        What is published while the connection is lost is not heard; it comes back by itself, then `on_gap` is told.
        That holds too if this raises BackplaneAway.
        """

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        """Hear no more of it. Never raises; safe to call twice."""

    def on_gap(self, told: Callable[[], object]) -> None:
        """Call this whenever what was published may have been missed, once all is heard again."""

    # -- queues ------------------------------------------------------------------------------

    async def push(self, name: str, data: bytes, ttl: float) -> None:
        """Put something at the end of a queue, which lives for so long from now on."""

    async def claim(self, name: str, who: str, lease: float) -> Item | None:
        """Take the next one, for so long: nobody else has it unless the lease ends. None if there is none.

        One whose lease ended goes before new ones.
        """

    async def renew(self, name: str, who: str, item: Item, lease: float) -> bool:
        """Have it for so long from now on; False if somebody else has it by now, or it is done."""

    async def done(self, name: str, who: str, item: Item) -> bool:
        """It is dealt with and leaves the queue; False if it was not ours any more."""
