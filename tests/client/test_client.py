"""`Client` against our own server in every version, against a scripted server in both eras, and over a process."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest import Child
from msgspec import Raw
from support.clock import Clock, turns, until
from support.scripted_server import DISCOVERED, INITIALIZED, META, NOT_FOUND, Script, scripted

from mcpd import Callbacks, Client, Context, Server
from mcpd.errors import (
    ConfigurationError,
    ConnectionLost,
    LocalProtocolError,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    UnsupportedVersion,
)
from mcpd.protocol.types.base import Implementation
from mcpd.protocol.types.features import TextContent
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    PromptReference,
    Root,
)
from mcpd.protocol.versions.table import LEGACY, SUPPORTED
from mcpd.transports.memory import pair

each_version = pytest.mark.parametrize("version", SUPPORTED)


def make_server() -> Server:
    server = Server("known", version="2.0", instructions="Be kind.", page_size=2)

    for name in ("a", "b", "c"):
        server.add_tool(_echo, name=name)

    @server.tool
    async def steps(ctx: Context, count: int = 3) -> str:
        for step in range(count):
            await ctx.progress(step + 1, total=count, message=f"step {step + 1}")
        return "done"

    @server.tool
    async def who(ctx: Context) -> str:
        info = ctx.client_info
        return f"{info.name} {info.version}" if info else "nobody"

    @server.tool
    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    @server.tool
    async def fails() -> str:
        raise ValueError("x")

    server.add_text("notes://a", "text", name="a")
    server.add_text("notes://b", b"\x00\xff", name="b", mime_type="application/octet-stream")

    @server.resource("notes://{name}/long")
    async def long(name: str) -> str:
        return name * 2

    @server.prompt
    async def review(code: str, style: str = "") -> str:
        return f"Review {code}"

    @server.completion("code", prompt="review")
    def codes(value: str) -> list[str]:
        return ["python", "pascal", "rust"]

    return server


async def _echo(text: str = "") -> str:
    return text


def words(result: Any) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


@each_version
async def test_everything_that_can_be_asked(version: str) -> None:
    """One method for each; pages are joined; each version's results come in the newest vocabulary."""
    async with Client(make_server(), version=version, info=Implementation(name="asker", version="3")) as client:
        assert client.version == version
        assert client.server_info is not None
        assert client.server_info.name == "known"
        assert client.instructions == ("Be kind." if version != "2024-10-07" else None)
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["a", "b", "c", "steps", "who", "forever", "fails"]
        assert words(await client.call_tool("a", {"text": "hei"})) == "hei"
        assert words(await client.call_tool("who")) == "asker 3"
        assert (await client.call_tool("fails")).is_error
        assert [one.uri for one in await client.list_resources()] == ["notes://a", "notes://b"]
        assert [one.uri_template for one in await client.list_resource_templates()] == ["notes://{name}/long"]
        assert (await client.read_resource("notes://a")).contents[0].text == "text"  # type: ignore[union-attr]
        assert (await client.read_resource("notes://b")).contents[0].blob == b"\x00\xff"  # type: ignore[union-attr]
        assert [one.name for one in await client.list_prompts()] == ["review"]
        assert (await client.get_prompt("review", {"code": "x"})).messages[0].content.text == "Review x"  # type: ignore[union-attr]
        suggested = await client.complete(PromptReference(name="review"), "code", "p", {"style": "x"})
        assert suggested.completion.values == ["python", "pascal"]
        await client.ping()
        with pytest.raises(RemoteError) as told:
            await client.call_tool("nothing")
        assert told.value.code == -32602


@each_version
async def test_progress(version: str) -> None:
    heard: list[Any] = []
    async with Client(make_server(), version=version) as client:
        await client.call_tool("steps", {"count": 2}, on_progress=lambda *said: heard.append(said))
        await client.call_tool("steps", {"count": 2})
    message = [None, None] if version in LEGACY[:2] else ["step 1", "step 2"]
    assert [one[:2] for one in heard] == [(1, 2), (2, 2)]
    assert [one[2] for one in heard] in (message, ["step 1", "step 2"])


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2025-06-18"])
async def test_the_server_asks_and_the_callbacks_answer(version: str) -> None:
    """Server requests in legacy versions, multi round-trip requests since: the same callbacks."""
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        name = (await ctx.elicit("Name?", {"type": "object", "properties": {"name": {"type": "string"}}})).get()
        said = await ctx.sample("Greet", max_tokens=3)
        roots = await ctx.list_roots()
        return f"{name['name']} {said.text} {roots[0].uri}"

    def elicit(params: ElicitFormParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": params.message[:-1]})

    async def sample(params: CreateMessageParams) -> CreateMessageResult:
        assert params.max_tokens == 3
        return CreateMessageResult(role="assistant", model="m", content=TextContent("hello"))

    callbacks = Callbacks(elicit_form=elicit, sample=sample, roots=lambda: [Root(uri="file:///x")])
    async with Client(server, callbacks, version=version) as client:
        assert words(await client.call_tool("ask")) == "Name hello file:///x"
    async with Client(server, version=version) as client:
        if client.is_modern:
            with pytest.raises(RemoteError) as told:
                await client.call_tool("ask")
            assert told.value.code == -32021
        else:
            assert (await client.call_tool("ask")).is_error


@each_version
async def test_changes_are_heard_of(version: str) -> None:
    """`subscriptions/listen` in modern versions; unasked before."""
    server, heard = make_server(), asyncio.Queue[str]()
    callbacks = Callbacks(list_changed=heard.put_nowait, resource_updated=heard.put_nowait)
    async with Client(server, callbacks, version=version) as client:
        server.add_tool(_echo, name="new")
        assert await heard.get() == "tools"
        assert "new" in [tool.name for tool in await client.list_tools()]
        await client.subscribe("notes://a")
        server.resource_updated("notes://b")
        server.resource_updated("notes://a")
        assert await heard.get() == "notes://a"
        await client.unsubscribe("notes://a")
        server.resource_updated("notes://a")
        server.add_text("notes://c", "x", name="c")
        assert await heard.get() == "resources"


@each_version
async def test_giving_up(version: str) -> None:
    """A time limit, a cancelled task, a closed client: the server is told, nobody waits for ever."""
    async with Client(make_server(), version=version) as client:
        with pytest.raises(RequestTimeout, match="tools/call"):
            await client.call_tool("forever", timeout=0.02)
        task = asyncio.ensure_future(client.call_tool("forever"))
        await client.ping()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        last = asyncio.ensure_future(client.call_tool("forever"))
        await client.ping()
        if version == "2024-10-07":  # which has no cancellation
            for connection in list(client._target._connections._connections):  # type: ignore[union-attr]
                connection.abort()
            with pytest.raises(RemoteError):
                await last
    if version != "2024-10-07":
        with pytest.raises(ConnectionLost):
            await last
    with pytest.raises((ConnectionLost, LocalProtocolError)):
        await client.ping()


async def test_a_client_is_opened_before_it_is_used() -> None:
    client = Client(make_server())
    for use in (client.list_tools, client.ping):
        if use == client.list_tools:
            assert await use() == [], "nothing is offered yet"
        else:
            with pytest.raises(LocalProtocolError, match="not open"):
                await use()
    async with client:
        with pytest.raises(LocalProtocolError, match="opened only once"):
            await client.open()
    with pytest.raises(ConfigurationError, match="2026-07-28"):
        Client(make_server(), version="2027-01-01")
    with pytest.raises(ConfigurationError, match="is not a target"):
        await Client(7).open()  # type: ignore[arg-type]


async def test_a_child_process(child: Child) -> None:
    """Its input is closed, then it ends by itself."""
    import os

    os.environ.update({name: value for name, value in child.env.items() if name == "PYTHONPATH"})
    async with Client(child.mcpd("serve", "--stdio")) as client:
        assert words(await client.call_tool("echo", {"text": "über"})) == "über"
        process = client._open.channel.process  # type: ignore[union-attr]
    assert process.returncode == 0
    with pytest.raises(ConfigurationError, match="cannot be started"):
        await Client(["/no/such/program"]).open()


LINE_BY_LINE = """
import json, sys
info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "n", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "no"}}
    if message["method"] == "initialize":
        answer = {"result": info}
    elif message["method"] == "tools/call":
        answer = {"result": {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def test_much_on_the_way_in_both_directions() -> None:
    """A server that reads on when its answer is written; more than pipes and queues hold is under way to it."""
    async with Client([sys.executable, "-c", LINE_BY_LINE], timeout=10) as client:
        text = "x" * 100_000
        results = await asyncio.gather(*(client.call_tool("echo", {"text": text}) for _ in range(20)))
        assert all(words(result) == text for result in results)


# --------------------------------------------------------------------------------- a scripted server


@pytest.mark.parametrize(
    "discover", [NOT_FOUND, {"code": -32602, "message": "?"}, {"code": 0, "message": "?"}, None, {"tools": []}]
)
async def test_a_legacy_server_is_found_out(discover: Any) -> None:
    """2026-07-28 transports/stdio: any other error, silence, or an answer that is none means the handshake."""
    async with scripted({"server/discover": discover, "initialize": INITIALIZED}) as (client, script):
        assert client.version == "2025-11-25"
        assert client.server_info == Implementation(name="old", version="1")
        probe = script.heard[0]["params"]["_meta"]
        assert probe[f"{META}protocolVersion"] == "2026-07-28"
        assert script.of("initialize")[0]["params"]["protocolVersion"] == "2025-11-25"
        await script.ask("p", "ping", {})
        assert script.of("notifications/initialized")


@pytest.mark.parametrize("again", [DISCOVERED, None])
async def test_a_modern_server_that_starts_slowly_is_found_out_too(again: Any) -> None:
    """It answers the probe when nobody waits for that any more, and refuses the handshake that was sent meanwhile."""
    refused = {"code": -32022, "message": "?", "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"}}
    probes = iter([None, again])
    answers = {"server/discover": lambda _: next(probes), "initialize": refused, "ping": {}}
    if again is not None:
        async with scripted(answers) as (client, script):
            assert client.version == "2026-07-28"
            assert len(script.of("server/discover")) == 2
            assert len(script.of("initialize")) == 1
        return
    with pytest.raises(RemoteError):  # once, and not for ever
        async with scripted(answers, timeout=0.05):
            pass


async def test_a_modern_server_gets_its_envelope_every_time() -> None:
    """S26: version, capabilities and identity in each request's `_meta`, and no handshake."""
    answers = {"server/discover": DISCOVERED, "tools/list": {"resultType": "complete", "tools": []}}
    extensions = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    async with scripted(answers, Callbacks(roots=list), extensions=extensions) as (client, script):
        await client.list_tools()
        assert client.server_info == Implementation(name="new", version="1")
    assert script.of("initialize") == []
    for message in script.heard:
        meta = message["params"]["_meta"]
        assert meta[f"{META}protocolVersion"] == "2026-07-28"
        assert meta[f"{META}clientCapabilities"] == {
            "roots": {"listChanged": True},
            "extensions": {f"{META}tasks": {}, **extensions},
        }
        assert meta[f"{META}clientInfo"]["name"] == "mcpd"


@pytest.mark.parametrize(
    ("supported", "error"), [(["2025-06-18", "2027-01-01"], None), (["2027-01-01"], UnsupportedVersion)]
)
async def test_the_versions_in_a_modern_error(supported: list[str], error: type[Exception] | None) -> None:
    refused = {"code": -32022, "message": "no", "data": {"supported": supported, "requested": "2026-07-28"}}
    answers = {"server/discover": refused, "initialize": {**INITIALIZED, "protocolVersion": "2025-06-18"}}
    if error is None:
        async with scripted(answers) as (client, script):
            assert client.version == "2025-06-18"
            assert script.of("initialize")[0]["params"]["protocolVersion"] == "2025-06-18"
        return
    with pytest.raises(error, match="2027-01-01"):
        async with scripted(answers):
            pass


async def test_a_version_that_we_do_not_speak() -> None:
    with pytest.raises(UnsupportedVersion, match="1999-01-01"):
        async with scripted({"initialize": {**INITIALIZED, "protocolVersion": "1999-01-01"}}, version="2025-11-25"):
            pass


async def test_a_version_that_is_fixed_is_that_one_or_none() -> None:
    """Ours to refuse: the server may answer with another version, which was not what the program asked for."""
    answers = {"initialize": INITIALIZED}
    with pytest.raises(ConfigurationError, match="does not support 2024-11-05.*2025-11-25"):
        async with scripted(answers, version="2024-11-05"):
            pass


LEGACY_ANSWERS = {"initialize": INITIALIZED}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, -32601),
        ("roots/list", {}, -32601),
        ("elicitation/create", {"message": "x", "requestedSchema": {}}, -32601),
        ("no/such", {}, -32601),
    ],
)
async def test_what_is_not_offered_is_refused(method: str, params: Any, code: int) -> None:
    async with scripted(LEGACY_ANSWERS, version="2025-11-25") as (_, script):
        assert (await script.ask("q", method, params))["error"]["code"] == code
        assert (await script.ask(0, "ping", {}))["result"] == {}


async def test_questions_that_cannot_be_answered() -> None:
    """Modes and tools that were not offered: -32602. A callback that fails: -32603, without its text."""

    def fail(params: ElicitUrlParams) -> ElicitResult:
        raise ValueError("secret")

    def refuse(params: CreateMessageParams) -> CreateMessageResult:
        error = ProtocolError("User rejected sampling request")
        raise error

    async with scripted(LEGACY_ANSWERS, Callbacks(elicit_url=fail, sample=refuse), version="2025-11-25") as (_, script):
        form = {"message": "x", "requestedSchema": {"type": "object", "properties": {}}}
        assert (await script.ask(1, "elicitation/create", form))["error"]["code"] == -32602
        url = {"mode": "url", "message": "x", "url": "https://example.com", "elicitationId": "1"}
        failed = (await script.ask(2, "elicitation/create", url))["error"]
        assert failed["code"] == -32603
        assert "secret" not in failed["message"]
        assert (await script.ask(3, "elicitation/create", {"mode": 7}))["error"]["code"] == -32602
        tools = {"messages": [], "maxTokens": 1, "tools": []}
        assert (await script.ask(4, "sampling/createMessage", tools))["error"]["code"] == -32602
        rejected = (await script.ask(5, "sampling/createMessage", {"messages": [], "maxTokens": 1}))["error"]
        assert rejected["message"] == "User rejected sampling request"


@pytest.mark.parametrize("given", [None, object(), ElicitResult(action="accept", content={"a": "\ud83d"})])
async def test_a_callback_that_gives_what_cannot_be_sent(given: Any) -> None:
    """The server gets its answer all the same: -32603."""
    answers = {**LEGACY_ANSWERS, "tools/call": {"content": []}}
    async with scripted(answers, Callbacks(elicit_form=lambda _: given), version="2025-11-25") as (client, script):
        form = {"message": "x", "requestedSchema": {"type": "object", "properties": {}}}
        async with asyncio.timeout(60):
            assert (await script.ask("q", "elicitation/create", form))["error"]["code"] == -32603
        await client.call_tool("x")


@pytest.mark.parametrize("params", [Raw(b"[]"), Raw(b"{"), {"a": object()}])
async def test_params_that_are_no_object_are_not_sent(params: Any) -> None:
    async with Client(make_server()) as client:
        with pytest.raises(LocalProtocolError, match="^params"):
            await client.request("tools/list", params)
        assert await client.list_tools()


async def test_a_modern_server_sends_no_requests() -> None:
    async with scripted({"server/discover": DISCOVERED}, Callbacks(roots=list)) as (client, script):
        for asked in ("roots/list", "ping", "no/such"):
            script.say({"id": asked, "method": asked, "params": {}})
        script.say({"id": "unreadable", "method": 7})
        await client.ping()
        assert [message for message in script.heard if "method" not in message] == []


async def test_a_question_that_is_withdrawn() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def roots() -> list[Root]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    async with scripted(LEGACY_ANSWERS, Callbacks(roots=roots), version="2025-11-25") as (client, script):
        early = script.ask("e", "roots/list", {})
        script.say({"method": "notifications/cancelled", "params": {"requestId": "e"}})
        await script.ask("p", "ping", {})
        assert not begun.is_set()
        reply = script.ask("r", "roots/list", {})
        await begun.wait()
        script.say({"method": "notifications/cancelled", "params": {"requestId": "r"}})
        await ended.wait()
        await script.ask("q", "ping", {})
        assert not client._open._answering  # type: ignore[union-attr]
        assert not reply.done()
        assert not early.done()


async def test_a_late_answer_is_not_that_of_another_question_with_its_id() -> None:
    """A server may use an id again once it gave the question up; a callback may take that for an answer."""
    begun, is_another = asyncio.Event(), asyncio.Event()

    async def elicit(asked: ElicitFormParams) -> ElicitResult:
        try:
            begun.set()
            await is_another.wait()
        except asyncio.CancelledError:
            return ElicitResult(action="cancel")
        return ElicitResult(action="decline")

    async with scripted(LEGACY_ANSWERS, Callbacks(elicit_form=elicit), version="2025-11-25") as (client, script):
        form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        script.ask("e", "elicitation/create", form)
        await begun.wait()
        script.say({"method": "notifications/cancelled", "params": {"requestId": "e"}})
        reply = script.ask("e", "elicitation/create", form)
        await until(lambda: len(client._open._answering) == 1)  # type: ignore[union-attr]
        is_another.set()
        assert (await reply)["result"] == {"action": "decline"}
        await script.ask("p", "ping", {})
        assert [message["id"] for message in script.heard if "method" not in message] == ["e", "p"]


async def test_the_clock_stands_still_while_the_server_waits_for_us() -> None:
    async def roots() -> list[Root]:
        await clock.advance(300)
        return []

    clock = Clock()
    async with scripted({**LEGACY_ANSWERS, "tools/call": None}, Callbacks(roots=roots), version="2025-11-25") as both:
        client, script = both
        calling = asyncio.ensure_future(client.call_tool("x", timeout=200))
        await turns()
        await script.ask("r", "roots/list", {})
        assert not calling.done()
        script.say({"id": script.of("tools/call")[0]["id"], "result": {"content": []}})
        assert (await calling).content == []


async def test_progress_is_a_sign_of_life() -> None:
    clock = Clock()
    async with scripted({**LEGACY_ANSWERS, "tools/call": None}, version="2025-11-25") as (client, script):
        calling = asyncio.ensure_future(client.call_tool("x", timeout=300, on_progress=lambda *_: None))
        await turns()
        for number in range(4):
            await clock.advance(150)
            token = script.of("tools/call")[0]["params"]["_meta"]["progressToken"]
            script.say({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
            await turns()
        await clock.advance(150)
        assert not calling.done()
        await clock.advance(150)
        with pytest.raises(RequestTimeout):
            await calling
        assert script.of("notifications/cancelled")[0]["params"]["requestId"] == script.of("tools/call")[0]["id"]


async def test_progress_is_told_to_plain_functions() -> None:
    async def hear(*_: Any) -> None: ...

    async with scripted({**LEGACY_ANSWERS, "tools/call": {"content": []}}, version="2025-11-25") as (client, script):
        with pytest.raises(ConfigurationError, match="on_progress"):
            await client.call_tool("x", on_progress=hear)
        assert script.of("tools/call") == []


def rounds(*results: Any) -> Callable[[Any], Any]:
    left = list(results)
    return lambda message: left.pop(0) if len(left) > 1 else left[0]


async def test_the_rules_of_rounds() -> None:
    """mrtr, client requirements: the state exactly as given, none where none was, answers for this retry alone."""
    needs = {"resultType": "input_required"}
    question = {"method": "roots/list", "params": {}}
    answers = {
        "server/discover": DISCOVERED,
        "tools/call": rounds(
            {**needs, "inputRequests": {"k": question}, "requestState": "s\u00e91"},
            {**needs, "inputRequests": {"l": question}},
            {**needs, "requestState": ""},
            {"resultType": "complete", "content": []},
        ),
    }
    async with scripted(answers, Callbacks(roots=lambda: [Root(uri="file:///r")])) as (client, script):
        await client.call_tool("x", {"a": 1})
        first, second, third, fourth = (message["params"] for message in script.of("tools/call"))
        answer = {"roots": [{"uri": "file:///r"}]}
        assert "inputResponses" not in first
        assert (second["inputResponses"], second["requestState"]) == ({"k": answer}, "s\u00e91")
        assert third["inputResponses"] == {"l": answer}
        assert "requestState" not in third
        assert "inputResponses" not in fourth
        assert fourth["requestState"] == ""
        assert all(params["arguments"] == {"a": 1} for params in (first, second, third, fourth))
        assert len({message["id"] for message in script.of("tools/call")}) == 4


async def test_a_server_that_asks_for_ever_or_for_what_was_not_offered() -> None:
    needs = {"resultType": "input_required", "inputRequests": {"k": {"method": "roots/list"}}}
    answers = {"server/discover": DISCOVERED, "tools/call": needs}
    async with scripted(answers, Callbacks(roots=list)) as (client, _):
        with pytest.raises(ProtocolError, match="32 times"):
            await client.call_tool("x")
    async with scripted(answers) as (client, script):
        with pytest.raises(ProtocolError, match="roots/list"):
            await client.call_tool("x")
        assert len(script.of("tools/call")) == 1


async def test_only_three_requests_may_be_answered_by_a_question() -> None:
    """2026-07-28 basic/patterns/mrtr, supported requests."""
    asked: list[str] = []

    def roots() -> list[Root]:
        asked.append("roots")
        return []

    needs = {"resultType": "input_required", "inputRequests": {"k": {"method": "roots/list"}}}
    async with scripted({"server/discover": DISCOVERED, "tools/list": needs}, Callbacks(roots=roots)) as (
        client,
        script,
    ):
        with pytest.raises(ProtocolError, match="^The server asks for input for tools/list"):
            await client.list_tools()
        assert (len(script.of("tools/list")), asked) == (1, [])


async def test_a_type_of_result_that_is_unknown() -> None:
    """2026-07-28 basic/index: a `resultType` that is not recognized is invalid; an absent one is `complete`."""
    results = rounds({"resultType": "martian", "content": []}, {"content": []})
    async with scripted({"server/discover": DISCOVERED, "tools/call": results}) as (client, _):
        with pytest.raises(ProtocolError, match="martian"):
            await client.call_tool("x")
        assert (await client.call_tool("x")).content == []


async def test_answers_that_cannot_be_read() -> None:
    answers = {
        **LEGACY_ANSWERS,
        "tools/call": {"content": "x"},
        "tools/list": {"tools": [{"name": 7}, {"name": "good", "inputSchema": {}}], "nextCursor": None},
    }
    async with scripted(answers, version="2025-11-25") as (client, script):
        for rubbish in (b"{", b"[]", b'{"jsonrpc":"2.0","id":99,"result":{}}', b'{"jsonrpc":"2.0","error":{}}'):
            script.channel.send(rubbish)
        script.say({"method": "notifications/progress", "params": {"progressToken": 99, "progress": 1}})
        script.say({"method": "notifications/message", "params": []})
        with pytest.raises(ProtocolError, match="tools/call.*content"):
            await client.call_tool("x")
        assert [tool.name for tool in await client.list_tools()] == ["good"], "one bad entry spoils no list"


BAD_ANSWERS = {
    "neither": b'{"jsonrpc":"2.0","id":%d}',
    "both": b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{"code":1,"message":"x"}}',
    "no version": b'{"id":%d,"result":{"content":[]}}',
    "no error object": b'{"jsonrpc":"2.0","id":%d,"error":"boom"}',
    "no integer code": b'{"jsonrpc":"2.0","id":%d,"error":{"code":1.5,"message":"x"}}',
    "no UTF-8 in a result": b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"x":"caf\xe9"}}',
    "no UTF-8 in an error": b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"caf\xe9"}}',
}


@pytest.mark.parametrize("bad", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_a_bad_answer_ends_its_call(bad: bytes) -> None:
    """It need not wait for its time limit, and the server is sent no error under an id of ours."""
    async with scripted({**LEGACY_ANSWERS, "ping": {}}, version="2025-11-25", timeout=5) as (client, script):
        script.answers["tools/call"] = lambda message: script.channel.send(bad % message["id"])
        with pytest.raises(ProtocolError):
            await client.call_tool("x")
        script.channel.send(bad % 9999)
        await client.ping()
        assert not any("error" in message and message["id"] != 9999 for message in script.heard)


async def test_what_is_not_utf8_is_not_handed_on() -> None:
    """A question is answered with a parse error, a notification is dropped; in a batch, each for itself."""
    heard: list[Any] = []
    async with scripted(
        {"initialize": {**INITIALIZED, "protocolVersion": "2025-03-26"}, "ping": {}, "tools/call": None},
        Callbacks(log=heard.append, roots=list),
        version="2025-03-26",
    ) as (client, script):
        script.replies["q"] = asyncio.get_running_loop().create_future()
        script.channel.send(b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"x":"caf\xe9"}}')
        assert (await script.replies["q"])["error"]["code"] == -32700
        script.channel.send(
            b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"\xe9"}}'
        )
        calls = [asyncio.ensure_future(client.call_tool("x")) for _ in range(2)]
        await client.ping()
        first, second = (message["id"] for message in script.of("tools/call"))
        batch = b'[{"jsonrpc":"2.0","id":%d,"result":{"x":"\xe9"}},{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}]'
        script.channel.send(batch % (first, second))
        with pytest.raises(ProtocolError, match="UTF-8"):
            await calls[0]
        assert (await calls[1]).content == []
        assert heard == []


@pytest.mark.parametrize("bad", [b'{"jsonrpc":"2.0","id":%d}', b'{"jsonrpc":"2.0","id":%d,"result":{"x":"\xe9"}}'])
async def test_a_server_that_answers_the_probe_with_rubbish_is_a_legacy_one(bad: bytes) -> None:
    near, far = pair()
    script = Script(far, LEGACY_ANSWERS)
    script.answers = {**LEGACY_ANSWERS, "server/discover": lambda message: far.send(bad % message["id"])}
    client = Client(near)
    client.probe_seconds = math.inf  # no silence has to end for it
    async with asyncio.timeout(60), client:
        assert client.version == "2025-11-25"


async def test_a_cursor_that_cannot_be_read() -> None:
    async with scripted(LEGACY_ANSWERS, version="2025-11-25") as (client, script):

        def answer(message: Any) -> None:
            script.channel.send(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[],"nextCursor":1e999}}' % message["id"])

        script.answers["tools/list"] = answer
        with pytest.raises(ProtocolError, match="tools/list"):
            await client.list_tools()


async def test_a_list_without_end() -> None:
    answers = {**LEGACY_ANSWERS, "tools/list": {"tools": [], "nextCursor": "again"}}
    async with scripted(answers, version="2025-11-25") as (client, _):
        with pytest.raises(ProtocolError, match="repeats a page"):
            await client.list_tools()


async def test_the_server_goes_away() -> None:
    async with scripted({**LEGACY_ANSWERS, "tools/call": None}, version="2025-11-25") as (client, script):
        calling = asyncio.ensure_future(client.call_tool("x"))
        await until(lambda: script.of("tools/call"))
        await script.channel.aclose()
        with pytest.raises(ConnectionLost):
            await calling
        with pytest.raises(ConnectionLost):
            await client.call_tool("x")


class Listeners:
    """The subscriptions of a scripted modern server: it refuses what names `bad://`, and leaves `deaf://` waiting."""

    def __init__(self) -> None:
        self.script: Script | None = None
        self.live: dict[Any, Any] = {}
        self.answers = {
            "server/discover": {**DISCOVERED, "capabilities": {"resources": {"subscribe": True}}},
            "subscriptions/listen": self.listen,
            "notifications/cancelled": self.cancelled,
        }

    def listen(self, message: Any) -> Any:
        assert self.script is not None
        wanted = message["params"]["notifications"]
        uris = wanted["resourceSubscriptions"]
        if any(uri.startswith("bad:") for uri in uris):
            return {"code": -32602, "message": "no such resource"}
        if not any(uri.startswith("deaf:") for uri in uris):
            self.live[message["id"]] = uris
            meta = {f"{META}subscriptionId": message["id"]}
            params = {"_meta": meta, "notifications": wanted}
            self.script.say({"method": "notifications/subscriptions/acknowledged", "params": params})
        return None

    def cancelled(self, message: Any) -> None:
        self.live.pop(message["params"]["requestId"], None)


@asynccontextmanager
async def listened(
    callbacks: Callbacks | None = None, **options: Any
) -> AsyncIterator[tuple[Client, Script, Listeners]]:
    listeners = Listeners()
    async with scripted(listeners.answers, callbacks, **options) as (client, script):
        listeners.script = script
        yield client, script, listeners


async def settled(client: Client) -> None:
    """What was sent before has arrived."""
    await client.ping()


async def test_a_subscription_that_is_refused_leaves_the_others() -> None:
    """The error is the caller's, and asking again asks again."""
    async with listened() as (client, _, listeners):
        await client.subscribe("good://a")
        for _ in range(2):
            with pytest.raises(RemoteError, match="no such resource"):
                await client.subscribe("bad://x")
        await client.unsubscribe("bad://x")
        await settled(client)
        assert list(listeners.live.values()) == [["good://a"]]
        await asyncio.gather(client.subscribe("good://b"), client.subscribe("good://c"))
        await settled(client)
        assert list(listeners.live.values()) == [["good://a", "good://b", "good://c"]]


async def test_a_subscription_that_is_never_acknowledged_times_out() -> None:
    """2026-07-28 patterns/subscriptions: the server MUST acknowledge first."""
    async with listened() as (client, script, listeners):
        await client.subscribe("good://a")
        client.timeout = 0.05
        with pytest.raises(RequestTimeout, match="subscriptions/listen"):
            await client.subscribe("deaf://x")
        client.timeout = 10
        await settled(client)
        assert list(listeners.live.values()) == [["good://a"]]
        given_up = script.of("notifications/cancelled")[-1]["params"]["requestId"]
        assert given_up == script.of("subscriptions/listen")[-1]["id"]


async def test_a_subscription_that_ended_can_be_opened_again() -> None:
    async with listened() as (client, script, listeners):
        await client.subscribe("good://a")
        ((request_id, _),) = listeners.live.items()
        listeners.live.clear()
        script.say({"id": request_id, "error": {"code": -32603, "message": "no more"}})
        await settled(client)
        await client.subscribe("good://a")
        assert list(listeners.live.values()) == [["good://a"]]


async def test_subscribing_keeps_the_clients_time_limit() -> None:
    offered = {"initialize": {**INITIALIZED, "capabilities": {"resources": {"subscribe": True}}}}
    answers = {**offered, "resources/subscribe": None, "resources/unsubscribe": None}
    async with scripted(answers, version="2025-11-25") as (client, _):
        client.timeout = 0.02
        for use in (client.subscribe, client.unsubscribe):
            with pytest.raises(RequestTimeout, match="0.02"):
                await use("notes://a")


async def test_changes_belong_to_a_subscription() -> None:
    """2026-07-28 patterns/subscriptions: a client MUST correlate them by the subscription's id."""
    heard: list[str] = []
    async with listened(Callbacks(resource_updated=heard.append)) as (client, script, listeners):

        def updated(uri: str, subscription: Any) -> None:
            meta = {} if subscription is None else {"_meta": {f"{META}subscriptionId": subscription}}
            script.say({"method": "notifications/resources/updated", "params": {"uri": uri, **meta}})

        await client.subscribe("good://a")
        ((request_id, _),) = listeners.live.items()
        for stranger in (None, 4711, str(request_id), True, {}):
            updated("stray://a", stranger)
        updated("good://a", request_id)
        await settled(client)
        assert heard == ["good://a"]
        await client.unsubscribe("good://a")
        updated("late://a", request_id)
        await settled(client)
        assert heard == ["good://a"]


async def test_a_callback_may_close_the_client() -> None:
    """It runs on to its end, and nothing is told to it afterwards."""
    heard: list[str] = []
    closed = asyncio.Event()

    async def changed(kind: str) -> None:
        heard.append(kind)
        await client.aclose()
        closed.set()

    async def roots() -> list[Root]:
        await asyncio.Event().wait()
        return []

    callbacks = Callbacks(list_changed=changed, roots=roots)
    async with scripted({**LEGACY_ANSWERS, "tools/call": None}, callbacks, version="2025-11-25") as (client, script):
        script.ask("r", "roots/list", {})
        calling = asyncio.ensure_future(client.call_tool("x"))
        for kind in ("tools", "prompts"):
            script.say({"method": f"notifications/{kind}/list_changed"})
        async with asyncio.timeout(60):
            await closed.wait()
        with pytest.raises(ConnectionLost):
            await calling
        assert client._open.channel._is_closed  # type: ignore[union-attr]
    assert heard == ["tools"]
