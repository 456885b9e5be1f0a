"""Limits how many plain functions run in threads at once, with fair shares and a bounded wait.

Theory of operation. There are `threads` slots, and each running function holds one. A connection may begin another
function while it holds less than twice as many slots as are free. A client known by a token may hold less than eight
times as many, and all clients of one address, whose tokens may be unchecked, less than sixteen times. So one connection
that holds all it can leaves a third of the slots free, two leave a fifth, however long their functions hang, and the
next client finds a slot at once. A function that may not begin waits for at most `wait_seconds`; waiting connections
take turns.

A function that waits for its client's answer releases its slot, within limits, since each still holds a thread. After
the answer it reacquires a slot if its connection's share allows it. Otherwise it continues without one, and is counted
among the functions that wait for an answer until it ends. So functions that hang after their answer take no slot from
others.

Used on the event loop's thread only, except for `end_soon`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from mcpd.errors import ThreadsBusy
from mcpd.protocol.budget import address_of
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger("mcpd")

_TIMES_FREE = 2
_TIMES_FREE_TOGETHER = 8
_TIMES_FREE_AT_ADDRESS = 16
_ASKING_OF_ONE = 64
_ASKING_IN_ALL = 256
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
    def name(self) -> str:
        """The subject of the request, for the log."""
        return "" if self._exchange is None else self._exchange.subject


class Job(Borrower, eq=False):
    """A function in its thread."""

    loop: asyncio.AbstractEventLoop

    def end(self) -> None:
        """Release the slot and the task that waits. Called on the event loop's thread."""
        raise NotImplementedError

    def drop(self) -> None:
        """Forget the function's value or error."""
        raise NotImplementedError


class ThreadSlots:
    """The slots of one event loop."""

    def __init__(self, threads: int, wait_seconds: float) -> None:
        self.pool: ThreadPoolExecutor | None = None
        """The threads, from the first function on."""
        self._at_end: AsyncGenerator[None, None] | None = None
        self._threads = threads
        self._wait_seconds = wait_seconds
        self._running: set[Borrower] = set()
        """The functions that hold a slot."""
        self._without_slot: set[Borrower] = set()
        """The functions that continue without a slot after their client's answer."""
        self._asking: Counter[object] = Counter()
        self._asking_in_all = 0
        self._waiting: dict[object, deque[tuple[Borrower, asyncio.Future[None]]]] = {}
        self._reporter: asyncio.TimerHandle | None = None
        self._reported = -_REPORT_EVERY
        self._ended: deque[Job] = deque()
        """Jobs whose functions have returned, and that are still to be ended on the event loop's thread."""
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
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

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
        # Quick check: as long as a third of the slots at most is held, nobody can exceed a share.
        if running < _TIMES_FREE * free or borrower.connection is None:
            return free > 0
        held = self._held() if held is None else held
        return all(held[key] < times * free for key, times in _shares(borrower).items())

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
        too_late = loop.call_later(self._wait_seconds, turn.cancel)

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

    def end_soon(self, job: Job) -> None:
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

    def _end_all(self) -> None:
        self._is_woken = False  # first: a job that ends from now on wakes the loop again
        while self._ended:
            self._ended.popleft().end()

    def _leave(self, borrower: Borrower, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(borrower.connection)
        if queue is not None:
            queue.remove((borrower, turn))
            if not queue:
                del self._waiting[borrower.connection]

    def _serve(self) -> None:
        """Assign free slots to waiting functions, connection by connection."""
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

        Otherwise the function stays counted among the waiting ones until `end_without_slot`.
        """
        if not self._may_begin(borrower):
            self._without_slot.add(borrower)
            return False
        self._asks_no_more(borrower)
        self._running.add(borrower)
        return True

    def end_without_slot(self, borrower: Borrower) -> None:
        """End a function that continued without a slot."""
        self._without_slot.discard(borrower)
        self._asks_no_more(borrower)

    def end_while_asking(self, borrower: Borrower) -> None:
        """End a function that did not report the client's answer."""
        self._asks_no_more(borrower)

    def _asks_no_more(self, borrower: Borrower) -> None:
        self._asking_in_all -= 1
        self._asking[borrower.connection] -= 1
        if self._asking[borrower.connection] <= 0:
            del self._asking[borrower.connection]  # keeps no counters of closed connections

    # -- the log -----------------------------------------------------------------------------

    def _report(self) -> None:
        """Log which functions hold the slots while others wait, once a minute at most."""
        loop = asyncio.get_running_loop()
        if self._reporter is not None:
            self._reporter.cancel()
            self._reporter = None

        now = loop.time()
        waiting = sum(map(len, self._waiting.values()))
        if now - self._reported >= _REPORT_EVERY:
            self._reported = now
            names = Counter(borrower.name for borrower in (*self._running, *self._without_slot))
            named = ", ".join(f"{name[:100]!r} ({count})" for name, count in names.most_common(_MOST_NAMED))
            log.warning(
                "Calls of plain functions wait for a thread, %d now; of %d threads %d are busy, with %s",
                waiting, self._threads, len(self._running), printable(named or "nothing", 2000),
            )  # fmt: skip

        if waiting:
            self._reporter = loop.call_later(_REPORT_EVERY, self._report)


def _shares(borrower: Borrower) -> dict[object, int]:
    """Return the groups that a function counts for, and how many times the free slots each may hold.

    Without a token all programs of one machine look like one client: they share the limit of the address.
    """
    if borrower.connection is None:
        return {}
    shares: dict[object, int] = {borrower.connection: _TIMES_FREE}
    client = borrower.client
    if "@" in client:
        shares[client] = _TIMES_FREE_TOGETHER
    if client:
        shares[address_of(client)] = _TIMES_FREE_AT_ADDRESS
    return shares
