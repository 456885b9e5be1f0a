"""A client whose conversation is recorded: the same, and readable as a host's is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.raw_http import Asked, as_json, raw_server, reply

from mcpd import Client, McpdError, Server
from mcpd.cli.trace.reading import TraceReader
from mcpd.client.channels import PausableChannel, StartableChannel, record_channel
from mcpd.client.target import connect
from mcpd.transports.recorder import Recorder, TraceFile


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_client_records_what_it_says(tmp_path: Path, version: str) -> None:
    server = Server("bed")

    @server.tool
    def water(bed: str) -> str:
        """Water a bed."""
        return f"{bed} is wet"

    recorder = Recorder(TraceFile(tmp_path / "t.jsonl", 10**6), ["bed"])
    channel = record_channel(await connect(server), recorder)
    async with Client(channel, version=version) as client:
        assert await client.call("water", bed="south") == "south is wet"
    recorder.close()
    reader = TraceReader()
    entries = [entry for line in (tmp_path / "t.jsonl").read_bytes().splitlines() for entry in reader.feed(line)]
    (answer,) = (entry for entry in entries if entry.method == "tools/call" and entry.role == "result")
    assert answer.seconds is not None
    assert answer.source == "server"
    assert not reader.unanswered()


async def test_a_client_behind_http_records_too(tmp_path: Path) -> None:
    """There each request has a connection of its own, and can fail alone."""

    def answer(request: Asked) -> bytes | None:
        asked = request.message
        if asked.get("method") == "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0}
            return as_json({"jsonrpc": "2.0", "id": asked["id"], "result": {"resultType": "complete"} | result})
        return reply(503, b"out for lunch")

    recorder = Recorder(TraceFile(tmp_path / "t.jsonl", 10**6), ["http"])
    async with raw_server(answer) as server:
        async with Client(record_channel(await connect(f"{server.url}/mcp"), recorder)) as client:
            with pytest.raises(McpdError, match="out for lunch"):
                await client.list_tools()
    recorder.close()
    text = (tmp_path / "t.jsonl").read_text()
    assert '"event":"failed"' in text
    assert '"supportedVersions"' in text


async def test_what_a_channel_can_shows(tmp_path: Path) -> None:
    """A process can be held back, and its recorded channel too."""
    recorder = Recorder(TraceFile(tmp_path / "t.jsonl", 10**6), ["sh"])
    inner = await connect([sys.executable, "-c", "input()"])
    channel: StartableChannel = record_channel(inner, recorder)
    assert isinstance(channel, PausableChannel)
    channel.pause()
    channel.resume()
    assert not channel.is_congested
    assert channel.is_multiplexed
    assert channel.origin().transport == "stdio"
    channel.send_separately(b"{}")
    await channel.drain()
    await channel.aclose()
    recorder.close()
    assert '"from":"host"' in (tmp_path / "t.jsonl").read_text()
