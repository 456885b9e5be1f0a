"""A whole process that tells of itself: while secrets come from everywhere, and while all tools are busy."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from conftest import Child
from support.clock import until
from support.http_peer import call, initialize, modern, post
from support.service_stage import free_ports

SECRET = "hunter2-sk-4711"

SERVER = """
import time
from mcpd import Server, ToolError

server = Server("garden")

@server.tool
async def ask(password: str) -> str:
    return "ok"

@server.tool
async def fail(password: str) -> str:
    raise ToolError("it went wrong")

@server.tool
def hold(password: str) -> str:
    time.sleep(600)
    return ""
"""


class Garden:
    """`mcpd serve` on HTTP with everything that tells something switched on."""

    def __init__(self, child: Child, folder: Path) -> None:
        self.port, self.metrics = free_ports(2)
        self.wire_log = folder / "wire.jsonl"
        self.log = folder / "log"
        (folder / "garden.py").write_text(SERVER)
        line = child.mcpd(
            "serve", "--http", f"127.0.0.1:{self.port}", "--metrics", f"127.0.0.1:{self.metrics}", "--max-threads", "2",
            "--log-format", "json", "--log-level", "debug", "--wire-log", str(self.wire_log), "--control", "never",
            str(folder / "garden.py"),
        )  # fmt: skip
        env = {**child.env, "OTEL_TRACES_EXPORTER": "console", "MY_API_KEY": SECRET, "MCPD_STATE_KEY": SECRET * 2}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(line, env=env, stderr=log, stdin=subprocess.DEVNULL)

    def get(self, path: str, port: int = 0) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.metrics}{path}", timeout=30) as answer:
            assert answer.status == 200
            return str(answer.read().decode())

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get("/readyz") == "ok\n"
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    async def send(self, data: bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(data)
        return reader

    writers: list[asyncio.StreamWriter]


@asynccontextmanager
async def served(child: Child, tmp_path: Path) -> AsyncIterator[Garden]:
    found = Garden(child, tmp_path)
    found.writers = []
    try:
        await until(found.is_ready)
        yield found
    finally:
        for writer in found.writers:
            writer.close()
        if found.process.poll() is None:
            found.process.kill()
        found.process.wait(30)


async def test_secrets_are_told_nowhere(child: Child, tmp_path: Path) -> None:
    """OBS-12: in arguments, headers, state and environment; asked of the log, spans, metrics, status and wire log."""
    async with served(child, tmp_path) as garden:
        secret = {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET, "Cookie": f"session={SECRET}"}
        arguments = {"password": SECRET}
        for data in (
            modern("tools/call", {"name": "ask", "arguments": arguments}, secret),
            modern("tools/call", {"name": "fail", "arguments": arguments}, secret),
            modern("tools/call", {"name": "ask", "arguments": arguments, "requestState": SECRET}, secret),
            modern("tools/call", {"name": "ask", "arguments": {"token": SECRET}}, secret),
            modern("no/such", {"api_key": SECRET}, secret),
            post(initialize(), {**secret, "Mcp-Session-Id": SECRET}),
            post(call("tools/call", {"name": "ask", "arguments": arguments}), {**secret, "Mcp-Session-Id": SECRET}),
            post(b'{"password": "' + SECRET.encode(), secret),
        ):
            reader = await garden.send(data)
            assert (await reader.readline()).startswith(b"HTTP/1.1 ")
        told = {"metrics": garden.get("/metrics"), "status": garden.get("/statusz")}
        assert 'gen_ai_tool_name="ask"' in told["metrics"]
        assert '"name":"garden"' in told["status"]
        garden.process.terminate()
        assert await asyncio.to_thread(garden.process.wait, 30) == 0
        # The log has the spans too; the exporter prints them there.
        told["log and spans"], told["wire log"] = garden.log.read_text(), garden.wire_log.read_text()
        assert "tools/call ask" in told["log and spans"]
        assert '"transport":"http"' in told["log and spans"]
        assert told["wire log"].count("tools/call") >= 4
        for what, text in told.items():
            assert SECRET not in text, (what, [line for line in text.splitlines() if SECRET in line])


async def test_health_is_told_while_all_tools_are_busy(child: Child, tmp_path: Path) -> None:
    """OBS-13: on the port of HTTP as on that of metrics. Functions that wait hold all threads there are."""
    async with served(child, tmp_path) as garden:
        for number in range(8):
            await garden.send(modern("tools/call", {"name": "hold", "arguments": {"password": "x"}}, id=number))
        await until(lambda: json.loads(garden.get("/statusz"))["in_flight"] == 8)
        for port in (garden.port, garden.metrics):
            assert garden.get("/healthz", port) == "ok\n"
            assert garden.get("/readyz", port) == "ok\n"
        assert "mcpd_requests_in_flight 8\n" in garden.get("/metrics")
