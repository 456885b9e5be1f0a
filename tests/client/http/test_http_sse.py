"""HTTP+SSE of 2024-11-05: found by the fall back of the specification, and spoken until its stream ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import until
from support.http_script import Asked, Cut, Scripted, Write, event, events_head, reply, result, scripted

from mcpd import Callbacks, Client, ConnectionLost, HttpError, RemoteError, RequestTimeout

TIMEOUT = 30.0


class OldServer:
    """A server of the old transport; what it says goes over its one stream."""

    def __init__(self, endpoint: str = "/messages?session=1", refuses: int = 405) -> None:
        self.endpoint = endpoint
        self.refuses = refuses
        self.said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.server: Scripted | None = None

    async def answer(self, asked: Asked, write: Write) -> None:
        if asked.rpc == "GET":
            await write(events_head() + f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
            while (data := await self.said.get()) is not None:
                await write(data)
            raise Cut
        if asked.path == "/mcp":
            await write(reply(self.refuses, b"not here"))
            return

        # The answer may come before it is said that the request was taken.
        self.respond(asked)
        await write(reply(202, b"Accepted"))

    def respond(self, asked: Asked) -> None:
        if asked.rpc == "initialize":
            about = {"name": "old", "version": "1"}
            found = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": about}
            self.say(result(asked, found))
        elif asked.rpc == "tools/call":
            text = str(asked.message["params"]["arguments"])
            self.say(result(asked, {"content": [{"type": "text", "text": text}]}))

    def say(self, message: Any) -> None:
        self.said.put_nowait(event(message, name="message"))


@pytest.mark.parametrize("refuses", [400, 404, 405])
@pytest.mark.parametrize("endpoint", ["/messages?session=1", "messages?session=1", "{url}/messages?session=1"])
async def test_a_server_of_the_old_transport(refuses: int, endpoint: str) -> None:
    old = OldServer(endpoint, refuses)
    async with scripted(old.answer) as server:
        old.endpoint = endpoint.replace("{url}", server.url.removesuffix("/mcp"))
        changed = asyncio.Event()
        callbacks = Callbacks(list_changed=lambda _: changed.set())
        async with asyncio.timeout(TIMEOUT), Client(server.url, callbacks, headers={"X-Key": "k"}) as client:
            assert client.version == "2024-11-05"
            found = await asyncio.gather(*(client.call("x", n=number) for number in range(30)))
            assert found == [str({"n": number}) for number in range(30)]
            old.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await changed.wait()

        assert [one.rpc for one in server.asked[:4]] == ["server/discover", "initialize", "GET", "initialize"]
        assert {one.path for one in server.of("tools/call")} == {"/messages?session=1"}
        assert {one.headers["x-key"] for one in server.asked} == {"k"}
        await until(lambda: server.open == 0)


@pytest.mark.parametrize(("code", "is_old"), [(-32000, True), (-32022, False), (-32601, False)])
async def test_an_old_server_may_refuse_in_json(code: int, is_old: bool) -> None:
    old = OldServer()

    async def answer(asked: Asked, write: Write) -> None:
        if asked.method == "POST" and asked.path == "/mcp":
            error = {"code": code, "message": "Method not allowed."}
            await write(reply(405, {"jsonrpc": "2.0", "id": None, "error": error}))
        else:
            await old.answer(asked, write)

    async with scripted(answer) as server, asyncio.timeout(TIMEOUT):
        client = Client(server.url, version="2025-11-25")
        if not is_old:
            with pytest.raises(RemoteError, match="Method not allowed"):
                await client.open()
            assert not server.of("GET")
            return
        client = Client(server.url)
        async with client:
            assert await client.call("x", n=1) == "{'n': 1}"


async def test_a_version_that_was_wanted_needs_no_probe() -> None:
    old = OldServer()
    async with scripted(old.answer) as server, Client(server.url, version="2024-11-05") as client:
        assert await client.call("x") == "{}"
        assert server.asked[0].rpc == "initialize"


async def test_the_end_of_the_stream_is_the_end() -> None:
    old = OldServer()
    old.respond, respond = lambda asked: respond(asked) if asked.rpc == "initialize" else None, old.respond  # type: ignore[method-assign]
    async with scripted(old.answer) as server, Client(server.url, reconnect=False) as client:
        waiting = asyncio.create_task(client.call("x"))
        await until(lambda: server.of("tools/call"))
        old.said.put_nowait(None)
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="/mcp ended the stream"):
                await waiting
            waiting = asyncio.create_task(client.call("x"))


async def test_what_is_given_up_is_said() -> None:
    old = OldServer()
    old.respond, respond = lambda asked: respond(asked) if asked.rpc == "initialize" else None, old.respond  # type: ignore[method-assign]
    async with scripted(old.answer) as server, Client(server.url) as client:
        with pytest.raises(RequestTimeout):
            await client.call("x", timeout=0.1)
        await until(lambda: server.of("notifications/cancelled"))
        assert server.of("notifications/cancelled")[0].path == "/messages?session=1"


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        ("http://127.0.0.1:1/x", r"its endpoint http://127\.0\.0\.1:1/x is on another origin: refused"),
        ("//evil.test/x", r"its endpoint http://evil\.test/x is on another origin: refused"),
        ("http://[", "its endpoint 'http://\\[' is not a valid URL"),
        ("/" + "x" * 10000, "is not a valid URL"),
    ],
)
async def test_an_endpoint_that_is_refused(endpoint: str, text: str) -> None:
    old = OldServer(endpoint)
    async with scripted(old.answer) as server:
        with pytest.raises(HttpError, match=text):
            await Client(server.url).open()
        assert len(server.asked) == 3
        await until(lambda: server.open == 0)


@pytest.mark.parametrize(
    ("begin", "text"),
    [
        (
            reply(404),
            r"HTTP 405 Reason: no; it is not an HTTP\+SSE server of 2024-11-05 either: .*answers a GET with HTTP 404",
        ),
        (events_head() + event({"a": 1}), "the stream does not begin with its endpoint"),
        (events_head(), "the stream does not begin with its endpoint"),
    ],
)
async def test_a_server_of_neither_transport(begin: bytes, text: str) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await write(begin if asked.rpc == "GET" else reply(405, b"no"))
        if asked.rpc == "GET":
            raise Cut

    async with scripted(answer) as server:
        with pytest.raises(HttpError, match=text) as caught:
            await Client(server.url).open()
        assert caught.value.status == 405


async def test_a_message_that_is_refused_there() -> None:
    old = OldServer()

    async def answer(asked: Asked, write: Write) -> None:
        if asked.rpc == "tools/call":
            await write(reply(404, b"who are you"))
        else:
            await old.answer(asked, write)

    async with scripted(answer) as server, Client(server.url) as client:
        with pytest.raises(HttpError, match="HTTP 404 Reason: who are you"):
            await client.call("x")
