"""Plain functions run in worker threads, so that a blocking function holds up no other call.

Theory of operation. There are `threads` slots, and each running function holds one. A connection may begin another
function while it holds less than twice as many slots as are free. A client known by a token may hold less than eight
times as many, and all clients of one address, whose tokens may be unchecked, less than sixteen times. So one connection
that holds all it can leaves a third of the slots free, two leave a fifth, however long their functions hang, and the
next client finds a slot at once. A function that may not begin waits for at most `wait_seconds`; waiting connections
take turns. A slot is released when both the waiting task and the thread have finished with it: a cancelled call leaves
a thread that still runs. If such threads are half of all, the client that has cancelled the calls gets no other one,
and its calls fail after two seconds.

A function that waits for its client's answer releases its slot, within limits, since each still holds a thread. After
the answer it continues at once: with a slot if its connection's share allows it, otherwise without one. Then it is
counted among the functions that wait for an answer until it ends, so that functions that hang after their answer take
no slot from others.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct

from mcpd.errors import ThreadsBusy
from mcpd.protocol.budget import address_of
from mcpd.protocol.defaults import MAX_THREADS, THREAD_TIMEOUT
from mcpd.protocol.printable import printable
from .annotations import Function

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger("mcpd")

_TIMES_FREE = 2
_TIMES_FREE_TOGETHER = 8
_TIMES_FREE_AT_ADDRESS = 16
_ASKING_OF_ONE = 64
_ASKING_IN_ALL = 256
_CANCELLED_SECONDS = 2.0
_REPORT_AFTER = 5.0
_REPORT_EVERY = 60.0
_MOST_NAMED = 5


class RunsFor(Protocol):
    """The request that a function runs for."""

    @property
    def owner(self) -> tuple[object, str]:
        """Its connection, and the client behind it."""

    @property
    def subject(self) -> str:
        """The name or URI that it is about, for the log."""


class Borrower(Struct, eq=False):
    """The holder of a slot: a function that runs for a request, or for None if it is the server's own.

    Connection and client are looked up only when shares matter, which is rare.
    """

    _exchange: RunsFor | None

    @property
    def connection(self) -> object:
        """Its connection; None for the server's own functions, which have no share."""
        return None if self._exchange is None else self._exchange.owner[0]

    @property
    def client(self) -> str:
        """The client behind the connection; "" if unknown."""
        return "" if self._exchange is None else self._exchange.owner[1]

    @property
    def call(self) -> Any:
        """The call of its request, for the status; None if it has none."""
        return getattr(self._exchange, "call", None)

    @property
    def owner(self) -> object:
        """The client that its cancelled functions count for."""
        return getattr(self.connection, "responsible", self.connection)

    @property
    def name(self) -> str:
        """The subject of the request, for the log."""
        return "" if self._exchange is None else self._exchange.subject


class ThreadSlots:
    """The slots of one event loop."""

    def __init__(self, threads: int, wait_seconds: float) -> None:
        # The threads, from the first function on.
        self.pool: ThreadPoolExecutor | None = None
        self._at_end: AsyncGenerator[None, None] | None = None
        self._threads = threads
        self._wait_seconds = wait_seconds
        # The functions that hold a slot.
        self._running: set[Borrower] = set()
        # The functions that still run although their call was cancelled.
        self.cancelled: set[Borrower] = set()
        # The functions that continue without a slot after their client's answer.
        self._without_slot: set[Borrower] = set()
        self._asking: Counter[object] = Counter()
        self._asking_in_all = 0
        self._waiting: dict[object, deque[tuple[Borrower, asyncio.Future[None]]]] = {}
        self._reporter: asyncio.TimerHandle | None = None
        self._reported = -_REPORT_EVERY
        # Jobs that wait for a thread, and whether a thread was called that has not begun to take them.
        self._jobs: deque[_Slot] = deque()
        self._is_called = False
        # Jobs whose functions have returned, and that are still to be ended on the event loop's thread.
        self._ended: deque[_Slot] = deque()
        self._is_woken = False

    # -- the threads -------------------------------------------------------------------------

    async def open_pool(self) -> None:
        """Start the thread pool, which is closed with the event loop."""
        from concurrent.futures import ThreadPoolExecutor  # loaded with the first plain function

        self.pool = ThreadPoolExecutor(self._threads + _ASKING_IN_ALL, "mcpd-function")
        # asyncio.run ends the asynchronous generators of a loop before it closes the loop.
        self._at_end = self._until_the_end()
        await anext(self._at_end)

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.close_pool()

    def take_pool(self, other: ThreadSlots) -> None:
        """Use the thread pool of other slots of this loop."""
        self.pool, self._at_end = other.pool, other._at_end

    @property
    def is_open(self) -> bool:
        """Whether functions may begin."""
        return self._at_end is not None

    def close_pool(self) -> None:
        """Let all threads end, each after its function."""
        self._at_end = None  # the generator refers to the loop
        self._jobs.clear()
        self._is_called = False
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, job: _Slot) -> None:
        """Run a job in the next thread that is free. Raises RuntimeError if no thread can be started.

        One thread is called for all jobs that begin before it runs: each call costs as much as a short function.
        """
        self._jobs.append(job)
        if not self._is_called:
            self._call_thread()

    def _call_thread(self) -> None:
        assert self.pool is not None
        try:
            self._is_called = True
            self.pool.submit(self._take_jobs)
        except RuntimeError:
            self._is_called = False
            if not self.is_open:
                raise
            # Pools refuse work while Python waits for its last threads. This loop may run in one of them.
            threading.Thread(target=self._take_jobs, name="mcpd-function").start()

    def _take_jobs(self) -> None:
        # Run jobs until none waits. Called in a thread of the pool.
        self._is_called = False  # first: a job that begins from now on calls another thread
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            if self._jobs and not self._is_called:  # this function may block
                with suppress(RuntimeError):  # without another thread, this one runs them later
                    self._call_thread()
            job.run()

    # -- whose turn it is --------------------------------------------------------------------

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self._threads - len(self._running)

    def _held(self) -> Counter[object]:
        held: Counter[object] = Counter()
        for borrower in self._running:
            held.update(list(_shares(borrower)))
        return held

    def _may_begin(self, borrower: Borrower, held: Counter[object] | None = None) -> bool:
        running = len(self._running)
        free = self._threads - running
        if self.cancelled and self._is_spent(borrower):
            return False
        # Quick check: as long as a third of the slots at most is held, nobody can exceed a share.
        if running < _TIMES_FREE * free or borrower.connection is None:
            return free > 0
        held = self._held() if held is None else held
        return all(held[key] < times * free for key, times in _shares(borrower).items())

    def _is_spent(self, borrower: Borrower) -> bool:
        # Whether cancelled functions of this client run in half of the threads.
        if 2 * len(self.cancelled) < self._threads or borrower.connection is None:
            return False
        return 2 * len(self._cancelled_of(borrower)) >= self._threads

    def _cancelled_of(self, borrower: Borrower) -> list[Borrower]:
        owner = borrower.owner
        return [each for each in self.cancelled if each.owner == owner]

    def try_acquire(self, borrower: Borrower) -> bool:
        """Take a slot if one is available at once. Returns whether it was."""
        if self._waiting and borrower.connection in self._waiting or not self._may_begin(borrower):
            return False
        self._running.add(borrower)
        return True

    async def acquire(self, borrower: Borrower) -> None:
        """Wait for a slot. Raises ThreadsBusy, with a text that suggests a retry, if the wait takes too long."""
        if self.try_acquire(borrower):
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(borrower.connection, deque()).append((borrower, turn))
        if self._reporter is None:
            self._reporter = loop.call_later(_REPORT_AFTER, self._report)
        is_spent = self._is_spent(borrower)
        seconds = min(self._wait_seconds, _CANCELLED_SECONDS) if is_spent else self._wait_seconds
        too_late = loop.call_later(seconds, turn.cancel)

        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release(borrower)  # the slot was assigned while the task was cancelled
                raise
            self._leave(borrower, turn)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._report()
            if is_spent and (cancelled := self._cancelled_of(borrower)):
                raise ThreadsBusy(
                    f"The server is busy: {len(cancelled)} functions still run although you have cancelled their "
                    f"calls: {_names(cancelled)}. Try again later"
                ) from None
            raise ThreadsBusy(
                f"The server is busy: no thread came free within {self._wait_seconds:g} seconds. Try again later"
            ) from None
        finally:
            too_late.cancel()

    def release(self, borrower: Borrower) -> None:
        """Release the slot of a function that has ended, and let the next one begin."""
        self._running.discard(borrower)
        if self._waiting:
            self._serve()

    def end_soon(self, job: _Slot) -> None:
        """End a job on the event loop's thread. Called in the thread of its function.

        The loop is woken once for all jobs that end before it runs: each wake-up costs a system call.
        """
        self._ended.append(job)
        if self._is_woken and not job.loop.is_closed():
            return
        self._is_woken = True
        try:
            job.loop.call_soon_threadsafe(self._end_all)
        except RuntimeError:  # the loop is closed, and nothing else would release these jobs
            while self._ended:
                job = self._ended.popleft()
                job.drop()
                self._running.discard(job)
                self.cancelled.discard(job)

    def _end_all(self) -> None:
        self._is_woken = False  # first: a job that ends from now on wakes the loop again
        while self._ended:
            self._ended.popleft().end()

    def _leave(self, borrower: Borrower, turn: asyncio.Future[None]) -> None:
        queue = self._waiting[borrower.connection]
        queue.remove((borrower, turn))
        if not queue:
            del self._waiting[borrower.connection]

    def _serve(self) -> None:
        # Assign free slots to waiting functions, connection by connection.
        held = self._held()
        while self.free > 0:
            key = next((key for key, queue in self._waiting.items() if self._may_begin(queue[0][0], held)), self)
            if key is self:
                return  # no waiting function may have one

            queue = self._waiting.pop(key)
            borrower, turn = queue.popleft()
            if queue:
                self._waiting[key] = queue  # to the end of the line

            if not turn.done():
                self._running.add(borrower)
                held.update(list(_shares(borrower)))
                turn.set_result(None)

    # -- functions that ask their client -----------------------------------------------------

    def release_while_asking(self, borrower: Borrower) -> bool:
        """Release the slot of a function that waits for its client. Returns False if too many do."""
        key = borrower.connection
        if self._asking_in_all >= _ASKING_IN_ALL or self._asking[key] >= _ASKING_OF_ONE:
            return False
        self._asking_in_all += 1
        self._asking[key] += 1
        self.release(borrower)
        return True

    def reacquire(self, borrower: Borrower) -> bool:
        """Reacquire a slot after the client's answer. Returns whether the share allowed it.

        Otherwise the function stays counted among the waiting ones until `stop_asking`.
        """
        if not self._may_begin(borrower):
            self._without_slot.add(borrower)
            return False
        self.stop_asking(borrower)
        self._running.add(borrower)
        return True

    def stop_asking(self, borrower: Borrower) -> None:
        """Stop counting a function among those that ask: it has a slot again, or has ended."""
        self._without_slot.discard(borrower)
        self._asking_in_all -= 1
        self._asking[borrower.connection] -= 1
        if self._asking[borrower.connection] <= 0:
            del self._asking[borrower.connection]  # keeps no counters of closed connections

    # -- the log -----------------------------------------------------------------------------

    def _report(self) -> None:
        # Log which functions hold the slots while others wait, once a minute at most.
        loop = asyncio.get_running_loop()
        if self._reporter is not None:
            self._reporter.cancel()
            self._reporter = None

        now = loop.time()
        waiting = sum(map(len, self._waiting.values()))
        if now - self._reported >= _REPORT_EVERY:
            self._reported = now
            log.warning(
                "%d calls of plain functions wait for a thread: of %d threads, %d are busy, with %s; the calls of %d "
                "were cancelled",
                waiting, self._threads, len(self._running), _names((*self._running, *self._without_slot)),
                len(self.cancelled),
            )  # fmt: skip

        if waiting:
            self._reporter = loop.call_later(_REPORT_EVERY, self._report)


def _names(borrowers: Iterable[Borrower]) -> str:
    names = Counter(borrower.name for borrower in borrowers).most_common(_MOST_NAMED)
    return printable(", ".join(f"{name[:100]!r} ({count})" for name, count in names) or "nothing", 2000)


def _shares(borrower: Borrower) -> dict[object, int]:
    # Return the groups that a function counts for, and how many times the free slots each may hold.
    #
    # Without a token all programs of one machine look like one client: they share the limit of the address.
    if borrower.connection is None:
        return {}
    shares: dict[object, int] = {borrower.connection: _TIMES_FREE}
    client = borrower.client
    if "@" in client:
        shares[client] = _TIMES_FREE_TOGETHER
    if client:
        shares[address_of(client)] = _TIMES_FREE_AT_ADDRESS
    return shares


class _ThisThread(threading.local):
    # The slot of the plain function that runs in this thread.
    slot: _Slot | None = None


this_thread = _ThisThread()


async def run_in_thread(function: Function, *args: Any, exchange: RunsFor | None = None) -> Any:
    """Return `function(*args)`, run in a thread. `exchange` is the request, whose client has a share of the threads.

    A returned coroutine is awaited here, since a decorator may hide that its function is async. If the waiting task is
    cancelled, the thread finishes on its own, because Python cannot stop it. Raises ThreadsBusy if other functions hold
    the threads for too long.
    """
    loop = asyncio.get_running_loop()
    slots = _slots_of.get(loop)
    if slots is None:
        slots = limit_threads(MAX_THREADS, THREAD_TIMEOUT)
    if slots.pool is None:
        await slots.open_pool()

    context = copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None and sniffio.current_async_library_cvar in context:
        # No event loop runs in the thread, whatever the variable says.
        context.run(sniffio.current_async_library_cvar.set, None)

    slot = _Slot(exchange, loop, slots, function, args, context, loop.create_future(), [True])
    if not slots.try_acquire(slot):
        await slots.acquire(slot)
    try:
        slots.begin(slot)
        await slot.ended
    except (asyncio.CancelledError, RuntimeError):
        slot.give_up()
        raise
    error = slot.error
    if error is not None:
        try:
            raise error
        finally:
            slot.error = error = None
    value = slot.value
    return await value if value.__class__ is CoroutineType else value


def limit_threads(most: int, wait_seconds: float) -> ThreadSlots:
    """Set the number of plain functions that run at once in this event loop, before the first one runs."""
    for loop in [loop for loop in _slots_of if loop.is_closed()]:
        # A function that was running when its loop was closed keeps the loop and its slots alive.
        _slots_of.pop(loop).close_pool()
    loop = asyncio.get_running_loop()
    slots = ThreadSlots(most, wait_seconds)
    if loop in _slots_of:
        slots.take_pool(_slots_of[loop])
    _slots_of[loop] = slots
    return slots


_slots_of: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadSlots] = WeakKeyDictionary()


def cancelled_calls() -> list[Any]:
    """Return the cancelled calls whose functions still run in threads of this process."""
    slots = [slots for loop, slots in list(_slots_of.items()) if not loop.is_closed()]
    return [each.call for one in slots for each in list(one.cancelled) if each.call is not None]


class _Slot(Borrower, eq=False):
    # The slot of one function, and the function as a job. Released when the function has ended, or will never begin.
    # A struct, because one is made for each call.
    loop: asyncio.AbstractEventLoop
    slots: ThreadSlots
    function: Function
    args: tuple[Any, ...]
    context: Context
    ended: asyncio.Future[None]
    # The thread or the task takes its one item, and so decides whether the function runs or never will.
    claim: list[bool]
    value: Any = None
    error: BaseException | None = None
    is_over: bool = False
    is_asking: bool = False
    is_without_slot: bool = False

    # -- the job -----------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self.claim.pop()
        except IndexError:
            return  # cancelled before the function began
        this_thread.slot = self
        try:
            self.value = self.context.run(self.function, *self.args)
        except BaseException as error:
            self.error = error
        finally:
            this_thread.slot = None
        self.slots.end_soon(self)

    def end(self) -> None:
        # Release the slot and let the waiting task continue.
        self._release()
        if self.ended.done():  # the task was cancelled
            self.drop()
        else:
            self.ended.set_result(None)

    def drop(self) -> None:
        # Drop the value or the error. An error would keep itself alive through the frame of `run` in its traceback.
        self.value = self.error = None

    def give_up(self) -> None:
        try:
            self.claim.pop()
        except IndexError:
            if self.is_over:
                self.drop()
            else:
                self.slots.cancelled.add(self)
        else:
            self._release()

    def _release(self) -> None:
        self.is_over = True
        self.slots.cancelled.discard(self)
        if self.is_asking or self.is_without_slot:
            self.is_asking = False
            self.slots.stop_asking(self)
        else:
            self.slots.release(self)

    # -- while it asks the client ------------------------------------------------------------

    def release(self) -> None:
        # Called by the function's thread before it waits for the client.
        self._call_soon(self._release_while_asking)

    def _release_while_asking(self) -> None:
        if not self.is_over and not self.is_without_slot:
            self.is_asking = self.slots.release_while_asking(self)

    def reacquire(self) -> None:
        # Called by the function's thread after the client's answer.
        self._call_soon(self._reacquire)

    def _reacquire(self) -> None:
        if not self.is_over and self.is_asking:
            self.is_asking = False
            self.is_without_slot = not self.slots.reacquire(self)

    def _call_soon(self, step: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(step)
        except RuntimeError:
            pass  # the loop is closed, and nothing waits for a slot
