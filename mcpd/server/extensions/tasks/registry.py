"""`Tasks`: all tasks of a server. It admits, finds, cancels and ends them, and takes over tasks of dead nodes.

Watchers on all nodes are notified of each change of a task. Nothing here depends on the form on the wire. Times are in
seconds.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine
from functools import lru_cache
from os import urandom
from secrets import token_urlsafe
from time import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Raw

from mcpd.errors import InternalError, InvalidParams, ResultTooLarge
from mcpd.protocol.budget import OVER, SMALL, Charge
from mcpd.protocol.envelope import result_meta
from mcpd.protocol.printable import printable
from mcpd.server.backplane.base import Backplane, BackplaneAway
from mcpd.server.dispatcher.observing import HookedObserver
from .peer import Run
from .questions import Questions
from .record import Outcome, Record, error_outcome, owner_of, short
from .store import MemoryStore, TaskStore

if TYPE_CHECKING:
    from mcpd.protocol.session import Session
    from mcpd.server.context.exchange import Exchange
    from mcpd.server.extensions.base import ExtensionHost
    from .settings import TaskSettings

log = logging.getLogger("mcpd.tasks")

# Random bytes of an id (TASK-019).
_ID_BYTES = 32
# Seconds for which an outcome waits for a backplane that is away.
_MOST_AWAY = 600
_ENDLESS = float("inf")
_CANCELLED = "Cancelled by the client"
_STOPPED = "The server was stopped before the task had finished"
_DIED = "The process that ran this task has ended before it had finished"

# Called with None for a task that does not exist any more.
Watcher = Callable[[Record | None], object]


_digest = lru_cache(1024)(owner_of)


class Tasks:
    """The tasks of one server, or of several that are served together. `new_backplane` opens the store on first use."""

    clock: Callable[[], float] = staticmethod(time)
    lease = 15.0
    renew_every = 5.0
    # Seconds between two looks for silent changes, as in an SQLite file that processes share.
    look_every = 0.5

    def __init__(
        self,
        settings: TaskSettings,
        new_backplane: Callable[[], tuple[Backplane | None, bool]],
        namespace: str,
        run_again: Callable[[Tasks, ExtensionHost, Record], object],
    ) -> None:
        self.settings = settings
        self.runs: dict[str, Run] = {}
        self._new_backplane = new_backplane
        self._namespace = namespace
        self._run_again = run_again
        # The servers whose tools can run, by name. A server replaces an earlier one of the same name.
        self.hosts: dict[str, ExtensionHost] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: TaskStore | None = None
        self._opening: asyncio.Future[None] | None = None
        # The open `tasks/result` of each task.
        self.results: dict[str, list[Exchange]] = {}
        self._watchers: dict[str, list[Watcher]] = {}
        self.questions = Questions(self.read, self.change, self._log)
        # The tasks that work, by caller, and all of them.
        self.counted: dict[str, int] = {}
        self._working = 0
        # The tasks that each caller has, with their ends, and the memory of large results in this process.
        self._kept: dict[str, dict[str, float]] = {}
        self._charges: dict[str, Charge] = {}
        self._strangers: WeakKeyDictionary[Session, str] = WeakKeyDictionary()
        self._background: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self.is_ending = False
        self._owns_backplane = True
        # The questions that a client of 2025-11-25 is being asked, by task and key.
        self.asking: dict[tuple[str, str], asyncio.Task[None]] = {}

    # -- its life ----------------------------------------------------------------------------

    @property
    def store(self) -> TaskStore:
        """The store."""
        return self._begin() if self._store is None else self._store

    def _begin(self) -> TaskStore:
        # Return the store of the running event loop.
        loop = asyncio.get_running_loop()
        if self._store is None or loop is not self._loop:
            # The work of an event loop that was closed cannot continue.
            self._loop, self._opening, self.is_ending = loop, None, False
            self._timer = self._look_timer = None
            for each in (self.runs, self.results, self.asking, self._watchers, self.counted, self.questions.asked):
                each.clear()
            self._working = 0
            if self._store is None or not self._store.is_memory:
                backplane, self._owns_backplane = self._new_backplane()
                if backplane is None:
                    self._store = MemoryStore()
                else:
                    self._store = TaskStore(backplane, self.lease, self._namespace)

        return self._store

    async def open(self) -> None:
        """Listen to other nodes, and look for tasks of nodes that have died. Safe to call again."""
        store = self._begin()
        if store.is_memory:
            return
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open(store))
        if not self._opening.done():
            await asyncio.shield(self._opening)

    async def _open(self, store: TaskStore) -> None:
        try:
            await store.listen(self._hear, self._look_at_all)
        except BackplaneAway as error:
            log.warning("tasks are served without the store until it can be reached: %s", printable(error))
        await self._tick()

    def _hear(self, task_id: str) -> None:
        # A node has changed a task or, without an id, leaves its tasks to others.
        self.spawn(self._look(task_id) if task_id else self._tick())

    async def aclose(self) -> None:
        """Leave the tasks to other nodes, and close the store."""
        store = self._store
        if store is None or self._loop is not asyncio.get_running_loop():
            return
        if self._background:
            await asyncio.wait(self._background, timeout=1)
        left = list(self._background)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for timer in (self._timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._look_timer = None
        if store.is_memory:
            return
        self._store = self._opening = None
        try:
            await store.leave()
        except BackplaneAway:
            pass

        if self._owns_backplane:
            await store.backplane.aclose()

    async def finish(self, grace: float) -> None:
        """Let running tasks end for `grace` seconds. Then give tasks that may run again to other nodes."""
        self.is_ending = True
        works = [run.work for run in self.runs.values() if run.work is not None]
        if works and grace > 0:
            await asyncio.wait(works, timeout=grace)
        self.abort()
        if works:
            await asyncio.wait(works, timeout=1)

    def abort(self) -> None:
        """Cancel all running tasks, which are recorded as failed or given away."""
        for run in list(self.runs.values()):
            run.stop(InternalError(_STOPPED))

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something in the background, and ignore a store that cannot be reached."""
        task = asyncio.ensure_future(self._quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda _: work.close())  # in case it was cancelled before it began

    async def _quietly(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except BackplaneAway:
            pass

    def _schedule(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self.renew_every, self._on_time)
        if self._look_timer is None and self._loop is not None and self._store is not None and self._store.is_silent:
            self._look_timer = self._loop.call_later(self.look_every, self._on_look_time)

    def _on_time(self) -> None:
        self._timer = None
        self.spawn(self._tick())

    def _on_look_time(self) -> None:
        self._look_timer = None
        if self._followed():  # otherwise the next task or watcher schedules it again
            self.spawn(self._look_if_changed())

    async def _look_if_changed(self) -> None:
        try:
            if await self.store.was_changed():
                self._look_at_all()
        finally:
            self._schedule()

    async def _tick(self) -> None:
        # Show that this node is alive, look after its tasks, and take over those of dead nodes.
        store = self.store
        try:
            await store.renew()
            await self._look_after()
            await store.expire(self.clock())
            async for record in store.orphans():
                await self._recover(record)
        finally:
            for caller in list(self._kept):
                self._drop_expired(caller)
            if self._kept or self._followed() or not store.is_memory:
                self._schedule()

    async def _look_after(self) -> None:
        # Read records that other nodes may have changed without a message, and end questions that wait too long.
        now = self.clock()
        for task_id, run in list(self.runs.items()):
            if not self.store.is_memory:
                if run.node != self.store.node:
                    await self._move(task_id, run)
                await self._look(task_id)
                await self.store.extend(task_id, now)
            if run.record is not None and now - run.record.created > self.settings.max_ttl:
                self.questions.give_up(task_id, self.settings.max_ttl)
        for task_id in self._followed() - self.runs.keys():
            await self._look(task_id)

    # -- the owners of tasks -----------------------------------------------------------------

    def owner(self, exchange: Exchange) -> str:
        """Return the owner of the tasks that this request creates; "" if only their ids protect them."""
        session = exchange.call.session
        if session.opening.principal:
            return _digest(session.opening.principal)
        if session.is_initialized and exchange.origin.transport == "websocket":
            # An anonymous connection is a requestor of its own, whose tasks can be listed (TASK-004).
            return self._strangers.setdefault(session, token_urlsafe(16))
        return ""

    def is_known(self, exchange: Exchange) -> bool:
        """Whether the requestor can be distinguished from all others, so that tasks can be listed (TASK-004)."""
        return bool(exchange.call.session.opening.principal) or exchange.origin.transport != "http"

    def admit(self, caller: str) -> None:
        """Raise InternalError if this caller cannot have one more task, with the limit (TASK-074)."""
        settings = self.settings
        self._begin()  # forgets what an earlier event loop has left
        if self.is_ending:
            raise InternalError("The server is shutting down")
        if self._working >= settings.running:
            raise _over(settings.running, "run at once", "running")
        if self.counted.get(caller, 0) >= settings.running_each:
            raise _over(settings.running_each, "of one client run at once", "running_each")
        if len(self._kept.get(caller, ())) >= settings.kept_each:
            self._drop_expired(caller)
            if len(self._kept.get(caller, ())) >= settings.kept_each:
                raise _over(settings.kept_each, "of one client are kept", "kept_each")

    def count(self, caller: str, change: int) -> None:
        """Count a task that begins (1) or ends (-1) to work for a caller."""
        self._working += change
        working = self.counted.pop(caller, 0) + change
        if working:
            self.counted[caller] = working

    def _drop_expired(self, caller: str) -> None:
        kept, now = self._kept[caller], self.clock()
        for task_id in [task_id for task_id, end in kept.items() if end <= now]:
            del kept[task_id]
            self._charges.pop(task_id, None)
        if not kept:
            del self._kept[caller]

    # -- finding -----------------------------------------------------------------------------

    def peek(self, task_id: str, exchange: Exchange) -> Record | None:
        """Return a task of this node, if the sender of a request may use it."""
        run = self.runs.get(task_id)
        record = None if run is None else run.record
        return record if record is None or not record.owner else self._opened(record, exchange)

    def _opened(self, record: Record | None, exchange: Exchange) -> Record | None:
        # Return a task if its owner, or anybody with the id, is the sender of a request (TASK-072).
        is_open = record is not None and (not record.owner or record.owner == self.owner(exchange))
        return record if is_open else None

    async def read(self, task_id: str) -> Record | None:
        """Return a task that has not expired."""
        await self.open()
        record = await self.store.read(task_id)
        return None if record is None or record.is_over(self.clock()) else record

    async def find_for(self, task_id: str, exchange: Exchange) -> Record | None:
        """Return a task that the sender of a request may use."""
        record = await self.read(task_id)
        if record is not None and record.asks and not self.store.is_memory:
            # Another node may have accepted an answer, and this one has not heard of it yet.
            record = await self.store.read(task_id, is_fresh=True)
        return self._opened(record, exchange)

    def watch(self, task_id: str, watcher: Watcher) -> None:
        """Call `watcher` after each change of a task."""
        self._watchers.setdefault(task_id, []).append(watcher)
        self._schedule()

    def unwatch(self, task_id: str, watcher: Watcher) -> None:
        """Stop calling a watcher."""
        watchers = self._watchers.get(task_id, [])
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            self._watchers.pop(task_id, None)

    # -- changing ----------------------------------------------------------------------------

    async def create(self, run: Run, record: Record, *, is_listed: bool) -> None:
        """Store a new task, so that it is found from now on (TASK-015). If that fails, nothing is left of it."""
        store = self.store
        if not store.is_memory:
            await self.open()
        record.id, record.node = urlsafe_b64encode(urandom(_ID_BYTES))[:-1].decode(), store.node
        try:
            await store.create(record, is_listed=is_listed)
        except BaseException:
            self.spawn(store.discard(record.id))
            raise

        self.runs[record.id] = run
        self._kept.setdefault(run.caller, {})[record.id] = _ENDLESS
        self._schedule()
        self._log(record, "created")

    async def discard(self, run: Run, record: Record) -> None:
        """Delete a task whose client left before it received the id (TASK-047)."""
        self.runs.pop(record.id, None)
        self._kept.get(run.caller, {}).pop(record.id, None)
        await self.store.discard(record.id)

    async def change(self, task_id: str, step: Callable[[Record], bool]) -> Record | None:
        """Change a task and notify all watchers. Returns None if nothing was changed."""
        store = self.store
        record = await store.change(task_id, step, self.clock())
        if record is not None:
            self._changed(record)
            if not store.is_memory:
                await store.publish(task_id)
        return record

    def _changed(self, record: Record) -> None:
        run = self.runs.get(record.id)
        if run is not None:
            run.changed(record)
        for watcher in list(self._watchers.get(record.id, ())):
            watcher(record)

    async def _look(self, task_id: str) -> None:
        # Read a task that another node may have changed.
        run = self.runs.get(task_id)
        if run is None and task_id not in self._watchers and task_id not in self.questions.asked:
            return
        record = await self.store.read(task_id, is_fresh=True)
        if run is not None and (record is None or record.is_final or record.node != run.node):
            run.stop(None)
        if record is None:
            for watcher in list(self._watchers.get(task_id, ())):
                watcher(None)
        elif (record.answers or record.refusals) and await self.questions.take(record):
            pass
        elif run is None or run.record is None or run.record.updated != record.updated:
            self._changed(record)

    def _followed(self) -> set[str]:
        # The tasks whose changes matter to this node.
        return {*self.runs, *self._watchers, *self.questions.asked}

    def _look_at_all(self) -> None:
        for task_id in self._followed():
            self.spawn(self._look(task_id))

    async def end(
        self, record: Record, outcome: Outcome | None, message: str | None = None, node: str = ""
    ) -> Record | None:
        """End a task with an outcome, or as cancelled, unless it has ended or another node than `node` runs it.

        Returns the task, or None if nothing was changed.
        """
        store, task_id, caller = self.store, record.id, self._caller_of(record.id)
        now, keep = self.clock(), self.settings.keep
        size = 0 if outcome is None else outcome.size
        if size > self.settings.result_bytes:
            outcome = error_outcome(ResultTooLarge(size, self.settings.result_bytes))
        elif size > SMALL and store.is_memory:
            charge = Charge(task_id, caller)
            if charge.set(size):
                self._charges[task_id] = charge
            else:
                outcome = error_outcome(InternalError(OVER))

        inside, place = outcome, ""
        if outcome is not None and not store.is_memory:
            ttl = max(keep, (record.wish or 0.0) - now + record.created)
            inside, place = await store.put_outcome(task_id, outcome, ttl)

        def step(record: Record) -> bool:
            if record.is_final or (node and not self._runs(node, record)):
                return False
            record.end("cancelled" if outcome is None else "failed" if outcome.has_failed else "completed", now, keep)
            record.outcome, record.place = inside, place
            record.is_tool_error = outcome is not None and outcome.is_error
            record.message = short((outcome.message if outcome is not None else "") or message or record.message)
            return True

        ended = await self.change(task_id, step)
        if ended is None:
            self._charges.pop(task_id, None)
            if place:
                await store.backplane.delete(place)
        else:
            if task_id in self._kept.get(caller, ()):
                self._kept[caller][task_id] = ended.created + ended.ttl
            self._log(ended, "ended")

        return ended

    def _caller_of(self, task_id: str) -> str:
        run = self.runs.get(task_id)
        if run is not None:
            return run.caller
        return next((caller for caller, kept in self._kept.items() if task_id in kept), "")

    async def end_run(self, run: Run, outcome: Outcome) -> None:
        """Record the end of a task that this node ran, also if the store is away for some minutes."""
        record = run.record
        assert record is not None
        for _ in range(_MOST_AWAY):
            try:
                await self.end(record, outcome, run.message, run.node)
                return
            except BackplaneAway:
                await asyncio.sleep(1)
        log.error("task %s has ended, but its result is lost: the store cannot be reached", record.id[:8])

    def leave(self, run: Run) -> None:
        """Forget a run that has ended on this node."""
        record = run.record
        if record is not None and self.runs.get(record.id) is run:
            del self.runs[record.id]
            self.store.forget(record.id)

    async def cancel(self, record: Record) -> Record | None:
        """Cancel a task, and stop its work on any node. Returns None if the task has ended."""
        cancelled = await self.end(record, None, _CANCELLED)
        run = self.runs.get(record.id)
        if cancelled is not None and run is not None:
            run.stop(None)
        return cancelled

    # -- handing over ------------------------------------------------------------------------

    async def hand_over(self, run: Run, keep: float | None) -> None:
        """Leave a task to another system, which ends it within `keep` seconds."""
        now, most = self.clock(), self.settings.max_ttl

        def step(record: Record) -> bool:
            if record.is_final or not self._runs(run.node, record):
                return False
            record.node = ""
            record.ttl = now - record.created + min(most if keep is None else keep, most)
            return True

        assert run.record is not None
        record = await self.change(run.record.id, step)
        if record is not None:
            self._kept.get(run.caller, {})[record.id] = record.created + record.ttl
            self._log(record, "handed over")

    async def give_away(self, run: Run) -> bool:
        """Let another node run a task again. Returns False if it must not run again."""
        if run.record is None or self.store.is_memory:
            return False

        def step(record: Record) -> bool:
            if record.is_final or not self._runs(run.node, record) or not record.retries:
                return False
            # The task belongs to this node until the node leaves, and is an orphan after that. It was stopped in an
            # orderly way, so this attempt does not count (TASK-077).
            record.attempt -= 1
            return True

        return await self.change(run.record.id, step) is not None

    async def _move(self, task_id: str, run: Run) -> None:
        # This node has another name, because it did not renew the lease in time, for example while the machine slept.
        # Its tasks must not look like tasks of a dead node, unless another node has taken them already.
        def step(record: Record) -> bool:
            if record.is_final or not self._runs(run.node, record):
                return False
            record.node = self.store.node
            return True

        moved = await self.change(task_id, step)
        if moved is None:
            run.stop(None)
        else:
            await self.store.adopt(moved)
            run.node = moved.node

    def _runs(self, node: str, record: Record) -> bool:
        # Whether this node runs a task, which it began under this name.
        return record.node in (node, self.store.node)

    async def _recover(self, record: Record) -> None:
        # Run a task of a dead node again, or end it (TASK-076, TASK-077).
        host = self.hosts.get(record.server)
        may_run = record.restart is not None and record.attempt <= record.retries and not self.is_ending
        if host is None or not may_run or host.catalog.tools.find_enabled(record.tool) is None:
            await self.end(record, error_outcome(InternalError(_DIED)), node=record.node)
            return
        dead, store = record.node, self.store

        def step(record: Record) -> bool:
            if record.is_final or record.node != dead:
                return False
            record.node, record.status, record.asks = store.node, "working", {}
            record.attempt += 1
            return True

        taken = await self.change(record.id, step)
        if taken is not None:
            self._log(taken, f"begins again ({taken.attempt})")
            await store.adopt(taken)
            self._run_again(self, host, taken)

    async def note(self, task_id: str, text: str | None) -> Record | None:
        """Set the status message of a task. Returns None for a task that has ended or does not exist."""

        def step(record: Record) -> bool:
            record.message = short(text)
            return not record.is_final

        await self.open()
        return await self.change(task_id, step)

    # -- notifications -----------------------------------------------------------------------

    def _log(self, record: Record, event: str) -> None:
        # As calls, unless the operator has to know.
        level = logging.INFO if record.status == "failed" or record.attempt > 1 else logging.DEBUG
        if log.isEnabledFor(level):
            took = (self.clock() - record.created) * 1000
            event = f"ended: {record.status}" if event == "ended" else event
            log.log(
                level, "task %s %s (tool %s, owner %s, %.0f ms)",
                record.id[:8], event, record.tool, record.owner[:8] or "nobody", took,
            )  # fmt: skip

        host = self.hosts.get(record.server)
        if host is None or not host.observers or event not in ("created", "ended"):
            return
        status = record.status if event == "ended" else None
        for observer in host.observers:
            if isinstance(observer, HookedObserver):
                observer.task_changed(record.tool, status, self.clock() - record.created)


def unknown() -> InvalidParams:
    """Return the error for an id that does not open a task of the sender, whatever the reason (TASK-030)."""
    return InvalidParams("Task not found: it has expired or never existed")


def _over(limit: int, what: str, setting: str) -> InternalError:
    return InternalError(f"At most {limit} tasks {what} (setting {setting} of TaskSettings): try again later")


def identity_of(host: ExtensionHost) -> Raw:
    """Return the server's identity as the `_meta` of results."""
    return result_meta(host.catalog.identity)
