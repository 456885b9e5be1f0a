"""`ctx.user`, `ctx.headers` and `ctx.transport`, on the wire: every transport, both eras, both kinds of function."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.http_peer import Port, call, post, serving
from support.http_wire import http_wire
from support.websocket_peer import PING, PONG, TEXT, Peer, frame
from support.wires import LEGACY, MODERN, each_version, each_wire, initialize, memory_wire

from mcpd import Context, Server
from mcpd.server.http import HttpSettings

SECRETS = {"Authorization": "Bearer abc", "Cookie": "session=abc", "X-Api-Key": "abc"}


def watching() -> Server:
    """Tools that give what they know of the request."""
    server = Server("who")

    def told(ctx: Context) -> str:
        user = {"subject": ctx.user.subject, "scopes": sorted(ctx.user.scopes), "claims": dict(ctx.user.claims)}
        return json.dumps({"transport": ctx.transport, "headers": ctx.headers, "user": user})

    @server.tool
    async def seen(ctx: Context) -> str:
        return told(ctx)

    @server.tool
    def seen_sync(ctx: Context) -> str:
        return told(ctx)

    @server.tool
    async def seen_later(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.info("the answer is a stream by now")
        return told(ctx)

    return server


NOBODY = {"subject": "", "scopes": [], "claims": {}}
each_tool = pytest.mark.parametrize("tool", ["seen", "seen_sync", "seen_later"])


def body(message: Any) -> Any:
    """What a tool told, out of the answer to its call."""
    return json.loads(message["result"]["content"][0]["text"])


@each_version
@each_wire
@each_tool
async def test_without_http_there_are_no_headers(open_wire: Any, version: str, tool: str) -> None:
    async with open_wire(watching(), version) as wire:
        known = json.loads(await wire.text(tool))
    assert known["transport"] == open_wire.__name__.removesuffix("_wire")
    assert known["user"] == NOBODY
    if known["transport"] != "websocket":
        assert known["headers"] == {}


@each_version
@each_tool
async def test_over_http_they_are_those_of_the_request(version: str, tool: str) -> None:
    async with http_wire(watching()) as wire:
        await wire.open(version)
        known = json.loads(await wire.text(tool))
    assert known["transport"] == "http"
    assert known["headers"]["host"] == "localhost"
    assert known["headers"]["content-type"] == "application/json"
    assert ("mcp-session-id" in known["headers"]) == (version != MODERN)
    assert known["user"] == NOBODY


@each_tool
async def test_credentials_are_no_headers_to_a_tool(tool: str) -> None:
    async with serving(watching()) as port:
        params = {"name": tool, "arguments": {}}
        answer = await port.modern("tools/call", params, headers={**SECRETS, "X-Tenant": "red"})
        known = body(answer.messages[-1])
        assert "abc" not in json.dumps(known)
        assert known["headers"]["x-tenant"] == "red"

        session = await port.open()
        session.extra = {**SECRETS, "X-Tenant": "red"}
        # A session begun without these is not theirs.
        assert (await session.ask("ping")).status == 404


@each_tool
async def test_in_a_session_each_call_has_the_headers_of_its_own_request(tool: str) -> None:
    async with serving(watching()) as port:
        session = await port.open()
        for tenant in ("red", "blue"):
            session.extra = {"X-Tenant": tenant}
            answer = await session.ask("tools/call", {"name": tool, "arguments": {}}, id=tenant)
            assert body(answer.messages[-1])["headers"]["x-tenant"] == tenant


@each_tool
async def test_in_a_batch_too(tool: str) -> None:
    async with serving(watching()) as port:
        session = await port.open("2025-03-26")
        session.extra = {"X-Tenant": "red"}
        params = {"name": tool, "arguments": {}}
        batch = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params} for n in (1, 2)]
        answer = await session.post(batch)
        (answers,) = [message for message in answer.messages if isinstance(message, list)]
        assert [body(message)["headers"]["x-tenant"] for message in answers] == ["red", "red"]


async def upgraded(port: Port, **headers: str) -> Peer:
    """A WebSocket on the HTTP port, initialized."""
    connected = await port.connect()
    peer = Peer(connected.reader, connected.writer)
    await peer.open(**headers)
    peer.send(frame(TEXT, json.dumps(initialize("2025-11-25")).encode()))
    assert "result" in json.loads(await peer.text())
    return peer


async def ask(peer: Peer, tool: str) -> Any:
    """What a tool tells over a WebSocket; what it says before is passed over."""
    message = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
    peer.send(frame(TEXT, json.dumps(message).encode()))
    while True:
        opcode, payload = await peer.frame()
        if opcode == PING:
            peer.send(frame(PONG, payload))
        elif "id" in (answer := json.loads(payload)):
            return body(answer)


@each_tool
async def test_of_a_websocket_they_are_those_of_its_handshake(tool: str) -> None:
    async with serving(watching()) as port:
        secrets = {name.replace("-", "_"): value for name, value in SECRETS.items()}
        peer = await upgraded(port, X_Tenant="grün", Sec_WebSocket_Protocol="mcp, abc", **secrets)
        known = await ask(peer, tool)
    assert known["transport"] == "websocket"
    assert known["headers"]["x-tenant"] == "grün"
    assert known["headers"]["upgrade"] == "websocket"
    assert "abc" not in json.dumps(known)


async def test_what_a_tool_does_to_what_a_client_said_is_seen_by_no_other_client() -> None:
    """Clients that say the same of themselves are kept as one."""
    server = Server("notes")

    @server.tool
    async def note(who: str, ctx: Context) -> str:
        seen = repr((ctx.client_capabilities, ctx.client_info, ctx.client.capabilities))
        for offered in (ctx.client_capabilities, ctx.client.capabilities):
            if offered.experimental is None:
                offered.experimental = {}
            offered.experimental["last"] = who
            offered.experimental.setdefault("deep", {})["last"] = who
        if ctx.client_info is not None:
            ctx.client_info.title = who
        return seen

    said: list[str] = []
    for who in ("alice", "bob", "carol"):
        async with memory_wire(server, LEGACY[-1], capabilities={"experimental": {"deep": {}}}) as wire:
            result = await wire.result("tools/call", {"name": "note", "arguments": {"who": who}})
            said.append(result["content"][0]["text"])
    assert "deep" in said[0]
    assert said[0] == said[1] == said[2]

    async with serving(server, HttpSettings(stateless=True)) as port:  # where nothing at all was said
        for who in ("dora", "emil"):
            asked = {"name": "note", "arguments": {"who": who}}
            answer = await port.ask(post(call("tools/call", asked), {"MCP-Protocol-Version": LEGACY[-1]}))
            said.append(answer.messages[0]["result"]["content"][0]["text"])
    assert "deep" not in said[3]
    assert said[3] == said[4]
