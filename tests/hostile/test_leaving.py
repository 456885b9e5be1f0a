"""Clients that leave in the middle of things: of what was under way nothing stays, and their end is no error."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from hostile.serving import Served, frame, post, reset, served, upgrade, wait_until

pytestmark = pytest.mark.slow

TARGET = """
import asyncio
from mcpd import Context, Server
server = Server("leaving")

@server.tool
async def steps(count: int, pause: float, *, ctx: Context) -> str:
    for step in range(count):
        await ctx.progress(step, count)
        await asyncio.sleep(pause)
    return "done"

@server.tool
async def ask(ctx: Context) -> str:
    return str(await ctx.elicit("Sure?", {"type": "object", "properties": {}}))

@server.tool
def echo(text: str) -> str:
    return text
"""

VERSION = "2025-11-25"
CAPABILITIES = {"elicitation": {}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ENDED = "The session has ended"


def dumps(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def initialize(version: str = VERSION) -> dict[str, Any]:
    info = {"name": "leaver", "version": "1"}
    params = {"protocolVersion": version, "capabilities": CAPABILITIES, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": number}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "leaving.py"
    path.write_text(TARGET)
    return str(path)


def read_on(connection: socket.socket, seconds: float = 60.0) -> bytes:
    """All until the server closes."""
    connection.settimeout(seconds)
    said = b""
    while chunk := connection.recv(65536):
        said += chunk
    return said


def settled(server: Served, descriptors: int) -> str:
    """Nothing of those that left is open any more; gives the log."""
    wait_until(lambda: server.descriptors <= descriptors, "connections stay open")
    log = server.end()
    assert "Traceback" not in log, log[:4000]
    assert "destroyed" not in log, log[:4000]
    return log


@pytest.mark.parametrize("how", ["reset", "close frame", "half closed"])
@pytest.mark.parametrize("transport", ["--ws", "--http"])
def test_a_websocket_that_ends_while_calls_report(child: Child, target: str, transport: str, how: str) -> None:
    """Results are held back behind progress (`send_separately`), and others are queued, when the connection goes."""
    calls = b"".join(frame(1, dumps(call(number, "steps", count=2, pause=0))) for number in range(1, 21))
    hello = frame(1, dumps(initialize())) + frame(1, dumps(INITIALIZED))
    with served(child, transport, ":0", target) as server:
        before = server.descriptors
        for number in range(40):
            connection = server.connect()
            connection.sendall(upgrade(server.host))
            assert b"HTTP/1.1 101" in connection.recv(10_000)
            connection.sendall(hello + calls)
            time.sleep(0.001 * (number % 20))  # so that it ends at another place each time
            if how == "reset":
                reset(connection)
                continue
            if how == "close frame":
                connection.sendall(frame(8, b"\x03\xe8"))
            else:
                connection.shutdown(socket.SHUT_WR)
            try:
                read_on(connection)
            except ConnectionError:
                pass
            connection.close()
        settled(server, before)


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_stdin_that_ends_while_results_are_held_back(child: Child, target: str, seconds: float) -> None:
    """All of them come, each behind its progress, though nobody read meanwhile."""
    with subprocess.Popen(
        child.mcpd("serve", "--stdio", target),
        env=child.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        messages = [initialize(), INITIALIZED, *(call(number, "steps", count=2, pause=0) for number in range(1, 201))]
        process.stdin.write(b"".join(dumps(message) + b"\n" for message in messages))
        process.stdin.flush()
        time.sleep(seconds)
        process.stdin.close()
        said = [json.loads(line) for line in process.stdout]
        assert process.wait(60) == 0
    told: dict[int, int] = {}
    for message in said:
        if "method" in message:
            token = message["params"]["progressToken"]
            told[token] = told.get(token, 0) + 1
        elif message["id"]:
            assert told[message["id"]] == 2
    assert sorted(message["id"] for message in said if "id" in message) == list(range(201))


# ------------------------------------------------------------------------------------------ sessions


class Session:
    """A session over HTTP, a connection for each request."""

    def __init__(self, server: Served, version: str = VERSION) -> None:
        self.server = server
        answer = server.ask(post(server.host, dumps(initialize(version)), b"Connection: close"))
        found = re.search(rb"(?i)mcp-session-id: (\S+)", answer)
        assert found is not None, answer
        self.header = b"Mcp-Session-Id: " + found[1]
        self.ask(INITIALIZED)

    def ask(self, message: Any) -> bytes:
        return self.server.ask(post(self.server.host, dumps(message), self.header, b"Connection: close"))

    def begin(self, message: Any) -> socket.socket:
        connection = self.server.connect()
        connection.sendall(post(self.server.host, dumps(message), self.header, b"Connection: close"))
        return connection

    def listen(self, *headers: bytes) -> socket.socket:
        connection = self.server.connect()
        more = b"".join(header + b"\r\n" for header in (self.header, *headers, b"Accept: text/event-stream"))
        connection.sendall(b"GET /mcp HTTP/1.1\r\n%b%bConnection: close\r\n\r\n" % (self.server.host, more))
        return connection

    def delete(self) -> bytes:
        lines = b"DELETE /mcp HTTP/1.1\r\n%b%b\r\nConnection: close\r\n\r\n"
        return self.server.ask(lines % (self.server.host, self.header))


def heard(connection: socket.socket, what: bytes) -> bytes:
    """What came until `what` did."""
    said = b""
    while what not in said:
        chunk = connection.recv(65536)
        assert chunk, said
        said += chunk
    return said


def test_a_session_that_is_deleted_while_its_calls_run(child: Child, target: str) -> None:
    """Each request that waits is told, whatever it waits for, and the streams end."""
    with served(child, "--http", ":0", target) as server:
        before = server.descriptors
        session = Session(server)
        listening = session.listen()
        heard(listening, b"data:")
        waiting = [session.begin(call(1, "steps", count=10_000, pause=0.05)), session.begin(call(2, "ask"))]
        heard(waiting[0], b"progress")
        heard(waiting[1], b"elicitation/create")
        assert session.delete().startswith(b"HTTP/1.1 204")
        for number, connection in enumerate(waiting, 1):
            said = read_on(connection)
            assert ENDED.encode() in said, said
            assert b'"id":%d' % number in said
        read_on(listening)
        assert session.delete().startswith(b"HTTP/1.1 404")
        assert session.ask(call(3, "echo", text="x")).startswith(b"HTTP/1.1 404")

        batch = Session(server, "2025-03-26")
        waits = batch.begin([call(number, "steps", count=10_000, pause=0.05) for number in range(1, 6)])
        heard(waits, b"progress")
        assert batch.delete().startswith(b"HTTP/1.1 204")
        assert read_on(waits).count(ENDED.encode()) == 5
        for connection in (*waiting, listening, waits):
            connection.close()
        settled(server, before)


def test_a_stream_that_several_resume_is_the_last_ones(child: Child, target: str) -> None:
    """The others end, the answer comes once; and with the session it ends for all."""
    with served(child, "--http", ":0", target) as server:
        before = server.descriptors
        for is_deleted in (False, True):
            session = Session(server)
            first = session.begin(call(1, "steps", count=10_000 if is_deleted else 20, pause=0.05))
            said = heard(first, b"progress")
            found = re.search(rb"id: (\S+)", said)
            assert found is not None, said
            reset(first)
            several = [session.listen(b"Last-Event-ID: " + found[1]) for _ in range(4)]
            if is_deleted:
                for connection in several:
                    heard(connection, b"text/event-stream")
                assert session.delete().startswith(b"HTTP/1.1 204")
            ended = [read_on(connection) for connection in several]
            answer = ENDED.encode() if is_deleted else b'"result"'
            assert [answer in one for one in ended].count(True) == 1, ended
            for connection in several:
                connection.close()
            if not is_deleted:
                other = Session(server)
                for wrong in (found[1], b"x", b"-1-1", found[1] + b"\xff", b"9" * 400):
                    with other.listen(b"Last-Event-ID: " + wrong) as connection:
                        assert read_on(connection).startswith(b"HTTP/1.1 400")
        settled(server, before)
