"""Coroutines of calls behave as tasks do: current task, context, cancellation, timeouts, groups.

Every case runs twice, started as a call is and as an ordinary task, and has to come to the same.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from mcpd.server.dispatcher.tasks import Resumption, start

Body = Callable[[list[Any]], Coroutine[Any, Any, None]]
number: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=0)


class Starter:
    """Starts work on a loop, and has the tasks that are not done in `tasks`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]]) -> None:
        self._loop = loop
        self._tasks = tasks

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any] | None:
        task = start(self._loop, work)
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return task


async def finish(tasks: set[asyncio.Task[Any]]) -> None:
    while tasks:
        await asyncio.wait(tasks)


async def by_hand(body: Body, then: Callable[[asyncio.Task[Any] | None], None] = lambda task: None) -> list[Any]:
    """What `body` notes when it is started outside of any task, as a transport does it."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = set()
    notes: list[Any] = []
    starter = Starter(loop, tasks)

    def start() -> None:
        notes.append("started")
        task = starter.start(body(notes))
        notes.append("returned")
        loop.call_soon(then, task)  # as a connection cancels it, after the first step

    loop.call_soon(start)
    await asyncio.sleep(0)
    await finish(tasks)
    return notes


async def ordinary(body: Body, then: Callable[[asyncio.Task[Any]], None] = lambda task: None) -> list[Any]:
    """The same as an ordinary task whose first step has been run."""
    notes: list[Any] = ["started", "returned"]
    task = asyncio.ensure_future(body(notes))
    await asyncio.sleep(0)
    then(task)
    await asyncio.wait([task])
    return notes


async def test_the_first_step_runs_before_start_returns_where_tasks_are_eager() -> None:
    async def body(notes: list[Any]) -> None:
        notes.append("step")

    has_eager_tasks = sys.version_info >= (3, 12)
    expected = ["started", "step", "returned"] if has_eager_tasks else ["started", "returned", "step"]
    assert await by_hand(body) == expected


async def test_what_does_not_wait_leaves_no_task() -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = set()
    starter = Starter(loop, tasks)
    await asyncio.sleep(0)
    seen: list[Any] = []

    async def body() -> None:
        seen.append(repr(asyncio.current_task()))

    loop.call_soon(lambda: [starter.start(body()) for _ in range(100)])
    await asyncio.sleep(0)
    await finish(tasks)
    assert len(seen) == 100
    assert all("mcpd-call" in one for one in seen)
    assert not tasks


async def test_what_is_known_by_its_task_is_known_by_no_other_call() -> None:
    """A task that somebody has kept, or done something to, is that call's alone, and ends with it."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = set()
    starter = Starter(loop, tasks)
    await asyncio.sleep(0)
    kept: list[asyncio.Task[Any]] = []
    weak: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
    by_coroutine: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
    seen: list[tuple[str, list[str]]] = []
    ended: list[asyncio.Task[Any]] = []

    async def noted(how: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append((task.get_name(), [weak[task]] if task in weak else [*filter(None, [getattr(task, "user", "")])]))
        if how == "keeps":
            kept.append(task)
        elif how == "weakly":
            weak[task] = how
        elif how == "sets":
            task.user = how  # type: ignore[attr-defined]
        elif how == "names":
            task.set_name("mine")
        elif how == "calls back":
            task.add_done_callback(ended.append)
        elif how == "by its coroutine":
            assert task.get_coro() not in by_coroutine
            by_coroutine[task.get_coro()] = how

    for how in (
        "nothing",
        "keeps",
        "nothing",
        "weakly",
        "nothing",
        "names",
        "nothing",
        "calls back",
        "nothing",
        "sets",
        "nothing",
        "by its coroutine",
        "by its coroutine",
    ):
        done = asyncio.Event()

        def start(how: str = how, done: asyncio.Event = done) -> None:
            starter.start(noted(how))
            done.set()

        loop.call_soon(start)
        await done.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert seen == [("mcpd-call", [])] * 13
    assert not by_coroutine
    assert [task.done() for task in kept] == [True]
    assert len(ended) == 1
    assert not weak
    await finish(tasks)


@pytest.mark.parametrize("how", ["raises", "has a factory"])
async def test_no_call_has_the_task_of_another_however_it_came_to_it(how: str) -> None:
    loop = asyncio.get_running_loop()
    made: list[asyncio.Task[Any]] = []

    class Own(asyncio.Task[Any]):
        """Of a program that makes its tasks itself; what is set on it nobody notes."""

    if how == "has a factory":
        loop.set_task_factory(lambda loop, work, **more: Own(work, loop=loop, **more))
    starter = Starter(loop, set())
    await asyncio.sleep(0)

    async def keeps() -> None:
        task = asyncio.current_task()
        assert task is not None
        made.append(task)
        if how == "raises":
            raise SystemError

    for _ in range(3):
        done = asyncio.Event()

        def start(done: asyncio.Event = done) -> None:
            try:
                starter.start(keeps())
            except SystemError:
                pass
            done.set()

        loop.call_soon(start)
        await done.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    loop.set_task_factory(None)
    assert len({id(task) for task in made}) == 3


async def test_the_task_of_the_first_step_is_the_task_of_the_others() -> None:
    async def body(notes: list[Any]) -> None:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        second = asyncio.current_task()
        await asyncio.sleep(0.001)
        notes.append(first is second is asyncio.current_task())
        notes.append(first is not None)

    for run in (by_hand, ordinary):
        assert (await run(body))[-2:] == [True, True]


async def test_each_has_a_context_of_its_own_that_lasts() -> None:
    async def body(notes: list[Any]) -> None:
        notes.append(number.get())
        number.set(5)
        await asyncio.sleep(0)
        notes.append(number.get())
        number.set(6)
        await asyncio.sleep(0)
        notes.append(number.get())

    for run in (by_hand, ordinary):
        assert [note for note in await run(body) if isinstance(note, int)] == [0, 5, 6]
    assert number.get() == 0


async def waits_for_event(notes: list[Any]) -> None:
    await asyncio.Event().wait()


async def waits_in_timeout(notes: list[Any]) -> None:
    try:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    except TimeoutError:
        notes.append("timeout")


async def waits_in_late_timeout(notes: list[Any]) -> None:
    await asyncio.sleep(0)
    await waits_in_timeout(notes)


async def a_timeout_of_nothing(notes: list[Any]) -> None:
    try:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)
    except TimeoutError:
        notes.append("timeout")


async def waits_in_scope(notes: list[Any]) -> None:
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep_forever()
    notes.append(scope.cancelled_caught)


async def shields(notes: list[Any]) -> None:
    inner = asyncio.ensure_future(asyncio.sleep(0.001, "inner"))
    try:
        await asyncio.shield(inner)
    finally:
        notes.append(await inner)


async def groups(notes: list[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asyncio.sleep(0, 1))
        await asyncio.sleep(0)
    notes.append(task.result())


async def groups_with_a_failure(notes: list[Any]) -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            await asyncio.Event().wait()
    except* ZeroDivisionError:
        notes.append("failed")


async def gathers(notes: list[Any]) -> None:
    notes.append(await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0.001, 2)))


async def runs_in_threads(notes: list[Any]) -> None:
    notes.append(await asyncio.to_thread(lambda: 1))
    notes.append(await anyio.to_thread.run_sync(lambda: 2))


async def cancels_itself(notes: list[Any]) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("enough")
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        notes.append(f"cancelled {task.cancelling()}")
        task.uncancel()
    await asyncio.sleep(0)
    notes.append("went on")


async def cancels_itself_before_it_waits_for_others(notes: list[Any]) -> None:
    task = asyncio.current_task()
    assert task is not None
    others = [task.get_loop().create_future() for _ in range(2)]
    task.cancel("enough")
    try:
        await asyncio.gather(*others)
    except asyncio.CancelledError as error:
        notes.append(f"{error!r} {task.cancelling()}")
        task.uncancel()
    notes.append([one.cancelled() for one in others])


async def cancels_itself_at_the_end(notes: list[Any]) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    notes.append("end")


async def yields_bare(notes: list[Any]) -> None:
    for _ in range(3):
        await asyncio.sleep(0)
    notes.append("three turns")


async def generator(notes: list[Any]) -> None:
    async def items() -> Any:
        for item in range(3):
            await asyncio.sleep(0)
            yield item

    notes.append([item async for item in items()])


BODIES: list[Body] = [
    waits_in_timeout, waits_in_late_timeout, a_timeout_of_nothing, waits_in_scope, shields, groups,
    groups_with_a_failure, gathers, runs_in_threads, cancels_itself, cancels_itself_before_it_waits_for_others,
    cancels_itself_at_the_end, yields_bare, generator,
]  # fmt: skip


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
async def test_by_hand_is_as_a_task(body: Body, debug: bool) -> None:
    asyncio.get_running_loop().set_debug(debug)
    hand, task = await by_hand(body), await ordinary(body)
    assert sorted(map(str, hand)) == sorted(map(str, task))


def cancelling(task: asyncio.Task[Any] | None) -> None:
    assert task is not None
    task.cancel("stop")


async def notes_the_cancellation(notes: list[Any]) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError as error:
        notes.append(f"cancelled {error}")
        raise
    finally:
        notes.append(number.get())


async def refuses_the_cancellation(notes: list[Any]) -> None:
    for _ in range(2):
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            notes.append("no")
    notes.append("done")


async def waits_on_after_the_cancellation(notes: list[Any]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.001)
        notes.append("cleaned up")


@pytest.mark.parametrize(
    "body",
    [notes_the_cancellation, refuses_the_cancellation, waits_on_after_the_cancellation, waits_for_event, groups],
    ids=lambda body: body.__name__,
)
async def test_cancelling_by_hand_is_as_cancelling_a_task(body: Body) -> None:
    assert await by_hand(body, cancelling) == await ordinary(body, cancelling)


async def test_inside_a_task_it_starts_as_an_ordinary_one() -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = set()
    starter = Starter(loop, tasks)
    notes: list[str] = []

    async def body() -> None:
        notes.append("step")
        await asyncio.sleep(0)
        notes.append("end")

    task = starter.start(body())
    assert task is not None
    assert notes == []
    await task
    assert notes == ["step", "end"]
    await finish(tasks)


async def test_a_start_inside_of_a_first_step() -> None:
    """A call that starts another call, as a client in the same process does."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = set()
    starter = Starter(loop, tasks)
    await asyncio.sleep(0)
    notes: list[str] = []

    async def inner() -> None:
        notes.append("inner")
        await asyncio.sleep(0)
        notes.append("inner end")

    async def outer() -> None:
        notes.append("outer")
        starter.start(inner())
        await asyncio.sleep(0)
        notes.append("outer end")

    loop.call_soon(lambda: starter.start(outer()))
    await asyncio.sleep(0)
    await finish(tasks)
    assert notes[0] == "outer"
    assert sorted(notes) == ["inner", "inner end", "outer", "outer end"]


async def test_many_at_once_all_come_to_their_end() -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = set()
    starter = Starter(loop, tasks)
    await asyncio.sleep(0)
    ended = []

    async def body(which: int) -> None:
        for _ in range(which % 4):
            await asyncio.sleep(0)
        ended.append(which)

    loop.call_soon(lambda: [starter.start(body(which)) for which in range(500)])
    await asyncio.sleep(0)
    await finish(tasks)
    assert sorted(ended) == list(range(500))


async def test_nothing_is_left_behind() -> None:
    """Neither tasks nor coroutines that were never awaited; warnings are errors here."""

    async def body(notes: list[Any]) -> None:
        await asyncio.sleep(0)

    for _ in range(20):
        await by_hand(body)
    gc.collect()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("inside", [False, True], ids=["at once", "ordinary"])
@pytest.mark.parametrize("first", [False, True], ids=["later", "cancelled at first"])
async def test_generator_exit_that_was_dealt_with_is_not_left_in_the_task(inside: bool, first: bool) -> None:
    """It ends each coroutine that is awaited, also if the work took it; in a task nobody would ever ask for it.

    asyncio then logs it whenever garbage is collected: a call that was answered would be reported as an error, and
    Python before 3.11.8 fails with "AST constructor recursion depth mismatch" if `ast.parse` runs at that moment.
    """
    loop = asyncio.get_running_loop()
    told: list[Any] = []
    loop.set_exception_handler(lambda loop, what: told.append(what))
    waiting = loop.create_future()
    notes: list[str] = []

    async def body(waiting: asyncio.Future[None]) -> None:
        if first:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                notes.append("cancelled")
        try:
            await waiting
        except GeneratorExit:
            notes.append("exit")

    tasks: set[asyncio.Task[Any]] = set()
    starter = Starter(loop, tasks)
    await asyncio.sleep(0)
    if inside:
        starter.start(body(waiting))
    else:
        loop.call_soon(starter.start, body(waiting))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.set_exception(GeneratorExit())
    await finish(tasks)
    assert notes == (["cancelled", "exit"] if first else ["exit"])
    del waiting, starter, tasks  # or the exception keeps the task, through which it went, alive
    gc.collect()
    assert not told


async def test_the_rest_of_a_coroutine_can_be_awaited() -> None:
    async def body() -> str:
        try:
            await asyncio.sleep(0)
        except ZeroDivisionError:
            return "thrown"
        return "done"

    work = body()
    assert await Resumption(work, work.send(None)) == "done"

    async def fails(later: Awaitable[None]) -> str:
        try:
            await later
        except ZeroDivisionError:
            return "thrown"
        return "done"

    failing = asyncio.get_running_loop().create_future()
    work = fails(failing)
    rest = Resumption(work, work.send(None))
    failing.set_exception(ZeroDivisionError())
    assert await rest == "thrown"
