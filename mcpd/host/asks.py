"""Requests of a View that wait for the program: their ids, how many, progress tokens.

Spec: JSON-RPC 2.0 section 4; 2026-07-28 basic/patterns/{cancellation,progress}. A View's ids begin at 0 and may be
strings.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..jsonrpc import Id
from .events import Ask

__all__ = ["PendingAsk", "PendingAsks"]


class PendingAsk(Struct):
    """A request of the View that waits for the program. `aborted`: nobody wants the answer any more."""

    ask: Ask
    method: str
    request_id: Id
    progress_token: Id | None
    aborted: bool = False


class PendingAsks:
    """The View's requests by the id the program knows them under.

    An aborted one counts until the program is done with it: a View that asks and takes back in a
    loop gets no more work done at a time than one that waits.
    """

    __slots__ = ("_asked", "_by_request", "_last")

    def __init__(self) -> None:
        self._asked: dict[int, PendingAsk] = {}
        self._by_request: dict[Id, int] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._asked)

    def next_id(self) -> int:
        """A number for an ask, never given twice."""
        self._last += 1
        return self._last

    def is_used(self, request_id: Id) -> bool:
        """Whether a request with this id waits for its answer."""
        return request_id in self._by_request

    def add(self, asked: PendingAsk) -> None:
        """A request begins to wait."""
        self._asked[asked.ask.ask_id] = asked
        self._by_request[asked.request_id] = asked.ask.ask_id

    def get(self, ask_id: int) -> PendingAsk | None:
        """A request that is not done yet, aborted or not."""
        return self._asked.get(ask_id)

    def take(self, ask_id: int) -> PendingAsk | None:
        """The program is done with it: it counts no more, and its id is free."""
        asked = self._asked.pop(ask_id, None)
        if asked is not None and not asked.aborted:
            del self._by_request[asked.request_id]
        return asked

    def abort(self, request_id: Id) -> PendingAsk | None:
        """The View gave this request up; None if it does not wait."""
        ask_id = self._by_request.pop(request_id, None)
        if ask_id is None:
            return None
        asked = self._asked[ask_id]
        asked.aborted = True
        return asked

    def abort_all(self) -> Iterator[PendingAsk]:
        """Nobody is left to answer to."""
        for request_id in list(self._by_request):
            asked = self.abort(request_id)
            if asked is not None:
                yield asked
