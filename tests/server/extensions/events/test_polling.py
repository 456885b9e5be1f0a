"""Types of events, their list, and `events/poll`, as bytes. Spec: SEP-3415."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec import Struct
from support.http_wire import http_wire
from support.wires import META, MODERN, Wire, memory_wire, stdio_wire, websocket_wire

from mcpd import Events, Server

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
