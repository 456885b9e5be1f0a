"""Notifications of tasks on `subscriptions/listen`.

Spec: tasks-extension, task status notifications.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from support.clock import Clock, turns, until
from support.http_peer import envelope, modern, serving
from support.http_wire import http_wire
from support.task_stage import TAKES, TASKS, Name, TaskStage, answer, begin, get, wait_for
from support.wires import META, MODERN, Wire, memory_wire, stdio_wire, websocket_wire

from mcpd import Context

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])
SUBSCRIPTION = f"{META}subscriptionId"


async def listen(wire: Wire, *ids: str) -> tuple[Any, list[str]]:
    """Open a subscription; its id, and the tasks that were agreed."""
    request_id = wire.ask("subscriptions/listen", {"notifications": {"taskIds": list(ids)}})
    acknowledged = await wire.receive()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["_meta"] == {SUBSCRIPTION: request_id}
    return request_id, acknowledged["params"]["notifications"]["taskIds"]


async def told(wire: Wire) -> dict[str, Any]:
    """The next notification of a task."""
    message = await wire.receive()
    assert message["method"] == "notifications/tasks"
    params: dict[str, Any] = message["params"]
    return params


async def test_an_undeclared_client_gets_no_stream() -> None:
    """TASK-049, S26-201."""
    stage = TaskStage()
    async with serving(stage.server) as port:
        params = {"notifications": {"taskIds": ["x"]}}
        refused = await port.ask(modern("subscriptions/listen", params, meta=envelope()))
        assert (refused.status, refused.code) == (400, -32021)
        assert refused.error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@each_wire
async def test_a_subscription_is_told_of_each_change(open_wire: Any) -> None:
    """TASK-050, TASK-051, TASK-052, TASK-054, S26-034: one at once, one for each status, none after the last."""
    stage = TaskStage()
    async with stage.wire(open_wire) as wire:
        task_id = await begin(wire, "ask")
        await wait_for(wire, task_id, "input_required")
        request_id, agreed = await listen(wire, task_id, "made-up", task_id)
        assert agreed == [task_id]
        seen = [await told(wire)]
        await answer(wire, task_id, question_1="Ada")
        seen += wire.heard
        while seen[-1].get("params", seen[-1])["status"] != "completed":
            seen.append(await told(wire))
        params = [one.get("params", one) for one in seen]
        assert [one["status"] for one in params] == ["input_required", "working", "completed"]
        assert all(one.pop("_meta") == {SUBSCRIPTION: request_id} for one in params)
        assert not any("resultType" in one for one in params)
        polled = await get(wire, task_id)
        assert {key: value for key, value in polled.items() if key not in ("resultType", "_meta")} == params[-1]
        await wire.quiet()
        wire.cancel(request_id)


async def test_a_message_alone_is_told_once_a_second() -> None:
    """TASK-052: the newest one, and a change of status at once."""
    stage = TaskStage()
    async with stage.wire() as wire:
        clock = Clock()
        task_id = await begin(wire, "work")
        request_id, _ = await listen(wire, task_id)
        assert (await told(wire))["status"] == "working"
        for number in range(5):
            await stage.server.tasks.note(task_id, str(number))
        await turns()
        await wire.quiet()
        await clock.advance(1.1)
        assert (await told(wire))["statusMessage"] == "4"
        await stage.server.tasks.note(task_id, "last")
        stage.gate.set()
        assert (await told(wire))["status"] == "completed"
        wire.cancel(request_id)


@pytest.mark.medium
async def test_a_client_that_does_not_read_costs_little() -> None:
    """TASK-052: it gets the latest state of its task when it reads on, not each state since it stopped."""
    stage = TaskStage()
    text = "Who? " + "x" * 100_000
    records = [tracemalloc.Filter(True, "*/extensions/tasks/*")]

    @stage.server.tool(task="required")
    async def chat(ctx: Context) -> str:
        for _ in range(200):
            await ctx.elicit(text, Name)
        return "bye"

    takes = envelope(capabilities=TAKES)
    async with serving(stage.server) as port:

        async def ask(method: str, **params: Any) -> Any:
            return (await port.ask(modern(method, params, meta=takes))).json["result"]

        task_id = (await ask("tools/call", name="chat"))["taskId"]
        peer = await port.connect()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(modern("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}, meta=takes))
        await until(lambda: stage.tasks._watchers)
        tracemalloc.start()
        try:
            while (task := await ask("tasks/get", taskId=task_id))["status"] != "completed":
                declined = dict.fromkeys(task.get("inputRequests", {}), {"action": "decline"})
                await ask("tasks/update", taskId=task_id, inputResponses=declined)
            gc.collect()
            kept = tracemalloc.take_snapshot().filter_traces(records).statistics("filename")
            assert sum(each.size for each in kept) < 30 * len(text)
        finally:
            tracemalloc.stop()
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await peer.head()
        while (await peer.message())["params"].get("status") != "completed":
            pass
    await stage.end()


async def test_tasks_and_lists_share_a_subscription() -> None:
    """S26-034: and the tasks of a server without any are left out."""
    stage = TaskStage()
    async with stage.wire() as wire:
        task_id = await begin(wire, "work")
        wanted = {"notifications": {"taskIds": [task_id], "toolsListChanged": True}}
        request_id = wire.ask("subscriptions/listen", wanted)
        assert (await wire.receive())["params"]["notifications"] == wanted["notifications"]
        await told(wire)
        stage.server.add_tool(lambda: "", name="new")
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        wire.cancel(request_id)
        await wire.quiet()


async def test_a_server_without_tasks_leaves_them_out() -> None:
    from mcpd import Server

    server = Server("t")
    server.add_tool(lambda: "", name="tool")
    async with memory_wire(server, MODERN, capabilities=TAKES) as wire:
        request_id = wire.ask("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
        assert (await wire.receive())["params"]["notifications"] == {}
        wire.cancel(request_id)


async def test_no_more_tasks_than_a_subscription_may_have() -> None:
    stage = TaskStage()
    async with stage.wire() as wire:
        error = await wire.error("subscriptions/listen", {"notifications": {"taskIds": ["x"] * 1001}})
        assert error["code"] == -32602
