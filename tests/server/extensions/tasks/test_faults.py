"""Tasks while Redis fails, on real workers that are replaced, and when there are very many of them."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import between_looks, until
from support.drills import SERVER
from support.http_peer import envelope, modern
from support.redis_server import NEEDS_REDIS, RedisServer, redis_sentinels
from support.task_stage import LEGACY_TASKS, TAKES, TaskStage, answer, begin, entered, status, wait_for
from support.workers_stage import daemon

from mcpd import TaskSettings
from mcpd.server.extensions.tasks.record import Outcome, Record

# --------------------------------------------------------------------------------------- Redis


@NEEDS_REDIS
async def test_the_connection_to_redis_is_lost_in_the_middle() -> None:
    """TASK-015, TASK-076: all connections at once, while a task works and another one asks on another node."""
    with RedisServer() as redis:
        one, other = TaskStage(task_store=redis.url), TaskStage(task_store=redis.url)
        for stage in (one, other):
            stage.tasks.renew_every = 0.01
        async with one.wire() as here, other.wire() as there:
            works, asks = await begin(here, "work"), await begin(here, "ask")
            await wait_for(here, asks, "input_required")
            assert await status(there, works) == "working"
            for kind in ("normal", "pubsub"):
                await redis.asay("CLIENT", "KILL", "TYPE", kind)
            one.gate.set()
            assert (await reached(there, works))["status"] == "completed"
            await answer(there, asks, question_1="Ada")
            assert (await reached(there, asks))["result"]["content"][0]["text"] == "Ada"


async def reached(wire: Any, task_id: str) -> dict[str, Any]:
    """The task as soon as it has ended, although requests may fail while the store is away."""
    async with asyncio.timeout(60):
        while True:
            found = await wire.request("tasks/get", {"taskId": task_id})
            if "error" in found:
                assert "cannot be reached" in found["error"]["message"]
            elif found["result"]["status"] == "completed":
                return dict(found["result"])
            await between_looks()


@NEEDS_REDIS
async def test_redis_comes_back_empty() -> None:
    """TASK-030, TASK-077: work whose record is gone is stopped, and its id is unknown."""
    with RedisServer() as redis:
        stage = TaskStage(task_store=redis.url)
        stage.tasks.renew_every = 0.01
        async with stage.wire() as wire:
            task_id = await begin(wire, "work")
            await entered(stage)
            redis.kill()
            redis.start()
            await until(lambda: stage.ended == ["work"] and not stage.tasks.runs)
            assert (await wire.error("tasks/get", {"taskId": task_id}))["code"] == -32602
            fresh = await begin(wire, "fails")
            assert (await wait_for(wire, fresh))["status"] == "completed"


@NEEDS_REDIS
@pytest.mark.slow
async def test_a_replica_takes_the_place_of_its_master() -> None:
    """TASK-076: tasks go on, and end, on the server that the sentinels name now."""
    with redis_sentinels() as sentinels:
        stage, other = TaskStage(task_store=sentinels.url), TaskStage(task_store=sentinels.url)
        async with stage.wire() as wire, other.wire() as there:
            task_id = await begin(wire, "work")
            await entered(stage)
            await asyncio.to_thread(sentinels.kill_master)
            stage.gate.set()
            assert (await reached(there, task_id))["status"] == "completed"


# --------------------------------------------------------------------------------------- workers

TASK = """
@server.tool(task="required", retry=1)
async def behind_a_door(name: str) -> str:
    note("begun", name)
    await door(name)
    return str(os.getpid())
"""


@pytest.mark.slow
async def test_tasks_of_workers_that_are_replaced(child: Child, tmp_path: Path) -> None:
    """TASK-015, TASK-073, TASK-077: each worker has the tasks of all, and two reloads use up no retry."""
    takes = envelope(capabilities=TAKES)
    async with daemon(child, tmp_path, "--grace", "0", server=SERVER + TASK) as served:

        async def ask(method: str, **params: Any) -> Any:
            got = await served.port().ask(modern(method, params, meta=takes))
            return got.messages[-1]["result"]

        created = await ask("tools/call", name="behind_a_door", arguments={"name": "open"})
        task_id, journal = created["taskId"], tmp_path / "journal"
        pids = set()
        for attempt in (1, 2, 3):
            async with asyncio.timeout(60):
                while len(begun := re.findall(r"begun open (\d+)", journal.read_text())) < attempt:
                    await between_looks()
            pids.add(begun[-1])
            assert {(await ask("tasks/get", taskId=task_id))["status"] for _ in range(8)} == {"working"}
            if attempt < 3:
                os.kill(served.pid, signal.SIGHUP)
        (tmp_path / "open").touch()
        async with asyncio.timeout(60):
            while (found := await ask("tasks/get", taskId=task_id))["status"] == "working":
                await between_looks()
        assert found["status"] == "completed", found
        assert found["result"]["content"][0]["text"] in pids
        assert len(pids) == 3


# --------------------------------------------------------------------------------------- many


@pytest.mark.slow
async def test_a_hundred_thousand_finished_tasks() -> None:
    """TASK-068, TASK-075: each takes at most 1 KiB, the last pages cost as much as the first, and all expire."""
    number, now = 100_000, 1000.0
    stage = TaskStage(tasks=TaskSettings(kept_each=number))
    tasks = stage.tasks
    tasks.clock = lambda: now  # type: ignore[method-assign]
    async with stage.wire(version=LEGACY_TASKS) as wire:
        wire.talk.client = wire.talk.server = lambda message: None  # type: ignore[method-assign]
        store: Any = tasks.store
        gc.collect()
        tracemalloc.start()
        for each in range(number):
            record = Record(id=f"{each:043}", owner="", server="stage", tool="quick", created=now, updated=now, ttl=900)
            await store.create(record, is_listed=True)
            await tasks.end(record, Outcome(b'{"content":[]}'))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / number <= 1024
        tracemalloc.stop()

        pages, found, cursor = [], set(), None
        while not pages or cursor is not None:
            began = time.process_time()
            page = await wire.result("tasks/list", {} if cursor is None else {"cursor": cursor})
            pages.append(time.process_time() - began)
            found |= {task["taskId"] for task in page["tasks"]}
            cursor = page.get("nextCursor")
        assert len(found) == number
        assert sum(pages[-100:]) <= 3 * sum(pages[:100])

        now += 901
        await tasks._tick()
        assert len(store) == 0
