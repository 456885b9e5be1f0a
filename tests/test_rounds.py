"""Asking a client of 2026-07-28: results that ask for another round, and the state that travels with them.

Spec: 2026-07-28 basic/patterns/mrtr, client/{elicitation,sampling,roots}.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, strategies as st
from msgspec import Struct
from support.wires import META, MODERN, Wire, envelope, memory_wire

from mcpd import Context, Server, elicit_form, elicit_url, list_roots, sample
from mcpd.protocol.envelope import Opening
from mcpd.protocol.types.features import Tool
from mcpd.protocol.types.interaction import ToolChoice
from mcpd.server.context import request_state

EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
KEY = b"0123456789abcdef"


class Name(Struct):
    """A name."""

    name: str


NAME_FORM = {
    "mode": "form",
    "message": "Who?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
ADA = {"action": "accept", "content": {"name": "Ada"}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "I think"}, "model": "m", "stopReason": "endTurn"}
ROOTS = {"roots": [{"uri": "file:///a"}]}


def serve(*tools: Callable[..., Any], **settings: Any) -> Server:
    server = Server("t", **settings)
    for tool in tools:
        server.add_tool(tool)
    return server


async def who(ctx: Context) -> str:
    return f"Hello, {(await ctx.elicit('Who?', Name, key='who')).get().name}!"


async def rounds(ctx: Context, steps: int = 3) -> list[str]:
    names = []
    for number in range(steps):
        names.append((await ctx.elicit(f"Who is number {number}?", Name)).get().name)
    return names


async def three(ctx: Context) -> str:
    answers = await ctx.ask(who=elicit_form("Who?", Name), thought=sample("Think"), roots=list_roots())
    return f"{answers['who'].get().name} {answers['thought'].text} {len(answers['roots'])}"


async def remembers(ctx: Context) -> dict[str, Any]:
    ctx.state["runs"] = ctx.state.get("runs", 0) + 1
    await ctx.elicit("Who?", Name, key="who")
    return dict(ctx.state)


async def ask(wire: Wire, tool: str, arguments: dict[str, Any] | None = None, /, **again: Any) -> Any:
    """The result of a call that carries these answers and this state."""
    return await wire.result("tools/call", {"name": tool, "arguments": arguments or {}, **again})


def questions(result: Any) -> dict[str, Any]:
    assert result["resultType"] == "input_required"
    return dict(result["inputRequests"])


def text(result: Any) -> str:
    assert result["resultType"] == "complete"
    return str(result["content"][0]["text"])


# -------------------------------------------------------------------------------------- the rounds


async def test_a_question_is_a_result_and_its_answer_a_new_request() -> None:
    """S26-042, S26-048, S26-080, S26-088: nothing but a response comes, with what is asked and a state.

    S26-153, S26-154: a form has mode, message and schema.
    """
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        first = await ask(wire, "who")
        assert questions(first) == {"who": {"method": "elicitation/create", "params": NAME_FORM}}
        assert isinstance(first["requestState"], str)
        assert first["_meta"][f"{META}serverInfo"]["name"] == "t"
        assert not first.keys() & {"ttlMs", "cacheScope", "content"}
        again = await ask(wire, "who", inputResponses={"who": ADA}, requestState=first["requestState"])
        assert text(again) == "Hello, Ada!"
        assert not wire.heard


async def test_the_answers_alone_are_enough() -> None:
    """S26-018: no round has to come before."""
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        assert text(await ask(wire, "who", inputResponses={"who": ADA})) == "Hello, Ada!"


async def test_each_round_asks_one_thing_more() -> None:
    """Without a name of its own a question is counted, and the same in every round; states differ."""
    async with memory_wire(serve(rounds), MODERN, capabilities={"elicitation": {}}) as wire:
        more: dict[str, Any] = {}
        states = set()
        for number in range(3):
            result = await ask(wire, "rounds", **more)
            ((key, question),) = questions(result).items()
            assert question["params"]["message"] == f"Who is number {number}?"
            states.add(result["requestState"])
            answer = {"action": "accept", "content": {"name": f"N{number}"}}
            more = {"inputResponses": {key: answer}, "requestState": result["requestState"]}
        result = await ask(wire, "rounds", **more)
        assert result["structuredContent"] == ["N0", "N1", "N2"]
        assert len(states) == 3


async def test_several_questions_in_one_round() -> None:
    """S26-082, S26-083: keys are unique, values are elicitations, samples and roots."""
    async with memory_wire(serve(three), MODERN, capabilities=EVERYTHING) as wire:
        first = await ask(wire, "three")
        assert {key: question["method"] for key, question in questions(first).items()} == {
            "who": "elicitation/create",
            "thought": "sampling/createMessage",
            "roots": "roots/list",
        }
        answers = {"who": ADA, "thought": SAID, "roots": ROOTS}
        assert text(await ask(wire, "three", inputResponses=answers, requestState=first["requestState"])) == (
            "Ada I think 1"
        )


@pytest.mark.parametrize("answered", [["who"], ["thought"], ["roots"], ["who", "roots"], ["thought", "who"]])
async def test_what_was_not_answered_is_asked_again_and_what_was_is_kept(answered: list[str]) -> None:
    """S26-090: the client may answer in parts."""
    answers = {"who": ADA, "thought": SAID, "roots": ROOTS}
    async with memory_wire(serve(three), MODERN, capabilities=EVERYTHING) as wire:
        part = {key: answers[key] for key in answered}
        second = await ask(wire, "three", inputResponses=part)
        assert set(questions(second)) == answers.keys() - part.keys()
        rest = {key: answer for key, answer in answers.items() if key not in part}
        last = await ask(wire, "three", inputResponses=rest, requestState=second["requestState"])
        assert text(last) == "Ada I think 1"


@pytest.mark.parametrize(
    "responses", [{}, None, {"other": ADA}, {"WHO": ADA}, {"other": 5, "another": {"action": "accept"}}]
)
async def test_without_the_answer_the_question_comes_again(responses: Any) -> None:
    """Unknown keys are ignored; nothing is not an answer."""
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        assert set(questions(await ask(wire, "who", inputResponses=responses))) == {"who"}


@pytest.mark.parametrize(
    ("responses", "named"),
    [
        ([], "inputResponses"),
        ("who", "inputResponses"),
        (5, "inputResponses"),
        ({"who": 12345}, "who"),
        ({"who": None}, "who"),
        ({"who": {}}, "who"),
        ({"who": {"action": "agree"}}, "who"),
        ({"who": {"action": "accept"}}, "who"),
        ({"who": {"action": "accept", "content": {"name": 5}}}, "name"),
        ({"who": {"action": "accept", "content": []}}, "who"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_bad_params(responses: Any, named: str) -> None:
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        error = await wire.error("tools/call", {"name": "who", "inputResponses": responses})
        assert error["code"] == -32602
        assert named in error["message"]


async def test_a_decline_is_an_answer() -> None:
    """S26-164."""
    async with memory_wire(serve(who, remembers), MODERN, capabilities={"elicitation": {}}) as wire:
        for action in ("decline", "cancel"):
            result = await ask(wire, "who", inputResponses={"who": {"action": action}})
            assert result["isError"] is True
            assert text(result).startswith("The user")


async def test_what_the_tool_keeps_outlives_the_round() -> None:
    """S26-019: it travels in the state, and nowhere else."""
    async with memory_wire(serve(remembers), MODERN, capabilities={"elicitation": {}}) as wire:
        state = None
        for _ in range(3):
            result = await ask(wire, "remembers", requestState=state)
            state = result["requestState"]
        result = await ask(wire, "remembers", requestState=state, inputResponses={"who": ADA})
        assert result["structuredContent"] == {"runs": 4}
        result = await ask(wire, "remembers", inputResponses={"who": ADA})
        assert result["structuredContent"] == {"runs": 1}


async def test_state_that_is_no_json_is_the_tools_mistake() -> None:
    async def keeps(ctx: Context) -> None:
        ctx.state["x"] = object()
        await ctx.elicit("Who?", Name)

    async with memory_wire(serve(keeps), MODERN, capabilities={"elicitation": {}}) as wire:
        error = await wire.error("tools/call", {"name": "keeps"})
        assert error["code"] == -32603
        assert error["message"].startswith("ctx.state['x'] cannot be kept until the next round")
        await wire.quiet()


async def test_prompts_and_resources_have_rounds_too() -> None:
    """S26-081."""
    server = Server("t")
    server.add_prompt(who)
    server.resource("test://who")(who)

    @server.resource("test://who/{again}")
    async def template(again: str, ctx: Context) -> str:
        return f"{again} {await who(ctx)}"

    async with memory_wire(server, MODERN, capabilities={"elicitation": {}}) as wire:
        for method, params in (
            ("prompts/get", {"name": "who"}),
            ("resources/read", {"uri": "test://who"}),
            ("resources/read", {"uri": "test://who/again"}),
        ):
            first = await wire.result(method, params)
            assert set(questions(first)) == {"who"}
            assert not first.keys() & {"ttlMs", "cacheScope"}
            again = {**params, "inputResponses": {"who": ADA}, "requestState": first["requestState"]}
            result = await wire.result(method, again)
            assert "Hello, Ada!" in str(result)
            if method == "resources/read":
                assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


async def test_no_other_method_asks() -> None:
    """S26-081: answers and states in their params are nothing to them."""
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        for method in ("tools/list", "server/discover"):
            result = await wire.result(method, {"inputResponses": {"who": ADA}, "requestState": "made up"})
            assert result["resultType"] == "complete"


# ----------------------------------------------------------------------------- ways of asking


async def test_plain_functions_ask_as_well() -> None:
    def plain(ctx: Context) -> str:
        name: Any = ctx.elicit("Who?", Name, key="who")
        found: Any = ctx.list_roots(key="roots")
        return f"{name.get().name} {found[0].uri}"

    async with memory_wire(serve(plain), MODERN, capabilities=EVERYTHING) as wire:
        first = await ask(wire, "plain")
        assert set(questions(first)) == {"who"}
        second = await ask(wire, "plain", inputResponses={"who": ADA}, requestState=first["requestState"])
        assert set(questions(second)) == {"roots"}
        last = await ask(wire, "plain", inputResponses={"roots": ROOTS}, requestState=second["requestState"])
        assert text(last) == "Ada file:///a"


async def test_what_a_task_group_asks_is_one_round() -> None:
    async def grouped(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            name = group.create_task(ctx.elicit("Who?", Name, key="who"))  # type: ignore[arg-type]
            thought = group.create_task(ctx.sample("Think", key="thought"))  # type: ignore[arg-type]
        return f"{name.result().get().name} {thought.result().text}"

    async def with_anyio(ctx: Context) -> str:
        found: list[Any] = []

        async def one(key: str) -> None:
            found.append((await ctx.elicit("Who?", Name, key=key)).get().name)

        async with anyio.create_task_group() as group:
            group.start_soon(one, "first")
            group.start_soon(one, "second")
        return " ".join(found)

    async with memory_wire(serve(grouped, with_anyio), MODERN, capabilities=EVERYTHING) as wire:
        assert set(questions(await ask(wire, "grouped"))) == {"who", "thought"}
        assert text(await ask(wire, "grouped", inputResponses={"who": ADA, "thought": SAID})) == "Ada I think"
        assert set(questions(await ask(wire, "with_anyio"))) == {"first", "second"}
        both = {"first": ADA, "second": {"action": "accept", "content": {"name": "Bob"}}}
        assert text(await ask(wire, "with_anyio", inputResponses=both)) == "Ada Bob"


async def test_a_task_group_with_another_failure_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def mixed(ctx: Context) -> None:
        async def fail() -> None:
            raise RuntimeError("secret")

        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.elicit("Who?", Name))  # type: ignore[arg-type]
            group.create_task(fail())

    async with memory_wire(serve(mixed), MODERN, capabilities=EVERYTHING) as wire:
        with caplog.at_level(logging.ERROR, "mcpd"):
            error = await wire.error("tools/call", {"name": "mixed"})
        assert error["code"] == -32603
        assert "secret" not in error["message"]
        await wire.quiet()


async def test_a_tool_that_catches_everything_still_asks() -> None:
    async def careful(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Who?", Name, key="who")).get().name
        except Exception as error:
            return f"caught {error!r}"

    async with memory_wire(serve(careful), MODERN, capabilities=EVERYTHING) as wire:
        assert set(questions(await ask(wire, "careful"))) == {"who"}


async def test_a_page_to_visit() -> None:
    """S26-155, S26-156: mode, message and url, and no id, which this version does not have."""

    async def page(ctx: Context) -> str:
        return (await ctx.elicit_url("Sign in", "https://example.com/in", elicitation_id="e", key="page")).action

    async with memory_wire(serve(page), MODERN, capabilities={"elicitation": {"url": {}}}) as wire:
        assert questions(await ask(wire, "page")) == {
            "page": {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "Sign in", "url": "https://example.com/in"},
            }
        }
        assert text(await ask(wire, "page", inputResponses={"page": {"action": "accept"}})) == "accept"


async def test_a_page_that_has_to_be_visited_first() -> None:
    """S26-015: -32042 is gone; it is one more round, until the user will not."""

    async def first(ctx: Context) -> None:
        ctx.require_url("Sign in", "https://example.com/in", key="page")

    async with memory_wire(serve(first), MODERN, capabilities={"elicitation": {"url": {}}}) as wire:
        for responses in (None, {"page": {"action": "accept"}}):
            assert set(questions(await ask(wire, "first", inputResponses=responses))) == {"page"}
        result = await ask(wire, "first", inputResponses={"page": {"action": "decline"}})
        assert result["isError"] is True
    async with memory_wire(serve(first), MODERN, capabilities={"elicitation": {}}) as wire:
        error = await wire.error("tools/call", {"name": "first"})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


async def test_progress_and_log_messages_come_before_a_round() -> None:
    async def busy(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.info("asking")
        return (await ctx.elicit("Who?", Name, key="who")).action

    meta = {"progressToken": "p", f"{META}logLevel": "info"}
    async with memory_wire(serve(busy), MODERN, capabilities=EVERYTHING) as wire:
        result = await wire.result("tools/call", {"name": "busy"}, meta=meta)
        assert set(questions(result)) == {"who"}
        assert [message["method"] for message in wire.heard] == ["notifications/progress", "notifications/message"]


# ----------------------------------------------------------------------------------- capabilities


async def with_tools(ctx: Context) -> str:
    tools = [Tool(name="look", input_schema={"type": "object"})]
    return (await ctx.sample("Use it", tools=tools, tool_choice=ToolChoice(mode="auto"), key="use")).text


async def think(ctx: Context) -> str:
    return (await ctx.sample("Think")).text


async def roots(ctx: Context) -> int:
    return len(await ctx.list_roots())


async def visit(ctx: Context) -> str:
    return (await ctx.elicit_url("Go", "https://example.com")).action


@pytest.mark.parametrize(
    ("tool", "capabilities", "required"),
    [
        ("who", {}, {"elicitation": {"form": {}}}),
        ("who", {"sampling": {}}, {"elicitation": {"form": {}}}),
        ("who", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("visit", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("visit", {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        ("think", {"elicitation": {}}, {"sampling": {}}),
        ("with_tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("roots", {}, {"roots": {}}),
        ("three", {"elicitation": {}, "roots": {}}, {"sampling": {}}),
    ],
)
async def test_a_capability_that_is_missing_is_named(tool: str, capabilities: Any, required: Any) -> None:
    """S26-031, S26-032, S26-089, S26-144, S26-152: what was not declared is not asked, but refused with -32021."""
    server = serve(who, visit, think, with_tools, roots, three)
    async with memory_wire(server, MODERN, capabilities=capabilities) as wire:
        error = await wire.error("tools/call", {"name": tool})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": required}


async def test_capabilities_are_those_of_the_request_and_of_no_other() -> None:
    """S26-018, S26-036: not of an earlier request on the same connection."""
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        assert set(questions(await ask(wire, "who"))) == {"who"}
        error = await wire.error("tools/call", {"name": "who"}, meta=envelope(capabilities={}))
        assert error["code"] == -32021
        assert set(questions(await ask(wire, "who"))) == {"who"}


async def test_capabilities_that_cannot_be_read_are_bad_params() -> None:
    async with memory_wire(serve(who), MODERN) as wire:
        meta = envelope(capabilities={"elicitation": 5})
        error = await wire.error("tools/call", {"name": "who"}, meta=meta)
        assert error["code"] == -32602
        assert "clientCapabilities" in error["message"]


async def test_a_tool_that_looks_first_asks_for_what_is_possible() -> None:
    async def possible(ctx: Context) -> list[str]:
        wanted = {"who": elicit_form("Who?", Name), "page": elicit_url("Go", "https://e.com"), "thought": sample("?")}
        return list(await ctx.ask(**{key: one for key, one in wanted.items() if ctx.can_ask(one)}))

    async with memory_wire(serve(possible), MODERN, capabilities={"sampling": {}}) as wire:
        assert set(questions(await ask(wire, "possible"))) == {"thought"}
        result = await ask(wire, "possible", inputResponses={"thought": SAID, "who": ADA})
        assert result["structuredContent"] == ["thought"]
    async with memory_wire(serve(possible), MODERN) as wire:
        assert (await ask(wire, "possible"))["structuredContent"] == []


# -------------------------------------------------------------------------------------- the state


async def state_of(wire: Wire, tool: str, arguments: dict[str, Any] | None = None) -> str:
    return str((await ask(wire, tool, arguments))["requestState"])


async def refused(wire: Wire, tool: str, state: Any, arguments: dict[str, Any] | None = None) -> str:
    """That this state is refused for this request; gives the words."""
    params = {"name": tool, "arguments": arguments or {}, "requestState": state, "inputResponses": {"who": ADA}}
    error = await wire.error("tools/call", params)
    assert error["code"] == -32602
    assert "requestState" in error["message"]
    return str(error["message"])


async def touches(ctx: Context, log: str = "") -> str:
    RUNS.append(log)
    return (await ctx.elicit("Who?", Name, key="who")).action


RUNS: list[str] = []


async def test_a_state_that_was_changed_is_refused_before_anything_runs() -> None:
    """S26-084, S26-085, S26-086."""
    async with memory_wire(serve(touches), MODERN, capabilities={"elicitation": {}}) as wire:
        state = await state_of(wire, "touches")
        raw = bytearray(b64decode(state))
        RUNS.clear()
        for position in (0, 15, 31, 32, 40, len(raw) - 1):
            changed = bytearray(raw)
            changed[position] ^= 1
            await refused(wire, "touches", b64encode(changed).decode())
        for made_up in (f"{state}-TAMPERED", state[:-4], state[4:], "", " ", "e30=", "null", f"{state}\n", "é"):
            await refused(wire, "touches", made_up)
        assert not RUNS
        await refused(wire, "touches", state, {"log": "another"})
        assert not RUNS
        assert text(await ask(wire, "touches", requestState=state, inputResponses={"who": ADA})) == "accept"


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: b64encode(raw).decode()))
async def test_nothing_made_up_is_a_state(made_up: str) -> None:
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        await refused(wire, "who", made_up)


@pytest.mark.parametrize("state", [5, [], {}, True])
async def test_a_state_is_a_string(state: Any) -> None:
    async with memory_wire(serve(who), MODERN) as wire:
        await refused(wire, "who", state)


async def test_a_state_belongs_to_its_tool_its_arguments_and_its_method() -> None:
    server = serve(who, rounds, remembers)
    server.add_prompt(who)
    async with memory_wire(server, MODERN, capabilities={"elicitation": {}}) as wire:
        state = await state_of(wire, "rounds", {"steps": 2})
        await refused(wire, "rounds", state, {"steps": 3})
        await refused(wire, "rounds", state)
        await refused(wire, "who", state)
        error = await wire.error("prompts/get", {"name": "who", "requestState": await state_of(wire, "who")})
        assert error["code"] == -32602
        assert questions(await ask(wire, "rounds", {"steps": 2}, requestState=state))


async def test_a_state_belongs_to_who_asked() -> None:
    """S26-157, S26-165, S26-211: the transport says who that is; one client's state is no good to another."""
    server = serve(who)
    capabilities = {"elicitation": {}}
    async with (
        memory_wire(server, MODERN, capabilities=capabilities) as ada,
        memory_wire(server, MODERN, capabilities=capabilities) as eve,
        memory_wire(server, MODERN, capabilities=capabilities) as ada_again,
    ):
        ada.connection.session.opening = ada_again.connection.session.opening = Opening(principal="ada")
        eve.connection.session.opening = Opening(principal="eve")
        state = await state_of(ada, "who")
        await refused(eve, "who", state)
        assert text(await ask(ada_again, "who", requestState=state, inputResponses={"who": ADA})) == "Hello, Ada!"


async def test_a_state_does_not_live_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(request_state.time, "time", lambda: now)
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        state = await state_of(wire, "who")
        now += 3599
        assert questions(await ask(wire, "who", requestState=state))
        now += 2
        assert "expired" in await refused(wire, "who", state)


async def test_processes_that_share_a_key_share_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """S26-018: the next round may be served by another process."""
    monkeypatch.delenv("MCPD_STATE_KEY", raising=False)
    servers = {
        "one": serve(who, state_key=KEY),
        "other": serve(who, state_key=KEY.decode()),
        "stranger": serve(who, state_key=KEY[::-1]),
        "alone": serve(who),
        "alone too": serve(who),
    }
    states = {}
    for name, server in servers.items():
        async with memory_wire(server, MODERN, capabilities={"elicitation": {}}) as wire:
            states[name] = await state_of(wire, "who")
    for name, server in servers.items():
        async with memory_wire(server, MODERN, capabilities={"elicitation": {}}) as wire:
            for other, state in states.items():
                if name == other or {name, other} == {"one", "other"}:
                    result = await ask(wire, "who", requestState=state, inputResponses={"who": ADA})
                    assert text(result) == "Hello, Ada!"
                else:
                    await refused(wire, "who", state)


async def test_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPD_STATE_KEY", KEY.decode())
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        state = await state_of(wire, "who")
    async with memory_wire(serve(who, state_key=KEY), MODERN, capabilities={"elicitation": {}}) as wire:
        assert questions(await ask(wire, "who", requestState=state))


async def test_a_key_that_is_too_short_is_no_key() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        serve(who, state_key="short")


async def test_a_round_is_not_used_up() -> None:
    """S26-087 asks those who need a state to work only once to see to it; here it is good until it is expired."""
    async with memory_wire(serve(who), MODERN, capabilities={"elicitation": {}}) as wire:
        state = await state_of(wire, "who")
        for _ in range(2):
            result = await ask(wire, "who", requestState=state, inputResponses={"who": ADA})
            assert text(result) == "Hello, Ada!"


async def test_rounds_do_not_exist_before_2026() -> None:
    """A legacy session ignores what it does not know."""
    async with memory_wire(serve(who), "2025-11-25", capabilities={"elicitation": {}}) as wire:
        call = wire.ask("tools/call", {"name": "who", "inputResponses": {"who": ADA}, "requestState": "x"})
        question = await wire.receive()
        assert question["method"] == "elicitation/create"
        wire.send({"jsonrpc": "2.0", "id": question["id"], "result": ADA})
        assert (await wire.answer(call))["result"]["content"][0]["text"] == "Hello, Ada!"
