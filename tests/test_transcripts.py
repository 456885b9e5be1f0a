"""Every transcript over every transport: memory, stdio, HTTP, and a `mcpd serve --ws` process.

Another transport joins by being able to open a `Wire` to the fixture server: see `TRANSPORTS`.
"""

from __future__ import annotations

import asyncio
import functools
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
from support.http_wire import http_wire
from support.wire_schema import VERSIONS
from support.wires import Wire, memory_wire, process_wire, stdio_wire

from mcpd import Server

CONFORMANCE = REPOSITORY / "conformance"


def _module(name: str) -> Any:
    """A module of the conformance folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"conformance_{name}", CONFORMANCE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


player = _module("player")


@functools.cache
def everything() -> Server:
    """The fixture server: one for all exchanges, each of which changes back what it changes."""
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


@asynccontextmanager
async def over_http(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with http_wire(everything()) as wire:
        yield wire


TRANSPORTS: dict[str, Open] = {
    "memory": in_memory,
    "stdio": over_stdio,
    "websocket": over_websocket,
    "http": over_http,
}


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
        process.communicate(timeout=100)


# ----------------------------------------------------------------------------------------- tests

EXCHANGES = player.exchanges()

# What HTTP, having a status and a session beside each message, answers otherwise; its own tests say how.
NOT_OVER_HTTP = {
    "a request without an initialization": "is of 2025-03-26, and is answered alone",
    "what is no message": "is refused before anybody knows whose it is, so without the null id of older sessions",
    "a handshake on a connection without one": "is the first of a session: connections mean nothing",
}
PLAYED = [
    pytest.param(exchange, name, marks=[pytest.mark.medium] if name == "websocket" else [])
    for exchange in EXCHANGES
    for name in TRANSPORTS
    if name != "http" or exchange.name not in NOT_OVER_HTTP
]


def test_what_is_not_played_over_http_is_there() -> None:
    assert {exchange.name for exchange in EXCHANGES} >= set(NOT_OVER_HTTP)


@pytest.mark.parametrize(("exchange", "transport"), PLAYED, ids=repr)
async def test_transcript(exchange: Any, transport: str, request: pytest.FixtureRequest) -> None:
    async with TRANSPORTS[transport](request) as wire:
        await player.play(exchange, wire)


@pytest.mark.parametrize("version", VERSIONS)
async def test_transcript_of_a_process(version: str, child: Child) -> None:
    """The same over a `mcpd serve --stdio` of its own, for one exchange of each version."""
    exchange = next(one for one in EXCHANGES if one.version == version)
    async with process_wire(child, str(CONFORMANCE / "everything.py")) as wire:
        await player.play(exchange, wire)


# -------------------------------------------------------------------------- what is played at all

# protocol-versions.md, section 2, without tasks: C client to server, S server to client, B both, "in" inside
# `inputRequests`; one column for each version. What stands for nothing is "-".
METHODS = """
initialize                              C  C  C  C  C  -
server/discover                         -  -  -  -  -  C
ping                                    C  C  C  C  C  -
tools/list                              C  C  C  C  C  C
tools/call                              C  C  C  C  C  C
prompts/list                            C  C  C  C  C  C
prompts/get                             C  C  C  C  C  C
resources/list                          C  C  C  C  C  C
resources/read                          C  C  C  C  C  C
resources/templates/list                C  C  C  C  C  C
resources/subscribe                     C  C  C  C  C  -
resources/unsubscribe                   C  C  C  C  C  -
subscriptions/listen                    -  -  -  -  -  C
completion/complete                     C  C  C  C  C  C
logging/setLevel                        C  C  C  C  C  -
sampling/createMessage                  S  S  S  S  S  in
roots/list                              -  S  S  S  S  in
elicitation/create                      -  -  -  S  S  in
notifications/initialized               C  C  C  C  C  -
notifications/cancelled                 -  B  B  B  B  C
notifications/progress                  S  S  S  S  S  S
notifications/message                   S  S  S  S  S  S
notifications/tools/list_changed        S  S  S  S  S  S
notifications/prompts/list_changed      S  S  S  S  S  S
notifications/resources/list_changed    S  S  S  S  S  S
notifications/resources/updated         S  S  S  S  S  S
notifications/roots/list_changed        -  C  C  C  C  -
notifications/elicitation/complete      -  -  -  -  S  -
notifications/subscriptions/acknowledged -  -  -  -  -  S
"""


def played(version: str) -> set[tuple[str, str]]:
    """(method, C, S or in) of all that is played in a version; of requests those that get a result."""
    found: set[tuple[str, str]] = set()
    for exchange in EXCHANGES:
        if exchange.version != version:
            continue
        asked: dict[Any, str] = {}
        for mark, message in exchange.messages():
            for one in message if isinstance(message, list) else [message]:
                if not isinstance(one, dict):
                    continue
                if mark == ">" and "method" in one:
                    asked[repr(one.get("id"))] = one["method"]
                    # A subscription has its result when the server ends: see test_subscriptions.
                    if "id" not in one or one["method"] == "subscriptions/listen":
                        found.add((one["method"], "C"))
                elif mark != ">" and "method" in one:
                    found.add((one["method"], "S"))
                elif mark != ">" and "result" in one:
                    found.add((asked[repr(one["id"])], "C"))
                    requests = one["result"].get("inputRequests", {}) if isinstance(one["result"], dict) else {}
                    found |= {(request["method"], "in") for request in requests.values()}
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_method_of_the_version_is_played(version: str) -> None:
    seen = played(version)
    missing = []
    for line in METHODS.strip().splitlines():
        method, *columns = line.split()
        wanted = columns[VERSIONS.index(version)]
        for direction in {"B": ("C", "S"), "-": ()}.get(wanted, (wanted,)):
            if (method, direction) not in seen:
                missing.append(f"{method} ({direction})")
    assert not missing, missing


# ------------------------------------------------------------------------------------ the matcher

MATCHES: list[tuple[Any, Any, bool]] = [
    ({"a": 1}, {"a": 1}, True),
    ({"a": 1}, {"a": 1, "b": 2}, False),
    ({"a": 1, "$more": True}, {"a": 1, "b": 2}, True),
    ({"a": 1, "$more": True}, {"b": 2}, False),
    ({"a": 1}, {"a": True}, False),
    ({"a": 1}, {"a": 1.0}, False),
    ({"a": None}, {}, False),
    ([1, 2], [1, 2], True),
    ([1, 2], [2, 1], False),
    ([1, "$more"], [1, 2], True),
    ([1, "$more"], [2, 1], False),
    ({"$has": [{"x": 2}]}, [{"x": 1}, {"x": 2}], True),
    ({"$has": [{"x": 3}]}, [{"x": 1}], False),
    ({"$has": []}, {}, False),
    ("$string", "s", True),
    ("$string", 1, False),
    ("$integer", True, False),
    ("$number", 1.5, True),
    ("$boolean", 0, False),
    ("$base64", "AAAA", True),
    ("$any", None, True),
    (["$$x", "$$x"], [1, 1], True),
    (["$$x", "$$x"], [1, 2], False),
    (["$$x", "$$x"], [1, "1"], False),
    ("$identity", {}, False),
]


@pytest.mark.parametrize(("pattern", "value", "is_match"), MATCHES)
def test_matching(pattern: Any, value: Any, is_match: bool) -> None:
    if is_match:
        player.match(pattern, value, {})
    else:
        with pytest.raises(player.Mismatch):
            player.match(pattern, value, {})


class Script:
    """A wire to a server that says what it was told to say."""

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)
        self.sent: list[Any] = []

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    async def receive(self) -> Any:
        return self.messages.pop(0)


def exchange_of(*lines: str) -> Any:
    path = CONFORMANCE / "transcripts" / "2025-11-25" / "made_up.jsonl"
    return player.Exchange(
        path, "made up", [player.Line(number, *line.split(" ", 1)) for number, line in enumerate(lines)]
    )


END = {"id": "the end"}


async def test_neighbours_with_a_bar_come_in_any_order() -> None:
    exchange = exchange_of('<| {"a":"$$x"}', '<| {"b":2}', '< {"c":"$$x"}')
    await player.play(exchange, Script({"b": 2}, {"a": 5}, {"c": 5}, END))
    with pytest.raises(player.Mismatch, match="line 2"):
        await player.play(exchange, Script({"b": 2}, {"a": 5}, {"c": 6}, END))
    with pytest.raises(player.Mismatch, match="line 0"):
        await player.play(exchange, Script({"b": 2}, {"b": 2}, {"c": 6}, END))


async def test_nothing_may_follow_the_last_line() -> None:
    with pytest.raises(player.Mismatch, match="after its last line"):
        await player.play(exchange_of('< {"a":1}'), Script({"a": 1}, {"a": 2}, END))
