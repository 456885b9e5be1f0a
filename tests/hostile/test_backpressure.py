"""A tool that reports in a loop holds no more than a little memory, loses nothing, and keeps nobody else waiting.

The server is a process of its own, whose peak of memory is read from /proc; the client reads all the time.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Child
from websockets.sync.client import connect

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

SERVER = """
import os
from mcpd import Context, Server

server = Server("flood")

@server.tool
async def messages(ctx: Context, times: int) -> str:
    for _ in range(times):
        await ctx.warning("x" * 1000)
    return "done"

@server.tool
async def progress(ctx: Context, times: int) -> str:
    for number in range(times):
        await ctx.progress(number + 1, times, "x" * 1000)
    return "done"

@server.tool
def messages_in_thread(ctx: Context, times: int) -> str:
    for _ in range(times):
        ctx.warning("x" * 1000)
    return "done"

@server.tool
async def small(ctx: Context, times: int) -> str:
    for _ in range(times):
        await ctx.warning("")
    return "done"

@server.tool
async def echo() -> str:
    return "echo"
"""

MOST_GROWTH = 16 * 1024
"""In KiB: 1 MiB is what may wait, the rest is the interpreter's."""


@pytest.fixture
def server_file(tmp_path: Path) -> str:
    path = tmp_path / "flood.py"
    path.write_text(SERVER)
    return str(path)


class Talk(NamedTuple):
    """One client: what it sends goes by `ask`; `listen` gives its messages, also those of `ask_meanwhile`."""

    process: int
    ask: Callable[[dict[str, Any]], None]
    ask_meanwhile: Callable[[dict[str, Any]], None]
    listen: Callable[[], Iterator[bytes]]


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


OPENING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "flood", "version": "1"}},
}


@contextmanager
def over_stdio(child: Child, server_file: str) -> Iterator[Talk]:
    command = child.mcpd("serve", "--stdio", server_file)
    with subprocess.Popen(command, env=child.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(message: dict[str, Any]) -> None:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()

        yield Talk(process.pid, ask, ask, lambda: iter(stdout.readline, b""))
        stdin.close()
        assert process.wait(30) == 0


@contextmanager
def listening(child: Child, server_file: str, option: str) -> Iterator[tuple[int, str]]:
    command = child.mcpd("serve", option, "127.0.0.1:0", server_file)
    with subprocess.Popen(command, env=child.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        heard = b""
        while not (found := re.search(rb"(?:ws|http)://127\.0\.0\.1:\d+/mcp", heard)):
            line = process.stderr.readline()
            assert line, heard
            heard += line
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        try:
            yield process.pid, found[0].decode()
        finally:
            process.terminate()
            assert process.wait(30) == 0
            drain.join()


@contextmanager
def over_websocket(child: Child, server_file: str) -> Iterator[Talk]:
    with listening(child, server_file, "--ws") as (process, url), connect(url, compression=None) as websocket:

        def ask(message: dict[str, Any]) -> None:
            websocket.send(json.dumps(message))

        def listen() -> Iterator[bytes]:
            while True:
                yield websocket.recv(decode=False)

        yield Talk(process, ask, ask, listen)


@contextmanager
def over_http(child: Child, server_file: str) -> Iterator[Talk]:
    with listening(child, server_file, "--http") as (process, url):
        opened: list[http.client.HTTPConnection] = []
        lines: list[Any] = []
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

        def post(message: dict[str, Any]) -> http.client.HTTPResponse:
            opened.append(http.client.HTTPConnection(*url.split("/")[2].split(":"), timeout=100))  # type: ignore[arg-type]
            opened[-1].request("POST", "/mcp", json.dumps(message), headers)
            answer = opened[-1].getresponse()
            headers.setdefault("mcp-session-id", answer.headers["mcp-session-id"] or "")
            return answer

        def listen() -> Iterator[bytes]:
            for answer in lines:
                for line in answer:
                    text = line.removeprefix(b"data: ")
                    if text.startswith(b"{"):
                        yield text

        def meanwhile(message: dict[str, Any]) -> None:
            lines.append(post(message).read().splitlines())

        yield Talk(process, lambda message: lines.append(post(message)), meanwhile, listen)
        for connection in opened:
            connection.close()


def peak(process: int) -> int:
    """The most memory that the process ever had, in KiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def until(messages: Iterator[bytes], number: int) -> int:
    """Read until the answer to that request; how many notifications came before it."""
    told = 0
    for message in messages:
        if b'"notifications/' in message[:200]:
            told += 1
        else:
            answer = json.loads(message)
            if answer["id"] == number:
                assert "error" not in answer, answer
                return told
    raise AssertionError("the connection ended")


WAYS = [over_stdio, over_websocket, over_http]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def flood(talk: Talk, tool: str, times: int) -> None:
    """Open the connection, let a tool report, and see that all arrives and little is held."""
    talk.ask(OPENING)
    messages = talk.listen()
    until(messages, 0)
    talk.ask(call(1, "echo"))
    until(messages, 1)
    talk.ask(call(2, tool, times=50))
    assert until(messages, 2) == 50
    before = peak(talk.process)
    talk.ask(call(3, tool, times=times))
    assert until(messages, 3) == times
    assert peak(talk.process) - before < MOST_GROWTH


@each_way
@pytest.mark.parametrize("tool", ["messages", "progress"])
def test_what_a_tool_reports_in_a_loop_waits_for_its_reader(
    child: Child, server_file: str, way: Any, tool: str
) -> None:
    with way(child, server_file) as talk:
        flood(talk, tool, 30_000)


@each_way
def test_so_does_a_plain_function(child: Child, server_file: str, way: Any) -> None:
    with way(child, server_file) as talk:
        flood(talk, "messages_in_thread", 2_000)


@pytest.mark.nightly
@pytest.mark.timeout(400)
@each_way
@pytest.mark.parametrize(
    ("tool", "times"),
    [("messages", 300_000), ("progress", 60_000), ("messages_in_thread", 20_000), ("small", 60_000)],
)
def test_however_long_it_goes_on(child: Child, server_file: str, way: Any, tool: str, times: int) -> None:
    with way(child, server_file) as talk:
        flood(talk, tool, times)


@pytest.mark.parametrize("way", [over_stdio, over_websocket], ids=lambda way: way.__name__)
@pytest.mark.parametrize("tool", ["messages", "small"])
def test_others_are_answered_meanwhile(child: Child, server_file: str, way: Any, tool: str) -> None:
    """On the same connection, with a tool that never waits for anything else."""
    with way(child, server_file) as talk:
        talk.ask(OPENING)
        messages = talk.listen()
        until(messages, 0)
        talk.ask(call(1, tool, times=30_000))
        next(messages)
        talk.ask_meanwhile(call(2, "echo"))
        told = until(messages, 2)
        assert told < 20_000
        assert until(messages, 1) + told + 1 == 30_000


def test_a_reader_as_fast_as_the_kernel_keeps_nobody_waiting(child: Child, server_file: str) -> None:
    """Into a file nothing ever has to wait for its reader: the event loop turns all the same."""
    near, far = socket.socketpair()
    with near, open(Path(server_file).with_suffix(".out"), "w+b") as out:
        command = child.mcpd("serve", "--stdio", server_file)
        process = subprocess.Popen(command, env=child.env, stdin=far, stdout=out)
        far.close()
        lines = [OPENING, call(1, "messages", times=20_000)]
        near.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        while out.tell() == 0 or Path(out.name).stat().st_size < 100_000:
            out.seek(0, 2)
        near.sendall(json.dumps(call(2, "echo")).encode() + b"\n")
        near.shutdown(socket.SHUT_WR)
        assert process.wait(60) == 0
        out.seek(0)
        ids = [json.loads(line)["id"] for line in out if b'"notifications/' not in line[:200]]
        assert ids == [0, 2, 1]
