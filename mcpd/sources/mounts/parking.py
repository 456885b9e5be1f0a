"""Calls of modern clients that a legacy server interrupts with a question.

A modern client receives no requests. The question becomes the result of the client's request; the request to the server
stays open, parked, until the client sends its request again with the answers. Any call of the same client may carry a
question of a shared stream, because the answer goes back by the question's own id.

Parked calls are bounded: 16 for each user, 64 for each mount, 300 seconds. After that the question is answered with
"cancel", and the server receives a cancellation. Spec: 2026-07-28 basic/patterns/mrtr; 2025-11-25 client/*.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from msgspec import Raw, Struct, structs
from msgspec.json import Decoder

from mcpd.errors import InternalError, InvalidParams, McpdError, ToolError
from mcpd.protocol.jsonrpc import MALFORMED, encode
from mcpd.protocol.types.base import NO_JSON, ProgressParams
from mcpd.server.context.questions import Question, read_question
from .shapes import MustVisit, needs_of, read_members, shaped_question

if TYPE_CHECKING:
    from mcpd.client.session import ServerRequest
    from mcpd.protocol.session import Call
    from mcpd.protocol.versions.table import Version
    from mcpd.server.context.exchange import Exchange
    from mcpd.server.context.peer import Peer
    from .upstream import Upstream

PARKED_SECONDS = 300.0
MOST_PER_USER = 16
MOST_PER_MOUNT = 64
TOGETHER_SECONDS = 0.01
"""Questions that arrive within this time are put to the client together."""

_ENDED = "requestState: this round was answered already, or its call has ended; send the request again without it"


class Moved(McpdError):
    """The call that carried a question has ended, so another call must carry it."""


class Asker(Protocol):
    """A connection to a mounted server, as the calls on it see it."""

    name: str
    version: Version

    async def send_alone(self, method: str, members: dict[str, Any], flight: Flight) -> Raw:
        """Send a request, and return its result, when no other call can be confused with it."""

    def park(self) -> None:
        """Keep the instance for a call whose client has to answer."""

    def unpark(self) -> None:
        """The client of a call has answered, or will not."""

    def release(self) -> None:
        """A call that was parked has ended."""

    async def ask_client(self, exchange: Exchange, method: str, params: Raw) -> Raw:
        """Ask the client of a session a question."""

    def seal(self, exchange: Exchange, kept: Mapping[str, Any]) -> str:
        """Return a state that opens for the same request of the same caller only."""


class Flight(Struct, eq=False, weakref=True):
    """A request of a client that a mounted server works on."""

    exchange: Exchange
    # The last progress that was reported while its client did not wait.
    late_progress: ProgressParams | None = None

    @property
    def peer(self) -> Peer:
        return self.exchange.peer

    @property
    def call(self) -> Call:
        return self.exchange.call

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for an answer; not while its user answers questions between two requests."""
        return self.exchange.call.is_open

    async def ask(self, relay: Asker, asked: ServerRequest) -> Any:
        """Ask the client a question of a legacy server, and return its answer."""
        return await relay.ask_client(self.exchange, asked.method, asked.params)


class TaskFlight(Flight):
    """A request to a legacy server that becomes a task of this server when the legacy server asks something."""

    async def ask(self, relay: Asker, asked: ServerRequest) -> Any:
        """Put a question into the task, and wait until the client has answered it with `tasks/update`."""
        task = self.exchange.task
        assert task is not None
        await task.become("")
        if task.id is None:
            raise InternalError("The client cannot be asked: its call could not become a task")
        needs, params = needs_of(asked.method, _read(asked.params)), asked.params
        shaped = shaped_question(asked.method, params, self.call.version, relay.version)
        members = _read(shaped) if isinstance(shaped, Raw) else shaped
        question = _Passed(*structs.astuple(read_question(asked.method, members, needs)))
        relay.park()
        try:
            asking = self.exchange.asking
            key = asking.next_key()
            return (await asking.ask({key: question}, None))[key]
        finally:
            relay.unpark()


class _Passed(Question):
    # A question whose answer is passed on as the client wrote it.
    def read(self, raw: Raw | bytes) -> Any:
        super().read(raw)
        return Raw(raw)


class ParkedCall(Flight):
    """A request to a legacy server, from its first round to its last."""

    task: asyncio.Task[Raw] | None = None
    # The questions without an answer by key, and what to send for the answer.
    questions: dict[str, tuple[str, Any]] = {}
    waiters: dict[str, asyncio.Future[Raw]] = {}
    count: int = 0
    # Set when a question arrives or the server answers.
    wake: asyncio.Event | None = None
    timer: asyncio.TimerHandle | None = None
    owner: object = None
    # The connection that it runs on; a retry may arrive on another one.
    asker: Asker | None = None

    async def ask(self, relay: Asker, asked: ServerRequest) -> Any:
        """Keep a question until a request of the client brings its answer."""
        params = shaped_question(asked.method, asked.params, self.call.version, relay.version)
        self.count += 1
        key = f"question-{self.count}"
        self.questions[key] = asked.method, params
        waiter = self.waiters[key] = asyncio.get_running_loop().create_future()
        assert self.wake is not None
        self.wake.set()
        try:
            return await waiter
        finally:
            # Answered, or cancelled by the server.
            self.questions.pop(key, None)
            self.waiters.pop(key, None)

    def answer(self, answers: Mapping[str, Raw]) -> None:
        """Pass the client's answers on to the server. Answers to questions that are no longer open are ignored."""
        for key, given in answers.items():
            waiter = self.waiters.get(key)
            self.questions.pop(key, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(given)

    def hand_over(self) -> None:
        """Give the open questions to other calls of the client, because this one has ended.

        A question may have come with the result of the call that was chosen for it.
        """
        for waiter in list(self.waiters.values()):
            if not waiter.done():
                waiter.set_exception(Moved())

    async def next(self) -> Raw | None:
        """Return the result of the server, or None if the client must answer questions first."""
        task, wake = self.task, self.wake
        assert task is not None
        assert wake is not None
        while not task.done():
            if self.questions:
                await asyncio.sleep(TOGETHER_SECONDS)
                if self.questions:
                    break
                continue
            wake.clear()
            await wake.wait()

        if self.questions and not task.done():
            return None
        return task.result()

    def end(self) -> None:
        """Answer the open questions with a refusal, and cancel the request to the server."""
        for key, waiter in list(self.waiters.items()):
            if not waiter.done():
                if self.questions.get(key, ("",))[0] == "elicitation/create":
                    waiter.set_result(Raw(b'{"action":"cancel"}'))
                else:
                    waiter.set_exception(InternalError("The client did not answer in time"))

        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None:
            # After the answers, which are sent in the next iteration of the event loop.
            asyncio.get_running_loop().call_soon(self.task.cancel)


class Parking:
    """The parked calls of one mount, by the ticket in the client's state. Each round has a ticket of its own."""

    def __init__(self) -> None:
        self.calls: dict[str, ParkedCall] = {}
        # The connections of clients whose end ends their calls.
        self._followed: WeakSet[Any] = WeakSet()

    async def run(self, relay: Asker, method: str, members: dict[str, Any], exchange: Exchange) -> Raw:
        """Send a request, or continue it with the client's answers. Returns the result, or the next questions."""
        params = exchange.call.params
        kept = opened_state(relay, exchange)
        if "ticket" in kept:
            parked = self._claim(kept["ticket"])
            parked.exchange = exchange
            progress, meta = parked.late_progress, exchange.call.meta
            parked.late_progress = None
            if progress is not None and meta is not None and meta.progress_token is not None:
                progress.progress_token = meta.progress_token
                exchange.peer.notify_nowait("notifications/progress", progress, exchange.call)
            parked.answer(_answers(params))
        else:
            if "visits" in kept:
                _check_visits(_answers(params), kept["visits"])
            parked = ParkedCall(
                exchange, questions={}, waiters={}, wake=asyncio.Event(), owner=_owner(exchange), asker=relay
            )
            parked.task = asyncio.get_running_loop().create_task(relay.send_alone(method, members, parked))
            parked.task.add_done_callback(lambda task: _done(parked, task))

        try:
            raw = await parked.next()
        except MustVisit as needed:
            return self._visits(relay, exchange, needed)
        except asyncio.CancelledError:
            parked.end()
            raise
        except Exception:
            parked.hand_over()
            raise

        if raw is None:
            return self._park(relay, parked)
        parked.hand_over()
        return raw

    def _take(self, ticket: object) -> ParkedCall | None:
        parked = self.calls.pop(ticket, None) if isinstance(ticket, str) else None
        if parked is not None and parked.asker is not None:
            parked.asker.unpark()
        return parked

    def _claim(self, ticket: object) -> ParkedCall:
        parked = self._take(ticket)
        if parked is None:
            raise InvalidParams(_ENDED)
        if parked.timer is not None:
            parked.timer.cancel()
        return parked

    def _park(self, relay: Asker, parked: ParkedCall) -> Raw:
        exchange = parked.exchange
        own = sum(one.owner == parked.owner for one in self.calls.values())
        if own >= MOST_PER_USER or len(self.calls) >= MOST_PER_MOUNT:
            parked.end()
            text = f'mount "{relay.name}": too many calls wait for answers of their users; answer those first'
            raise ToolError(text)

        ticket = token_hex(16)
        self.calls[ticket] = parked
        if parked.asker is not None:
            parked.asker.park()
        loop = asyncio.get_running_loop()
        parked.timer = loop.call_later(PARKED_SECONDS, self._expire, ticket)
        opening = exchange.call.session.opening
        if opening.subscribes and not opening.is_stateless and exchange.peer not in self._followed:
            self._followed.add(exchange.peer)
            exchange.peer.on_closed(self._left)
        requests = {key: {"method": method, "params": params} for key, (method, params) in parked.questions.items()}
        return _required(relay, exchange, requests, {"ticket": ticket})

    def _expire(self, ticket: str) -> None:
        parked = self._take(ticket)
        if parked is not None:
            parked.end()

    def _left(self, peer: Any) -> None:
        for ticket, parked in list(self.calls.items()):
            if parked.peer is peer:
                self._expire(ticket)

    def _visits(self, relay: Asker, exchange: Exchange, needed: MustVisit) -> Raw:
        # The server wants the user to visit pages first; the next request then starts anew.
        requests = {
            f"visit-{number}": {
                "method": "elicitation/create",
                "params": {name: value for name, value in one.items() if name != "elicitationId"} | {"mode": "url"},
            }
            for number, one in enumerate(needed.elicitations, 1)
        }
        return _required(relay, exchange, requests, {"visits": list(requests)})


def opened_state(relay: Asker, exchange: Exchange) -> dict[str, Any]:
    """Return the content of the state in a request, which was checked; {} without one. Raises InvalidParams."""
    if getattr(exchange.call.params, "request_state", None) is None:
        return {}
    kept = exchange.asking.kept
    if kept.get("mount") != relay.name:
        raise InvalidParams("requestState: not a state of this mount; send the request again without it")
    return kept


def _required(relay: Asker, exchange: Exchange, requests: Mapping[str, Any], kept: Mapping[str, Any]) -> Raw:
    state = relay.seal(exchange, kept)
    return Raw(encode({"resultType": "input_required", "inputRequests": requests, "requestState": state}))


def _answers(params: Any) -> dict[str, Raw]:
    given = getattr(params, "input_responses", NO_JSON)
    if given is NO_JSON or bytes(given) == b"null":
        return {}
    try:
        return read_members(given)
    except MALFORMED:
        raise InvalidParams("inputResponses: expected an object") from None


def _check_visits(answers: Mapping[str, Raw], keys: list[str]) -> None:
    for key in keys:
        try:
            answer = _read(answers[key])
        except (KeyError, *MALFORMED):
            raise InvalidParams(f"inputResponses.{key}: an answer is missing") from None
        if not isinstance(answer, dict) or answer.get("action") != "accept":
            raise ToolError("The user did not visit the page that this needs")


def _owner(exchange: Exchange) -> object:
    # The user, otherwise the address or, if that is unknown, the connection.
    session = exchange.call.session
    return session.opening.principal or session.owner or session


def _done(parked: ParkedCall, task: asyncio.Task[Raw]) -> None:
    if not task.cancelled():
        task.exception()  # the client may not come back for it
    if parked.wake is not None:
        parked.wake.set()
    if parked.asker is not None:
        parked.asker.release()


def parking_of(upstream: Upstream) -> Parking:
    """Return the parked calls of a mount."""
    return _parkings.setdefault(upstream, Parking())


_parkings: WeakKeyDictionary[Any, Parking] = WeakKeyDictionary()
_read = Decoder().decode
