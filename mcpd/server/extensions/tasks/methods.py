"""The methods of tasks, and their notifications of 2026-07-28. The methods that only 2025-11-25 has are in `legacy`.

Spec: tasks-extension.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from mcpd.errors import InternalError, InvalidParams, MissingExtension
from mcpd.protocol.envelope import SUBSCRIPTION_ID
from mcpd.protocol.session import Call
from mcpd.protocol.types.base import EmptyResult, Params, Result
from mcpd.protocol.types.interaction import ListenResult, SubscriptionFilter
from mcpd.protocol.types.tasks import TASKS, ListTasksParams, TaskParams, UpdateTaskParams
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Versions
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.context.exchange import Exchange
from mcpd.server.extensions.base import Method
from .forms import MODERN_FORM, TaskForm, offers
from .record import Record, steady_until
from .registry import Tasks, unknown

if TYPE_CHECKING:
    pass

T = TypeVar("T")

# The most tasks of one subscription.
_MOST_FOLLOWED = 1000
# The most notifications that wait for a client which reads slowly, besides two for each task.
_MOST_DUE = 16
# Seconds between two notifications that differ in the message only (TASK-052).
_MESSAGE_EVERY = 1.0


# -- the two forms ------------------------------------------------------------------------------


def form_of(call: Call) -> TaskForm:
    """Return the form of a call's protocol version."""
    if call.version.is_modern:
        return MODERN_FORM
    from .legacy import FORM  # few clients use this version

    return FORM


def _checked(call: Call) -> TaskForm:
    form = form_of(call)
    if form is MODERN_FORM and not offers(call):
        raise MissingExtension(TASKS, f"{call.method} needs a client that offers the extension {TASKS}")
    return form


async def _stored(work: Coroutine[Any, Any, T]) -> T:
    # Wait for the store. Raises InternalError if it cannot be reached.
    try:
        return await work
    except BackplaneAway:
        raise InternalError("The store of tasks cannot be reached: try again later") from None


# -- requests ------------------------------------------------------------------------------------


def get(tasks: Tasks, exchange: Exchange, params: TaskParams) -> Any:
    """Return a task. If this process runs it and no other one can have changed it, no store is read."""
    form = _checked(exchange.call)
    record = tasks.peek(params.task_id, exchange)
    if record is None or record.is_final or (record.asks and not tasks.store.is_memory):
        return _stored(_get_later(tasks, exchange, form, params.task_id))
    run, now = tasks.runs[record.id], tasks.clock()
    view = run.view
    if view is None or now >= view[1] or view[0] is not form:  # a poll costs little more than a ping
        view = run.view = form, steady_until(record, now), form.seen(record, now)
    return view[2]


async def _get_later(tasks: Tasks, exchange: Exchange, form: TaskForm, task_id: str) -> Result:
    record = await tasks.find_for(task_id, exchange)
    if record is None:
        raise unknown()
    return await form.found(tasks, record)


def update(tasks: Tasks, exchange: Exchange, params: UpdateTaskParams) -> Coroutine[Any, Any, Result]:
    """Accept answers to open questions."""
    _checked(exchange.call)
    return _stored(_update(tasks, exchange, params))


async def _update(tasks: Tasks, exchange: Exchange, params: UpdateTaskParams) -> Result:
    record = await tasks.find_for(params.task_id, exchange)
    if record is None:
        raise unknown()
    if not record.is_final:
        await tasks.questions.answer(record, params.input_responses)
    return EmptyResult()


def cancel(tasks: Tasks, exchange: Exchange, params: TaskParams) -> Coroutine[Any, Any, Result]:
    """Cancel a task."""
    return _stored(_cancel(tasks, exchange, _checked(exchange.call), params.task_id))


async def _cancel(tasks: Tasks, exchange: Exchange, form: TaskForm, task_id: str) -> Result:
    record = await tasks.find_for(task_id, exchange)
    if record is None:
        raise unknown()
    cancelled = None if record.is_final else await tasks.cancel(record)
    return await form.cancelled(tasks, record, cancelled)


def _of_legacy(name: str) -> Callable[[Tasks, Exchange, Any], Coroutine[Any, Any, Result]]:
    # Return a function of `legacy`, which few clients need.
    def run(tasks: Tasks, exchange: Exchange, params: Any) -> Coroutine[Any, Any, Result]:
        from . import legacy

        return _stored(getattr(legacy, name)(tasks, exchange, params))

    return run


_LEGACY = (table.NEWEST_LEGACY,)
_BOTH = (*_LEGACY, *table.MODERN)

# These functions also get the tasks, from `TasksExtension.handler`. The last member is the one in `Mcp-Name`.
_ROWS: dict[str, tuple[type[Params], Any, Versions, str | None]] = {
    "tasks/get": (TaskParams, get, _BOTH, "taskId"),
    "tasks/update": (UpdateTaskParams, update, table.MODERN, "taskId"),
    "tasks/cancel": (TaskParams, cancel, _BOTH, "taskId"),
    "tasks/result": (TaskParams, _of_legacy("result"), _LEGACY, None),
    "tasks/list": (ListTasksParams, _of_legacy("list_tasks"), _LEGACY, None),
}

METHODS = {
    name: Method(params=params, run=run, versions=versions, named=named)
    for name, (params, run, versions, named) in _ROWS.items()
}

NOTIFICATIONS = {"notifications/tasks": table.MODERN, "notifications/tasks/status": _LEGACY}


# -- subscriptions -------------------------------------------------------------------------------


def listen(
    tasks: Tasks,
    exchange: Exchange,
    honoured: SubscriptionFilter,
    ids: list[str],
    carried: list[str],
    work: list[Coroutine[Any, Any, None]],
) -> Coroutine[Any, Any, ListenResult]:
    """Serve a subscription that names tasks. Tasks of other clients are left out silently (TASK-050).

    `carried` are tasks of mounted servers, whose notifications `work` sends.
    """
    _checked(exchange.call)
    if len(ids) > _MOST_FOLLOWED:
        raise InvalidParams(f"notifications.taskIds: at most {_MOST_FOLLOWED} tasks in one subscription")
    return _stored(_listen(tasks, exchange, honoured, ids, carried, work))


async def _listen(
    tasks: Tasks,
    exchange: Exchange,
    honoured: SubscriptionFilter,
    ids: list[str],
    carried: list[str],
    work: list[Coroutine[Any, Any, None]],
) -> ListenResult:
    found = [task_id for task_id in dict.fromkeys(ids) if await tasks.find_for(task_id, exchange) is not None]
    honoured.task_ids = [*found, *carried]
    feed = _Feed(tasks, exchange, 2 * len(found) + _MOST_DUE)
    for task_id in found:
        tasks.watch(task_id, feed.changed)
    # The acknowledgement is its first step, and precedes the first notification.
    listening = asyncio.ensure_future(exchange.peer.listen(exchange.call, honoured))
    sending = [asyncio.ensure_future(each) for each in (feed.send(found), *work)]
    try:
        return await listening
    finally:
        for each in sending:
            each.cancel()
        for task_id in found:
            tasks.unwatch(task_id, feed.changed)


class _Feed:
    # The notifications of one subscription. Each change of status is sent at once, a new message at most once a second.
    def __init__(self, tasks: Tasks, exchange: Exchange, most_due: int) -> None:
        self._tasks = tasks
        self._exchange = exchange
        self._most_due = most_due
        self._due: deque[Record] = deque()
        self._has_due = asyncio.Event()
        # The last notification of each task: its essence, its message, and the time.
        self._sent: dict[str, tuple[Any, str | None, float]] = {}
        self._later: dict[str, Record] = {}

    def changed(self, record: Record | None) -> None:
        if record is None:
            return
        if self._due and self._due[-1].id == record.id and _essence(self._due[-1])[:2] == _essence(record)[:2]:
            self._due.pop()
        self._due.append(record)
        if len(self._due) > self._most_due:  # a client that reads slowly gets only the latest state of each task
            self._due = deque({each.id: each for each in self._due}.values())
        self._has_due.set()

    async def send(self, ids: list[str]) -> None:
        # The records may have changed since they were found.
        for task_id in ids:
            record = await self._tasks.read(task_id)
            if record is not None:
                self._due.appendleft(record)
        self._has_due.set()
        while True:
            await self._has_due.wait()
            self._has_due.clear()
            while self._due:
                await self._take(self._due.popleft())

    async def _take(self, record: Record) -> None:
        essence, loop = _essence(record), asyncio.get_running_loop()
        before, message, when = self._sent.get(record.id, (None, None, 0.0))
        if before is not None and (before[0] in ("completed", "failed", "cancelled") or record.updated < before[2]):
            return  # nothing follows a final status (TASK-054)
        if essence[:2] == (before or ())[:2]:
            wait = when + _MESSAGE_EVERY - loop.time()
            if record.message == message:
                return
            if wait > 0:
                if record.id not in self._later:
                    loop.call_later(wait, self._say_later, record.id)
                self._later[record.id] = record
                return

        self._later.pop(record.id, None)
        self._sent[record.id] = essence, record.message, loop.time()
        params = await MODERN_FORM.found(self._tasks, record)
        params.meta = {SUBSCRIPTION_ID: self._exchange.call.id}
        await self._exchange.peer.notify("notifications/tasks", params, self._exchange.call)

    def _say_later(self, task_id: str) -> None:
        record = self._later.pop(task_id, None)
        if record is not None:
            self.changed(record)


def _essence(record: Record) -> tuple[str, tuple[str, ...], float]:
    return record.status, tuple(record.asks), record.updated
