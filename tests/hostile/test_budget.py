"""What waits in all connections together is bounded; over that the largest is refused, with an error that says why."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest import Child
from support.clock import until
from support.http_peer import call, modern, serving
from support.http_stage import Stage
from support.websocket_peer import CLOSE, frame
from support.wires import MODERN, OpenWire, Pipes, memory_wire, stdio_wire, websocket_wire

from mcpd import Context, Server
from mcpd.protocol import budget
from mcpd.protocol.budget import BUDGET, OVER, Budget, Charge, machine_memory
from mcpd.server.dispatcher import ServerConnection
from mcpd.server.http import HttpSettings
from mcpd.server.http.resumable_streams import MemoryEventStore
from mcpd.transports.stdio import StdioChannel

pytestmark = pytest.mark.slow

MIB = 1024 * 1024

_HANDSHAKE = (
    b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(autouse=True)
def most() -> Iterator[int]:
    """8 MiB for the process, and all of it given back at the end."""
    gc.collect()
    assert BUDGET.used == 0
    BUDGET.most = 8 * MIB
    yield 8 * MIB
    gc.collect()
    assert BUDGET.used == 0
    BUDGET.most = 0


def hang(stage: Stage, size: int) -> dict[str, Any]:
    """A call that waits, with so many bytes of arguments."""
    return {"name": "wait", "arguments": {"door": "x" * size}}


# ------------------------------------------------------------------------------- the budget itself


def test_one_taker_gets_half_and_leaves_room_for_others() -> None:
    own = Budget(1000 * 1024)
    size, taken = 100 * 1024, 0
    while own.take("hog", "", size):
        taken += size
    assert taken == own.used == 500 * 1024
    assert own.take("other", "", size)
    # What is small still passes.
    assert own.take("hog", "", 1024)
    own.give_back("hog", "", taken + 1024)
    assert own.used == size
    own.give_back("other", "", size)
    assert own.used == 0
    assert not own._held


def test_all_connections_of_one_client_have_a_share_together() -> None:
    own = Budget(1000 * 1024)
    for number in range(100):
        own.take(number, "hog", 50 * 1024)
    assert own.used <= 800 * 1024
    assert own.take("other", "client", 50 * 1024)


def test_what_is_dropped_is_given_back(most: int) -> None:
    charge = Charge("one")
    assert charge.set(MIB)
    assert BUDGET.used == MIB
    assert charge.set(MIB // 2)
    assert BUDGET.used == MIB // 2
    assert not charge.add(most)
    assert charge.size == MIB // 2
    del charge
    assert BUDGET.used == 0


def test_the_default_is_half_of_what_the_control_group_has(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    physical = machine_memory()
    assert physical > 100 * MIB
    limit, endless = tmp_path / "memory.max", tmp_path / "endless"
    limit.write_text("104857600\n")
    endless.write_text("max\n")
    monkeypatch.setattr(budget, "_limit_files", lambda: [str(endless), str(limit), str(tmp_path / "none")])
    assert machine_memory() == 100 * MIB
    assert Budget().most == 50 * MIB


# --------------------------------------------------------------------------- what is counted


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire])
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_arguments_of_calls_that_run(open_wire: OpenWire, version: str) -> None:
    stage = Stage()
    async with open_wire(stage.server, version) as wire, open_wire(stage.server, version) as other:
        first = wire.ask("tools/call", hang(stage, MIB))
        await stage.entered.get()
        error = await wire.error("tools/call", hang(stage, 2 * MIB))
        assert (error["code"], error["message"]) == (-32603, OVER)
        # Others are served, and small calls of this one too.
        assert await wire.text("echo", text="small") == "small"
        assert len(await other.text("echo", text="x" * MIB)) == MIB
        wire.cancel(first)
        assert (await stage.left.get()).endswith(":cancelled")
        await wire.quiet()
        assert len(await wire.text("echo", text="x" * MIB)) == MIB


@pytest.mark.parametrize("is_modern", [True, False])
async def test_bodies_over_http(is_modern: bool) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()

        def build(params: dict[str, Any]) -> bytes:
            return modern("tools/call", params) if is_modern else session.bytes(call("tools/call", params, next(ids)))

        ids = iter(range(100, 200))
        peers = []
        for _ in range(2):
            peers.append(await port.connect())
            peers[-1].send(build(hang(stage, MIB)))
            await stage.entered.get()
        answer = await port.ask(build(hang(stage, 2 * MIB)))
        assert (answer.status, answer["retry-after"]) == (503, "5")
        assert (answer.code, answer.error["message"]) == (-32603, OVER)
        small = await port.ask(build({"name": "echo", "arguments": {"text": "x" * 100_000}}))
        assert b"x" * 100_000 in small.body
        for peer in peers:
            peer.abort()


async def test_bodies_that_are_still_on_their_way() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        request = modern("tools/call", hang(stage, 7 * MIB))
        peer = await port.connect()
        peer.send(request[:-100])
        answer = await peer.head()
        assert answer.status == 503
        peer.abort()


async def test_websocket_frames_that_are_not_whole() -> None:
    stage = Stage()
    async with websocket_wire(stage.server, MODERN) as other:
        peers = []
        try:
            for _ in range(8):
                reader, writer = await asyncio.open_connection(*_address(other))
                writer.write(_HANDSHAKE)
                await reader.readuntil(b"\r\n\r\n")
                writer.write(frame(1, b"x" * (3 * MIB))[: 2 * MIB])
                peers.append((reader, writer))
            # Half of them is too much: they hear so, the others nothing.
            heads = [asyncio.ensure_future(reader.readexactly(4)) for reader, _ in peers]
            await until(lambda: sum(head.done() for head in heads) >= 4)
            for head in heads:
                if head.done():
                    assert head.result()[0] & 15 == CLOSE
                    assert int.from_bytes(head.result()[2:], "big") == 1013
                head.cancel()
            assert BUDGET.used <= 8 * MIB
            assert await other.text("echo", text="small") == "small"
        finally:
            for _, writer in peers:
                writer.transport.abort()


def _address(wire: Any) -> tuple[str, int]:
    name = wire.connection.channel._transport.get_extra_info("sockname")
    return str(name[0]), int(name[1])


@asynccontextmanager
async def bare_stdio(server: Server) -> AsyncIterator[tuple[Pipes, ServerConnection]]:
    """The client's ends of two pipes, for bytes of any kind, and the server's connection."""
    pipes = Pipes()
    channel = StdioChannel(pipes.fd_in, pipes.fd_out)
    connection = server.connect(channel)
    channel.start(connection)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    pipes.write(line(call("initialize", hello, 0)))
    try:
        yield pipes, connection
        connection.abort()
        await connection.finish(5)
    finally:
        await channel.aclose()
        os.close(pipes.fd_out)
        pipes.close()


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def read_lines(pipes: Pipes, count: int) -> dict[Any, Any]:
    """So many answers, by their ids."""

    def read() -> list[bytes]:
        os.set_blocking(pipes.client_in, True)
        with open(pipes.client_in, "rb", closefd=False) as file:
            return [file.readline() for _ in range(count)]

    async with asyncio.timeout(60):
        answers = map(json.loads, await asyncio.to_thread(read))
        return {answer.get("id"): answer for answer in answers}


async def test_a_line_of_stdio_that_is_not_whole() -> None:
    stage = Stage()
    async with bare_stdio(stage.server) as (pipes, _):
        await read_lines(pipes, 1)
        request = line(call("tools/call", {"name": "echo", "arguments": {"text": "x" * (7 * MIB)}}, "large"))
        pipes.write(request[: 2 * MIB])
        await until(lambda: BUDGET.used >= 2 * MIB - 4096)
        pipes.write(request[2 * MIB : 6 * MIB])
        await until(lambda: BUDGET.used <= 0)  # it is too much: what is there is let go, and what comes is skipped
        pipes.write(request[6 * MIB :] + line(call("tools/call", {"name": "echo", "arguments": {"text": "small"}}, 2)))
        answers = await read_lines(pipes, 2)
        assert answers["large"]["error"] == {"code": -32603, "message": OVER}
        assert answers[2]["result"]["content"][0]["text"] == "small"


async def test_answers_on_stdio_that_nobody_reads(most: int) -> None:
    """Of answers that wait to be read the last become errors; whoever reads then gets one for each request."""
    stage = Stage()

    @stage.server.tool
    async def large() -> str:
        await stage.entered.get()
        return "x" * MIB

    async with bare_stdio(stage.server) as (pipes, connection):
        await read_lines(pipes, 1)
        pipes.write(b"".join(line(call("tools/call", {"name": "large"}, number)) for number in range(12)))
        await until(lambda: len(connection.session.in_flight) >= 12)
        for _ in range(12):
            stage.entered.put_nowait("now")
        await until(lambda: not connection.session.in_flight)
        assert 2 * MIB < BUDGET.used <= most // 2 + MIB
        answers = await read_lines(pipes, 12)
        errors = [answer["error"] for answer in answers.values() if "error" in answer]
        assert 6 <= len(errors) <= 9
        assert all(error == {"code": -32603, "message": OVER} for error in errors)
        await until(lambda: BUDGET.used <= 0)


async def test_subscriptions() -> None:
    stage = Stage()
    server = stage.server
    server.resource("x://{name}")(lambda name: name)
    async with memory_wire(server, "2025-11-25") as wire:
        BUDGET.most = 200_000
        refused = 0
        for number in range(150):
            answer = await wire.request("resources/subscribe", {"uri": f"x://{number}{'y' * 1800}"})
            if "error" in answer:
                assert answer["error"]["message"] == OVER
                refused += 1
        assert refused > 40
        assert BUDGET.used <= 160_000
        await wire.result("resources/unsubscribe", {"uri": f"x://0{'y' * 1800}"})
        await wire.result("resources/subscribe", {"uri": "x://small"})
    BUDGET.most = 8 * MIB
    async with memory_wire(server, MODERN) as wire:
        uris = [f"x://{number}" for number in range(9000)]
        listens = [
            wire.ask("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}) for _ in range(6)
        ]
        answers = [await wire.receive() for _ in listens]
        assert any("error" in answer and answer["error"]["message"] == OVER for answer in answers)
        assert any(answer.get("method") == "notifications/subscriptions/acknowledged" for answer in answers)


async def test_events_that_are_kept() -> None:
    """Of 12 MiB that sessions may keep for clients that come back, half of the budget's 8 is kept, and counted."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_stored_bytes=3 * MIB)) as port:
        for _ in range(6):
            session = await port.open()
            for number in range(4):
                params = {"name": "log", "arguments": {"text": "x" * (MIB // 2)}}
                answer = await session.ask("tools/call", params, id=f"{number}")
                assert answer.status == 200
        kept = events_kept()
        assert 2 * MIB < kept <= 4 * MIB
        assert abs(BUDGET.used - kept) < 64 * 1024  # so little needs no leave


async def test_one_large_event_of_each_session() -> None:
    """The newest of a session is kept whatever its size, as long as there is memory; a stream goes on without it."""
    server = Server("large answers")

    @server.tool
    async def large(ctx: Context) -> str:
        await ctx.info("a stream begins")
        return "x" * MIB

    async with serving(server) as port:
        sessions = [await port.open() for _ in range(12)]
        for session in sessions:
            answer = await session.ask("tools/call", {"name": "large"}, id="1")
            assert answer.status == 200
            assert b"x" * MIB in answer.body
        kept = events_kept()
        assert 2 * MIB < kept <= 4 * MIB
        assert abs(BUDGET.used - kept) < 64 * 1024
        for session in sessions:
            assert (await session.ask("ping", id=2)).status == 200


def events_kept() -> int:
    """The bytes that the stores of all sessions hold, whatever they say of it."""
    stores = [one for one in gc.get_objects() if isinstance(one, MemoryEventStore)]
    assert len(stores) > 1
    return sum(len(data) for store in stores for *_, data in store._events)


# ----------------------------------------------------------------------------- the option


@pytest.mark.parametrize(
    ("words", "variable"), [(("--max-memory", "8M"), None), ((), "8388608"), (("--max-memory", "8 mib"), "1G")]
)
def test_the_option_and_the_variable_set_it(child: Child, words: tuple[str, ...], variable: str | None) -> None:
    env = {**child.env, **({} if variable is None else {"MCPD_MAX_MEMORY": variable})}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    sizes = {1: 10, 2: 6 * MIB, 3: MIB}
    asked = [call("initialize", hello, 0)]
    asked += [call("tools/call", {"name": "echo", "arguments": {"text": "x" * size}}, n) for n, size in sizes.items()]
    done = subprocess.run(
        child.mcpd("serve", "--stdio", *words),
        env=env, input=b"".join(map(line, asked)), capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[2]["error"] == {"code": -32603, "message": OVER}
    assert [len(answers[n]["result"]["content"][0]["text"]) for n in (1, 3)] == [10, MIB]
    assert b"of at most 8388608 bytes" in done.stderr
    assert b"--max-memory" in done.stderr


@pytest.mark.parametrize("size", ["0", "-1", "2T", "lots", "1.5G", "M", ""])
def test_what_is_no_size_is_refused(child: Child, size: str) -> None:
    done = subprocess.run(
        child.mcpd("serve", "--stdio", f"--max-memory={size}"),
        env=child.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "is not a size; write bytes, or for example 512M or 2G" in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ the memory of a process of its own

_PROGRAM = """
import asyncio
from mcpd import Server
server = Server("held")

@server.tool
async def hold(text: str) -> str:
    await asyncio.Event().wait()
    return ""

@server.tool
async def peak() -> int:
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) // 1024

server.run(stdio=True, max_memory=64 * 1024 * 1024)
"""


@asynccontextmanager
async def program(child: Child) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        child.python, "-c", _PROGRAM, stdin=pipe, stdout=pipe, env=child.env, limit=1 << 26
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.mark.slow
async def test_calls_with_large_arguments_take_no_more_than_they_may(child: Child) -> None:
    """Hung ones are refused at the limit, and one after the other, cancelled, they leave nothing behind."""
    async with program(child) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        async def ask(number: Any, tool: str, arguments: dict[str, Any]) -> None:
            params = {"name": tool, "arguments": arguments}
            assert process.stdin is not None
            process.stdin.write(json.dumps(call("tools/call", params, number)).encode() + b"\n")
            await process.stdin.drain()

        async def peak(number: Any) -> int:
            assert process.stdout is not None
            await ask(number, "peak", {})
            refused = 0
            async with asyncio.timeout(60):
                while True:
                    answer = json.loads(await process.stdout.readline())
                    if answer.get("id") == number:
                        found = re.search(r"\d+", answer["result"]["content"][0]["text"])
                        assert found is not None
                        return int(found[0])
                    refused += "error" in answer

        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        process.stdin.write(json.dumps(call("initialize", hello, 0)).encode() + b"\n")
        await process.stdout.readline()
        text = "x" * (10 * MIB)
        for number in range(12):
            await ask(f"cancelled {number}", "hold", {"text": text})
            cancel = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": f"cancelled {number}"},
            }
            process.stdin.write(json.dumps(cancel).encode() + b"\n")
        after_cancelled = await peak("first")
        for number in range(12):
            await ask(number, "hold", {"text": text})
        after_held = await peak("second")
        assert after_cancelled < 200
        assert after_held < 250
