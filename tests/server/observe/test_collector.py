"""What a collector is sent by the real exporter: one trace over client, node and tool. One that hangs delays nobody."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.wires import LEGACY, MODERN, process_wire

SECRET = "hunter2-sk-4711"

# A tool with a span of its own, which asks another server.
SERVER = """
from opentelemetry import trace
from mcpd import Client, Context, Server, ToolError

far = Server("far")

@far.tool
async def water(text: str) -> str:
    return text

server = Server("garden")

@server.tool
async def dig(text: str, ctx: Context) -> str:
    with trace.get_tracer("own").start_as_current_span("in the tool"):
        async with Client(far) as client:
            return await client.call("water", text=text)

@server.tool
async def fail(secret: str) -> str:
    raise RuntimeError(secret)
"""


class Collector(http.server.ThreadingHTTPServer):
    """Takes spans as OTLP over HTTP; one that hangs answers nobody."""

    daemon_threads = True

    def __init__(self, *, hangs: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.hangs = hangs
        self.let_go = threading.Event()
        self.bodies: list[bytes] = []
        self.asked = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Any]:
        """All spans, each with the name of the service that sent it as `service`."""
        found = []
        for body in self.bodies:
            for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = [each.value.string_value for each in sent.resource.attributes if each.key == "service.name"]
                found += [(names[0], span) for scope in sent.scope_spans for span in scope.spans]
        return found


class _Taking(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.set()
        if self.server.hangs:
            self.server.let_go.wait(60)
            return
        assert self.headers["content-type"] == "application/x-protobuf"
        self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def collecting(*, hangs: bool = False) -> Iterator[Collector]:
    collector = Collector(hangs=hangs)
    thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        collector.let_go.set()
        collector.shutdown()
        thread.join(30)
        collector.server_close()


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def by_name(collector: Collector, name: str) -> Any:
    (found,) = (span for _, span in collector.spans() if span.name == name)
    return found


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_a_collector_gets_one_trace_of_client_node_and_tool(version: str, child: Child, tmp_path: Path) -> None:
    """OBS-06, OBS-07, OBS-08, OBS-12: over stdio, by the exporter for OTLP that `mcpd-server[otel]` has."""
    (tmp_path / "garden.py").write_text(SERVER)
    with collecting() as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={SECRET}"}
        async with process_wire(child, str(tmp_path / "garden.py"), version=version, env=env) as wire:
            parent = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
            assert (await wire.call("dig", parent, text=SECRET))["content"][0]["text"] == SECRET
            await wire.call("fail", secret=SECRET)
            await wire.error("tools/call", {"name": SECRET})
        assert {name for name, _ in collector.spans()} == {"garden"}
        # From the client's span down to what the tool asked of somebody else.
        served, inside = by_name(collector, "tools/call dig"), by_name(collector, "in the tool")
        asked = by_name(collector, "tools/call water")
        assert (served.kind, asked.kind) == (2, 3)
        assert {span.trace_id.hex() for span in (served, inside, asked)} == {TRACE}
        assert served.parent_span_id.hex() == SPAN
        assert inside.parent_span_id == served.span_id
        assert asked.parent_span_id == inside.span_id
        attributes = {each.key: each.value.string_value for each in served.attributes}
        assert attributes["network.transport"] == "pipe"
        assert attributes["mcp.protocol.version"] == version
        assert all(SECRET.encode() not in body for body in collector.bodies)


async def test_a_collector_that_hangs_delays_no_answer_and_no_end(child: Child, tmp_path: Path) -> None:
    """OBS-11: beside a server without traces, with what a busy machine adds."""
    (tmp_path / "garden.py").write_text(SERVER)
    with collecting(hangs=True) as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "10"}
        async with process_wire(child, str(tmp_path / "garden.py"), version=MODERN, env=env) as wire:
            for _ in range(20):
                assert await wire.text("dig", text="a") == "a"
            assert collector.asked.wait(30)
            for _ in range(20):
                assert await wire.text("dig", text="a") == "a"
            began = time.monotonic()
        assert time.monotonic() - began < 10
