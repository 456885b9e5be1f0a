"""`TestClient` over each transport in each version, and `SyncTestClient`: the same as in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
import pytest
from support.wires import MODERN, each_version

from mcpd import Callbacks, Context, ElicitResult, Principal, Refusal, RemoteError, Server, ToolError
from mcpd.errors import ConfigurationError, LocalProtocolError, TransportError
from mcpd.protocol.principal import Transport
from mcpd.testing import TRANSPORTS, SyncTestClient, TestClient

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
AGREES = Callbacks(elicit_form=lambda form: ElicitResult(action="accept", content={"value": True}))


def make_server(**options: Any) -> Server:
    server = Server("t", **options)

    @server.tool
    async def who(ctx: Context) -> list[str]:
        return [ctx.user.subject, ctx.transport, ctx.headers.get("x-tenant", "")]

    @server.tool
    async def asks(ctx: Context) -> str:
        await ctx.progress(1, 2)
        answer = await ctx.elicit("Sure?", bool)
        return str(answer.get())

    @server.tool
    def fails() -> str:
        raise ToolError("no way")

    @server.tool
    def mirrored(region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})], n: int = 0) -> str:
        return f"{region} {n}"

    @server.resource("text://a")
    def a() -> str:
        return "ä"

    return server


@each_version
@each_transport
async def test_it_is_the_same_over_each(version: str, transport: Transport) -> None:
    ada = Principal("ada", scopes=["read"])
    heard: list[Any] = []
    async with TestClient(
        make_server(), AGREES, user=ada, headers={"X-Tenant": "red"}, version=version, transport=transport
    ) as client:
        assert client.version == version
        assert await client.call("who", returns=list[str]) == ["ada", transport, "red"]
        assert await client.call("mirrored", region="zürich", returns=str) == "zürich 0"
        with pytest.raises(ToolError, match="no way"):
            await client.call("fails")
        with pytest.raises(RemoteError, match="no_such"):
            await client.call("no_such")
        (contents,) = (await client.read_resource("text://a")).contents
        assert contents.text == "ä"  # type: ignore[union-attr]
        if version >= "2025-06-18":
            result = await client.call_tool("asks", on_progress=lambda *step: heard.append(step))
            assert result.content[0].text == "True"  # type: ignore[union-attr]
            assert (1.0, 2.0, None) in heard
            assert client.received("notifications/progress")
        first = "server/discover" if version == MODERN else "initialize"
        assert client.messages[0].method == first


@each_transport
async def test_a_lifespan_begins_with_the_client_and_ends_with_it(transport: Transport) -> None:
    life: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        life.append("begun")
        yield "here"
        life.append("ended")

    server = Server("t", lifespan=lifespan)

    @server.tool
    async def at(ctx: Context) -> str:
        return str(ctx.lifespan)

    for _ in range(2):
        async with TestClient(server, transport=transport) as client:
            assert await client.call("at") == "here"
        assert life == ["begun", "ended"]
        life.clear()


@each_transport
async def test_a_call_is_given_up_and_the_next_is_answered(transport: Transport) -> None:
    server = Server("t")
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hang() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    @server.tool
    def quick() -> str:
        return "done"

    async with TestClient(server, transport=transport) as client:
        call = asyncio.create_task(client.call("hang"))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        await cancelled.wait()
        assert await client.call("quick") == "done"


def only_ada(headers: Mapping[str, str]) -> Principal | Refusal:
    return Principal("ada") if headers.get("authorization") == "Bearer a" else Refusal(401, "Who are you?\n")


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_the_servers_own_authenticator_is_asked_where_nobody_is_named(transport: Transport) -> None:
    server = make_server(authenticate=only_ada)
    async with TestClient(server, transport=transport, headers={"Authorization": "Bearer a"}) as client:
        assert (await client.call("who"))[0] == "ada"
    async with TestClient(server, transport=transport, user=Principal("eve")) as client:
        assert (await client.call("who"))[0] == "eve"
    with pytest.raises((RemoteError, TransportError), match=r"401\b.*Who are you"):
        async with TestClient(server, transport=transport):
            pass


async def test_over_http_a_legacy_session_listens_and_is_ended() -> None:
    """What is sent beside any request comes by the GET stream, and no session is left behind."""
    server = Server("t")
    changed = asyncio.Event()

    @server.tool
    def grow() -> str:
        server.tool(lambda: "x", name="new")
        return "grown"

    callbacks = Callbacks(list_changed=lambda kind: changed.set())
    for version in ("2025-03-26", "2025-11-25", MODERN):
        changed.clear()
        async with TestClient(server, callbacks, version=version, transport="http") as client:
            if "new" not in [tool.name for tool in await client.list_tools()]:
                await client.call("grow")
                await changed.wait()
            channel = client._open.channel._channel  # type: ignore[union-attr]
            assert len(channel._app.sessions) == (version != MODERN)
        assert len(channel._app.sessions) == 0


async def test_over_http_a_stream_that_the_server_lets_go_of_is_resumed() -> None:
    server = Server("t")

    @server.tool
    async def slow(ctx: Context) -> str:
        ctx.close_stream()
        return "all the same"

    async with TestClient(server, version="2025-11-25", transport="http") as client:
        assert await client.call("slow") == "all the same"


async def test_a_command_is_a_child_process(child: Any) -> None:
    async with TestClient(child.mcpd("serve", "--stdio"), transport="stdio") as client:
        assert client.server_info is not None
        assert await client.list_tools()
        assert client.received()


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the transports are memory, stdio, websocket, http"):
        TestClient(Server("t"), transport="carrier")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="requires transport='stdio', and excludes user="):
        TestClient(["mcpd"], user=Principal("ada"), transport="stdio")
    with pytest.raises(ConfigurationError, match="cannot test 'mcpd'"):
        TestClient("mcpd", transport="stdio")
    with pytest.raises(ConfigurationError, match="needs asyncio, which is not running"):
        TestClient(Server("t")).open().send(None)


# ----------------------------------------------------------------------------- for plain functions


@each_transport
def test_a_plain_function_has_a_client_too(transport: Transport) -> None:
    server = make_server()

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    with SyncTestClient(lambda: TestClient(server, AGREES, transport=transport)) as client:
        assert client.version == MODERN
        assert client.call("who", returns=list[str])[1] == transport
        with pytest.raises(ToolError, match="no way"):
            client.call("fails")
        assert client.call_tool("asks").content[0].text == "True"  # type: ignore[union-attr]
        assert [tool.name for tool in client.list_tools()] == ["who", "asks", "fails", "mirrored"]
        assert [one.uri for one in client.list_resources()] == ["text://a"]
        assert client.list_resource_templates() == []
        assert client.read_resource("text://a").contents[0].text == "ä"  # type: ignore[union-attr]
        assert [prompt.name for prompt in client.list_prompts()] == ["greet"]
        (message,) = client.get_prompt("greet", {"name": "Ada"}).messages
        assert message.content.text == "Hello Ada"  # type: ignore[union-attr]
        assert msgspec.json.decode(client.request("tools/list"))["tools"]
        assert client.sent("tools/call")[0]["params"]["name"] == "who"
        assert len(client.messages) == len(client.sent()) + len(client.received())
    with pytest.raises(LocalProtocolError, match="use it inside `with`"):
        client.list_tools()


def test_a_client_that_cannot_open_leaves_no_thread() -> None:
    import threading

    with pytest.raises(RemoteError, match="HTTP 401"):
        with SyncTestClient(lambda: TestClient(make_server(authenticate=only_ada), transport="http")):
            pass
    assert "mcpd-test-client" not in {thread.name for thread in threading.enumerate()}
