"""One client that holds threads, by hanging, by asking or by not reading, takes no more than its share of them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from support.clock import Clock, until
from support.http_peer import MODERN, Peer, Port, envelope, modern, serving
from support.http_wire import http_wire
from support.wires import OpenWire, memory_wire, stdio_wire, websocket_wire

from mcpd import Context, Server
from mcpd.server.functions import threads
from mcpd.server.functions.threads import limit_threads
from mcpd.server.http import HttpSettings
from mcpd.server.observe.report import running

_FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}}


class Stage:
    """A server with plain functions that stay until `go`, that ask, and that answer."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.inside = 0
        self.most = 0
        self.ended = threading.Event()
        self._lock = threading.Lock()
        server = self.server = Server("shares")

        @server.tool
        def stay() -> str:
            self.count(1)
            self.go.wait(25)
            self.count(-1)
            return "stayed"

        @server.tool
        def greet() -> str:
            return "hello"

        @server.tool
        def ask(ctx: Context) -> str:
            self.count(1)
            try:
                return str(ctx.elicit("Sure?", _FORM).action)  # type: ignore[attr-defined]
            finally:
                self.count(-1)

        @server.tool
        def ask_and_stay(ctx: Context) -> str:
            ctx.elicit("Sure?", _FORM)
            return stay()

        @server.tool
        def report(times: int, ctx: Context) -> str:
            try:
                for _ in range(times):
                    ctx.info("x" * 100_000)
            finally:
                self.ended.set()
            return "reported"

        @server.resource("x://slow")
        def read() -> str:
            return "text"

    def count(self, step: int) -> None:
        with self._lock:
            self.inside += step
            self.most = max(self.most, self.inside)

    async def settles(self, least: int) -> None:
        """As many functions run as will."""
        await until(lambda: self.inside >= least)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.go.set()


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
async def test_hung_functions_of_one_client_hold_up_no_other(open_wire: OpenWire, stage: Stage) -> None:
    limit_threads(9, 20)
    async with open_wire(stage.server, "2025-11-25") as hog, open_wire(stage.server, "2025-11-25") as other:
        calls = [hog.ask("tools/call", {"name": "stay", "arguments": {}}) for _ in range(30)]
        await stage.settles(6)
        for _ in range(5):
            assert await other.text("greet") == "hello"
        assert stage.most == 6  # two thirds
        stage.go.set()
        for call in calls:
            assert (await hog.answer(call))["result"]["content"][0]["text"] == "stayed"


async def test_two_that_hang_leave_a_thread_to_the_third(stage: Stage) -> None:
    limit_threads(10, 20)
    server = stage.server
    async with memory_wire(server, MODERN) as one, memory_wire(server, MODERN) as two, memory_wire(server) as three:
        await three.open(MODERN)
        calls = [(wire, wire.ask("tools/call", {"name": "stay", "arguments": {}})) for wire in [one, two] * 20]
        await stage.settles(8)
        assert await three.text("greet") == "hello"
        stage.go.set()
        for wire, call in calls:
            await wire.answer(call)


async def test_many_requests_of_one_user_leave_a_thread_to_another(stage: Stage) -> None:
    """In 2026-07-28 each POST is a connection of its own: the client is known by its token and its address."""
    limit_threads(18, 20)
    async with serving(stage.server) as port:

        async def call(tool: str, user: str) -> Peer:
            peer = await port.connect()
            peer.send(modern("tools/call", {"name": tool, "arguments": {}}, {"Authorization": f"Bearer {user}"}))
            return peer

        hogs = [await call("stay", "hog") for _ in range(40)]
        await stage.settles(16)
        assert b"hello" in (await (await call("greet", "other")).answer()).body
        assert stage.most == 16
        stage.go.set()
        for hog in hogs:
            assert b"stayed" in (await hog.answer()).body


@pytest.mark.medium
async def test_the_wait_for_a_thread_ends_with_an_error_that_says_to_try_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    limit_threads(3, 0.05)
    async with memory_wire(stage.server, MODERN) as wire:
        calls = [wire.ask("tools/call", {"name": "stay", "arguments": {}}) for _ in range(2)]
        await stage.settles(2)
        for _ in range(3):
            refused = await wire.call("greet")
            assert refused["isError"]
            assert "Try again" in refused["content"][0]["text"]
            error = await wire.error("resources/read", {"uri": "x://slow"})
            assert error["code"] == -32603
            assert "Try again" in error["message"]
        # The log names what holds the threads, once and not for each call.
        (line,) = [record.getMessage() for record in caplog.records if "wait for a thread" in record.getMessage()]
        assert "'stay' (2)" in line
        stage.go.set()
        for call in calls:
            await wire.answer(call)
        assert await wire.text("greet") == "hello"


async def test_a_call_cancelled_while_it_waits_leaves_the_queue(stage: Stage) -> None:
    limit_threads(3, 20)
    async with memory_wire(stage.server, MODERN) as wire:
        calls = [wire.ask("tools/call", {"name": "stay", "arguments": {}}) for _ in range(2)]
        await stage.settles(2)
        waiting = [wire.ask("tools/call", {"name": "greet", "arguments": {}}) for _ in range(5)]
        await wire.quiet()
        for call in waiting:
            wire.cancel(call)
        await wire.quiet()
        stage.go.set()
        for call in calls:
            await wire.answer(call)
        assert await wire.text("greet") == "hello"
        await wire.quiet()


@pytest.mark.parametrize("open_wire", [memory_wire, http_wire])
async def test_calls_that_are_begun_and_cancelled_leave_half_of_the_threads(
    open_wire: OpenWire, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Their functions cannot be stopped. Whoever has cancelled them is told so; others do not notice."""
    limit_threads(9, 20)
    clock = Clock()
    async with open_wire(stage.server, "2025-11-25") as hog, open_wire(stage.server, "2025-11-25") as other:
        for number in range(1, 31):
            hog.cancel(hog.ask("tools/call", {"name": "stay", "arguments": {}}))
            await stage.settles(min(number, 5))
        refused = hog.ask("tools/call", {"name": "greet", "arguments": {}})
        for _ in range(5):
            assert await other.text("greet") == "hello"
        assert stage.most == 5
        await clock.advance(2)
        said = "The server is busy: 5 functions still run although you have cancelled their calls: 'stay' (5)"
        assert said in (await hog.answer(refused))["result"]["content"][0]["text"]
        assert "'stay' (5); the calls of 5 were cancelled" in caplog.text
        state = running([])
        assert [call.name for call in state.cancelled if call.name == "stay"] == ["stay"] * 5
        stage.go.set()
        await until(lambda: stage.inside == 0)
        assert await hog.text("greet") == "hello"


async def test_tasks_that_are_begun_and_cancelled_leave_half_of_the_threads(stage: Stage) -> None:
    """A task's function is its client's, also after the request was answered."""
    limit_threads(9, 20)
    stage.server.add_tool(lambda: stage.server and stage.go.wait(25) and "x", name="task", task="auto", task_after=0)
    capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with memory_wire(stage.server, MODERN, capabilities=capabilities) as hog, memory_wire(stage.server) as other:
        await other.open(MODERN)
        for _ in range(100):
            task = (await hog.call("task"))["taskId"]
            await hog.result("tasks/cancel", {"taskId": task})
        assert [call.name for call in running([]).cancelled if call.name == "task"] == ["task"] * 5
        assert await other.text("greet") == "hello"


@pytest.mark.parametrize(("open_wire", "version"), [(memory_wire, "2025-11-25"), (http_wire, MODERN)])
async def test_coroutines_that_ignore_their_cancellation_are_counted(open_wire: OpenWire, version: str) -> None:
    server = Server("ignores", max_in_flight=3)
    go = asyncio.Event()
    begun: list[int] = []

    def cancelled() -> int:
        return sum(call.name == "ignore" for call in running([]).cancelled)

    @server.tool
    async def ignore() -> str:
        begun.append(1)
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await go.wait()
        return "ended"

    async with open_wire(server, version) as wire:
        for number in range(1, 4):
            request = wire.ask("tools/call", {"name": "ignore", "arguments": {}})
            await until(lambda number=number: len(begun) == number)
            wire.cancel(request)
            await until(lambda number=number: cancelled() == number)
        error = await wire.error("tools/call", {"name": "ignore", "arguments": {}})
        assert (error["code"], error["message"]) == (
            -32600, "Too many of your requests still run although they were cancelled; retry later"
        )  # fmt: skip
        go.set()
        await until(lambda: not cancelled())
        assert await wire.text("ignore") == "ended"


async def test_questions_that_nobody_answers_hold_a_bounded_number_of_threads(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_ASKING_OF_ONE", 5)
    limit_threads(9, 20)
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
    async with (
        memory_wire(stage.server, "2025-11-25", capabilities=capabilities) as wire,
        memory_wire(stage.server, "2025-11-25") as other,
    ):
        calls = {wire.ask("tools/call", {"name": "ask", "arguments": {}}) for _ in range(60)}
        await stage.settles(5 + 6)
        assert await other.text("greet") == "hello"
        assert stage.most == 5 + 6
        # Each answer lets the next one ask, until all have.
        while calls:
            message = await wire.receive()
            if "method" in message:
                wire.send({"jsonrpc": "2.0", "id": message["id"], "result": {"action": "decline"}})
            else:
                assert message["result"]["content"][0]["text"] == "decline"
                calls.remove(message["id"])
        assert stage.most <= 5 + 6 + 1
        assert stage.inside == 0


async def test_those_that_hang_after_their_answer_hold_up_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_ASKING_OF_ONE", 5)
    limit_threads(9, 20)
    slots = threads._slots_of[asyncio.get_running_loop()]
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
    async with (
        memory_wire(stage.server, "2025-11-25", capabilities=capabilities) as wire,
        memory_wire(stage.server, "2025-11-25", capabilities=capabilities) as other,
    ):
        calls = [wire.ask("tools/call", {"name": "ask_and_stay", "arguments": {}}) for _ in range(5)]
        questions = [await wire.receive() for _ in calls]
        calls += [wire.ask("tools/call", {"name": "stay"}) for _ in range(6)]
        await stage.settles(6)
        for question in questions:
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        await stage.settles(6 + 5)
        assert slots.free == 3
        async with asyncio.timeout(10):
            assert await other.text("greet") == "hello"
        # Its own next call waits: it has its share.
        calls.append(wire.ask("tools/call", {"name": "greet"}))
        stage.go.set()
        ended = {(await wire.receive())["id"] for _ in calls}
        assert ended == set(calls)
        await other.text("greet")
    async with asyncio.timeout(10):
        await until(lambda: slots.free >= 9)
    assert (slots._asking_in_all, slots._asking, slots._running, slots._without_slot) == (0, {}, set(), set())


@asynccontextmanager
async def serving_by_uvicorn(server: Server, settings: HttpSettings) -> AsyncIterator[Port]:
    """uvicorn's own server, which knows nothing of our limits, runs the application."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = server.asgi_app(settings=settings)
    foreign = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    serves = asyncio.create_task(foreign.serve([listening]))
    port = Port(SimpleNamespace(url=f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", app=app))  # type: ignore[arg-type]
    try:
        yield port
    finally:
        for peer in port._peers:
            peer.abort()
        foreign.should_exit = foreign.force_exit = True
        await serves


@pytest.mark.medium
@pytest.mark.parametrize("serve", [serving, serving_by_uvicorn])
async def test_a_client_that_does_not_read_its_stream_lets_go_of_the_thread(stage: Stage, serve: Any) -> None:
    limit_threads(2, 20)
    async with serve(stage.server, HttpSettings(write_timeout=0.2)) as port:
        meta = envelope(**{"io.modelcontextprotocol/logLevel": "info"})
        session = await port.open()
        call = {"name": "report", "arguments": {"times": 400}}
        for request in (
            modern("tools/call", call, meta=meta),
            session.bytes({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call}),
        ):
            stage.ended.clear()
            peer = await port.connect()
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            peer.send(request)
            assert await asyncio.to_thread(stage.ended.wait, 20)
            answer = await port.modern("tools/call", {"name": "greet", "arguments": {}})
            assert b"hello" in answer.body
