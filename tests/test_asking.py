"""Asking a legacy client: elicitation, sampling and roots as requests of the server.

Spec: client/{elicitation,sampling,roots} of 2024-11-05 to 2025-11-25, basic/utilities/cancellation.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from msgspec import Meta, Struct, field
from support.wires import MODERN, Wire, each_legacy, memory_wire

from mcpd import Context, Server, SyncContext, choices, elicit_form, elicit_url, list_roots, sample
from mcpd.errors import ConnectionLost, LocalProtocolError, RemoteError, RequestTimeout
from mcpd.protocol.types.features import ImageContent, TextContent, Tool
from mcpd.protocol.types.interaction import SamplingMessage, ToolChoice, ToolResultContent, ToolUseContent

WITH_CANCELLED = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
WITH_FORMS = ("2025-06-18", "2025-11-25")
NEWEST = "2025-11-25"
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Person(Struct, rename="camel"):
    """Somebody."""

    full_name: str
    age: Annotated[int, Meta(ge=0, le=150)] = 30
    color: Color = Color.RED
    is_kind: bool = True


def serve(*tools: Callable[..., Any]) -> Server:
    server = Server("t")
    for tool in tools:
        server.add_tool(tool)
    return server


async def who(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Person)
    return f"{answer.action} {answer.content}"


async def think(ctx: Context) -> str:
    return (await ctx.sample("Think", max_tokens=5)).text


async def roots(ctx: Context) -> str:
    return " ".join(root.uri for root in await ctx.list_roots())


async def page(ctx: Context) -> str:
    return (await ctx.elicit_url("Please sign in", "https://example.com/in", elicitation_id="e-1")).action


async def asked(wire: Wire, tool: str, **arguments: Any) -> tuple[Any, Any]:
    """Call a tool; gives the id of the call and what it asks."""
    call = wire.ask("tools/call", {"name": tool, "arguments": arguments})
    question = await wire.receive()
    assert "method" in question, question
    return call, question


def reply(wire: Wire, question: Any, result: Any) -> None:
    wire.send({"jsonrpc": "2.0", "id": question["id"], "result": result})


def refuse(wire: Wire, question: Any, code: int, message: str) -> None:
    wire.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": code, "message": message}})


async def text_of(wire: Wire, call: Any) -> tuple[str, bool]:
    result = (await wire.answer(call))["result"]
    (block,) = result["content"]
    return block["text"], result.get("isError", False)


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


SAID = {"role": "assistant", "content": {"type": "text", "text": "I think"}, "model": "m", "stopReason": "endTurn"}


# ------------------------------------------------------------------------------------------ forms


def careless(ctx: SyncContext) -> str:
    return "emptied" if ctx.elicit("All of it?", bool) else "left"


async def careless_async(ctx: Context) -> str:
    return "left" if not await ctx.elicit("All of it?", bool) else "emptied"


async def careless_without_await(ctx: Context) -> str:
    return "emptied" if ctx.elicit("All of it?", bool) else "left"


@pytest.mark.parametrize("version", [NEWEST, MODERN])
async def test_a_question_that_is_not_awaited_is_not_taken_for_yes(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_wire(serve(careless_without_await), version, capabilities={"elicitation": {}}) as wire:
        assert (await wire.call("careless_without_await"))["isError"]
    assert "answer = await ctx.elicit(…)" in caplog.text


@pytest.mark.parametrize("version", [NEWEST, MODERN])
@pytest.mark.parametrize("tool", [careless, careless_async])
@pytest.mark.parametrize("said", [accept(value=True), accept(value=False), {"action": "decline"}, {"action": "cancel"}])
async def test_an_answer_is_not_taken_for_yes_or_no(
    version: str, tool: Callable[..., Any], said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the user did: a decline was true before, and the tool went on."""
    async with memory_wire(serve(tool), version, capabilities={"elicitation": {}}) as wire:
        if version == MODERN:
            params = {"name": tool.__name__, "arguments": {}}
            state = (await wire.request("tools/call", params))["result"]["requestState"]
            call = wire.ask("tools/call", {**params, "requestState": state, "inputResponses": {"question-1": said}})
        else:
            call, question = await asked(wire, tool.__name__)
            reply(wire, question, said)
        assert (await wire.answer(call))["result"]["isError"]
    assert "write answer.is_accepted, or answer.get() for the content" in caplog.text


@pytest.mark.parametrize("version", WITH_FORMS)
async def test_a_form_and_its_three_answers(version: str) -> None:
    """S25-088, S25-089: a message and a schema; the answer becomes the struct that was asked for."""
    async with memory_wire(serve(who), version, capabilities={"elicitation": {}}) as wire:
        call, question = await asked(wire, "who")
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "Who?"
        assert question["params"]["requestedSchema"]["required"] == ["fullName"]
        assert question["params"].get("mode") == ("form" if version == NEWEST else None)
        reply(wire, question, accept(fullName="Ada", age=36, color="blue", isKind=False))
        assert await text_of(wire, call) == (
            "accept Person(full_name='Ada', age=36, color=<Color.BLUE: 'blue'>, is_kind=False)",
            False,
        )
        for action in ("decline", "cancel"):
            call, question = await asked(wire, "who")
            reply(wire, question, {"action": action})
            assert await text_of(wire, call) == (f"{action} None", False)


@pytest.mark.parametrize("version", WITH_FORMS)
async def test_defaults_fill_what_the_answer_leaves_out(version: str) -> None:
    """Also where the version's form could not show them."""
    async with memory_wire(serve(who), version, capabilities={"elicitation": {}}) as wire:
        call, question = await asked(wire, "who")
        shown = {
            name: member.get("default") for name, member in question["params"]["requestedSchema"]["properties"].items()
        }
        newest = {"fullName": None, "age": 30, "color": "red", "isKind": True}
        assert shown == (newest if version == NEWEST else {**newest, "age": None, "color": None})
        reply(wire, question, accept(fullName="Ada", age=7.0))
        text, _ = await text_of(wire, call)
        assert text == "accept Person(full_name='Ada', age=7, color=<Color.RED: 'red'>, is_kind=True)"


@pytest.mark.parametrize("version", WITH_FORMS)
@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"action": "accept"}, "fullName"),
        (accept(), "fullName"),
        (accept(fullName=5), "fullName"),
        (accept(fullName="Ada", age="old"), "age"),
        (accept(fullName="Ada", age=1.5), "age"),
        (accept(fullName="Ada", age=True), "age"),
        (accept(fullName="Ada", age=-1), "age"),
        (accept(fullName="Ada", age=151), "age"),
        (accept(fullName="Ada", color="green"), "color"),
        (accept(fullName="Ada", isKind=1), "isKind"),
        ({"action": "agree"}, "agree"),
        ({"content": {}}, "action"),
        ({"action": "accept", "content": [1]}, "content"),
        ("accept", "object"),
        (None, "object"),
    ],
)
async def test_an_answer_that_does_not_fit_fails_the_tool_and_names_the_field(
    version: str, answer: Any, named: str
) -> None:
    async with memory_wire(serve(who), version, capabilities={"elicitation": {}}) as wire:
        call, question = await asked(wire, "who")
        reply(wire, question, answer)
        text, is_error = await text_of(wire, call)
        assert is_error
        assert named in text


async def test_what_an_author_can_do_with_an_answer() -> None:
    """`get` gives the content, or ends the tool with a text for the model."""

    async def polite(ctx: Context) -> str:
        return (await ctx.elicit("Who?", Person)).get().full_name

    async with memory_wire(serve(polite), NEWEST, capabilities={"elicitation": {}}) as wire:
        for answer, expected in (
            (accept(fullName="Ada"), ("Ada", False)),
            ({"action": "decline"}, ("The user declined", True)),
            ({"action": "cancel"}, ("The user cancelled the question", True)),
        ):
            call, question = await asked(wire, "polite")
            reply(wire, question, answer)
            assert await text_of(wire, call) == expected


@dataclass
class AsDataclass:
    name: str
    size: Literal["s", "m"] = "m"


class AsTypedDict(TypedDict, total=False):
    name: str


AS_JSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^A", "maxLength": 5}, "n": {"type": "integer"}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (AsDataclass, "AsDataclass(name='Ada', size='m')"),
        (AsTypedDict, "{'name': 'Ada'}"),
        (AS_JSON, "{'name': 'Ada'}"),
    ],
)
async def test_forms_of_other_kinds(form: Any, told: str) -> None:
    async def ask(ctx: Context) -> str:
        return repr((await ctx.elicit("?", form)).content)

    async with memory_wire(serve(ask), NEWEST, capabilities={"elicitation": {}}) as wire:
        call, question = await asked(wire, "ask")
        # No keyword but those that the specification has: the wire holds it against the schema.
        assert "pattern" not in question["params"]["requestedSchema"]["properties"]["name"]
        reply(wire, question, accept(name="Ada"))
        assert await text_of(wire, call) == (told, False)


class Choices(Struct):
    one: Literal["z", "a"]
    titled: Annotated[str, choices({"r": "Red", "b": "Blue"}), Meta(title="Color")]
    several: Annotated[list[Literal["z", "a"]], Meta(max_length=2)] = field(default_factory=lambda: ["z"])
    several_titled: list[Annotated[str, choices({"r": "Red", "b": "Blue"})]] = field(default_factory=list)


async def choose(ctx: Context) -> str:
    return repr((await ctx.elicit("?", Choices)).content)


async def test_choices_of_every_kind() -> None:
    titles = [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]
    async with memory_wire(serve(choose), NEWEST, capabilities={"elicitation": {"form": {}}}) as wire:
        call, question = await asked(wire, "choose")
        assert question["params"]["requestedSchema"]["properties"] == {
            "one": {"type": "string", "enum": ["z", "a"]},  # in the order in which they were written
            "titled": {"type": "string", "title": "Color", "oneOf": titles},
            "several": {
                "type": "array",
                "items": {"type": "string", "enum": ["z", "a"]},
                "maxItems": 2,
                "default": ["z"],
            },
            "several_titled": {"type": "array", "items": {"anyOf": titles}, "default": []},
        }
        reply(wire, question, accept(one="a", titled="b", several=["z", "a"], several_titled=["r"]))
        text, _ = await text_of(wire, call)
        assert text == "Choices(one='a', titled='b', several=['z', 'a'], several_titled=['r'])"
        for wrong in ({"titled": "x"}, {"several": ["x"]}, {"several": ["z", "a", "z"]}, {"several_titled": ["x"]}):
            call, question = await asked(wire, "choose")
            reply(wire, question, accept(**{"one": "a", "titled": "b", **wrong}))
            text, is_error = await text_of(wire, call)
            assert is_error
            assert next(iter(wrong)) in text


async def test_older_forms_of_choices() -> None:
    """2025-06-18 knows `enum` with `enumNames`; a choice of several it cannot ask for."""

    async def titled(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"c": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}}}
        return repr((await ctx.elicit("?", schema)).content)

    async with memory_wire(serve(titled, choose), "2025-06-18", capabilities={"elicitation": {}}) as wire:
        call, question = await asked(wire, "titled")
        assert question["params"]["requestedSchema"]["properties"] == {
            "c": {"type": "string", "enum": ["r"], "enumNames": ["Red"]}
        }
        reply(wire, question, accept(c="r"))
        assert await text_of(wire, call) == ("{'c': 'r'}", False)
        result = await wire.call("choose")
        assert result["isError"] is True
        assert "several" in result["content"][0]["text"]


@pytest.mark.parametrize(
    "form",
    [
        bytes,
        {"type": "array"},
        {"type": "object"},
        {"type": "object", "properties": {"x": {"type": "object"}}},
        {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"x": True}},
        TypedDict("Nested", {"x": dict[str, int]}),
        TypedDict("Numbers", {"x": Literal[1, 2]}),
        TypedDict("Either", {"x": int | str}),
        TypedDict("Lists", {"x": list[int]}),
        Callable,
    ],
)
def test_what_no_form_can_hold_is_refused_before_it_is_sent(form: Any) -> None:
    with pytest.raises(LocalProtocolError):
        elicit_form("?", form)


@pytest.mark.parametrize(
    ("form", "remedy"),
    [
        (None, "None cannot be a form; for a question that is answered with yes or no, pass bool"),
        (
            ["a", "b"],
            """['a', 'b'] cannot be a form, which is a type; for one of several strings pass Literal["a", "b"]""",
        ),
        (choices(["a"]), 'choices(…) cannot be a form, which is a type; .* Annotated[str, choices(["a", "b"])]'),
    ],
)
def test_what_is_no_type_is_refused_with_the_one_to_pass(form: Any, remedy: str) -> None:
    with pytest.raises(LocalProtocolError, match=".*".join(map(re.escape, remedy.split(".*")))):
        elicit_form("?", form)


def test_choices_of_a_list_are_their_own_titles() -> None:
    question: Any = elicit_form("?", Annotated[str, choices(["a", "b"])])  # type: ignore[arg-type]
    assert question.params.requested_schema["properties"]["value"]["oneOf"] == [
        {"const": "a", "title": "a"},
        {"const": "b", "title": "b"},
    ]


# ----------------------------------------------------------------------------------- capabilities


@each_legacy
@pytest.mark.parametrize("tool", ["who", "think", "roots", "page", "with_tools", "before_anything"])
async def test_a_client_that_offers_nothing_is_asked_nothing(version: str, tool: str) -> None:
    """S25-025, S25-087: the tool fails, and says which capability is missing."""
    async with memory_wire(serve(who, think, roots, page, with_tools, before_anything), version) as wire:
        result = await wire.call(tool)
        assert result["isError"] is True
        assert "capability" in result["content"][0]["text"]
        assert not wire.heard


SINCE = {
    "think": "2024-10-07",
    "roots": "2024-11-05",
    "who": "2025-06-18",
    "page": "2025-11-25",
    "with_tools": "2025-11-25",
}


@each_legacy
@pytest.mark.parametrize("tool", SINCE)
async def test_what_a_version_does_not_have_is_not_asked_whatever_the_client_declares(version: str, tool: str) -> None:
    server = serve(who, think, roots, page, with_tools)
    async with memory_wire(server, version, capabilities=EVERYTHING) as wire:
        if version < SINCE[tool]:
            assert (await wire.call(tool))["isError"] is True
            assert not wire.heard
            return
        call, question = await asked(wire, tool)
        refuse(wire, question, -1, "no")
        await wire.answer(call)


@pytest.mark.parametrize(
    ("capability", "possible"),
    [
        ({}, {"who"}),
        ({"form": {}}, {"who"}),
        ({"url": {}}, {"page"}),
        ({"form": {}, "url": {}}, {"who", "page"}),
    ],
)
async def test_only_the_modes_that_were_declared(capability: Any, possible: set[str]) -> None:
    """S25-087: `elicitation: {}` is form only."""
    async with memory_wire(serve(who, page), NEWEST, capabilities={"elicitation": capability}) as wire:
        for tool in ("who", "page"):
            if tool in possible:
                call, question = await asked(wire, tool)
                reply(wire, question, {"action": "cancel"})
                await wire.answer(call)
            else:
                assert (await wire.call(tool))["isError"] is True


async def test_an_author_can_look_before_asking() -> None:
    async def look(ctx: Context) -> list[bool]:
        questions = [elicit_form("?", Person), elicit_url("?", "https://e.com"), sample("?"), list_roots()]
        return [ctx.can_ask(question) for question in questions]

    for capabilities, expected in (
        ({}, [False, False, False, False]),
        ({"elicitation": {}, "roots": {}}, [True, False, False, True]),
        (EVERYTHING, [True, True, True, True]),
    ):
        async with memory_wire(serve(look), NEWEST, capabilities=capabilities) as wire:
            assert (await wire.call("look"))["structuredContent"] == {"result": expected}


# --------------------------------------------------------------------------- pages for the user


async def before_anything(ctx: Context) -> None:
    ctx.require_url("Please sign in", "https://example.com/in")


async def test_a_page_to_visit() -> None:
    """S25-090: mode, message, url and elicitationId; accept means that the user agreed to go there."""
    async with memory_wire(serve(page), NEWEST, capabilities={"elicitation": {"url": {}}}) as wire:
        call, question = await asked(wire, "page")
        assert question["params"] == {
            "mode": "url",
            "message": "Please sign in",
            "url": "https://example.com/in",
            "elicitationId": "e-1",
        }
        reply(wire, question, {"action": "accept"})
        assert await text_of(wire, call) == ("accept", False)


async def test_a_page_that_has_to_be_visited_first() -> None:
    """S25-094, S25-095, S25-096, S25-097: -32042 with the elicitations, all of mode url and with an id."""
    async with memory_wire(serve(before_anything), NEWEST, capabilities={"elicitation": {"url": {}}}) as wire:
        ids = set()
        for _ in range(2):
            error = await wire.error("tools/call", {"name": "before_anything"})
            assert error["code"] == -32042
            (elicitation,) = error["data"]["elicitations"]
            ids.add(elicitation.pop("elicitationId"))
            assert elicitation == {"mode": "url", "message": "Please sign in", "url": "https://example.com/in"}
        assert len(ids) == 2
        assert all(len(made) >= 32 for made in ids)


@pytest.mark.parametrize("version", WITH_FORMS)
async def test_a_page_in_a_prompt_and_in_a_resource(version: str) -> None:
    server = Server("t")
    server.add_prompt(before_anything)
    server.resource("test://r")(before_anything)
    async with memory_wire(server, version, capabilities=EVERYTHING) as wire:
        for method, params in (("prompts/get", {"name": "before_anything"}), ("resources/read", {"uri": "test://r"})):
            error = await wire.error(method, params)
            assert error["code"] == (-32042 if version == NEWEST else -32603)


async def test_that_a_page_was_visited_is_told_when_it_happens() -> None:
    """S25-092, S25-093: to the client that was asked, with that id; be the request answered long ago."""
    contexts: list[Context] = []

    async def later(ctx: Context) -> None:
        contexts.append(ctx)
        ctx.require_url("Please sign in", "https://example.com/in", elicitation_id="e-9")

    server = serve(later)
    capabilities = {"elicitation": {"url": {}}}
    async with (
        memory_wire(server, NEWEST, capabilities=capabilities) as wire,
        memory_wire(server, NEWEST, capabilities=capabilities) as other,
    ):
        error = await wire.error("tools/call", {"name": "later"})
        assert error["data"]["elicitations"][0]["elicitationId"] == "e-9"
        await contexts[0].elicitation_complete("e-9")
        assert await wire.receive() == {
            "jsonrpc": "2.0",
            "method": "notifications/elicitation/complete",
            "params": {"elicitationId": "e-9"},
        }
        await other.quiet()


@each_legacy
async def test_no_other_version_hears_that_a_page_was_visited(version: str) -> None:
    async def done(ctx: Context) -> None:
        await ctx.elicitation_complete("e")

    async with memory_wire(serve(done), version) as wire:
        await wire.call("done")
        assert len(wire.heard) == (version == NEWEST)


@pytest.mark.parametrize(
    "url", ["", "example.com", "https://", "https:///x", "javascript:alert(1)", "https://a b.com", "1://x"]
)
def test_a_url_is_a_url(url: str) -> None:
    """S25-091, S26-156."""
    with pytest.raises(LocalProtocolError):
        elicit_url("?", url)


# --------------------------------------------------------------------------------------- sampling


async def with_tools(ctx: Context) -> str:
    tools = [Tool(name="look", description="Look", input_schema={"type": "object"})]
    answer = await ctx.sample("Use it", tools=tools, tool_choice=ToolChoice(mode="required"))
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    return " ".join(f"{block.name}({block.input})" for block in blocks if isinstance(block, ToolUseContent))


@each_legacy
async def test_sampling(version: str) -> None:
    async with memory_wire(serve(think), version, capabilities={"sampling": {}}) as wire:
        call, question = await asked(wire, "think")
        assert question["method"] == "sampling/createMessage"
        assert question["params"] == {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Think"}}],
            "maxTokens": 5,
        }
        reply(wire, question, SAID)
        assert await text_of(wire, call) == ("I think", False)


async def curious(ctx: Context) -> str:
    return (await ctx.sample("?", include_context="allServers")).text


@each_legacy
async def test_context_of_other_servers_is_asked_for_where_the_client_offers_it(version: str) -> None:
    for offered in ({}, {"context": {}}):
        async with memory_wire(serve(curious), version, capabilities={"sampling": offered}) as wire:
            call, question = await asked(wire, "curious")
            # Older clients had no way to say that they do it.
            is_asked = bool(offered) or version < "2025-11-25"
            assert question["params"].get("includeContext") == ("allServers" if is_asked else None)
            reply(wire, question, SAID)


async def test_context_of_other_servers_in_a_round() -> None:
    for offered in ({}, {"context": {}}):
        async with memory_wire(serve(curious), MODERN, capabilities={"sampling": offered}) as wire:
            result = await wire.result("tools/call", {"name": "curious", "arguments": {}})
            (question,) = result["inputRequests"].values()
            assert question["params"].get("includeContext") == ("allServers" if offered else None)


async def test_sampling_with_tools_and_several_blocks() -> None:
    async with memory_wire(serve(with_tools, think), NEWEST, capabilities={"sampling": {"tools": {}}}) as wire:
        call, question = await asked(wire, "with_tools")
        assert question["params"]["tools"] == [
            {"name": "look", "description": "Look", "inputSchema": {"type": "object"}}
        ]
        assert question["params"]["toolChoice"] == {"mode": "required"}
        uses = [{"type": "tool_use", "id": str(n), "name": "look", "input": {"n": n}} for n in range(2)]
        reply(wire, question, {"role": "assistant", "content": uses, "model": "m", "stopReason": "toolUse"})
        assert await text_of(wire, call) == ("look({'n': 0}) look({'n': 1})", False)
        call, question = await asked(wire, "think")
        texts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
        reply(wire, question, {"role": "assistant", "content": texts, "model": "m"})
        assert await text_of(wire, call) == ("one two", False)


async def test_tools_need_a_client_that_takes_them() -> None:
    """S25-080, S26-144: in the request, and in the conversation too."""
    conversation = [
        SamplingMessage("assistant", ToolUseContent(id="1", name="look", input={})),
        SamplingMessage("user", ToolResultContent(tool_use_id="1", content=[TextContent("seen")])),
    ]

    async def go_on(ctx: Context) -> str:
        return (await ctx.sample(conversation)).text

    for capabilities, is_asked in (({"sampling": {}}, False), ({"sampling": {"tools": {}}}, True)):
        async with memory_wire(serve(go_on, with_tools), NEWEST, capabilities=capabilities) as wire:
            for tool in ("go_on", "with_tools"):
                if is_asked:
                    call, question = await asked(wire, tool)
                    reply(wire, question, SAID)
                    await wire.answer(call)
                else:
                    assert (await wire.call(tool))["isError"] is True


def use(*ids: str) -> SamplingMessage:
    return SamplingMessage("assistant", [ToolUseContent(id=one, name="t", input={}) for one in ids])


def result(*ids: str) -> SamplingMessage:
    return SamplingMessage("user", [ToolResultContent(tool_use_id=one, content=[]) for one in ids])


HELLO = SamplingMessage("user", TextContent("hello"))


@pytest.mark.parametrize(
    "messages",
    [
        [use("1")],
        [use("1"), HELLO],
        [use("1"), HELLO, result("1")],
        [use("1", "2"), result("1")],
        [use("1"), result("2")],
        [result("1")],
        [use("1"), SamplingMessage("user", [ToolResultContent(tool_use_id="1", content=[]), TextContent("and")])],
        [SamplingMessage("user", [ToolUseContent(id="1", name="t", input={})]), result("1")],
    ],
)
def test_conversations_that_the_specification_forbids(messages: list[SamplingMessage]) -> None:
    """S25-081, S25-082, S25-083, S26-145, S26-146, S26-148: tool results alone in a message, each use answered next."""
    with pytest.raises(LocalProtocolError):
        sample(messages)


def test_conversations_that_it_allows() -> None:
    """S26-147."""
    for messages in (
        [HELLO],
        [HELLO, use("1"), result("1")],
        [HELLO, use("1", "2"), result("2", "1"), use("3"), result("3"), HELLO],
        [
            HELLO,
            SamplingMessage("assistant", [TextContent("so"), ToolUseContent(id="1", name="t", input={})]),
            result("1"),
        ],
    ):
        assert sample(messages).params.messages == messages


async def test_a_message_of_several_blocks_is_too_new_for_an_older_client() -> None:
    async def two(ctx: Context) -> str:
        blocks = [TextContent("a"), ImageContent(b"\x89PNG", "image/png")]
        return (await ctx.sample([SamplingMessage("user", blocks)])).text  # type: ignore[arg-type]

    async with memory_wire(serve(two), "2025-06-18", capabilities={"sampling": {}}) as wire:
        result = await wire.call("two")
        assert result["isError"] is True
        assert "one content block" in result["content"][0]["text"]


@each_legacy
@pytest.mark.parametrize("answer", [None, {}, {"role": "robot"}, {**SAID, "content": {"type": "smell"}}, [SAID]])
async def test_an_unusable_sample_fails_the_tool(version: str, answer: Any) -> None:
    async with memory_wire(serve(think), version, capabilities={"sampling": {}}) as wire:
        call, question = await asked(wire, "think")
        reply(wire, question, answer)
        text, is_error = await text_of(wire, call)
        assert is_error
        assert "sampling/createMessage" in text


# ------------------------------------------------------------------------------------------ roots


@pytest.mark.parametrize("version", WITH_CANCELLED)
async def test_roots(version: str) -> None:
    async with memory_wire(serve(roots), version, capabilities={"roots": {"listChanged": True}}) as wire:
        call, question = await asked(wire, "roots")
        assert question["method"] == "roots/list"
        reply(wire, question, {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]})
        assert await text_of(wire, call) == ("file:///a file:///b", False)


@pytest.mark.parametrize("version", WITH_CANCELLED)
async def test_that_roots_changed_is_told_to_who_wants_to_know(version: str, caplog: pytest.LogCaptureFixture) -> None:
    """With a context that can ask for them, outside of any request; who fails is logged and holds nobody up."""
    seen: list[Any] = []
    done = asyncio.Event()
    server = serve(who)

    @server.roots_changed
    def plain(ctx: Context) -> None:
        seen.append([root.uri for root in ctx.list_roots()])

    @server.roots_changed
    async def broken(ctx: Context) -> None:
        raise RuntimeError("no")

    @server.roots_changed
    async def waits(ctx: Context) -> None:
        seen.append([root.uri for root in await ctx.list_roots()])
        await ctx.progress(1)
        done.set()

    async with memory_wire(server, version, capabilities={"roots": {"listChanged": True}}) as wire:
        wire.notify("notifications/roots/list_changed")
        for number in range(2):
            question = await wire.receive()
            assert question["method"] == "roots/list"
            reply(wire, question, {"roots": [{"uri": f"file:///{number}"}]})
        await done.wait()
        assert seen == [["file:///0"], ["file:///1"]]
        assert "a change of roots" in caplog.text
        await wire.quiet()


async def test_changed_roots_are_no_news_elsewhere() -> None:
    server = serve(who)
    server.roots_changed(lambda ctx: pytest.fail("nobody said so"))
    for version in ("2024-10-07", "2026-07-28"):
        async with memory_wire(server, version) as wire:
            wire.notify("notifications/roots/list_changed")
            await wire.quiet()
    async with memory_wire(server) as wire:
        wire.notify("notifications/roots/list_changed")
        await wire.open(NEWEST)


# --------------------------------------------------------------------------- whatever can go wrong


@each_legacy
async def test_an_error_of_the_client_fails_the_tool_with_its_text(version: str) -> None:
    errors: list[Exception] = []

    async def catches(ctx: Context) -> str:
        try:
            return (await ctx.sample("?")).text
        except Exception as error:
            errors.append(error)
            raise

    async with memory_wire(serve(catches), version, capabilities={"sampling": {}}) as wire:
        call, question = await asked(wire, "catches")
        refuse(wire, question, -1, "User rejected sampling request")
        text, is_error = await text_of(wire, call)
        assert is_error
        assert "User rejected sampling request" in text
        cause = errors[0].__cause__
        assert isinstance(cause, RemoteError)
        assert (cause.code, cause.message) == (-1, "User rejected sampling request")


@each_legacy
async def test_a_question_that_is_not_answered_in_time(version: str) -> None:
    """The client is told that its answer is no longer wanted, where the version has a word for it; late ones drop."""
    errors: list[Exception] = []

    async def hurry(ctx: Context) -> str:
        try:
            return (await ctx.sample("?", timeout=0.01)).text
        except RequestTimeout as error:
            errors.append(error)
            return "gave up"

    async with memory_wire(serve(hurry), version, capabilities={"sampling": {}}) as wire:
        call, question = await asked(wire, "hurry")
        if version in WITH_CANCELLED:
            cancelled = await wire.receive()
            assert cancelled["method"] == "notifications/cancelled"
            assert cancelled["params"]["requestId"] == question["id"]
        assert await text_of(wire, call) == ("gave up", False)
        assert "sampling/createMessage" in str(errors[0])
        reply(wire, question, SAID)
        await wire.quiet()


async def test_a_timeout_that_nobody_catches_is_a_failed_tool() -> None:
    async def hurry(ctx: Context) -> str:
        return (await ctx.sample("?", timeout=0.01)).text

    async with memory_wire(serve(hurry), NEWEST, capabilities={"sampling": {}}) as wire:
        result = await wire.call("hurry")
        assert result["isError"] is True
        assert "did not answer" in result["content"][0]["text"]


def in_a_thread(ctx: Context) -> str:
    return str(ctx.sample("?", key="k"))


@pytest.mark.parametrize("version", WITH_CANCELLED)
@pytest.mark.parametrize("tool", [think, in_a_thread])
async def test_a_call_that_is_cancelled_takes_back_what_it_asked(version: str, tool: Callable[..., Any]) -> None:
    """S25-045: a request of ours, still open; nothing is said of the call itself."""
    async with memory_wire(serve(tool), version, capabilities={"sampling": {}}) as wire:
        call, question = await asked(wire, tool.__name__)
        wire.cancel(call)
        cancelled = await wire.receive()
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == question["id"]
        reply(wire, question, SAID)  # too late, and harmless
        await wire.quiet()


async def test_at_the_end_of_the_server_questions_are_taken_back_and_calls_answered() -> None:
    async with memory_wire(serve(think), NEWEST, capabilities={"sampling": {}}) as wire:
        call, question = await asked(wire, "think")
        await wire.connection.finish(0)
        cancelled = await wire.receive()
        assert cancelled["params"]["requestId"] == question["id"]
        assert (await wire.answer(call))["error"]["code"] == -32603


async def test_a_client_that_leaves_answers_nothing() -> None:
    errors: list[Exception] = []
    done = asyncio.Event()

    async def catches(ctx: Context) -> None:
        try:
            await ctx.sample("?", timeout=None)
        except ConnectionLost as error:
            errors.append(error)
        done.set()

    async with memory_wire(serve(catches), NEWEST, capabilities={"sampling": {}}) as wire:
        await asked(wire, "catches")
        wire.connection.closed()
        await done.wait()
        assert len(errors) == 1


async def test_our_ids_are_never_used_twice() -> None:
    """S25-003, S25-004, S25-005: integers, whatever became of the earlier questions."""
    async with memory_wire(serve(think), NEWEST, capabilities={"sampling": {}}) as wire:
        ids = []
        for number in range(6):
            call, question = await asked(wire, "think")
            ids.append(question["id"])
            if number % 3 == 0:
                reply(wire, question, SAID)
                await wire.answer(call)
            elif number % 3 == 1:
                refuse(wire, question, -1, "no")
                await wire.answer(call)
            else:
                wire.cancel(call)
                await wire.receive()
        assert all(type(one) is int for one in ids)
        assert len(set(ids)) == len(ids)


async def test_questions_of_several_calls_are_told_apart() -> None:
    async def name(ctx: Context, who: str) -> str:
        return f"{who}: {(await ctx.sample(who)).text}"

    async with memory_wire(serve(name), NEWEST, capabilities={"sampling": {}}) as wire:
        calls, questions = {}, {}
        for who in ("a", "b", "c"):
            calls[who], questions[who] = await asked(wire, "name", who=who)
        for who in ("c", "a", "b"):
            reply(wire, questions[who], {**SAID, "content": {"type": "text", "text": who.upper()}})
            assert await text_of(wire, calls[who]) == (f"{who}: {who.upper()}", False)


async def test_answers_that_fit_no_question_are_dropped() -> None:
    async with memory_wire(serve(think), NEWEST, capabilities={"sampling": {}}) as wire:
        call, question = await asked(wire, "think")
        reply(wire, {"id": 999}, SAID)
        reply(wire, {"id": str(question["id"])}, SAID)  # an id has a type
        refuse(wire, {"id": "x"}, 0, "no")
        await wire.quiet()
        reply(wire, question, SAID)
        reply(wire, question, {**SAID, "content": {"type": "text", "text": "again"}})
        assert await text_of(wire, call) == ("I think", False)
        await wire.quiet()


@each_legacy
async def test_several_things_at_once(version: str) -> None:
    """`ctx.ask` gives the answers by the names of the questions."""

    async def both(ctx: Context) -> str:
        answers = await ctx.ask(one=sample("1"), two=sample("2"))
        return f"{answers['one'].text} {answers['two'].text}"

    async with memory_wire(serve(both), version, capabilities={"sampling": {}}) as wire:
        call, question = await asked(wire, "both")
        for text in ("first", "second"):
            reply(wire, question, {**SAID, "content": {"type": "text", "text": text}})
            question = await wire.receive() if text == "first" else None
        assert await text_of(wire, call) == ("first second", False)


@pytest.mark.parametrize("version", WITH_FORMS)
async def test_plain_functions_ask_without_awaiting(version: str) -> None:
    def plain(ctx: Context) -> str:
        answer: Any = ctx.elicit("Who?", Person)
        found: Any = ctx.list_roots()
        return f"{answer.content.full_name} {found[0].uri} {ctx.ask(thought=sample('?'))['thought'].text}"

    async with memory_wire(serve(plain), version, capabilities=EVERYTHING) as wire:
        call, question = await asked(wire, "plain")
        reply(wire, question, accept(fullName="Ada"))
        reply(wire, await wire.receive(), {"roots": [{"uri": "file:///a"}]})
        reply(wire, await wire.receive(), SAID)
        assert await text_of(wire, call) == ("Ada file:///a I think", False)


@pytest.mark.parametrize("version", WITH_FORMS)
async def test_prompts_and_resources_ask_too(version: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("t")
    server.add_prompt(who)
    server.resource("test://who")(who)
    async with memory_wire(server, version, capabilities={"elicitation": {}}) as wire:
        for method, params in (("prompts/get", {"name": "who"}), ("resources/read", {"uri": "test://who"})):
            request = wire.ask(method, params)
            reply(wire, await wire.receive(), {"action": "decline"})
            assert "decline None" in str((await wire.answer(request))["result"])
            request = wire.ask(method, params)
            refuse(wire, await wire.receive(), -1, "no thanks")
            error = (await wire.answer(request))["error"]
            assert error["code"] == -32603
            assert "no thanks" in error["message"]
    async with memory_wire(server, version) as wire:
        with caplog.at_level(logging.ERROR, "mcpd"):
            assert (await wire.error("prompts/get", {"name": "who"}))["code"] == -32603
