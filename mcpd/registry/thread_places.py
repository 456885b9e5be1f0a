"""Who may run a plain function next: fair shares of a bounded number of threads, and a bounded wait for one.

Theory of operation. Of `threads` places each running function holds one. A connection may begin another function
while it holds less than twice as many places as are free, a client (its token, or its address) less than eight times
as many, and all clients of one address, whose tokens nobody may have checked, less than sixteen times: one connection
that holds all it can leaves a third of them free, two leave a fifth, however long their functions hang, and so the
next client finds a place at once. Who may not begin waits for `wait_seconds` at most; the connections
that wait take turns. A function that waits for its client's answer gives its place back meanwhile, as long as not
too many do: each still has a thread. With the answer it goes on, in a place of its share if there is one, else beside
the places, and then counts among those that ask until it is done: however many hang after their answer, they take no
place from others.

Used on the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import TYPE_CHECKING

from ..budget import address_of
from ..errors import ToolError
from ..printable import printable

if TYPE_CHECKING:
    from ..context.exchange import Exchange

__all__ = ["Places", "Taker"]

log = logging.getLogger("mcpd")

_TIMES_FREE = 2
_TIMES_FREE_TOGETHER = 8
_TIMES_FREE_AT_ADDRESS = 16
_TIMES = (_TIMES_FREE, _TIMES_FREE_TOGETHER, _TIMES_FREE_AT_ADDRESS)
_ASKING_OF_ONE = 64
_ASKING_IN_ALL = 256
_REPORT_AFTER = 5.0
_REPORT_EVERY = 60.0
_MOST_NAMED = 5


class Taker:
    """For whom a function runs: a request, or None for a function of the server's own, which has no share to keep to.

    What shares go by is found only when they matter, which is seldom.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange | None = None) -> None:
        self._exchange = exchange

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


class Places:
    """The places of one event loop."""

    def __init__(self, threads: int, wait_seconds: float) -> None:
        self._threads = threads
        self._wait_seconds = wait_seconds
        self._running: set[Taker] = set()
        """Those that hold a place."""
        self._beside: set[Taker] = set()
        """Those that run without one."""
        self._asking: Counter[object] = Counter()
        self._asking_in_all = 0
        self._waiting: dict[object, deque[tuple[Taker, asyncio.Future[None]]]] = {}
        self._reporter: asyncio.TimerHandle | None = None
        self._reported = -_REPORT_EVERY

    @property
    def free(self) -> int:
        """How many places nobody holds."""
        return self._threads - len(self._running)

    def _held(self) -> Counter[object]:
        """How many places each connection, client and address holds."""
        held: Counter[object] = Counter()
        for taker in self._running:
            held.update(_keys(taker))
        return held

    def _may_begin(self, taker: Taker, held: Counter[object] | None = None) -> bool:
        running = len(self._running)
        free = self._threads - running
        # Who holds all places that are held may begin as long as two thirds of them are not: then shares say nothing.
        if running < _TIMES_FREE * free or taker.connection is None:
            return free > 0
        held = self._held() if held is None else held
        keys = _keys(taker)
        return all(held[key] < times * free for key, times in zip(keys, _TIMES, strict=False))

    def take_at_once(self, taker: Taker) -> bool:
        """Whether there is a place without waiting; then it is taken."""
        if self._waiting and taker.connection in self._waiting or not self._may_begin(taker):
            return False
        self._running.add(taker)
        return True

    async def take(self, taker: Taker) -> None:
        """Wait for a place. Raises ToolError, with a text that says to try again, if none comes in time."""
        if self.take_at_once(taker):
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(taker.connection, deque()).append((taker, turn))
        if self._reporter is None:
            self._reporter = loop.call_later(_REPORT_AFTER, self._report)
        too_late = loop.call_later(self._wait_seconds, turn.cancel)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give_back(taker)  # its turn came while it was cancelled
                raise
            self._leave(taker, turn)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._report()
            raise ToolError(
                f"The server is busy: no thread came free within {self._wait_seconds:g} seconds. Try again later"
            ) from None
        finally:
            too_late.cancel()

    def give_back(self, taker: Taker) -> None:
        """One is done: the next may begin."""
        self._running.discard(taker)
        if self._waiting:
            self._serve()

    def _leave(self, taker: Taker, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(taker.connection)
        if queue is not None:
            queue.remove((taker, turn))
            if not queue:
                del self._waiting[taker.connection]

    def _serve(self) -> None:
        """Give free places to those that wait, the connections in turn."""
        held = self._held()
        while self.free > 0:
            key = next((key for key, queue in self._waiting.items() if self._may_begin(queue[0][0], held)), self)
            if key is self:
                return
            queue = self._waiting.pop(key)
            taker, turn = queue.popleft()
            if queue:
                self._waiting[key] = queue  # behind the others
            if not turn.done():
                self._running.add(taker)
                held.update(_keys(taker))
                turn.set_result(None)

    # -- functions that ask their client -----------------------------------------------------

    def pause(self, taker: Taker) -> bool:
        """A function begins to wait for its client: whether its place is free for another meanwhile."""
        key = taker.connection
        if self._asking_in_all >= _ASKING_IN_ALL or self._asking[key] >= _ASKING_OF_ONE:
            return False
        self._asking_in_all += 1
        self._asking[key] += 1
        self.give_back(taker)
        return True

    def resume(self, taker: Taker) -> bool:
        """It goes on, as it holds its thread anyway; whether in a place of its share.

        If not, it stays counted among those that ask, until `end_beside`: it takes no place from anybody.
        """
        if not self._may_begin(taker):
            self._beside.add(taker)
            return False
        self._asks_no_more(taker)
        self._running.add(taker)
        return True

    def end_beside(self, taker: Taker) -> None:
        """A function is done that went on without a place."""
        self._beside.discard(taker)
        self._asks_no_more(taker)

    def end_paused(self, taker: Taker) -> None:
        """A function is done before anybody knew that it went on."""
        self._asks_no_more(taker)

    def _asks_no_more(self, taker: Taker) -> None:
        self._asking_in_all -= 1
        self._asking[taker.connection] -= 1
        if self._asking[taker.connection] <= 0:
            del self._asking[taker.connection]  # connections come and go

    # -- what the log is told ----------------------------------------------------------------

    def _report(self) -> None:
        """Say who holds the places while others wait, but not all the time."""
        loop = asyncio.get_running_loop()
        if self._reporter is not None:
            self._reporter.cancel()
            self._reporter = None
        now = loop.time()
        waiting = sum(map(len, self._waiting.values()))
        if now - self._reported >= _REPORT_EVERY:
            self._reported = now
            names = Counter(taker.name for taker in (*self._running, *self._beside))
            named = ", ".join(f"{name[:100]!r} ({count})" for name, count in names.most_common(_MOST_NAMED))
            log.warning(
                "Calls of plain functions wait for a thread, %d now; of %d threads %d are busy, with %s",
                waiting, self._threads, len(self._running), printable(named or "nothing", 2000),
            )  # fmt: skip
        if waiting:
            self._reporter = loop.call_later(_REPORT_EVERY, self._report)


def _keys(taker: Taker) -> tuple[object, ...]:
    """Whose shares a function takes of, in the order of `_TIMES`: its connection's, client's, address's; or none."""
    if taker.connection is None:
        return ()
    client = taker.client
    return (taker.connection, client, address_of(client)) if client else (taker.connection,)
