"""OBS-10: what a call costs more where it is counted, as functions that are called; times are for tests/bench."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.http_wire import http_wire
from support.profiled import profiled
from support.wires import LEGACY, MODERN, OpenWire, stdio_wire

import mcpd
from mcpd import Server
from mcpd.errors import ResultTooLarge
from mcpd.protocol.jsonrpc import decode
from mcpd.protocol.session import Opening, Session
from mcpd.protocol.types.features import CallToolResult
from mcpd.protocol.versions import table
from mcpd.server.observe.metrics import Meter

PACKAGE = str(Path(mcpd.__file__).parent)


class Steps:
    """The functions that are called from our own: ours and those in C, as often as they are."""

    def __init__(self) -> None:
        self.ours: Counter[str] = Counter()
        self.in_c: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            if event == "call":
                self.ours[frame.f_code.co_name] += 1
            elif event == "c_call":
                self.in_c[argument.__name__] += 1


async def steps_of_an_echo(server: Server, version: str, open_wire: OpenWire = stdio_wire) -> Steps:
    @server.tool
    async def echo(text: str) -> str:
        return text

    return await steps_of(server, version, open_wire, "tools/call", {"name": "echo", "arguments": {"text": "a"}})


async def steps_of(
    server: Server, version: str, open_wire: OpenWire, method: str, params: dict[str, Any] | None = None
) -> Steps:
    steps = Steps()
    async with open_wire(server, version) as wire:
        for _ in range(2):  # the first calls make what is kept
            await wire.result(method, params)
        with profiled(steps):
            await wire.result(method, params)
    return steps


def counted(name: str = "counted") -> Server:
    server = Server(name)
    server.add_observer(Meter(server.catalog.tools.find_enabled))
    return server


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_a_call_that_is_counted_takes_few_steps_more(version: str) -> None:
    """Reading the clock, and a number into a list. The clock at its begin is read by what makes the call, in C."""
    bare = await steps_of_an_echo(Server("bare"), version)
    metered = await steps_of_an_echo(counted(), version)
    assert metered.ours - bare.ours == Counter({"call_began": 1, "call_ended": 1, "call_took": 1})
    assert metered.in_c - bare.in_c == Counter({"perf_counter": 1, "append": 1, "getattr": 1, "get": 1})


async def test_over_http_what_counts_is_not_made_anew_for_each_request() -> None:
    """OBS-10: a request of 2026-07-28 has a connection of its own, whose hooks are kept by the meter.

    Not all steps are held against those of a bare server: over HTTP some depend on the time, as the date of an answer.
    """
    bare = await steps_of_an_echo(Server("bare"), MODERN, http_wire)
    metered = await steps_of_an_echo(counted(), MODERN, http_wire)
    assert metered.ours["respond"] == bare.ours["respond"]
    assert metered.ours["call_ended"] == metered.ours["call_took"] == metered.ours["hooks_for"] - 1 == 1
    assert metered.in_c["perf_counter"] - bare.in_c["perf_counter"] == 1


async def test_others_than_calls_of_tools_take_as_many_steps() -> None:
    """OBS-10: whether the answer is that of a tool, given by a task, is looked up; nothing is raised for it."""
    bare = await steps_of(Server("bare"), LEGACY[-1], stdio_wire, "ping")
    metered = await steps_of(counted(), LEGACY[-1], stdio_wire, "ping")
    assert metered.ours - bare.ours == Counter({"call_began": 1, "call_ended": 1, "call_took": 1})
    assert metered.in_c - bare.in_c == Counter({"perf_counter": 1, "append": 1, "getattr": 1, "get": 1})


def test_a_counted_session_answers_as_any_other() -> None:
    """The same frames, refusals and ids that are free again."""
    meter = Meter(lambda name: name == "echo")
    opening = Opening(table.get(LEGACY[-1]))
    plain, metered = Session(opening=opening), Session(opening=opening, hooks=[meter.hooks_for("stdio")])
    request: Any = decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}')
    frames = []
    for session in (plain, metered):
        result = CallToolResult(content=[])
        answered = session.receive_request(request)
        session.max_frame_bytes = 10
        with pytest.raises(ResultTooLarge):
            session.respond(answered, result)
        assert answered.is_open
        session.max_frame_bytes = 1000
        frames.append(session.respond(answered, result))
        assert not answered.is_open
        assert session.respond(answered, result) is None
        cancelled = session.receive_request(request)
        session.cancel(1)
        assert session.respond(cancelled, result) is None
    assert frames[0] == frames[1]
    calls = meter.families()[0].samples
    assert [sum(sample.counts) for sample in calls] == [1, 1]  # the one that was answered, and the one given up


def test_what_is_counted_takes_no_memory_for_long() -> None:
    """Seconds wait in a list until they are worked off; each is in one bucket, and in the sum."""
    meter = Meter(lambda name: True)
    call = Session(opening=Opening(table.get(LEGACY[-1]))).receive_request(
        decode(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')  # type: ignore[arg-type]
    )
    for seconds in (0.001, 0.01, 0.011, 0.3, 1000.0):
        for _ in range(100):
            meter.call_took(call, seconds, "stdio")
    (series,) = meter._series.values()
    assert len(series._waiting) == 500
    meter.fold()
    assert series._waiting == []
    (sample,) = meter.families()[0].samples
    assert sum(sample.counts) == 500
    assert [count for count in sample.counts if count] == [200, 100, 100, 100]
    assert sample.value == pytest.approx(100 * 1000.322)


async def test_a_request_that_nobody_records_takes_few_steps_more() -> None:
    """OBS-10: ten microseconds at most, of which the library takes more than half; what is ours is counted here."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    from mcpd.server.observe.tracing import Tracing

    bare = await steps_of_an_echo(Server("bare"), LEGACY[-1])
    server = Server("traced")
    tracing = Tracing(server, TracerProvider(sampler=ALWAYS_OFF))
    tracing.attach()
    try:
        traced = await steps_of_an_echo(server, LEGACY[-1])
    finally:
        tracing.stop()
    # Round the handler; what begins the span, and looks whether it has a parent; the steps of the tool, in a context.
    assert traced.ours - bare.ours == Counter(
        {
            "traced": 1,
            "raw": 1,
            "_begin": 1,
            "_known": 1,
            "read": 1,
            "find_enabled": 1,
            "_finish": 1,
            "_in_context": 1,
            "_end": 1,
        }
    )


async def test_where_nobody_traces_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """OBS-09, OBS-10: a call takes the same steps whether OpenTelemetry is installed or not."""
    bare = await steps_of_an_echo(Server("bare"), MODERN)
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.setitem(sys.modules, name, None)
    again = await steps_of_an_echo(Server("bare"), MODERN)
    assert (again.ours, again.in_c) == (bare.ours, bare.in_c)
    assert not {"traced", "carried", "ask"} & set(bare.ours)
