"""Connections stop where descriptors do: who comes then waits, nothing fails, and the log stays short."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from conftest import Child
from support.http_peer import modern

_PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD))
from mcpd import Server
server = Server("few")

@server.tool
def read() -> str:
    with open("/etc/hostname") as file, open("/etc/hosts"):
        return str(len(file.read()) > 0)

server.run(KIND="127.0.0.1:0", announce=lambda url: print(url, flush=True))
"""


class House:
    """A server in a process of its own that may open few files."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port
        self.log = ""

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@asynccontextmanager
async def house(child: Child, kind: str, soft: int, hard: int) -> AsyncIterator[House]:
    program = _PROGRAM.replace("SOFT", str(soft)).replace("HARD", str(hard)).replace("KIND", kind)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(child.python, "-c", program, stdout=pipe, stderr=pipe, env=child.env)
    assert process.stdout is not None
    assert process.stderr is not None
    told = asyncio.create_task(process.stderr.read())
    async with asyncio.timeout(60):
        url = (await process.stdout.readline()).decode()
    found = re.search(r":(\d+)/", url)
    assert found is not None, url
    running = House(process, int(found[1]))
    try:
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()
        running.log = (await told).decode()


@pytest.mark.parametrize("kind", ["http", "ws"])
async def test_more_connections_than_descriptors(child: Child, kind: str) -> None:
    async with house(child, kind, 64, 64) as running:
        crowd = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(200)]
        # As many as there is room for are accepted, and there it stays.
        before = -1
        async with asyncio.timeout(60):
            while running.open_files != before or before < 30:
                before = running.open_files
                await asyncio.sleep(0.1)
        assert running.open_files <= 64 - 8, "a reserve for files is left"
        for _, writer in crowd:
            writer.transport.abort()
        # Who comes when they have gone is served, with files.
        if kind == "http":
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(modern("tools/call", {"name": "read", "arguments": {}}))
            async with asyncio.timeout(60):
                head = await reader.readuntil(b"\r\n\r\n")
                assert b" 200 " in head, head
                length = re.search(rb"content-length: (\d+)", head)
                assert length is not None
                body = json.loads(await reader.readexactly(int(length[1])))
            assert body["result"]["content"][0]["text"] == "True"
            writer.close()
    assert "Traceback" not in running.log
    assert len(running.log.splitlines()) < 20, running.log
    assert "ulimit -n" in running.log


async def test_calls_work_while_the_crowd_is_there(child: Child) -> None:
    async with house(child, "http", 64, 64) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        crowd = []
        for number in range(100):
            crowd.append(await asyncio.open_connection("127.0.0.1", running.port))
            if number % 10 == 0:
                writer.write(modern("tools/call", {"name": "read", "arguments": {}}))
                async with asyncio.timeout(60):
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"content-length: (\d+)", head)
                    assert length is not None, head
                    assert b'"isError":true' not in await reader.readexactly(int(length[1]))
        for _, other in [*crowd, (reader, writer)]:
            other.transport.abort()
    assert "Traceback" not in running.log


async def test_the_soft_limit_is_raised(child: Child) -> None:
    async with house(child, "http", 64, 512) as running:
        with open(f"/proc/{running.process.pid}/limits") as file:
            (line,) = [line for line in file if line.startswith("Max open files")]
        assert line.split()[3:5] == ["512", "512"]
    assert "At most" in running.log, "512 descriptors are fewer than 10,000 connections"
