"""An event loop on a thread of its own, for programs that have none: whoever calls waits, and the loop works.

The thread is a daemon, so that a program that forgets to close what lives there ends all the same; what lives there is
closed as the interpreter ends, within `CLOSE_SECONDS`. Any thread may call, but not the loop's own: it would wait for
itself.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from mcpd.errors import ConnectionLost, LocalProtocolError
from mcpd.transports.process import open_process  # noqa: F401 - its handler of the exit has to run after ours

log = logging.getLogger("mcpd.client")

T = TypeVar("T")
CLOSE_SECONDS = 10.0
"""How long the end of the interpreter waits for what was not closed; children are killed after that."""

_MOST_TOLD = 1000
"""Of what a call tells its caller so much waits; of more some is left out."""


class LoopThread:
    """Begins with `start`, ends with `end`; `at_end` runs last on the loop, however the thread comes to end."""

    def __init__(self, name: str, at_end: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._at_end = at_end
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._owner = 0

    # -- beginning and ending -----------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. It is started once."""
        running = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._live(running)), name=self._name, daemon=True)
        with self._lock:
            if self._thread is not None:
                raise LocalProtocolError("a client is opened once; make another one")
            self._thread, self._owner = thread, os.getpid()
        thread.start()
        running.wait()
        _running.add(self)

    async def _live(self, running: threading.Event) -> None:
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        running.set()
        await self._over.wait()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._at_end()
        except Exception:
            log.exception("what was not closed cannot be closed")

    def end(self, seconds: float = CLOSE_SECONDS) -> None:
        """End the thread; who still waits gets ConnectionLost. Does nothing if it has ended, or never began."""
        _running.discard(self)
        with self._lock:
            loop, over, thread = self._loop, self._over, self._thread
            self._loop = None
            # Under the lock: what was asked before is a task already when the loop hears of its end.
            if loop is not None and over is not None and self._owner == os.getpid():
                loop.call_soon_threadsafe(over.set)
        if thread is not None and thread is not threading.current_thread() and self._owner == os.getpid():
            thread.join(seconds)

    @property
    def is_running(self) -> bool:
        """Whether it was started, here and not in a process that this one was forked from, and not ended."""
        return self._loop is not None and self._owner == os.getpid()

    # -- calling ------------------------------------------------------------------------------

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work()` on the loop, and give what it returns or raise what it raises.

        If the caller is interrupted (Ctrl-C), the work is cancelled. Raises LocalProtocolError if it cannot be done
        from here, ConnectionLost if the thread ends meanwhile.
        """
        return self._result(self._begin(work()))

    def wait_telling(
        self, work: Callable[[Callable[..., None]], Coroutine[Any, Any, T]], tell: Callable[..., object]
    ) -> T:
        """The same for work that tells something meanwhile: `tell` is called for it, on the caller's thread.

        What `tell` raises ends the work, and is raised.
        """
        told: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()

        def note(*what: Any) -> None:
            if told.qsize() < _MOST_TOLD:
                told.put(what)

        future = self._begin(work(note))
        future.add_done_callback(lambda _: told.put(None))
        try:
            while (what := told.get()) is not None:
                tell(*what)
        except BaseException:
            future.cancel()
            raise
        return self._result(future)

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        problem = "the client is not open: use it inside `with`"
        with self._lock:
            if self._thread is threading.current_thread():
                problem = "the client works on this thread, which cannot wait for it: call it from another"
            elif self._loop is not None and self._owner != os.getpid():
                problem = "the client belongs to the process that this one was forked from: make another one here"
            elif self._loop is not None:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise LocalProtocolError(problem)

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            raise ConnectionLost("the client is closed") from None
        except BaseException:
            future.cancel()  # no more than a word if the work raised it
            raise


_running: set[LoopThread] = set()


@atexit.register
def _end_all() -> None:
    """A program that ends without closing its clients: their servers hear of it, and children are waited for."""
    for one in list(_running):
        one.end()


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a plain function gives, which may block, or wait for this loop: it runs on a thread of its own.

    One of the loop's executor would be waited for at the end of the interpreter, for as long as it blocks.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: Exception | None) -> None:
        if answer.done():
            return  # nobody waits for it any more
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def run() -> None:
        value: Any = None
        raised: Exception | None = None
        try:
            value = function(*arguments)
        except Exception as error:
            raised = error
        except BaseException as error:  # `sys.exit` ends a thread, and would end the loop
            raised = RuntimeError(f"the callback ended by {error!r}")
        try:
            loop.call_soon_threadsafe(settle, value, raised)
        except RuntimeError:
            pass  # the loop has ended

    context = copy_context()
    threading.Thread(target=context.run, args=(run,), name="mcpd-callback", daemon=True).start()
    return await answer
