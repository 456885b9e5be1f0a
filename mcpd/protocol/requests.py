"""The two tables of open requests that each side of a connection keeps.

`PendingRequests` has the requests that this side has sent and that are still waiting for an answer. The server uses it
for its requests to the client, the client for its requests to the server, and an Apps host for its requests to a View.
`RequestsInFlight` has the requests of the peer that this side has not answered yet.

Neither does I/O or reads a clock: the caller gives deadlines as times. Answers to unknown ids are ignored.

Spec: JSON-RPC 2.0 section 5; 2025-11-25 basic, requests: ids are not used twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Raw, Struct

from mcpd.errors import ConnectionLost, RemoteError
from .jsonrpc import Failure, Id, Response, remote_error


class Waiter(Protocol):
    """The part of `asyncio.Future` that is used here."""

    def done(self) -> bool:
        """Return whether a result or an exception was set."""

    def set_result(self, result: Raw, /) -> None:
        """Set the result of the request."""

    def set_exception(self, exception: Exception, /) -> None:
        """Set the reason why no result will come."""


class PendingRequest(Struct, eq=False):
    """One request that waits for its answer. Subclasses keep more about it."""

    method: str
    waiter: Waiter | None = None
    # The time after which `take_overdue` returns it; None for never.
    deadline: float | None = None
    # Set by `PendingRequests.add`.
    id: Id = 0

    def settle(self, outcome: Raw | Exception) -> bool:
        """Set the result or the exception on the waiter. Return False if there is none or it is done."""
        waiter = self.waiter
        if waiter is None or waiter.done():
            return False
        if isinstance(outcome, Raw):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)
        return True


Pending = TypeVar("Pending", bound=PendingRequest)


class PendingRequests(Generic[Pending]):
    """The requests that one side has sent and that wait for an answer, in the order of sending.

    Ids are 1, 2, 3, …; with a `prefix` they are strings that begin with it.
    """

    __slots__ = ("_last", "_prefix", "by_id")

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._last = 0
        # The client's hot path reads this directly; other code uses the methods.
        self.by_id: dict[object, Pending] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Pending]:
        """Iterate over a copy, so that requests may be added and removed meanwhile."""
        return iter(list(self.by_id.values()))

    def __contains__(self, request_id: object) -> bool:
        return request_id in self.by_id

    @property
    def next_id(self) -> Id:
        """The id that the next request will get. Ids are never reused."""
        number = self._last + 1
        return f"{self._prefix}{number}" if self._prefix else number

    @property
    def deadline(self) -> float | None:
        """The earliest deadline of all requests; None if no request has one."""
        return min((one.deadline for one in self.by_id.values() if one.deadline is not None), default=None)

    def add(self, request: Pending) -> Id:
        number = self._last = self._last + 1
        request_id = request.id = f"{self._prefix}{number}" if self._prefix else number
        self.by_id[request_id] = request
        return request_id

    def get(self, request_id: object) -> Pending | None:
        """Return the request with this id, or None. Some peers return a number as a string."""
        request = self.by_id.get(request_id)
        if request is None and type(request_id) is str and request_id.isdecimal() and len(request_id) < 20:
            number = int(request_id)
            return self.by_id.get(number) if str(number) == request_id else None
        return request

    def receive(self, answer: Response | Failure) -> Pending | None:
        """Remove and settle the request that this answers, with RemoteError for an error. Return it, or None."""
        request = self.take(answer.id)
        if request is not None:
            request.settle(outcome_of(answer))
        return request

    def take(self, request_id: object) -> Pending | None:
        """Remove a request and return it, or None. Its waiter is left alone."""
        request = self.get(request_id)
        return None if request is None else self.by_id.pop(request.id, None)

    def take_unread(self, request_id: Id | None) -> list[Pending]:
        """Remove the requests that an unreadable answer may belong to: the one with its id, or all without an id."""
        if request_id is None:
            return self.take_all()
        request = self.take(request_id)
        return [] if request is None else [request]

    def take_overdue(self, now: float) -> list[Pending]:
        overdue = [one for one in self if one.deadline is not None and one.deadline <= now]
        for request in overdue:
            del self.by_id[request.id]
        return overdue

    def take_all(self) -> list[Pending]:
        requests, self.by_id = list(self.by_id.values()), {}
        return requests

    def fail_all(self, reason: str) -> None:
        """Set ConnectionLost on all waiters. Each caller then takes its own request out of the table."""
        for request in self:
            request.settle(ConnectionLost(reason))


def outcome_of(answer: Response | Failure) -> Raw | RemoteError:
    """Return the result of an answer, or the exception for its error."""
    return answer.result if isinstance(answer, Response) else remote_error(answer)


# Two answers with one id could not be distinguished, and a cancellation would mean either.
ID_IN_USE: Final = "This id belongs to a request that is still being answered"


class RequestInFlight(Struct, eq=False):
    """One request of the peer. Subclasses keep more about it."""

    # As the peer wrote it: 1 and "1" are different ids.
    id: Id
    method: str


InFlight = TypeVar("InFlight", bound=RequestInFlight)


class RequestsInFlight(Struct, Generic[InFlight], eq=False):
    """The requests that one side has received and not answered yet, in the order of arrival."""

    # `Session` reads and writes this directly on its hot path; other code uses the methods.
    by_id: dict[Id, InFlight] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[InFlight]:
        """Iterate over a copy, so that requests may be added and removed meanwhile."""
        return iter(list(self.by_id.values()))

    def __contains__(self, request_id: object) -> bool:
        return request_id in self.by_id

    def add(self, request: InFlight) -> None:
        """Add a request, whose id must not be in use."""
        self.by_id[request.id] = request

    def is_open(self, request: InFlight) -> bool:
        return self.by_id.get(request.id) is request

    def close(self, request: InFlight) -> bool:
        """Remove a request that is answered now; False if it was cancelled, so that nothing may be sent."""
        if self.by_id.get(request.id) is not request:
            return False
        del self.by_id[request.id]
        return True

    def cancel(self, request_id: Id | None) -> InFlight | None:
        """Remove and return the request that the peer cancelled; None if it is unknown or cannot be cancelled.

        Spec: 2025-11-25 basic/utilities/cancellation: "The `initialize` request MUST NOT be cancelled by clients".
        """
        request = None if request_id is None else self.by_id.get(request_id)
        if request is None or request.method == "initialize":
            return None
        del self.by_id[request.id]
        return request

    def cancel_all(self) -> list[InFlight]:
        """Remove and return all requests, for a peer that has disconnected."""
        requests, self.by_id = list(self.by_id.values()), {}
        return requests
