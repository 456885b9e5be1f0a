"""What fewer servers do: results of every kind, messages as dicts, sessions that outlive a request, small helpers."""

from __future__ import annotations

import io
from typing import Any

import pytest
from compat.theirs import ask, call, module, served, texts

from mcpd import Callbacks, Client, ElicitResult

pytestmark = pytest.mark.usefixtures("libraries")

VERSION = "2025-11-25"

RESULTS = """
    from dataclasses import dataclass
    from typing import Annotated, NotRequired, Optional, TypedDict, Union
    from mcp.server.fastmcp import Audio, FastMCP, Image
    from mcp.types import CallToolResult, TextContent
    from pydantic import BaseModel, Field

    mcp = FastMCP("results")

    class Place(TypedDict):
        name: str
        height: NotRequired[int]

    @dataclass
    class Person:
        name: str
        age: int = 3

    class Bare:
        def __init__(self): self.x = 1

    class Typed:
        x: int
        def __init__(self, x: int): self.x = x

    class Model(BaseModel):
        n: int

    @mcp.tool()
    def place() -> Place: return {"name": "a"}
    @mcp.tool()
    def person() -> Person: return Person("ann")
    @mcp.tool()
    def bare() -> Bare: return Bare()
    @mcp.tool()
    def typed() -> Typed: return Typed(2)
    @mcp.tool()
    def maybe(n: int) -> Optional[int]: return n or None
    @mcp.tool()
    def either() -> Union[int, str]: return "x"
    @mcp.tool()
    def numbers() -> dict[str, float]: return {"a": 1}
    @mcp.tool()
    def by_number() -> dict[int, str]: return {1: "a"}
    @mcp.tool()
    def pair() -> tuple[int, str]: return (1, "a")
    @mcp.tool()
    def data() -> bytes: return b"ab"
    @mcp.tool()
    def limited() -> Annotated[int, Field(ge=0, description="never less")]: return 1
    @mcp.tool()
    def function_type() -> type: return int
    @mcp.tool()
    def sound() -> list: return ["a", Audio(data=b"abc", format="wav"), Image(data=b"abc")]
    @mcp.tool()
    def inside() -> list[object]: return [Image(data=b"abc")]
    @mcp.tool()
    def checked() -> Annotated[CallToolResult, Model]:
        return CallToolResult(content=[TextContent(type="text", text="a")], structuredContent={"n": "x"})
"""


async def test_results_of_every_kind() -> None:
    server = served(RESULTS)
    tools = {tool["name"]: tool for tool in (await ask(server, VERSION, "tools/list"))["tools"]}
    without = [name for name, tool in tools.items() if "outputSchema" not in tool]
    assert without == ["bare", "function_type", "sound"]
    expected: dict[str, Any] = {
        "person": {"name": "ann", "age": 3},
        "typed": {"x": 2},
        "either": {"result": "x"},
        "numbers": {"a": 1.0},
        "by_number": {"result": {"1": "a"}},
        "pair": {"result": [1, "a"]},
        "data": {"result": "ab"},
        "limited": {"result": 1},
    }
    for name, content in expected.items():
        assert (await call(server, VERSION, name))["structuredContent"] == content, name
    assert (await call(server, VERSION, "maybe", n=0))["structuredContent"] == {"result": None}
    # So it is there: what is absent is written as null, which the schema does not allow.
    assert texts(await call(server, VERSION, "place")) == ["Output validation error: None is not of type 'integer'"]
    sound = await call(server, VERSION, "sound")
    assert [(block["type"], block.get("mimeType")) for block in sound["content"]] == [
        ("text", None),
        ("audio", "audio/wav"),
        ("image", "image/png"),
    ]
    assert texts(await call(server, VERSION, "inside")) == [
        "Error executing tool inside: Unable to serialize unknown type: "
        "<class 'mcp.server.fastmcp.utilities.types.Image'>"
    ]
    assert texts(await call(server, VERSION, "checked"))[0].startswith("Error executing tool checked: 1 validation")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("def f(): ...", "return annotation required for structured output"),
        ("def f() -> type: ...", "is not serializable for structured output"),
        ("def f(_x: int) -> int: ...", "Parameter _x of f cannot start with '_'; rename it"),
        ("def f() -> CallToolResult | None: ...", "cannot be used in Union or Optional"),
        ("def f(x: 'Nowhere') -> int: ...", "Unable to evaluate type annotations for callable 'f'"),
    ],
)
def test_functions_that_cannot_be_structured(function: str, said: str) -> None:
    theirs = module(f"from mcp.server.fastmcp import FastMCP\nfrom mcp.types import CallToolResult\n{function}")
    from mcp.server.fastmcp.exceptions import InvalidSignature  # type: ignore[import-not-found]

    with pytest.raises(InvalidSignature, match=said):
        theirs.FastMCP("a").add_tool(theirs.f, structured_output=True)


def test_media_from_files(tmp_path: Any) -> None:
    from mcp.server.fastmcp import Audio, Image  # type: ignore[import-not-found]

    (tmp_path / "a.JPG").write_bytes(b"abc")
    (tmp_path / "a.xyz").write_bytes(b"abc")
    assert Image(tmp_path / "a.JPG").to_image_content().mimeType == "image/jpeg"
    assert Image(path=tmp_path / "a.xyz").to_image_content().mimeType == "application/octet-stream"
    assert Audio(path=tmp_path / "a.xyz", format="MP3").to_audio_content().mimeType == "audio/mp3"
    for wrong in ({}, {"path": "a", "data": b"a"}):
        with pytest.raises(ValueError, match="Either path or data must be provided"):
            Image(**wrong)
        with pytest.raises(ValueError, match="Either path or data must be provided"):
            Audio(**wrong)


async def test_messages_of_prompts() -> None:
    server = served("""
        from mcp.server.fastmcp import Context, FastMCP
        mcp = FastMCP("a")

        @mcp.prompt()
        async def mixed(ctx: Context) -> list:
            return [{"role": "assistant", "content": {"type": "text", "text": "d"}}, "t", 5, ctx.request_id]

        @mcp.prompt()
        def wrong():
            return [{"role": "nobody"}]
    """)
    got = await ask(server, VERSION, "prompts/get", {"name": "mixed", "arguments": {}})
    assert [(one["role"], one["content"]["text"]) for one in got["messages"]][:3] == [
        ("assistant", "d"), ("user", "t"), ("user", "5")]  # fmt: skip
    wrong = await ask(server, VERSION, "prompts/get", {"name": "wrong", "arguments": {}})
    assert wrong["message"].startswith("Error rendering prompt wrong: Could not convert prompt result to message")
    unknown = await ask(server, VERSION, "prompts/get", {"name": "none", "arguments": {}})
    assert unknown["message"] == "Unknown prompt: none"


async def test_a_session_outlives_its_request() -> None:
    theirs = module("""
        from mcp.server.fastmcp import Context, FastMCP
        from mcp.types import LoggingMessageNotification, LoggingMessageNotificationParams, ServerNotification
        from mcp.types import PromptListChangedNotification, ResourceUpdatedNotification
        from mcp.types import ResourceUpdatedNotificationParams
        mcp = FastMCP("a")
        kept = []

        @mcp.tool()
        async def keep(ctx: Context) -> str:
            kept.append(ctx.session)
            return str(ctx.client_id) + str(ctx.session.client_params.clientInfo.name)
    """)
    heard: list[Any] = []
    callbacks = Callbacks(
        log=lambda params: heard.append(params.data), list_changed=heard.append, resource_updated=heard.append
    )
    async with Client(theirs.mcp.__mcpd_server__(), callbacks, version=VERSION) as client:
        await client.call_tool("keep")
        await client.call_tool("keep")
        session, again = theirs.kept
        assert session is again
        await session.send_log_message("warning", "later")
        await session.send_prompt_list_changed()
        await session.send_resource_list_changed()
        await session.send_resource_updated("note:///a")
        message = theirs.LoggingMessageNotificationParams(level="error", data="last")
        for told in (
            theirs.PromptListChangedNotification(),
            theirs.ServerNotification(theirs.LoggingMessageNotification(params=message)),
            theirs.ResourceUpdatedNotification(params=theirs.ResourceUpdatedNotificationParams(uri="note:///b")),
        ):
            await session.send_notification(told)
        await client.call_tool("keep")
    assert heard == ["later", "prompts", "resources", "note:///a", "prompts", "last", "note:///b"]


async def test_answers_that_are_no_agreement() -> None:
    server = served("""
        from mcp.server.fastmcp import Context, FastMCP
        from pydantic import BaseModel
        mcp = FastMCP("a")

        class Form(BaseModel):
            tags: list[str] | None = None
            n: int = 1

        class Nested(BaseModel):
            form: Form

        @mcp.tool()
        async def form(ctx: Context) -> str:
            return (await ctx.elicit("?", Form)).action

        @mcp.tool()
        async def page(ctx: Context) -> str:
            return (await ctx.elicit_url("?", "https://example.com/", "e")).action

        @mcp.tool()
        async def nested(ctx: Context) -> str:
            return (await ctx.elicit("?", Nested)).action

        @mcp.tool()
        async def tools(ctx: Context) -> str:
            return str(await ctx.session.create_message([], max_tokens=1, tools=[]))
    """)
    for action in ("decline", "cancel", "accept"):
        answer = ElicitResult(action=action, content={} if action == "accept" else None)  # type: ignore[arg-type]
        callbacks = Callbacks(elicit_form=lambda _, answer=answer: answer, elicit_url=lambda _, answer=answer: answer)
        async with Client(server, callbacks, version=VERSION) as client:
            for tool in ("form", "page"):
                result = await client.call_tool(tool)
                assert result.content[0].text == action  # type: ignore[union-attr]
            nested = await client.call_tool("nested")
            assert "must be a primitive type" in nested.content[0].text  # type: ignore[union-attr]
            asked = await client.call_tool("tools")
            assert "Client does not support sampling tools capability" in asked.content[0].text  # type: ignore[union-attr]


async def test_the_context_outside_of_a_request() -> None:
    mcp = module("from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('a')").mcp
    context = mcp.get_context()
    assert context.fastmcp is mcp
    with pytest.raises(ValueError, match="Context is not available outside of a request"):
        _ = context.request_id
    await context.close_sse_stream()
    with pytest.raises(NotImplementedError, match="server.experimental is not supported by mcpd.compat"):
        _ = mcp._mcp_server.experimental


async def test_streams_of_ones_own_are_not_served() -> None:
    from mcp.server.lowlevel import Server  # type: ignore[import-not-found]
    from mcp.server.stdio import stdio_server  # type: ignore[import-not-found]

    with pytest.raises(NotImplementedError, match="mcpd has the transports itself"):
        await Server("a").run(object(), object())
    with pytest.raises(NotImplementedError, match="the stdin and stdout of the process only"):
        async with stdio_server(stdout=io.StringIO()):
            pass
    async with stdio_server() as (read, _):
        assert "stdin" in repr(read)
        await read.aclose()


def test_errors_of_pages_to_visit() -> None:
    from mcp.shared.exceptions import UrlElicitationRequiredError  # type: ignore[import-not-found]
    from mcp.types import ElicitRequestURLParams  # type: ignore[import-not-found]

    page = ElicitRequestURLParams(message="a", url="https://example.com", elicitation_id="e")
    made = UrlElicitationRequiredError([page])
    assert (made.code, made.message) == (-32042, "URL elicitation required")
    assert made.elicitations[0].elicitation_id == made.data["elicitations"][0]["elicitationId"] == "e"
