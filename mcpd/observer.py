"""`Observer`: told when connections and calls begin and end, for metrics and traces: `Server(observers=[…])`.

Observers are called in the event loop, between a request and its answer: they count and note, and never wait.
"""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

__all__ = ["ObservedCall", "Observer", "Outcome"]


class ObservedCall(Struct, eq=False):
    """A request that came. The same object at its begin and its end: what an observer knows of it can be kept by it."""

    connection: int
    """The number of its connection; one of its own for a request that comes alone, as over HTTP in 2026-07-28."""
    id: str | int | float | None
    """The JSON-RPC id."""
    method: str
    """As it came, so it may be anything where the outcome is `refused`."""
    subject: str = ""
    """The name of the tool or prompt, or the URI of the resource, if the method has such."""
    version: str = ""
    """The protocol version; empty where the request was refused."""


class Outcome(Struct, frozen=True):
    """How a call ended."""

    kind: Literal["answered", "failed", "cancelled", "refused"]
    """`failed`: with an error answer; `refused`: with one before anything was begun."""
    seconds: float
    code: int | None = None
    """That of the error answer."""
    is_error: bool = False
    """The answer is a tool's that says it failed."""


class Observer(Protocol):
    """Derive a class from this one, with those of the methods that you need. What they raise is logged, no more."""

    def connection_opened(self, connection: int) -> None:
        """A client has connected, or begun a session. Requests that come alone, over HTTP, open none."""
        return

    def connection_closed(self, connection: int, seconds: float) -> None:
        """It is gone, after so many seconds."""
        return

    def call_began(self, call: ObservedCall) -> None:
        """A request came."""
        return

    def call_ended(self, call: ObservedCall, outcome: Outcome) -> None:
        """It was answered, or given up: nothing more is sent for it."""
        return
