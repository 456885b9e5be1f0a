"""What the client puts on the wire, held against the official schema of each version; and what it rarely meets."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from support.clock import until
from support.wire_schema import Conversation

from mcpd import Callbacks, Client, Context, Server
from mcpd.errors import LocalProtocolError, McpdError, ProtocolError
from mcpd.protocol.types.base import LogMessageParams
from mcpd.protocol.types.features import TextContent
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    PromptReference,
    ResourceTemplateReference,
    Root,
)
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.transports.memory import MemoryChannel, pair
from mcpd.transports.process import open_process

pytestmark = pytest.mark.usefixtures("shared")


class Judged:
    """A server whose connections are listened to: each message, both ways, is held against its version's schema."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.conversation = Conversation()
        self.problems: list[str] = []
        self.sent: list[Any] = []

    def connect_memory(self) -> MemoryChannel:
        channel = self.server.connect_memory()
        send, start = channel.send, channel.start

        def judged_send(frame: bytes, related_request_id: Any = None, method: str | None = None) -> None:
            self.sent.append(json.loads(frame))
            self._judge(self.conversation.client, frame)
            send(frame)

        def judged_start(receiver: Any) -> None:
            receive = receiver.receive

            def judged_receive(frame: bytes) -> None:
                self._judge(self.conversation.server, frame)
                receive(frame)

            receiver.receive = judged_receive
            start(receiver)

        channel.send, channel.start = judged_send, judged_start  # type: ignore[method-assign]
        return channel

    def _judge(self, judge: Any, frame: bytes) -> None:
        try:
            judge(json.loads(frame))
        except AssertionError as error:
            self.problems.append(f"{frame.decode()[:300]}: {error}")


def make_server() -> Server:
    server = Server("judged", version="1.0")

    @server.tool
    async def ask(ctx: Context) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await ctx.elicit("Name?", form)
        greeting = await ctx.sample("Greet", max_tokens=3)
        roots = await ctx.list_roots()
        return f"{answer.action} {greeting.text} {len(roots)}"

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.progress(1, total=2)
        await ctx.info({"a": 1})
        return "reported"

    @server.tool
    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    server.add_text("notes://a", "text", name="a")

    @server.resource("notes://{name}/long")
    async def long(name: str) -> str:
        return name

    @server.prompt
    async def review(code: str) -> str:
        return code

    return server


def elicit(params: ElicitFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "x"})


def visit(params: ElicitUrlParams) -> ElicitResult:
    return ElicitResult(action="decline")


def sample(params: CreateMessageParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", model="m", content=TextContent("hi"), stop_reason="endTurn")


@pytest.mark.parametrize("version", [None, *SUPPORTED])
async def test_every_message_meets_its_versions_schema(version: str | None) -> None:
    """All requests, answers to the server, cancellation and notifications, in every version and after a probe."""
    judged, logged, heard = Judged(make_server()), list[LogMessageParams](), asyncio.Queue[str]()
    callbacks = Callbacks(
        elicit_form=elicit,
        elicit_url=visit,
        sample=sample,
        sample_tools=True,
        roots=lambda: [Root(uri="file:///a", name="A")],
        log=logged.append,
        list_changed=heard.put_nowait,
        resource_updated=heard.put_nowait,
    )
    extensions = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    async with Client(judged, callbacks, version=version, extensions=extensions) as client:
        await client.set_log_level("info")
        await client.list_tools()
        await client.list_resources()
        await client.list_resource_templates()
        await client.list_prompts()
        await client.read_resource("notes://a")
        await client.get_prompt("review", {"code": "x"})
        await client.complete(PromptReference(name="review"), "code", "x", {"a": "b"})
        await client.complete(ResourceTemplateReference(uri="notes://{name}/long"), "name", "x")
        await client.call_tool("report", on_progress=lambda *_: None)
        await client.call_tool("ask")
        await client.subscribe("notes://a")
        judged.server.resource_updated("notes://a")
        assert await heard.get() == "notes://a"
        await client.unsubscribe("notes://a")
        if client.version != "2024-10-07":
            client.roots_changed()
            running = asyncio.ensure_future(client.call_tool("forever"))
            await client.ping()
            running.cancel()
            await asyncio.wait([running])
        await client.ping()
        assert [params.data for params in logged] == [{"a": 1}]
    assert judged.problems == []
    methods = {message.get("method") for message in judged.sent}
    assert methods >= {"tools/call", "resources/read", "prompts/get", "completion/complete", "resources/templates/list"}


async def test_a_method_that_the_version_does_not_have() -> None:
    async with Client(make_server()) as client:
        with pytest.raises(LocalProtocolError, match="ping does not exist in protocol version 2026-07-28"):
            await client.request("ping")
        with pytest.raises(LocalProtocolError, match="JSON"):
            await client.call_tool("report", {"a": object()})


class Old:
    """A server that answers in batches, which 2025-03-26 alone has."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.near, self.far = pair()
        self.heard: list[Any] = []
        self.far.start(self)

    def receive(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.heard.append(message)
        if message.get("method") == "initialize":
            info = {"protocolVersion": self.version, "capabilities": {}, "serverInfo": {"name": "o", "version": "1"}}
            self.far.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": info}).encode())
        elif message.get("method") == "ping":
            batch = [
                {"jsonrpc": "2.0", "id": "their-ping", "method": "ping"},
                {"jsonrpc": "2.0", "id": message["id"], "result": {}},
                {"jsonrpc": "1.0", "id": "bad"},
            ]
            self.far.send(json.dumps(batch).encode())

    def receive_error(self, error: ProtocolError) -> None:
        raise AssertionError(error)

    def closed(self, error: Exception | None = None) -> None:
        pass


@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
async def test_batches_are_read_in_every_version(version: str) -> None:
    """2025-03-26 basic/index: an implementation must be able to receive them. Some servers send them later, too."""
    old = Old(version)
    async with Client(old.near, version=version) as client:
        await client.ping()
        await client.ping()
    assert {"jsonrpc": "2.0", "id": "their-ping", "result": {}} in old.heard


async def test_a_subscription_that_the_server_ends_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """2026-07-28 patterns/subscriptions: to hear more, `subscriptions/listen` is sent again."""
    monkeypatch.setattr("mcpd.client.eras.AGAIN_SECONDS", 0.01)
    judged, heard = Judged(make_server()), asyncio.Queue[str]()
    async with Client(judged, Callbacks(list_changed=heard.put_nowait)) as client:
        for connection in list(judged.server._connections._connections):
            connection.subscriptions.end_all()
        await until(lambda: [one.get("method") for one in judged.sent].count("subscriptions/listen") >= 2)
        await client.ping()
        # What changed in between was not heard, so that everything may have.
        assert [await heard.get() for _ in range(3)] == ["tools", "prompts", "resources"]
        judged.server.add_text("notes://b", "x", name="b")
        assert await heard.get() == "resources"


DEAF = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True); time.sleep(600)"
)


async def test_a_child_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """2025-11-25 basic/lifecycle, shutdown: its input closed, SIGTERM, SIGKILL."""
    monkeypatch.setattr("mcpd.transports.child.GRACE_SECONDS", 0.1)
    channel = await open_process([sys.executable, "-c", DEAF])
    is_deaf = asyncio.Event()  # before, SIGTERM would end it

    class Ear:
        def receive(self, frame: bytes) -> None:
            is_deaf.set()

        def receive_error(self, error: ProtocolError) -> None:
            raise error

        def closed(self, error: McpdError | None = None) -> None: ...

    channel.start(Ear())
    await is_deaf.wait()
    await channel.aclose()
    await channel.aclose()
    assert channel.process.returncode == -9
