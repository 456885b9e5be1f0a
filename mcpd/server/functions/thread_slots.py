"""A limit on how many plain functions run in threads at once, with fair shares and a bounded wait.

Theory of operation. There are `threads` slots, and each running function holds one. A connection may begin another
function while it holds less than twice as many slots as are free, a client that is known by a token less than eight
times as many, and all clients of one address, whose tokens nobody may have checked, less than sixteen times. So
one connection that holds all it can leaves a third of the slots free, two leave a fifth, however long their functions
hang, and the next client finds a slot at once. A function that may not begin waits for `wait_seconds` at most; the
connections that wait take turns.

A function that waits for its client's answer releases its slot meanwhile, as long as not too many do: each still has
a thread. With the answer it reacquires one if its connection's share allows that. If not, it goes on without a slot,
and is counted among those that wait for an answer until it is done: however many hang after their answer, they take
no slot from others.

Used on the event loop's thread only.
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
    """The request that a function runs for: an exchange, or what says the same of another request."""

    @property
    def owner(self) -> tuple[object, str]:
        """Its connection, and the client behind that."""

    @property
    def subject(self) -> str:
        """What is asked for, for the log."""


class Borrower(Struct, eq=False):
    """What a slot is lent to: a function that runs for a request, or for None if it is the server's own,
    which has no share to keep to.

    Connection and client are looked up only when shares matter, which is seldom.
    """

    _exchange: RunsFor | None

    @property
    def connection(self) -> object:
        """Its connection; None if it has no share to keep to."""
        return None if self._exchange is None else self._exchange.owner[0]

    @property
    def client(self) -> str:
        """The client behind the connection; "" if it is not known."""
        return "" if self._exchange is None else self._exchange.owner[1]

    @property
    def name(self) -> str:
        """What the function is, for the log."""
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
        """Where those run that have a slot, from the first of them on."""
        self._at_end: AsyncGenerator[None, None] | None = None
        self._threads = threads
        self._wait_seconds = wait_seconds
        self._running: set[Borrower] = set()
        """Those that hold a slot."""
        self._without_slot: set[Borrower] = set()
        """Those that run without one, after an answer of their client."""
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
        """Have threads, till the loop comes to its end."""
        from concurrent.futures import ThreadPoolExecutor  # loaded with the first plain function

        self.pool = ThreadPoolExecutor(self._threads + _ASKING_IN_ALL, "mcpd-function")
        # asyncio.run and its like end the generators of a loop before they close it.
        self._at_end = self._until_the_end()
        await anext(self._at_end)

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.close_pool()

    def take_pool(self, other: ThreadSlots) -> None:
        """Go on with the threads of others of this loop."""
        self.pool, self._at_end = other.pool, other._at_end

    @property
    def is_open(self) -> bool:
        """Whether functions may begin."""
        return self._at_end is not None

    def close_pool(self) -> None:
        """Let all threads go, each when its function has returned."""
        self._at_end = None  # it holds the loop
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

    # -- whose turn it is --------------------------------------------------------------------

    @property
    def free(self) -> int:
        """How many slots nobody holds."""
        return self._threads - len(self._running)

    def _held(self) -> Counter[object]:
        """How many slots each connection, client and address holds."""
        held: Counter[object] = Counter()
        for borrower in self._running:
            held.update(list(_shares(borrower)))
        return held

    def _may_begin(self, borrower: Borrower, held: Counter[object] | None = None) -> bool:
        running = len(self._running)
        free = self._threads - running
        # The quick way: with a third of the slots held at most, no connection, client or address can be over its share.
        if running < _TIMES_FREE * free or borrower.connection is None:
            return free > 0
        held = self._held() if held is None else held
        return all(held[key] < times * free for key, times in _shares(borrower).items())

    def try_acquire(self, borrower: Borrower) -> bool:
        """Whether there is a slot without waiting; then it is taken."""
        if self._waiting and borrower.connection in self._waiting or not self._may_begin(borrower):
            return False
        self._running.add(borrower)
        return True

    async def acquire(self, borrower: Borrower) -> None:
        """Wait for a slot. Raises ThreadsBusy, with a text that says to try again, if none comes in time."""
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
                self.release(borrower)  # its turn came while it was cancelled
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
        """A function is done: the next may begin."""
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
        """Give free slots to those that wait, the connections in turn."""
        held = self._held()
        while self.free > 0:
            key = next((key for key, queue in self._waiting.items() if self._may_begin(queue[0][0], held)), self)
            if key is self:
                return  # nobody who waits may have one

            queue = self._waiting.pop(key)
            borrower, turn = queue.popleft()
            if queue:
                self._waiting[key] = queue  # behind the others

            if not turn.done():
                self._running.add(borrower)
                held.update(list(_shares(borrower)))
                turn.set_result(None)

    # -- functions that ask their client -----------------------------------------------------

    def release_while_asking(self, borrower: Borrower) -> bool:
        """A function begins to wait for its client: whether its slot is free for another meanwhile."""
        key = borrower.connection
        if self._asking_in_all >= _ASKING_IN_ALL or self._asking[key] >= _ASKING_OF_ONE:
            return False
        self._asking_in_all += 1
        self._asking[key] += 1
        self.release(borrower)
        return True

    def reacquire(self, borrower: Borrower) -> bool:
        """It goes on, as it holds its thread anyway; whether in a slot of its share.

        If not, it stays counted among those that ask, until `end_without_slot`: it takes no slot from anybody.
        """
        if not self._may_begin(borrower):
            self._without_slot.add(borrower)
            return False
        self._asks_no_more(borrower)
        self._running.add(borrower)
        return True

    def end_without_slot(self, borrower: Borrower) -> None:
        """A function is done that went on without a slot."""
        self._without_slot.discard(borrower)
        self._asks_no_more(borrower)

    def end_while_asking(self, borrower: Borrower) -> None:
        """A function is done before anybody knew that it went on."""
        self._asks_no_more(borrower)

    def _asks_no_more(self, borrower: Borrower) -> None:
        self._asking_in_all -= 1
        self._asking[borrower.connection] -= 1
        if self._asking[borrower.connection] <= 0:
            del self._asking[borrower.connection]  # connections come and go

    # -- what the log is told ----------------------------------------------------------------

    def _report(self) -> None:
        """Say who holds the slots while others wait, but not all the time."""
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
    """Of whom a function holds a slot, and how many times as many as are free each may hold; nobody for the server's.

    Without a token all programs of one machine look like one client: they share what an address may have.
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
