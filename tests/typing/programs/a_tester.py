"""Tests of a server: `mcpd.testing`, and the types from one place."""

from mcpd import Callbacks, Principal, Server
from mcpd.testing import VERSIONS, TestClient, WireMessage
from mcpd.types import Annotations, CallToolResult, ElicitFormParams, ElicitResult, TextContent, ToolAnnotations

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
