"""What the specification asks of clients beyond answers: what they look at, refuse, ignore and forget. On the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import until
from support.http_script import Asked, Write, legacy, modern, reply, result, scripted as scripted_http, text_result
from support.scripted_server import DISCOVERED, INITIALIZED, META, Script, scripted

from mcpd import Callbacks, Client, HttpOptions
from mcpd.errors import HttpError, ProtocolError, RemoteError
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    Root,
)

LEGACY = {"initialize": {**INITIALIZED, "capabilities": {"tools": {}, "resources": {}}}}
OFFERS = {"tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}}
URL = {"mode": "url", "message": "Visit", "url": "https://example.com/a"}


def listening(agrees: Any) -> dict[str, Any]:
    """A modern server that agrees to what `agrees` makes of a filter; `script` is to be set."""

    def listen(message: Any) -> None:
        params: dict[str, Any] = {"_meta": {f"{META}subscriptionId": message["id"]}}
        agreed = agrees(message["params"]["notifications"])
        if agreed is not None:
            params["notifications"] = agreed
        script: Script = answers["script"]
        script.say({"method": "notifications/subscriptions/acknowledged", "params": params})

    answers: dict[str, Any] = {
        "server/discover": {**DISCOVERED, "capabilities": OFFERS},
        "subscriptions/listen": listen,
    }
    return answers


# ------------------------------------------------------------------------------------ subscriptions


async def test_what_the_server_does_not_agree_to_is_an_error() -> None:
    """2026-07-28 patterns/subscriptions: "SHOULD check the acknowledged filter against what it requested"."""
    answers = listening(lambda wanted: {"resourceSubscriptions": ["a://1"]})
    async with scripted(answers) as (client, script):
        answers["script"] = script
        await client.subscribe("a://1")
        with pytest.raises(ProtocolError, match="does not report changes of a://2"):
            await client.subscribe("a://2")
        await client.ping()
        kept, refused = (message["id"] for message in script.of("subscriptions/listen"))
        given_up = [message["params"]["requestId"] for message in script.of("notifications/cancelled")]
        assert (kept not in given_up, refused in given_up) == (True, True)


@pytest.mark.parametrize("agreed", [None, {"toolsListChanged": "?"}])
async def test_a_server_that_does_not_say_what_it_agrees_to_is_believed(agreed: Any) -> None:
    answers = listening(lambda wanted: agreed)
    async with scripted(answers) as (client, script):
        answers["script"] = script
        await client.subscribe("a://1")


async def test_lists_whose_changes_are_not_told_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    answers = listening(lambda wanted: {**wanted, "resourcesListChanged": False})
    heard: list[str] = []
    async with scripted(answers, Callbacks(list_changed=heard.append), begins=lambda s: answers.update(script=s)):
        pass
    assert "does not report all changes that were requested: resources list changed" in caplog.text


async def test_a_server_may_end_a_subscription_without_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """2026-07-28 patterns/cancellation: `notifications/cancelled` MUST come, the result of the request only SHOULD."""
    monkeypatch.setattr("mcpd.client.eras.AGAIN_SECONDS", 0.01)
    heard = asyncio.Queue[str]()
    answers = listening(lambda wanted: wanted)
    async with scripted(answers, Callbacks(resource_updated=heard.put_nowait)) as (client, script):
        answers["script"] = script
        await client.subscribe("a://1")
        first = script.of("subscriptions/listen")[0]["id"]
        script.say({"method": "notifications/cancelled", "params": {"requestId": first}})
        assert await asyncio.wait_for(heard.get(), 10) == "a://1"  # it may have changed in between
        assert len(script.of("subscriptions/listen")) == 2
        # Of no other request it may be said: this one goes on.
        call = asyncio.create_task(client.call_tool("x"))
        await client.ping()
        (called,) = script.of("tools/call")
        script.say({"method": "notifications/cancelled", "params": {"requestId": called["id"]}})
        script.say({"id": called["id"], "result": {"content": [], "resultType": "complete"}})
        assert (await call).content == []


# -------------------------------------------------------------------------------------- elicitation


async def test_only_pages_that_were_asked_for_are_complete_and_once() -> None:
    """2025-11-25 client/elicitation: clients MUST ignore unknown and already-completed ids."""
    heard: list[str] = []
    required = {"code": -32042, "message": "visit first", "data": {"elicitations": [{**URL, "elicitationId": "two"}]}}
    answers = {**LEGACY, "tools/call": required, "ping": {}}
    callbacks = Callbacks(elicit_url=lambda params: ElicitResult(action="accept"), elicitation_complete=heard.append)
    async with scripted(answers, callbacks, version="2025-11-25") as (client, script):

        def complete(params: Any) -> None:
            script.say({"method": "notifications/elicitation/complete", "params": params})

        complete({"elicitationId": "one"})
        await script.ask(7, "elicitation/create", {**URL, "elicitationId": "one"})
        with pytest.raises(RemoteError, match="visit first"):
            await client.call_tool("x")
        for name in ("one", "one", "other", "two", "two", 5, None):
            complete({"elicitationId": name})
        await client.ping()
        await client.ping()
    assert heard == ["one", "two"]


@pytest.mark.parametrize(
    ("schema", "content", "is_sent"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": 3}, True),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {}, False),
        ({"type": "object", "properties": {"n": {"type": "string", "enum": ["a"]}}}, {"n": "b"}, False),
        ({"type": "object", "properties": {"n": {"type": "number", "maximum": 3}}}, {"n": 4}, False),
        ({"type": "object", "properties": {"n": {"anyOf": []}}}, {"n": 4}, True),
    ],
)
async def test_an_answer_that_does_not_fit_its_form_is_not_sent(schema: Any, content: Any, *, is_sent: bool) -> None:
    """2025-11-25 client/elicitation: clients SHOULD validate all responses against the provided schema."""

    def answer(params: ElicitFormParams) -> ElicitResult:
        return ElicitResult(action="accept", content=content)

    async with scripted(LEGACY, Callbacks(elicit_form=answer), version="2025-11-25") as (_, script):
        said = await script.ask(7, "elicitation/create", {"message": "?", "requestedSchema": schema})
    assert ("result" in said) is is_sent
    assert is_sent or said["error"]["code"] == -32603


# --------------------------------------------------------------------------------- sampling, roots

USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "1", "content": []}
TEXT = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "assistant", "content": [USE]}], "leaves tool uses without results"),
        ([{"role": "assistant", "content": [USE]}, {"role": "user", "content": TEXT}], "very next message"),
        ([{"role": "assistant", "content": USE}, {"role": "user", "content": [RESULT, TEXT]}], "nothing else"),
    ],
)
async def test_tool_results_that_are_missing_or_mixed(messages: Any, said: str) -> None:
    """2025-11-25 client/sampling, error handling: -32602, and no model is asked."""

    def sample(params: CreateMessageParams) -> CreateMessageResult:
        raise AssertionError("asked")

    async with scripted(LEGACY, Callbacks(sample=sample, sample_tools=True), version="2025-11-25") as (_, script):
        answer = await script.ask(7, "sampling/createMessage", {"messages": messages, "maxTokens": 1})
    assert answer["error"]["code"] == -32602
    assert said in answer["error"]["message"]


@pytest.mark.parametrize("uri", ["https://example.com/", "/home", "file:///a/../b", "file:///a/%2e%2e/b"])
async def test_roots_are_files(uri: str) -> None:
    """2025-11-25 client/roots: a root MUST be a `file://` URI; clients MUST validate them."""
    async with scripted(LEGACY, Callbacks(roots=lambda: [Root(uri=uri)]), version="2025-11-25") as (_, script):
        assert (await script.ask(7, "roots/list", {}))["error"]["code"] == -32603


# ------------------------------------------------------------------------------------------- caching

HELD: dict[str, Any] = {"contents": [{"uri": "a://1", "text": "x"}], "ttlMs": 60_000, "resultType": "complete"}


@pytest.mark.parametrize("scope", ["public", "private", None])
@pytest.mark.parametrize("speaks_for_many", [True, False])
async def test_what_is_private_is_kept_for_one_caller(scope: str | None, *, speaks_for_many: bool) -> None:
    """2026-07-28 utilities/caching: private results "MUST NOT be shared across authorization contexts"."""
    user = "Ada"

    async def answer(asked: Asked, write: Write) -> None:
        hints = {} if scope is None else {"cacheScope": scope}
        body = {"contents": [{"uri": "a://1", "text": asked.headers["authorization"]}]}
        await write(reply(200, result(asked, {**HELD, **body, **hints})))

    headers: Any = (lambda: {"Authorization": user}) if speaks_for_many else {"Authorization": user}
    async with scripted_http(modern(answer, resources={})) as server, Client(server.url, headers=headers) as client:
        said = [(await client.read_resource("a://1")).contents[0]]
        user = "Bob"
        said.append((await client.read_resource("a://1")).contents[0])
    texts = [one.text for one in said]  # type: ignore[union-attr]
    assert texts == ["Ada", "Bob" if speaks_for_many and scope != "public" else "Ada"]


async def test_with_another_token_what_is_private_is_forgotten() -> None:
    """2026-07-28 utilities/caching: "a different access token requires a different cache"."""
    asked_for: list[str] = []
    is_over = False

    async def answer(asked: Asked, write: Write) -> None:
        if is_over and "authorization" not in asked.headers:
            await write(reply(401))
            return
        asked_for.append(asked.message["params"].get("uri", asked.rpc))
        await write(reply(200, result(asked, {**HELD, "content": []})))

    async def authenticate(challenge: Any) -> dict[str, str]:
        return {"Authorization": "Bearer new"}

    async with scripted_http(modern(answer, resources={})) as server:
        async with Client(server.url, http=HttpOptions(authenticate=authenticate)) as client:
            for _ in range(2):
                await client.read_resource("a://1")
            is_over = True
            await client.call_tool("x")
            await client.read_resource("a://1")
    assert asked_for == ["a://1", "tools/call", "a://1"]


# ---------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize("refusal", ["text", "error", "version"])
async def test_a_server_that_speaks_other_versions_now_is_probed_again(refusal: str) -> None:
    """2026-07-28 basic/versioning: an older release is put in its place while the client is connected."""
    is_old = False

    async def called(asked: Asked, write: Write) -> bool:
        if asked.rpc in ("GET", "DELETE"):
            return await write(reply(405))  # type: ignore[func-returns-value]
        await write(reply(200, text_result(asked, "old" if is_old else "new")))
        return True

    before, after = modern(called), legacy(called)

    async def answer(asked: Asked, write: Write) -> None:
        if not is_old or "mcp-session-id" in asked.headers or asked.rpc == "initialize":
            await (after if is_old else before)(asked, write)
        elif refusal == "text":
            await write(reply(400, b"no session"))
        else:
            error: dict[str, Any] = {"code": -32000, "message": "Bad Request: Session ID required"}
            if refusal == "version":
                error = {"code": -32022, "message": "?", "data": {"supported": ["2025-11-25"]}}
            await write(reply(400, {"jsonrpc": "2.0", "id": None, "error": error}))

    async with scripted_http(answer) as server, Client(server.url) as client:
        assert await client.call("x") == "new"
        is_old = True
        assert await client.call("x") == "old"
        assert client.version == "2025-11-25"
        assert len(server.of("tools/call")) == 3


@pytest.mark.parametrize("status", [400, 404])
async def test_one_request_that_is_refused_ends_no_other(status: int) -> None:
    """A gateway that does not like one call is no other server: what runs beside it goes on."""
    released = asyncio.Event()

    async def answer(asked: Asked, write: Write) -> None:
        if asked.message["params"]["name"] == "bad":
            await write(reply(status, b"blocked"))
            return
        await released.wait()
        await write(reply(200, text_result(asked, "done")))

    async with scripted_http(modern(answer)) as server, Client(server.url) as client:
        running = asyncio.create_task(client.call("good"))
        await until(lambda: server.of("tools/call"))
        with pytest.raises(HttpError, match="blocked"):
            await client.call("bad")
        released.set()
        assert await running == "done"
        assert len(server.of("tools/call")) == 2


# --------------------------------------------------------------------------------------- pagination


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_an_empty_cursor_is_one(version: str) -> None:
    """2026-07-28 utilities/pagination: it "MUST NOT be treated as the end of results"; cursors are opaque."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in "abc"]
    following = {None: (0, ""), "": (1, " \u2028 "), " \u2028 ": (2, None)}

    def page(message: Any) -> Any:
        number, cursor = following[message["params"].get("cursor") if "params" in message else None]
        return {"tools": [tools[number]], "nextCursor": cursor, "ttlMs": 60_000, "resultType": "complete"}

    answers = {**LEGACY, "server/discover": {**DISCOVERED, "capabilities": OFFERS}, "tools/list": page}
    async with scripted(answers, version=version) as (client, _):
        for _ in range(2):
            assert [tool.name for tool in await client.list_tools()] == ["a", "b", "c"]
