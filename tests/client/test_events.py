"""Events as a client receives them, by each of the three deliveries, from a server that says what a test tells it.

Spec: SEP-3415 (EVT-077 to EVT-081, EVT-084).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from support.clock import Clock, turns, until
from support.http_script import Asked, Write, event, events_head, reply, result, scripted as http_scripted
from support.scripted_server import DISCOVERED, INITIALIZED, META, NOT_FOUND, Script, scripted
from support.webhooks import post, sign

from mcpd import Client
from mcpd.client.events import (
    MOST_IDS,
    SHORTEST_POLL,
    SILENT_SECONDS,
    TRIES,
    Event,
    EventGap,
    EventSubscription,
)
from mcpd.client.limits import ClientLimits
from mcpd.client.receiver import Receiver
from mcpd.errors import ConnectionLost, LocalProtocolError, NoCompatibleDeliveryMode, ProtocolError, RemoteError

EVENTS = f"{META}events"
SUBSCRIPTION = f"{META}subscriptionId"
NAME = "incident.created"
OFFERS = {**DISCOVERED, "capabilities": {"extensions": {EVENTS: {}}}}
FORBIDDEN = {"code": -32024, "message": "Forbidden"}
GONE = {"code": -32023, "message": "Not found", "data": {"kind": "event"}}
CHANGED = {"code": -32026, "message": "Unsupported", "data": {"feature": "payloadSchema", "reason": "schema_changed"}}


def listing(*modes: str, name: str = NAME) -> dict[str, Any]:
    kind = {"name": name, "delivery": list(modes), "inputSchema": {"type": "object"}, "payloadSchema": {}}
    return {"resultType": "complete", "events": [kind]}


def occurrence(number: int, cursor: str | None = None, **more: Any) -> dict[str, Any]:
    found = {"eventId": f"e-{number}", "name": NAME, "timestamp": "2026-11-28T10:00:00Z", "data": {"number": number}}
    return {**found, "cursor": cursor, **more}


def polled(*events: dict[str, Any], cursor: str | None = None, **more: Any) -> dict[str, Any]:
    members = {"events": list(events), "cursor": cursor, "truncated": False, "hasMore": False, "nextPollMs": 0}
    return {"resultType": "complete", **members, **more}


class Stream:
    """The streams of a scripted server: `say` writes on the last one that was opened."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.script: Script | None = None
        self.cursor: str | None = "c-0"
        self.truncated = False

    def begin(self, script: Script) -> None:
        self.script = script

    def __call__(self, message: Any) -> None:
        self.asked.append(message)
        self.say("active", {"cursor": self.cursor, "truncated": self.truncated})

    @property
    def params(self) -> list[Any]:
        return [{**each["params"], "_meta": None} for each in self.asked]

    def say(self, kind: str, params: Any, request_id: Any = None) -> None:
        meta = {"_meta": {SUBSCRIPTION: self.asked[-1]["id"] if request_id is None else request_id}}
        self.script.say({"method": f"notifications/events/{kind}", "params": {**params, **meta}})

    def end(self) -> None:
        self.script.say({"id": self.asked[-1]["id"], "result": {"resultType": "complete"}})

    def fail(self, error: Any) -> None:
        self.script.say({"id": self.asked[-1]["id"], "error": error})


@asynccontextmanager
async def pushing(
    stream: Stream, answers: dict[str, Any] | None = None, limits: ClientLimits | None = None, **options: Any
) -> AsyncIterator[tuple[EventSubscription, Script]]:
    all_answers = {"server/discover": OFFERS, "events/list": listing("push"), "events/stream": stream}
    more = {} if limits is None else {"limits": limits}
    async with scripted({**all_answers, **(answers or {})}, begins=stream.begin, **more) as (client, script):
        async with client.events(NAME, {"severity": "P1"}, **options) as events:
            yield events, script


async def numbers(events: EventSubscription, count: int) -> list[int]:
    return [(await anext(events)).data["number"] for _ in range(count)]


# ------------------------------------------------------------------------------------------- the choice


@pytest.mark.parametrize(
    ("modes", "has_receiver", "mode"),
    [
        (["poll", "push", "webhook"], True, "webhook"),
        (["poll", "push", "webhook"], False, "push"),
        (["poll", "webhook"], False, "poll"),
        (["poll", "carrier-pigeon"], True, "poll"),
    ],
)
async def test_the_first_delivery_that_both_can(modes: list[str], has_receiver: bool, mode: str) -> None:
    """EVT-077: webhook, then push, then poll."""
    stream = Stream()
    answers = {
        "server/discover": OFFERS,
        "events/list": listing(*modes),
        "events/stream": stream,
        "events/poll": polled(cursor="c-1"),
        "events/subscribe": subscribed(),
        "events/unsubscribe": {"resultType": "complete"},
    }
    receiver = Receiver("https://me.example/hooks") if has_receiver else None
    async with scripted(answers, begins=stream.begin, webhook=receiver) as (client, _):
        async with client.events(NAME) as events:
            assert events.mode == mode


@pytest.mark.parametrize("delivery", ["auto", "webhook"])
async def test_no_common_delivery(delivery: Any) -> None:
    """EVT-077: the error says what is missing."""
    answers = {"server/discover": OFFERS, "events/list": listing("webhook")}
    async with scripted(answers) as (client, script):
        with pytest.raises(NoCompatibleDeliveryMode, match="webhooks need a receiver"):
            await client.events(NAME, delivery=delivery).__aenter__()
        assert not script.of("events/subscribe")


async def test_a_server_of_an_older_version_has_webhooks_only() -> None:
    """EVT-077: poll and push need 2026-07-28; webhooks work in sessions, too."""
    answers = {
        "initialize": INITIALIZED,
        "server/discover": NOT_FOUND,
        "events/list": listing("poll", "push"),
        "events/subscribe": subscribed(),
        "events/unsubscribe": {},
    }
    async with scripted(answers) as (client, _):
        with pytest.raises(NoCompatibleDeliveryMode, match="by poll or push, this client by nothing"):
            await client.events(NAME).__aenter__()
        with pytest.raises(NoCompatibleDeliveryMode, match="2026-07-28"):
            await client.events(NAME, delivery="push").__aenter__()
    async with scripted(answers, webhook=Receiver("https://me.example/hooks")) as (client, script):
        async with client.events(NAME, delivery="webhook"):
            pass
        assert script.of("events/unsubscribe")


async def test_a_wrong_use_is_refused() -> None:
    async with scripted({"server/discover": OFFERS, "events/list": listing("push", name="other")}) as (client, _):
        with pytest.raises(LocalProtocolError, match=r"no event type 'incident\.created'"):
            await client.events(NAME).__aenter__()
        with pytest.raises(LocalProtocolError, match="use 'auto'"):
            await client.events(NAME, delivery="mail").__aenter__()  # type: ignore[arg-type]
        with pytest.raises(LocalProtocolError, match="inside `async with`"):
            await anext(client.events(NAME))


async def test_the_types_of_events() -> None:
    async with scripted({"server/discover": OFFERS, "events/list": listing("push")}) as (client, _):
        assert [(each.name, each.delivery) for each in await client.list_events()] == [(NAME, ["push"])]
    async with scripted({"server/discover": DISCOVERED, "events/list": NOT_FOUND}) as (client, _):
        assert await client.list_events() == []
    async with scripted({"initialize": INITIALIZED, "server/discover": NOT_FOUND, "events/list": NOT_FOUND}) as (
        client,
        _,
    ):
        assert await client.list_events() == []


# -------------------------------------------------------------------------------------------------- push


async def test_events_arrive_on_a_stream() -> None:
    """EVT-079: one request for a subscription, with name, arguments and cursor; its time limit is not that of calls."""
    clock, stream = Clock(), Stream()
    async with pushing(stream, cursor="c-0") as (events, script):
        assert stream.params == [{"name": NAME, "arguments": {"severity": "P1"}, "cursor": "c-0", "_meta": None}]
        for _ in range(10):
            await clock.advance(SILENT_SECONDS / 2)
            stream.say("heartbeat", {"cursor": "c-0"})
            await turns()
        stream.say("event", occurrence(1, "c-1"))
        found = await anext(events)
        assert found == Event(
            "e-1", NAME, "2026-11-28T10:00:00Z", {"number": 1}, "c-1", {SUBSCRIPTION: stream.asked[0]["id"]}
        )
        assert events.cursor == "c-1"
        assert len(stream.asked) == 1
    assert [each["params"]["requestId"] for each in script.of("notifications/cancelled")] == [stream.asked[0]["id"]]


async def test_a_silent_stream_is_opened_again_with_the_cursor() -> None:
    """EVT-079: 60 seconds without an event or a heartbeat."""
    clock, stream = Clock(), Stream()
    async with pushing(stream) as (events, script):
        stream.say("event", occurrence(1, "c-1"))
        stream.say("heartbeat", {"cursor": "c-5"})
        await turns()
        await clock.advance(SILENT_SECONDS - 1)
        assert len(stream.asked) == 1
        stream.cursor = "c-5"
        await clock.advance(2)
        await until(lambda: len(stream.asked) == 2)
        assert stream.params[1]["cursor"] == "c-5"
        assert script.of("notifications/cancelled")
        assert await numbers(events, 1) == [1]
        assert events.cursor == "c-1"
        stream.say("event", occurrence(2, "c-6"))
        assert await numbers(events, 1) == [2]
        assert events.gaps == 0


async def test_the_position_moves_with_what_the_program_has_taken() -> None:
    """A program that saves `cursor` in the loop loses nothing, although more has arrived already."""
    stream = Stream()
    async with pushing(stream) as (events, _):
        assert events.cursor == "c-0"
        for number in (1, 2):
            stream.say("event", occurrence(number, f"c-{number}"))
        stream.say("heartbeat", {"cursor": "c-9"})
        await turns()
        assert await numbers(events, 1) == [1]
        assert events.cursor == "c-1"
        assert await numbers(events, 1) == [2]
        assert events.cursor == "c-2"
        stream.say("event", occurrence(3, None))
        assert await numbers(events, 1) == [3]
        assert events.cursor == "c-9"


async def test_an_event_that_arrives_twice_is_dropped() -> None:
    """EVT-080: duplicates are known by eventId, also after the stream was opened again."""
    stream = Stream()
    async with pushing(stream) as (events, _):
        for number in (1, 2, 1, 2):
            stream.say("event", occurrence(number, f"c-{number}"))
        stream.end()
        await until(lambda: len(stream.asked) == 2)
        assert stream.params[1]["cursor"] == "c-2"
        for number in (2, 3):
            stream.say("event", occurrence(number, f"c-{number}"))
        assert await numbers(events, 3) == [1, 2, 3]


async def test_the_ids_that_are_remembered_are_limited() -> None:
    """EVT-080: the last 10,000."""
    stream = Stream()
    async with pushing(stream, limits=ClientLimits(waiting_messages=2 * MOST_IDS)) as (events, _):
        for number in [*range(MOST_IDS + 1), MOST_IDS, 1, 0]:
            stream.say("event", occurrence(number, "c"))
        found = await numbers(events, MOST_IDS + 2)
        assert found == [*range(MOST_IDS + 1), 0]


async def test_a_null_cursor_is_never_replayed() -> None:
    """EVT-080: a null cursor says nothing about the position, so the last one stays."""
    stream = Stream()
    async with pushing(stream) as (events, _):
        stream.say("event", occurrence(1, "c-1"))
        stream.say("event", occurrence(2, None))
        stream.say("heartbeat", {"cursor": None})
        assert await numbers(events, 2) == [1, 2]
        stream.end()
        await until(lambda: len(stream.asked) == 2)
        assert stream.params[1]["cursor"] == "c-1"


async def test_a_gap_is_counted_and_shown_on_request() -> None:
    """EVT-029: `active` again with truncated is the only sign of a gap."""
    stream = Stream()
    async with pushing(stream, gaps=True) as (events, _):
        stream.say("active", {"cursor": "c-7", "truncated": True})
        stream.say("event", occurrence(8, "c-8"))
        assert [await anext(events), (await anext(events)).id] == [EventGap("c-7"), "e-8"]
        assert events.gaps == 1
    stream = Stream()
    stream.truncated = True
    async with pushing(stream) as (events, _):
        stream.say("event", occurrence(8, "c-8"))
        assert await numbers(events, 1) == [8]
        assert events.gaps == 1


async def test_without_positions_a_new_stream_may_have_a_gap() -> None:
    stream = Stream()
    stream.cursor = None
    async with pushing(stream) as (events, _):
        assert events.gaps == 0
        stream.say("event", occurrence(1))
        stream.end()
        await until(lambda: len(stream.asked) == 2)
        stream.say("event", occurrence(2))
        assert await numbers(events, 2) == [1, 2]
        assert (events.gaps, events.cursor) == (1, None)


async def test_an_error_of_one_event_leaves_the_stream_open() -> None:
    """EVT-029; what cannot be read is left out, too."""
    stream = Stream()
    async with pushing(stream) as (events, _):
        stream.say("error", {"error": {"code": -32603, "message": "no"}})
        stream.say("event", {"eventId": 7})
        stream.say("novelty", {"x": 1})
        stream.say("event", occurrence(3), request_id=4711)
        stream.say("event", occurrence(2, "c-2"))
        assert await numbers(events, 1) == [2]
        assert len(stream.asked) == 1


@pytest.mark.parametrize("by", ["terminated", "response"])
async def test_forbidden_ends_the_subscription(by: str) -> None:
    """EVT-084: after the events that came before, the error; nothing is asked again."""
    stream = Stream()
    async with pushing(stream) as (events, script):
        stream.say("event", occurrence(1, "c-1"))
        if by == "terminated":
            stream.say("terminated", {"error": FORBIDDEN})
            stream.say("event", occurrence(2, "c-2"))
        else:
            stream.fail(FORBIDDEN)
        assert await numbers(events, 1) == [1]
        for _ in range(2):
            with pytest.raises(RemoteError) as caught:
                await anext(events)
            assert caught.value.code == -32024
        assert len(stream.asked) == 1
        assert len(script.of("events/list")) == 1


@pytest.mark.parametrize("error", [GONE, CHANGED, {**GONE, "code": -32011}, {**CHANGED, "code": -32014}])
async def test_a_type_that_changed_is_subscribed_to_once_more(error: Any) -> None:
    """EVT-084: list again, subscribe once; if that fails without an event in between, the error."""
    stream = Stream()
    async with pushing(stream) as (events, script):
        stream.say("terminated", {"error": error})
        await until(lambda: len(stream.asked) == 2)
        assert len(script.of("events/list")) >= 2
        stream.say("event", occurrence(1, "c-1"))
        assert await numbers(events, 1) == [1]
        stream.say("terminated", {"error": error})
        await until(lambda: len(stream.asked) == 3)
        stream.say("terminated", {"error": error})
        with pytest.raises(RemoteError):
            await anext(events)
        assert len(stream.asked) == 3


async def test_a_type_that_is_gone_ends_the_subscription() -> None:
    """EVT-084: the list does not have it any more."""
    stream = Stream()
    async with pushing(stream) as (events, script):
        script.answers["events/list"] = listing("push", name="other")
        stream.say("terminated", {"error": GONE})
        with pytest.raises(RemoteError):
            await anext(events)
        assert len(stream.asked) == 1


async def test_a_refusal_is_raised_when_it_is_opened() -> None:
    stream = Stream()
    for error in (FORBIDDEN, GONE, {"code": -32603, "message": "no"}):
        with pytest.raises(RemoteError) as caught:
            async with pushing(stream, {"events/stream": error}):
                raise AssertionError("it is open")
        assert caught.value.code == error["code"]


async def test_a_program_that_is_slow_gets_the_rest_later() -> None:
    """The stream is ended at the limit of waiting messages, and continued with the cursor."""
    stream = Stream()
    async with pushing(stream, limits=ClientLimits(waiting_messages=10)) as (events, script):
        for number in range(11):
            stream.say("event", occurrence(number, f"c-{number}"))
        await until(lambda: script.of("notifications/cancelled"))
        stream.say("event", occurrence(11, "c-11"))
        assert await numbers(events, 10) == [*range(10)]
        assert len(stream.asked) == 1
        stream.cursor = "c-10"
        assert await numbers(events, 1) == [10]
        await until(lambda: len(stream.asked) == 2)
        assert stream.params[1]["cursor"] == "c-10"
        stream.say("event", occurrence(11, "c-11"))
        assert await numbers(events, 1) == [11]
        assert events.gaps == 0


async def test_a_server_that_ends_each_stream_is_not_asked_forever() -> None:
    clock, stream = Clock(), Stream()

    def ends(message: Any) -> Any:
        stream(message)
        return {"resultType": "complete"}

    async with pushing(stream, {"events/stream": ends}) as (events, _):
        ended = asyncio.create_task(anext(events))
        while not ended.done():
            await clock.advance(60)
        with pytest.raises(ConnectionLost, match="at once"):
            await ended
        assert len(stream.asked) == TRIES


@pytest.mark.parametrize("delivery", ["push", "poll"])
async def test_a_client_that_is_closed_ends_its_subscriptions(delivery: Any) -> None:
    """At once, without attempts to reach the server again."""
    clock, stream = Clock(), Stream()
    answers = {"server/discover": OFFERS, "events/stream": stream, "events/poll": polled(cursor="c-0")}
    async with scripted(answers, begins=stream.begin) as (client, _):
        events = await client.events(NAME, delivery=delivery).__aenter__()
        ended = asyncio.create_task(anext(events))
        await turns()
        await client.aclose()
        await clock.advance(2 * SHORTEST_POLL)
        with pytest.raises(ConnectionLost, match="closed"):
            await ended
        await events.__aexit__(None)


async def test_a_stream_over_http_goes_on_after_it_broke() -> None:
    """EVT-079: another request on a new connection, after the last cursor."""
    asked_for: list[Any] = []

    async def answer(asked: Asked, write: Write) -> None:
        if asked.rpc == "events/stream":
            asked_for.append(asked.message["params"]["cursor"])
            meta = {"_meta": {SUBSCRIPTION: asked.id}}
            await write(events_head())
            number = len(asked_for)
            active = {"cursor": f"c-{number - 1}", "truncated": False, **meta}
            for kind, params in (("active", active), ("event", {**occurrence(number, f"c-{number}"), **meta})):
                message = {"jsonrpc": "2.0", "method": f"notifications/events/{kind}", "params": params}
                await write(event(message))
            if number < 3:
                raise ConnectionError
            await asyncio.Event().wait()
        elif asked.rpc == "server/discover":
            await write(reply(200, result(asked, OFFERS)))
        else:
            await write(reply(404))

    async with http_scripted(answer) as server, Client(server.url) as client:
        async with client.events(NAME, delivery="push") as events:
            assert await numbers(events, 3) == [1, 2, 3]
            assert asked_for == [None, "c-1", "c-2"]
            head = server.of("events/stream")[0].headers
            assert head["mcp-method"] == "events/stream"
        await until(lambda: server.open <= 1)


# -------------------------------------------------------------------------------------------------- poll


@asynccontextmanager
async def polling(*results: Any, **options: Any) -> AsyncIterator[tuple[EventSubscription, Script]]:
    """A subscription whose polls are answered with these results; the last one is repeated."""
    left = list(results)
    answers = {"server/discover": OFFERS, "events/poll": lambda _: left.pop(0) if len(left) > 1 else left[0]}
    async with scripted(answers) as (client, script):
        async with client.events(NAME, delivery="poll", **options) as events:
            yield events, script


async def test_polls_follow_the_cursor() -> None:
    """EVT-078: at the pace that the server names, at least a second apart."""
    clock = Clock()
    first, second = polled(cursor="c-0"), polled(occurrence(1), occurrence(2), cursor="c-2", nextPollMs=5000)
    async with polling(first, second, polled(cursor="c-2", nextPollMs=5000)) as (events, script):
        polls = lambda: [each["params"]["cursor"] for each in script.of("events/poll")]  # noqa: E731
        assert polls() == [None]
        await clock.advance(SHORTEST_POLL - 0.5)
        assert len(polls()) == 1
        await clock.advance(0.7)
        assert await numbers(events, 1) == [1]
        assert events.cursor == "c-0"
        assert await numbers(events, 1) == [2]
        await clock.advance(4)
        assert polls() == [None, "c-0"]
        await clock.advance(2)
        await until(lambda: len(polls()) == 3)
        assert polls() == [None, "c-0", "c-2"]


async def test_more_events_are_fetched_at_once() -> None:
    """EVT-078: hasMore does not wait, unless it brings nothing."""
    pages = [polled(occurrence(number), cursor=f"c-{number}", hasMore=True) for number in range(1, 4)]
    Clock()
    async with polling(*pages, polled(cursor="c-3", hasMore=True)) as (events, script):
        assert await numbers(events, 3) == [1, 2, 3]
        await turns(100)
        assert len(script.of("events/poll")) == 4
        assert script.of("events/poll")[3]["params"]["cursor"] == "c-3"


async def test_a_truncated_poll_is_a_gap_before_its_events() -> None:
    async with polling(polled(occurrence(5), cursor="c-5", truncated=True), cursor="old", max_age=60, gaps=True) as (
        events,
        script,
    ):
        assert script.of("events/poll")[0]["params"]["maxAgeMs"] == 60_000
        assert await anext(events) == EventGap()
        assert events.cursor == "old"
        assert (await anext(events)).id == "e-5"


@pytest.mark.parametrize("problem", [{"code": -32603, "message": "no"}, {"code": -32025, "message": "too many"}])
async def test_a_poll_that_fails_for_a_while(problem: Any) -> None:
    clock = Clock()
    async with polling(polled(cursor="c-0"), problem, problem, polled(occurrence(1), cursor="c-1")) as (events, _):
        found = asyncio.create_task(anext(events))
        while not found.done():
            await clock.advance(1)
        assert (await found).id == "e-1"


async def test_a_poll_that_fails_forever() -> None:
    clock = Clock()
    async with polling(polled(cursor="c-0"), {"code": -32603, "message": "no"}) as (events, script):
        found = asyncio.create_task(anext(events))
        while not found.done():
            await clock.advance(60)
        with pytest.raises(RemoteError):
            await found
        assert len(script.of("events/poll")) == 1 + TRIES


async def test_an_invalid_answer() -> None:
    with pytest.raises(ProtocolError, match="events/poll is invalid"):
        async with polling({"resultType": "complete", "events": {}}):
            pass


# ----------------------------------------------------------------------------------------------- webhook


def subscribed(seconds: float | None = 3600, **more: Any) -> dict[str, Any]:
    until = None if seconds is None else datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()
    members = {"id": "sub_1", "refreshBefore": until, "cursor": "c-0", "truncated": False}
    return {"resultType": "complete", **members, **more}


class Hooks:
    """A scripted server that sends webhooks with the secret of the last `events/subscribe`."""

    def __init__(self, script: Script, receiver: Receiver) -> None:
        self.script = script
        self.receiver = receiver

    @property
    def asked(self) -> list[Any]:
        return [each["params"] for each in self.script.of("events/subscribe")]

    async def send(self, body: Any, message_id: str) -> tuple[int, Any]:
        data = json.dumps(body).encode()
        headers = sign(self.asked[-1]["delivery"]["secret"], message_id, data)
        return await post(self.receiver, {**headers, "x-mcp-subscription-id": "sub_1"}, data)

    def event(self, number: int, cursor: str | None = None) -> asyncio.Task[tuple[int, Any]]:
        return asyncio.create_task(self.send(occurrence(number, cursor), f"e-{number}"))


@asynccontextmanager
async def hooked(
    answer: Any = None, options: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[tuple[EventSubscription, Hooks]]:
    receiver = Receiver("https://me.example/hooks", seconds=60)
    answers = {
        "server/discover": OFFERS,
        "events/list": listing("webhook"),
        "events/subscribe": answer or subscribed(),
        "events/unsubscribe": {"resultType": "complete"},
    }
    async with scripted(answers, webhook=receiver, **more) as (client, script):
        hooks = Hooks(script, receiver)
        async with client.events(NAME, {"severity": "P1"}, **(options or {})) as events:
            yield events, hooks


async def test_webhooks_are_acknowledged_when_the_program_goes_on() -> None:
    """EVT-083: the server is told that an event was handled when the program asks for the next one."""
    async with hooked() as (events, hooks):
        (params,) = hooks.asked
        assert {**params, "_meta": None, "delivery": {**params["delivery"], "secret": ""}} == {
            "name": NAME,
            "arguments": {"severity": "P1"},
            "cursor": None,
            "delivery": {"mode": "webhook", "url": "https://me.example/hooks", "secret": ""},
            "_meta": None,
        }
        first, second = hooks.event(1, "c-1"), hooks.event(2, "c-1")
        assert {(await anext(events)).id} == {"e-1"}
        await turns()
        assert not first.done()
        assert (await anext(events)).id == "e-2"
        assert (await first)[0] == 200
        assert not second.done()
        assert events.cursor == "c-1"
    assert (await second)[0] == 200
    (ended,) = hooks.script.of("events/unsubscribe")
    assert ended["params"]["delivery"] == {"mode": "webhook", "url": "https://me.example/hooks"}
    assert ended["params"]["arguments"] == {"severity": "P1"}


async def test_a_program_that_fails_acknowledges_nothing() -> None:
    """EVT-083: the event it failed on, and those that wait, are answered with 503."""
    waiting: list[asyncio.Task[Any]] = []
    with pytest.raises(ZeroDivisionError):
        async with hooked() as (events, hooks):
            waiting += [hooks.event(1), hooks.event(2)]
            await anext(events)
            raise ZeroDivisionError
    assert [(await each)[0] for each in waiting] == [503, 503]


async def test_the_challenge_comes_before_the_answer() -> None:
    """EVT-050, EVT-083: inside events/subscribe, with a secret that has no id yet."""
    challenges: list[Any] = []

    def answer(message: Any) -> None:
        async def challenge() -> None:
            body = {"type": "verification", "challenge": "x" * 43}
            challenges.append(await hooks.send(body, "msg_verification_1"))
            script.say({"id": message["id"], "result": subscribed()})

        challenges.append(asyncio.create_task(challenge()))

    receiver = Receiver("https://me.example/hooks")
    answers = {"server/discover": OFFERS, "events/subscribe": answer, "events/unsubscribe": {"resultType": "complete"}}
    async with scripted(answers, webhook=receiver) as (client, script):
        hooks = Hooks(script, receiver)
        async with client.events(NAME, delivery="webhook"):
            assert challenges[1:] == [(200, {"challenge": "x" * 43})]


async def test_a_subscription_is_refreshed_before_its_end() -> None:
    """EVT-081: at 80 % of the grant, with the last cursor and the same key."""
    clock = Clock()
    async with hooked(lambda _: subscribed(3600)) as (events, hooks):
        sent = hooks.event(1, "c-1")
        await anext(events)
        following = asyncio.create_task(anext(events))
        assert (await sent)[0] == 200
        await clock.advance(0.79 * 3600)
        assert len(hooks.asked) == 1
        await clock.advance(0.02 * 3600)
        await until(lambda: len(hooks.asked) == 2)
        assert hooks.asked[1] == {**hooks.asked[0], "cursor": "c-1"}
        sent = hooks.event(2)
        assert (await following).data == {"number": 2}
    assert (await sent)[0] == 200


async def test_a_subscription_without_an_end_is_not_refreshed() -> None:
    clock = Clock()
    async with hooked(subscribed(None)) as (_, hooks):
        await clock.advance(10 * 24 * 3600)
        assert len(hooks.asked) == 1


@pytest.mark.parametrize("seconds", [0, -3600])
async def test_a_grant_that_is_over_already_makes_no_busy_loop(seconds: float) -> None:
    Clock()
    async with hooked(lambda _: subscribed(seconds)) as (_, hooks):
        await turns(50)
        assert len(hooks.asked) == 1


async def test_a_suspended_subscription_is_reported() -> None:
    """The status of the refresh that revived it."""
    status = {"active": False, "lastDeliveryAt": None, "lastError": "http_5xx", "failedSince": "2026-11-28T09:00:00Z"}
    async with hooked(subscribed(deliveryStatus=status)) as (events, _):
        assert events.status is not None
        assert (events.status.active, events.status.last_error) == (False, "http_5xx")


async def test_gap_and_terminated_as_webhooks() -> None:
    """EVT-065: control messages are acknowledged; Forbidden ends the subscription, which is not ended again."""
    async with hooked(options={"gaps": True}) as (events, hooks):
        assert (await hooks.send({"type": "gap", "cursor": "c-4"}, "msg_gap_1"))[0] == 200
        assert await anext(events) == EventGap("c-4")
        assert (await hooks.send({"type": "terminated", "error": FORBIDDEN}, "msg_terminated_1"))[0] == 200
        with pytest.raises(RemoteError):
            await anext(events)
    assert not hooks.script.of("events/unsubscribe")


async def test_too_many_waiting_webhooks_are_sent_again() -> None:
    """A program that does not take its events: those above the limit are answered with 503."""
    async with hooked(limits=ClientLimits(waiting_messages=2)) as (events, hooks):
        kept = [hooks.event(number) for number in range(3)]
        await turns()
        assert (await hooks.event(3))[0] == 503
        assert await numbers(events, 3) == [0, 1, 2]
        again = hooks.event(3)
        assert await numbers(events, 1) == [3]
    assert [(await each)[0] for each in [*kept, again]] == [200] * 4


async def test_a_refused_receiver() -> None:
    error = {"code": -32027, "message": "The callback failed", "data": {"reason": "challenge_failed"}}
    with pytest.raises(RemoteError) as caught:
        async with hooked(error):
            pass
    assert caught.value.data == {"reason": "challenge_failed"}


async def test_two_subscriptions_of_one_key_end_one_after_the_other() -> None:
    """The server has one subscription for both, which ends with the last one."""
    receiver = Receiver("https://me.example/hooks", seconds=60)
    answers = {
        "server/discover": OFFERS,
        "events/subscribe": subscribed(),
        "events/unsubscribe": {"resultType": "complete"},
    }
    async with scripted(answers, webhook=receiver) as (client, script):
        hooks = Hooks(script, receiver)
        async with client.events(NAME, delivery="webhook") as first:
            async with client.events(NAME, delivery="webhook") as second:
                sent = hooks.event(1)
                assert (await anext(first)).id == (await anext(second)).id == "e-1"
            assert not script.of("events/unsubscribe")
        assert (await sent)[0] == 200
        assert len(script.of("events/unsubscribe")) == 1
