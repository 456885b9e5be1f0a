"""`Observer`: told of connections, calls and frames, for metrics and traces: `Server(observers=[…])`.

Observers are called in the event loop, between a request and its answer: they count and note, and never wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

from msgspec import Struct


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
    client: str = ""
    """What the client calls itself, with its version; empty if it did not say so, or the request was refused."""
    principal: str = ""
    """The `Principal.id` of who asks; empty for nobody in particular."""
    trace: str = ""
    """The `traceparent` of its span, at its end, where requests are traced; else empty."""
    transport: str = ""
    """Which way it came: stdio, http, websocket, memory."""
    arguments: bytes = b""
    """The JSON of the arguments of a tool or prompt; only where an observer `hears_arguments`."""


class Outcome(Struct, frozen=True):
    """How a call ended."""

    kind: Literal["answered", "failed", "cancelled", "refused"]
    """`failed`: with an error answer; `refused`: with one before anything was begun."""
    seconds: float
    code: int | None = None
    """That of the error answer."""
    is_error: bool = False
    """The answer is a tool's that says it failed."""


class ObservedFrame(Struct, frozen=True, eq=False):
    """One message, or one batch of them, as it came or goes."""

    connection: int
    """The number of its connection, as in `ObservedCall`."""
    data: bytes
    """The JSON text in UTF-8, without what the transport puts round it. It may hold secrets."""
    method: str = ""
    """That of the request or notification that it is, or of the request that it answers; empty where that is unknown:
    of batches, and of what could not be read."""
    related_request_id: str | int | float | None = None
    """The id of the client's request that it is, answers, or is sent for; None where it belongs to none."""


class Observer(Protocol):
    """Derive a class from this one, with those of the methods that you need. What they raise is logged, no more."""

    hears_arguments: bool = False
    """Whether calls have their `arguments`, which may hold secrets."""

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

    def frame_received(self, frame: ObservedFrame) -> None:
        """A frame came for a connection, and is worked on next. Without a method of this name it costs nothing."""
        return

    def frame_sent(self, frame: ObservedFrame) -> None:
        """A frame was handed to the transport, once, however often a client gets it on a stream that it resumes."""
        return


class SessionObserver(Observer):
    """One that is told nothing, but has a session class of its own: for what each call may cost next to nothing."""

    def session_class(self, base: Any, channel: Any) -> Any:
        """A class derived from `base`, a `Session` or `ObservedSession`, for the connection of this channel."""
        raise NotImplementedError

    def refused(self, reason: str) -> None:
        """Something was refused before any session had it, over HTTP or in a handshake: with this status or code."""
        return

    def watched_backplane(self, backplane: Any) -> Any:
        """What takes the place of a `Backplane` that is shared, and asks it in its turn."""
        return backplane


def refusals_to(observers: Iterable[Observer]) -> Callable[[str], object] | None:
    """What tells of refusals, by their status or code; None if nobody hears of them."""
    told = [each.refused for each in observers if isinstance(each, SessionObserver)]
    if not told:
        return None

    def tell(reason: str) -> None:
        for each in told:
            each(reason)

    return tell


def hears_frames(observer: Observer) -> bool:
    """Whether an observer has a method of its own for frames."""
    own = type(observer)
    return any(
        getattr(own, name, None) not in (None, getattr(Observer, name)) for name in ("frame_received", "frame_sent")
    )
