"""Runs the first step of a coroutine at once, and makes it a task only if it waits (an eager task).

Most tools answer without waiting, and a task for each would cost half as much as all the rest
of a call. Yet code expects to run inside a task: `asyncio.timeout` and anyio's scopes look for the current one.

From Python 3.12 on the standard library can do that: `eager.py`. This is for Python 3.11.

Theory of operation. An `EagerTaskRunner` keeps one spare task, parked on a `_ParkedFuture`. To start a coroutine, the
spare is entered as the current task (`asyncio.tasks._enter_task`, documented in "Extending asyncio") and
the coroutine's first step is run by hand, in a context of its own. If it ends there, the spare was not
touched and serves again. If it waits, the spare is woken, takes the coroutine over together with what it
waits for, and is its task from then on, so that the task the first step saw and the one that goes on
are the same. A new spare is parked for the next. While none is parked, or where a task is current
already, coroutines start as ordinary tasks, one turn of the loop later.

A coroutine that is stepped from Python tells its end by an exception, which costs more than the task does. So it is
awaited by a generator, `_driver`, that is there already, and yields `_DONE` when one has ended and another may come.

A spare that somebody has kept, named, set something on, or hung a callback on means the coroutine that ended in it, to
libraries that know work by its task: it ends too, and the next coroutine has a new one.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from sys import getrefcount
from types import coroutine
from typing import Any
from weakref import getweakrefcount

__all__ = ["EagerTaskRunner", "FirstStepAlways", "Resumption"]

Work = Coroutine[Any, Any, None]
_Driver = Generator[Any, Any, None]

_DONE = object()
_REFERENCES = 4
"""Those to a spare that nobody has kept: the runner's, what wakes it, and two of whoever asks."""


@coroutine
def _driver() -> _Driver:
    """Gives `_DONE` for each coroutine that it was sent and that has ended; else what that one waits for."""
    while True:
        work = yield _DONE
        yield from work


class _ParkedFuture:
    """What a spare task waits for: a future as far as a task needs one, which is woken by hand."""

    __slots__ = ("_asyncio_future_blocking", "_loop", "context", "driver", "is_cancelled", "message", "task", "tasks",
                 "waits_for", "wakeup")  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self.wakeup: Callable[[_ParkedFuture], object] | None = None
        """What steps the task that is parked here; None while there is none."""
        self.is_cancelled = False
        self.message: object = None
        """Of whoever cancelled it."""
        self.driver: _Driver | None = None
        """What awaits the work that this task took over."""
        self.context: Context | None = None
        self.waits_for: Any = None
        self.task: asyncio.Task[Any] | None = None
        """Whose work this is, to be taken out of these tasks at its end."""
        self.tasks: set[asyncio.Task[Any]] | None = None

    def wake(self) -> None:
        """Step the parked task now."""
        wakeup, self.wakeup = self.wakeup, None
        if wakeup is not None and not self.is_cancelled:
            wakeup(self)

    # What asyncio.Task calls.

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, wakeup: Callable[[_ParkedFuture], object], *, context: Context | None = None) -> None:
        self.wakeup = wakeup

    def cancel(self, msg: object = None) -> bool:
        if not self.is_cancelled and self.wakeup is not None:
            self.is_cancelled, self.message = True, msg
            self._loop.call_soon(self.wakeup, self)
        return True

    def result(self) -> None:
        if self.is_cancelled:
            raise asyncio.CancelledError

    def __await__(self) -> Generator[Any, None, None]:
        self._asyncio_future_blocking = True
        yield self
        self.result()


class Resumption:
    """Awaits what is left of a coroutine that took its first step in this very task."""

    __slots__ = ("_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        work, waits_for = self._work, self._waits_for
        try:
            while True:
                try:
                    value = yield waits_for
                except BaseException as error:
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(value)
        except StopIteration as done:
            return done.value


class _ResumptionInContext:
    """Awaits the work that a driver took up elsewhere, each further step in its own context."""

    __slots__ = ("_context", "_driver", "_waits_for")

    def __init__(self, driver: _Driver, context: Context, waits_for: Any) -> None:
        self._driver = driver
        self._context = context
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        driver, run, waits_for = self._driver, self._context.run, self._waits_for
        while waits_for is not _DONE:
            try:
                value = yield waits_for
            except BaseException as error:
                waits_for = run(driver.throw, error)
            else:
                waits_for = run(driver.send, value)


class FirstStepAlways(Coroutine[Any, Any, None]):
    """A coroutine whose first step is always run, even if its task is cancelled before that.

    A task throws the cancellation into a coroutine that has not begun, whose body then never sees it: nobody
    would answer the call, nor close the coroutine that it was to await.
    """

    __slots__ = ("_has_begun", "_work")

    def __init__(self, work: Work) -> None:
        self._work = work
        self._has_begun = False

    def send(self, value: Any) -> Any:
        self._has_begun = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        if not self._has_begun:
            self._has_begun = True
            self._work.send(None)  # what ends here ends with StopIteration, and was not cancelled
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()


async def _spare(parked: _ParkedFuture) -> None:
    try:
        try:
            await parked
        except asyncio.CancelledError:
            if parked.task is None:
                raise
            # Cancelled by its own first step: it finds out where it waits, and what it waits for is cancelled, too.
            parked.task.cancel(parked.message)
            parked.task.uncancel()  # that was counted already

        if parked.driver is not None and parked.context is not None:
            await _ResumptionInContext(parked.driver, parked.context, parked.waits_for)
    except GeneratorExit:
        # What the work waited for raised it, and it ends every coroutine on its way, however that one took it. The
        # work has answered. Left in the task, it would be logged when garbage is collected, whoever runs by then.
        return
    finally:
        # Here and not in a callback of the task, which would cost each call another turn of the loop.
        task, parked.task = parked.task, None
        if task is not None and parked.tasks is not None:
            parked.tasks.discard(task)


class _SpareTask(asyncio.Task[None]):
    """A spare, which notes what is done to it; who only keeps it is told by its references."""

    __slots__ = ()

    was_touched = False

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        super().__setattr__("was_touched", True)

    def set_name(self, name: object) -> None:
        super().set_name(name)
        super().__setattr__("was_touched", True)

    def get_coro(self) -> Any:
        super().__setattr__("was_touched", True)
        return super().get_coro()

    def add_done_callback(self, *arguments: Any, **options: Any) -> None:
        super().add_done_callback(*arguments, **options)
        super().__setattr__("was_touched", True)


class EagerTaskRunner:
    """Starts coroutines on one event loop; `tasks` holds those that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]]) -> None:
        self._loop = loop
        self._tasks = tasks
        self._parked: _ParkedFuture
        self._task: asyncio.Task[Any]
        self._driver: _Driver
        self._drive: Callable[[Work], Any]
        self._take_driver()
        self._park()

    def _take_driver(self) -> None:
        self._driver = _driver()
        self._drive = self._driver.send
        next(self._driver)

    def _park(self) -> None:
        self._parked = _ParkedFuture(self._loop)
        if self._loop.get_task_factory() is None:
            self._task = _SpareTask(_spare(self._parked), loop=self._loop, name="mcpd-call")
        else:
            self._task = self._loop.create_task(_spare(self._parked), name="mcpd-call")

    def _exchange(self) -> None:
        """Let the spare end, and have another one."""
        self._parked.wake()
        self._park()

    def start(self, work: Work) -> asyncio.Task[Any] | None:
        """Run the first step of `work` now; gives its task if it waits, None if it is done.

        `work` handles its own exceptions.
        """
        parked = self._parked
        if parked.wakeup is None or parked.is_cancelled:
            return self._start_later(work)

        loop, task = self._loop, self._task
        try:
            _enter_task(loop, task)
        except RuntimeError:  # another task is current
            return self._start_later(work)

        context = copy_context()
        try:
            try:
                waits_for = context.run(self._drive, work)
            finally:
                _leave_task(loop, task)
        except BaseException:
            self._take_driver()  # it has ended with what the work raised
            self._exchange()
            raise
        if waits_for is _DONE:
            # One of a program's own factory notes nothing. One weak reference is asyncio's own.
            is_noted = task.__class__ is not _SpareTask or task.was_touched
            if is_noted or getrefcount(task) > _REFERENCES or getweakrefcount(task) > 1:
                self._exchange()
            return None

        parked.driver, parked.context, parked.waits_for = self._driver, context, waits_for
        parked.task, parked.tasks = task, self._tasks
        driver = self._driver = _driver()
        self._drive = driver.send
        next(driver)
        self._tasks.add(task)
        parked.wake()
        self._park()
        return task

    def _start_later(self, work: Work) -> asyncio.Task[Any]:
        if self._task.done():
            self._park()
        return self._keep(self._loop.create_task(FirstStepAlways(work)))

    def close(self) -> None:
        """Let the spare go."""
        self._task.cancel()

    def _keep(self, task: asyncio.Task[Any]) -> asyncio.Task[Any]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
