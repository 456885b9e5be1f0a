"""Every transcript over every transport: memory, stdio, and a `mcpd serve --ws` process.

Another transport joins by being able to open a `Wire` to the fixture server: see `TRANSPORTS`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from wire_schema import VERSIONS
from wires import Wire, memory_wire, process_wire, stdio_wire

from mcpd import Server

CONFORMANCE = REPOSITORY / "conformance"


def _module(name: str) -> Any:
    """A module of the conformance folder, which is no package; a fresh one each time."""
    spec = importlib.util.spec_from_file_location(f"conformance_{name}", CONFORMANCE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


player = _module("player")


def everything() -> Server:
    """The fixture server as it is before anybody has changed it."""
    server: Server = _module("everything").server
    return server


# ------------------------------------------------------------------------------------ transports

Open = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def in_memory(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with memory_wire(everything()) as wire:
        yield wire


@asynccontextmanager
async def over_stdio(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with stdio_wire(everything()) as wire:
        yield wire


@asynccontextmanager
async def over_websocket(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed

    async with connect(request.getfixturevalue("websocket_url")) as socket:
        outbox: asyncio.Queue[str] = asyncio.Queue()

        async def write() -> None:
            while True:
                await socket.send(await outbox.get())

        async def read() -> None:
            try:
                async for frame in socket:
                    wire.arrived(frame.encode())
            except ConnectionClosed:
                pass
            wire.arrived(None)

        wire = Wire(lambda frame: outbox.put_nowait(frame.decode()))
        tasks = [asyncio.create_task(write()), asyncio.create_task(read())]
        yield wire
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    wire.check()


TRANSPORTS: dict[str, Open] = {"memory": in_memory, "stdio": over_stdio, "websocket": over_websocket}


@pytest.fixture(scope="module")
def websocket_url() -> Iterator[str]:
    """One `mcpd serve --ws` for all exchanges: each changes back what it changes."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    child = Child(sys.executable, environment)
    process = subprocess.Popen(
        [child.python, "-m", "mcpd", "serve", "--ws", "127.0.0.1:0", str(CONFORMANCE / "everything.py")],
        env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stderr is not None
    heard = b""
    try:
        while not (found := re.search(rb"ws://127\.0\.0\.1:\d+\S*", heard)):
            chunk = os.read(process.stderr.fileno(), 4096)
            assert chunk, f"the server ended without a word on where it listens: {heard!r}"
            heard += chunk
        yield found[0].decode()
    finally:
        process.terminate()
        process.communicate(timeout=10)


# ----------------------------------------------------------------------------------------- tests

EXCHANGES = player.exchanges()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("exchange", EXCHANGES, ids=repr)
async def test_transcript(exchange: Any, transport: str, request: pytest.FixtureRequest) -> None:
    async with TRANSPORTS[transport](request) as wire:
        await player.play(exchange, wire)


@pytest.mark.parametrize("version", VERSIONS)
async def test_transcript_of_a_process(version: str, child: Child) -> None:
    """The same over a `mcpd serve --stdio` of its own, for one exchange of each version."""
    exchange = next(one for one in EXCHANGES if one.version == version)
    async with process_wire(child, str(CONFORMANCE / "everything.py")) as wire:
        await player.play(exchange, wire)
