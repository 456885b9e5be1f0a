"""What a failed or cancelled call held is freed at its end, not when the garbage collector comes by.

Each way to fail is gone with the collector off; then nothing of a call may be left, neither what its tool had in its
variables nor a frame, traceback or exception that only the collector would find.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import types
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from support.http_peer import BOTH, request, serving
from support.http_wire import http_wire
from support.wires import MODERN, OpenWire, Wire, memory_wire, stdio_wire, websocket_wire

from mcpd import Context, Server, ToolError
from mcpd.errors import InvalidParams
from mcpd.protocol.session import Call
from mcpd.server.context.exchange import Exchange

ROUNDS = 4
_FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
_WAYS: dict[str, Callable[[Stage, Wire], Awaitable[None]]] = {}

# What holds on to all that a call had, if a cycle holds on to it.
_HEAVY = (BaseException, types.TracebackType, types.FrameType, types.CoroutineType, Call, Exchange)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


class Cargo:
    """Stands for what a call holds."""


class Stage:
    """A server with tools that fail in every way; `cargo` is what they hold."""

    def __init__(self) -> None:
        self.cargo: weakref.WeakSet[Cargo] = weakref.WeakSet()
        self.entered = asyncio.Queue[str]()
        self.release = threading.Event()
        self.loop = asyncio.get_running_loop()
        self.server = Server("cycles")
        self._add("async", self._fail_async)
        self.server.add_tool(self._plain(), name="plain")
        self.server.add_tool(self._ask(), name="ask")
        self.server.add_tool(self._ask_plain(), name="ask_plain")
        self.server.resource("x://{name}")(self._resource())
        self.server.prompt(self._prompt())

    def _add(self, name: str, function: Any) -> None:
        async def tool(way: str, *, ctx: Context) -> str:
            cargo = self.new()
            await asyncio.sleep(0)
            return str(await function(way, cargo))

        self.server.add_tool(tool, name=name)

    def new(self) -> Cargo:
        cargo = Cargo()
        self.cargo.add(cargo)
        return cargo

    def _raise(self, way: str) -> None:
        if way == "tool error":
            raise ToolError("no")
        if way == "chained":
            try:
                raise KeyError("first")
            except KeyError as error:
                raise ToolError("then") from error
        if way == "exception":
            raise ValueError("no")
        if way == "protocol":
            raise InvalidParams("no")
        if way == "exit":
            raise SystemExit(3)

    async def _fail_async(self, way: str, cargo: Cargo) -> str:
        if way == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fail_async("tool error", cargo))
                group.create_task(self._fail_async("exception", cargo))
        if way == "timeout":
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        if way == "hang":
            self.entered.put_nowait(way)
            await asyncio.Event().wait()
        self._raise(way)
        return "done"

    def _plain(self) -> Any:
        def plain(way: str, *, ctx: Context) -> str:
            cargo = self.new()
            if way == "hang":
                self.loop.call_soon_threadsafe(self.entered.put_nowait, way)
                self.release.wait(20)
            self._raise(way)
            return f"{cargo!r:.0s}done"

        return plain

    def _ask(self) -> Any:
        async def ask(key: str, timeout: float = 20, *, ctx: Context) -> str:
            cargo = self.new()
            answer = await ctx.elicit("Sure?", _FORM, key=key, timeout=timeout)
            return f"{cargo!r:.0s}{answer.action}"

        return ask

    def _ask_plain(self) -> Any:
        def ask(key: str, timeout: float = 20, *, ctx: Context) -> str:
            cargo = self.new()
            answer: Any = ctx.elicit("Sure?", _FORM, key=key, timeout=timeout)
            return f"{cargo!r:.0s}{answer.action}"

        return ask

    def _resource(self) -> Any:
        def read(name: str) -> str:
            cargo = self.new()
            if name == "none":
                raise FileNotFoundError(name)
            raise ValueError(repr(cargo)[:0])

        return read

    def _prompt(self) -> Any:
        async def prompt() -> str:
            cargo = self.new()
            raise ValueError(repr(cargo)[:0])

        return prompt


def way(function: Callable[[Stage, Wire], Awaitable[None]]) -> Callable[[Stage, Wire], Awaitable[None]]:
    """One way to fail."""
    _WAYS[function.__name__] = function
    return function


def _fails(tool: str, how: str) -> None:
    async def fail(stage: Stage, wire: Wire) -> None:
        await wire.request("tools/call", {"name": tool, "arguments": {"way": how}})

    fail.__name__ = f"{tool}_{how.replace(' ', '_')}"
    way(fail)


for _how in ("tool error", "chained", "exception", "protocol", "exit"):
    _fails("async", _how)
    _fails("plain", _how)
_fails("async", "group")
_fails("async", "timeout")


@way
async def refused_arguments(stage: Stage, wire: Wire) -> None:
    for tool in ("async", "plain"):
        await wire.request("tools/call", {"name": tool, "arguments": {"way": 5}})
        await wire.request("tools/call", {"name": tool, "arguments": 5})


@way
async def unknown_things(stage: Stage, wire: Wire) -> None:
    await wire.request("tools/call", {"name": "nothing", "arguments": {}})
    await wire.request("no/such", {})
    await wire.request("resources/read", {"uri": "x://none"})
    await wire.request("resources/read", {"uri": "x://broken"})
    await wire.request("resources/read", {"uri": 5})
    await wire.request("prompts/get", {"name": "prompt"})


@way
async def cancelled(stage: Stage, wire: Wire) -> None:
    call = wire.ask("tools/call", {"name": "async", "arguments": {"way": "hang"}})
    await stage.entered.get()
    wire.cancel(call)
    await _gone(stage)


@way
async def plain_cancelled(stage: Stage, wire: Wire) -> None:
    stage.release.clear()
    call = wire.ask("tools/call", {"name": "plain", "arguments": {"way": "hang"}})
    await stage.entered.get()
    wire.cancel(call)
    await wire.quiet() if not _is_modern_http(wire) else await asyncio.sleep(0.05)
    stage.release.set()
    await _gone(stage)


@way
async def asked(stage: Stage, wire: Wire) -> None:
    for tool in ("ask", "ask_plain"):
        call = wire.ask("tools/call", {"name": tool, "arguments": {"key": "k"}})
        if wire.version == MODERN:
            await wire.answer(call)
            continue
        question = await wire.receive()
        wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        await wire.answer(call)
        # And one that the client cannot answer.
        call = wire.ask("tools/call", {"name": tool, "arguments": {"key": "k"}})
        question = await wire.receive()
        wire.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}})
        await wire.answer(call)


@way
async def given_up_while_asking(stage: Stage, wire: Wire) -> None:
    if wire.version == MODERN:
        return
    for tool in ("ask", "ask_plain"):
        call = wire.ask("tools/call", {"name": tool, "arguments": {"key": "k"}})
        await wire.receive()
        wire.cancel(call)
        await _gone(stage)
    wire.heard.clear()


@way
async def not_answered_in_time(stage: Stage, wire: Wire) -> None:
    if wire.version == MODERN:
        return
    for tool in ("ask", "ask_plain"):
        call = wire.ask("tools/call", {"name": tool, "arguments": {"key": "k", "timeout": 0.01}})
        await wire.answer(call)
    wire.heard.clear()


@way
async def malformed(stage: Stage, wire: Wire) -> None:
    if type(wire).__name__ == "HttpWire":
        return  # below, as it takes no message that is none
    for bad in (b'{"jsonrpc": "2.0", "id": 1', b"[]", b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', b'"\\ud800"'):
        wire.send(bad)
        await wire.receive()


def _is_modern_http(wire: Wire) -> bool:
    return type(wire).__name__ == "HttpWire" and wire.version == MODERN


async def _gone(stage: Stage) -> None:
    """The calls have ended, or never will: then the check finds it."""
    for _ in range(200):
        if not stage.cargo:
            return
        await asyncio.sleep(0.005)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # nor has it to look at what was there before
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()
    gc.unfreeze()


def found() -> list[Any]:
    """What only the collector would have freed of what a call holds."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    heavy = [one for one in gc.garbage if isinstance(one, _HEAVY)]
    gc.garbage.clear()
    return heavy


@pytest.fixture
def no_log() -> Iterator[None]:
    """What pytest captures of a log it keeps, with its tracebacks."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
async def test_nothing_of_a_failed_call_waits_for_the_collector(
    open_wire: OpenWire, version: str, no_collector: None, no_log: None
) -> None:
    stage = Stage()
    left: dict[str, list[str]] = {}
    async with open_wire(stage.server, version, capabilities={"elicitation": {"form": {}}}) as wire:
        for name, fail in _WAYS.items():
            await fail(stage, wire)  # the first time: what is loaded or made once
            await _gone(stage)
            gc.collect()
            for _ in range(ROUNDS):
                await fail(stage, wire)
            await _gone(stage)
            stays = [*stage.cargo, *found()]
            if stays:
                left[name] = [f"{one!r:.200}" for one in stays]
    assert not left


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire])
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_nothing_of_a_call_stays_behind_its_client(
    open_wire: OpenWire, version: str, no_collector: None, no_log: None
) -> None:
    stage = Stage()
    for tool in ("async", "plain", "async", "plain"):
        stage.release.clear()
        async with open_wire(stage.server, version) as wire:
            wire.ask("tools/call", {"name": tool, "arguments": {"way": "hang"}})
            await stage.entered.get()
        stage.release.set()
        await _gone(stage)
        assert not list(stage.cargo)


async def test_a_batch_with_parts_that_are_no_messages(no_collector: None, no_log: None) -> None:
    stage = Stage()
    async with memory_wire(stage.server, "2025-03-26") as wire:
        for _ in range(ROUNDS):
            wire.send(b'[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"1.0","id":7},5,[]]')
            await wire.receive()
            left = found()
            assert not left, left


async def test_a_post_that_is_no_message(no_collector: None, no_log: None) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        bodies = [b"{", b"[]", b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"1.0","id":1,"method":"ping"}', b"\xff"]
        for body in bodies * 2:
            peer = await port.connect()
            peer.send(request("POST", "/mcp", [("Content-Type", "application/json"), ("Accept", BOTH)], body))
            assert (await peer.head()).status == 400
            peer.abort()
            left = found()
            assert not left, left
