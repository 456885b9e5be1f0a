"""The table of the peer's requests that wait for our answer."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.requests import RequestInFlight, RequestsInFlight

IDS = st.sampled_from([0, 1, 2, "", "0", "1", -1, "é"])


def key(request_id: Id) -> tuple[type, Id]:
    return type(request_id), request_id


def test_an_answer_is_for_the_request_and_not_for_its_id() -> None:
    """The peer gave one up and used its id again: who works on the first one answers nobody."""
    in_flight: RequestsInFlight[RequestInFlight] = RequestsInFlight()
    first, second = RequestInFlight("a", "roots/list"), RequestInFlight("a", "roots/list")
    in_flight.add(first)
    assert in_flight.cancel("a") is first
    in_flight.add(second)
    assert not in_flight.is_open(first)
    assert not in_flight.close(first)
    assert in_flight.is_open(second)
    assert in_flight.close(second)
    assert not in_flight


def test_initialize_is_not_given_up() -> None:
    """2025-11-25 basic/utilities/cancellation; when its peer is gone there is nobody to answer to either."""
    in_flight: RequestsInFlight[RequestInFlight] = RequestsInFlight()
    first = RequestInFlight(1, "initialize")
    in_flight.add(first)
    assert in_flight.cancel(1) is None
    assert in_flight.is_open(first)
    assert in_flight.cancel_all() == [first]
    assert not in_flight.is_open(first)


class Histories(RuleBasedStateMachine):
    """Whatever happens in whichever order: each request ends once, and ids in use are those of requests that wait."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.in_flight: RequestsInFlight[RequestInFlight] = RequestsInFlight()
        self.waiting: list[RequestInFlight] = []
        """In the order in which they came."""
        self.ended: list[RequestInFlight] = []

    def find(self, request_id: Id | None) -> RequestInFlight | None:
        if request_id is None:
            return None
        return next((one for one in self.waiting if key(one.id) == key(request_id)), None)

    def end(self, request: RequestInFlight) -> None:
        self.waiting = [one for one in self.waiting if one is not request]
        self.ended.append(request)

    @rule(target=requests, request_id=IDS, method=st.sampled_from(["tools/call", "initialize"]))
    def ask(self, request_id: Id, method: str) -> RequestInFlight:
        """The peer asks; an id in use is refused, and what had it stays as it is."""
        there = self.find(request_id)
        assert (request_id in self.in_flight) == (there is not None)
        if there is not None:
            assert self.in_flight.is_open(there)
            return there

        request = RequestInFlight(request_id, method)
        self.in_flight.add(request)
        self.waiting.append(request)
        return request

    @rule(request=requests)
    def answer(self, request: RequestInFlight) -> None:
        """Work has ended, perhaps long after its request was given up, or once more for one that was answered."""
        is_wanted = any(one is request for one in self.waiting)
        assert self.in_flight.is_open(request) == is_wanted
        assert self.in_flight.close(request) == is_wanted
        assert not self.in_flight.close(request)
        if is_wanted:
            self.end(request)

    @rule(request_id=st.none() | IDS)
    def give_up(self, request_id: Id | None) -> None:
        there = self.find(request_id)
        found = self.in_flight.cancel(request_id)
        if there is None or there.method == "initialize":
            assert found is None
        else:
            assert found is there
            self.end(there)

    @precondition(lambda self: len(self.waiting) > 1)
    @rule()
    def the_peer_leaves(self) -> None:
        gone = self.in_flight.cancel_all()
        assert [id(one) for one in gone] == [id(one) for one in self.waiting]
        for request in gone:
            self.end(request)

    @invariant()
    def the_table_has_what_waits(self) -> None:
        assert len(self.in_flight) == len(self.waiting)
        assert [id(one) for one in self.in_flight] == [id(one) for one in self.waiting]
        assert [key(one) for one in self.in_flight.by_id] == [key(one.id) for one in self.waiting]
        assert all(self.in_flight.is_open(one) for one in self.waiting)

    @invariant()
    def what_has_ended_stays_so(self) -> None:
        assert not any(self.in_flight.is_open(one) for one in self.ended)
        assert len({id(one) for one in self.ended}) == len(self.ended)


TestHistories = Histories.TestCase
