"""Requests through a mount, in all four combinations of eras, and what they carry in both directions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from msgspec import Raw
from support.clock import Clock, until
from support.http_peer import serving
from support.wires import LEGACY, MODERN, Wire, each_version, memory_wire

from mcpd import Client, Context, Server
from mcpd.client.callbacks import Callbacks
from mcpd.client.targets.named import CommandTarget
from mcpd.errors import RemoteError
from mcpd.protocol.envelope import Opening
from mcpd.protocol.types.base import RawResult
from mcpd.transports.websocket.server import WebSocketListener
from mcpd.types import CreateMessageResult, ElicitResult, Root, TextContent
from .asking import FORM, make_server

OLD = LEGACY[-1]
TASKS = "io.modelcontextprotocol/tasks"
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def callbacks(mark: str, log: list[Any] | None = None) -> Callbacks:
    """Answers that carry the mark of their client."""

    def sample(params: Any) -> CreateMessageResult:
        content = TextContent(f"{params.messages[0].content.text} {mark}")
        return CreateMessageResult(role="assistant", content=content, model="m")

    return Callbacks(
        elicit_form=lambda params: ElicitResult(action="accept", content={"n": mark}),
        elicit_url=lambda params: ElicitResult(action="accept"),
        sample=sample,
        roots=lambda: [Root(uri=f"file:///{mark}")],
        log=None if log is None else lambda params: log.append(params.data),
    )


@asynccontextmanager
async def reached(stack: AsyncExitStack, server: Server, how: str, child: Child | None = None) -> AsyncIterator[Any]:
    """A target for a server over one transport."""
    if how == "memory":
        yield server
    elif how == "stdio":
        assert child is not None
        yield CommandTarget((child.python, str(Path(__file__).with_name("asking.py"))), child.env)
    elif how == "http":
        yield (await stack.enter_async_context(serving(server))).listener.url
    else:
        listener = WebSocketListener("127.0.0.1:0")
        await listener.start(server.connect)
        stack.push_async_callback(listener.aclose)
        yield listener.url


async def everything(client: Client, mark: str, log: list[Any], *, asks: bool = True) -> list[Any]:
    """The outcome of all fixture calls."""
    steps: list[Any] = []
    found: list[Any] = []
    for name, arguments in (("add", {"a": 1, "b": 2}), ("picture", {}), ("fail", {}), ("steps", {})):
        result = await client.call_tool(f"up_{name}", arguments, on_progress=lambda *step: steps.append(step))
        found.append((name, result.content, result.is_error))
    found.append(steps)
    await until(lambda: log)  # callbacks do not delay the response
    found.append(log[:1])
    with pytest.raises(RemoteError) as refusal:
        await client.call_tool("up_refuse")
    found.append((refusal.value.code, refusal.value.message, refusal.value.data))
    if asks:
        for name, arguments in (("name", {"greeting": "hi"}), ("model", {"words": "w"}), ("folders", {}), ("both", {})):
            result = await client.call_tool(f"up_{name}", arguments)
            found.append((name, result.content, result.is_error))
    found.append([each.text for each in (await client.read_resource("up+notes://all")).contents])
    prompt = await client.get_prompt("up_greet", {"whom": "you"})
    found.append([message.content for message in prompt.messages])
    return found


@pytest.mark.parametrize("client_version", [OLD, MODERN])
@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@pytest.mark.parametrize("near", ["memory", "http", "websocket"])
@pytest.mark.parametrize("far", ["stdio", "http", "websocket"])
async def test_the_four_cells_give_equal_results(
    near: str, far: str, protocol: str, client_version: str, child: Child
) -> None:
    """MNT-08, MNT-10, MNT-16: over all transports, in both eras on both sides, modulo prefix and version."""
    async with AsyncExitStack() as stack:
        upstream = make_server()
        front = Server("front")
        target = await stack.enter_async_context(reached(stack, upstream, far, child))
        front.mount("up", target, protocol=protocol)
        stack.push_async_callback(front.aclose)
        address = await stack.enter_async_context(reached(stack, front, near))
        log: list[Any] = []
        client = Client(address, callbacks("mine", log), version=client_version)
        async with client:
            await client.list_tools()
            await client.set_log_level("warning")
            found = await everything(client, "mine", log)
    content = {name: (blocks, is_error) for name, blocks, is_error in (one for one in found if len(one) == 3)}
    assert content["add"] == ([TextContent("3")], False)
    assert content["fail"] == ([TextContent("it failed")], True)
    assert content["picture"][0][1].uri == "up+notes://all"
    assert content["name"] == ([TextContent("hi mine")], False)
    assert content["model"] == ([TextContent("w mine")], False)
    assert content["folders"] == ([TextContent("file:///mine")], False)
    assert content["both"][0] == [TextContent("accept {'n': 'mine'} accept {'n': 'mine'}")]
    assert found[4] == [(1.0, 3.0, "step 1"), (2.0, 3.0, "step 2"), (3.0, 3.0, "step 3")]
    assert found[5] == ["careful"]
    assert found[6] == (-32602, "not like this", {"why": "so"})
    assert found[-2:] == [["all notes"], [TextContent("Greet you")]]


# ------------------------------------------------------------------------------- on the wire


@asynccontextmanager
async def mounted(server: Server, version: str, protocol: str, **settings: Any) -> AsyncIterator[Wire]:
    """A client with all capabilities, of a server with one mount."""
    front = Server("front")
    front.mount("up", server, protocol=protocol, **settings)
    async with memory_wire(front) as wire:
        await wire.open(version, CAPABILITIES)
        await wire.result("tools/list")
        yield wire
    await front.aclose()


async def asked(wire: Wire, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
    """The answer to a call, in a modern version."""
    params = {"name": f"up_{tool}", "arguments": arguments or {}, **more}
    return await wire.request("tools/call", params)


ACCEPTED = {"action": "accept", "content": {"n": "me"}}


async def test_two_questions_at_once_are_two_keys_and_the_rest_is_asked_again() -> None:
    """MNT-10, MNT-15, MNT-16: and the progress that came meanwhile has the token of the last request."""
    async with mounted(make_server(), MODERN, "legacy") as wire:
        params: dict[str, Any] = {"name": "up_both", "arguments": {}}
        first = await wire.result("tools/call", params, meta={"progressToken": "early"})
        assert first["resultType"] == "input_required"
        messages = {key: one["params"]["message"] for key, one in first["inputRequests"].items()}
        assert sorted(messages.values()) == ["first?", "second?"]

        known = next(key for key, message in messages.items() if message == "first?")
        state = {"requestState": first["requestState"]}
        second = (await asked(wire, "both", inputResponses={known: ACCEPTED}, **state))["result"]
        ((rest, question),) = second["inputRequests"].items()
        assert question["params"]["message"] == "second?"

        params |= {
            "requestState": second["requestState"],
            "inputResponses": {rest: {"action": "decline"}},
        }
        last = await wire.result("tools/call", params, meta={"progressToken": "late"})
        assert last["content"][0]["text"] == "accept {'n': 'me'} decline None"
        assert [(each["method"], each["params"]["progressToken"]) for each in wire.heard] == [
            ("notifications/progress", "late")
        ]


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_a_state_opens_for_its_own_request_only(protocol: str) -> None:
    """MNT-11: not for other arguments, and not if it was changed; a parked call continues once."""
    async with mounted(make_server(), MODERN, protocol) as wire:
        first = (await asked(wire, "name", {"greeting": "hi"}))["result"]
        (key,) = first["inputRequests"]
        answers = {"inputResponses": {key: ACCEPTED}}
        state = first["requestState"]
        other = await asked(wire, "name", {"greeting": "bye"}, requestState=state, **answers)
        assert other["error"]["code"] == -32602
        changed = f"{state[:40]}{'A' if state[40] != 'A' else 'B'}{state[41:]}"
        assert (await asked(wire, "name", {"greeting": "hi"}, requestState=changed, **answers))["error"][
            "code"
        ] == -32602
        result = (await asked(wire, "name", {"greeting": "hi"}, requestState=state, **answers))["result"]
        assert result["content"][0]["text"] == "hi me"
        again = await asked(wire, "name", {"greeting": "hi"}, requestState=state, **answers)
        if protocol == "legacy":
            assert again["error"]["code"] == -32602
        else:
            assert again["result"]["content"] == result["content"]


class Hanging:
    """A server with a tool that asks and notices when it is cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.answered: list[str] = []
        self.server = Server("hanging")

        @self.server.tool
        async def ask(ctx: Context, mark: str = "") -> str:
            try:
                answer = await ctx.elicit(f"{mark}?", FORM, timeout=None)
                self.answered.append(answer.action)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return mark

        @self.server.tool
        async def wait() -> str:
            try:
                self.began.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return ""


async def test_a_parked_call_ends_after_five_minutes() -> None:
    """MNT-13: the question is answered with cancel, and the server receives a cancellation."""
    hanging = Hanging()
    async with mounted(hanging.server, MODERN, "legacy") as wire:
        first = (await asked(wire, "ask"))["result"]
        clock = Clock()
        await clock.advance(299)
        assert not hanging.cancelled.is_set()
        await clock.advance(2)
        await hanging.cancelled.wait()
        assert hanging.answered == ["cancel"]
        late = await asked(wire, "ask", requestState=first["requestState"], inputResponses={})
        assert late["error"]["code"] == -32602


async def test_parked_calls_of_one_user_are_bounded() -> None:
    """MNT-13: 16 for each user; one more is answered with an error result."""
    hanging = Hanging()
    async with mounted(hanging.server, MODERN, "legacy") as wire:
        kinds = [(await asked(wire, "ask", {"mark": str(number)}))["result"] for number in range(17)]
        assert [kind["resultType"] for kind in kinds] == ["input_required"] * 16 + ["complete"]
        assert kinds[-1]["isError"] is True
        assert "too many calls wait" in kinds[-1]["content"][0]["text"]


async def test_a_client_that_leaves_cancels_its_parked_call() -> None:
    """MNT-14."""
    hanging = Hanging()
    async with mounted(hanging.server, MODERN, "legacy") as wire:
        await asked(wire, "ask")
        wire.connection.closed()
        await hanging.cancelled.wait()


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@pytest.mark.parametrize("version", [OLD, MODERN])
async def test_a_cancellation_reaches_the_mounted_server(version: str, protocol: str) -> None:
    """MNT-14: also while it works on the call of a client that can be asked."""
    hanging = Hanging()
    async with mounted(hanging.server, version, protocol) as wire:
        number = wire.ask("tools/call", {"name": "up_wait", "arguments": {}})
        await hanging.began.wait()
        wire.cancel(number)
        await hanging.cancelled.wait()
        await wire.quiet()


async def test_pages_to_visit_reach_a_modern_client_as_questions() -> None:
    """MNT-19: the error -32042 becomes a question, and the next request starts anew."""
    visited = False
    server = Server("pages")

    @server.tool
    async def login(ctx: Context) -> str:
        if not visited:
            ctx.require_url("Log in", "https://example.com/login")
        return "welcome"

    async with mounted(server, MODERN, "legacy") as wire:
        first = (await asked(wire, "login"))["result"]
        ((key, question),) = first["inputRequests"].items()
        assert question["params"] == {"mode": "url", "message": "Log in", "url": "https://example.com/login"}
        state = {"requestState": first["requestState"]}
        declined = (await asked(wire, "login", inputResponses={key: {"action": "decline"}}, **state))["result"]
        assert declined["isError"] is True
        visited = True
        last = (await asked(wire, "login", inputResponses={key: {"action": "accept"}}, **state))["result"]
        assert last["content"][0]["text"] == "welcome"


async def test_pages_to_visit_have_an_id_for_older_clients() -> None:
    async with mounted(make_server(), OLD, "modern") as wire:
        number = wire.ask("tools/call", {"name": "up_visit", "arguments": {}})
        question = await wire.receive()
        assert question["params"]["url"] == "https://example.com/login"
        assert question["params"]["elicitationId"]
        wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        assert (await wire.answer(number))["result"]["isError"] is True


async def test_only_what_the_client_offers_is_asked() -> None:
    """MNT-09: a later call without the capability gets a declined question, not another client."""
    async with mounted(make_server(), MODERN, "legacy") as wire:
        await asked(wire, "add", {"a": 1, "b": 2})
        wire.capabilities = {}
        result = (await asked(wire, "name", {"greeting": "hi"}))["result"]
        assert result["content"][0]["text"] == "hi decline"


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@pytest.mark.parametrize("version", [OLD, MODERN])
async def test_the_roots_of_the_settings_answer_for_all(version: str, protocol: str, tmp_path: Path) -> None:
    async with mounted(make_server(), version, protocol, roots=[str(tmp_path)]) as wire:
        result = (await asked(wire, "folders"))["result"]
        assert result["content"][0]["text"] == tmp_path.as_uri()


async def test_a_server_whose_questions_are_refused_does_without() -> None:
    async with mounted(make_server(), MODERN, "legacy", questions="refuse") as wire:
        result = (await asked(wire, "name", {"greeting": "hi"}))["result"]
        assert result["isError"] is True
        assert "capability" in result["content"][0]["text"]


@each_version
@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_results_have_the_shape_of_the_clients_version(version: str, protocol: str) -> None:
    """MNT-20: links, structured content and result types; the wire checks each message against its schema."""
    async with mounted(make_server(), version, protocol) as wire:
        for tool, arguments in (("picture", {}), ("add", {"a": 1, "b": 2}), ("fail", {})):
            await asked(wire, tool, arguments)
        await wire.result("resources/read", {"uri": "up+notes://all"})
        await wire.result("prompts/get", {"name": "up_greet", "arguments": {"whom": "you"}})
        missing = await wire.error("resources/read", {"uri": "up+notes://none"})
        assert missing["code"] == (-32602 if version == MODERN else -32002)


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@pytest.mark.parametrize("version", [OLD, MODERN])
async def test_a_hundred_clients_get_their_own_answers(
    version: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MNT-12: four calls of each at once, and every answer carries the mark of its client."""
    monkeypatch.setattr("mcpd.sources.mounts.upstream.MOST_INSTANCES", 101)
    monkeypatch.setattr("mcpd.sources.mounts.parking.MOST_PER_MOUNT", 400)
    front = Server("front")
    front.mount("up", make_server(), protocol=protocol)

    async def one(number: int) -> None:
        mark = f"m{number}"
        async with Client(front, callbacks(mark), version=version) as client:
            calls = (
                client.call_tool("up_name", {"greeting": f"hi {mark}"}),
                client.call_tool("up_model", {"words": mark}),
                client.call_tool("up_folders"),
                client.call_tool("up_both"),
            )
            texts = [result.content[0].text for result in await asyncio.gather(*calls)]  # type: ignore[union-attr]
        answer = f"accept {{'n': '{mark}'}}"
        assert texts == [f"hi {mark} {mark}", f"{mark} {mark}", f"file:///{mark}", f"{answer} {answer}"]

    async with Client(front) as client:
        await client.list_tools()
    try:
        await asyncio.gather(*map(one, range(100)))
    finally:
        await front.aclose()


async def test_unknown_clients_of_one_connection_are_asked_one_after_the_other(child: Child) -> None:
    """MNT-12: over HTTP without sessions, in front of a legacy server on stdio."""
    async with AsyncExitStack() as stack:
        front = Server("front")
        target = await stack.enter_async_context(reached(stack, make_server(), "stdio", child))
        front.mount("up", target, protocol="legacy")
        stack.push_async_callback(front.aclose)
        address = await stack.enter_async_context(reached(stack, front, "http"))

        async def one(number: int) -> str:
            async with Client(address, callbacks(f"m{number}"), version=MODERN) as client:
                results = await asyncio.gather(*(client.call_tool("up_name", {"greeting": "hi"}) for _ in range(4)))
            return " ".join(result.content[0].text for result in results)  # type: ignore[union-attr]

        found = await asyncio.gather(*map(one, range(8)))
    assert found == [" ".join([f"hi m{number}"] * 4) for number in range(8)]


@pytest.mark.parametrize("version", [OLD, MODERN])
async def test_a_tool_that_runs_as_a_task_only_is_run_as_one(version: str) -> None:
    """A client of either era gets the result; the task of 2025-11-25 stays between the two servers."""
    server = Server("slow")

    @server.tool(task="required")
    async def slow(ctx: Context) -> str:
        answer = await ctx.elicit("who?", FORM)
        return f"finished for {answer.content['n']}"

    front = Server("front")
    front.mount("up", server, protocol="legacy")
    async with Client(front, callbacks("me"), version=version) as client:
        await client.list_tools()
        result = await client.call_tool("up_slow")
    await front.aclose()
    assert result.content == [TextContent("finished for me")]


@pytest.mark.parametrize("version", [OLD, MODERN])
async def test_progress_extends_the_time_limit(version: str) -> None:
    """MNT-17: and without progress the call ends, with a cancellation for the server."""
    hanging = Hanging()
    more = asyncio.Queue[int]()

    @hanging.server.tool
    async def work(ctx: Context) -> str:
        while number := await more.get():
            await ctx.progress(number)
        return "worked"

    async with mounted(hanging.server, version, "modern", timeout=60) as wire:
        clock = Clock()
        number = wire.ask("tools/call", {"name": "up_work", "arguments": {}}, meta={"progressToken": "p"})
        for step in (1, 2, 3):
            more.put_nowait(step)
            assert (await wire.receive())["params"]["progress"] == step
            await clock.advance(50)
        more.put_nowait(0)
        assert (await wire.answer(number))["result"]["content"][0]["text"] == "worked"

        number = wire.ask("tools/call", {"name": "up_wait", "arguments": {}})
        await hanging.began.wait()
        await clock.advance(61)
        result = (await wire.answer(number))["result"]
        assert result["isError"] is True
        assert "within 60 s" in result["content"][0]["text"]
        await hanging.cancelled.wait()


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@pytest.mark.parametrize("version", [OLD, MODERN])
async def test_each_client_gets_the_log_that_it_asked_for(version: str, protocol: str) -> None:
    """MNT-18, MNT-25: on a connection that two share the most verbose level is asked for, and each gets its own."""
    server = Server("logging")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.debug("fine")
        await ctx.error("coarse")
        return ""

    front = Server("front")
    front.mount("up", server, protocol=protocol, instances="shared")
    for level, wanted in (("debug", ["fine", "coarse"]), ("error", ["coarse"])):
        heard: list[Any] = []
        async with Client(front, callbacks("x", heard), version=version) as client:
            await client.list_tools()
            await client.set_log_level(level)  # type: ignore[arg-type]
            await client.call_tool("up_talk")
            await until(lambda heard=heard, wanted=wanted: len(heard) >= len(wanted))
        assert heard == wanted
    await front.aclose()


def scripted_result(front: Server, raw: dict[str, Any]) -> Server:
    """A server whose tool gives a result with members that nobody here knows."""
    server = Server("strange")

    @server.tool
    async def strange() -> str:
        return ""

    @server.middleware("tools/call")
    async def replace(request: Any, call_next: Any) -> Any:
        return RawResult(raw=Raw(json.dumps(raw).encode()))

    front.mount("up", server, protocol="modern")
    return server


@pytest.mark.parametrize("version", [OLD, MODERN])
@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_a_question_makes_a_task_of_a_call_if_the_mount_says_so(version: str, protocol: str) -> None:
    """A modern client with tasks answers the questions of a legacy server by `tasks/update`; others as without it."""
    front = Server("front")
    front.mount("up", make_server(), protocol=protocol, task=True)
    async with memory_wire(front) as wire:
        await wire.open(version, {**CAPABILITIES, "extensions": {TASKS: {}}})
        await wire.result("tools/list")
        assert (await wire.text("up_add", a=1, b=2)) == "3"
        if version == OLD:
            number = wire.ask("tools/call", {"name": "up_name", "arguments": {"greeting": "hi"}})
            question = await wire.receive()
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": ACCEPTED})
            assert (await wire.answer(number))["result"]["content"][0]["text"] == "hi me"
        elif protocol == "modern":
            assert (await asked(wire, "name", {"greeting": "hi"}))["result"]["resultType"] == "input_required"
        else:
            for tool, arguments, answer, text in (
                ("name", {"greeting": "hi"}, ACCEPTED, "hi me"),
                ("folders", {}, {"roots": [{"uri": "file:///mine"}]}, "file:///mine"),
            ):
                task = (await asked(wire, tool, arguments))["result"]
                assert task["resultType"] == "task"
                while (found := await wire.result("tasks/get", {"taskId": task["taskId"]}))["status"] == "working":
                    await asyncio.sleep(0)
                (key,) = found["inputRequests"]
                await wire.result("tasks/update", {"taskId": task["taskId"], "inputResponses": {key: answer}})
                while (found := await wire.result("tasks/get", {"taskId": task["taskId"]}))["status"] != "completed":
                    await asyncio.sleep(0)
                assert found["result"]["content"][0]["text"] == text
    await front.aclose()


async def test_members_that_nobody_knows_survive() -> None:
    """MNT-21: of results, of blocks and of `_meta`, also where a URI is rewritten and for an older client."""
    block = {"type": "resource_link", "uri": "notes://a", "name": "a", "x-block": 1, "_meta": {"x/y": 2}}
    raw = {"resultType": "complete", "content": [block], "x-result": {"deep": [1]}, "_meta": {"x/z": 3}}
    for version in (OLD, "2025-06-18", MODERN):
        front = Server("front")
        scripted_result(front, raw)
        async with Client(front, version=version) as client:
            await client.list_tools()
            found = json.loads(bytes(await client.request("tools/call", {"name": "up_strange", "arguments": {}})))
        await front.aclose()
        assert found["content"] == [{**block, "uri": "up+notes://a"}]
        assert found["x-result"] == {"deep": [1]}
        assert found["_meta"]["x/z"] == 3


async def test_mirrored_arguments_are_sent_in_headers_and_checked_at_both_ends() -> None:
    """MNT-22."""
    server = Server("mirrors")
    schema = {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    }

    @server.tool(input_schema=schema)
    async def deploy(ctx: Context, region: str) -> str:
        return f"header: {ctx.headers.get('mcp-param-region')}"

    async with serving(server) as port:
        front = Server("front")
        front.mount("up", port.listener.url)
        async with serving(front) as near, Client(near.listener.url) as client:
            await client.list_tools()
            result = await client.call_tool("up_deploy", {"region": "eu"})
            assert result.content == [TextContent("header: eu")]
        await front.aclose()


async def test_a_question_that_comes_with_the_result_of_another_call_finds_its_client() -> None:
    """MNT-12: any call of the client can carry a question, also if the chosen one ends at that moment."""
    server = Server("crossing")
    asks, ends = asyncio.Event(), asyncio.Event()

    @server.tool
    async def ask(ctx: Context) -> str:
        await asks.wait()
        ends.set()  # the other tool is answered in the same turn of the loop
        answer = await ctx.elicit("who?", FORM)
        return str(answer.content["n"])

    @server.tool
    async def end() -> str:
        await ends.wait()
        return "ended"

    async with mounted(server, MODERN, "legacy") as wire:
        for _ in range(20):
            asks.clear()
            ends.clear()
            first = wire.ask("tools/call", {"name": "up_ask", "arguments": {}})
            second = wire.ask("tools/call", {"name": "up_end", "arguments": {}})
            await asyncio.sleep(0)
            asks.set()
            left = {first: "up_ask", second: "up_end"}
            said = {}
            while left:
                for number, name in list(left.items()):
                    result = (await wire.answer(number))["result"]
                    del left[number]
                    if result["resultType"] != "input_required":
                        said[name] = result["content"][0]["text"]
                        continue
                    (key,) = result["inputRequests"]
                    state = {"requestState": result["requestState"], "inputResponses": {key: ACCEPTED}}
                    left[wire.ask("tools/call", {"name": name, "arguments": {}, **state})] = name
            assert said == {"up_ask": "me", "up_end": "ended"}


async def test_a_parked_call_whose_server_dies_says_so(child: Child) -> None:
    """MNT-13, MNT-29: the retry gets the reason, and another call starts the server again."""
    target = CommandTarget((child.python, str(Path(__file__).with_name("asking.py"))), child.env)
    front = Server("front")
    front.mount("up", target, protocol="legacy")
    async with memory_wire(front) as wire:
        await wire.open(MODERN, CAPABILITIES)
        await wire.result("tools/list")
        first = (await asked(wire, "name", {"greeting": "hi"}))["result"]
        mounts: Any = front.extensions["mcpd/mounts"]
        (connection,) = mounts.by_name["up"].connections()
        await connection.client.channel.aclose()
        connection.client.closed()
        answers = dict.fromkeys(first["inputRequests"], ACCEPTED)
        retry = await asked(
            wire, "name", {"greeting": "hi"}, requestState=first["requestState"], inputResponses=answers
        )
        assert retry["result"]["isError"] is True
        assert 'mount "up" is not available' in retry["result"]["content"][0]["text"]
    await front.aclose()


async def test_a_state_of_one_user_does_not_open_for_another() -> None:
    """MNT-11, MNT-12."""
    front = Server("front")
    front.mount("up", make_server(), protocol="legacy")

    @asynccontextmanager
    async def user(name: str) -> AsyncIterator[Wire]:
        async with memory_wire(front) as wire:
            wire.connection.session.opening = Opening(principal=name)
            await wire.open(MODERN, CAPABILITIES)
            await wire.result("tools/list")
            yield wire

    async with user("ada") as ada, user("bob") as bob:
        first = (await asked(ada, "name", {"greeting": "hi"}))["result"]
        answers = dict.fromkeys(first["inputRequests"], ACCEPTED)
        given: dict[str, Any] = {"requestState": first["requestState"], "inputResponses": answers}
        assert (await asked(bob, "name", {"greeting": "hi"}, **given))["error"]["code"] == -32602
        result = (await asked(ada, "name", {"greeting": "hi"}, **given))["result"]
        assert result["content"][0]["text"] == "hi me"
    await front.aclose()
