"""Tasks as a client follows them, in both eras, against a server that says what a test tells it.

Spec: tasks-extension (SEP-2663), 2025-11-25 basic/utilities/tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.clock import Clock, until
from support.http_script import (
    Asked,
    Write,
    event,
    events_head,
    modern as http_modern,
    reply,
    result,
    scripted as http_scripted,
)
from support.scripted_server import DISCOVERED, INITIALIZED, META, NOT_FOUND, scripted

from mcpd import Callbacks, Client
from mcpd.client.eras import TASK_CHANGED
from mcpd.errors import (
    ConnectionLost,
    LocalProtocolError,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    TaskCancelled,
    ToolError,
)
from mcpd.protocol.types.features import TextContent
from mcpd.protocol.types.interaction import ElicitFormParams, ElicitResult

TIMES = {"createdAt": "2026-11-27T10:00:00.000Z", "lastUpdatedAt": "2026-11-27T10:00:00.000Z"}
DONE = {"content": [{"type": "text", "text": "done"}]}
SUBSCRIPTION = f"{META}subscriptionId"
OFFER = {f"{META}tasks": {}}


def task(status: str = "working", **members: Any) -> dict[str, Any]:
    """A task of 2026-07-28."""
    return {"taskId": "t-1", "status": status, **TIMES, "ttlMs": None, "pollIntervalMs": 0, **members}


def created(**members: Any) -> dict[str, Any]:
    return {"resultType": "task", **task(**members)}


def got(status: str = "working", **members: Any) -> dict[str, Any]:
    return {"resultType": "complete", **task(status, **members)}


def question(message: str = "Sure?") -> dict[str, Any]:
    form = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": form}}


def in_order(*answers: Any) -> Callable[[Any], Any]:
    """One answer after the other, and the last one again and again."""
    left = list(answers)
    return lambda message: left.pop(0) if len(left) > 1 else left[0]


def modern(**answers: Any) -> dict[str, Any]:
    """A server without subscriptions; `tasks_get` is the answer to tasks/get."""
    named = {name.replace("_", "/"): answer for name, answer in answers.items()}
    return {"server/discover": DISCOVERED, "tools/call": created(), "subscriptions/listen": NOT_FOUND, **named}


def words(result: Any) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


async def accept(params: ElicitFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"sure": True})


ASKED = Callbacks(elicit_form=accept)


# ------------------------------------------------------------------------------------- 2026-07-28


async def test_a_call_that_becomes_a_task_gives_its_result() -> None:
    """Clients "surface only the final, completed result". This one declares the extension in each request."""
    reports: list[Any] = []
    get = in_order(
        got(statusMessage="frame (1 of 4)"),
        got(statusMessage="frame (2 of 4)"),
        got(statusMessage="packing"),
        got("completed", result=DONE),
    )
    async with scripted(modern(tasks_get=get)) as (client, script):
        result = await client.call_tool("render", on_progress=lambda *report: reports.append(report))
        assert words(result) == "done"
        assert reports == [(1.0, 4.0, "frame"), (2.0, 4.0, "frame"), (2.0, 4.0, "packing")]
        assert await client.tasks.list() == []
    assert [message["params"]["taskId"] for message in script.of("tasks/get")] == ["t-1"] * 4
    for message in script.heard:
        meta = message["params"]["_meta"]
        assert meta[f"{META}clientCapabilities"]["extensions"] == OFFER
    assert "task" not in script.of("tools/call")[0]["params"]
    assert not script.of("tasks/cancel")


async def test_a_task_may_be_followed_by_notifications_alone() -> None:
    """The server acknowledges the id, so nothing is polled; the subscription ends with the task."""

    def listen(message: Any) -> None:
        assert message["params"]["notifications"] == {"taskIds": ["t-1"]}
        meta = {SUBSCRIPTION: message["id"]}
        say = script.say
        acknowledged = {"notifications": {"taskIds": ["t-1"]}, "_meta": meta}
        say({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
        say({"method": "notifications/tasks", "params": {**task(), "_meta": meta}})
        say({"method": "notifications/tasks", "params": {**task("completed", taskId="other"), "_meta": meta}})
        say({"method": "notifications/tasks", "params": {**task("completed", result=DONE), "_meta": meta}})

    answers = modern(**{"subscriptions/listen": listen})
    answers["tools/call"] = created(pollIntervalMs=3_600_000)
    async with scripted(answers) as (client, script):
        assert words(await client.call_tool("render")) == "done"
        (listened,) = script.of("subscriptions/listen")
        await until(lambda: script.of("notifications/cancelled"))
        assert script.of("notifications/cancelled")[0]["params"]["requestId"] == listened["id"]
    assert not script.of("tasks/get")


async def test_a_server_that_leaves_the_id_out_is_polled_and_not_asked_again() -> None:
    def listen(message: Any) -> Any:
        params = {"notifications": {}, "_meta": {SUBSCRIPTION: message["id"]}}
        script.say({"method": "notifications/subscriptions/acknowledged", "params": params})
        return {"resultType": "complete"}

    answers = modern(tasks_get=got("completed", result=DONE))
    answers["subscriptions/listen"] = listen
    async with scripted(answers) as (client, script):
        for _ in range(2):
            assert words(await client.call_tool("render")) == "done"
    assert len(script.of("subscriptions/listen")) == 1
    assert len(script.of("tasks/get")) == 2


async def test_polls_come_as_often_as_the_server_says() -> None:
    """Spec: "Clients SHOULD respect the `pollIntervalMs`", at most every 30 s, and up to a tenth later than others."""
    clock = Clock()
    async with scripted(modern(tasks_get=got(pollIntervalMs=10_000)), timeout=None) as (client, script):
        script.answers["tools/call"] = created(pollIntervalMs=10**400)
        calling = asyncio.ensure_future(client.call_tool("render"))
        await until(lambda: script.of("subscriptions/listen"))
        for seconds, polls in ((29, 0), (5, 1), (9, 1), (3, 2)):
            await clock.advance(seconds)
            assert len(script.of("tasks/get")) == polls, seconds
        script.answers["tasks/get"] = got("completed", result=DONE)
        await clock.advance(12)
        assert words(await calling) == "done"


async def test_each_question_is_answered_once() -> None:
    """Spec: "Clients SHOULD deduplicate `inputRequests` keys across consecutive polls". The first may come again."""
    asked: list[str] = []

    def elicit(params: ElicitFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"sure": len(asked) == 1})

    get = in_order(
        got("input_required", inputRequests={"a": question("A?")}),
        got("input_required", inputRequests={"a": question("A?"), "b": question("B?")}),
        got("input_required", inputRequests={"b": question("B?")}),
        got("completed", result=DONE),
    )
    answers = modern(tasks_get=get, tasks_update={"resultType": "complete"})
    async with scripted(answers, Callbacks(elicit_form=elicit)) as (client, script):
        assert words(await client.call_tool("render")) == "done"
    assert asked == ["A?", "B?"]
    updates = [message["params"] for message in script.of("tasks/update")]
    assert [(update["taskId"], update["inputResponses"]) for update in updates] == [
        ("t-1", {"a": {"action": "accept", "content": {"sure": True}}}),
        ("t-1", {"b": {"action": "accept", "content": {"sure": False}}}),
    ]


async def test_rounds_may_come_before_a_task() -> None:
    """The two have separate keys: the same key is another question."""
    first = {"resultType": "input_required", "inputRequests": {"a": question()}, "requestState": "s"}
    get = in_order(got("input_required", inputRequests={"a": question()}), got("completed", result=DONE))
    answers = modern(tasks_get=get, tasks_update={"resultType": "complete"})
    answers["tools/call"] = in_order(first, created())
    async with scripted(answers, ASKED) as (client, script):
        assert words(await client.call_tool("render")) == "done"
    again = script.of("tools/call")[1]["params"]
    assert (again["requestState"], list(again["inputResponses"])) == ("s", ["a"])
    assert len(script.of("tasks/update")) == 1


async def test_a_question_that_cannot_be_answered_ends_the_task() -> None:
    get = got("input_required", inputRequests={"a": question()})
    acknowledged = {"resultType": "complete"}
    async with scripted(modern(tasks_get=get, tasks_cancel=acknowledged)) as (client, script):
        with pytest.raises(ProtocolError, match="asked for elicitation/create: This client does not offer"):
            await client.call_tool("render")
        assert [message["params"]["taskId"] for message in script.of("tasks/cancel")] == ["t-1"]
        many = {str(number): question() for number in range(100)}
        script.answers["tasks/get"] = got("input_required", inputRequests=many)
        with pytest.raises(ProtocolError, match="more than 64 questions at once"):
            await client.call_tool("render")


async def test_how_a_task_fails() -> None:
    """`failed` is an error of the call, `isError` is a result, and a cancelled task has none."""
    error = {"code": -32603, "message": "no disk", "data": {"free": 0}}
    async with scripted(modern(tasks_get=got("failed", error=error))) as (client, script):
        with pytest.raises(RemoteError, match="no disk") as raised:
            await client.call_tool("render")
        assert (raised.value.code, raised.value.data) == (-32603, {"free": 0})
        script.answers["tasks/get"] = got("completed", result={**DONE, "isError": True})
        assert (await client.call_tool("render")).is_error
        with pytest.raises(ToolError, match="done"):
            await client.call("render")
        script.answers["tasks/get"] = got("cancelled", statusMessage="the user closed it")
        with pytest.raises(TaskCancelled, match="the user closed it"):
            await client.call("render")
        script.answers["tasks/get"] = {"code": -32602, "message": "unknown task"}
        with pytest.raises(RemoteError, match="unknown task"):
            await client.call("render")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (got("completed"), "a completed task has no result"),
        (got("failed"), "a failed task has no error"),
        (got("resting"), "invalid enum value"),
        ({"resultType": "complete", "taskId": 3}, "tasks/get is invalid"),
        (created(), "unknown type: 'task'"),
    ],
)
async def test_a_task_that_cannot_be_read(answer: Any, problem: str) -> None:
    async with scripted(modern(tasks_get=answer, tasks_cancel={"resultType": "complete"})) as (client, script):
        with pytest.raises(ProtocolError, match=problem):
            await client.call_tool("render")
    # A task that has ended is left alone.
    assert bool(script.of("tasks/cancel")) is (answer.get("status") not in ("completed", "failed"))


async def test_only_a_call_may_become_a_task() -> None:
    """Spec: "A client that receives CreateTaskResult in response to an unsupported request type MUST interpret this as
    an invalid response"; so must a legacy client that asked for none.
    """
    found = {**DISCOVERED, "capabilities": {"tools": {}, "resources": {}}}
    answers = modern(**{"server/discover": found, "resources/read": created(), "tools/list": created()})
    async with scripted(answers) as (client, script):
        with pytest.raises(ProtocolError, match="unknown type: 'task'"):
            await client.read_resource("notes://a")
        with pytest.raises(ProtocolError, match="unknown type: 'task'"):
            await client.list_tools()
    async with scripted({"initialize": INITIALIZED, "tools/call": {"task": task()}}) as (client, script):
        with pytest.raises(ProtocolError, match="tools/call is invalid"):
            await client.call_tool("render")


async def test_whoever_stops_waiting_for_a_call_cancels_its_task() -> None:
    answers = modern(tasks_get=got(), tasks_cancel={"resultType": "complete"})
    async with scripted(answers) as (client, script):
        calling = asyncio.ensure_future(client.call_tool("render"))
        await until(lambda: script.of("tasks/get"))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert [message["params"]["taskId"] for message in script.of("tasks/cancel")] == ["t-1"]
        # A server that does not acknowledge the cancellation holds up nobody for long.
        clock = Clock()
        script.answers["tasks/cancel"] = None
        calling = asyncio.ensure_future(client.call_tool("render"))
        await until(lambda: len(script.of("tasks/get")) > 1)
        calling.cancel()
        await until(lambda: len(script.of("tasks/cancel")) == 2)
        await clock.advance(3)
        with pytest.raises(asyncio.CancelledError):
            await calling
    about = [message["params"]["requestId"] for message in script.of("notifications/cancelled")]
    assert not {message["id"] for message in script.of("tools/call")} & set(about)


async def test_a_task_that_comes_too_late_is_cancelled() -> None:
    """Its caller has cancelled the call already, or given up: the task would run for nobody."""
    answers = modern(**{"tools/call": None, "tasks/cancel": {"resultType": "complete"}})
    async with scripted(answers) as (client, script):
        with pytest.raises(RequestTimeout):
            await client.call_tool("render", timeout=0.01)
        (call,) = script.of("tools/call")
        script.say({"id": call["id"], "result": created()})
        await until(lambda: script.of("tasks/cancel"))
        # Once only, and only for a task.
        script.say({"id": call["id"], "result": created()})
        with pytest.raises(RequestTimeout):
            await client.call_tool("render", timeout=0.01)
        script.say({"id": script.of("tools/call")[1]["id"], "result": {"resultType": "complete", **DONE}})
        await client.ping()
    assert len(script.of("tasks/cancel")) == 1


async def test_a_task_is_found_again_by_its_id() -> None:
    """Spec: "Clients SHOULD persist task IDs": `start_tool` gives the id, `resume_task` continues in another client."""
    answers = modern(tasks_get=got("input_required", inputRequests={"a": question(), "b": question()}))
    answers |= {"tasks/update": {"resultType": "complete"}, "tasks/cancel": {"resultType": "complete"}}
    async with scripted(answers, ASKED) as (client, script):
        handle = await client.start_tool("render", {"scene": "x"})
        assert handle.id == "t-1"
        assert not script.of("tasks/get")
        (listed,) = await client.tasks.list()
        assert (listed.task_id, listed.status) == ("t-1", "input_required")
        assert list((await handle.status()).input_requests or ()) == ["a", "b"]
        await handle.answer({"a": {"action": "decline"}})
        waiting = asyncio.ensure_future(handle.result())
        await until(lambda: len(script.of("tasks/update")) == 2)
        assert [list(message["params"]["inputResponses"]) for message in script.of("tasks/update")] == [["a"], ["b"]]
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not script.of("tasks/cancel")
        await handle.cancel()
        assert script.of("tasks/cancel")

    async with scripted(modern(tasks_get=got("completed", result=DONE))) as (client, script):
        handle = client.resume_task("t-1")
        assert words(await handle.result()) == "done"
        assert (await handle.status()).status == "completed"
        await handle.cancel()
        assert len(script.of("tasks/get")) == 1
        assert not script.of("tasks/cancel")
        script.answers["tasks/get"] = {"code": -32602, "message": "unknown task"}
        with pytest.raises(RemoteError, match="unknown task"):
            await client.tasks.get("t-2")


async def test_a_call_that_ends_at_once_has_a_handle_too() -> None:
    async with scripted(modern(**{"tools/call": {"resultType": "complete", **DONE}})) as (client, script):
        handle = await client.start_tool("render")
        assert handle.id == ""
        assert (await handle.status()).status == "completed"
        assert words(await handle.result()) == "done"
        await handle.cancel()
        assert await client.tasks.list() == []
    assert not script.of("tasks/get")


async def test_a_lost_connection_says_how_to_find_the_task() -> None:
    async with scripted(modern(tasks_get=None), reconnect=False) as (client, script):
        handle = await client.start_tool("render")
        waiting = asyncio.ensure_future(handle.result())
        await until(lambda: script.of("tasks/get"))
        await script.channel.aclose()
        with pytest.raises(ConnectionLost) as raised:
            await waiting
        assert "Client.resume_task('t-1')" in raised.value.__notes__[0]


@pytest.mark.parametrize("listens", [True, False])
async def test_over_http(*, listens: bool) -> None:
    """Spec: "The client MUST set the `Mcp-Name` header … to the value of `params.taskId`". A subscription is a response
    of its own, which the client leaves when the task has ended.
    """

    async def answer(asked: Asked, write: Write) -> None:
        if asked.rpc == "subscriptions/listen" and not listens:
            await write(reply(404, {"jsonrpc": "2.0", "id": asked.id, "error": NOT_FOUND}))
        elif asked.rpc == "subscriptions/listen":
            meta = {SUBSCRIPTION: asked.id}
            acknowledged = {"notifications": {"taskIds": ["t-1"]}, "_meta": meta}
            told = {**task("input_required", inputRequests={"a": question()}), "_meta": meta}
            await write(events_head())
            for method, params in (("notifications/subscriptions/acknowledged", acknowledged), (TASK_CHANGED, told)):
                await write(event({"jsonrpc": "2.0", "method": method, "params": params}))
            await updated.wait()
            told = {**task("completed", result=DONE), "_meta": meta}
            await write(event({"jsonrpc": "2.0", "method": TASK_CHANGED, "params": told}))
            await asyncio.Event().wait()
        elif asked.rpc == "tasks/update":
            updated.set()
            await write(reply(200, result(asked, {"resultType": "complete"})))
        else:
            asks = got("input_required", inputRequests={"a": question()})
            found = got("completed", result=DONE) if updated.is_set() else asks
            await write(reply(200, result(asked, created() if asked.rpc == "tools/call" else found)))

    updated = asyncio.Event()
    async with http_scripted(http_modern(answer)) as server:
        async with Client(server.url, ASKED) as client:
            assert words(await client.call_tool("render")) == "done"
            await until(lambda: server.open <= 1)
        about = [asked for asked in server.asked if asked.rpc.startswith("tasks/")]
        assert {asked.headers["mcp-name"] for asked in about} == {"t-1"}
        assert [asked.headers["mcp-method"] for asked in about] == [asked.rpc for asked in about]
        assert [asked.rpc for asked in about] == (
            ["tasks/update"] if listens else ["tasks/get", "tasks/update", "tasks/get"]
        )


async def test_a_call_over_http_that_is_cancelled_while_it_becomes_a_task() -> None:
    """Its response was under way when the client left. Nobody else would ever stop the task."""

    async def answer(asked: Asked, write: Write) -> None:
        if asked.rpc == "tools/call":
            called.set()
            await left.wait()
            await write(reply(200, result(asked, created())))
        else:
            await write(reply(200, result(asked, {"resultType": "complete"})))

    called, left = asyncio.Event(), asyncio.Event()
    async with http_scripted(http_modern(answer)) as server, Client(server.url, ASKED) as client:
        calling = asyncio.create_task(client.call_tool("render"))
        await called.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        left.set()
        await until(lambda: server.asked[-1].rpc == "tasks/cancel")
        assert server.asked[-1].headers["mcp-name"] == "t-1"


# ------------------------------------------------------------------------------------- 2025-11-25

TASKS = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
OLD = {**INITIALIZED, "capabilities": {"tools": {}, "tasks": TASKS}}
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}
    for name, support in (("render", "required"), ("count", "optional"), ("greet", "forbidden"))
]


def old(status: str = "working", **members: Any) -> dict[str, Any]:
    """A task of 2025-11-25."""
    return {"taskId": "t-1", "status": status, **TIMES, "ttl": 60_000, "pollInterval": 0, **members}


def legacy(**answers: Any) -> dict[str, Any]:
    def call(message: Any) -> Any:
        params = message["params"]
        if params["name"] == "render" and "task" not in params:
            return {"code": -32601, "message": "render requires a task"}
        return {"task": old()} if "task" in params else DONE

    named = {name.replace("_", "/"): answer for name, answer in answers.items()}
    return {"initialize": OLD, "tools/list": {"tools": TOOLS}, "tools/call": call, "tasks/result": DONE, **named}


async def test_a_tool_of_2025_that_requires_a_task_is_called_as_one() -> None:
    """The client lists the tools first, to find that out. The extension of 2026-07-28 is not offered."""
    get = in_order(old(), old("completed"))
    async with scripted(legacy(tasks_get=get)) as (client, script):
        for name in ("render", "render", "count", "greet"):
            assert words(await client.call_tool(name)) == "done"
        assert [message["params"].get("task") for message in script.of("tools/call")] == [{}, {}, None, None]
        assert len(script.of("tools/list")) == 1
    assert script.of("tasks/result")[0]["params"] == {"taskId": "t-1"}
    assert "extensions" not in script.of("initialize")[0]["params"]["capabilities"]


async def test_a_question_of_2025_comes_while_the_result_is_awaited() -> None:
    """Spec: "The requestor SHOULD preemptively call `tasks/result`"; progress keeps its token."""
    reports: list[Any] = []

    def call(message: Any) -> Any:
        tokens.append(message["params"]["_meta"]["progressToken"])
        return {"task": old()}

    related = {f"{META}related-task": {"taskId": "t-1"}}

    def get(message: Any) -> Any:
        if len(script.of("tasks/get")) == 1:
            return old(statusMessage="begun")
        progress = {"progressToken": tokens[0], "progress": 1, "total": 2, "_meta": related}
        script.say({"method": "notifications/progress", "params": progress})
        return old("input_required", statusMessage="frame (1 of 2)")

    async def answer(message: Any) -> None:
        reply = await script.ask("q", "elicitation/create", {**question()["params"], "_meta": related})
        assert reply["result"]["action"] == "accept"
        script.say({"id": message["id"], "result": {**DONE, "_meta": related}})

    tokens: list[Any] = []
    answering: list[asyncio.Future[None]] = []
    answers = legacy(tools_call=call, tasks_get=get)
    answers["tasks/result"] = lambda message: answering.append(asyncio.ensure_future(answer(message)))
    async with scripted(answers, ASKED) as (client, script):
        result = await client.call_tool("render", on_progress=lambda *report: reports.append(report))
        assert words(result) == "done"
        await asyncio.gather(*answering)
    assert reports == [(0.0, None, "begun"), (1.0, 2.0, None)]


async def test_how_a_task_of_2025_fails() -> None:
    """tasks/result gives the very result or error of the call; a cancelled one is not asked."""
    async with scripted(legacy(tasks_get=old("failed"))) as (client, script):
        script.answers["tasks/result"] = {**DONE, "isError": True}
        assert (await client.call_tool("render")).is_error
        script.answers["tasks/result"] = {"code": -32000, "message": "no disk"}
        with pytest.raises(RemoteError, match="no disk"):
            await client.call_tool("render")
        script.answers["tasks/get"] = old("cancelled")
        with pytest.raises(TaskCancelled):
            await client.call_tool("render")
    assert len(script.of("tasks/result")) == 2


async def test_handles_of_2025() -> None:
    """`start_tool` makes a task of each tool that can be one, and the server lists them."""
    answers = legacy(tasks_get=old(), tasks_cancel=old("cancelled"))
    pages = in_order({"tasks": [old()], "nextCursor": "2"}, {"tasks": [old("failed", taskId="t-2", ttl=None)]})
    async with scripted(answers | {"tasks/list": pages}) as (client, script):
        assert (await client.start_tool("greet")).id == ""
        handle = await client.start_tool("count")
        assert handle.id == "t-1"
        with pytest.raises(LocalProtocolError, match="callbacks answer the questions"):
            await handle.answer({"a": {}})
        listed = await client.tasks.list()
        assert [(each.task_id, each.status, each.ttl_ms) for each in listed] == [
            ("t-1", "working", 60_000),
            ("t-2", "failed", None),
        ]
        waiting = asyncio.ensure_future(handle.result())
        await until(lambda: script.of("tasks/get"))
        script.answers["tasks/get"] = old("completed")
        assert words(await waiting) == "done"
        await client.tasks.cancel("t-1")
    assert script.of("tasks/cancel")[0]["params"]["taskId"] == "t-1"

    answers["initialize"] = {**INITIALIZED, "capabilities": {"tools": {}, "tasks": {"requests": {}}}}
    async with scripted(answers) as (client, script):
        assert (await client.start_tool("count")).id == ""
        with pytest.raises(LocalProtocolError, match="does not offer tasks.list"):
            await client.tasks.list()


async def test_a_cancelled_caller_of_2025_cancels_the_task() -> None:
    async with scripted(legacy(tasks_get=old("input_required"), tasks_result=None)) as (client, script):
        script.answers["tasks/cancel"] = old("cancelled")
        calling = asyncio.ensure_future(client.call_tool("render"))
        await until(lambda: script.of("tasks/result"))
        calling.cancel()
        await asyncio.wait([calling])
        assert [message["params"]["taskId"] for message in script.of("tasks/cancel")] == ["t-1"]
