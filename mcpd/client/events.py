"""What comes of a frame of the server's: the events of `ClientSession`, and the requests that they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Raw, Struct

from mcpd.errors import ProtocolError, RemoteError
from mcpd.protocol.requests import PendingRequest, RequestInFlight

if TYPE_CHECKING:
    from asyncio import Task, Timeout

OnProgress: TypeAlias = Callable[[float, float | None, str | None], Any]
"""Called with progress, total and message of a request; a plain function, for the answer does not wait for it."""


class ClientRequest(PendingRequest, kw_only=True, eq=False):
    """A request to the server that waits for its answer. All but `wants_progress` is set by whoever awaits it."""

    wants_progress: bool = False
    on_progress: OnProgress | None = None
    timeout: float | None = None
    """How many seconds it waits without a sign of life; None for as long as it takes."""
    latest: float | None = None
    """When it is given up, whatever the signs of life; in seconds of the event loop's clock."""
    clock: Timeout | None = None
    """Of whoever carries it over a connection of its own."""
    carrier: Task[Any] | None = None
    """Who carries it over a connection of its own, and would not notice that somebody else has settled it."""

    def restart(self, now: float, *, is_stopped: bool) -> None:
        """There was a sign of life. `is_stopped`: the server waits for us, and its time stands still."""
        timeout, latest = self.timeout, self.latest
        if timeout is None or latest is None:
            return
        if self.waiter is None or not self.waiter.done():
            self.deadline = latest if is_stopped else min(now + timeout, latest)

    def interrupt(self, now: float) -> None:
        """End the wait, of whatever is waited for: its time is up, or somebody else has settled it."""
        if self.clock is None:
            self.settle(TimeoutError())
        elif not self.clock.expired():
            self.clock.reschedule(now)


class Answered(Struct, frozen=True):
    """A request of ours has its answer: its result, or RemoteError; ProtocolError if it could not be read."""

    request: ClientRequest
    outcome: Raw | RemoteError | ProtocolError


class Progressed(Struct, frozen=True):
    """How far a request of ours is."""

    request: ClientRequest
    progress: float
    total: float | None
    message: str | None


class Asked(RequestInFlight, eq=False):
    """The server asks something: answer with `ClientSession.answer` or `ClientSession.refuse`. Legacy versions only."""

    params: Raw


class Withdrawn(Struct, frozen=True):
    """The server gave its question up; an answer to it is dropped."""

    asked: Asked


class Notified(Struct, frozen=True):
    """The server tells something. `params` is `{}` if it had none."""

    method: str
    params: Raw


Event: TypeAlias = Answered | Progressed | Asked | Withdrawn | Notified
