"""Any history of creations, progress, questions, cancellations, expiry and restarts, against a model of it.

No task is lost, doubled, or seen by another owner, and what has ended stays as it was. Each step is a request on the
wire of its owner; a restart takes all memory of the process, and keeps what is stored.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from support.clock import turns
from support.task_stage import TAKES, TASKS, Name
from support.wires import envelope

from mcpd import Context, Server, TaskSettings
from mcpd.protocol.session import Opening
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.transports.memory import pair

KEEP, MAX_TTL = 50.0, 400.0
OWNERS = ("ada", "bob", "")


class Shared:
    """What outlives a process: the store, as several processes would see it."""

    def __init__(self, real: MemoryBackplane) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Known:
    """What the model knows of a task."""

    def __init__(self, owner: str, tool: str, created: float) -> None:
        self.owner, self.tool, self.created = owner, tool, created
        self.status = "working"
        self.result: Any = None
        self.ended: float | None = None
        self.answers: list[str] = []
        self.runs = 1
        self.misfits = 0

    def end(self, status: str, now: float, result: Any = None) -> None:
        self.status, self.ended, self.result = status, now, result

    def is_over(self, now: float) -> bool:
        return self.ended is not None and now >= self.ended + KEEP


class Process:
    """One process that serves, and its clients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gates: dict[str, asyncio.Event] = {}
        self.entered: list[str] = []
        server = self.server = Server("model", tasks=TaskSettings(keep=KEEP, max_ttl=MAX_TTL, running_each=64))
        extension: Any = server.extensions[TASKS]
        extension.task_store = Shared(world.backplane)
        self.extension = extension

        async def work(label: str, ctx: Context) -> str:
            self.entered.append(label)
            gate = self.gates.setdefault(label, asyncio.Event())
            await ctx.progress(1, 2, label)
            await gate.wait()
            return label

        server.add_tool(work, name="work", task="required")
        server.add_tool(work, name="again", task="required", retry=True)

        @server.tool(task="required")
        async def ask(label: str, ctx: Context) -> str:
            self.entered.append(label)
            names = [(await ctx.elicit("Who?", Name)).get().name for _ in range(2)]
            return " ".join(names)

        tasks = extension.tasks
        tasks.clock = lambda: world.now
        tasks.renew_every = 10**6  # the test says when
        self.tasks = tasks
        self.wires: dict[str, Client] = {owner: Client(server, owner) for owner in OWNERS}

    async def kill(self) -> None:
        """SIGKILL: nothing is recorded, and the key of the process expires."""

        async def nothing(*_: Any) -> bool:
            return False

        self.tasks.end_run = self.tasks.give_away = nothing
        works = [run.work for run in self.tasks.runs.values()]
        self.tasks.abort()
        if works:
            await asyncio.wait(works)
        await self.tasks.aclose()

    async def stop(self) -> None:
        """SIGTERM, without a time of grace."""
        await self.tasks.finish(0)
        await self.tasks.aclose()


class Client:
    """The client's end of one connection of an owner."""

    def __init__(self, server: Server, owner: str) -> None:
        near, far = pair()
        self._near, self._answers, self._id = near, asyncio.Queue[Any](), 0
        self.connection = server.connect(far, Opening(principal=owner))
        near.start(self)
        far.start(self.connection)

    def receive(self, frame: bytes) -> None:
        self._answers.put_nowait(json.loads(frame))

    def receive_error(self, error: Exception) -> None:
        raise AssertionError(error)

    def closed(self, error: Exception | None = None) -> None:
        """The end."""

    async def ask(self, method: str, **params: Any) -> Any:
        self._id += 1
        params["_meta"] = envelope(capabilities=TAKES)
        self._near.send(json.dumps({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}).encode())
        while True:
            answer = await self._answers.get()
            if answer.get("id") == self._id:
                return answer.get("result") or answer["error"]["code"]

    async def aclose(self) -> None:
        self.connection.abort()
        await self._near.aclose()


class World:
    """The model, and the process that it is compared with."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.backplane = MemoryBackplane()
        self.known: dict[str, Known] = {}
        self.labels: dict[str, str] = {}
        self.process = Process(self)

    def living(self, *statuses: str) -> list[str]:
        return [key for key, one in self.known.items() if not statuses or one.status in statuses]

    # -- steps -------------------------------------------------------------------------------

    async def create(self, owner: str, tool: str) -> None:
        label = f"t{len(self.known)}"
        seed = await self.process.wires[owner].ask("tools/call", name=tool, arguments={"label": label})
        assert (seed["resultType"], seed["status"]) == ("task", "working")
        assert seed["taskId"] not in self.known
        self.known[seed["taskId"]] = task = Known(owner, tool, self.now)
        self.labels[seed["taskId"]] = label
        await turns()
        if tool == "ask":
            task.status = "input_required"

    async def finish(self, task_id: str) -> None:
        task = self.known[task_id]
        if task.status == "working" and task.tool != "ask":
            self.process.gates[self.labels[task_id]].set()
            await turns()
            task.end("completed", self.now, self.labels[task_id])

    async def answer(self, task_id: str, owner: str, name: str, *, fits: bool) -> None:
        task = self.known[task_id]
        wire = self.process.wires[owner]
        found = await wire.ask("tasks/get", taskId=task_id)
        asks = found.get("inputRequests", {}) if isinstance(found, dict) else {}
        content = {"name": name if fits else ["no name"]}
        responses = {key: {"action": "accept", "content": content} for key in asks} | {"never": {"action": "decline"}}
        await wire.ask("tasks/update", taskId=task_id, inputResponses=responses)
        await turns()
        if asks and fits:
            task.answers.append(name)
            if len(task.answers) == 2:
                task.end("completed", self.now, " ".join(task.answers))
        elif asks:
            task.misfits += 1
            if task.misfits > 3:
                task.end("completed", self.now, None)
        if asks and fits:
            task.misfits = 0

    async def cancel(self, task_id: str, owner: str) -> None:
        task = self.known[task_id]
        got = await self.process.wires[owner].ask("tasks/cancel", taskId=task_id)
        if task.owner not in ("", owner) or task.is_over(self.now):
            assert got == -32602
        elif task.ended is None:
            task.end("cancelled", self.now)
        await turns()

    async def wait(self, seconds: float) -> None:
        self.now += seconds
        await self.process.tasks._tick()

    async def restart(self, *, is_killed: bool) -> None:
        old = self.process
        await (old.kill() if is_killed else old.stop())
        for wire in old.wires.values():
            await wire.aclose()
        self.process = Process(self)
        await self.process.extension.start()
        await turns()
        for task in self.known.values():
            if task.ended is None:
                if task.tool == "again" and (not is_killed or task.runs == 1):
                    task.runs += is_killed
                else:
                    task.end("failed", self.now)

    # -- what must hold ----------------------------------------------------------------------

    async def check(self) -> None:
        for task_id, task in self.known.items():
            for owner, wire in self.process.wires.items():
                found = await wire.ask("tasks/get", taskId=task_id)
                if task.owner not in ("", owner) or task.is_over(self.now):
                    assert found == -32602, (task.owner, owner, found)
                    continue
                assert found["status"] == task.status, (task.tool, found, task.status)
                assert found["taskId"] == task_id
                if task.status == "completed" and task.result is not None:
                    assert found["result"]["content"][0]["text"] == task.result
        for label in set(self.process.entered):
            assert self.process.entered.count(label) == 1, "begun twice by one process"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(OWNERS), st.sampled_from(("work", "again", "ask"))),
        st.tuples(st.just("finish"), st.integers(0, 9)),
        st.tuples(st.just("answer"), st.integers(0, 9), st.sampled_from(OWNERS), st.sampled_from("xyz"), st.booleans()),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.sampled_from(OWNERS)),
        st.tuples(st.just("wait"), st.sampled_from((1.0, 30.0, 60.0))),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    min_size=1,
    max_size=14,
)


@given(history=steps)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
async def test_no_task_is_lost_doubled_or_seen_by_another(history: list[tuple[Any, ...]]) -> None:
    """TASK-030, TASK-031, TASK-034, TASK-041, TASK-072, TASK-075, TASK-076, TASK-077."""
    world = World()
    try:
        for kind, *arguments in history:
            if kind == "create":
                await world.create(*arguments)
            elif kind == "wait":
                await world.wait(*arguments)
            elif kind == "restart":
                await world.restart(is_killed=arguments[0])
            elif world.known:
                task_id = list(world.known)[arguments[0] % len(world.known)]
                if kind == "finish":
                    await world.finish(task_id)
                elif kind == "cancel":
                    await world.cancel(task_id, arguments[1])
                else:
                    await world.answer(task_id, arguments[1], arguments[2], fits=arguments[3])
            await world.check()
    finally:
        await world.process.stop()
        for wire in world.process.wires.values():
            await wire.aclose()
