"""Webhooks from their subscription to their end, at a receiver that sees each request; on memory, a file and Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clock import Clock, between_looks, turns, until
from support.redis_server import NEEDS_REDIS, RedisServer
from support.webhook_receiver import Receiver, Request, receiving, reply
from support.webhook_stage import Node, event, secret_of

from mcpd.errors import InvalidParams
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.backplane.node import open_backplane
from mcpd.server.extensions.events.webhook.send import read_secret, sign
from mcpd.server.extensions.events.wire import CallbackEndpointError, NotFound, ResourceExhausted

STORES = ["memory", "sqlite", pytest.param("redis", marks=NEEDS_REDIS)]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Stage:
    """A receiver, and nodes on one store."""

    def __init__(self, kind: str, receiver: Receiver, url: str) -> None:
        self.kind, self.receiver, self.url = kind, receiver, url
        self.nodes: list[Node] = []

    def node(self, **settings: Any) -> Node:
        backplane = None if self.kind == "memory" else open_backplane(self.url, "test")
        node = Node(self.receiver, backplane, **settings)
        self.nodes.append(node)
        return node


@asynccontextmanager
async def staged(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    url = ""
    if kind == "sqlite":
        url = f"sqlite://{request.getfixturevalue('tmp_path')}/events.db"
    elif kind == "redis":
        name = abs(hash(request.node.nodeid)) % 10**9
        url = f"{request.getfixturevalue('redis').url}?namespace=t{name}"
    async with receiving() as receiver:
        stage = Stage(kind, receiver, url)
        try:
            yield stage
        finally:
            for node in stage.nodes:
                await node.aclose(0)
                await node.backplane.aclose()


def ids(requests: list[Request]) -> list[str]:
    return [request.id for request in requests]


every_store = pytest.mark.parametrize("kind", STORES)


# -- a subscription ----------------------------------------------------------------------------


@every_store
async def test_from_consent_to_unsubscribe(kind: str, request: pytest.FixtureRequest) -> None:
    """EVT-040, EVT-046, EVT-049, EVT-054, EVT-061."""
    async with staged(kind, request) as stage:
        node, receiver = stage.node(), stage.receiver
        grant = await node.subscribe()
        assert ids(receiver.requests)[0].startswith("msg_verification_")
        assert grant.refresh_before is not None
        assert grant.refresh_before.endswith("Z")
        node.emit(event(1), event(2))
        await node.hooks.flush()
        assert sorted(ids(receiver.events)) == ["E1", "E2"]
        for each in receiver.events:
            assert each.json == {
                "eventId": each.id, "name": "incident", "timestamp": "2026-11-28T00:00:00Z",
                "data": {"number": int(each.id[1:])}, "cursor": each.json["cursor"],
            }  # fmt: skip
            assert each.headers["x-mcp-subscription-id"] == grant.id
        again = await node.subscribe()
        assert again.id == grant.id
        assert again.delivery_status is not None
        assert again.delivery_status.active is True
        assert again.delivery_status.last_delivery_at is not None
        assert len(receiver.controls("verification")) == 1
        assert await node.unsubscribe()
        assert not await node.unsubscribe()
        node.emit(event(3))
        await node.hooks.flush()
        assert len(receiver.events) == 2
        assert len(node.gone) == 1


@every_store
async def test_who_differs_in_one_part_of_the_key_has_another_subscription(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """EVT-038, EVT-047."""
    async with staged(kind, request) as stage:
        node, receiver = stage.node(), stage.receiver
        first = await node.subscribe(arguments={"b": 1, "a": {"x": 1.0, "y": [2]}})
        same = await node.subscribe(arguments={"a": {"y": [2.0], "x": 1}, "b": 1})
        assert first.id == same.id
        others = [
            await node.subscribe("bob", arguments={"b": 1, "a": {"x": 1.0, "y": [2]}}, secret=1),
            await node.subscribe(path="/else", arguments={"b": 1, "a": {"x": 1.0, "y": [2]}}),
            await node.subscribe(arguments={"b": 2}),
            await node.subscribe(arguments={"b": 1, "a": {"x": 1.0, "y": [2]}}, name="other"),
        ]
        assert len({first.id, *(each.id for each in others)}) == 5
        assert await node.unsubscribe("bob", b=1, a={"x": 1.0, "y": [2]})
        node.emit(event(1, b=1, a={"x": 1, "y": [2]}))
        await node.hooks.flush()
        received = {each.headers["x-mcp-subscription-id"] for each in receiver.events}
        assert received == {first.id, others[1].id}
        signed = receiver.events[0]
        stamp = int(signed.headers["webhook-timestamp"])
        assert signed.headers["webhook-signature"] == sign([read_secret(secret_of(0))], "E1", stamp, signed.body)


async def test_without_consent_no_subscription_is_left(request: pytest.FixtureRequest) -> None:
    """EVT-051."""
    async with staged("memory", request) as stage:
        node, receiver = stage.node(), stage.receiver
        hooked: list[int] = []

        async def subscribed() -> None:
            hooked.append(1)

        receiver.answer = lambda _: reply(404)
        with pytest.raises(CallbackEndpointError, match="challenge_failed"):
            await node.subscribe(subscribed=subscribed)
        assert hooked == []
        assert not await node.unsubscribe()
        receiver.answer = lambda _: None
        await node.subscribe(subscribed=subscribed)
        assert hooked == [1]


async def test_limits_come_before_the_challenge(request: pytest.FixtureRequest) -> None:
    """EVT-048."""
    async with staged("memory", request) as stage:
        node = stage.node(all_subscriptions=3, subscriptions=2, allow=(f"{stage.receiver.origin}/",))
        for number in range(2):
            await node.subscribe(path=f"/{number}")
        for principal, most in (("ada", 2), ("bob", 0), ("cleo", 3)):
            if not most:
                await node.subscribe(principal)
                continue
            with pytest.raises(ResourceExhausted) as raised:
                await node.subscribe(principal, path="/more")
            assert raised.value.data == {"limit": "subscriptions", "max": most}
        assert stage.receiver.requests == []
        await node.subscribe(path="/0")  # a refresh needs no room
        assert await node.unsubscribe(path="/0")
        await node.subscribe("cleo", path="/more")


@every_store
async def test_grants(kind: str, request: pytest.FixtureRequest) -> None:
    """EVT-041 to EVT-043: clamped, never refused; without an end only where a store outlives the process."""
    async with staged(kind, request) as stage:
        node = stage.node(allow_endless=True, max_ttl=7200.0)
        most = 3600 if kind == "memory" else 7200
        for ttl, seconds in (("", 3600), ("1", 60), ("0", 60), ("90000", 90), ("1000000000000000", most)):
            grant = await node.subscribe(ttl=ttl)
            until_then = (await node.store.load(grant.id))[0].expires  # type: ignore[index]
            assert until_then is not None
            assert abs(until_then - node.hooks.clock() - seconds) < 5
        grant = await node.subscribe(ttl="null")
        assert (grant.refresh_before is None) is (kind != "memory")
        for bad in ("-1", "1.5", "true", '"1"', "[]"):
            with pytest.raises(InvalidParams, match="ttlMs"):
                await node.subscribe(ttl=bad)


@every_store
async def test_a_lapsed_subscription_gets_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    """EVT-063: also what waits for its next attempt; a new subscription begins with what comes from then on."""
    async with staged(kind, request) as stage:
        node, receiver, clock = stage.node(), stage.receiver, Clock()
        first = await node.subscribe(ttl="60000")
        receiver.answer = lambda asked: reply(503) if "eventId" in asked.json else None
        node.emit(event(1))
        await node.hooks.flush()
        await clock.advance(61)
        await until(lambda: node.gone)
        receiver.answer = lambda _: None
        second = await node.subscribe(ttl="60000")
        assert second.id == first.id
        assert second.delivery_status is None
        node.emit(event(2))
        await node.hooks.flush()
        assert ids(receiver.events) == ["E1", "E2"]


@every_store
async def test_a_cursor_is_where_a_new_subscription_begins(kind: str, request: pytest.FixtureRequest) -> None:
    """EVT-045: and of no effect while it lives."""
    async with staged(kind, request) as stage:
        node, receiver = stage.node(), stage.receiver
        await node.subscribe("bob")
        node.emit(event(1))
        await node.hooks.flush()
        cursor = f"at {node.hooks.deliveries.position}"
        node.emit(event(2), event(3))
        await node.hooks.flush()
        receiver.requests.clear()
        grant = await node.subscribe(cursor=cursor)
        await node.hooks.flush()
        assert sorted(ids(receiver.events)) == ["E2", "E3"]
        assert {each.headers["x-mcp-subscription-id"] for each in receiver.events} == {grant.id}
        await node.subscribe(cursor=cursor)
        await node.hooks.flush()
        assert len(receiver.events) == 2


# -- attempts ----------------------------------------------------------------------------------


async def test_each_attempt_has_a_new_signature_and_the_same_body(request: pytest.FixtureRequest) -> None:
    """EVT-055, EVT-056, EVT-058: five attempts; a new secret signs beside the old one for ten minutes."""
    async with staged("memory", request) as stage:
        node, receiver, clock = stage.node(), stage.receiver, Clock()
        await node.subscribe()
        receiver.answer = lambda asked: reply(500) if "eventId" in asked.json else None
        node.emit(event(1))
        await node.hooks.flush()
        await node.subscribe(secret=1)
        for count, wait in ((2, 6.1), (3, 37), (4, 145), (5, 433)):
            await clock.advance(wait)
            await receiver.until(lambda count=count: len(receiver.events) == count)  # type: ignore[misc]
            await node.hooks.flush()
        sent = receiver.events
        assert len({each.body for each in sent}) == 1
        assert len({each.headers["webhook-timestamp"] for each in sent}) == 5
        keys = [read_secret(secret_of(1)), read_secret(secret_of(0))]
        for number, each in enumerate(sent):
            used = keys[1:] if number == 0 else keys if number < 4 else keys[:1]
            stamp = int(each.headers["webhook-timestamp"])
            assert each.headers["webhook-signature"] == sign(used, "E1", stamp, each.body)
        await node.hooks.flush()
        await until(lambda: node.hooks.deliveries.waiting == 0)
        await clock.advance(3000)
        assert len(receiver.events) == 5
        assert [each["error"] for each in await node.hooks.failed((await node.subscribe()).id)] == ["http_5xx"]


@pytest.mark.parametrize("status", [410, 413])
async def test_never_again_for_this_delivery(status: int, request: pytest.FixtureRequest) -> None:
    """EVT-057."""
    async with staged("memory", request) as stage:
        node, receiver, clock = stage.node(), stage.receiver, Clock()
        await node.subscribe()
        receiver.answer = lambda asked: reply(status) if asked.id == "E1" else None
        node.emit(event(1))
        await node.hooks.flush()
        await clock.advance(3000)
        node.emit(event(2))
        await node.hooks.flush()
        assert ids(receiver.events) == ["E1", "E2"]


async def test_retry_after_is_honoured(request: pytest.FixtureRequest) -> None:
    """EVT-058: inside the window."""
    async with staged("memory", request) as stage:
        node, receiver, clock = stage.node(), stage.receiver, Clock()
        await node.subscribe()
        receiver.answer = lambda asked: reply(503, b"", "Retry-After: 100") if "eventId" in asked.json else None
        node.emit(event(1))
        await node.hooks.flush()
        await clock.advance(99)
        await node.hooks.flush()
        assert len(receiver.events) == 1
        receiver.answer = lambda _: reply(503, b"", "Retry-After: 100000")
        await clock.advance(1.1)
        await receiver.until(lambda: len(receiver.events) == 2)
        await node.hooks.flush()
        await clock.advance(720)
        await receiver.until(lambda: len(receiver.events) == 3)
        await until(lambda: node.hooks.deliveries.waiting == 0)


@every_store
async def test_no_cursor_passes_what_is_not_acknowledged(kind: str, request: pytest.FixtureRequest) -> None:
    """EVT-061: five are sent and the third one fails; nothing says more than the second, until it is given up."""
    async with staged(kind, request) as stage:
        node, receiver, clock = stage.node(), stage.receiver, Clock()
        await node.subscribe()
        receiver.answer = lambda asked: reply(500) if asked.id == "E3" else None
        positions: list[str] = []
        for number in range(1, 6):
            node.emit(event(number))
            await node.hooks.flush()
            positions.append(f"at {node.hooks.deliveries.position}")
        cursors = {each.id: each.json["cursor"] for each in receiver.events}
        assert cursors["E3"] == cursors["E4"] == cursors["E5"] == positions[1]
        assert cursors["E2"] == positions[0]
        assert (await node.subscribe()).cursor == positions[1]
        receiver.answer = lambda _: None
        await clock.advance(6.1)
        await receiver.until(lambda: ids(receiver.events).count("E3") == 2)
        await node.hooks.flush()
        assert (await node.subscribe()).cursor in (positions[4], f"at {node.hooks.deliveries.position}")


async def test_no_cursor_passes_an_event_that_many_get(request: pytest.FixtureRequest) -> None:
    """EVT-061: a client that subscribes meanwhile changes nothing in the order."""
    async with staged("memory", request) as stage:
        receiver = stage.receiver
        node = stage.node(subscriptions=1000, allow=(receiver.origin,))
        for number in range(300):
            await node.subscribe(path=f"/{number}")
        every = list(node.known)
        node.candidates = lambda found: every[260:] if found.id == "E2" else every  # type: ignore[method-assign]
        receiver.answer = lambda asked: reply(500) if asked.id == "E1" else None
        node.emit(event(1), event(2))
        await node.subscribe(path="/late")
        await receiver.until(lambda: ids(receiver.events).count("E2") == 40)
        assert {each.json["cursor"] for each in receiver.events} == {"at 0"}


async def test_types_without_replay_have_no_cursor(request: pytest.FixtureRequest) -> None:
    """EVT-014: null, and no gap either."""
    async with staged("memory", request) as stage:
        node = stage.node(delivery={"waiting": 2})
        node.without_replay.add("incident")
        assert (await node.subscribe()).cursor is None
        node.emit(*map(event, range(5)))
        await node.hooks.flush()
        assert {each.json["cursor"] for each in stage.receiver.events} == {None}
        assert stage.receiver.controls("gap") == []


async def test_a_receiver_that_is_gone_is_probed_and_others_go_on(request: pytest.FixtureRequest) -> None:
    """EVT-062: a mute receiver takes one attempt at a time, and holds up nobody."""
    async with receiving() as mute, staged("memory", request) as stage:
        mute.host = f"mute.{mute.host}"
        gate = asyncio.Event()

        async def wait(_: Request, writer: asyncio.StreamWriter) -> None:
            await gate.wait()

        node = stage.node(origins=(mute.origin,))
        await node.subscribe()
        await node.subscribe(path=f"{mute.origin}/in")
        mute.answer = lambda _: wait
        node.emit(*map(event, range(50)))
        await stage.receiver.until(lambda: len(stage.receiver.events) == 50)
        assert 1 <= len(mute.events) <= 4
        gate.set()


# -- suspension, gaps, ends --------------------------------------------------------------------


@every_store
async def test_a_suspended_subscription_is_revived_with_what_waits(kind: str, request: pytest.FixtureRequest) -> None:
    """EVT-044, EVT-045, EVT-064: a day without a success; a restart does not revive it."""
    async with staged(kind, request) as stage:
        node, receiver, clock = stage.node(delivery={"failing_for": 3.0}), stage.receiver, Clock()
        await node.subscribe()
        receiver.answer = lambda asked: reply(500) if "eventId" in asked.json else None
        node.emit(event(1))
        await node.hooks.flush()
        await clock.advance(6.1)
        await receiver.until(lambda: len(receiver.events) == 2)
        await until(lambda: node.hooks.status()[0]["active"] is False)
        node.emit(event(2))
        await node.hooks.flush()
        await clock.advance(100)
        assert len(receiver.events) == 2
        if kind != "memory":
            await until(lambda: not node.hooks._background)
            await node.aclose()
            node = stage.node()
            await node.hooks.open()
            await node.hooks.flush()
            assert node.hooks.status()[0]["active"] is False
            assert len(receiver.events) == 2
        receiver.answer = lambda _: None
        grant = await node.subscribe()
        assert grant.delivery_status is not None
        assert grant.delivery_status.active is False
        assert grant.delivery_status.last_error == "http_5xx"
        assert grant.delivery_status.failed_since is not None
        await receiver.until(lambda: len(receiver.events) == 4)
        await node.hooks.flush()
        assert sorted(ids(receiver.events)[2:]) == ["E1", "E2"]
        assert (await node.subscribe()).delivery_status.active is True  # type: ignore[union-attr]


async def test_many_failures_suspend(request: pytest.FixtureRequest) -> None:
    """EVT-064: more than 95 of 100."""
    async with staged("memory", request) as stage:
        node, receiver = stage.node(), stage.receiver
        await node.subscribe()
        receiver.answer = lambda asked: reply(410) if "eventId" in asked.json else None
        node.emit(*map(event, range(150)))
        await until(lambda: node.hooks.status()[0]["active"] is False)
        await node.hooks.flush()
        assert 100 <= len(receiver.events) < 110


async def test_what_is_dropped_makes_one_gap(request: pytest.FixtureRequest) -> None:
    """EVT-065: over the limit the oldest go; the gap says where it goes on."""
    async with staged("memory", request) as stage:
        node, receiver, clock = stage.node(delivery={"waiting": 10}), stage.receiver, Clock()
        await node.subscribe()
        receiver.answer = lambda asked: reply(503) if "eventId" in asked.json else None
        node.emit(*map(event, range(1, 31)))
        await receiver.until(lambda: receiver.controls("gap"))
        receiver.answer = lambda _: None
        await clock.advance(7)
        await receiver.until(lambda: {"E30"} <= {each.id for each in receiver.events})
        await node.hooks.flush()
        assert node.hooks.deliveries.counts["dropped"] >= 16
        assert node.hooks.deliveries.counts["gaps"] == len(receiver.controls("gap"))
        for each in receiver.controls("gap"):
            assert set(each.json) == {"type", "cursor"}
            assert each.id.startswith("msg_gap_")


async def test_bytes_are_bounded(request: pytest.FixtureRequest) -> None:
    """Section 6: for one subscription, one principal and all; an event is counted once."""
    async with staged("memory", request) as stage:
        limits = {"waiting_bytes": 50_000, "waiting_bytes_each": 80_000, "waiting_bytes_total": 100_000}
        node = stage.node(delivery=limits, allow=(stage.receiver.origin + "/",))
        for number in range(4):
            await node.subscribe("ada" if number < 3 else "bob", path=f"/{number}")
        deliveries = node.hooks.deliveries
        stage.receiver.answer = lambda _: reply(503)
        node.emit(*(event(number, text="x" * 5000) for number in range(60)))
        await node.hooks.flush()
        assert all(link.bytes <= 50_000 for link in deliveries.links.values())
        assert deliveries._bytes_of["ada"] <= 80_000
        assert deliveries._bytes <= 100_000
        for number in range(4):
            assert await node.unsubscribe("ada" if number < 3 else "bob", path=f"/{number}")
        assert (deliveries._bytes, deliveries._bytes_of) == (0, {})


@every_store
@pytest.mark.parametrize("profile", [None, "chatgpt"])
async def test_revoked_subscribers_are_told_and_get_nothing_more(
    kind: str, profile: str | None, request: pytest.FixtureRequest
) -> None:
    """EVT-065, EVT-066, EVT-068."""
    async with staged(kind, request) as stage:
        node, receiver = stage.node(profile=profile), stage.receiver
        await node.subscribe()
        await node.subscribe("bob")
        node.revoked.add("ada")
        await node.hooks.revoke("ada")
        await node.hooks.revoke("bob")
        node.emit(event(1))
        await node.hooks.flush()
        assert len(receiver.events) == 1
        assert len(node.gone) == 1
        if profile:
            assert receiver.controls("terminated") == []
        else:
            await receiver.until(lambda: receiver.controls("terminated"))
            assert receiver.controls("terminated")[0].json["error"]["code"] == -32024
        assert not await node.unsubscribe()


async def test_access_is_asked_for_again(request: pytest.FixtureRequest) -> None:
    """EVT-068: every five minutes."""
    async with staged("memory", request) as stage:
        node, receiver, clock = stage.node(), stage.receiver, Clock()
        await node.subscribe()
        await clock.advance(301)
        await turns(50)
        assert node.gone == []
        node.revoked.add("ada")
        await clock.advance(301)
        await receiver.until(lambda: receiver.controls("terminated"))
        assert len(node.gone) == 1


async def test_a_slow_answer_about_access_delays_no_event(request: pytest.FixtureRequest) -> None:
    """EVT-062, EVT-068."""
    async with staged("memory", request) as stage:
        node, receiver, clock = stage.node(), stage.receiver, Clock()
        asked, gate = asyncio.Event(), asyncio.Event()

        async def authorize(_: Any) -> bool:
            asked.set()
            await gate.wait()
            return True

        node.authorize = authorize  # type: ignore[method-assign]
        await node.subscribe()
        await clock.advance(301)
        await asked.wait()
        node.emit(event(1))
        await receiver.until(lambda: receiver.events)
        gate.set()


@every_store
async def test_a_type_that_ends_takes_its_subscriptions_along(kind: str, request: pytest.FixtureRequest) -> None:
    """EVT-069: told three times in a minute, if need be."""
    async with staged(kind, request) as stage:
        node, receiver, clock = stage.node(), stage.receiver, Clock()
        await node.subscribe()
        await node.subscribe(name="other")
        receiver.answer = lambda asked: reply(500) if asked.json.get("type") == "terminated" else None
        await node.hooks.end("incident", NotFound("event"))
        await receiver.until(lambda: receiver.controls("terminated"))
        async with asyncio.timeout(60):
            while len(receiver.controls("terminated")) < 3:
                await clock.advance(0.5)
                await between_looks()
        await clock.advance(1000)
        node.emit(event(1), event(2, "other"))
        await node.hooks.flush()
        assert ids(receiver.events) == ["E2"]
        assert len(receiver.controls("terminated")) == 3
        assert receiver.controls("terminated")[0].json["error"]["data"] == {"kind": "event"}


@every_store
async def test_what_was_given_up_can_be_sent_again(kind: str, request: pytest.FixtureRequest) -> None:
    """Section 6: dead letters; `mcpd events failed`, `retry` and `drop`."""
    async with staged(kind, request) as stage:
        node, receiver = stage.node(), stage.receiver
        grant = await node.subscribe()
        receiver.answer = lambda asked: reply(410) if "eventId" in asked.json else None
        node.emit(event(1), event(2))
        await node.hooks.flush()
        await until(lambda: not node.hooks._background)
        found = await node.hooks.failed(grant.id)
        assert sorted(each["eventId"] for each in found) == ["E1", "E2"]
        assert {each["error"] for each in found} == {"http_4xx"}
        receiver.answer = lambda _: None
        if kind != "memory":  # another node has nothing to send, and leaves them
            other = stage.node()
            await other.hooks.open()
            assert await other.hooks.retry(grant.id) == 0
        assert await node.hooks.retry(grant.id) == 2
        await node.hooks.flush()
        assert sorted(ids(receiver.events)) == ["E1", "E1", "E2", "E2"]
        assert await node.hooks.failed(grant.id) == []
        assert await node.hooks.drop(grant.id)
        assert not await node.hooks.drop(grant.id)
        await receiver.until(lambda: receiver.controls("terminated"))
        assert "?" not in json.dumps(node.hooks.status())


# -- other nodes -------------------------------------------------------------------------------


async def test_what_another_node_does_holds_at_once(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """EVT-072, EVT-075: on a file that two processes share, without any message between them."""
    async with staged("sqlite", request) as stage:
        one, other, receiver = stage.node(), stage.node(), stage.receiver
        await one.subscribe()
        await other.hooks.open()
        other.emit(event(1))
        await receiver.until(lambda: receiver.events)
        await other.subscribe(secret=1)
        one.emit(event(2))
        await one.hooks.flush()
        assert ids(receiver.events) == ["E1", "E2"]
        assert len(receiver.events[1].headers["webhook-signature"].split(" ")) == 2
        assert len(receiver.controls("verification")) == 1
        assert await other.unsubscribe()
        one.emit(event(3))
        await one.hooks.flush()
        assert len(receiver.events) == 2


async def test_a_refresh_at_another_node_counts_before_it_was_read(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """EVT-075: the node that delivers ends nothing that another has extended."""
    async with staged("sqlite", request) as stage:
        one, other = stage.node(), stage.node()
        grant = await one.subscribe(ttl="60000")
        await other.hooks.open()

        async def nothing(after: str, limit: int = 1000) -> list[tuple[str, bytes]]:
            return []

        one.store.read = nothing  # type: ignore[method-assign]  # it is behind with the log
        one.began, other.began = one.began + 59, other.began + 59
        await other.subscribe(ttl="60000")
        one.began, other.began = one.began + 2, other.began + 2
        await one.hooks._look_after()
        assert one.gone == []
        assert await other.store.load(grant.id) is not None


@pytest.mark.parametrize("kind", STORES[1:])
async def test_another_node_takes_over_after_the_lease(kind: str, request: pytest.FixtureRequest) -> None:
    """EVT-044, EVT-074: what was acknowledged and written is not sent again; nothing is lost."""
    async with staged(kind, request) as stage:
        one, receiver = stage.node(lease=5.0), stage.receiver
        grant = await one.subscribe()
        receiver.answer = lambda asked: reply(500) if asked.id == "E2" else None
        one.emit(event(1), event(2), event(3))
        await one.hooks.flush()
        await until(lambda: not any(part.is_dirty for part in one.hooks._parts.values()))
        await one.die()
        other = stage.node(lease=0.5)
        other.emit(event(4))
        receiver.answer = lambda _: None
        receiver.requests.clear()
        await other.hooks.open()
        await receiver.until(lambda: {"E2", "E4"} <= {each.id for each in receiver.events})
        await other.hooks.flush()
        assert sorted(ids(receiver.events)) == ["E2", "E4"]
        assert {each.headers["x-mcp-subscription-id"] for each in receiver.events} == {grant.id}
        assert receiver.controls("verification") == []
        assert (await other.subscribe()).delivery_status is not None


@NEEDS_REDIS
async def test_without_the_backplane_events_wait(request: pytest.FixtureRequest) -> None:
    """EVT-076: nothing hangs, and what was emitted meanwhile arrives."""
    with RedisServer() as server:
        async with receiving() as receiver:
            stage = Stage("redis", receiver, server.url)
            node = stage.node()
            await node.subscribe()
            server.pause()
            for number in range(3):
                node.emit(event(number))
            with pytest.raises(BackplaneAway):
                await node.hooks.flush()
            server.go_on()
            # What Redis has written without an answer is written again, and read once.
            await receiver.until(lambda: {each.id for each in receiver.events} == {"E0", "E1", "E2"})
            await node.hooks.flush()
            assert len(receiver.events) == 3
            assert [each.id for _, each in node.events] == ["E0", "E1", "E2"]
            await node.aclose(0)
            await node.backplane.aclose()


async def test_secrets_are_sealed_in_the_store(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Section 6: neither the key nor the secret is in the file."""
    async with staged("sqlite", request) as stage:
        node = stage.node()
        await node.subscribe()
        await node.aclose()
    files = b"".join(path.read_bytes() for path in tmp_path.glob("events.db*"))
    assert b"/in" in files
    assert read_secret(secret_of()) not in files
    assert secret_of()[6:].encode() not in files
