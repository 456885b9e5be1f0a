"""Requests in flight between host and View, in both directions: ids, places, progress tokens, deadlines.

Spec: JSON-RPC 2.0 section 4; 2026-07-28 basic/patterns/{cancellation,progress}. A View's ids begin at 0 and
may be strings; ours are strings that no View uses, because a simple View takes any message that carries the
id it waits for as its answer, a request of ours too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from ..jsonrpc import Id
from .events import Ask

__all__ = ["Asked", "Inbox", "Purpose", "Sent", "SentBox"]


class Asked(Struct):
    """A request of the View that waits for the program. `aborted`: nobody wants the answer any more."""

    ask: Ask
    method: str
    request_id: Id
    progress_token: Id | None
    aborted: bool = False


class Inbox:
    """The View's requests by the id the program knows them under.

    An aborted one keeps its place until the program is done with it: a View that asks and takes back in a
    loop gets no more work done at a time than one that waits.
    """

    __slots__ = ("_asked", "_by_request", "_last")

    def __init__(self) -> None:
        self._asked: dict[int, Asked] = {}
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

    def add(self, asked: Asked) -> None:
        """A request begins to wait."""
        self._asked[asked.ask.ask_id] = asked
        self._by_request[asked.request_id] = asked.ask.ask_id

    def get(self, ask_id: int) -> Asked | None:
        """A request that is not done yet, aborted or not."""
        return self._asked.get(ask_id)

    def take(self, ask_id: int) -> Asked | None:
        """The program is done with it: its place is free, and its id too."""
        asked = self._asked.pop(ask_id, None)
        if asked is not None and not asked.aborted:
            del self._by_request[asked.request_id]
        return asked

    def abort(self, request_id: Id) -> Asked | None:
        """The View gave this request up; None if it does not wait."""
        ask_id = self._by_request.pop(request_id, None)
        if ask_id is None:
            return None
        asked = self._asked[ask_id]
        asked.aborted = True
        return asked

    def abort_all(self) -> Iterator[Asked]:
        """Nobody is left to answer to."""
        for request_id in list(self._by_request):
            asked = self.abort(request_id)
            if asked is not None:
                yield asked


Purpose: TypeAlias = Literal["teardown", "ping", "list", "call"]


class Sent(Struct):
    """A request of ours that the View should answer before `deadline`."""

    purpose: Purpose
    deadline: float
    tool: str = ""
    call_id: str = ""


class SentBox:
    """Our requests by id."""

    __slots__ = ("_last", "_sent")

    def __init__(self) -> None:
        self._sent: dict[str, Sent] = {}
        self._last = 0

    @property
    def deadline(self) -> float | None:
        """When the first of them is overdue."""
        return min((sent.deadline for sent in self._sent.values()), default=None)

    def add(self, sent: Sent) -> str:
        """A request about to be sent: its id."""
        self._last += 1
        sent.call_id = f"host-{self._last}"
        self._sent[sent.call_id] = sent
        return sent.call_id

    def has(self, call_id: object) -> bool:
        """Whether an answer with this id is expected."""
        return isinstance(call_id, str) and call_id in self._sent

    def take(self, call_id: object) -> Sent | None:
        """The request this answers; None if there is none, or no longer."""
        return self._sent.pop(call_id, None) if isinstance(call_id, str) else None

    def take_overdue(self, now: float) -> list[Sent]:
        """Those whose time is up."""
        overdue = [sent for sent in self._sent.values() if sent.deadline <= now]
        for sent in overdue:
            del self._sent[sent.call_id]
        return overdue

    def take_all(self) -> list[Sent]:
        """All of them: nobody will answer."""
        sent, self._sent = list(self._sent.values()), {}
        return sent
