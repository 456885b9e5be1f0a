"""The workers of this process: which of them run calls, which calls wait, and how a call is ended.

Theory of operation. A `Pool` belongs to one target in one event loop. At most as many workers run calls as there are
processors; further calls wait in order. A cancelled call leaves its place at once: the connection to its worker is shut
down, which cancels the function, and one second later the worker is killed with its process group.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from msgspec import MsgspecError

from mcpd.errors import ToolError
from mcpd.server.functions import Source
from .messages import Ready
from .starting import ForkServer, Start, Worker, spawn

# The time for which an idle worker is kept, and the number of calls that may wait for a worker.
IDLE_SECONDS = 60.0
MOST_WAITING = 64
# The time for which the `finally` blocks of a cancelled call may run.
END_SECONDS = 1.0
_ENDED = "its process has ended while it started", "its output says why"


class NotStarted(Exception):
    """No worker could be started. The text says why, and `details` are for the log."""

    def __init__(self, text: str, details: object) -> None:
        super().__init__(text)
        self.details = str(details)


class Pool:
    """The workers of one target. Made by `pool_of`."""

    def __init__(self, source: Source, start: Start) -> None:
        self.source, self.start = source, start
        self.fork_server: ForkServer | None = None
        self._loop = asyncio.get_running_loop()
        self._most = os.cpu_count() or 1
        self._places = asyncio.Semaphore(self._most)
        self._waiting = 0
        # The number of calls that wait or run, the workers that have not ended, and those of them without a call.
        self._users = 0
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._ending: set[Worker] = set()
        self._is_retired = False
        self._life: AsyncIterator[None] | None = None

    async def open(self) -> None:
        """Close the pool with the event loop, which closes generators that have not finished."""
        self._life = self._until_closed()
        await anext(self._life)

    async def _until_closed(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            _pools.pop(self._loop, None)
            ends = [worker.ended for worker in self._workers]
            if self.fork_server is not None:
                ends.append(self.fork_server.ended)
            self.close()
            if ends:
                await asyncio.wait(ends, timeout=END_SECONDS)
            for worker in list(self._workers):
                worker.kill()

    # -- a worker for a call -----------------------------------------------------------------

    @asynccontextmanager
    async def worker(self, calls: int) -> AsyncIterator[Worker]:
        """Lend a worker that has run fewer than `calls` calls (0: any number). Ends it if its function still runs.

        Raises ToolError if too many calls wait, NotStarted if no worker can be started.
        """
        if self._waiting >= MOST_WAITING:
            raise ToolError(f"The server is busy: {MOST_WAITING} calls wait for a process; try again later")
        self._users += 1
        try:
            self._waiting += 1
            try:
                await self._places.acquire()
            finally:
                self._waiting -= 1
            worker: Worker | None = None
            try:
                worker = self._idle_worker(calls)
                while worker is None or not await self._is_ready(worker):
                    worker = await self._start()
                yield worker
            finally:
                if worker is not None:
                    self._take_back(worker, calls)
                if worker is None or not worker.holds_place:
                    self._places.release()
        finally:
            self._users -= 1
            if self._is_retired and not self._users:
                self.close()

    def _idle_worker(self, calls: int) -> Worker | None:
        for worker in reversed(self._idle):
            if not calls or worker.calls < calls:
                self._idle.remove(worker)
                if worker.leaving is not None:
                    worker.leaving.cancel()
                worker.is_used = True
                return worker
        if len(self._workers) - len(self._ending) >= self._most and self._idle:
            self._dismiss(self._idle[0])
        return None

    async def _start(self) -> Worker:
        try:
            if self.start == "spawn":
                worker = await spawn(self.source)
            else:
                if self.fork_server is None or self.fork_server.is_closed:
                    self.fork_server = ForkServer(self.source, self.start)
                worker = self.fork_server.fork()
        except ConnectionError:
            raise NotStarted(*_ENDED) from None
        except OSError as error:
            raise NotStarted("no process can be started", error) from None

        self._workers.add(worker)
        worker.ended.add_done_callback(lambda _: self._on_ended(worker))
        return worker

    async def _is_ready(self, worker: Worker) -> bool:
        # Wait for the first message of a new worker. Returns False if another one must be started.
        if worker.pid:
            return True
        try:
            ready = await worker.receive()
        except (OSError, ValueError, MsgspecError):
            ready = None

        if not isinstance(ready, Ready):
            raise NotStarted(*_ENDED)
        if ready.pid:
            worker.pid, worker.is_running = ready.pid, False
            return True
        if self.fork_server is not None:
            self.fork_server.close()  # the next call tries it again
        if ready.problem:
            raise NotStarted("its process cannot import the target", ready.problem)
        self.start = "spawn"
        worker.close()
        return False

    def _take_back(self, worker: Worker, calls: int) -> None:
        worker.is_used = False
        worker.calls += 1
        if worker.ended.done():
            worker.close()
        elif worker.is_running:
            worker.shut()
            self._ending.add(worker)
            # Cancelled calls must not start more and more processes.
            worker.holds_place = len(self._ending) > self._most
            late = self._loop.call_later(END_SECONDS, worker.kill)
            worker.ended.add_done_callback(lambda _: late.cancel())
        else:
            self._idle.append(worker)
            worker.leaving = self._loop.call_later(IDLE_SECONDS, self._dismiss, worker)
            if self._is_retired or (calls and worker.calls >= calls):
                self._dismiss(worker)

    def _dismiss(self, worker: Worker) -> None:
        self._idle.remove(worker)
        worker.shut()

    def _on_ended(self, worker: Worker) -> None:
        self._workers.discard(worker)
        worker.shut()
        if worker in self._idle:
            self._idle.remove(worker)
        self._ending.discard(worker)
        if not worker.is_used:
            worker.close()
        if worker.holds_place:
            self._places.release()

    # -- the end -----------------------------------------------------------------------------

    def retire(self) -> None:
        """Take no more calls, and close when the running ones have ended."""
        self._is_retired = True
        for worker in list(self._idle):
            self._dismiss(worker)
        if not self._users:
            self.close()

    def close(self) -> None:
        """End all workers. Safe to call twice."""
        self._is_retired = True
        for worker in self._workers:
            worker.shut()
        if self.fork_server is not None:
            self.fork_server.close()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Source, Start], Pool]] = WeakKeyDictionary()


async def pool_of(source: Source, start: Start) -> Pool:
    """Return the pool of a target in this event loop. A pool of the same target, before a reload, is retired."""
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    pool = pools.get((source, start))
    if pool is not None:
        return pool

    for key, other in list(pools.items()):
        if key[1] == start and (key[0].loader, key[0].arguments) == (source.loader, source.arguments):
            del pools[key]
            other.retire()

    pool = pools[source, start] = Pool(source, start)
    await pool.open()
    return pool
