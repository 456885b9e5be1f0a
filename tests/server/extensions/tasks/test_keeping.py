"""Whose tasks are whose, how many there may be, and where they are kept.

Spec: tasks-extension, security implications; 2025-11-25 basic/utilities/tasks, security considerations.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import stat
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import Clock, turns, until
from support.http_peer import envelope, modern, post, serving
from support.redis_server import NEEDS_REDIS, RedisServer
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
from support.wires import MODERN, memory_wire, process_wire, websocket_wire

from mcpd import Context, Principal, Refusal, Server, TaskSettings, elicit_form
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.backplane.memory import MemoryBackplane

takes = envelope(capabilities=TAKES)


def authenticate(headers: Mapping[str, str]) -> Principal | Refusal:
    token = headers.get("authorization", "").removeprefix("Bearer ")
    return Principal(token) if token else Refusal(401, "who?")


def by(name: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {name}"}


# --------------------------------------------------------------------------------------- owners


async def test_a_task_is_its_owners_alone() -> None:
    """TASK-030, TASK-050, TASK-072, AUTH-069, S25-137, S25-139, S26-209: for every method, in both forms."""
    stage = TaskStage(authenticate=authenticate)
    async with serving(stage.server) as port:

        async def ask(name: str, method: str, params: dict[str, Any]) -> Any:
            got = await port.ask(modern(method, params, by(name), meta=takes))
            return got.json.get("result") or got.json["error"]["code"]

        task_id = (await ask("ada", "tools/call", {"name": "ask", "arguments": {}}))["taskId"]
        await until(lambda: stage.contexts)
        params = {"taskId": task_id, "inputResponses": {"question-1": {"action": "decline"}}}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert await ask("bob", method, params) == -32602
        assert (await ask("ada", "tasks/get", params))["status"] == "input_required"

        peer = await port.connect()
        peer.send(modern("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}, by("bob"), meta=takes))
        await peer.head()
        assert (await peer.message())["params"]["notifications"] == {"taskIds": []}

        lists = {}
        for name in ("ada", "bob"):
            hello = {"protocolVersion": LEGACY_TASKS, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            opened = await port.ask(post(message, by(name)))
            assert "list" in opened.messages[0]["result"]["capabilities"]["tasks"]
            session = {**by(name), "Mcp-Session-Id": opened["mcp-session-id"]}
            listing = await port.ask(post({"jsonrpc": "2.0", "id": 1, "method": "tasks/list"}, session))
            lists[name] = [task["taskId"] for task in listing.messages[0]["result"]["tasks"]]
            if name == "bob":
                for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                    message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": {"taskId": task_id}}
                    assert (await port.ask(post(message, session))).messages[0]["error"]["code"] == -32602
        assert lists == {"ada": [task_id], "bob": []}
    await stage.end()


async def test_without_principals_the_id_alone_opens() -> None:
    """TASK-072, S25-138: from any connection."""
    stage = TaskStage()
    async with stage.wire() as one, memory_wire(stage.server, MODERN, capabilities=TAKES) as other:
        task_id = await begin(one, "work")
        await other.result("tasks/cancel", {"taskId": task_id})
        assert await status(one, task_id) == "cancelled"


async def test_nothing_secret_is_stored() -> None:
    """TASK-078: neither a token nor an argument, unless the task may run again; the owner is a digest."""
    kept: dict[str, bytes] = {}

    class Watched(MemoryBackplane):
        async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
            kept[key] = value
            return await super().set(key, value, ttl, only_new=only_new)

    stage = TaskStage(authenticate=authenticate)
    stage.server.extensions[TASKS].task_store = Watched()  # type: ignore[attr-defined]
    async with serving(stage.server) as port:
        call = {"name": "work", "arguments": {"text": "my secret"}}
        await port.ask(modern("tools/call", call, by("hunter2"), meta=takes))
        stored = b"".join(key.encode() + value for key, value in kept.items())
        assert b"work" in stored
        for secret in (b"hunter2", b"secret", Principal("hunter2").id.encode()):
            assert secret not in stored
    await stage.end()


async def test_what_happens_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """TASK-080: with the beginning of the id, the tool and the owner's digest, and no argument."""
    stage = TaskStage()
    with caplog.at_level(logging.DEBUG, "mcpd.tasks"):
        async with stage.wire() as wire:
            task_id = await begin(wire, "ask", times=1)
            await wait_for(wire, task_id, "input_required")
            await answer(wire, task_id, question_1="hunter2")
            await wait_for(wire, task_id)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" (")[0].split(" ", 2)[2] for line in lines] == [
        "created",
        "asked",
        "answered",
        "ended: completed",
    ]
    assert all(line.startswith(f"task {task_id[:8]} ") and "tool ask, owner nobody" in line for line in lines)
    assert not any(task_id in line or "hunter2" in line for line in lines)


# --------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("limit", ["running", "running_each", "kept_each"])
async def test_over_a_limit(limit: str) -> None:
    """TASK-074: an auto tool stays in its request, a required one says which limit; after an end there is room."""
    stage = TaskStage(tasks=TaskSettings(**{limit: 2}))
    async with stage.wire() as wire:
        ids = [await begin(wire, tool) for tool in ("work", "auto")]
        refused = await wire.error("tools/call", {"name": "work", "arguments": {}})
        assert refused["code"] == -32603
        assert f"setting {limit} of TaskSettings" in refused["message"]
        request_id = wire.ask("tools/call", {"name": "auto", "arguments": {"text": "inside"}})
        await entered(stage, 3)
        await turns()
        stage.gate.set()
        assert (await wire.answer(request_id))["result"]["content"][0]["text"] == "inside"
        for task_id in ids:
            await wait_for(wire, task_id)
        if limit != "kept_each":
            await begin(wire, "work")


async def test_an_anonymous_client_with_many_connections_has_one_share() -> None:
    """TASK-074: each WebSocket has tasks of its own, but the limits are those of the client."""
    stage = TaskStage(tasks=TaskSettings(running_each=1))
    async with stage.wire(websocket_wire, LEGACY_TASKS) as one, stage.wire(websocket_wire, LEGACY_TASKS) as other:
        await begin(one, "work")
        refused = await other.error("tools/call", {"name": "work", "arguments": {}, "task": {}})
        assert "running_each" in refused["message"]


async def test_a_task_that_waits_for_its_client_takes_no_place() -> None:
    """TASK-074: nobody can stop others by leaving questions open."""
    stage = TaskStage(tasks=TaskSettings(running=2))
    async with stage.wire() as wire:
        for _ in range(5):
            await wait_for(wire, await begin(wire, "ask"), "input_required")
        assert not stage.tasks.counted


async def test_a_result_that_is_too_large_is_an_error() -> None:
    """TASK-074: no result over the limit is kept."""
    stage = TaskStage(tasks=TaskSettings(result_bytes=1000))
    async with stage.wire() as wire:
        stage.gate.set()
        task = await wait_for(wire, await begin(wire, "work", text="x" * 1000))
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)
        assert "too large" in task["statusMessage"]


async def test_what_a_finished_task_keeps_is_limited() -> None:
    """TASK-075: neither a long message nor `_meta` of the call stays when the task has ended."""
    stage = TaskStage()

    @stage.server.tool(task="required")
    async def says(ctx: Context, text: str) -> str:
        await ctx.become_task(text)
        return ""

    async with stage.wire() as wire:
        text = "x" * 400_000
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(10):
                meta = {"com.example/mark": f"{number}{text}"}
                params = {"name": "says", "arguments": {"text": f"{number}{text}"}}
                task = await wait_for(wire, (await wire.result("tools/call", params, meta=meta))["taskId"])
                assert (len(task["statusMessage"]), task["statusMessage"][-1]) == (1000, "…")
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] - before < 3 * len(text)
        finally:
            tracemalloc.stop()


async def test_a_clock_that_is_set_back() -> None:
    """TASK-018, TASK-034: no time is before the creation, and what is kept is kept as long as always."""
    stage, now = TaskStage(), [50_000.0]
    stage.tasks.clock = lambda: now[0]  # type: ignore[method-assign]
    async with stage.wire() as wire:
        task_id = await begin(wire, "work")
        await entered(stage)
        now[0] -= 7200
        stage.gate.set()
        task = await wait_for(wire, task_id)
        assert task["lastUpdatedAt"] == task["createdAt"]
        assert task["ttlMs"] == 900_000


async def test_expired_tasks_are_gone() -> None:
    """TASK-075: within a minute, also from memory; what is finished is bounded by the limits."""
    stage = TaskStage(tasks=TaskSettings(keep=900, kept_each=50))
    now = 1000.0
    stage.tasks.clock = lambda: now
    async with stage.wire() as wire:
        clock = Clock()
        stage.gate.set()
        for _ in range(3):
            for _ in range(50):
                await wait_for(wire, await begin(wire, "work", text="x" * 10_000))
            assert (await wire.error("tools/call", {"name": "work", "arguments": {}}))["code"] == -32603
            store: Any = stage.tasks.store
            assert len(store) == 50
            now += 902
            await clock.advance(60)
            await until(lambda: not stage.tasks._kept)
            assert len(store) == 0


@pytest.mark.unmeasured  # measuring lines keeps a memory of its own for each frame that waits
@pytest.mark.medium
@pytest.mark.parametrize("tool", ["wait", "parked"])
async def test_a_waiting_task_takes_little_memory(tool: str) -> None:
    """TASK-075: at most 4 KiB with its coroutines and its record, and with a question and its form."""
    number = 300
    stage = TaskStage(tasks=TaskSettings(running=number, running_each=number, kept_each=number))

    @stage.server.tool(task="required")
    async def wait() -> str:
        await stage.gate.wait()
        return ""

    @stage.server.tool(task="required")
    async def parked(ctx: Context) -> str:
        return (await ctx.elicit("Who?", Name)).get().name

    # The client is in the same process.
    server_only = [tracemalloc.Filter(False, each) for each in ("*/tests/*", "*/json/*", tracemalloc.__file__)]
    async with stage.wire() as wire:
        wire.talk.client = wire.talk.server = lambda message: None  # type: ignore[method-assign]
        for _ in range(20):
            await begin(wire, tool)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.take_snapshot().filter_traces(server_only)
        for _ in range(number - 20):
            await begin(wire, tool)
        gc.collect()
        found = tracemalloc.take_snapshot().filter_traces(server_only).compare_to(before, "filename")
        tracemalloc.stop()
        assert sum(each.size_diff for each in found) / (number - 20) <= 4096


# --------------------------------------------------------------------------------------- stores


@asynccontextmanager
async def each_store(kind: str, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a store of this kind."""
    if kind == "sqlite":
        yield f"sqlite://{tmp_path}/tasks/tasks.db"
        return
    with RedisServer() as redis:
        yield redis.url


stores = pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=NEEDS_REDIS)])


async def kill(stage: TaskStage) -> None:
    """What is left of a process that was killed: nothing but its records, and soon not its key."""
    tasks = stage.tasks

    async def nothing(*_: Any) -> bool:
        return False

    tasks.end_run = tasks.give_away = nothing  # type: ignore[method-assign, assignment]
    works = [run.work for run in tasks.runs.values() if run.work is not None]
    tasks.abort()
    stage.thread_gate.set()
    if works:
        await asyncio.wait(works)
    await tasks.aclose()


@stores
async def test_tasks_outlive_a_process(kind: str, tmp_path: Path) -> None:
    """TASK-076, TASK-077: finished ones are kept, retry ones begin again, the others fail with a clear error."""
    async with each_store(kind, tmp_path) as url:
        old = TaskStage(task_store=url)
        async with memory_wire(old.server, MODERN, capabilities=TAKES) as wire:
            done = await begin(wire, "fails")
            before = await wait_for(wire, done)
            lost = await begin(wire, "work")
            again = await begin(wire, "again", text="second time")
            asked = await begin(wire, "ask")
            await entered(old, 2)
            await wait_for(wire, asked, "input_required")
        await kill(old)

        new = TaskStage(task_store=url)
        await new.server.extensions[TASKS].start()
        async with new.wire() as wire:
            assert await get(wire, done) == before
            for task_id in (lost, asked):
                task = await get(wire, task_id)
                assert (task["status"], task["error"]["code"]) == ("failed", -32603)
                assert "has ended before" in task["statusMessage"]
            assert await status(wire, again) == "working"
            await entered(new)
            new.gate.set()
            task = await wait_for(wire, again)
            assert task["result"]["content"][0]["text"] == "second time"
            assert (old.entered.count("again"), new.entered) == (1, ["again"])


@stores
async def test_a_task_begins_no_more_often_than_it_may(kind: str, tmp_path: Path) -> None:
    """TASK-077: once, and once more for each retry."""
    async with each_store(kind, tmp_path) as url:
        began = []
        task_id = ""
        for _ in range(3):
            stage = TaskStage(task_store=url)
            await stage.server.extensions[TASKS].start()
            async with memory_wire(stage.server, MODERN, capabilities=TAKES) as wire:
                task_id = task_id or await begin(wire, "again")
                if await status(wire, task_id) == "working":
                    await entered(stage)
                    began.append(task_id)
            await kill(stage)
        assert len(began) == 2
        stage = TaskStage(task_store=url)
        async with stage.wire() as wire:
            assert await status(wire, task_id) == "failed"


@stores
async def test_an_orderly_stop_is_no_attempt(kind: str, tmp_path: Path) -> None:
    """TASK-077: rolling reloads do not use up the one retry, which is left for a crash."""
    async with each_store(kind, tmp_path) as url:
        task_id = ""
        for end in (TaskStage.end, TaskStage.end, TaskStage.end, kill, TaskStage.end, kill):
            stage = TaskStage(task_store=url)
            await stage.server.extensions[TASKS].start()
            async with memory_wire(stage.server, MODERN, capabilities=TAKES) as wire:
                task_id = task_id or await begin(wire, "again")
                await entered(stage)
            await end(stage)
        stage = TaskStage(task_store=url)
        async with stage.wire() as wire:
            assert await status(wire, task_id) == "failed"
            assert stage.entered == []


@stores
async def test_a_server_that_stops_gives_its_tasks_away(kind: str, tmp_path: Path) -> None:
    """TASK-076: retry ones are left to other processes, the others end with an error, after their time of grace."""
    async with each_store(kind, tmp_path) as url:
        old = TaskStage(task_store=url)
        async with old.wire() as wire:
            lost, again = await begin(wire, "work"), await begin(wire, "again")
            await entered(old, 2)
        new = TaskStage(task_store=url)
        await new.server.extensions[TASKS].start()
        async with new.wire() as wire:
            task = await get(wire, lost)
            assert (task["status"], "was stopped" in task["statusMessage"]) == ("failed", True)
            await entered(new)
            new.gate.set()
            assert (await wait_for(wire, again))["status"] == "completed"


async def test_running_again_has_the_answers_and_the_state() -> None:
    """TASK-076: the function begins at the top, and is not asked again what it was told."""
    backplane = MemoryBackplane()

    def stage() -> tuple[Server, list[Any]]:
        server, seen = Server("again"), []
        server.extensions[TASKS].task_store = Shared(backplane)  # type: ignore[attr-defined]

        @server.tool(task="required", retry=True)
        async def tool(ctx: Context) -> str:
            first = (await ctx.elicit("First?", Name)).get().name
            ctx.state.setdefault("runs", []).append(first)
            seen.append((first, len(ctx.state["runs"])))
            second = (await ctx.elicit("Second?", Name)).get().name
            return f"{first} {second}"

        return server, seen

    one, seen = stage()
    async with memory_wire(one, MODERN, capabilities=TAKES) as wire:
        task_id = await begin(wire, "tool")
        await wait_for(wire, task_id, "input_required")
        await answer(wire, task_id, question_1="Ada")
        await until(lambda: seen)
        await wait_for(wire, task_id, "input_required")
    await one.extensions[TASKS].work.finish(0)  # type: ignore[union-attr]
    await one.extensions[TASKS].aclose()

    other, seen = stage()
    await other.extensions[TASKS].start()
    async with memory_wire(other, MODERN, capabilities=TAKES) as wire:
        asked = await wait_for(wire, task_id, "input_required")
        assert seen == [("Ada", 2)]
        (key,) = asked["inputRequests"]
        await answer(wire, task_id, **{key.replace("-", "_"): "Bob"})
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "Ada Bob"


class Shared:
    """A backplane in memory that two servers of one process share as if they were two nodes."""

    def __init__(self, real: MemoryBackplane) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("redis", marks=NEEDS_REDIS)])
async def test_two_nodes_have_the_same_tasks(kind: str, tmp_path: Path) -> None:
    """TASK-015, TASK-040, TASK-046, TASK-051, TASK-062: each method works on the node that does not run the task.

    No node waits for the time when it renews its lease.
    """
    backplane = MemoryBackplane()
    one, other = TaskStage(), TaskStage()
    async with AsyncExitStack() as stack:
        url = stack.enter_context(RedisServer()).url if kind == "redis" else ""
        if kind == "sqlite":
            url = f"sqlite://{tmp_path}/tasks.db"
        for stage in (one, other):
            stage.tasks.renew_every, stage.tasks.look_every = 10**6, 0.001
            stage.server.extensions[TASKS].task_store = url or Shared(backplane)  # type: ignore[attr-defined]
            await stage.server.extensions[TASKS].start()
        here = await stack.enter_async_context(one.wire())
        there = await stack.enter_async_context(other.wire())
        task_id = await begin(here, "ask", times=2)
        asked = await wait_for(there, task_id, "input_required")
        request_id = there.ask("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        await there.receive()
        assert (await there.receive())["params"]["status"] == "input_required"
        async with memory_wire(other.server, LEGACY_TASKS) as old:
            waiting = old.ask("tasks/result", {"taskId": task_id})
            for name in ("Ada", "Bob"):
                asked = await wait_for(there, task_id, "input_required")
                (key,) = asked["inputRequests"]
                await answer(there, task_id, **{key.replace("-", "_"): name})
                # At once on the node that runs the task, too, whatever it has heard.
                for wire in (here, there):
                    assert key not in (await get(wire, task_id)).get("inputRequests", {})
            assert (await old.answer(waiting))["result"]["content"][0]["text"] == "Ada, Bob"
        assert (await get(here, task_id))["status"] == "completed"
        there.cancel(request_id)
        cancelled = await begin(here, "work")
        await there.result("tasks/cancel", {"taskId": cancelled})
        await until(lambda: one.ended == ["work"])
        assert await status(here, cancelled) == "cancelled"


async def test_a_node_that_was_given_up_does_not_speak_for_its_task() -> None:
    """TASK-031, TASK-077: it was silent for too long, another has its task, and its late outcome counts for nothing."""
    backplane = MemoryBackplane()
    one, other = TaskStage(), TaskStage()
    for stage in (one, other):
        stage.server.extensions[TASKS].task_store = Shared(backplane)  # type: ignore[attr-defined]
    async with one.wire() as here, other.wire() as there:
        task_id = await begin(here, "again")
        await entered(one)
        await one.tasks.store.leave()  # as if its key had expired
        await other.server.extensions[TASKS].start()
        await entered(other)
        await until(lambda: one.ended)  # it was told
        other.gate.set()
        assert (await wait_for(there, task_id))["status"] == "completed"
        assert one.tasks.runs == {}


async def test_a_node_that_was_silent_keeps_what_nobody_has_taken() -> None:
    """TASK-077: as after a sleep of the machine, the tasks neither fail nor begin again beside themselves."""
    backplane = MemoryBackplane()
    stage, other = TaskStage(), TaskStage()
    for each in (stage, other):
        each.server.extensions[TASKS].task_store = Shared(backplane)  # type: ignore[attr-defined]
    tasks = stage.tasks
    tasks.renew_every = 0.001
    async with stage.wire() as wire:
        ids = [await begin(wire, tool) for tool in ("work", "again")]
        await entered(stage, 2)
        before = tasks.store.node
        await backplane.delete(tasks.store._alive(before))  # as if it had expired
        await until(lambda: tasks.runs[ids[1]].node == tasks.store.node != before)
        await other.server.extensions[TASKS].start()
        stage.gate.set()
        assert [(await wait_for(wire, task_id))["status"] for task_id in ids] == ["completed"] * 2
        assert stage.entered.count("again") == 1
    await other.end()


class Slow(Shared):
    """A store that writes once `gate` is open."""

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__(MemoryBackplane())
        self._gate = gate

    async def set(self, *arguments: Any, **options: Any) -> bool:
        await self._gate.wait()
        return await MemoryBackplane.set(self._real, *arguments, **options)


async def test_a_call_that_is_cancelled_while_it_is_stored_takes_no_place() -> None:
    """TASK-047, TASK-074: otherwise a client that cancels often soon could not have any task."""
    stage, gate = TaskStage(tasks=TaskSettings(running_each=1)), asyncio.Event()
    stage.server.extensions[TASKS].task_store = Slow(gate)  # type: ignore[attr-defined]
    async with stage.wire() as wire:
        for tool in ("work", "auto", "again"):
            request_id = wire.ask("tools/call", {"name": tool, "arguments": {}})
            await until(lambda: stage.tasks.counted)
            wire.cancel(request_id)
            await until(lambda: not stage.tasks.counted)
        gate.set()
        stage.gate.set()
        assert (await wait_for(wire, await begin(wire, "work")))["status"] == "completed"
        assert stage.tasks.runs == {}


@pytest.mark.parametrize("pause", range(12))
async def test_a_call_that_is_cancelled_as_its_time_ends_leaves_no_task(pause: int) -> None:
    """TASK-047: whatever is first in a turn of the event loop, no record says that the work has failed."""
    stage, gate = TaskStage(), asyncio.Event()
    stage.server.extensions[TASKS].task_store = Slow(gate)  # type: ignore[attr-defined]
    async with stage.wire() as wire:
        request_id = wire.ask("tools/call", {"name": "auto", "arguments": {}})
        await turns(pause)
        wire.cancel(request_id)
        gate.set()
        await wire.call("greet")
        await turns(50)
        await until(lambda: stage.ended == stage.entered and not stage.tasks._background and not stage.tasks.counted)
        assert sum(map(len, stage.tasks._kept.values())) == 0


@pytest.mark.parametrize("pause", range(6))
async def test_a_client_that_leaves_as_its_call_becomes_a_task_leaves_one_only_if_it_was_told(pause: int) -> None:
    """TASK-047: the connection ends in the same turns of the loop in which the call becomes a task."""
    stage, gate = TaskStage(), asyncio.Event()

    @stage.server.tool(task="auto", task_after=None)
    async def turning(ctx: Context) -> None:
        stage.entered.append("turning")
        await gate.wait()
        await ctx.become_task()
        await stage.gate.wait()

    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(modern("tools/call", {"name": "turning", "arguments": {}}, meta=takes))
        await entered(stage)
        (connection,) = port.listener._state.connections
        gate.set()
        await turns(pause)
        connection.transport.abort()
        was_told = b"taskId" in await peer.rest()
        await until(lambda: not stage.tasks._background and len(stage.tasks.runs) == was_told)
        assert len(stage.tasks.store) == was_told  # type: ignore[arg-type]
        stage.gate.set()


@pytest.mark.medium
async def test_a_store_that_is_away() -> None:
    """TASK-074: auto calls stay in their request, required ones fail; own tasks go on, and end once it is back."""

    class Away(MemoryBackplane):
        is_away = False

        async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
            self._check()
            return await super().swap(key, old, new, ttl)

        async def get(self, key: str) -> bytes | None:
            self._check()
            return await super().get(key)

        async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
            self._check()
            return await super().set(key, value, ttl, only_new=only_new)

        def _check(self) -> None:
            if self.is_away:
                raise BackplaneAway("away")

    stage = TaskStage()
    stage.server.extensions[TASKS].task_store = away = Away()  # type: ignore[attr-defined]
    async with stage.wire() as wire:
        task_id = await begin(wire, "work")
        await entered(stage)
        away.is_away = True
        assert (await wire.error("tools/call", {"name": "work", "arguments": {}}))["code"] == -32603
        assert await status(wire, task_id) == "working"
        assert (await wire.error("tasks/get", {"taskId": "of another"}))["code"] == -32603
        stage.gate.set()
        assert (await wire.call("auto"))["content"][0]["text"] == "done"
        await until(lambda: len(stage.ended) >= 1)
        away.is_away = False
        assert (await wait_for(wire, task_id))["status"] == "completed"


async def test_the_files_are_for_nobody_else(tmp_path: Path) -> None:
    """TASK-079."""
    folder = tmp_path / "tasks"
    stage = TaskStage(task_store=f"sqlite://{folder}/tasks.db")
    async with stage.wire() as wire:
        await begin(wire, "work")
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert {stat.S_IMODE(os.stat(folder / name).st_mode) for name in os.listdir(folder)} == {0o600}


SERVER = """
import asyncio
from mcpd import Server

server = Server("killed")
server.extensions["io.modelcontextprotocol/tasks"].tasks.lease = 0.5
server.extensions["io.modelcontextprotocol/tasks"].tasks.renew_every = 0.1

@server.tool(task="required")
async def work() -> str:
    await asyncio.Event().wait()

@server.tool(task="required")
async def quick() -> str:
    return "kept"
"""


async def test_a_daemon_that_was_killed_says_what_happened(child: Child, tmp_path: Path) -> None:
    """TASK-076: by SIGKILL in the middle, and a new start on the same file."""
    (tmp_path / "server.py").write_text(SERVER)
    arguments = [f"{tmp_path}/server.py", "--task-store", f"sqlite://{tmp_path}/tasks.db"]
    async with process_wire(child, *arguments) as wire:
        await wire.open(MODERN, TAKES)
        kept, lost = await begin(wire, "quick"), await begin(wire, "work")
        await wait_for(wire, kept)
        wire.process.kill()
    async with process_wire(child, *arguments) as wire:
        await wire.open(MODERN, TAKES)
        assert (await wait_for(wire, kept))["result"]["content"][0]["text"] == "kept"
        task = await wait_for(wire, lost)
        assert (task["status"], "has ended before" in task["error"]["message"]) == ("failed", True)


# -------------------------------------------------------------------- work that is done elsewhere


async def test_somebody_else_finishes_a_task() -> None:
    """A tool hands its task over; notes, questions and the end come through `server.tasks`."""
    stage = TaskStage()
    tasks = stage.server.tasks
    async with stage.wire() as wire:
        task_id = await begin(wire, "give")
        await until(lambda: not stage.tasks.runs)
        assert not stage.tasks.counted
        found = await tasks.find(task_id)
        assert found is not None
        assert (found.tool, found.status, found.id) == ("give", "working", task_id)
        assert await tasks.note(task_id, "building")
        assert (await get(wire, task_id))["statusMessage"] == "building"
        asking = asyncio.ensure_future(tasks.ask(task_id, elicit_form("Which?", Name)))
        await wait_for(wire, task_id, "input_required")
        await answer(wire, task_id, question="Ada")
        assert (await asking).get() == Name("Ada")
        assert await tasks.finish(task_id, {"built": 7})
        task = await get(wire, task_id)
        assert (task["status"], task["result"]["structuredContent"]) == ("completed", {"built": 7})

        failing = await begin(wire, "give")
        await until(lambda: not stage.tasks.runs)
        assert await tasks.fail(failing, "the runner exploded")
        assert (await get(wire, failing))["error"] == {"code": -32603, "message": "the runner exploded"}
        assert await tasks.find("made-up") is None
        assert not await tasks.finish("made-up", 1)


async def test_a_handed_over_task_ends_in_time() -> None:
    stage = TaskStage(tasks=TaskSettings(max_ttl=1000))
    now = 1000.0
    stage.tasks.clock = lambda: now
    async with stage.wire() as wire:
        task_id = await begin(wire, "give", keep=30)
        await until(lambda: not stage.tasks.runs)
        assert (await get(wire, task_id))["ttlMs"] == 30_000


async def test_whoever_waits_for_a_task_that_is_gone_is_told() -> None:
    stage = TaskStage()
    stage.tasks.renew_every = 0.001
    async with stage.wire(version=LEGACY_TASKS) as wire:
        task_id = await begin(wire, "give", keep=60)
        await until(lambda: not stage.tasks.runs)
        waiting = wire.ask("tasks/result", {"taskId": task_id})
        await until(lambda: stage.tasks.results)
        await stage.tasks.store.discard(task_id)  # as if its time had passed
        assert (await wire.answer(waiting))["error"]["code"] == -32602


async def test_a_client_without_tasks_cannot_be_handed_over() -> None:
    server = Server("t")

    @server.tool(task="auto")
    async def give(ctx: Context) -> str:
        return ctx.hand_over()

    async with memory_wire(server, MODERN) as wire:
        result = await wire.call("give")
        assert (result["isError"], "needs a client that takes tasks" in result["content"][0]["text"]) == (True, True)


# ------------------------------------------------------------------------- clients without tasks


@pytest.mark.parametrize("version", [MODERN, LEGACY_TASKS, "2024-11-05"])
async def test_a_client_without_tasks_gets_a_handle(version: str) -> None:
    """After a while the same tool answers with a text, and two tools ask for the result and stop the work."""
    stage = TaskStage(task_fallback="poll")
    stage.server.extensions[TASKS].fallback_after = 0.0  # type: ignore[attr-defined]
    fallback = TaskStage(task_fallback="poll")
    assert {"task_result", "task_cancel"} <= {tool.key for tool in fallback.server.catalog.tools}
    assert "task_result" not in {tool.key for tool in TaskStage().server.catalog.tools}

    server = handle_server()
    async with memory_wire(server, version) as wire:
        text = await wire.text("slow")
        task_id = next(word.rstrip(".") for word in text.split() if len(word) > 40)
        waiting = await wire.call("task_result", id=task_id, wait=0)
        assert waiting["isError"] is True
        assert "still works" in waiting["content"][0]["text"]
        request_id = wire.ask("tools/call", {"name": "task_result", "arguments": {"id": task_id}})
        await turns()
        GATES[server].set()
        assert (await wire.answer(request_id))["result"]["content"][0]["text"] == "at last"
        assert await wire.text("task_cancel", id=task_id) == "The task had ended already"
        unknown = await wire.call("task_result", id="made-up")
        assert unknown["isError"] is True

        GATES[server].clear()
        text = await wire.text("slow")
        task_id = next(word.rstrip(".") for word in text.split() if len(word) > 40)
        assert await wire.text("task_cancel", id=task_id) == "The task was stopped"


GATES: dict[Server, asyncio.Event] = {}


def handle_server() -> Server:
    server = Server("handles", task_fallback="poll")
    server.extensions[TASKS].fallback_after = 0.0  # type: ignore[attr-defined]
    GATES[server] = gate = asyncio.Event()

    @server.tool(task="auto")
    async def slow() -> str:
        await gate.wait()
        return "at last"

    return server
