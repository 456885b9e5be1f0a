"""Requests of the peer that we have not answered yet: their ids, and which of them an answer is still wanted for.

One table for everybody who is asked: the server by its client (`session.py`), the client by its server
(`client/session.py`), the host by its View (`host/view/incoming.py`). What we wait for ourselves is in `pending.py`.
Without I/O and without a clock.

    in, len      whether an id is in use, and how many are: who is asked refuses by them, in words of its own
    add          the request is in flight: its id is in use, and a cancellation finds it
    close        it is answered: its id is free, and there is no second answer
    cancel       the peer gave it up: its id is free, and there is no answer at all
    cancel_all   nobody is left to answer to

A peer may use an id again as soon as it is free, while somebody still works on the request that had it before. So an
answer is given for the request itself: it is sent only if the table has this one under its id, not another. Who does
the work knows how long it takes; it stops it when the request is cancelled.

Spec: JSON-RPC 2.0 section 4; 2025-11-25 basic/utilities/cancellation; 2026-07-28 basic/patterns/cancellation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from msgspec import Struct

from mcpd.jsonrpc import Id

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
