"""What may be shared between processes, as small interfaces: each has one in memory, and others may take its place.

What holds for every implementation is in `tests/backplane/test_contracts.py`, which a new one has to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

__all__ = ["ChangeBus", "EventStore", "Kind", "SessionStore", "Subscriber"]


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


class SessionStore(Protocol):
    """What is known of the sessions of all processes, as bytes by the session's id.

    Everything here raises OSError while the store cannot be reached, and never waits for long then.
    """

    async def put(self, session_id: str, record: bytes, life: float) -> None:
        """Keep a record in the place of the one before, for so many seconds; 0 until it is deleted."""

    async def get(self, session_id: str) -> bytes | None:
        """The record; None if there is none, or its life is over."""

    async def delete(self, session_id: str) -> None:
        """Forget a record, and tell all who watch, whoever they are. No error if there is none."""

    def watch(self, deleted: Callable[[str], None]) -> Callable[[], None]:
        """From now on call `deleted(session_id)` for each that is deleted; gives what ends that.

        It is called from any thread, and not for those whose life is over. Never raises.
        """


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
