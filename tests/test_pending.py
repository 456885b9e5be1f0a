"""The table of our requests that wait for an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from msgspec import Raw

from mcpd.errors import ConnectionLost, RemoteError
from mcpd.protocol.jsonrpc import Failure, Response, decode
from mcpd.protocol.requests import PendingRequest, PendingRequests

RESULT = Raw(b'{"a":1}')


class Asker:
    """A waiter that counts what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def done(self) -> bool:
        return bool(self.told)

    def set_result(self, result: Raw, /) -> None:
        self.told.append(result)

    def set_exception(self, exception: Exception, /) -> None:
        self.told.append(exception)


def failure(request_id: str) -> Failure:
    message = decode(b'{"jsonrpc":"2.0","id":%b,"error":{"code":-7,"message":"no","data":[1]}}' % request_id.encode())
    assert isinstance(message, Failure)
    return message


def test_each_request_of_ours_has_an_id_of_its_own() -> None:
    """S25-003 to S25-005: a string or a number, never null, never used before."""
    numbers: PendingRequests[PendingRequest] = PendingRequests()
    names: PendingRequests[PendingRequest] = PendingRequests("host-")
    assert [numbers.add(PendingRequest("ping")) for _ in range(3)] == [1, 2, 3]
    assert [names.add(PendingRequest("ping")) for _ in range(3)] == ["host-1", "host-2", "host-3"]
    numbers.take_all()
    assert (numbers.next_id, numbers.add(PendingRequest("ping"))) == (4, 4)


def test_an_answer_counts_once_and_only_if_it_was_asked_for() -> None:
    pending: PendingRequests[PendingRequest] = PendingRequests()
    first, second = PendingRequest("ping"), PendingRequest("ping")
    assert (pending.add(first), pending.add(second)) == (1, 2)
    assert pending.receive(Response(1, RESULT)) is first
    assert pending.receive(Response(1, RESULT)) is None
    assert pending.receive(Response("x2", RESULT)) is None
    assert pending.take(2) is second
    assert pending.take(2) is None
    assert pending.receive(Response(2, RESULT)) is None
    assert pending.receive(failure("null")) is None


def test_an_error_answer_raises_remote_error() -> None:
    pending: PendingRequests[PendingRequest] = PendingRequests()
    asker = Asker()
    pending.add(PendingRequest("ping", asker))
    pending.receive(failure("1"))
    (error,) = asker.told
    assert isinstance(error, RemoteError)
    assert (error.code, error.message, error.data) == (-7, "no", [1])


async def test_a_future_waits() -> None:
    pending: PendingRequests[PendingRequest] = PendingRequests()
    answers: list[asyncio.Future[Raw]] = [asyncio.get_running_loop().create_future() for _ in range(4)]
    for answer in answers:
        pending.add(PendingRequest("ping", answer))
    answers[3].cancel()
    pending.receive(Response(4, RESULT))  # whoever waited left a moment ago
    pending.receive(Response(1, RESULT))
    pending.fail_all("the peer is gone")
    assert await answers[0] is RESULT
    lost = []
    for answer in answers[1:3]:
        with pytest.raises(ConnectionLost, match="the peer is gone") as caught:
            await answer
        lost.append(caught.value)
    assert lost[0] is not lost[1]  # or each would raise the other's traceback
    assert [request.id for request in pending] == [2, 3]


class Histories(RuleBasedStateMachine):
    """Whatever happens in whichever order: each waiter hears at most once, and only what its request came to."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.pending: PendingRequests[PendingRequest] = PendingRequests()
        self.askers: dict[int, Asker] = {}
        self.waiting: dict[int, float | None] = {}
        self.expected: dict[int, Any] = {}

    @rule(target=requests, deadline=st.none() | st.integers(0, 9))
    def ask(self, deadline: float | None) -> int:
        asker = Asker()
        request_id = self.pending.next_id
        assert isinstance(request_id, int)
        assert request_id not in self.askers
        assert self.pending.add(PendingRequest("ping", asker, deadline)) == request_id
        self.askers[request_id] = asker
        self.waiting[request_id] = deadline
        return request_id

    @rule(request_id=requests | st.integers(0, 99), is_error=st.booleans())
    def answer(self, request_id: int, is_error: bool) -> None:
        message = failure(str(request_id)) if is_error else Response(request_id, RESULT)
        found = self.pending.receive(message)
        assert (found is not None) == (request_id in self.waiting)
        if found is not None:
            assert found.id == request_id
            del self.waiting[request_id]
            self.expected.setdefault(request_id, RemoteError if is_error else Raw)

    @rule(target=requests, request_id=consumes(requests))
    def give_up(self, request_id: int) -> Any:
        is_there = request_id in self.pending
        assert (self.pending.take(request_id) is not None) == is_there == (request_id in self.waiting)
        self.waiting.pop(request_id, None)
        return multiple(request_id) if is_there else multiple()

    @rule(request_id=requests | st.none())
    def an_answer_cannot_be_read(self, request_id: int | None) -> None:
        for request in self.pending.take_unread(request_id):
            assert request_id in (request.id, None)
            assert isinstance(request.id, int)
            del self.waiting[request.id]
            request.settle(ValueError("unreadable"))
            self.expected.setdefault(request.id, ValueError)
        assert request_id not in self.waiting
        assert self.waiting == {} or request_id is not None

    @rule(now=st.integers(0, 9))
    def time_passes(self, now: float) -> None:
        overdue = {request.id for request in self.pending.take_overdue(now)}
        assert overdue == {one for one, deadline in self.waiting.items() if deadline is not None and deadline <= now}
        self.waiting = {one: deadline for one, deadline in self.waiting.items() if one not in overdue}

    @rule()
    def the_peer_leaves(self) -> None:
        self.pending.fail_all("gone")
        for request_id in self.waiting:
            self.expected.setdefault(request_id, ConnectionLost)

    @invariant()
    def the_table_has_what_waits(self) -> None:
        assert [request.id for request in self.pending] == list(self.waiting)
        assert len(self.pending) == len(self.waiting)
        assert all(self.pending.get(request_id) is not None for request_id in self.waiting)
        assert self.pending.deadline == min((at for at in self.waiting.values() if at is not None), default=None)

    @invariant()
    def each_waiter_heard_once_what_came(self) -> None:
        heard = {request_id: asker.told for request_id, asker in self.askers.items() if asker.told}
        assert {request_id: type(told) for request_id, (told,) in heard.items()} == self.expected


TestHistories = Histories.TestCase
