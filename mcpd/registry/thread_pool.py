"""The threads of one event loop that plain functions run in: handed jobs, and handing back what ended, in batches.

Theory of operation. It is not the function that costs, but the way to another thread and back: each way wakes one that
sleeps, and passes the interpreter's lock on. So all threads take their jobs from one queue. Before a thread begins a
job with more behind it, it wakes one thread more, unless one is on its way already. If functions are short, all of
them are done by the time that one runs; if one blocks, that one goes on with the rest, and wakes a third before. Where
no thread sleeps, the loop starts one. What ended goes into one list: the loop is woken for the first, and takes all.

They wake each other by bytes in pipes. Who waits for a pipe is run on the processor of who wrote to it and then sleeps
itself, which takes a third of the time that a lock takes, or the loop's own `call_soon_threadsafe`. A thread reads its
pipe for as long as it has nothing to do: it is told to end by a byte, too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet

from .. import turn

__all__ = ["Job", "ThreadPool"]

_WARM = 2
"""So many threads stay, though they have nothing to do."""

_IDLE_SECONDS = 10.0
"""How often threads are let go that had nothing to do since the last time."""

_LOOK, _QUIT = b"\0", b"q"


class Job(Protocol):
    """What a thread runs."""

    loop: asyncio.AbstractEventLoop
    """The pool's."""

    def run(self) -> None:
        """Do it, in a thread, unless it was given up. Raises nothing."""

    def end(self) -> None:
        """It was run. Called on the event loop's thread, in the order in which jobs ended."""

    def fail(self, error: Exception) -> None:
        """It cannot be run. Called on the event loop's thread."""

    def forget(self) -> None:
        """It was run after the end of its loop, and nobody will hear of it. Called in the thread."""


class ThreadPool:
    """Begins each job as soon as it can, in a thread that does nothing else meanwhile; how many may run is not its
    business. Make it on the event loop's thread, and `open` it there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._ended: list[Job] = []
        self._threads = 0
        self._staying = 0
        """How many of them look for jobs again: those that were let go may not be gone yet."""
        self._idle = 0
        """How many of them read their pipe."""
        self._least_idle = 0
        self._is_waking = False
        """One of them was told to look for jobs, or is to be started, and has not looked yet."""
        self._is_short = False
        """It has to be started."""
        self._is_telling = False
        """The loop was told that something has ended, or that it is to start a thread, and has not looked yet."""
        self._is_closed = False
        self._is_leaving = False
        """No thread waits for a job."""
        self._is_pruning = False
        self._wake_in, self._wake_out = os.pipe()
        try:
            self._told_in, self._told_out = os.pipe()
        except OSError:  # no descriptor is left
            os.close(self._wake_in)
            os.close(self._wake_out)
            raise
        self._tell: Callable[[], object] = partial(os.write, self._told_out, _LOOK)
        self._at_end: AsyncGenerator[None, None] | None = None

    async def open(self) -> None:
        """Hear what has ended, till the loop comes to its end."""
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._told_in, self._read)
        except NotImplementedError:  # on Windows pipes cannot be waited for
            self._tell = partial(_tell, loop, self._collect)
        # asyncio.run and its like end the generators of a loop before they close it.
        self._at_end = self._until_the_end()
        await anext(self._at_end)
        with _open_lock:
            _open.add(self)
            is_late = _is_at_end
        if is_late:
            self.leave()

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            try:
                asyncio.get_running_loop().remove_reader(self._told_in)
            except NotImplementedError:
                pass
            self.close()

    # -- on the event loop's thread ----------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Have a job run."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the event loop is at its end: no thread takes a function any more")
            self._jobs.append(job)
            if self._is_waking:
                return
            self._is_waking = True
        # After all that this turn has to submit and to do, the first steps of tasks too: a thread that is up sooner
        # takes the interpreter's lock away from it.
        turn.at_end(job.loop, partial(job.loop.call_soon, self._wake))

    def _wake(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            if self._idle:
                os.write(self._wake_out, _LOOK)
                return
        self._start_thread()

    def _start_thread(self) -> None:
        loop = asyncio.get_running_loop()
        # A thread that inherits the context, as it may from Python 3.14 on, would keep what the first call had.
        options: dict[str, Any] = {"context": Context()} if sys.version_info >= (3, 14) else {}
        thread = threading.Thread(target=self._live, args=(loop,), name="mcpd-function", **options)
        with self._lock:
            if self._is_closed:  # by another thread, and with it the pipes
                return
            self._threads += 1
            self._staying += 1
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more, or Python 3.12 comes to its end
            with self._lock:
                self._is_waking = False
                self._staying -= 1
                self._count_out()
                if self._staying:  # those that there are go on with what waits
                    if self._jobs and self._idle:  # they went to sleep while one more was to come
                        self._is_waking = True
                        os.write(self._wake_out, _LOOK)
                    return
                jobs, self._jobs = self._jobs, deque()
            for job in jobs:
                job.fail(error)

    def _read(self) -> None:
        os.read(self._told_in, 1)
        self._collect()

    def _collect(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
            self._is_telling = False
            is_short, self._is_short = self._is_short, False
        if is_short:
            self._start_thread()
        if ended:
            loop = ended[0].loop
            around = turn.begin()
            try:
                for job in ended:
                    job.end()
            finally:
                turn.end(around, loop)
        if self._threads > _WARM and not self._is_pruning:
            self._is_pruning = True
            self._least_idle = self._idle
            asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._prune)

    def _prune(self) -> None:
        self._is_pruning = False
        with self._lock:
            surplus = min(self._least_idle, self._idle, self._staying - _WARM)
            if surplus > 0 and not (self._is_closed or self._is_waking or self._is_leaving):
                # From now on nobody counts on them: who has a job next, before they have read this, wakes others.
                self._idle -= surplus
                self._staying -= surplus
                os.write(self._wake_out, _QUIT * surplus)

    def close(self) -> None:
        """Let all threads go, each when its function has returned. Any thread may call it, more than once too."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._jobs.clear()
            self._ended.clear()
            self._at_end = None  # it holds the loop
            if self._threads:
                os.write(self._wake_out, _QUIT * self._threads)
            else:
                self._close_pipes()

    def leave(self) -> None:
        """Let threads go that have nothing to do, from now on too. Any thread may call it."""
        with self._lock:
            self._is_leaving = True
            if self._idle and not self._is_closed:
                os.write(self._wake_out, _LOOK * self._idle)

    def _count_out(self) -> None:
        """There is a thread less."""
        self._threads -= 1
        if self._is_closed and not self._threads:
            self._close_pipes()

    def _close_pipes(self) -> None:
        for end in (self._wake_in, self._wake_out, self._told_in, self._told_out):
            os.close(end)

    # -- in the threads ----------------------------------------------------------------------

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        with _known_to_anyio(loop):
            del loop
            with self._lock:
                self._is_waking = False
            try:
                self._work()
            finally:
                with self._lock:
                    self._count_out()

    def _work(self) -> None:
        """Run jobs until it is told to end. What ended is handed back in the same hold of the lock in which the next is
        taken, and the loop is told of it last: a thread that then goes to sleep at once is out of the loop's way.
        """
        lock, jobs = self._lock, self._jobs
        ended: Job | None = None
        is_told_to_look = False
        while True:
            is_to_tell = False
            with lock:
                if is_told_to_look:
                    self._is_waking = is_told_to_look = False
                if self._is_closed:
                    if ended is not None:
                        ended.forget()
                    return
                if ended is not None:
                    self._ended.append(ended)
                    ended = None
                    is_to_tell = not self._is_telling

                job = jobs.popleft() if jobs else None
                is_over = job is None and self._is_leaving
                if job is None:
                    if is_over:
                        self._staying -= 1
                    else:
                        self._idle += 1
                elif jobs and not self._is_waking:
                    is_to_tell = self._wake_another() or is_to_tell

                if is_to_tell:
                    self._is_telling = True
                    self._tell()

            if is_over:
                return
            if job is None:
                if os.read(self._wake_in, 1) == _QUIT:
                    return  # who wrote that counts it no more
                with lock:
                    self._idle -= 1
                    if self._idle < self._least_idle:
                        self._least_idle = self._idle
                is_told_to_look = True
            else:
                job.run()
                ended = job
                del job

    def _wake_another(self) -> bool:
        """Have one more thread look for jobs; whether the loop has to be told, as it is the one that starts threads."""
        self._is_waking = True
        if self._idle:
            os.write(self._wake_out, _LOOK)
            return False
        self._is_short = True
        return not self._is_telling


def _known_to_anyio(loop: asyncio.AbstractEventLoop) -> AbstractContextManager[object]:
    """In this thread `anyio.from_thread` finds its way back to the loop, as in anyio's own."""
    try:
        # Loaded with the first thread: it costs start-up.
        from anyio._backends._asyncio import AsyncIOBackend  # noqa: PLC0415
        from anyio._core._eventloop import claim_worker_thread  # noqa: PLC0415
    except ImportError:  # a version that has it elsewhere
        return nullcontext()
    return claim_worker_thread(AsyncIOBackend, loop)


_open: WeakSet[ThreadPool] = WeakSet()
_open_lock = threading.Lock()
_is_at_end = False
"""Python waits for the threads that there are, and ends."""


def _tell(loop: asyncio.AbstractEventLoop, step: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(step)
    except RuntimeError:  # it is closed
        pass


def _leave_all() -> None:
    global _is_at_end
    with _open_lock:
        _is_at_end = True
        pools = list(_open)
    for pool in pools:
        pool.leave()


def _forget_all() -> None:
    """In a child: the pipes are still the parent's, and a thread of it may have held the lock."""
    global _open_lock
    _open_lock = threading.Lock()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_all)

# Python waits for all threads as it ends, so those of a loop that nobody has shut down would hold it up for ever.
# The same hook ends the threads of `concurrent.futures`. A loop in a thread of its own may run on, and have more jobs.
getattr(threading, "_register_atexit", lambda _: None)(_leave_all)
