"""`mcpd.testing`: what authors test their servers with."""

from __future__ import annotations

from typing import Any

import pytest
from support.wires import MODERN

from mcpd import ANONYMOUS, Callbacks, Context, ElicitResult, Principal, RemoteError, Server, ToolError, image
from mcpd.protocol.types.features import ImageContent
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.testing import VERSIONS, TestClient, WireMessage

each_version = pytest.mark.parametrize("version", VERSIONS)


def make_server(**options: Any) -> Server:
    server = Server("t", **options)

    @server.tool
    def numbers() -> list[int]:
        return [1, 2]

    @server.tool
    def named() -> dict[str, int]:
        return {"result": 1}

    @server.tool
    def fails() -> str:
        raise ToolError("no\nway")

    @server.tool
    def nothing() -> None: ...

    @server.tool
    def picture() -> Any:
        return [image(b"\x89PNG", mime_type="image/png")]

    @server.tool
    async def who(ctx: Context) -> list[str]:
        return [ctx.user.subject, ctx.transport, str(ctx.headers)]

    @server.tool
    async def asks(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool)
        return str(answer.get())

    return server


def test_the_versions_are_all_oldest_first() -> None:
    assert set(VERSIONS) == set(SUPPORTED)
    assert VERSIONS[-1] == MODERN
    assert sorted(VERSIONS) == list(VERSIONS)


@each_version
async def test_a_value_is_the_same_in_each_version_that_has_structured_results(version: str) -> None:
    async with TestClient(make_server(), version=version) as client:
        assert client.version == version
        if version >= "2025-06-18":
            assert await client.value("numbers") == [1, 2]
            assert await client.value("named") == {"result": 1}
            assert await client.value("nothing") is None
        else:
            assert await client.value("numbers") == "[1,2]"


async def test_failures_raise_and_content_is_content() -> None:
    async with TestClient(make_server()) as client:
        with pytest.raises(ToolError, match="no\nway"):
            await client.value("fails")
        with pytest.raises(RemoteError, match="no_such"):
            await client.value("no_such")
        (block,) = await client.value("picture")
        assert isinstance(block, ImageContent)


@each_version
async def test_it_can_be_anybody(version: str) -> None:
    """Also where the state of a question is sealed for who was asked."""
    callbacks = Callbacks(elicit_form=lambda form: ElicitResult(action="accept", content={"value": True}))
    ada = Principal("ada", scopes=["read"])
    async with TestClient(make_server(), callbacks, user=ada, headers={"X-Tenant": "red"}, version=version) as client:
        if version >= "2025-06-18":
            assert await client.value("who") == ["ada", "memory", "{'x-tenant': 'red'}"]
            assert await client.value("asks") == "True"
    async with TestClient(make_server(), version=version) as client:
        assert ANONYMOUS.subject == ""
        if version >= "2025-06-18":
            assert await client.value("who") == ["", "memory", "{}"]


@each_version
async def test_what_passed_is_kept_in_order(version: str) -> None:
    async with TestClient(make_server(), version=version) as client:
        await client.value("numbers")
        assert client.messages[0] == WireMessage("client", client.sent()[0])
        first = "server/discover" if version == MODERN else "initialize"
        assert client.messages[0].method == first
        (call,) = client.sent("tools/call")
        (answer,) = [message for message in client.received() if message.get("id") == call["id"]]
        assert answer["result"]["content"]
        assert client.received("tools/call") == []
        order = [one.message for one in client.messages]
        assert order.index(call) < order.index(answer)
        assert [one.method for one in client.messages if one.message is answer] == [None]


async def test_what_is_no_message_is_kept_as_it_came() -> None:
    client = TestClient(make_server())
    async with client:
        assert client._open is not None
        client._open.channel.send(b'\xff{"half')
        client._open.channel.send(b"[1]")
        await client.ping() if client.version != MODERN else await client.list_tools()
    assert WireMessage("client", '\\xff{"half') in client.messages
    assert WireMessage("client", [1]) in client.messages
    assert [one.method for one in client.messages if one.message == [1]] == [None]
