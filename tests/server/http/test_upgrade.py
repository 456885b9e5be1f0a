"""WebSocket through an ASGI server: the application called as such a server calls it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from support.http_stage import Stage

from mcpd import Principal
from mcpd.server.http import HttpApp, HttpSettings

PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
PONG = '{"jsonrpc":"2.0","id":1,"result":{}}'


class Socket:
    """An ASGI server's side of one WebSocket; `gate` holds what is sent while it is not set."""

    def __init__(self, app: HttpApp, path: str = "/mcp", extensions: Any = None, **headers: str) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_gone = False
        fields = {"host": "localhost", **headers}
        scope = {
            "type": "websocket",
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            "subprotocols": ["other", "mcp"],
            "extensions": extensions or {},
        }
        self.incoming.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(app(scope, self.incoming.get, self._send))  # type: ignore[arg-type]

    async def _send(self, message: Any) -> None:
        await self.gate.wait()
        if self.is_gone:
            raise OSError("gone")
        self.sent.put_nowait(message)

    def say(self, text: str) -> None:
        self.incoming.put_nowait({"type": "websocket.receive", "text": text})

    async def open(self) -> None:
        assert await self.sent.get() == {"type": "websocket.accept", "subprotocol": "mcp"}

    async def hear(self) -> Any:
        message = await self.sent.get()
        assert message["type"] == "websocket.send"
        return json.loads(message["text"])

    async def leave(self, code: int = 1001) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": code})
        await self.task


async def test_messages_both_ways() -> None:
    stage = Stage()
    app = stage.server.asgi_app()
    for path in ("/mcp", "/mcp/", "/"):
        socket = Socket(app, path)
        await socket.open()
        socket.say(PING)
        assert await socket.hear() == json.loads(PONG)
        await socket.leave()
    assert not app.connections
    assert not stage.server._connections


async def test_a_session_is_one_connection() -> None:
    """Legacy state, list changes, and calls that end when the client leaves."""
    stage = Stage()
    socket = Socket(stage.server.asgi_app())
    await socket.open()
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    socket.say(json.dumps(hello))
    assert (await socket.hear())["result"]["protocolVersion"] == "2025-11-25"
    socket.say('{"jsonrpc":"2.0","method":"notifications/initialized"}')
    socket.say(PING)
    await socket.hear()
    stage.change()
    assert (await socket.hear())["method"] == "notifications/tools/list_changed"
    socket.say('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait"}}')
    await stage.entered.get()
    await socket.leave(1006)
    assert await stage.left.get() == "door:cancelled"


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"host": "evil.example.com"}, "/mcp", 403),
        ({"origin": "http://evil.example.com"}, "/mcp", 403),
        ({"authorization": "Bearer wrong"}, "/mcp", 401),
        ({"authorization": "Bearer t"}, "/else", 404),
    ],
)
async def test_refusals(headers: dict[str, str], path: str, status: int) -> None:
    """S25-031, S26-052: as an HTTP answer where the server can, as a closed handshake where not."""
    stage = Stage()
    app = stage.server.asgi_app(token="t")
    socket = Socket(app, path, {"websocket.http.response": {}}, **headers)
    await socket.task
    start, body = socket.sent.get_nowait(), socket.sent.get_nowait()
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert body["type"] == "websocket.http.response.body"
    assert body["body"]
    socket = Socket(app, path, None, **headers)
    await socket.task
    assert socket.sent.get_nowait()["type"] == "websocket.close"


async def test_no_new_ones_while_draining() -> None:
    stage = Stage()
    app = stage.server.asgi_app()
    app.drain()
    socket = Socket(app)
    await socket.task
    assert socket.sent.get_nowait()["type"] == "websocket.close"


async def test_binary_messages_are_not_spoken() -> None:
    stage = Stage()
    socket = Socket(stage.server.asgi_app())
    await socket.open()
    socket.incoming.put_nowait({"type": "websocket.receive", "bytes": b"{}"})
    await socket.task
    assert (await socket.sent.get())["code"] == 1003


async def test_a_message_over_the_limit_is_refused_and_the_connection_goes_on() -> None:
    stage = Stage()
    socket = Socket(stage.server.asgi_app(settings=HttpSettings(max_body_bytes=100)))
    await socket.open()
    socket.say(PING + " " * 100)
    assert (await socket.hear())["error"]["code"] == -32600
    socket.say(PING)
    assert await socket.hear() == json.loads(PONG)
    await socket.leave()


async def test_the_end_of_the_application_closes_it() -> None:
    stage = Stage()
    app = stage.server.asgi_app()
    socket = Socket(app)
    await socket.open()
    socket.say('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"no-such"}}')
    await asyncio.sleep(0)
    await app.aclose()
    messages = [await socket.sent.get()]
    while messages[-1]["type"] != "websocket.close":
        messages.append(await socket.sent.get())
    assert messages[-1]["code"] == 1001
    await socket.leave()


async def test_a_client_that_does_not_read_gets_no_more_done() -> None:
    """What it asks for then is not even looked at; and it cannot hold memory without end."""
    stage = Stage()
    app = stage.server.asgi_app()
    socket = Socket(app)
    await socket.open()
    (channel,) = app.core.sockets
    socket.gate.clear()
    channel.send(b"x" * 2_000_000)
    assert channel.is_congested
    socket.say(PING)
    socket.say(PING)
    for _ in range(50):
        await asyncio.sleep(0)
    assert socket.incoming.qsize() == 1
    socket.gate.set()
    await socket.sent.get()
    for _ in range(2):
        assert await socket.hear() == json.loads(PONG)
    socket.gate.clear()
    for _ in range(80):
        channel.send(b"x" * 1_000_000)
    assert not channel.is_congested
    socket.say('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"change"}}')
    await socket.task
    assert not stage.server.remove_tool("extra")
    socket.gate.set()
    assert (await socket.sent.get())["code"] == 1008
    assert socket.sent.empty()


async def test_nothing_is_done_for_a_client_whose_token_has_expired() -> None:
    """Some servers pass on what a client sends after its close, until the client has answered that."""
    stage = Stage()

    async def authenticate(headers: Any) -> Principal:
        return Principal("ada", expires=time.time() + 0.2)

    socket = Socket(stage.server.asgi_app(authenticate=authenticate))
    await socket.open()
    assert (await socket.sent.get())["code"] == 1008
    socket.say('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"change"}}')
    await socket.task
    assert not stage.server.remove_tool("extra")


async def test_a_server_that_cannot_send_means_that_the_client_is_gone() -> None:
    stage = Stage()
    app = stage.server.asgi_app()
    socket = Socket(app)
    await socket.open()
    socket.is_gone = True
    socket.say(PING)
    for _ in range(10):
        await asyncio.sleep(0)
    (channel,) = app.core.sockets
    assert not channel.is_open
    channel.send(b"into the void")
    await channel.drain()
    await channel.aclose()
    await socket.leave()
