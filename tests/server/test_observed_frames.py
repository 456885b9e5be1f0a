"""What observers hear of frames: each that passes, once, over every transport, in both eras; free if none listens."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct
from support.clock import until
from support.http_peer import BOTH, MODERN, request, serving
from support.http_wire import http_wire
from support.ui_stage import BOTH_ERAS
from support.wires import OpenWire, Wire, memory_wire, stdio_wire, websocket_wire

from mcpd import Context, ObservedCall, ObservedFrame, Observer, Server
from mcpd.server.http import HttpSettings


@asynccontextmanager
async def asgi_websocket_wire(server: Server, version: str | None = None, **opening: Any) -> AsyncIterator[Wire]:
    """A wire through a WebSocket that an ASGI server has framed."""
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    wire = Wire(lambda frame: incoming.put_nowait({"type": "websocket.receive", "text": frame.decode()}))

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send":
            wire.arrived(message["text"].encode())

    headers = [(b"host", b"localhost")]
    scope = {"type": "websocket", "path": "/mcp", "headers": headers, "subprotocols": [], "extensions": {}}
    incoming.put_nowait({"type": "websocket.connect"})
    task = asyncio.create_task(server.asgi_app()(scope, incoming.get, send))
    if version is not None:
        await wire.open(version, **opening)
    yield wire
    incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await task


each_wire = pytest.mark.parametrize(
    "open_wire", [memory_wire, stdio_wire, websocket_wire, asgi_websocket_wire, http_wire]
)


class Frames(Observer):
    """Writes every frame down."""

    def __init__(self) -> None:
        self.received: list[ObservedFrame] = []
        self.sent: list[ObservedFrame] = []

    def frame_received(self, frame: ObservedFrame) -> None:
        self.received.append(frame)

    def frame_sent(self, frame: ObservedFrame) -> None:
        self.sent.append(frame)

    def of(self, frames: list[ObservedFrame]) -> list[tuple[Any, str]]:
        return [(frame.related_request_id, frame.method) for frame in frames]


class Flower(Struct):
    name: str


def make_server(*observers: Observer) -> Server:
    server = Server("watched", observers=observers)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await asyncio.sleep(0)
        await ctx.progress(2, 2)
        return "done"

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Which flower?", Flower)).get().name

    @server.tool
    async def grow() -> str:
        server.tool(lambda: "new", name="new")
        return "grown"

    return server


class Tap:
    """What passes a wire, seen from the client."""

    def __init__(self, wire: Wire) -> None:
        self.sent: list[bytes] = []
        self.arrived: list[bytes] = []
        send, arrived = wire._send, wire.arrived

        def tapped_send(frame: bytes) -> None:
            self.sent.append(frame)
            send(frame)

        def tapped_arrived(frame: bytes | None) -> None:
            if frame is not None:
                self.arrived.append(frame)
            arrived(frame)

        wire._send = tapped_send
        wire.arrived = tapped_arrived  # type: ignore[method-assign]


@BOTH_ERAS
@each_wire
async def test_every_frame_is_heard_once(open_wire: OpenWire, version: str) -> None:
    frames = Frames()
    async with open_wire(make_server(frames)) as wire:
        tap = Tap(wire)
        await wire.open(version, {"elicitation": {}})
        await wire.text("echo", text="ä")
        await wire.error("tools/call", {"name": "nothing"})
        await wire.error("no/such")
        await wire.call("report", {"progressToken": "p"})
        asked = wire.ask("tools/call", {"name": "ask"}, id="asked")
        if version == MODERN:
            result = (await wire.answer(asked))["result"]
            (key,) = result["inputRequests"]
            answers = {"inputResponses": {key: {"action": "accept", "content": {"name": "rose"}}}}
            state = {"requestState": result["requestState"]} if "requestState" in result else {}
            await wire.result("tools/call", {"name": "ask", **answers, **state}, id="again")
        else:
            question = await wire.receive()
            while question.get("method") != "elicitation/create":
                question = await wire.receive()
            wire.send(
                {
                    "jsonrpc": "2.0",
                    "id": question["id"],
                    "result": {"action": "accept", "content": {"name": "rose"}},
                }
            )
            await wire.answer(asked)
            await wire.text("grow")
            await until(lambda: any(b"list_changed" in frame for frame in tap.arrived))

        def both(told: list[ObservedFrame], seen: list[bytes]) -> tuple[Counter[bytes], Counter[bytes]]:
            return Counter(frame.data for frame in told), Counter(seen)

        await until(lambda: len(tap.arrived) == len(frames.sent))
        told, seen = both(frames.received, tap.sent)
        assert told == seen
        told, seen = both(frames.sent, tap.arrived)
        assert told == seen

    received, sent = frames.of(frames.received), frames.of(frames.sent)
    for request_id, method in received:
        if request_id is not None:  # each request is answered, with its own method
            assert (request_id, method) in sent
    assert ("asked", "tools/call") in received
    assert ("asked", "tools/call") in sent
    methods = Counter(method for _, method in sent)
    assert methods["notifications/progress"] == 2
    assert methods["no/such"] == 1
    for frame in frames.sent:
        message = json.loads(frame.data)
        if message.get("method") == "notifications/progress":
            assert frame.related_request_id is not None
    if version != MODERN:
        assert ("asked", "elicitation/create") in sent
        assert (None, "elicitation/create") in received  # the answer to that
        assert (None, "notifications/initialized") in received
        assert (None, "notifications/tools/list_changed") in sent
    is_alone = open_wire is http_wire and version == MODERN
    numbers = Counter(frame.connection for frame in frames.received)
    assert set(numbers) == {frame.connection for frame in frames.sent}
    assert len(numbers) == (len(frames.received) if is_alone else 1)


@each_wire
async def test_a_subscription(open_wire: OpenWire) -> None:
    """What is sent on the event stream of a request, before its answer."""
    frames = Frames()
    async with open_wire(make_server(frames), MODERN) as wire:
        wire.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="s")
        assert (await wire.receive())["method"] == "notifications/subscriptions/acknowledged"
        await wire.text("grow")
        await until(lambda: ("s", "notifications/tools/list_changed") in frames.of(frames.sent))
    assert ("s", "notifications/subscriptions/acknowledged") in frames.of(frames.sent)


@pytest.mark.parametrize("open_wire", [memory_wire, http_wire])
async def test_a_batch_is_one_frame(open_wire: OpenWire) -> None:
    frames = Frames()
    async with open_wire(make_server(frames), "2025-03-26") as wire:
        await wire.request("ping")
        frames.received.clear()
        frames.sent.clear()
        wire.send([{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, 2)])
        answer = await wire.receive()
        assert {part["id"] for part in answer} == {1, 2}
    assert frames.of(frames.received) == frames.of(frames.sent) == [(None, "")]
    assert json.loads(frames.sent[0].data) == answer


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, asgi_websocket_wire])
async def test_what_cannot_be_read(open_wire: OpenWire) -> None:
    frames = Frames()
    async with open_wire(make_server(frames)) as wire:
        wire.send(b"{")
        await wire.receive()
        wire.send(b'{"jsonrpc":"2.0","id":5}')
        await wire.receive()
    assert [frame.data for frame in frames.received] == [b"{", b'{"jsonrpc":"2.0","id":5}']
    assert frames.of(frames.received) == frames.of(frames.sent) == [(None, ""), (5, "")]


async def test_refusals_over_http() -> None:
    """With a connection the error is a frame that is sent; before there is one nothing is told."""
    frames = Frames()
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "tools/list",
            "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": MODERN}},
        }
    ).encode()
    headers = [("Content-Type", "application/json"), ("Accept", BOTH), ("MCP-Protocol-Version", MODERN)]
    async with serving(make_server(frames)) as port:
        peer = await port.connect()
        peer.send(request("POST", "/mcp", [*headers, ("Mcp-Method", "tools/call")], body))
        answer = await peer.answer()
        assert answer.status == 400
        assert frames.of(frames.received) == frames.of(frames.sent) == [(7, "tools/list")]
        assert (frames.received[0].data, frames.sent[0].data) == (body, answer.body)

        peer = await port.connect()
        peer.send(request("POST", "/mcp", [*headers[:2], ("Mcp-Session-Id", "none")], body.replace(b"_meta", b"meta")))
        assert (await peer.answer()).status == 404
        peer = await port.connect()
        peer.send(request("POST", "/mcp", headers[:2], b"{"))
        assert (await peer.answer()).status == 400
    assert len(frames.received) == len(frames.sent) == 1


async def test_a_session_that_is_resumed_is_told_of_once() -> None:
    """A client that comes back with Last-Event-ID gets again what was sent; observers heard of it."""
    frames = Frames()
    server = make_server(frames)

    may_end = asyncio.Event()

    @server.tool
    async def leave(ctx: Context) -> str:
        ctx.close_stream()
        await may_end.wait()
        return "after all"

    async with serving(server, HttpSettings(retry_ms=10)) as port:
        session = await port.open()
        frames.sent.clear()
        answer = await session.ask("tools/call", {"name": "leave"}, "l")
        last = answer.text[4 : answer.text.index("\n")]
        may_end.set()
        await until(lambda: frames.of(frames.sent) == [("l", "tools/call")])
        for _ in range(2):
            resumed = await session.listen(last)
            assert (await resumed.message())["id"] == "l"
    assert frames.of(frames.sent) == [("l", "tools/call")]


async def test_errors_in_observers_break_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def frame_received(self, frame: ObservedFrame) -> None:
            raise OSError("no trace")

        def frame_sent(self, frame: ObservedFrame) -> None:
            raise OSError("no trace")

    frames = Frames()
    async with memory_wire(make_server(Broken(), frames), MODERN) as wire:
        assert await wire.text("echo", text="a") == "a"
    assert len(frames.sent) == 2
    assert "failed in frame_received" in caplog.text
    assert "failed in frame_sent" in caplog.text


async def test_one_of_the_two_is_enough() -> None:
    class Sent(Observer):
        sent = 0

        def frame_sent(self, frame: ObservedFrame) -> None:
            self.sent += 1

    observer = Sent()
    async with memory_wire(make_server(observer), MODERN) as wire:
        await wire.text("echo", text="a")
    assert observer.sent == 2


async def test_who_hears_of_calls_alone_pays_for_no_frames() -> None:
    """No hook of the connection is for frames, and HTTP keeps nothing of a POST."""

    class Counts(Observer):
        calls = 0

        def call_ended(self, call: ObservedCall, outcome: Any) -> None:
            self.calls += 1

    counts = Counts()
    server = make_server(counts)
    async with memory_wire(server, MODERN) as wire:
        await wire.text("echo", text="a")
        assert [hooks.observes_frames for hooks in wire.connection.session.hooks] == [False]
    assert counts.calls == 2
    assert server.asgi_app().core.watch_post is None
    assert make_server(Frames()).asgi_app().core.watch_post is not None
