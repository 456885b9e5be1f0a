"""Tests of a server: `mcpd.testing`, and the types from one place."""

from mcpd import Callbacks, Principal, Server
from mcpd.testing import TRANSPORTS, VERSIONS, ClientMaker, SyncTestClient, TestClient, WireMessage, mcpd_every_version
from mcpd.types import (
    Annotations,
    CallToolResult,
    ElicitFormParams,
    ElicitResult,
    TextContent,
    ToolAnnotations,
)

server = Server("s")
hints = ToolAnnotations(read_only_hint=True)


@server.tool
def told() -> TextContent:
    return TextContent(text="x", annotations=Annotations(priority=1))


def agree(form: ElicitFormParams) -> ElicitResult:
    return ElicitResult(action="accept")


async def test_it() -> None:
    newest: str = VERSIONS[-1]
    callbacks = Callbacks(elicit_form=agree)
    async with TestClient(server, callbacks, user=Principal("ada"), headers={"a": "b"}, version=newest) as client:
        result: CallToolResult = await client.call_tool("told")
        first: WireMessage = client.messages[0]
        assert first.method == result.structured_content
        assert await client.value("told", any=1) == client.sent("tools/call")


@mcpd_every_version
async def test_in_each_version(mcpd_client: ClientMaker, mcpd_version: str) -> None:
    async with mcpd_client(server, user=Principal("ada")) as client:
        number: int = await client.call("told", returns=int)
        print(number, client.version == mcpd_version)


@mcpd_every_version(versions=VERSIONS[1:], transports=["http", "stdio"])
def test_in_a_plain_function(mcpd_client: ClientMaker) -> None:
    with mcpd_client(server, version="2025-06-18", transport=TRANSPORTS[0]) as client:
        words: list[str] = client.call("told", returns=list[str])
        print(words, client.list_tools()[0].name)
    with SyncTestClient(lambda: TestClient(server)) as other:
        print(other.sent())
