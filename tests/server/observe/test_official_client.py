"""The newest official Python client, which makes spans of what it asks: they and ours are one trace at a collector."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import opentelemetry.sdk.trace
import pytest
from conftest import Child
from server.observe.test_collector import SERVER, by_name, collecting
from support.official_clients import CLIENTS

# The client's environment has OpenTelemetry's interface alone: its other half is this one's, behind all that it has.
CLIENT = """
import asyncio, json, os, sys
(url, mode, command, *arguments), site = json.loads(sys.argv[1]), sys.argv[2]
sys.path.append(site)
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
provider = TracerProvider(resource=Resource({"service.name": "official"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=url + "/v1/traces")))
trace.set_tracer_provider(provider)
from mcp import Client, StdioServerParameters

async def main():
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with Client(server, mode=mode) as client:
        result = await client.call_tool("dig", {"text": "a"})
        assert result.content[0].text == "a"

asyncio.run(main())
provider.shutdown()
"""


@pytest.mark.slow  # two processes that load OpenTelemetry, one of them the official client
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_its_spans_and_ours_are_one_trace(mode: str, child: Child, tmp_path: Path) -> None:
    """OBS-07: each of our spans has the client's as its parent."""
    python, _, installed = CLIENTS["mcp 2"]
    if not (python.exists() and installed.exists()):
        pytest.skip("needs the official client 'mcp 2': make setup-test installs it")
    site = Path(opentelemetry.sdk.trace.__file__).parents[3]
    (tmp_path / "garden.py").write_text(SERVER)
    with collecting() as collector:
        command = child.mcpd("serve", "--stdio", str(tmp_path / "garden.py"))
        done = await asyncio.to_thread(
            subprocess.run,
            [python, "-c", CLIENT, json.dumps([collector.url, mode, *command]), str(site)],
            env={**child.env, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert {name for name, _ in collector.spans()} == {"official", "garden"}
        served = by_name(collector, "tools/call dig")
        (asked,) = (span for name, span in collector.spans() if span.span_id == served.parent_span_id)
        theirs = [name for name, span in collector.spans() if span is asked or span.span_id == asked.span_id]
    assert theirs == ["official"]
    assert (asked.kind, served.kind) == (3, 2)
    assert asked.trace_id == served.trace_id
    assert "tools/call" in asked.name
