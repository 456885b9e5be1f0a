"""How many plain functions run at once, whatever becomes of the calls that wait for them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest
from support.wires import memory_wire

from mcpd import Context, Server
from mcpd.server.functions import threads
from mcpd.server.functions.threads import run_in_thread


class Room:
    """Where functions stay until the test lets them go."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.go = threading.Event()
        self.inside = 0
        self.most = 0
        self.entered = asyncio.Queue[int]()
        self._lock = threading.Lock()

    def stay(self, number: int = 0) -> int:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.loop.call_soon_threadsafe(self.entered.put_nowait, number)
        self.go.wait(20)
        with self._lock:
            self.inside -= 1
        return number


@pytest.fixture(autouse=True)
def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_THREADS", 3)


async def cancelled(tasks: list[asyncio.Task[int]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def turns(count: int = 20) -> None:
    """Whatever could begin by itself has begun."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_functions_wait_for_a_slot_in_the_order_they_came() -> None:
    room = Room()
    tasks = [asyncio.create_task(run_in_thread(room.stay, number)) for number in range(9)]
    assert {await room.entered.get() for _ in range(3)} == {0, 1, 2}
    room.go.set()
    assert await asyncio.gather(*tasks) == list(range(9))
    assert room.most == 3


async def test_a_cancelled_call_keeps_its_slot_while_its_thread_runs() -> None:
    """Or clients that give slow calls up and ask again would get a thread each time."""
    room = Room()
    for _ in range(4):
        tasks = [asyncio.create_task(run_in_thread(room.stay)) for _ in range(6)]
        await turns()
        while room.inside < 3:
            await room.entered.get()
        await cancelled(tasks)
    late = asyncio.create_task(run_in_thread(room.stay, 7))
    await turns()
    assert room.inside == room.most == 3
    room.go.set()
    assert await late == 7
    assert room.most == 3
    # Every slot is free again.
    room.go.clear()
    tasks = [asyncio.create_task(run_in_thread(room.stay, number)) for number in (10, 11, 12)]
    while room.inside < 3:
        await room.entered.get()
    room.go.set()
    assert await asyncio.gather(*tasks) == [10, 11, 12]


async def test_a_call_cancelled_as_its_turn_comes_gives_its_slot_back() -> None:
    room = Room()
    tasks = [asyncio.create_task(run_in_thread(room.stay)) for _ in range(3)]
    for _ in range(3):
        await room.entered.get()
    waiting = asyncio.create_task(run_in_thread(room.stay))
    await turns()
    room.go.set()
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await cancelled([waiting])
    assert await asyncio.gather(*tasks, *(run_in_thread(room.stay, number) for number in (1, 2, 3, 4))) == [
        *(0, 0, 0), *(1, 2, 3, 4)
    ]  # fmt: skip


async def test_what_was_cancelled_before_it_began_never_runs() -> None:
    ran: list[int] = []
    for _ in range(10):
        await cancelled([asyncio.create_task(run_in_thread(ran.append, 1))])
    assert ran == []
    assert await asyncio.gather(*(run_in_thread(abs, -number) for number in range(4))) == [0, 1, 2, 3]


async def test_functions_that_wait_for_the_user_hold_nobody_up() -> None:
    """A user may think for minutes: their number is not what the limit is about."""
    server = Server("t")

    @server.tool
    def ask(ctx: Context) -> str:
        return str(ctx.elicit("Sure?", {"type": "object", "properties": {"sure": {"type": "boolean"}}}).action)  # type: ignore[attr-defined]

    @server.tool
    def greet() -> str:
        return "hello"

    async with memory_wire(server, "2025-11-25", capabilities={"elicitation": {"form": {}}}) as wire:
        calls, questions = [], []
        for _ in range(8):
            calls.append(wire.ask("tools/call", {"name": "ask", "arguments": {}}))
            questions.append(await wire.receive())
        assert await wire.text("greet") == "hello"
        for question in questions:
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        for call in calls:
            assert (await wire.answer(call))["result"]["content"][0]["text"] == "decline"
        room = Room()
        tasks = [asyncio.create_task(run_in_thread(room.stay)) for _ in range(5)]
        for _ in range(3):
            await room.entered.get()
        await turns()
        assert room.inside == 3
        room.go.set()
        await asyncio.gather(*tasks)
        assert room.most == 3


def test_a_loop_that_was_closed_while_a_function_ran_is_let_go() -> None:
    """What runs holds its loop; once it is done nothing does, though nobody was left to hear of it."""
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def stay() -> None:
        begun.set()
        go.wait(60)
        threading.Thread(target=lambda: ended.set()).start()

    async def call() -> weakref.ref[asyncio.AbstractEventLoop]:
        task = asyncio.create_task(run_in_thread(stay))
        assert await asyncio.to_thread(begun.wait, 60)
        await cancelled([task])
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.new_event_loop()
    try:
        found = loop.run_until_complete(call())
    finally:
        loop.close()
    del loop
    go.set()
    assert ended.wait(60)

    async def another() -> None:
        await run_in_thread(abs, -1)

    asyncio.run(another())
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(20)
    gc.collect()
    assert found() is None
