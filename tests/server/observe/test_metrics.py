"""What is counted, and how it is written: counts agree with the client's, and nothing a client sends makes a series."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections import Counter
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text
from support.clock import until
from support.http_wire import http_wire
from support.wires import LEGACY, MODERN, memory_wire, stdio_wire, websocket_wire

from mcpd import Server, ToolError
from mcpd.compat.errors import WireError
from mcpd.errors import RegistrationError
from mcpd.server.observe import metrics as meters
from mcpd.server.observe.metrics import (
    BOUNDS,
    OPEN_METRICS,
    Family,
    Meter,
    Sample,
    Total,
    expose,
    process_families,
    wants_open_metrics,
)

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
CALLS = "mcp_server_operation_duration_seconds"

HOSTILE = ['a"b', "back\\slash", "new\nline", "ünïcode ☃", "{x=1}", "a" * 300, "# HELP", "le", "_other", "\x1b[31m"]


def metered(**options: Any) -> tuple[Server, Meter]:
    server = Server("counted", **options)
    meter = Meter(server.catalog.tools.find_enabled)
    server.add_observer(meter)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wrong() -> str:
        raise ToolError("no")

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return ""

    return server, meter


def counts(meter: Meter) -> Counter[tuple[str, str, str]]:
    """How many there were of each method, tool and error."""
    found: Counter[tuple[str, str, str]] = Counter()
    for family in meter.families():
        if family.name == CALLS:
            for sample in family.samples:
                labels = dict(sample.labels)
                key = labels["mcp_method_name"], labels.get("gen_ai_tool_name", ""), labels.get("error_type", "")
                found[key] += sum(sample.counts)
    return found


def values(meter: Meter, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {s.labels: s.value for family in meter.families() if family.name == name for s in family.samples}


@each_wire
@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_each_way_that_a_call_can_end(open_wire: Any, version: str) -> None:
    server, meter = metered()
    async with open_wire(server, version) as wire:
        await wire.text("echo", text="a")
        await wire.text("echo", text="b")
        assert (await wire.call("wrong"))["isError"]
        await wire.error("tools/call", {"name": "none such"})
        await wire.error("no/such")
        waiting = wire.ask("tools/call", {"name": "wait", "arguments": {}})
        await wire.text("echo", text="c")
        wire.cancel(waiting)
        await until(lambda: counts(meter)["tools/call", "wait", "cancelled"] == 1)
    found = counts(meter)
    assert found["tools/call", "echo", ""] == 3
    assert found["tools/call", "wrong", "tool_error"] == 1
    assert found["tools/call", "_other", "-32602"] == 1
    assert sum(values(meter, "mcpd_refused").values()) == 1
    (transport, protocol) = {
        memory_wire: ("inproc", None), stdio_wire: ("pipe", None),
        websocket_wire: ("tcp", "websocket"), http_wire: ("tcp", "http"),
    }[open_wire]  # fmt: skip
    for family in meter.families():
        for sample in family.samples if family.name == CALLS else ():
            labels = dict(sample.labels)
            assert (labels["network_transport"], labels.get("network_protocol_name")) == (transport, protocol)
            assert labels["mcp_protocol_version"] == version


@each_wire
async def test_sessions_are_counted_until_they_end(open_wire: Any) -> None:
    server, meter = metered()
    async with open_wire(server, LEGACY[-1]) as wire:
        await wire.text("echo", text="a")
        assert sum(values(meter, "mcpd_sessions").values()) == 1
    await until(lambda: sum(values(meter, "mcpd_sessions").values()) == 0)
    (life,) = (f for f in meter.families() if f.name == "mcp_server_session_duration_seconds")
    assert [sum(sample.counts) for sample in life.samples] == [1]


@pytest.mark.medium
async def test_10000_mixed_calls_add_up() -> None:
    """OBS-03, over stdio, in both eras, 50 at a time."""
    server, meter = metered()
    sent: Counter[str] = Counter()
    for version in (LEGACY[-1], MODERN):
        async with stdio_wire(server, version) as wire:
            for turn in range(100):
                asked = []
                for number in range(50):
                    kind = ("echo", "wrong", "none", "wait", "bad")[(turn * 7 + number * number) % 5]
                    sent[kind] += 1
                    if kind == "bad":
                        asked.append(wire.ask("tools/call", {"name": 5}))
                        continue
                    arguments = {"text": "a"} if kind == "echo" else {}
                    request = wire.ask("tools/call", {"name": kind, "arguments": arguments})
                    if kind == "wait":
                        wire.cancel(request)
                    else:
                        asked.append(request)
                for request in asked:
                    await wire.answer(request)
            await wire.quiet()
    found = counts(meter)
    assert sum(sent.values()) == 10_000
    assert found["tools/call", "echo", ""] == sent["echo"]
    assert found["tools/call", "wrong", "tool_error"] == sent["wrong"]
    assert found["tools/call", "_other", "-32602"] == sent["none"]
    assert found["tools/call", "wait", "cancelled"] == sent["wait"]
    assert values(meter, "mcpd_refused") == {(("reason", "-32602"),): sent["bad"]}


async def test_what_clients_send_makes_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """OBS-02: names of tools, methods, versions and clients by the thousand."""
    server, meter = metered()
    async with memory_wire(server, LEGACY[-1]) as wire:
        for number in range(500):
            await wire.request("tools/call", {"name": f"tool {number}", "arguments": {}})
            await wire.request(f"method/{number}")
            await wire.request("prompts/get", {"name": f"prompt {number}"})
    names = {sample.labels for family in meter.families() for sample in family.samples}
    assert len(names) < 12, names

    # And a server whose own tools come and go without end is bounded too.
    monkeypatch.setattr(meters, "MOST_SERIES", 20)
    async with memory_wire(server, LEGACY[-1]) as wire:
        for number in range(100):
            server.tool(name=f"own_{number}")(lambda: "x")
            await wire.text(f"own_{number}")
    found = counts(meter)
    assert len(found) <= 22
    assert found["tools/call", "_other", ""] >= 80
    assert sum(n for (_, tool, _), n in found.items() if tool.startswith("own_") or tool == "_other") >= 100

    # As one whose tools fail with the codes of somebody else, whom they ask.
    @server.tool
    def fails(code: int) -> str:
        raise WireError(code, "theirs")

    before = len(counts(meter))
    async with memory_wire(server, LEGACY[-1]) as wire:
        for number in range(100):
            await wire.request("tools/call", {"name": "fails", "arguments": {"code": 1000 + number}})
    found = counts(meter)
    assert len(found) <= before + 2
    assert found["tools/call", "_other", "_other"] == 100


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_of_tools_can_be_read(name: str) -> None:
    """OBS-01, by the parsers of prometheus-client for both formats, and by promtool if it is there."""
    server, meter = metered()
    try:
        server.tool(name=name)(lambda: "x")
    except RegistrationError:
        is_tool = False
    else:
        is_tool = True
    async with memory_wire(server, MODERN) as wire:
        await wire.request("tools/call", {"name": name, "arguments": {}})
    families = [*meter.families(), *process_families()]
    for parse, text in (
        (parse_text, expose(families).decode()),
        (parse_open, expose(families, open_metrics=True).decode()),
    ):
        tools = {
            sample.labels.get("gen_ai_tool_name")
            for family in parse(text)
            for sample in family.samples
            if sample.name == f"{CALLS}_count"
        } - {None}
        assert tools == {name if is_tool and name.isprintable() and len(name) <= 128 else "_other"}


def test_both_formats_are_what_their_parsers_take() -> None:
    """OBS-01, with promtool as the other judge."""
    labels = (("tool", 'a"b\\c'),)
    families = [
        Family("a_seconds", "histogram", "A \\ help\nin two lines.", (Sample(labels, 3.5, (1, *[0] * 13, 2)),)),
        Family("b", "counter", "B.", (Sample((), 7),)),
        Family("c_bytes", "gauge", "C.", (Sample((), 0.25),)),
        Family("d", "info", "D.", (Sample((("version", "1"),), 1),)),
        Family("e", "gauge", "Nothing."),
    ]
    text, open_text = expose(families).decode(), expose(families, open_metrics=True).decode()
    by_name = {family.name: family for family in parse_open(open_text)}
    assert set(by_name) == {"a_seconds", "b", "c_bytes", "d"}
    assert by_name["a_seconds"].unit == "seconds"
    assert by_name["a_seconds"].type == "histogram"
    assert open_text.endswith("# EOF\n")
    assert "# EOF" not in text
    buckets = [s for s in by_name["a_seconds"].samples if s.name.endswith("_bucket")]
    assert [s.value for s in buckets] == [1.0] * len(BOUNDS) + [3.0]
    old = {sample.name: sample.value for family in parse_text(text) for sample in family.samples}
    assert old["b_total"] == 7
    assert old["c_bytes"] == 0.25
    assert old["d_info"] == 1
    assert old["a_seconds_sum"] == 3.5
    assert old["a_seconds_count"] == 3


def test_promtool_reads_it() -> None:
    """OBS-01; what it finds fault with would be printed, such as a counter without `_total`."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool, of Debian's package prometheus")
    meter = Meter(lambda name: True)
    families = [*meter.families(), *process_families(), Family("x", "counter", "X.", (Sample((), 1),))]
    done = subprocess.run([promtool, "check", "metrics"], input=expose(families), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        (None, False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75", True),
        ("application/openmetrics-text; version=1.0.0; q=0.0, text/plain", False),
        ("application/openmetrics-text; version=9.0.0", False),
    ],
)
def test_who_gets_open_metrics(accept: str | None, is_open: bool) -> None:
    assert wants_open_metrics(accept) is is_open
    assert "1.0.0" in OPEN_METRICS


def test_no_counter_goes_back_when_a_process_is_replaced() -> None:
    """OBS-14: what workers tell is summed; of a gauge that is a maximum the largest is told."""

    def told(calls: int, open_now: int, lag: float) -> list[Family]:
        return [
            Family("calls", "counter", "", (Sample((("tool", "a"),), calls),)),
            Family("seconds", "histogram", "", (Sample((), calls / 2, (calls, 1)),)),
            Family("open", "gauge", "", (Sample((), open_now),)),
            Family("lag", "gauge", "", (Sample((), lag),), True),
            Family("build", "info", "", (Sample((("version", "1"),), 1),)),
        ]

    total = Total()
    total.put("one", told(10, 3, 0.5))
    total.put("two", told(5, 1, 0.1))
    total.put("two", told(6, 2, 0.2))
    sums = {f.name: f.samples[0] for f in total.families()}
    assert (sums["calls"].value, sums["open"].value, sums["lag"].value, sums["build"].value) == (16, 5, 0.5, 1)
    assert (sums["seconds"].value, sums["seconds"].counts) == (8, (16, 2))
    total.gone("one")
    total.put("three", told(0, 1, 0.0))
    sums = {f.name: f.samples[0] for f in total.families()}
    assert (sums["calls"].value, sums["open"].value, sums["lag"].value) == (16, 3, 0.2)
    assert sums["seconds"].counts == (16, 3)
