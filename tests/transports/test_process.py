"""A child process behind a channel: how it is ended. Spec: 2025-11-25 basic/lifecycle, shutdown."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress

import pytest

from mcpd import Callbacks, Client
from mcpd.errors import CannotConnect, ConfigurationError, McpdError, ProtocolError
from mcpd.transports.process import ProcessChannel, open_process

# Says that it has begun, and then heeds neither the end of its input nor SIGTERM.
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("{}", flush=True)
time.sleep(60)
"""


class Ear:
    """Waits for the first line, and for the end."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    def receive(self, frame: bytes) -> None:
        self.heard.append(frame)
        self.began.set()

    def receive_error(self, error: ProtocolError) -> None:
        raise error

    def closed(self, error: McpdError | None = None) -> None:
        self.ended.set()


class Why(Ear):
    """Keeps what the end was told to be."""

    why: McpdError | None = None

    def closed(self, error: McpdError | None = None) -> None:
        self.why = error
        self.ended.set()


async def test_a_child_that_has_ended_before_the_first_line_has_read_nothing() -> None:
    """Nobody takes that line, and it is in no pipe: it is told as never sent, so that it may be sent again."""
    for lines in (0, 1, 3):
        channel, ear = await open_process([sys.executable, "-S", "-c", "raise SystemExit(3)"]), Why()
        async with asyncio.timeout(60):
            # It is gone before the loop has seen anything of it.
            with suppress(ChildProcessError):  # a thread of asyncio's may be quicker to hear of it
                os.waitid(os.P_PID, channel.process.pid, os.WEXITED | os.WNOWAIT)
            channel.start(ear)
            for _ in range(lines):
                channel.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
            await ear.ended.wait()
        assert isinstance(ear.why, CannotConnect), lines
        await channel.aclose()


async def deaf() -> ProcessChannel:
    channel, ear = await open_process([sys.executable, "-c", DEAF]), Ear()
    channel.start(ear)
    await ear.began.wait()
    return channel


async def test_a_command_for_which_no_descriptors_are_left_takes_none() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken[0], *map(int, os.listdir("/proc/self/fd"))) + 8, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(3):
            os.close(taken.pop())
        with pytest.raises(ConfigurationError, match=r"^none cannot be started: Too many open files$"):
            await open_process(["none"])
        taken += [os.dup(0) for _ in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


async def test_a_closing_that_is_cut_short_kills_the_child() -> None:
    """Wherever it is: waiting for the child, or writing what is queued for it."""
    for queued in (b"", b"x" * 2_000_000):
        channel = await deaf()
        channel.send(queued)
        closing = asyncio.create_task(channel.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        async with asyncio.timeout(60):
            assert await channel.process.wait() == -9
        await channel.aclose()


async def test_a_client_whose_closing_is_cut_short_leaves_no_child() -> None:
    """A callback that is slow to end delays the closing; the channel is closed all the same."""
    asked = asyncio.Event()

    async def roots() -> list[object]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(60)
        return []

    client = Client([sys.executable, "-c", ASKING], Callbacks(roots=roots), version="2025-11-25")  # type: ignore[arg-type]
    await client.open()
    await asked.wait()
    process = client._open.channel.process  # type: ignore[union-attr]
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    async with asyncio.timeout(60):
        assert await process.wait() == 0
    for task in list(client._open._tasks):  # type: ignore[union-attr]
        task.cancel()


ASKING = """
import json, sys
info = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}
print(json.dumps({"jsonrpc": "2.0", "id": json.loads(sys.stdin.readline())["id"], "result": info}), flush=True)
sys.stdin.readline()
print(json.dumps({"jsonrpc": "2.0", "id": "r", "method": "roots/list"}), flush=True)
sys.stdin.read()
"""


# Answers one line, with another process at its stdin and stdout, and is gone.
SURVIVED = """
import os, subprocess, sys
os.read(0, 1000)
subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
os.write(1, b"x" * 50_000 + b"\\n{}\\n{}")
os._exit(1)
"""


async def test_a_child_that_is_gone_ends_the_connection() -> None:
    """2026-07-28 patterns/subscriptions: the process's exit ends the transport; what it said last is heard."""
    channel, ear = await open_process([sys.executable, "-c", SURVIVED]), Ear()
    channel.start(ear)
    channel.send(b"go")
    async with asyncio.timeout(60):
        await ear.ended.wait()
    assert [len(frame) for frame in ear.heard] == [50_000, 2, 2]
    await channel.aclose()
