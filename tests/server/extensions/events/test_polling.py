"""Types of events, their list, and `events/poll`, as bytes. Spec: SEP-3415."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec import Struct
from support.http_peer import envelope, modern, serving
from support.http_wire import http_wire
from support.wires import META, MODERN, Wire, memory_wire, stdio_wire, websocket_wire

from mcpd import EventContext, Events, Principal, Server
from mcpd.errors import RegistrationError

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
EVENTS = f"{META}events"


class Incident(Struct):
    incident_id: str
    severity: Literal["P1", "P2"] = "P1"


class Stage:
    """A server with one type of event."""

    def __init__(self, **settings: Any) -> None:
        self.server = Server("events", events=Events(**settings))

        @self.server.event("incident.created", payload=Incident)
        def created(event: Incident, severity: Literal["P1", "P2"] | None = None) -> bool:
            """A new incident was opened."""
            return severity in (None, event.severity)

        self.created = created

    def emit(self, *ids: str, severity: Literal["P1", "P2"] = "P1") -> None:
        for one in ids:
            self.created.emit(Incident(one, severity), id=one)


async def poll(wire: Wire, cursor: str | None = None, name: str = "incident.created", **more: Any) -> dict[str, Any]:
    """The result of a poll."""
    found: dict[str, Any] = await wire.result("events/poll", {"name": name, "cursor": cursor, **more})
    assert found["resultType"] == "complete"
    assert isinstance(found["truncated"], bool)
    assert isinstance(found["hasMore"], bool)
    assert 2000 <= found["nextPollMs"] <= 30_000
    assert "cursor" in found
    return found


def ids(found: dict[str, Any]) -> list[str]:
    return [event["eventId"] for event in found["events"]]


@each_wire
async def test_a_client_finds_the_types_and_follows_the_cursor(open_wire: Any) -> None:
    """EVT-001, EVT-003, EVT-004, EVT-006, EVT-012, EVT-015, EVT-018, EVT-019, EVT-023, EVT-070."""
    stage = Stage()
    async with open_wire(stage.server) as wire:
        await wire.open(MODERN)
        offered = (await wire.result("server/discover"))["capabilities"]
        assert offered["extensions"][EVENTS] == {"listChanged": True}
        assert offered["events"] == {}
        (listed,) = (await wire.result("events/list"))["events"]
        assert listed["name"] == "incident.created"
        assert listed["description"] == "A new incident was opened."
        assert listed["delivery"] == ["push", "poll"]
        assert listed["inputSchema"]["properties"].keys() == {"severity"}
        assert listed["payloadSchema"]["required"] == ["incident_id"]

        stage.emit("before")
        first = await poll(wire)
        assert first["events"] == []
        stage.emit("1")
        stage.emit("2", severity="P2")
        stage.emit("3")
        found = await poll(wire, first["cursor"], arguments={"severity": "P1"})
        assert ids(found) == ["1", "3"]
        one = found["events"][0]
        assert one.keys() == {"eventId", "name", "timestamp", "data"}
        assert one["name"] == "incident.created"
        assert one["timestamp"].endswith("Z")
        assert one["data"] == {"incident_id": "1", "severity": "P1"}
        again = await poll(wire, found["cursor"])
        assert again["events"] == []
        assert not again["truncated"]


async def test_cursors_that_lead_nowhere_are_gaps() -> None:
    """EVT-021, EVT-022: foreign, of another type, of another process, too old, or older than `maxAgeMs`."""
    stage = Stage(buffer=(3, 600.0))
    stage.server.event("other")(lambda event: True)
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        first = await poll(wire)
        other = await poll(wire, name="other")
        elsewhere = Stage()
        async with memory_wire(elsewhere.server) as second:
            await second.open(MODERN)
            strange = (await poll(second))["cursor"]
        for cursor in ("", "nonsense", other["cursor"], strange, first["cursor"][:-1] + "x", first["cursor"] + "é"):
            found = await poll(wire, cursor)
            assert found["truncated"], cursor
            assert found["events"] == []
            assert not (await poll(wire, found["cursor"]))["truncated"]

        stage.emit("1", "2", "3", "4", "5")
        found = await poll(wire, first["cursor"])
        assert ids(found) == ["3", "4", "5"]
        assert found["truncated"]
        assert not (await poll(wire, found["cursor"]))["truncated"]

        now = stage.server.extensions[EVENTS].hub
        clock = now.clock()
        now.clock = lambda: clock + 5
        stage.emit("6")
        aged = await poll(wire, first["cursor"], maxAgeMs=1000)
        assert ids(aged) == ["6"]
        assert aged["truncated"]
        assert not (await poll(wire, found["cursor"], maxAgeMs=60_000))["truncated"]
        assert not (await poll(wire, maxAgeMs=1))["truncated"]
        assert (await wire.error("events/poll", {"name": "incident.created", "maxAgeMs": -1}))["code"] == -32602
        assert (await wire.error("events/poll", {"name": "incident.created", "maxEvents": 0}))["code"] == -32602


async def test_a_set_up_that_failed_is_tried_at_the_next_poll() -> None:
    """EVT-071."""
    stage = Stage()
    calls: list[int] = []

    @stage.created.subscribed
    def subscribed(ctx: EventContext, arguments: Any) -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise OSError("the other system is away")

    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        assert (await wire.error("events/poll", {"name": "incident.created"}))["code"] == -32603
        await poll(wire)
        await poll(wire)
        assert calls == [0, 1]


async def test_a_poll_without_news_calls_no_function() -> None:
    """EVT-014, EVT-024: and a type without replay has no cursor."""
    server = Server("events")
    called: list[Any] = []

    @server.event("e")
    def counted(event: dict[str, Any]) -> bool:
        called.append(event)
        return True

    server.event("now", replay=False)(lambda event: True)
    async with memory_wire(server) as wire:
        await wire.open(MODERN)
        counted.emit({"n": 1})
        cursor = (await poll(wire, name="e"))["cursor"]
        assert (await poll(wire, cursor, "e"))["cursor"] == cursor
        assert called == []
        server.emit("now", {})
        found = await poll(wire, cursor, "now", maxAgeMs=1)
        assert (found["events"], found["cursor"], found["truncated"]) == ([], None, False)
        await wire.answer(wire.ask("events/list"))
        wire.ask("events/stream", {"name": "now"})
        assert (await wire.receive())["params"]["cursor"] is None
        server.emit("now", {})
        assert (await wire.receive())["params"]["cursor"] is None


async def test_pages_of_events_are_joined_by_cursors() -> None:
    """EVT-019, EVT-020, EVT-023: each matching event once, in order, however the pages fall."""
    stage = Stage()
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        for most in (1, 2, 3, 7, 500):
            cursor = (await poll(wire))["cursor"]
            for number in range(20):
                stage.emit(f"{most}-{number}", severity="P1" if number % 3 else "P2")
            wanted = [f"{most}-{number}" for number in range(20) if number % 3]
            seen: list[str] = []
            has_more = True
            while has_more:
                found = await poll(wire, cursor, arguments={"severity": "P1"}, maxEvents=most)
                assert len(found["events"]) <= most
                seen += ids(found)
                cursor, has_more = found["cursor"], found["hasMore"]
            assert seen == wanted
        capped = await poll(wire)
        stage.emit(*map(str, range(600)))
        found = await poll(wire, capped["cursor"], maxEvents=10_000)
        assert (len(found["events"]), found["hasMore"]) == (500, True)


@pytest.mark.parametrize("codes", ["sep", "sketch"])
async def test_faults_have_their_codes(codes: str) -> None:
    """EVT-008, EVT-009, EVT-010, EVT-013, EVT-035, EVT-067: the first fault in the order of the checks."""
    stage = Stage(codes=codes)

    @stage.server.event("secret", visible=lambda ctx: False)
    def secret(event: dict[str, Any]) -> None:
        """Nobody sees it."""

    @stage.server.event("pushed", delivery=["push"])
    def pushed(event: dict[str, Any], depth: int = 0) -> None:
        """Only pushed."""

    @pushed.authorize
    def may(ctx: EventContext, arguments: dict[str, Any]) -> bool:
        asked.append(arguments)
        return False

    asked: list[Any] = []
    not_found, forbidden, unsupported = (-32023, -32024, -32026) if codes == "sep" else (-32011, -32012, -32014)
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        for method in ("events/poll", "events/stream"):
            for name in ("nothing", "secret"):
                error = await wire.error(method, {"name": name, "arguments": {"x": 1}})
                assert (error["code"], error["data"]) == (not_found, {"kind": "event"})
            for wrong in ({"severity": "P9"}, {"other": 1}, {"severity": 5}):
                error = await wire.error(method, {"name": "incident.created", "arguments": wrong})
                assert error["code"] == -32602
        error = await wire.error("events/poll", {"name": "pushed", "arguments": {"wrong": 1}})
        assert (error["code"], error["data"]) == (unsupported, {"feature": "deliveryMode", "value": "poll"})
        assert (await wire.error("events/stream", {"name": "pushed", "arguments": {"depth": "x"}}))["code"] == -32602
        assert asked == []
        assert (await wire.error("events/stream", {"name": "pushed", "arguments": {"depth": 1}}))["code"] == forbidden
        assert asked == [{"depth": 1}]
        webhook = {"name": "nothing", "delivery": {"url": "not a url", "secret": ""}}
        assert (await wire.error("events/subscribe", webhook))["code"] == forbidden
        assert (await wire.error("events/unsubscribe", webhook))["code"] == forbidden
        deep: Any = 1
        for _ in range(20):
            deep = [deep]
        for arguments in ({"x": deep}, {"x": "y" * 20_000}):
            error = await wire.error("events/poll", {"name": "incident.created", "arguments": arguments})
            assert error["code"] == -32602


async def test_the_list_has_pages_and_what_the_caller_can_use() -> None:
    """EVT-001, EVT-005, EVT-006, EVT-007, EVT-011: nothing is announced or answered without a type."""
    bare = Server("bare")
    async with memory_wire(bare) as wire:
        await wire.open(MODERN)
        capabilities = (await wire.result("server/discover"))["capabilities"]
        assert "events" not in capabilities
        assert EVENTS not in capabilities.get("extensions", {})
        assert (await wire.error("events/list"))["code"] == -32601

    server = Server("events", page_size=2, events=Events(compat=False))
    for number in range(5):
        server.event(f"n{number}", delivery=["poll"])(lambda event: True)
    server.event("hooks", delivery=["webhook"])(lambda event: True)
    async with memory_wire(server) as wire:
        await wire.open(MODERN)
        assert "events" not in (await wire.result("server/discover"))["capabilities"]
        names: list[str] = []
        cursor = None
        while True:
            page = await wire.result("events/list", {} if cursor is None else {"cursor": cursor})
            assert page.keys() <= {"events", "nextCursor", "resultType", "_meta"}
            names += [one["name"] for one in page["events"]]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert names == [f"n{number}" for number in range(5)]
        assert (await wire.error("events/list", {"cursor": "elsewhere"}))["code"] == -32602

        listening = wire.ask("subscriptions/listen", {"notifications": {"eventsListChanged": True}})
        acknowledged = await wire.receive()
        assert acknowledged["params"]["notifications"] == {"eventsListChanged": True}
        deaf = wire.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await wire.receive()
        server.remove_event("n0")
        server.event("new")(lambda event: True)
        changed = await wire.receive()
        assert changed["method"] == "notifications/events/list_changed"
        assert changed["params"] == {"_meta": {f"{META}subscriptionId": listening}}
        await wire.quiet()
        wire.cancel(listening)
        wire.cancel(deaf)


async def test_an_event_that_cannot_be_sent_is_refused_to_its_author() -> None:
    """EVT-015, EVT-016, EVT-017: nobody gets it, and the next one goes through."""
    stage = Stage()
    for wrong in ({"incident_id": 5}, {}, [], "text", None, {"incident_id": "x", "severity": "P9"}):
        with pytest.raises(ValueError, match=r"incident\.created"):
            stage.created.emit(wrong)
    with pytest.raises(ValueError, match="256 KiB"):
        stage.created.emit(Incident("x" * 300_000))
    for bad in ("", "a b", "é", "x" * 257, "a\n"):
        with pytest.raises(ValueError, match="id: expected"):
            stage.created.emit(Incident("1"), id=bad)
    with pytest.raises(ValueError, match="time zone"):
        stage.created.emit(Incident("1"), timestamp="2026-01-01T00:00:00")
    with pytest.raises(KeyError, match="there is no event type"):
        stage.server.emit("nothing", {})
    async with memory_wire(stage.server) as wire:
        await wire.open(MODERN)
        cursor = (await poll(wire))["cursor"]
        assert stage.created.emit(Incident("1"), id="PD-17", timestamp="2026-01-01T02:00:00+02:00") == "PD-17"
        known = stage.server.emit("incident.created", Incident("2"))
        (first, second) = (await poll(wire, cursor))["events"]
        assert (first["eventId"], first["timestamp"]) == ("PD-17", "2026-01-01T00:00:00.000Z")
        assert second["eventId"] == known


async def test_events_of_one_person_reach_only_that_person() -> None:
    """EVT-007, EVT-070: `to`, and a function that shapes the payload by who asks."""
    server = Server("events", authenticate=lambda headers: Principal(headers["x-user"]))

    @server.event("mail")
    def mail(event: dict[str, Any], *, ctx: EventContext) -> dict[str, Any]:
        """A mail has arrived."""
        return {**event, "for": ctx.principal.subject}

    async with serving(server) as port:

        async def ask(user: str, method: str, **params: Any) -> Any:
            answer = await port.ask(modern(method, params, meta=envelope(), headers={"x-user": user}))
            assert answer.status == 200
            return answer.json["result"]

        assert (await ask("ada", "events/list"))["events"][0]["delivery"] == ["webhook", "push", "poll"]
        cursor = (await ask("ada", "events/poll", name="mail"))["cursor"]
        mail.emit({"n": 1})
        mail.emit({"n": 2}, to=Principal("ada"))
        mail.emit({"n": 3}, to="bob")
        for user, wanted in (("ada", [1, 2]), ("bob", [1, 3])):
            found = await ask(user, "events/poll", name="mail", cursor=cursor)
            assert [one["data"] for one in found["events"]] == [{"n": n, "for": user} for n in wanted]
        with pytest.raises(ValueError, match="anonymous"):
            mail.emit({}, to=Principal(""))


def test_types_that_cannot_be_offered_are_refused() -> None:
    server = Server("events")
    server.event("taken")(lambda event: True)

    async def later(event: dict[str, Any]) -> bool:
        return True

    def nothing() -> None:
        """It takes no payload."""

    for name, options, function, text in (
        ("taken", {}, lambda event: True, "already registered"),
        ("mcp.task", {}, lambda event: True, "reserved"),
        ("a b", {}, lambda event: True, "expected a name"),
        ("list", {"payload": list[int]}, lambda event: True, "JSON objects"),
        ("fax", {"delivery": ["fax"]}, lambda event: True, "webhook, push, poll"),
        ("on", {"on": "nothing"}, lambda event: True, "argument"),
        ("later", {}, later, "not async def"),
        ("nothing", {}, nothing, "first parameter"),
    ):
        with pytest.raises(RegistrationError, match=text):
            server.event(name, **options)(function)  # type: ignore[arg-type, call-overload]
