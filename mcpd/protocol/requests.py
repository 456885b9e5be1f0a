"""Requests of ours that the peer has not answered yet: their ids, who waits for which answer, and how long.

One table for everybody who asks: the server its client (`dispatcher/outgoing.py`), the client its server
(`client/session.py`), the host its View (`host/view/outgoing.py`). What they are asked is in `in_flight.py`. Without
I/O and without a clock: a deadline is a number of seconds that the caller gives, and who waits is anything that an
`asyncio.Future` is one of.

    add        the request gets its id and waits
    receive    its answer is here: it leaves the table, and its waiter has the result or the error
    take       whoever asked gives it up, or sees to the answer: it leaves the table, and its waiter is left alone
    fail_all   no answer will come: the waiters hear that, and each takes its own request out when it gives up

An answer to an id that is not in the table is late, or answers nothing: it is ignored.
Spec: JSON-RPC 2.0 section 5; 2025-11-25 basic, requests: ids are not used twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Raw, Struct

from mcpd.errors import ConnectionLost, RemoteError
from mcpd.protocol.jsonrpc import Failure, Id, Response, remote_error


class Waiter(Protocol):
    """Who waits for one answer, as an `asyncio.Future` does."""

    def done(self) -> bool:
        """Whether it waits no more."""

    def set_result(self, result: Raw, /) -> None:
        """Here is the result."""

    def set_exception(self, exception: Exception, /) -> None:
        """There will be none."""


class PendingRequest(Struct, eq=False):
    """One request that waits for its answer. Who asks derives from it to keep more."""

    method: str
    waiter: Waiter | None = None
    deadline: float | None = None
    """When it is overdue, None if `take_overdue` is not to give it."""
    id: Id = 0
    """Given by `PendingRequests.add`."""

    def settle(self, outcome: Raw | Exception) -> None:
        """Hand the result or the error to the waiter, if there is one and it still waits."""
        waiter = self.waiter
        if waiter is None or waiter.done():
            return
        if isinstance(outcome, Raw):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)


Pending = TypeVar("Pending", bound=PendingRequest)


class PendingRequests(Generic[Pending]):
    """The requests of one connection that wait, in the order in which they were sent.

    Ids are 1, 2, 3, …; with a `prefix` they are strings that begin with it.
    """

    __slots__ = ("_last", "_prefix", "by_id")

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._last = 0
        self.by_id: dict[object, Pending] = {}
        """In the order in which they were sent. A client takes what is answered out of here, as that is to make no
        function calls; all others use the methods."""

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Pending]:
        """Those that wait now; what comes or goes meanwhile changes nothing."""
        return iter(list(self.by_id.values()))

    def __contains__(self, request_id: object) -> bool:
        return request_id in self.by_id

    @property
    def next_id(self) -> Id:
        """The id that the next request gets; no two ever get the same."""
        number = self._last + 1
        return f"{self._prefix}{number}" if self._prefix else number

    @property
    def deadline(self) -> float | None:
        """When the first of them is overdue; None if none ever is."""
        return min((one.deadline for one in self.by_id.values() if one.deadline is not None), default=None)

    def add(self, request: Pending) -> Id:
        """It begins to wait: gives its id, which was `next_id`."""
        number = self._last = self._last + 1
        request_id = request.id = f"{self._prefix}{number}" if self._prefix else number
        self.by_id[request_id] = request
        return request_id

    def get(self, request_id: object) -> Pending | None:
        """The request with this id, if it waits. Some peers write a number back as text."""
        found = self.by_id.get(request_id)
        if found is None and type(request_id) is str and request_id.isdecimal() and len(request_id) < 20:
            number = int(request_id)
            return self.by_id.get(number) if str(number) == request_id else None
        return found

    def receive(self, answer: Response | Failure) -> Pending | None:
        """Settle the request that this answers, an error as RemoteError; None if there is none, or no longer."""
        request = self.take(answer.id)
        if request is not None:
            request.settle(outcome_of(answer))
        return request

    def take(self, request_id: object) -> Pending | None:
        """Wait for this no longer; None if it does not wait."""
        request = self.get(request_id)
        return None if request is None else self.by_id.pop(request.id, None)

    def take_unread(self, request_id: Id | None) -> list[Pending]:
        """Those that an answer which could not be read was for: the one that it names, all if it names none."""
        if request_id is None:
            return self.take_all()
        request = self.take(request_id)
        return [] if request is None else [request]

    def take_overdue(self, now: float) -> list[Pending]:
        """Those whose time is up."""
        overdue = [one for one in self if one.deadline is not None and one.deadline <= now]
        for request in overdue:
            del self.by_id[request.id]
        return overdue

    def take_all(self) -> list[Pending]:
        """All of them."""
        requests, self.by_id = list(self.by_id.values()), {}
        return requests

    def fail_all(self, reason: str) -> None:
        """The peer is gone: all waiters get ConnectionLost. The requests stay until they are taken."""
        for request in self:
            request.settle(ConnectionLost(reason))


def outcome_of(answer: Response | Failure) -> Raw | RemoteError:
    """What an answer says: its result, or its error as what is raised for it."""
    return answer.result if isinstance(answer, Response) else remote_error(answer)


# Two answers with one id could not be told apart, and a cancellation would mean either.
ID_IN_USE: Final = "This id belongs to a request that is still being answered"


class RequestInFlight(Struct, eq=False):
    """One request of the peer. Who is asked derives from it to keep more."""

    id: Id
    """As the peer wrote it: 1 and "1" are two."""
    method: str


InFlight = TypeVar("InFlight", bound=RequestInFlight)


class RequestsInFlight(Struct, Generic[InFlight], eq=False):
    """The requests of one connection that wait for an answer. A struct, for over HTTP each call may make one."""

    by_id: dict[Id, InFlight] = {}
    """In the order in which they came. A call is added, looked up and closed in here by `Session`, which is to make no
    function calls for it; all others use the methods."""

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[InFlight]:
        """Those that wait now; what comes or goes meanwhile changes nothing."""
        return iter(list(self.by_id.values()))

    def __contains__(self, request_id: object) -> bool:
        """Whether an id is in use."""
        return request_id in self.by_id

    def add(self, request: InFlight) -> None:
        """It is in flight. Its id must not be in use."""
        self.by_id[request.id] = request

    def is_open(self, request: InFlight) -> bool:
        """Whether its answer is still wanted: not so if it was given, or the request given up."""
        return self.by_id.get(request.id) is request

    def close(self, request: InFlight) -> bool:
        """It is answered now; False if that is not wanted any more, and nothing may be sent."""
        if self.by_id.get(request.id) is not request:
            return False
        del self.by_id[request.id]
        return True

    def cancel(self, request_id: Id | None) -> InFlight | None:
        """The peer gave up the request with this id; None if it is not in flight, or must not be cancelled.

        Spec: 2025-11-25 basic/utilities/cancellation: "The `initialize` request MUST NOT be cancelled by clients".
        """
        request = None if request_id is None else self.by_id.get(request_id)
        if request is None or request.method == "initialize":
            return None
        del self.by_id[request.id]
        return request

    def cancel_all(self) -> list[InFlight]:
        """The peer is gone, or has forgotten what it asked for: gives all of them."""
        requests, self.by_id = list(self.by_id.values()), {}
        return requests
