"""Tasks of 2025-11-25 on the wire.

Spec: 2025-11-25 basic/utilities/tasks.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from support.clock import turns, until
from support.http_peer import Session, call, serving
from support.http_wire import http_wire
from support.task_stage import LEGACY_TASKS, RELATED, TAKES, TaskStage, begin, entered, get, status, wait_for
from support.wires import LEGACY, MODERN, Wire, each_version, memory_wire, stdio_wire, websocket_wire

from mcpd import Context, Server, TaskSettings
from mcpd.server.registry.entries import make_cursor

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
ASKS = {"elicitation": {}, "sampling": {}}
TASK_NOT_FOUND = -32602


def related(task_id: str) -> dict[str, Any]:
    return {RELATED: {"taskId": task_id}}


async def heard(wire: Wire, method: str) -> Any:
    """The next message of a method; status notifications are passed over."""
    for message in wire.heard:
        if message["method"] == method:
            wire.heard.remove(message)
            return message
    while True:
        message = await wire.receive()
        if message.get("method") == method:
            return message
        assert message["method"] == "notifications/tasks/status", message
        wire.heard.append(message)


def reply(wire: Wire, question: Any, name: str) -> None:
    wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": name}}})


@each_version
async def test_the_list_says_which_tools_can_be_tasks(version: str) -> None:
    """TASK-057, S25-116, S25-117: in one version only."""
    stage = TaskStage()
    async with memory_wire(stage.server, version) as wire:
        tools = {tool["name"]: tool.get("execution") for tool in (await wire.result("tools/list"))["tools"]}
    if version == LEGACY_TASKS:
        assert (tools["greet"], tools["quick"]) == (None, {"taskSupport": "optional"})
        assert tools["work"] == {"taskSupport": "required"}
    else:
        assert set(tools.values()) == {None}


@each_wire
@pytest.mark.parametrize("tool", ["work", "quick"])
async def test_the_client_decides(open_wire: Any, tool: str) -> None:
    """TASK-058, S25-118, S25-119, S25-120, S25-121, S25-125: a nested task that works, at once."""
    stage = TaskStage()
    async with stage.wire(open_wire, LEGACY_TASKS, {}) as wire:
        result = await wire.result("tools/call", {"name": tool, "arguments": {}, "task": {}})
        assert set(result) == {"task"}
        task = result["task"]
        assert set(task) == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
        assert task["status"] == "working"
        stage.gate.set()
        done = await wait_for(wire, task["taskId"])
        assert (done["status"], done["createdAt"]) == ("completed", task["createdAt"])


@each_wire
async def test_tools_that_must_or_must_not_be_tasks(open_wire: Any) -> None:
    """TASK-059, S25-114."""
    stage = TaskStage()
    async with stage.wire(open_wire, LEGACY_TASKS, {}) as wire:
        assert (await wire.error("tools/call", {"name": "work", "arguments": {}}))["code"] == -32601
        assert (await wire.error("tools/call", {"name": "greet", "arguments": {}, "task": {}}))["code"] == -32601
        assert (await wire.error("tools/call", {"name": "none", "arguments": {}, "task": {}}))["code"] == -32602
        assert stage.entered == []
        assert (await wire.call("quick"))["content"][0]["text"] == "at once"


async def test_a_server_without_task_tools_ignores_the_member() -> None:
    """S25-115."""
    server = Server("t")
    server.add_tool(lambda: "plain", name="tool")
    async with memory_wire(server, LEGACY_TASKS) as wire:
        result = await wire.result("tools/call", {"name": "tool", "arguments": {}, "task": {"ttl": 1}})
        assert result["content"][0]["text"] == "plain"


async def test_the_life_in_force_is_in_each_answer() -> None:
    """TASK-060, S25-123, S25-124: the wish is met up to the limit, also when it was short."""
    stage = TaskStage(tasks=TaskSettings(max_ttl=100, keep=10))
    now = 1000.0
    stage.tasks.clock = lambda: now
    async with stage.wire(memory_wire, LEGACY_TASKS, {}) as wire:
        for wish, expected in ((None, 100_000), (60_000, 60_000), (10**400, 100_000), (-(10**400), 1000)):
            params = {"name": "work", "arguments": {}, "task": {} if wish is None else {"ttl": wish}}
            task = (await wire.result("tools/call", params))["task"]
            assert task["ttl"] == expected
            assert (await get(wire, task["taskId"]))["ttl"] == expected
            cancelled = await wire.result("tasks/cancel", {"taskId": task["taskId"]})
            assert cancelled["ttl"] == (10_000 if wish is None else expected)
        error = await wire.error("tools/call", {"name": "work", "arguments": {}, "task": {"ttl": "long"}})
        assert error["code"] == -32602


@each_wire
async def test_the_result_is_the_very_result(open_wire: Any) -> None:
    """TASK-061, TASK-062, TASK-064, S25-126, S25-127, S25-129: it waits, names its task, and can be asked for again."""
    stage = TaskStage()
    async with stage.wire(open_wire, LEGACY_TASKS, {}) as wire:
        task_id = await begin(wire, "work")
        first = wire.ask("tasks/result", {"taskId": task_id})
        await until(lambda: stage.tasks.results)
        wire.cancel(first)
        second = wire.ask("tasks/result", {"taskId": task_id})
        assert await status(wire, task_id) == "working"
        stage.gate.set()
        result = (await wire.answer(second))["result"]
        assert result == {"content": [{"type": "text", "text": "done"}], "_meta": related(task_id)}
        assert await wire.result("tasks/result", {"taskId": task_id}) == result
        assert "_meta" not in await get(wire, task_id)

        failed = await begin(wire, "fails")
        task = await wait_for(wire, failed)
        assert task["status"] == "failed"
        result = await wire.result("tasks/result", {"taskId": failed})
        assert (result["isError"], result["content"][0]["text"]) == (True, "no paper")


async def test_an_error_is_the_very_error() -> None:
    """TASK-065, S25-130, S25-122."""
    stage = TaskStage()
    async with stage.wire(memory_wire, LEGACY_TASKS, {}) as wire:
        task_id = await begin(wire, "breaks")
        task = await wait_for(wire, task_id)
        assert (task["status"], task["statusMessage"]) == ("failed", "the printer is on fire")
        error = await wire.error("tasks/result", {"taskId": task_id})
        assert error == {"code": 4711, "message": "the printer is on fire", "data": {"floor": 3}}


@each_wire
@pytest.mark.parametrize("with_result", [False, True])
async def test_questions_are_requests_of_the_task(open_wire: Any, with_result: bool) -> None:
    """TASK-063, S25-128, S25-155: on an open tasks/result, else outside of requests, with the id of the task."""
    stage = TaskStage()
    async with stage.wire(open_wire, LEGACY_TASKS, ASKS) as wire:
        if open_wire is http_wire:
            await until(lambda: wire.statuses and len(wire.statuses) >= 2)
        task_id = await begin(wire, "ask", times=2)
        waiting = wire.ask("tasks/result", {"taskId": task_id}) if with_result else None
        for name in ("Ada", "Bob"):
            question = await heard(wire, "elicitation/create")
            assert question["params"]["_meta"] == related(task_id)
            assert await status(wire, task_id) == "input_required"
            reply(wire, question, name)
        if waiting is None:
            await wait_for(wire, task_id)
            waiting = wire.ask("tasks/result", {"taskId": task_id})
        assert (await wire.answer(waiting))["result"]["content"][0]["text"] == "Ada, Bob"


async def test_questions_wait_for_a_stream() -> None:
    """TASK-063: without a GET stream, the next tasks/result brings them, and they end on its stream."""
    stage = TaskStage()
    async with serving(stage.server) as port:
        session = Session(port, LEGACY_TASKS)
        await session.open(capabilities=ASKS)
        params = {"name": "ask", "arguments": {}, "task": {}}
        (seed,) = (await session.ask("tools/call", params)).messages
        task_id = seed["result"]["task"]["taskId"]
        await until(lambda: stage.contexts)
        await turns()
        peer = await session.start(call("tasks/result", {"taskId": task_id}, 2))
        await peer.head()
        question = await peer.message()
        assert question["params"]["_meta"] == related(task_id)
        content = {"action": "accept", "content": {"name": "Ada"}}
        await session.post({"jsonrpc": "2.0", "id": question["id"], "result": content})
        result = await peer.message()
        assert result["result"]["content"][0]["text"] == "Ada"
    await stage.end()


async def test_a_question_that_is_left_is_asked_again() -> None:
    """TASK-062, TASK-063: leaving tasks/result takes its question back."""
    stage = TaskStage()
    async with serving(stage.server) as port:
        session = Session(port, LEGACY_TASKS)
        await session.open(capabilities=ASKS)
        params = {"name": "ask", "arguments": {}, "task": {}}
        (seed,) = (await session.ask("tools/call", params)).messages
        task_id = seed["result"]["task"]["taskId"]
        ids = []
        for number in (2, 3):
            peer = await session.start(call("tasks/result", {"taskId": task_id}, number))
            await peer.head()
            ids.append((await peer.message())["id"])
            await session.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
            await until(lambda: not stage.tasks.asking)
        assert len(set(ids)) == 2
    await stage.end()


async def test_a_client_that_refuses_fails_the_question() -> None:
    """TASK-063: its error is the tool's, and a client that cannot be asked is not."""
    stage = TaskStage()
    async with stage.wire(memory_wire, LEGACY_TASKS, ASKS) as wire:
        task_id = await begin(wire, "ask")
        question = await heard(wire, "elicitation/create")
        wire.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}})
        assert (await wait_for(wire, task_id))["status"] == "failed"
        result = await wire.result("tasks/result", {"taskId": task_id})
        assert "did not answer elicitation/create: no" in result["content"][0]["text"]
    stage = TaskStage()
    async with stage.wire(memory_wire, LEGACY_TASKS, {}) as wire:
        result = await wire.result("tasks/result", {"taskId": await begin(wire, "ask")})
        assert result["isError"] is True


@each_wire
async def test_a_task_is_cancelled_before_the_answer(open_wire: Any) -> None:
    """TASK-066, S25-133, S25-134, S25-135, S25-136: for good; a final one cannot be."""
    stage = TaskStage()
    async with stage.wire(open_wire, LEGACY_TASKS, {}) as wire:
        task_id = await begin(wire, "work")
        task = await wire.result("tasks/cancel", {"taskId": task_id})
        assert task["status"] == "cancelled"
        stage.gate.set()
        await turns()
        assert await status(wire, task_id) == "cancelled"
        assert (await wire.error("tasks/cancel", {"taskId": task_id}))["code"] == -32602
        assert (await wire.error("tasks/result", {"taskId": task_id}))["code"] == -32603
        done = await begin(wire, "quick")
        await wait_for(wire, done)
        assert (await wire.error("tasks/cancel", {"taskId": done}))["code"] == -32602


@each_wire
async def test_progress_keeps_its_token(open_wire: Any) -> None:
    """TASK-067, S25-052, S25-053: after the creation, with the id of the task, until its end; log messages too."""
    server = Server("t")
    go, contexts = asyncio.Event(), []

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        contexts.append(ctx)
        await go.wait()
        for number in range(3):
            await ctx.progress(number, 3, "frame")
        await ctx.warning("mind the gap")
        return ""

    async with open_wire(server, LEGACY_TASKS) as wire:
        params = {"name": "tool", "arguments": {}, "task": {}}
        task_id = (await wire.result("tools/call", params, meta={"progressToken": "p"}))["task"]["taskId"]
        result = wire.ask("tasks/result", {"taskId": task_id})
        await until(lambda: contexts)
        go.set()
        await wire.answer(result)
        await contexts[0].progress(9, 9)
        progress = [one["params"] for one in wire.heard if one["method"] == "notifications/progress"]
        assert [(one["progressToken"], one["progress"]) for one in progress] == [("p", 0), ("p", 1), ("p", 2)]
        assert all(one["_meta"] == related(task_id) for one in progress)
        (message,) = [one["params"] for one in wire.heard if one["method"] == "notifications/message"]
        assert (message["data"], message["_meta"]) == ("mind the gap", related(task_id))


@each_wire
async def test_a_wait_for_the_result_has_heartbeats(open_wire: Any) -> None:
    """PROC-17, TASK-062: of its own token, whatever the task reports."""
    server = Server("t")
    server.heartbeat = 0.01
    report, go = asyncio.Event(), asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await report.wait()
        await ctx.progress(0, 3, "frame")
        await go.wait()
        return ""

    async with open_wire(server, LEGACY_TASKS) as wire:
        params = {"name": "tool", "arguments": {}, "task": {}}
        task_id = (await wire.result("tools/call", params, meta={"progressToken": "task"}))["task"]["taskId"]
        result = wire.ask("tasks/result", {"taskId": task_id}, meta={"progressToken": "wait"})
        heard: dict[str, list[Any]] = {"task": [], "wait": []}
        while not heard["task"] or len(heard["wait"]) < 8:
            message = await wire.receive()
            if message["method"] == "notifications/progress":
                heard[message["params"]["progressToken"]].append(message["params"])
            if len(heard["wait"]) == 3:
                report.set()
        go.set()
        await wire.answer(result)
        assert [(one["progress"], one["message"]) for one in heard["task"]] == [(0, "frame")]
        values = [one["progress"] for one in heard["wait"]]
        assert values == sorted(set(values))
        assert all(re.fullmatch(r"still running \(\d+ s\)", one["message"]) for one in heard["wait"])


async def test_the_list_has_all_of_the_requestor() -> None:
    """TASK-068, S25-131, S25-132, S25-140: in pages with opaque cursors; others are refused."""
    stage = TaskStage(tasks=TaskSettings(running_each=200, running=200))
    async with stage.wire(memory_wire, LEGACY_TASKS, {}) as wire:
        ids = [await begin(wire, "work") for _ in range(150)]
        first = await wire.result("tasks/list")
        rest = await wire.result("tasks/list", {"cursor": first["nextCursor"]})
        assert [task["taskId"] for task in first["tasks"] + rest["tasks"]] == ids
        assert "nextCursor" not in rest
        for cursor in ("", "x", "MTIzeA=="):
            assert (await wire.error("tasks/list", {"cursor": cursor}))["code"] == -32602
        redis_position = make_cursor("5-1")
        assert len((await wire.result("tasks/list", {"cursor": redis_position}))["tasks"]) == 100


@each_wire
async def test_changes_of_status_are_told(open_wire: Any) -> None:
    """TASK-069: without the id in _meta, which the params have."""
    stage = TaskStage()
    async with stage.wire(open_wire, LEGACY_TASKS, {}) as wire:
        if open_wire is http_wire:
            await until(lambda: wire.statuses and len(wire.statuses) >= 2)
        task_id = await begin(wire, "work")
        await entered(stage)
        stage.gate.set()
        message = await wire.receive()
        assert message["method"] == "notifications/tasks/status"
        assert (message["params"]["taskId"], message["params"]["status"]) == (task_id, "completed")
        assert "_meta" not in message["params"]


async def test_our_own_requests_have_no_task() -> None:
    """TASK-070: whatever the client says it can."""
    able = {**ASKS, "tasks": {"requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}}}}
    stage = TaskStage()

    @stage.server.tool(task="required")
    async def samples(ctx: Context) -> str:
        return str(await ctx.sample("A tale"))

    async with stage.wire(memory_wire, LEGACY_TASKS, able) as wire:
        for tool, method in (("ask", "elicitation/create"), ("samples", "sampling/createMessage")):
            await begin(wire, tool)
            assert "task" not in (await heard(wire, method))["params"]


async def test_a_text_for_the_model() -> None:
    """TASK-071: what the tool gives to become_task before anything else."""
    server = Server("t")

    @server.tool(task="auto")
    async def tool(ctx: Context) -> str:
        await ctx.become_task("Rendering; ask again in a minute")
        return ""

    async with memory_wire(server, LEGACY_TASKS) as wire:
        result = await wire.result("tools/call", {"name": "tool", "arguments": {}, "task": {}})
        text = result["_meta"]["io.modelcontextprotocol/model-immediate-response"]
        assert text == "Rendering; ask again in a minute"


@pytest.mark.parametrize("version", LEGACY[:-1])
async def test_versions_without_tasks_have_none(version: str) -> None:
    """TASK-003, TASK-006: an auto tool answers, a required one says that it cannot."""
    stage = TaskStage()
    async with memory_wire(stage.server, version) as wire:
        assert (await wire.call("quick"))["content"][0]["text"] == "at once"
        assert (await wire.error("tools/call", {"name": "work", "arguments": {}}))["code"] == -32601
        assert (await wire.error("tasks/get", {"taskId": "x"}))["code"] == -32601


async def test_either_form_reads_the_tasks_of_the_other() -> None:
    """TASK-073: in its own shape, also of structured content that is no object."""
    server = Server("t")

    @server.tool(task="auto", task_after=0)
    async def squares(ctx: Context) -> list[int]:
        await ctx.become_task()
        return [1, 4]

    stage = TaskStage()
    async with memory_wire(server, MODERN, capabilities=TAKES) as new, memory_wire(server, LEGACY_TASKS) as old:
        from_new, from_old = await begin(new, "squares"), await begin(old, "squares")
        for task_id in (from_new, from_old):
            assert (await wait_for(new, task_id))["result"]["structuredContent"] == [1, 4]
            assert (await wait_for(old, task_id))["status"] == "completed"
            assert (await old.result("tasks/result", {"taskId": task_id}))["structuredContent"] == {"result": [1, 4]}
    async with stage.wire() as new, memory_wire(stage.server, LEGACY_TASKS, capabilities=ASKS) as old:
        task_id = await begin(new, "ask")
        waiting = old.ask("tasks/result", {"taskId": task_id})
        reply(old, await heard(old, "elicitation/create"), "Ada")
        assert (await old.answer(waiting))["result"]["content"][0]["text"] == "Ada"
