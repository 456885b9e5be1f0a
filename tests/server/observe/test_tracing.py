"""Spans of requests: the right parent over every transport in every version, and nothing in them that is a secret."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from msgspec import Struct
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.clock import until
from support.http_wire import http_wire
from support.wires import LEGACY, MODERN, each_version, memory_wire, stdio_wire, websocket_wire

from mcpd import Client, Context, Server, SyncContext, ToolError
from mcpd.protocol.wire.trace_context import parse, read
from mcpd.server.observe.tracing import Tracing, provider_of
from mcpd.server.serving import _is_traced

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
SECRET = "hunter2-sk-4711"


class Traced:
    """A server with spans, and what was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.server = Server("traced")
        self.tracing = Tracing(self.server, provider)
        self.seen: list[Any] = []
        self._add_tools()
        self.tracing.attach()

    def _add_tools(self) -> None:
        server, seen = self.server, self.seen

        @server.tool
        async def echo(text: str, ctx: Context) -> str:
            await asyncio.sleep(0)
            seen.append((ctx.trace, trace.get_current_span().get_span_context()))
            return text

        @server.tool
        def in_thread(ctx: SyncContext) -> str:
            seen.append((ctx.trace, trace.get_current_span().get_span_context()))
            return "x"

        @server.tool
        async def wrong(secret: str) -> str:
            raise ToolError(secret)

        @server.tool
        async def broken(secret: str) -> str:
            raise RuntimeError(secret)

        @server.tool
        async def wait() -> str:
            await asyncio.Event().wait()
            return ""

    def spans(self, method: str = "tools/call") -> list[ReadableSpan]:
        return [s for s in self.exporter.get_finished_spans() if (s.attributes or {})["mcp.method.name"] == method]


@pytest.fixture
def traced() -> Iterator[Traced]:
    found = Traced()
    yield found
    found.tracing.stop()


@each_wire
@each_version
async def test_the_parent_is_what_the_client_sent(open_wire: Any, version: str, traced: Traced) -> None:
    """OBS-06, OBS-08: and a tool is given its own span, in a coroutine and in a thread."""
    async with open_wire(traced.server, version) as wire:
        await wire.call("echo", {"traceparent": PARENT, "tracestate": "a=1", "baggage": "k=v"}, text="hi")
        await wire.call("in_thread", {"traceparent": PARENT})
        await wire.call("echo", text="alone")
    first, threaded, alone = traced.spans()
    for span, name in ((first, "echo"), (threaded, "in_thread")):
        assert (span.name, span.kind) == (f"tools/call {name}", SpanKind.SERVER)
        assert span.parent is not None
        assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
        assert span.parent.is_remote
        assert (span.attributes or {})["gen_ai.tool.name"] == name
        assert (span.attributes or {})["mcp.protocol.version"] == version
    assert first.context.trace_state.get("a") == "1"
    assert alone.parent is None
    for (given, current), span in zip(traced.seen, (first, threaded, alone), strict=True):
        assert current.span_id == span.context.span_id
        assert given is not None
        assert (given.trace_id, given.span_id) == (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")
    assert traced.seen[0][0].headers()["baggage"] == "k=v"
    assert traced.seen[0][0].headers()["tracestate"] == "a=1"
    # Nothing is left behind in the context of whoever reads the wire.
    assert not trace.get_current_span().get_span_context().is_valid


@each_wire
async def test_a_task_belongs_to_the_trace_of_its_call(open_wire: Any, traced: Traced) -> None:
    """OBS-06, OBS-08: its span lasts until the work has ended; requests about the task have spans of their own."""
    gate = asyncio.Event()

    @traced.server.tool(task="required")
    async def long(ctx: Context) -> str:
        await gate.wait()
        traced.seen.append(ctx.trace)
        return ""

    capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with open_wire(traced.server, MODERN, capabilities=capabilities) as wire:
        params = {"name": "long", "arguments": {}}
        created = await wire.result("tools/call", params, meta={"traceparent": PARENT})
        assert traced.spans() == []
        gate.set()
        await until(traced.spans)
        (span,) = traced.spans()
        assert span.name == "tools/call long"
        assert span.parent is not None
        assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
        assert (traced.seen[0].trace_id, traced.seen[0].span_id) == (TRACE, f"{span.context.span_id:016x}")
        await wire.result("tasks/get", {"taskId": created["taskId"]})
        assert [one.parent for one in traced.spans("tasks/get")] == [None]


@each_version
async def test_a_span_around_the_request_is_linked_to(version: str, traced: Traced) -> None:
    """That of the HTTP request, if the program's own ASGI server is traced: the parent is still the client's."""
    around = TracerProvider().get_tracer("web").start_span("POST /mcp")
    with trace.use_span(around, end_on_exit=True):
        async with memory_wire(traced.server, version) as wire:
            await wire.call("echo", {"traceparent": PARENT}, text="hi")
            await wire.call("echo", text="alone")
            here = around.get_span_context()
            own = f"00-{here.trace_id:032x}-{here.span_id:016x}-01"
            await wire.call("echo", {"traceparent": own}, text="its own")
    first, alone, own_child = traced.spans()
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == SPAN
    assert alone.parent is None
    for span in (first, alone):
        assert [link.context.span_id for link in span.links] == [here.span_id]
    assert own_child.parent is not None
    assert own_child.parent.span_id == here.span_id
    assert not own_child.links


@pytest.mark.parametrize(
    "wrong",
    [
        f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", PARENT.upper(), PARENT + "-x",
        PARENT[:-1], "", "x" * 100_000, 5, None, {"a": 1}, [PARENT], f"00-{TRACE}-{SPAN}-0g", PARENT + "\n",
    ],
)  # fmt: skip
async def test_what_is_malformed_is_ignored(wrong: Any, traced: Traced) -> None:
    """OBS-05, S26-035."""
    async with memory_wire(traced.server, MODERN) as wire:
        await wire.call("echo", {"traceparent": wrong, "tracestate": 7, "baggage": "ü\n"}, text="hi")
        await wire.call("echo", {"traceparent": PARENT, "tracestate": 7, "baggage": "ü\n"}, text="hi")
    first, second = traced.spans()
    assert first.parent is None
    assert second.parent is not None
    assert traced.seen[1][0].headers().keys() == {"traceparent"}


def test_later_versions_and_bare_bytes() -> None:
    assert parse({"traceparent": f"01-{TRACE}-{SPAN}-00-more"}) is not None
    assert read(b'{"_meta": {"traceparent": ') is None
    assert read(b'{"traceparent": "x"}') is None


async def test_without_spans_a_tool_has_what_the_client_sent() -> None:
    server = Server("plain")
    seen = []

    @server.tool
    async def look(ctx: Context) -> str:
        seen.append(ctx.trace)
        return ""

    async with memory_wire(server, LEGACY[0]) as wire:
        await wire.call("look")
        await wire.call("look", {"traceparent": PARENT})
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[1].traceparent == PARENT


async def test_how_calls_end_without_what_was_said(traced: Traced) -> None:
    """OBS-12: no arguments, no errors' texts, no made-up names."""
    async with memory_wire(traced.server, LEGACY[-1]) as wire:
        await wire.call("wrong", secret=SECRET)
        await wire.call("broken", secret=SECRET)
        await wire.error("tools/call", {"name": SECRET})
        await wire.error("resources/read", {"uri": f"x://{SECRET}"})
        waiting = wire.ask("tools/call", {"name": "wait", "arguments": {}})
        await wire.quiet()
        wire.cancel(waiting)
        await wire.quiet()
    wrong, broken, unknown, waited = traced.spans()
    assert [(span.attributes or {}).get("error.type") for span in (wrong, broken, unknown, waited)] == [
        "tool_error", "tool_error", "-32602", "cancelled",
    ]  # fmt: skip
    assert {span.status.status_code for span in (wrong, broken, unknown, waited)} == {StatusCode.ERROR}
    assert unknown.name == "tools/call _other"
    for span in traced.exporter.get_finished_spans():
        assert SECRET not in span.to_json()


async def test_lines_of_the_log_say_which_trace(traced: Traced, caplog: pytest.LogCaptureFixture) -> None:
    import json
    import logging

    from mcpd.cli.log import _JsonFormatter
    from mcpd.server.dispatcher.observing import CallLog

    @traced.server.tool
    async def noisy() -> str:
        lines.append(json.loads(formatter.format(logging.LogRecord("own", 20, "", 0, "in it", (), None))))
        return ""

    lines: list[dict[str, Any]] = []
    formatter = _JsonFormatter()
    traced.server.add_observer(CallLog(logging.INFO))
    with caplog.at_level(logging.INFO, "mcpd"):
        async with memory_wire(traced.server, MODERN) as wire:
            await wire.call("noisy", {"traceparent": PARENT})
    lines += [json.loads(formatter.format(record)) for record in caplog.records if "tools/call" in record.getMessage()]
    (span,) = traced.spans()
    assert len(lines) == 2
    for line in lines:
        assert (line["trace_id"], line["span_id"]) == (TRACE, f"{span.context.span_id:016x}")


async def test_our_own_client_carries_it_on(traced: Traced) -> None:
    """OBS-08: a tool that calls another server: a CLIENT span between both; outside of a call it begins a trace."""
    far = Traced()
    try:

        @traced.server.tool
        async def relay() -> str:
            async with Client(far.server) as client:
                await client.call("echo", text="on")
            return ""

        async with Client(far.server) as client:
            await client.call("echo", text="alone")
        async with memory_wire(traced.server, MODERN) as wire:
            await wire.call("relay", {"traceparent": PARENT})
        (relayed,) = traced.spans()
        # Both servers are of this process, and the one that began last traces what the process asks.
        alone, carried = (span for span in far.spans() if span.kind is SpanKind.SERVER)
        first, second = (span for span in far.spans() if span.kind is SpanKind.CLIENT)
        assert first.parent is None
        assert f"{first.context.trace_id:032x}" != TRACE
        for client, served in ((first, alone), (second, carried)):
            assert (client.name, (client.attributes or {})["gen_ai.tool.name"]) == ("tools/call echo", "echo")
            assert served.parent is not None
            assert served.parent.span_id == client.context.span_id
        assert second.parent is not None
        assert second.parent.span_id == relayed.context.span_id
        assert f"{carried.context.trace_id:032x}" == TRACE
    finally:
        far.tracing.stop()


async def test_a_client_of_an_older_version_opens_within_a_call(traced: Traced) -> None:
    """OBS-08: `initialize` carries the trace, too."""
    far = Traced()
    try:

        @traced.server.tool
        async def relay() -> str:
            async with Client(far.server, version="2025-11-25") as client:
                return str(await client.call("echo", text="on"))

        async with memory_wire(traced.server, MODERN) as wire:
            called = await wire.call("relay", {"traceparent": PARENT})
        assert called["content"][0]["text"] == "on"
    finally:
        far.tracing.stop()


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
async def test_questions_to_the_client_carry_it_on(open_wire: Any, traced: Traced) -> None:
    """OBS-08: a request of ours to the client is a CLIENT span, which the client hears of in `_meta`."""

    class Sure(Struct):
        really: bool

    @traced.server.tool
    async def dig(ctx: Context) -> str:
        answer = await ctx.elicit("Really?", Sure)
        roots = await ctx.list_roots()
        return f"{answer.action} {len(roots)}"

    async with open_wire(traced.server, LEGACY[-1], capabilities={"elicitation": {}, "roots": {}}) as wire:
        call = wire.ask("tools/call", {"name": "dig"}, meta={"traceparent": PARENT})
        heard = []
        for answer in ({"action": "decline"}, {"roots": []}):
            asked = await wire.receive()
            heard.append(asked["params"]["_meta"]["traceparent"])
            wire.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        assert (await wire.answer(call))["result"]["content"][0]["text"] == "decline 0"
    first, second = traced.spans("elicitation/create") + traced.spans("roots/list")
    (served,) = traced.spans()
    for span, said in zip((first, second), heard, strict=True):
        assert span.kind is SpanKind.CLIENT
        assert span.parent is not None
        assert span.parent.span_id == served.context.span_id
        assert said == f"00-{TRACE}-{span.context.span_id:016x}-01"


async def test_a_question_that_fails_is_a_span_that_says_so(traced: Traced) -> None:
    """OBS-12: by its code, not by its text. Nobody traces: nothing is added to what is asked."""

    @traced.server.tool
    async def dig(ctx: Context) -> str:
        return str(await ctx.list_roots())

    async def refuse() -> dict[str, Any]:
        async with memory_wire(traced.server, LEGACY[-1], capabilities={"roots": {}}) as wire:
            call = wire.ask("tools/call", {"name": "dig"})
            asked = await wire.receive()
            wire.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": SECRET}})
            assert (await wire.answer(call))["result"]["isError"]
            return dict(asked)

    await refuse()
    (span,) = traced.spans("roots/list")
    assert (span.attributes or {})["error.type"] == "-1"
    assert SECRET not in span.to_json()
    traced.tracing.stop()
    assert "_meta" not in (await refuse()).get("params", {})
    assert len(traced.spans("roots/list")) == 1


class Hanging(SpanExporter):
    """A collector that never answers."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.let_go.wait(60)
        return SpanExportResult.FAILURE


@pytest.mark.medium
async def test_a_collector_that_hangs_delays_nothing(traced: Traced) -> None:
    """OBS-11."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = Hanging()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=1))
    server = Server("traced")
    server.tool(name="echo")(lambda: "x")
    tracing = Tracing(server, provider)
    tracing.attach()
    async with memory_wire(server, MODERN) as wire:
        for _ in range(100):
            await wire.call("echo")
    began = time.monotonic()
    await asyncio.to_thread(tracing.stop)
    assert time.monotonic() - began < 5  # a second, and what a busy machine adds
    exporter.let_go.set()


def test_what_the_environment_asks_for(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace")
    monkeypatch.setattr(
        "mcpd.server.observe.tracing.provider_of_program", lambda: None
    )  # whatever other tests have set
    assert not _is_traced({})
    assert not _is_traced({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
    assert not _is_traced({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"})
    assert _is_traced({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
    with pytest.raises(ValueError, match="http/protobuf"):
        provider_of({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "x")
    with pytest.raises(ValueError, match="use otlp"):
        provider_of({"OTEL_TRACES_EXPORTER": "zipkin"}, "x")
    provider = provider_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, "my server")
    assert provider.resource.attributes["service.name"] == "my server"
    provider.shutdown()

    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    assert Tracing.begin(Server("x")) is None
    assert "No traces: OTEL_TRACES_EXPORTER" in caplog.text
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert Tracing.begin(Server("x")) is None
    assert "mcpd-server[otel]" in caplog.text


SERVER = """
from mcpd import Server
server = Server("garden")

@server.tool
async def echo(text: str) -> str:
    return text
"""

# The official client in its own environment; what that lacks of opentelemetry is found in ours, behind all that it has.
CLIENT = """
import asyncio, json, sys
sys.path.append(sys.argv[1])
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main():
    async with Client(stdio_client(StdioServerParameters(command=sys.argv[2], args=sys.argv[3:], env={ENV}))) as client:
        await client.call_tool("echo", {"text": "hi"})

asyncio.run(main())
for span in exporter.get_finished_spans():
    print(json.dumps([span.name, f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"]))
"""


@pytest.mark.slow
def test_the_official_client_and_we_make_one_trace(child: Child, tmp_path: Path) -> None:
    """OBS-07: two spans, of two processes, the server's below the client's."""
    python = REPOSITORY / ".tools" / "mcp2" / "bin" / "python"
    if not python.exists():
        pytest.skip("needs the official Python client: make setup-test")
    import json

    (tmp_path / "server.py").write_text(SERVER)
    env = {**child.env, "OTEL_TRACES_EXPORTER": "console"}
    (tmp_path / "client.py").write_text(CLIENT.replace("{ENV}", repr(env)))
    site = str(Path(trace.__file__).parents[2])
    done = subprocess.run(
        [python, str(tmp_path / "client.py"), site, *child.mcpd("serve", "--stdio", str(tmp_path / "server.py"))],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    (call,) = [span for span in theirs if "echo" in span[0]]
    decoder, text, ours = json.JSONDecoder(), done.stderr, []
    while (start := text.find('{\n    "name"')) >= 0:
        span, end = decoder.raw_decode(text[start:])
        ours.append(span)
        text = text[start + end :]
    (answer,) = [span for span in ours if span["name"] == "tools/call echo"]
    assert answer["context"]["trace_id"] == f"0x{call[1]}"
    assert answer["parent_id"] == f"0x{call[2]}"
    assert answer["kind"] == "SpanKind.SERVER"


async def test_a_call_that_is_cancelled_before_its_first_step_leaves_no_warning(traced: Traced) -> None:
    """Where tasks are not eager (Python 3.11): request and cancellation come in one read."""
    async with stdio_wire(traced.server, LEGACY[-1]) as wire:
        wire.cancel(wire.ask("tools/call", {"name": "wait"}))
        await wire.quiet()
