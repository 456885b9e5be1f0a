"""What `tasks/get` gives in each status, and how a client answers and cancels, in 2026-07-28.

Spec: tasks-extension, task polling, update requests, cancellation and error handling.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import between_looks, until
from support.http_peer import envelope, modern, serving
from support.http_wire import http_wire
from support.task_stage import (
    LEGACY_TASKS,
    TAKES,
    TASKS,
    Name,
    TaskStage,
    answer,
    begin,
    entered,
    get,
    status,
    wait_for,
)
from support.wires import MODERN, Wire, memory_wire, stdio_wire, websocket_wire

from mcpd import Context, Server, TaskSettings, elicit_form
from mcpd.errors import RequestTimeout

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
PAYLOADS = {"result", "error", "inputRequests"}
UNKNOWN = -32602


def accept(name: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def update(wire: Wire, task_id: str, responses: dict[str, Any]) -> Any:
    return await wire.result("tasks/update", {"taskId": task_id, "inputResponses": responses})


# -------------------------------------------------------------------------------------- reading


@each_wire
async def test_each_status_has_what_belongs_to_it(open_wire: Any) -> None:
    """TASK-022, TASK-023, TASK-024, TASK-025, TASK-026, TASK-027, TASK-028, TASK-029, TASK-035, S26-194, S26-195,
    S26-198, S26-199: resultType is complete in all of them."""
    stage = TaskStage()
    async with stage.wire(open_wire) as wire:
        working = await get(wire, await begin(wire, "work"))
        asked = await wait_for(wire, await begin(wire, "both"), "input_required")
        completed = await wait_for(wire, await begin(wire, "fails"))
        failed = await wait_for(wire, await begin(wire, "breaks"))
        misfit = await wait_for(wire, await begin(wire, "work", text=7))
        cancelled_id = await begin(wire, "work")
        await wire.result("tasks/cancel", {"taskId": cancelled_id})
        cancelled = await wait_for(wire, cancelled_id)

    assert {one["resultType"] for one in (working, asked, completed, failed, cancelled)} == {"complete"}
    assert not any("requestState" in one for one in (working, asked, completed, failed, cancelled))
    assert (working["status"], PAYLOADS & set(working)) == ("working", set())
    assert (cancelled["status"], PAYLOADS & set(cancelled)) == ("cancelled", set())

    assert PAYLOADS & set(asked) == {"inputRequests"}
    assert {key: one["params"]["message"] for key, one in asked["inputRequests"].items()} == {"a": "A?", "b": "B?"}
    assert all(set(one) == {"method", "params"} for one in asked["inputRequests"].values())

    assert (completed["status"], PAYLOADS & set(completed)) == ("completed", {"result"})
    assert completed["result"]["resultType"] == "complete"
    assert completed["result"]["content"] == [{"type": "text", "text": "no paper"}]
    assert completed["result"]["isError"] is True
    assert not {"ttlMs", "cacheScope"} & set(completed["result"])
    assert misfit["status"] == "completed"
    assert misfit["result"]["isError"] is True

    assert (failed["status"], PAYLOADS & set(failed)) == ("failed", {"error"})
    assert failed["error"] == {"code": 4711, "message": "the printer is on fire", "data": {"floor": 3}}
    assert failed["statusMessage"] == "the printer is on fire"


async def test_the_inlined_result_is_what_the_call_would_have_given() -> None:
    """TASK-025: byte for byte but for the envelope, without the key that only 2025-11-25 has."""
    server = Server("t")

    @server.tool(task="auto", task_after=None)
    async def tool(ctx: Context, task: bool) -> dict[str, list[int]]:
        if task:
            await ctx.become_task()
        return {"squares": [1, 4, 9]}

    async with memory_wire(server, MODERN, capabilities=TAKES) as wire:
        direct = await wire.call("tool", task=False)
        task = await wait_for(wire, await begin(wire, "tool", task=True))
        assert task["result"] == direct


async def test_other_peoples_unknown_and_expired_ids_are_alike() -> None:
    """TASK-030, TASK-038, S26-200: for get, update and cancel, with one text."""
    stage = TaskStage(tasks=TaskSettings(keep=5))
    now = 1000.0
    stage.tasks.clock = lambda: now
    async with stage.wire() as wire:
        expired = await begin(wire, "fails")
        await wait_for(wire, expired)
        now += 6
        errors = []
        for task_id in (expired, "made-up"):
            for method in ("get", "update", "cancel"):
                errors.append(await wire.error(f"tasks/{method}", {"taskId": task_id, "inputResponses": {}}))
        assert {(error["code"], error["message"]) for error in errors} == {
            (UNKNOWN, "Task not found: it has expired or never existed")
        }


async def test_an_end_is_an_end() -> None:
    """TASK-031, TASK-032, TASK-045, TASK-048: later answers, cancellations and results change nothing."""
    stage = TaskStage()
    async with stage.wire() as wire:
        done = await begin(wire, "fails")
        before = await wait_for(wire, done)
        await update(wire, done, {"question-1": accept("x")})
        assert await stage.server.tasks.finish(done, "other") is False
        assert await stage.server.tasks.fail(done, "other") is False
        assert await stage.server.tasks.note(done, "other") is False
        for _ in range(3):
            assert set(await wire.result("tasks/cancel", {"taskId": done})) <= {"resultType", "_meta"}
        assert await get(wire, done) == before

        cancelled = await begin(wire, "plain")
        await wire.result("tasks/cancel", {"taskId": cancelled})
        stage.thread_gate.set()
        await until(lambda: stage.ended == ["plain"])
        assert await status(wire, cancelled) == "cancelled"


async def test_a_poll_changes_nothing() -> None:
    """TASK-033, TASK-036: it does not block, two in a row are equal, and hundreds are answered."""
    stage = TaskStage()
    async with stage.wire() as wire:
        for tool, expected in (("work", "working"), ("ask", "input_required"), ("fails", "completed")):
            task_id = await begin(wire, tool)
            first = await wait_for(wire, task_id, expected)
            for _ in range(100):
                assert await get(wire, task_id) == first


async def test_how_long_a_task_lives_and_how_often_it_is_asked_for() -> None:
    """TASK-034: ttlMs grows while it works, and nothing is dropped before; the interval grows with the age."""
    stage = TaskStage(tasks=TaskSettings(keep=60, max_ttl=600))
    now = 1000.0
    stage.tasks.clock = lambda: now
    async with stage.wire() as wire:
        task_id = await begin(wire, "work")
        intervals = {}
        for age in (0, 9, 11, 119, 121, 599, 601, 1201):
            now = 1000.0 + age
            task = await get(wire, task_id)
            assert task["ttlMs"] >= age * 1000
            intervals[age] = task["pollIntervalMs"]
            if age in (0, 601, 1201):
                assert task["ttlMs"] == 600_000 * (1 + age // 600)
        assert list(intervals.values()) == [500, 500, 2000, 2000, 5000, 5000, 5000, 5000]
        stage.gate.set()
        done = await wait_for(wire, task_id)
        assert done["ttlMs"] == (1201 + 60) * 1000
        assert "pollIntervalMs" not in done
        now = 1000.0 + 1201 + 59
        assert await status(wire, task_id) == "completed"


@each_wire
async def test_progress_is_the_status_message(open_wire: Any) -> None:
    """TASK-053, S26-202: no progress and no message about a task is sent, and the log is the server's.

    The same tool sends both in an ordinary call, so that the test would see them.
    """
    server = Server("t")
    begun, gate = asyncio.Event(), asyncio.Event()

    async def report(ctx: Context) -> str:
        await begun.wait()
        await ctx.progress(3, 40, "frame")
        await ctx.info("frame 3")
        await gate.wait()
        return ""

    server.add_tool(report, name="task", task="required")
    server.add_tool(report, name="call")
    async with open_wire(server, MODERN, capabilities=TAKES) as wire:
        meta = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}
        task_id = (await wire.result("tools/call", {"name": "task", "arguments": {}}, meta=meta))["taskId"]
        begun.set()
        async with asyncio.timeout(60):
            while (await get(wire, task_id)).get("statusMessage") != "frame (3 of 40)":
                await between_looks()
        assert wire.heard == []
        gate.set()
        await wait_for(wire, task_id)
        await wire.result("tools/call", {"name": "call", "arguments": {}}, meta=meta)
        assert [message["method"] for message in wire.heard] == ["notifications/progress", "notifications/message"]


async def test_headers_have_to_agree() -> None:
    """TASK-055, TASK-056, S26-203: Mcp-Name is the task's id; methods of 2025-11-25 are gone."""
    stage = TaskStage()
    takes = envelope(capabilities=TAKES)
    async with serving(stage.server) as port:
        seed = await port.ask(modern("tools/call", {"name": "work", "arguments": {}}, meta=takes))
        params = {"taskId": seed.json["result"]["taskId"], "inputResponses": {}}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for name in (None, "another"):
                refused = await port.ask(modern(method, params, {"Mcp-Name": name}, meta=takes))
                assert (refused.status, refused.code) == (400, -32020)
            assert (await port.ask(modern(method, params, meta=takes))).status == 200
        for method in ("tasks/result", "tasks/list"):
            gone = await port.ask(modern(method, params, meta=takes))
            assert (gone.status, gone.code) == (404, -32601)
    await stage.end()


# -------------------------------------------------------------------------------------- answers


@each_wire
async def test_some_of_the_answers_will_do(open_wire: Any) -> None:
    """TASK-037, TASK-039, TASK-040, S26-197: the ack is empty, an answered key is gone at once, others are ignored."""
    stage = TaskStage()
    async with stage.wire(open_wire) as wire:
        task_id = await begin(wire, "both")
        await wait_for(wire, task_id, "input_required")
        ack = await update(wire, task_id, {"a": accept("Ada") | {"extra": 1}, "never": accept("x")})
        assert set(ack) == {"resultType", "_meta"}
        left = await get(wire, task_id)
        assert (left["status"], list(left["inputRequests"])) == ("input_required", ["b"])
        await update(wire, task_id, {"a": accept("another")})
        await update(wire, task_id, {"b": accept("Bob")})
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "Ada and Bob"
        assert set(await update(wire, task_id, {"b": accept("late")})) == {"resultType", "_meta"}


async def test_no_key_comes_twice() -> None:
    """TASK-041, S26-196."""
    server = Server("t")

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return " ".join([(await ctx.elicit("Who?", str, key="who")).get() for _ in range(3)])

    async with memory_wire(server, MODERN, capabilities=TAKES) as wire:
        task_id = await begin(wire, "tool")
        keys: list[str] = []
        for number in range(3):
            asked = await wait_for(wire, task_id, "input_required")
            keys += asked["inputRequests"]
            if number:
                await update(wire, task_id, {keys[0]: {"action": "accept", "content": {"value": "old"}}})
            await update(wire, task_id, {keys[-1]: {"action": "accept", "content": {"value": str(number)}}})
        assert len(set(keys)) == 3
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "0 1 2"


@pytest.mark.parametrize("version", [MODERN, LEGACY_TASKS])
async def test_a_question_may_have_a_time_limit(version: str) -> None:
    """Inside a task `timeout=` ends the wait, and closes the question."""
    stage = TaskStage()

    @stage.server.tool(task="required")
    async def hurried(ctx: Context) -> str:
        with pytest.raises(RequestTimeout, match="within 0.001 s"):
            await ctx.ask(0.001, a=elicit_form("A?", Name), b=elicit_form("B?", Name))
        return (await ctx.elicit("Who?", Name, timeout=3600)).get().name

    async with stage.wire(version=version, capabilities=TAKES) as wire:
        task_id = await begin(wire, "hurried")
        run = stage.tasks.runs[task_id]
        await until(lambda: run.record is not None and run.record.asks.keys() == {"question-1"})
        async with memory_wire(stage.server, MODERN, capabilities=TAKES) as other:
            await answer(other, task_id, a="late", question_1="Ada")
            task = await wait_for(other, task_id)
        assert task["result"]["content"][0]["text"] == "Ada"


async def test_a_question_that_nobody_waits_for_is_closed() -> None:
    """TASK-024: the tool has gone on after a time, so the task works."""
    stage = TaskStage()

    @stage.server.tool(task="required")
    async def hurries(ctx: Context) -> str:
        asking = asyncio.ensure_future(ctx.ask(a=elicit_form("A?", Name), b=elicit_form("B?", Name)))
        await stage.gate.wait()
        asking.cancel()
        await asyncio.wait([asking])
        return str((await ctx.elicit("C?", Name)).get().name)

    async with stage.wire() as wire:
        task_id = await begin(wire, "hurries")
        assert set((await wait_for(wire, task_id, "input_required"))["inputRequests"]) == {"a", "b"}
        stage.gate.set()
        await until(lambda: stage.tasks.runs[task_id].record.asks.keys() == {"question-1"})  # type: ignore[union-attr]
        await answer(wire, task_id, a="late", question_1="Ada")
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "Ada"


async def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    """TASK-042: under a new key, three times; then the tool fails."""
    stage = TaskStage()
    async with stage.wire() as wire:
        task_id = await begin(wire, "ask")
        keys = []
        for _ in range(4):
            asked = await wait_for(wire, task_id, "input_required")
            keys += asked["inputRequests"]
            await update(wire, task_id, {keys[-1]: accept(["not", "a", "name"])})
        done = await wait_for(wire, task_id)
        assert done["result"]["isError"] is True
        assert "cannot be used" in done["result"]["content"][0]["text"]
        assert len(set(keys)) == 4


async def test_only_what_the_creating_request_declared_is_asked() -> None:
    """TASK-043, S26-089: whatever later requests declare."""
    stage = TaskStage()
    async with stage.wire(capabilities={"extensions": {TASKS: {}}}) as wire:
        task_id = await begin(wire, "ask")
        wire.capabilities = TAKES
        done = await wait_for(wire, task_id)
        assert (done["status"], done["error"]["code"]) == ("failed", -32021)


async def test_answers_to_a_task_that_has_ended_are_ignored() -> None:
    """TASK-044."""
    stage = TaskStage()
    async with stage.wire() as wire:
        task_id = await begin(wire, "ask")
        await wait_for(wire, task_id, "input_required")
        await wire.result("tasks/cancel", {"taskId": task_id})
        await answer(wire, task_id, question_1="Ada")
        assert (await get(wire, task_id))["status"] == "cancelled"


# ----------------------------------------------------------------------------------- cancelling


@each_wire
@pytest.mark.parametrize("tool", ["work", "plain", "ask"])
async def test_a_cancelled_task_is_cancelled(open_wire: Any, tool: str) -> None:
    """TASK-045, TASK-046: acked like an update; async functions stop, plain ones are told."""
    stage = TaskStage()
    async with stage.wire(open_wire) as wire:
        task_id = await begin(wire, tool)
        if tool == "ask":
            await wait_for(wire, task_id, "input_required")
        else:
            await entered(stage)
        assert set(await wire.result("tasks/cancel", {"taskId": task_id})) == {"resultType", "_meta"}
        task = await get(wire, task_id)
        assert task["status"] == "cancelled"
        if tool == "ask":
            await until(lambda: stage.contexts[0].is_cancelled)
        else:
            await until(lambda: stage.ended == [tool])
        assert stage.tasks.runs == {}


@each_wire
async def test_leaving_does_not_cancel_a_task(open_wire: Any) -> None:
    """TASK-047, S25-046: neither a notification nor a closed stream, once it was announced."""
    stage = TaskStage()
    async with stage.wire(open_wire) as wire:
        request_id = wire.ask("tools/call", {"name": "work", "arguments": {}})
        task_id = (await wire.answer(request_id))["result"]["taskId"]
        wire.cancel(request_id)
        assert await status(wire, task_id) == "working"
        stage.gate.set()
        assert (await wait_for(wire, task_id))["status"] == "completed"


async def test_work_that_was_done_first_stays_done() -> None:
    """TASK-048: also if the work ends while the cancellation is being processed, whoever of them is first."""
    stage = TaskStage()
    async with stage.wire() as wire:
        task_id = await begin(wire, "work")
        await entered(stage)
        watched: list[str] = []
        stage.tasks.watch(task_id, lambda record: watched.append("" if record is None else record.status))
        stage.gate.set()
        cancelling = wire.ask("tasks/cancel", {"taskId": task_id})  # the work is ready to end when this arrives
        await wire.answer(cancelling)
        await until(lambda: not stage.tasks.runs)
        task = await get(wire, task_id)
        assert watched == [task["status"]]
        assert ("result" in task) is (task["status"] == "completed")

        done = await begin(wire, "work")
        before = await wait_for(wire, done)
        for _ in range(2):
            await wire.result("tasks/cancel", {"taskId": done})
        assert await get(wire, done) == before
        assert before["result"]["content"][0]["text"] == "done"


async def test_a_thousand_cancellations_leave_nothing_behind() -> None:
    stage = TaskStage(tasks=TaskSettings(running=1000, running_each=1000, kept_each=1000))
    async with stage.wire() as wire:
        for _ in range(1000):
            await wire.result("tasks/cancel", {"taskId": await begin(wire, "work")})
        await until(lambda: len(stage.ended) == 1000)
        tasks = stage.tasks
        assert (tasks.runs, tasks.results, tasks.asking) == ({}, {}, {})
        assert not tasks.counted
