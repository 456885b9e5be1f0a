"""`events/stream` as bytes: order, gaps, heartbeats, ends. Spec: SEP-3415."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Struct
from support.clock import turns, until
from support.http_peer import envelope, modern, serving
from support.wires import META, MODERN, Wire, memory_wire

from mcpd import EventContext, Principal, Server
from mcpd.server.reloading import take_over
from .test_polling import EVENTS, Incident, Stage, each_wire, ids, poll

SUBSCRIPTION = f"{META}subscriptionId"


async def stream(wire: Wire, name: str = "incident.created", **params: Any) -> tuple[Any, dict[str, Any]]:
    """Open a stream. Its id, and the params of its first frame."""
    request_id = wire.ask("events/stream", {"name": name, **params})
    return request_id, await heard(wire, "active", request_id)


async def heard(wire: Wire, what: str, request_id: Any) -> dict[str, Any]:
    """The params of the next frame, which is of a certain kind."""
    frame = await wire.receive()
    assert frame.get("method") == f"notifications/events/{what}", frame
    params: dict[str, Any] = frame["params"]
    assert params["_meta"] == {SUBSCRIPTION: request_id}
    assert type(params["_meta"][SUBSCRIPTION]) is type(request_id)
    return params


async def events(wire: Wire, request_id: Any, count: int) -> list[str]:
    """The ids of the next events."""
    return [(await heard(wire, "event", request_id))["eventId"] for _ in range(count)]


def hub(stage: Stage) -> Any:
    return stage.server.extensions[EVENTS].hub  # type: ignore[attr-defined]


@each_wire
async def test_events_arrive_in_order_with_their_cursors(open_wire: Any) -> None:
    """EVT-025, EVT-026, EVT-028, EVT-030, EVT-073: from a cursor, then what happens; a poll goes on from there."""
    stage = Stage()
    async with open_wire(stage.server) as wire:
        await wire.open(MODERN)
        before = (await poll(wire))["cursor"]
        stage.emit("1")
        stage.emit("2", severity="P2")
        request_id, active = await stream(wire, arguments={"severity": "P1"}, cursor=before)
        assert active == {"cursor": before, "truncated": False, "_meta": active["_meta"]}
        first = await heard(wire, "event", request_id)
        assert first["data"] == {"incident_id": "1", "severity": "P1"}
        stage.emit("3", "4")
        stage.emit("5", severity="P2")
        assert await events(wire, request_id, 2) == ["3", "4"]
        found = await poll(wire, first["cursor"])
        assert [one["eventId"] for one in found["events"]] == ["2", "3", "4", "5"]

        fresh, active = await stream(wire)
        assert active["cursor"] == found["cursor"]
        stage.server.remove_event("incident.created")
        over = {}
        for _ in range(4):
            frame = await wire.receive()
            over[frame.get("id", frame.get("params", {}).get("_meta", {}).get(SUBSCRIPTION)), "id" in frame] = frame
        for one in (request_id, fresh):
            assert over[one, False]["method"] == "notifications/events/terminated"
            assert over[one, False]["params"]["error"]["code"] == -32023
            result = over[one, True]["result"]
            assert result["_meta"][SUBSCRIPTION] == one
            assert result["resultType"] == "complete"
        assert not hub(stage).streams


async def test_ids_keep_their_type() -> None:
    """EVT-026: a number is no text."""
    stage = Stage()
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        for request_id in (7, "7"):
            wire.ask("events/stream", {"name": "incident.created"}, id=request_id)
            await heard(wire, "active", request_id)
        stage.emit("1")
        assert await events(wire, 7, 1) == await events(wire, "7", 1)


@each_wire
async def test_a_cancelled_stream_ends_at_once(open_wire: Any) -> None:
    """EVT-031: delivery stops, the hooks run, nothing is kept."""
    stage = Stage()
    seen: list[str] = []

    @stage.created.subscribed
    def begin(ctx: EventContext, arguments: dict[str, Any]) -> None:
        seen.append(f"begin {arguments} {ctx.mode}")

    @stage.created.unsubscribed
    async def end(ctx: EventContext, arguments: dict[str, Any]) -> None:
        seen.append(f"end {arguments}")

    async with open_wire(stage.server) as wire:
        await wire.open(MODERN)
        first, _ = await stream(wire)
        second, _ = await stream(wire)
        assert seen == ["begin {} push"]
        wire.cancel(first)
        await until(lambda: len(hub(stage).streams) == 1)
        stage.emit("1")
        assert await events(wire, second, 1) == ["1"]
        assert seen == ["begin {} push"]
        wire.cancel(second)
        await until(lambda: len(seen) == 2)
        assert seen[1] == "end {}"
        stage.emit("2")
        await wire.quiet()
        assert not hub(stage).streams
        assert not hub(stage).indexes["incident.created"].count
        assert not stage.server.extensions[EVENTS].stream_counts  # type: ignore[attr-defined]


async def test_quiet_streams_have_heartbeats_with_a_cursor_to_go_on_from() -> None:
    """EVT-027: the cursor passes events that were for others."""
    stage = Stage(heartbeat=0.05)
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        request_id, active = await stream(wire, arguments={"severity": "P1"})
        stage.emit("other", severity="P2")
        beat = await heard(wire, "heartbeat", request_id)
        while beat["cursor"] == active["cursor"]:
            beat = await heard(wire, "heartbeat", request_id)
        found = await poll(wire, beat["cursor"])
        assert found["events"] == []
        assert not found["truncated"]
        await heard(wire, "heartbeat", request_id)


async def test_heartbeats_are_data_over_http() -> None:
    """EVT-027, EVT-030: and the end of the server is a result."""
    stage = Stage(heartbeat=0.05)
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(modern("events/stream", {"name": "incident.created"}, id="s"))
        await peer.head()
        assert (await peer.message())["method"] == "notifications/events/active"
        assert (await peer.message())["method"] == "notifications/events/heartbeat"
        await stage.server.extensions[EVENTS].aclose()
        message = await peer.message()
        while "method" in message:
            message = await peer.message()
        assert message["id"] == "s"
        assert message["result"]["_meta"][SUBSCRIPTION] == "s"


async def test_streams_do_not_count_among_the_requests_but_have_a_limit() -> None:
    """EVT-032."""
    stage = Stage(streams=3)
    server = Server("few", max_in_flight=2, events=stage.server._event_settings)
    server.event("e")(lambda event: True)
    async with memory_wire(server) as wire:
        await wire.open(MODERN)
        opened = [(await stream(wire, "e"))[0] for _ in range(3)]
        error = await wire.error("events/stream", {"name": "e"})
        assert (error["code"], error["data"]) == (-32025, {"limit": "streams", "max": 3})
        await wire.result("events/list")
        wire.cancel(opened[0])
        await until(lambda: len(server.extensions[EVENTS].hub.streams) == 2)  # type: ignore[attr-defined]
        await stream(wire, "e")


async def test_a_function_that_fails_costs_one_event_of_one_subscriber() -> None:
    """EVT-029, EVT-071: an error frame, and the stream lives."""
    server = Server("events")

    @server.event("division")
    def division(event: dict[str, Any], by: int = 1) -> dict[str, Any]:
        """A division."""
        return {"result": event["value"] // by}

    async with memory_wire(server) as wire:
        await wire.open(MODERN)
        broken, _ = await stream(wire, "division", arguments={"by": 0})
        whole, _ = await stream(wire, "division", arguments={"by": 2})
        division.emit({"value": 4}, id="four")
        problem = await heard(wire, "error", broken)
        assert problem["error"]["code"] == -32603
        assert "four" in problem["error"]["message"]
        assert (await heard(wire, "event", whole))["data"] == {"result": 2}
        found = await poll(wire, (await poll(wire, name="division"))["cursor"], name="division", arguments={"by": 0})
        assert found["events"] == []


async def test_access_that_is_revoked_ends_the_stream() -> None:
    """EVT-067, EVT-068: asked again on `revoke`; nothing follows `terminated`."""
    server = Server("events", authenticate=lambda headers: Principal(headers["x-user"]))
    allowed = {"ada", "bob"}

    @server.event("mail")
    def mail(event: dict[str, Any]) -> None:
        """A mail has arrived."""

    @mail.authorize
    async def may(ctx: EventContext, arguments: dict[str, Any]) -> bool:
        return ctx.principal.subject in allowed

    async with serving(server) as port:
        peers = {}
        for user in ("ada", "bob"):
            peers[user] = peer = await port.connect()
            peer.send(modern("events/stream", {"name": "mail"}, {"x-user": user}, meta=envelope()))
            await peer.head()
            assert (await peer.message())["method"] == "notifications/events/active"
        allowed.remove("ada")
        await server.revoke(Principal("ada"))
        await server.revoke(Principal("bob"))
        mail.emit({}, id="1")
        over = await peers["ada"].message()
        assert over["method"] == "notifications/events/terminated"
        assert over["params"]["error"]["code"] == -32024
        assert "result" in await peers["ada"].message()
        assert (await peers["bob"].message())["params"]["eventId"] == "1"


async def test_a_type_that_changes_ends_only_what_it_must() -> None:
    """EVT-069: additive changes end nothing."""
    stage = Stage()
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        request_id, _ = await stream(wire)
        extension: Any = stage.server.extensions[EVENTS]

        def replace(payload: Any) -> None:
            from mcpd.server.extensions.events.declare import EventKind

            def created(event: Any, severity: str | None = None, team: str = "") -> None:
                """Was opened."""

            extension.add(EventKind("incident.created", stage.created.function, payload=payload), replace=True)

        class Wider(Incident):
            team: str = ""

        replace(Wider)
        stage.server.emit("incident.created", {"incident_id": "1", "team": "a"}, id="1")
        assert await events(wire, request_id, 1) == ["1"]
        replace(dict[str, int])
        over = await heard(wire, "terminated", request_id)
        assert over["error"]["code"] == -32026
        assert over["error"]["data"] == {"feature": "payloadSchema", "reason": "schema_changed"}


async def test_a_client_that_does_not_read_gets_a_gap_and_then_the_last_events() -> None:
    """EVT-029, EVT-033: nothing waits for it but the ring."""
    stage = Stage()
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        request_id, _ = await stream(wire)
        await turns(5)
        channel = wire.connection.channel
        reading = asyncio.Event()

        class Slow:
            is_congested = True

            def __getattr__(self, name: str) -> Any:
                return getattr(channel, name)

            async def drain(self) -> None:
                await reading.wait()
                self.is_congested = False

        wire.connection.channel = Slow()
        stage.emit(*map(str, range(1500)))
        await turns(5)
        reading.set()
        gap = await heard(wire, "active", request_id)
        assert gap["truncated"]
        assert await events(wire, request_id, 1000) == [str(number) for number in range(500, 1500)]
        found = await poll(wire, gap["cursor"])
        assert found["events"][0]["eventId"] == "500"
        wire.connection.channel = channel


async def test_many_subscribers_are_served_in_slices_and_an_index_finds_the_few() -> None:
    """EVT-034, EVT-070: the loop turns in between."""
    server = Server("events")

    class Push(Struct):
        repo: str

    @server.event("push", payload=Push, on="repo")
    def pushed(event: Push, repo: str | None = None) -> None:
        """Somebody pushed."""

    async with memory_wire(server) as wire:
        await wire.open(MODERN)
        one, _ = await stream(wire, "push", arguments={"repo": "a"})
        other, _ = await stream(wire, "push", arguments={"repo": "b"})
        every, _ = await stream(wire, "push")
        await turns(5)
        pushed.emit(Push("a"), id="1")
        assert await events(wire, one, 1) == await events(wire, every, 1) == ["1"]
        pushed.emit(Push("b"), id="2")
        assert await events(wire, other, 1) == await events(wire, every, 1) == ["2"]
        await wire.quiet()


async def test_events_from_other_threads_arrive() -> None:
    """`emit` is safe from any thread, and never waits."""
    stage = Stage()
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        request_id, _ = await stream(wire)
        await asyncio.gather(*(asyncio.to_thread(stage.emit, f"{number}") for number in range(20)))
        await stage.server.flush()
        assert sorted(await events(wire, request_id, 20), key=int) == [str(number) for number in range(20)]


async def test_the_text_of_an_event_reaches_the_conversation() -> None:
    """Section 1.1: `notifications/claude/channel`, where the author allows it, and not more than a few at once."""
    server = Server("events")

    @server.event("alarm", channel=lambda event: f"Alarm in {event['room']}!")
    def alarm(event: dict[str, Any]) -> None:
        """An alarm."""

    @server.event("quiet")
    def quiet(event: dict[str, Any]) -> None:
        """Nobody's conversation."""

    async with memory_wire(server) as wire:
        opened = await wire.open("2025-11-25")
        assert opened["capabilities"]["experimental"] == {"claude/channel": {}}
        quiet.emit({"room": "x"})
        alarm.emit({"room": "hall"}, id="A1")
        said = await wire.receive()
        assert said["method"] == "notifications/claude/channel"
        assert said["params"]["content"] == "Alarm in hall!"
        assert said["params"]["meta"].items() >= {"event": "alarm", "event_id": "A1"}.items()
        for _ in range(20):
            alarm.emit({"room": "hall"})
        for _ in range(4):
            await wire.receive()
        await wire.quiet()


@pytest.mark.parametrize("is_declared", [True, False])
async def test_sessions_of_older_versions_have_webhooks_only(is_declared: bool) -> None:
    """EVT-002 and section 1.1: the list is answered; polls and streams do not exist there."""
    stage = Stage()
    async with memory_wire(stage.server) as wire:
        capabilities = {"extensions": {EVENTS: {}}} if is_declared else {}
        opened = await wire.open("2025-11-25", capabilities)
        assert (EVENTS in opened["capabilities"].get("extensions", {})) is is_declared
        assert ("events" in opened["capabilities"]) is is_declared
        assert (await wire.result("events/list"))["events"] == []
        for method in ("events/poll", "events/stream"):
            assert (await wire.error(method, {"name": "incident.created"}))["code"] == -32601


@pytest.mark.parametrize("change", ["code", "payload", "removed", "none left"])
async def test_streams_go_on_with_the_new_code_after_a_reload(change: str) -> None:
    """EVT-021, EVT-069: events and cursors stay too."""
    stage = Stage()
    other = Server("events")
    if change in ("code", "payload"):

        @other.event("incident.created", payload=Incident if change == "code" else dict[str, int])
        def created(event: Incident, severity: Literal["P1", "P2"] | None = None) -> Incident:
            """A new incident was opened."""
            return Incident(f"new {event.incident_id}")

    if change == "removed":
        other.event("another")(lambda event: True)

    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        cursor = (await poll(wire))["cursor"]
        stage.emit("1")
        request_id, _ = await stream(wire, cursor=cursor)
        await events(wire, request_id, 1)
        wire.ask("subscriptions/listen", {"notifications": {"eventsListChanged": True}})
        await wire.receive()
        take_over(stage.server, other)
        if change == "code":
            stage.server.emit("incident.created", Incident("2"))
            assert (await heard(wire, "event", request_id))["data"]["incident_id"] == "new 2"
            found = await poll(wire, cursor)
            assert [one["data"]["incident_id"] for one in found["events"]] == ["new 1", "new 2"]
            await wire.quiet()
        else:
            assert "result" in await wire.answer(request_id)
            said = {frame["method"]: frame["params"] for frame in wire.heard}
            over = said["notifications/events/terminated"]
            assert over["error"]["code"] == (-32026 if change == "payload" else -32023)
            # A server without events has no such notification.
            if change != "none left" and "notifications/events/list_changed" not in said:
                assert (await wire.receive())["method"] == "notifications/events/list_changed"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_happens_each_event_is_seen_once_and_in_order(data: st.DataObject) -> None:
    """EVT-023, EVT-028, EVT-029, EVT-033: a model of emits, polls, streams that come and go, and slow readers."""

    async def run() -> None:
        stage = Stage(buffer=(40, 600.0))
        emitted: list[str] = []
        async with memory_wire(stage.server) as wire:
            await wire.open(MODERN)
            place = {"poll": (await poll(wire))["cursor"]}
            seen: dict[str, list[str]] = {"poll": []}
            lost: dict[str, bool] = {"poll": False}
            names: dict[Any, str] = {}

            async def settle() -> None:
                await wire.result("events/list")
                for frame in wire.heard:
                    params = frame["params"]
                    name = names.get(params["_meta"][SUBSCRIPTION])
                    if name is None:
                        continue
                    if frame["method"].endswith("/event"):
                        seen[name].append(params["eventId"])
                    lost[name] = lost[name] or params.get("truncated", False)
                    place[name] = params["cursor"]
                wire.heard.clear()

            for _ in range(data.draw(st.integers(3, 14))):
                what = data.draw(st.sampled_from(["emit", "many", "poll", "open", "close"]))
                if what in ("emit", "many"):
                    for _ in range(1 if what == "emit" else data.draw(st.integers(2, 60))):
                        emitted.append(f"e{len(emitted)}")
                        stage.emit(emitted[-1])
                elif what == "poll":
                    found = await poll(wire, place["poll"], maxEvents=data.draw(st.integers(1, 50)))
                    seen["poll"] += ids(found)
                    lost["poll"] = lost["poll"] or found["truncated"]
                    place["poll"] = found["cursor"]
                elif what == "open" and not names:
                    seen.setdefault("stream", [])
                    lost.setdefault("stream", False)
                    cursor = place.setdefault("stream", (await poll(wire))["cursor"])
                    if "begun" not in lost:
                        lost["begun"] = True
                        seen["skipped"] = list(emitted)
                    names[wire.ask("events/stream", {"name": "incident.created", "cursor": cursor})] = "stream"
                    await settle()
                elif what == "close" and names:
                    await settle()
                    ((request_id, _),) = names.items()
                    wire.cancel(request_id)
                    await until(lambda: not hub(stage).streams)
                    await settle()
                    names.clear()
                await settle()

            found = await poll(wire, place["poll"], maxEvents=500)
            seen["poll"] += ids(found)
            lost["poll"] = lost["poll"] or found["truncated"]
            for name in ("poll", "stream"):
                if name not in seen:
                    continue
                got = seen[name]
                assert len(got) == len(set(got))
                assert got == sorted(got, key=emitted.index)
                if not lost[name] and name == "poll":
                    assert got == emitted
                if not lost[name] and name == "stream" and names:
                    assert got == emitted[len(seen["skipped"]) :]

    asyncio.run(run())
