"""How long the path of a call is: an echo over stdio, counted in functions, files and frames of mcpd; and at a client.

What may be registered besides a tool (lifespan, middleware, observers) makes it no longer if nothing is registered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import pytest
from support.profiled import profiled
from support.websocket_peer import TEXT, Socket, frame as made, opened_client
from support.wires import LEGACY, MODERN, stdio_wire
from websockets.frames import Frame
from websockets.protocol import SERVER, Protocol

import mcpd
from mcpd import Client, ObservedFrame, Observer, Server
from mcpd.server.observe.metrics import Meter

PACKAGE = str(Path(mcpd.__file__).parent) + os.sep

MOST_FUNCTIONS = 32
MOST_FILES = 12
MOST_FRAMES = 6
MOST_STEPS_OF_A_CLIENT = 28
"""How often a client enters or resumes a function of its own for one call over WebSocket: each is a tenth of a
microsecond, where the loop and the system take 13 for a call."""


class CallPath:
    """The functions of mcpd that run, each once, and how deep a tool is in them."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.frames = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.functions.add(frame.f_code)

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}

    def note_depth(self) -> None:
        """Called in the tool."""
        frame: FrameType | None = sys._getframe(1)
        self.frames = 0
        while frame is not None:
            self.frames += frame.f_code.co_filename.startswith(PACKAGE)
            frame = frame.f_back


async def path_of_an_echo(server: Server, path: CallPath, version: str) -> CallPath:
    @server.tool
    async def echo(text: str) -> str:
        path.note_depth()
        return text

    async with stdio_wire(server, version) as wire:
        for _ in range(2):  # the first calls make what is kept
            await wire.text("echo", text="a")
        with profiled(path):
            await wire.text("echo", text="a")
    return path


async def test_an_echo_over_stdio() -> None:
    for version in (LEGACY[-1], MODERN):
        path = await path_of_an_echo(Server("path"), CallPath(), version)
        named = sorted(f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_qualname}" for code in path.functions)
        print(version, len(named), len(path.files), path.frames, *named, sep="\n  ")
        assert len(path.functions) <= MOST_FUNCTIONS, named
        assert len(path.files) <= MOST_FILES, sorted(path.files)
        assert path.frames <= MOST_FRAMES


class Everything(Observer):
    """Receives calls and frames."""

    frames = 0

    def frame_received(self, frame: ObservedFrame) -> None:
        self.frames += 1

    def frame_sent(self, frame: ObservedFrame) -> None:
        self.frames += 1


HOOKS = tuple(
    PACKAGE + name for name in ("server/dispatcher/observing.py", "server/observe/metrics.py", "protocol/observer.py")
)


class PathWithoutHooks(CallPath):
    """Leaves out the functions of hooks and what they call."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        above: FrameType | None = frame
        while above is not None and above.f_code.co_filename not in HOOKS:
            above = above.f_back
        if above is None:
            super().__call__(frame, event, argument)


async def test_an_observed_echo_takes_the_same_path(caplog: pytest.LogCaptureFixture) -> None:
    """Debug logging, observers and metrics add their hooks and nothing else: the same functions are entered."""
    for version in (LEGACY[-1], MODERN):
        caplog.set_level(logging.INFO)
        plain = await path_of_an_echo(Server("plain"), PathWithoutHooks(), version)
        assert not caplog.records

        caplog.set_level(logging.DEBUG)
        observer = Everything()
        server = Server("observed", observers=[observer])
        meter = Meter(server.catalog.tools.find_enabled)
        server.add_observer(meter)
        observed = await path_of_an_echo(server, PathWithoutHooks(), version)
        added = {code.co_qualname for code in observed.functions} - {code.co_qualname for code in plain.functions}
        assert added == {"SessionHooks.call_began"}  # a hook that does nothing
        assert len(plain.functions) == len(observed.functions) - 1
        assert observer.frames >= 6
        assert meter.families()[0].samples
        assert any("tools/call" in record.message for record in caplog.records)
        caplog.clear()


class Answering(Socket):
    """A server's end that answers each request at once, in the next turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.framing = Protocol(SERVER)

    def write(self, data: bytes) -> None:
        self.framing.receive_data(data)
        for frame in self.framing.events_received():
            request = json.loads(cast("Frame", frame).data)
            if "id" in request:
                result = RESULTS[request["method"]]
                answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
                asyncio.get_running_loop().call_soon(self.protocol.data_received, made(TEXT, answer, mask=None))


RESULTS = {
    "initialize": {
        "protocolVersion": LEGACY[-1], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}
    },
    "tools/call": {"content": [{"type": "text", "text": "a"}]},
}  # fmt: skip


async def test_a_call_of_a_client_over_websocket() -> None:
    channel, _ = opened_client()
    channel._transport = socket = Answering()
    socket.protocol = channel
    steps: list[str] = []

    def count(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            steps.append(f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_qualname}")

    async with asyncio.timeout(30), Client(channel, version=LEGACY[-1]) as client:
        for _ in range(2):  # the first calls make what is kept
            await client.call("echo", text="a")
        with profiled(count):
            await client.call_tool("echo", {"text": "a"})
        socket.abort()
    print(len(steps), *steps, sep="\n  ")
    assert len(steps) <= MOST_STEPS_OF_A_CLIENT, steps
