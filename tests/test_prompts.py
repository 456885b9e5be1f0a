"""Prompts on the wire. Spec: server/prompts of every version."""

from __future__ import annotations

import logging
import threading
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta
from support.wires import MODERN, each_version, memory_wire

from mcpd import Context, Server, ToolError, audio, embedded, image, link, text
from mcpd.protocol.types.features import GetPromptResult, PromptMessage


def make_server() -> Server:
    server = Server("t")

    @server.prompt
    def review(
        code: str,
        lines: int = 10,
        style: Literal["strict", "kind"] = "kind",
        is_draft: bool = False,
        tags: Annotated[list[str] | None, Meta(title="Tags", description="Words")] = None,
    ) -> str:
        """Review some code.

        Args:
            code: What to review.
        """
        return repr((code, lines, style, is_draft, tags))

    @server.prompt(name="all-kinds", title="All kinds", description="Of everything one")
    async def all_kinds() -> list[Any]:
        return [
            "a text",
            text("a block"),
            ("assistant", "said"),
            ("user", image(b"\x89PNG", "image/png")),
            audio(b"RIFF", "audio/wav"),
            embedded("test://e", "inside"),
            embedded("test://b", b"\0\1", "application/x-thing"),
            link("test://l", "link"),
            PromptMessage("assistant", text("by hand")),
        ]

    @server.prompt
    def one_pair() -> tuple[str, str]:
        return ("assistant", "alone")

    @server.prompt
    def whole() -> GetPromptResult:
        return GetPromptResult(messages=[PromptMessage("user", text("w"))], description="Made by hand")

    @server.prompt
    def where() -> str:
        return str(threading.current_thread() is threading.main_thread())

    @server.prompt
    async def context(ctx: Context) -> str:
        return f"{ctx.method} {ctx.protocol_version}"

    @server.prompt
    def broken() -> str:
        raise RuntimeError("secret")

    @server.prompt
    def number() -> int:
        return 5

    @server.prompt
    def refused() -> str:
        raise ToolError("Not on Sundays")

    return server


def texts(result: dict[str, Any]) -> list[str]:
    return [message["content"]["text"] for message in result["messages"]]


async def get(wire: Any, name: str, **arguments: str) -> Any:
    return await wire.result("prompts/get", {"name": name, "arguments": arguments})


async def test_arguments_come_from_the_signature() -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        prompts = {prompt["name"]: prompt for prompt in (await wire.result("prompts/list"))["prompts"]}
    assert prompts["review"] == {
        "name": "review",
        "description": "Review some code.",
        "arguments": [
            {"name": "code", "description": "What to review.", "required": True},
            {"name": "lines", "description": "(write an integer)", "required": False},
            {"name": "style", "required": False},
            {"name": "is_draft", "description": "(write true or false)", "required": False},
            {
                "name": "tags",
                "title": "Tags",
                "description": 'Words (write a JSON array of strings, such as ["a", "b"])',
                "required": False,
            },
        ],
    }
    assert prompts["all-kinds"]["title"] == "All kinds"
    assert prompts["context"]["arguments"] == []  # the context is none of the client's


@each_version
async def test_arguments_are_strings_and_become_what_the_function_takes(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        assert texts(await get(wire, "review", code="x")) == [repr(("x", 10, "kind", False, None))]
        result = await get(wire, "review", code="12", lines="3", style="strict", is_draft="true", tags='["a","b"]')
        assert texts(result) == [repr(("12", 3, "strict", True, ["a", "b"]))]


@each_version
@pytest.mark.parametrize(("given", "read"), [("True", True), ("False", False), ("1", True), ("0", False)])
async def test_a_boolean_as_hosts_send_it(version: str, given: str, read: bool) -> None:
    """In prompts, in queries of templates, and in tools."""
    server = make_server()

    @server.tool
    def flag(x: bool) -> str:
        return repr(x)

    @server.resource("test://flags{?x}")
    def flags(x: bool = False) -> str:
        return repr(x)

    async with memory_wire(server, version) as wire:
        result = await get(wire, "review", code="x", is_draft=given)
        assert texts(result) == [repr(("x", 10, "kind", read, None))]
        assert (await wire.call("flag", x=given))["content"][0]["text"] == repr(read)
        resource = await wire.result("resources/read", {"uri": f"test://flags?x={given}"})
        assert resource["contents"][0]["text"] == repr(read)


async def test_what_is_no_json_is_refused_with_the_way_to_write_it() -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        arguments = {"code": "x", "tags": "a, b", "is_draft": "yes"}
        answer = await wire.request("prompts/get", {"name": "review", "arguments": arguments})
    assert sorted(answer["error"]["message"].splitlines()) == [
        "is_draft: Expected `bool`, got `str`",
        "tags: Expected `array | null`, got `str`; write a JSON array",
    ]


@each_version
async def test_null_for_an_optional_argument_leaves_it_out(version: str) -> None:
    """S25-070, S26-127: values are strings. Clients with a form write null for what was left empty."""
    async with memory_wire(make_server(), version) as wire:
        nothing = dict.fromkeys(("lines", "style", "is_draft", "tags"))
        result = await wire.result("prompts/get", {"name": "review", "arguments": {"code": "x", **nothing}})
        assert texts(result) == [repr(("x", 10, "kind", False, None))]


@each_version
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "code"),
        ({"code": "x", "lines": "many"}, "lines"),
        ({"code": "x", "style": "rude"}, "style"),
        ({"code": "x", "colour": "red"}, "colour"),
        ({"code": 5}, "arguments"),
        ({"code": None}, "code: Expected `str`, got `null`"),
        ({"code": "x", "colour": None}, "colour"),
        ("code", "arguments"),
    ],
)
async def test_arguments_that_do_not_fit_are_named(version: str, arguments: Any, named: str) -> None:
    """S25-070, S26-127: inputs are validated; a missing or wrong argument is -32602."""
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error("prompts/get", {"name": "review", "arguments": arguments})
    assert error["code"] == -32602
    assert named in error["message"]


@each_version
async def test_an_unknown_prompt_is_bad_params(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error("prompts/get", {"name": "nothing"})
    assert error["code"] == -32602
    assert "nothing" in error["message"]


async def test_messages_of_every_kind() -> None:
    """S25-067, S25-068, S25-069, S26-124, S26-125, S26-126.

    Binary data are base64; MIME types and URIs are there. The wire checks all against the schema.
    """
    async with memory_wire(make_server(), MODERN) as wire:
        result = await get(wire, "all-kinds")
        roles = [message["role"] for message in result["messages"]]
        assert roles == ["user", "user", "assistant", "user", "user", "user", "user", "user", "assistant"]
        contents = [message["content"] for message in result["messages"]]
        assert contents[3] == {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}
        assert contents[4] == {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
        assert contents[5]["resource"] == {"uri": "test://e", "text": "inside", "mimeType": "text/plain"}
        assert contents[6]["resource"] == {"uri": "test://b", "blob": "AAE=", "mimeType": "application/x-thing"}
        assert contents[7] == {"type": "resource_link", "uri": "test://l", "name": "link"}
        assert result["description"] == "Of everything one"
        (message,) = (await get(wire, "one_pair"))["messages"]
        assert message == {"role": "assistant", "content": {"type": "text", "text": "alone"}}
        assert (await get(wire, "whole"))["description"] == "Made by hand"


async def test_a_plain_function_runs_in_a_thread_and_may_have_the_context() -> None:
    async with memory_wire(make_server(), "2025-06-18") as wire:
        assert texts(await get(wire, "where")) == ["False"]
        assert texts(await get(wire, "context")) == ["prompts/get 2025-06-18"]


@each_version
async def test_failures_of_a_prompt(version: str, caplog: pytest.LogCaptureFixture) -> None:
    """A bug says nothing of itself on the wire; what an author wants to say comes through."""
    async with memory_wire(make_server(), version) as wire:
        with caplog.at_level(logging.ERROR, "mcpd"):
            for name in ("broken", "number"):
                error = await wire.error("prompts/get", {"name": name})
                assert error["code"] == -32603
                assert "secret" not in error["message"]
                assert "int" not in error["message"].split()
        assert "secret" in caplog.text
        assert "not int" in caplog.text
        assert (await wire.error("prompts/get", {"name": "refused"}))["message"] == "Not on Sundays"


@each_version
async def test_without_prompts_there_is_an_empty_list_and_nothing_else(version: str) -> None:
    """S25-025, S25-066, S26-121, S26-122: what is declared answers. Clients ask for the list of what is not, too."""
    server = Server("t")
    async with memory_wire(server) as wire:
        assert "prompts" not in (await wire.open(version))["capabilities"]
        assert (await wire.result("prompts/list"))["prompts"] == []
        assert (await wire.error("prompts/get", {"name": "x"}))["code"] == -32601
        assert (await wire.error("completion/complete"))["code"] in (-32601, -32602)
    server.prompt(review_nothing)
    async with memory_wire(server) as wire:
        assert (await wire.open(version))["capabilities"]["prompts"] == {"listChanged": True}
        assert len((await wire.result("prompts/list"))["prompts"]) == 1


def review_nothing() -> str:
    """Nothing."""
    return ""
