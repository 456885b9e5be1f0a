"""Channels are told what they send: the id of the request that a frame belongs to, and its method, at both ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.ui_stage import BOTH_ERAS
from support.wires import MODERN

from mcpd import Client, Context, Server
from mcpd.client import Callbacks
from mcpd.errors import RequestTimeout
from mcpd.protocol.types.interaction import ElicitFormParams, ElicitResult
from mcpd.transports.memory import MemoryChannel

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def make_server() -> Server:
    server = Server("told")

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.progress(1, 2)
        return "done"

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Which flower?", FORM)).get()["name"])

    @server.tool
    async def wait() -> str:
        await asyncio.sleep(3600)
        return ""

    @server.tool
    async def grow() -> str:
        server.tool(lambda: "new", name="new")
        return "grown"

    return server


@BOTH_ERAS
async def test_the_id_and_the_method_of_every_frame(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Any, str, Any, Any]] = []
    servers: set[int] = set()

    def note(send: Any) -> Any:
        def noting(
            self: MemoryChannel, frame: bytes, related_request_id: Any = None, method: str | None = None
        ) -> None:
            sent.append((json.loads(frame), "server" if id(self) in servers else "client", related_request_id, method))
            send(self, frame, related_request_id, method)

        return noting

    monkeypatch.setattr(MemoryChannel, "send", note(MemoryChannel.send))
    server = make_server()
    connect = server.connect

    def connect_noted(channel: Any, *others: Any) -> Any:
        servers.add(id(channel))
        return connect(channel, *others)

    monkeypatch.setattr(server, "connect", connect_noted)

    def elicit(params: ElicitFormParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "rose"})

    heard = asyncio.Queue[str]()
    callbacks = Callbacks(elicit_form=elicit, list_changed=heard.put_nowait)
    async with Client(server, callbacks, version=version) as client:
        await client.call_tool("report", on_progress=lambda *_: None)
        await client.call_tool("ask")
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait", timeout=0.05)
        await client.call_tool("grow")
        assert await heard.get() == "tools"

    requests: dict[tuple[str, Any], str] = {
        (end, message["id"]): message["method"]
        for message, end, _, _ in sent
        if "method" in message and "id" in message
    }
    kinds = set()
    for message, end, related_request_id, method in sent:
        if "method" not in message:
            other = "client" if end == "server" else "server"
            assert (related_request_id, method) == (message["id"], requests[other, message["id"]])
            kinds.add((end, "answer"))
            continue
        assert method == message["method"]
        kinds.add((end, method))
        if end == "client":
            gives_up = method == "notifications/cancelled"
            own = message["params"]["requestId"] if gives_up else message.get("id")
            assert related_request_id == own
        elif method in ("notifications/progress", "elicitation/create"):
            assert requests["client", related_request_id] == "tools/call"
        elif method == "notifications/tools/list_changed":
            about = "subscriptions/listen" if version == MODERN else None
            assert requests.get(("client", related_request_id)) == about
    assert {("client", "tools/call"), ("client", "notifications/cancelled"), ("server", "answer")} <= kinds
    assert ("server", "notifications/tools/list_changed") in kinds
    if version != MODERN:
        assert {("client", "answer"), ("server", "elicitation/create")} <= kinds
