"""Nothing that is told to end waits for ever: not for a client that reads nothing, not for a call into C."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Child

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and descriptors as POSIX has them")

SERVER = """
import itertools, os, re, time
from mcpd import Context, Server

server = Server("endings")

def say(text):
    os.write(2, text.encode() + b"\\n")

def hold():  # a call into C that never gives the interpreter away, nor looks for signals
    say("holds")
    sum(itertools.repeat(0))

@server.tool
async def holds() -> str:
    hold()
    return "never"

@server.tool
def holds_in_thread() -> str:
    hold()
    return "never"

@server.tool
async def matches() -> str:  # one that looks for signals, and goes on
    say("holds")
    re.match("(a+)+$", "a" * 60 + "b")
    return "never"

@server.tool
async def holds_later() -> str:
    say("waits")
    time.sleep(1.0)  # the signal comes now, and is seen
    hold()
    return "never"

@server.tool
async def echo() -> str:
    return "echo"

@server.tool
async def large(size: int) -> str:
    return "x" * size

@server.tool
async def messages(ctx: Context, times: int) -> str:
    for _ in range(times):
        await ctx.warning("x" * 1000)
    return "done"
"""

needs_sysv_signal = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "sysv_signal"), reason="needs sysv_signal")

GONE = 60.0
"""Far more than any of these ends may take, on a machine that is busy."""


@pytest.fixture
def server_file(tmp_path: Path) -> str:
    path = tmp_path / "endings.py"
    path.write_text(SERVER)
    return str(path)


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


OPENING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "ends", "version": "1"}},
}
LARGE = [call(number, "large", size=1_000_000) for number in (1, 2, 3)]
FLOOD = [call(1, "messages", times=100_000)]


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


# -------------------------------------------------------------------- a client that reads nothing


@pytest.mark.slow
@pytest.mark.parametrize("asked", [LARGE, FLOOD], ids=["results", "messages"])
def test_the_end_of_stdin_is_noticed_behind_unread_output(child: Child, server_file: str, asked: Any) -> None:
    """More than 1 MiB waits, so nothing is read any more; then the client hangs up, and reads nothing either."""
    command = child.mcpd("serve", "--stdio", server_file)
    with subprocess.Popen(command, env=child.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(OPENING, *asked))
        process.stdin.flush()
        os.read(process.stdout.fileno(), 1)  # it works
        time.sleep(0.3)
        process.stdin.write(lines(call(9, "large", size=1)) * 100)
        process.stdin.close()
        assert process.wait(GONE) == 0
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_half_closed", [True, False])
def test_the_same_over_sockets_as_node_has_them(child: Child, server_file: str, is_half_closed: bool) -> None:
    to_server, stdin = socket.socketpair()
    from_server, stdout = socket.socketpair()
    process = subprocess.Popen(child.mcpd("serve", "--stdio", server_file), env=child.env, stdin=stdin, stdout=stdout)
    stdin.close()
    stdout.close()
    with to_server, from_server:
        to_server.sendall(lines(OPENING, *LARGE))
        from_server.recv(1)
        time.sleep(0.3)
        if is_half_closed:
            to_server.shutdown(socket.SHUT_WR)
        else:
            to_server.close()
        assert process.wait(GONE) == 0


@pytest.mark.slow
def test_a_client_that_hangs_up_and_reads_on_gets_all(child: Child, server_file: str) -> None:
    """However slowly it reads: it is the one that takes nothing who is given up."""
    command = child.mcpd("serve", "--stdio", server_file)
    with subprocess.Popen(command, env=child.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(OPENING, *LARGE, *LARGE, *LARGE))
        process.stdin.close()
        got, pauses = 0, 8
        while chunk := os.read(process.stdout.fileno(), 300_000):
            got += chunk.count(b"\n")
            if pauses:
                pauses -= 1
                time.sleep(0.3)
        assert got == 10
        assert process.wait(GONE) == 0


# ------------------------------------------------------------------- a call into C that holds everything


@pytest.fixture(params=["--stdio", "--http"])
def serving(request: pytest.FixtureRequest, child: Child, server_file: str) -> Iterator[Any]:
    """Over stdio, and over stdio beside HTTP, which may bring another event loop: serving(*options)."""
    more = ["--http", "127.0.0.1:0"] if request.param == "--http" else []
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> subprocess.Popen[bytes]:
        command = child.mcpd("serve", server_file, "--stdio", *more, *options)
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=child.env, stdin=pipe, stdout=pipe, stderr=pipe))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until_it_says(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stderr is not None
    while text not in (line := process.stderr.readline()):
        assert line, "it ended"


def begin(process: subprocess.Popen[bytes], tool: str) -> None:
    """Call a tool, after a while in which the server has settled."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines(OPENING))
    process.stdin.flush()
    process.stdout.readline()
    time.sleep(1.0)
    process.stdin.write(lines(call(1, tool)))
    process.stdin.flush()


@needs_sysv_signal
@pytest.mark.slow
@pytest.mark.parametrize("tool", ["holds", "holds_in_thread", "matches"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_what_holds_the_interpreter(serving: Any, tool: str, number: int) -> None:
    process = serving()
    begin(process, tool)
    until_it_says(process, b"holds")
    time.sleep(0.5)  # it said so before it did
    process.send_signal(number)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(GONE) == (-signal.SIGALRM if tool == "matches" else -number)


@pytest.mark.slow
def test_after_a_signal_that_was_seen_the_alarm_ends_it(serving: Any) -> None:
    """The call into C comes later: the kernel's alarm needs no interpreter, nor a second signal."""
    process = serving("--grace", "0.1")
    begin(process, "holds_later")
    until_it_says(process, b"waits")
    process.send_signal(signal.SIGTERM)
    until_it_says(process, b"holds")
    assert process.wait(GONE) == -signal.SIGALRM


@pytest.mark.slow
def test_one_signal_alone_ends_in_order(serving: Any) -> None:
    process = serving()
    begin(process, "echo")
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(GONE) == 0


# ------------------------------------------------------------------------- descriptors that are closed


def connected(path: Path) -> socket.socket:
    """A connection to a server that is starting: its path is there a moment before it listens."""
    deadline = time.monotonic() + GONE
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(GONE)
        try:
            client.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            client.close()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return client


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_are_no_ones_sockets(child: Child, server_file: str, tmp_path: Path, closed: str) -> None:
    """What is opened next would get their numbers: libuv aborted at the end, and prints went into sockets."""
    path = tmp_path / "s"
    command = shlex.join(child.mcpd("serve", "--http", f"unix:{path}", server_file))
    process = subprocess.Popen(["/bin/sh", "-c", f"exec {command} {closed}"], env=child.env)
    try:
        with connected(path) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        if sys.platform == "linux":
            standard = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 1, 2)]
            assert not [name for name in standard if name.startswith(("socket:", "anon_inode:"))]
        process.send_signal(signal.SIGTERM)
        assert process.wait(GONE) == 0
    finally:
        process.kill()
        process.wait()
