"""An observer is added as DEVELOPERS.md says, "Adding an observer": what it hears in both eras; it breaks no call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import until
from support.http_wire import http_wire
from support.ui_stage import BOTH_ERAS
from support.wires import MODERN, OpenWire, memory_wire, stdio_wire, websocket_wire

from mcpd import ObservedCall, Observer, Outcome, Server, ToolError

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])


class Notes(Observer):
    """Writes everything down."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.opened = 0
        self.running: set[int] = set()
        self.calls: list[tuple[ObservedCall, Outcome]] = []

    def connection_opened(self, connection: int) -> None:
        self.opened += 1
        self.open.add(connection)

    def connection_closed(self, connection: int, seconds: float) -> None:
        assert seconds >= 0
        self.open.remove(connection)

    def call_began(self, call: ObservedCall) -> None:
        self.running.add(id(call))

    def call_ended(self, call: ObservedCall, outcome: Outcome) -> None:
        assert outcome.seconds >= 0
        self.running.remove(id(call))
        self.calls.append((call, outcome))

    def of(self, method: str) -> list[tuple[str, str, int | None, bool]]:
        return [
            (call.subject, outcome.kind, outcome.code, outcome.is_error)
            for call, outcome in self.calls
            if call.method == method
        ]


def make_server(*observers: Observer) -> tuple[Server, asyncio.Event]:
    server = Server("watched", observers=observers)
    begun = asyncio.Event()

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def fail() -> str:
        raise ToolError("it failed")

    @server.tool
    async def wait() -> str:
        begun.set()
        await asyncio.sleep(3600)
        return ""

    return server, begun


@BOTH_ERAS
@each_wire
async def test_calls_and_connections(open_wire: OpenWire, version: str) -> None:
    notes = Notes()
    server, begun = make_server(notes)
    async with open_wire(server, version) as wire:
        await wire.text("echo", text="a")
        await wire.call("fail")
        await wire.error("tools/call", {"name": "nothing"})
        await wire.error("no/such")
        request_id = wire.ask("tools/call", {"name": "wait"})
        await begun.wait()
        wire.cancel(request_id)
        await wire.text("echo", text="b")
        is_alone = open_wire is http_wire and version == MODERN
        assert (notes.opened, len(notes.open)) == ((0, 0) if is_alone else (1, 1))
    assert sorted(notes.of("tools/call"), key=str) == sorted(
        [
            ("echo", "answered", None, False),
            ("fail", "answered", None, True),
            ("nothing", "failed", -32602, False),
            ("wait", "cancelled", None, False),
            ("echo", "answered", None, False),
        ],
        key=str,
    )
    assert notes.of("no/such") == [("", "refused", -32601, False)]
    assert {call.version for call, outcome in notes.calls if outcome.kind != "refused"} == {version}
    assert not notes.running
    await asyncio.sleep(0)
    await server.aclose()
    await until(lambda: not notes.open)


async def test_an_observer_has_the_methods_that_it_needs() -> None:
    class Counter(Observer):
        calls = 0

        def call_ended(self, call: ObservedCall, outcome: Outcome) -> None:
            self.calls += 1

    counter, notes = Counter(), Notes()
    server, _ = make_server(counter, notes)
    async with memory_wire(server, MODERN) as wire:
        assert await wire.text("echo", text="a") == "a"
    assert counter.calls == len(notes.calls) == 2  # server/discover too


async def test_errors_in_observers_break_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def connection_opened(self, connection: int) -> None:
            raise OSError("no metrics")

        def call_began(self, call: ObservedCall) -> None:
            raise OSError("no metrics")

        call_ended: Any = None

    notes = Notes()
    server, _ = make_server(Broken(), notes)
    async with memory_wire(server, MODERN) as wire:
        assert await wire.text("echo", text="a") == "a"
    assert notes.of("tools/call") == [("echo", "answered", None, False)]
    assert "failed in call_began" in caplog.text
    assert "failed in call_ended" in caplog.text


async def test_without_observers_a_session_has_no_hooks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    server, _ = make_server()
    async with memory_wire(server, MODERN) as wire:
        assert not wire.connection.session.hooks


async def test_who_is_added_later_hears_of_the_requests_from_then_on() -> None:
    """Where each request has a connection of its own, what is kept for those knows nothing of who comes later."""
    first, second = Notes(), Notes()
    server, _ = make_server(first)
    async with http_wire(server, MODERN) as wire:
        await wire.text("echo", text="a")
        await wire.text("echo", text="b")
        server.add_observer(second)
        await wire.text("echo", text="c")
    assert (len(first.of("tools/call")), len(second.of("tools/call"))) == (3, 1)
