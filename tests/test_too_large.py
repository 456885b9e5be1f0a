"""What is larger than a message may be is refused at once, on the side that knows: nobody waits for it for ever.

The limit is 64 MiB; here it is less, so that little has to be written.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.clock import until
from support.http_wire import http_wire
from support.wires import LEGACY, MODERN, memory_wire, stdio_wire, websocket_wire

from mcpd import Client, Context, Server
from mcpd.client import session as client_session
from mcpd.errors import FrameTooLarge, LocalProtocolError
from mcpd.transports.stdio import StdioChannel

LIMIT = 4000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server("large")
    server._max_frame_bytes = LIMIT
    monkeypatch.setattr(server, "allow_frames", lambda size: None)

    @server.tool
    async def large(size: int) -> str:
        return "x" * size

    @server.tool
    def large_in_thread(size: int) -> str:
        return "x" * size

    @server.tool
    async def asks(ctx: Context, size: int) -> str:
        answer = await ctx.elicit("x" * size, {"type": "object", "properties": {}})
        return answer.action

    @server.resource("test://large")
    def resource() -> str:
        return "x" * (2 * LIMIT)

    return server


WIRES: Any = [memory_wire, stdio_wire, websocket_wire, http_wire]


@pytest.mark.parametrize("version", [LEGACY[0], LEGACY[-1], MODERN])
@pytest.mark.parametrize("open_wire", WIRES)
async def test_a_result_that_is_too_large_is_an_error_of_its_request(
    server: Server, open_wire: Any, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_wire(server, version) as wire:
        for tool in ("large", "large_in_thread"):
            error = await wire.error("tools/call", {"name": tool, "arguments": {"size": LIMIT}})
            assert error["code"] == -32603
            assert f"a message may have {LIMIT}" in error["message"]
        assert (await wire.error("resources/read", {"uri": "test://large"}))["code"] == -32603
        assert await wire.text("large", size=1000) == "x" * 1000
    assert "tools/call (id" in caplog.text
    assert "too large" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("open_wire", WIRES[:3])
async def test_answers_that_are_too_large_together(server: Server, open_wire: Any) -> None:
    """A batch is answered by one message: what has no room in it is refused, the rest is there."""
    async with open_wire(server, "2025-03-26") as wire:
        parts = [
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": "large", "arguments": {"size": size}},
            }
            for number, size in ((11, 1500), (12, 3000), (13, 1500))
        ]
        wire.send(parts)
        answers = sorted(await wire.receive(), key=lambda answer: int(answer["id"]))
        assert ["error" in answer for answer in answers] == [False, True, False]
        assert answers[1]["error"]["code"] == -32603


@pytest.mark.parametrize("open_wire", WIRES)
async def test_a_question_that_is_too_large_fails_its_tool(server: Server, open_wire: Any) -> None:
    async with open_wire(server, LEGACY[-1], capabilities={"elicitation": {}}) as wire:
        answer = await wire.request("tools/call", {"name": "asks", "arguments": {"size": LIMIT}})
        assert answer["result"]["isError"]


class _Says:
    """A server's end of two pipes: answers each request with what `answer` makes of it."""

    def __init__(self, answer: Callable[[dict[str, Any]], bytes]) -> None:
        self.answer = answer
        self.heard: list[Any] = []
        self.channel: StdioChannel

    def receive(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.heard.append(message)
        if "method" in message and "id" in message:
            self.channel.send(self.answer(message))

    def receive_error(self, error: Exception) -> None: ...
    def closed(self, error: Exception | None = None) -> None: ...


@asynccontextmanager
async def talking_to(answer: Callable[[dict[str, Any]], bytes]) -> AsyncIterator[tuple[Client, _Says]]:
    """A client that takes messages of up to LIMIT bytes."""
    near_in, far_out = os.pipe()
    far_in, near_out = os.pipe()
    says = _Says(lambda message: answer(message) if message["method"] == "tools/call" else _opening(message))
    says.channel = StdioChannel(far_in, far_out)
    says.channel.start(says)
    try:
        async with Client(StdioChannel(near_in, near_out, max_frame_bytes=LIMIT, always_reads=True)) as client:
            yield client, says
    finally:
        await says.channel.aclose()
        for descriptor in (near_in, near_out, far_in, far_out):
            os.close(descriptor)


def _opening(message: dict[str, Any]) -> bytes:
    if message["method"] != "initialize":
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "?"}}).encode()
    result = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    }
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


LARGE = {"content": [{"type": "text", "text": "x" * 2 * LIMIT}]}


@pytest.mark.parametrize("order", [("jsonrpc", "id", "result"), ("result", "jsonrpc", "id")])
async def test_an_answer_that_is_too_large_ends_its_call(order: tuple[str, ...]) -> None:
    """And no other, though its body was never read."""
    later: list[bytes] = []

    def answer(message: dict[str, Any]) -> bytes:
        members = {"jsonrpc": "2.0", "id": message["id"], "result": LARGE}
        if message["params"]["name"] == "small":
            later.append(json.dumps({**members, "result": {"content": []}}).encode())
            return b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
        return json.dumps({name: members[name] for name in order}).encode()

    async with talking_to(answer) as (client, says):
        other = asyncio.create_task(client.call_tool("small"))
        with pytest.raises(FrameTooLarge, match=f"at most {LIMIT} bytes"):
            await client.call_tool("large")
        await until(lambda: bool(later))
        assert not other.done()
        says.channel.send(later[0])
        await other


async def test_an_answer_of_which_nothing_can_be_told_ends_all_calls() -> None:
    def answer(message: dict[str, Any]) -> bytes:
        if message["params"]["name"] == "silent":
            return b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
        return b"x" * 2 * LIMIT

    async with talking_to(answer) as (client, _):
        other = asyncio.create_task(client.call_tool("silent"))
        for call in (client.call_tool("large"), other):
            with pytest.raises(FrameTooLarge):
                await call


async def test_other_messages_that_are_too_large_end_no_call() -> None:
    """A notification is missed; a question is refused."""
    small = {"content": [{"type": "text", "text": "small"}]}

    def answer(message: dict[str, Any]) -> bytes:
        told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": LARGE}}
        asked = {"method": "sampling/createMessage", "params": LARGE, "jsonrpc": "2.0", "id": 77}
        result = {"jsonrpc": "2.0", "id": message["id"], "result": small}
        return b"\n".join(json.dumps(line).encode() for line in (told, asked, result))

    async with talking_to(answer) as (client, says):
        await client.call_tool("any")
        await client.call_tool("any")
        refused = next(message for message in says.heard if message.get("id") == 77)
        assert refused["error"]["code"] == -32600


async def test_a_request_of_ours_that_is_too_large_is_not_sent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client(server) as client:
        monkeypatch.setattr(client_session, "MAX_FRAME_BYTES", LIMIT)
        with pytest.raises(LocalProtocolError, match=f"the maximum is {LIMIT}"):
            await client.call_tool("large", {"size": 1, "more": "x" * LIMIT})
        await client.call_tool("large", {"size": 1})


@pytest.mark.parametrize("order", [("jsonrpc", "id", "method", "params"), ("method", "params", "jsonrpc", "id")])
async def test_a_request_that_is_too_large_is_refused_under_its_id(order: tuple[str, ...]) -> None:
    """So that its client need not wait; an answer to a question of ours fails the tool that asked."""
    server = Server("small")

    @server.tool
    async def asks(ctx: Context) -> str:
        return (await ctx.elicit("?", {"type": "object", "properties": {}})).action

    far_in, writes = os.pipe()
    reads, far_out = os.pipe()
    os.set_blocking(reads, False)
    channel = StdioChannel(far_in, far_out, max_frame_bytes=LIMIT)
    connection = server.connect(channel)
    channel.start(connection)

    async def said() -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def look() -> bool:
            try:
                found.append(json.loads(os.read(reads, 100_000)))
            except BlockingIOError:
                return False
            return True

        await until(look)
        return found[0]

    def say(**members: Any) -> None:
        os.write(writes, json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")

    opening = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
    say(id=0, method="initialize", params={**opening, "clientInfo": {"name": "c", "version": "1"}})
    await said()
    values = {"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": {"name": "x", "arguments": LARGE}}
    os.write(writes, json.dumps({name: values[name] for name in order}).encode() + b"\n")
    refused = await said()
    assert refused["id"] == "mine"
    assert refused["error"]["code"] == -32600
    say(id=2, method="tools/call", params={"name": "asks"})
    asked = await said()
    say(id=asked["id"], result={"action": "accept", "content": LARGE})
    answer = await said()
    assert answer["id"] == 2
    assert answer["result"]["isError"]
    assert "too large" in answer["result"]["content"][0]["text"]
    await channel.aclose()
    for descriptor in (far_in, writes, reads, far_out):
        os.close(descriptor)
