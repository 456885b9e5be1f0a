"""Tasks of a server: calls of tools that continue after their request was answered.

`Client.call_tool` follows a task to its result. `Client.start_tool` and `Client.resume_task` return a `TaskHandle`
instead, and `Client.tasks` lists, reads and cancels tasks. `DetailedTask` describes a task in every protocol version.

A task is followed by polling `tasks/get`, as often as the server says. In 2026-07-28 it is also followed by
notifications, if the server acknowledges `subscriptions/listen` with the id of the task, and the callbacks answer its
questions by `tasks/update`. In 2025-11-25 the server asks by requests of its own while `tasks/result` waits.

Spec: tasks-extension; 2025-11-25 basic/utilities/tasks.
"""

from __future__ import annotations

import asyncio
import logging
import re
from builtins import list as list_of
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import uniform
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcpd.errors import (
    ConnectionLost,
    InvalidParams,
    LocalProtocolError,
    McpdError,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    TaskCancelled,
)
from mcpd.protocol.jsonrpc import MALFORMED, encode, explain
from mcpd.protocol.types.features import CallToolResult
from mcpd.protocol.types.interaction import AcknowledgedParams, ListenParams, SubscriptionFilter
from mcpd.protocol.types.tasks import FINAL, DetailedTask, LegacyTask
from .callbacks import Callbacks, answer_question, read_input_required
from .eras import TASK_CHANGED, ClientEra, ModernEra
from .limits import ClientLimits, Faults
from .results import read_list
from .session import OnProgress

_LONGEST_POLL = 30.0
_SHORTEST_POLL = 0.1
_DEFAULT_POLL = 1.0
# Requests in a row that may fail with ConnectionLost before the error is raised.
_TRIES = 4
_FIRST_PAUSE = 0.1
# Seconds that a cancelled caller waits for the acknowledgement of `tasks/cancel`.
_CANCEL_SECONDS = 2.0
_MOST_RUNNING = 1000
# Subscriptions at a time. Over HTTP each has a connection of its own, and other requests need connections, too.
_MOST_FEEDS = 16

# The end of a status message with the progress of a task, as servers of mcpd write it.
_PROGRESS = re.compile(r" ?\((\d+(?:\.\d+)?) of (\d+(?:\.\d+)?)\)$")


class _Started(Struct):
    task: LegacyTask | None = None


_read_task = Decoder(DetailedTask, strict=False).decode
_read_legacy = Decoder(LegacyTask, strict=False).decode
_read_started = Decoder(_Started, strict=False).decode
_read_acknowledged = Decoder(AcknowledgedParams).decode
_read_result = Decoder(CallToolResult, strict=False).decode


class Tasks:
    """The tasks of a client at its server: `client.tasks`."""

    def __init__(
        self,
        request: Callable[..., Awaitable[Raw]],
        era: Callable[[], ClientEra],
        callbacks: Callbacks,
        limits: ClientLimits,
        faults: Faults,
    ) -> None:
        self.era = era
        self.callbacks = callbacks
        self.limits = limits
        self.faults = faults
        self.request = request
        self.on_change: Callable[[DetailedTask], object] | None = None
        """Called with each task that this client starts or reads, after each change that it learns of."""
        # The running tasks, for servers that have no list of them.
        self._running: dict[str, DetailedTask] = {}

    async def list(self) -> list_of[DetailedTask]:
        """Return the tasks of this client, without questions and results.

        In 2025-11-25 the server lists them. 2026-07-28 has no such request: the tasks are those that this client has
        started or read, as long as they run.
        """
        if self.era().has_result_types:
            return [task for task_id in list_of(self._running) if (task := await self._find(task_id)) is not None]

        offered: Any = self.era().connection.session.server_capabilities.tasks
        if not isinstance(offered, dict) or "list" not in offered:
            raise LocalProtocolError(
                "the server does not offer tasks.list, so tasks/list was not sent (Client.request sends it anyway)"
            )

        ask = partial(self.request, "tasks/list")
        return list_of(map(_newest, await read_list(ask, "tasks/list", "tasks", LegacyTask, self.limits, self.faults)))

    async def get(self, task_id: str) -> DetailedTask:
        """Return a task. Raises RemoteError if the server has no task with this id for this client."""
        raw = await self.request("tasks/get", {"taskId": task_id})
        try:
            task = _read_task(raw) if self.era().has_result_types else _newest(_read_legacy(raw))
        except MALFORMED as error:
            raise ProtocolError(f"The server's response to tasks/get is invalid: {explain(error)}") from None
        self.saw(task)
        return task

    async def cancel(self, task_id: str) -> None:
        """Ask the server to cancel a task. Raises RemoteError like `get`, and in 2025-11-25 if the task has ended."""
        await self.request("tasks/cancel", {"taskId": task_id})

    async def _find(self, task_id: str) -> DetailedTask | None:
        try:
            return await self.get(task_id)
        except RemoteError as error:
            if error.code != InvalidParams.code:
                raise
            self._running.pop(task_id, None)
            return None

    # ------------------------------------------------------------------------------ for `Client`

    def saw(self, task: DetailedTask) -> None:
        """Remember the state of a task, and report a change."""
        before = self._running.get(task.task_id)
        if task.status in FINAL:
            self._running.pop(task.task_id, None)
        else:
            self._running[task.task_id] = task
            if len(self._running) > _MOST_RUNNING:
                del self._running[next(iter(self._running))]
        if self.on_change is not None and (before is None or _visible(task) != _visible(before)):
            self.on_change(task)

    def resume(self, task_id: str) -> TaskHandle:
        """Return the handle of a task, given only its id."""
        return TaskHandle(self, DetailedTask(task_id=task_id, status="working", created_at="", last_updated_at=""))

    def handle(self, raw: Raw, on_progress: OnProgress | None = None) -> TaskHandle:
        """Return the handle of a call that was answered with this result, or with a new task."""
        try:
            if not self.era().has_result_types:
                started = _read_started(raw).task
                task = None if started is None else _newest(started)
            else:
                task = None if read_input_required(raw, "tools/call") is None else _read_task(raw)
        except MALFORMED as error:
            raise ProtocolError(f"The server's response to tools/call is invalid: {explain(error)}") from None

        if task is None:
            task = DetailedTask(task_id="", status="completed", created_at="", last_updated_at="", result=raw)
        else:
            self.saw(task)
        return TaskHandle(self, task, on_progress)

    async def finish(self, raw: Raw, on_progress: OnProgress | None) -> Raw:
        """Return the result of a call that was answered with this result, or with a new task.

        The task is cancelled if the caller is cancelled, and if the client cannot follow it.
        """
        handle = self.handle(raw, on_progress)
        try:
            return await handle.outcome()
        except (asyncio.CancelledError, ProtocolError):
            await _end(handle)
            raise

    async def leave(self, raw: Raw) -> None:
        """Cancel the task of a call that was answered with this result after its caller had been cancelled."""
        with suppress(ProtocolError):
            await _end(self.handle(raw))


async def _end(handle: TaskHandle) -> None:
    with suppress(McpdError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await handle.cancel()


def _visible(task: DetailedTask) -> tuple[object, ...]:
    return task.status, task.status_message, task.last_updated_at


def _newest(task: LegacyTask) -> DetailedTask:
    return DetailedTask(
        task_id=task.task_id,
        status=task.status,
        status_message=task.status_message,
        created_at=task.created_at,
        last_updated_at=task.last_updated_at,
        ttl_ms=task.ttl,
        poll_interval_ms=task.poll_interval,
    )


class TaskHandle:
    """A call that was started by `Client.start_tool`, or a task that was found again by `Client.resume_task`."""

    def __init__(self, tasks: Tasks, first: DetailedTask, on_progress: OnProgress | None = None) -> None:
        self.id = first.task_id
        """The id of the task; "" if the server answered the call without a task."""
        self._tasks = tasks
        self._task = first
        # Whether the server has just sent this state. A resumed task has none yet.
        self._is_current = bool(first.created_at) or not first.task_id
        self.change_block: Callable[[Any], Any] | None = None
        """Called with each block of the result's content; `ClientGroup` puts its names into them."""
        self._on_progress = on_progress
        self._progress: tuple[float, float | None] = (0.0, None)

        # The answers to questions by their keys, and the keys of those that the server has received.
        self._answers: dict[str, Any] = {}
        self._sent: set[str] = set()
        self._answering = asyncio.Lock()

    async def status(self) -> DetailedTask:
        """Return the task as it is now, with its open questions, its result or its error."""
        if self._task.status not in FINAL:
            self._set(await self._tasks.get(self.id))
        return self._task

    async def answer(self, answers: Mapping[str, Any]) -> None:
        """Answer questions of the task by their keys in `status().input_requests`. `result` does not ask them again.

        Raises LocalProtocolError in 2025-11-25, where the client's callbacks answer.
        """
        if not self._tasks.era().has_result_types:
            raise LocalProtocolError("in this protocol version, the client's callbacks answer the questions of a task")
        self._answers.update(answers)
        await self._tasks.request("tasks/update", {"taskId": self.id, "inputResponses": dict(answers)})
        self._sent.update(answers)

    async def cancel(self) -> None:
        """Ask the server to cancel the task. The task may still end with a result."""
        if self._task.status not in FINAL:
            await self._tasks.cancel(self.id)

    async def result(self) -> CallToolResult:
        """Wait for the end of the task and return the result of the tool. The client's callbacks answer its questions.

        If this wait is cancelled, the task continues. Raises RemoteError if the call failed, TaskCancelled if the task
        was cancelled, ProtocolError for a question that the callbacks cannot answer, and the errors of `request`.
        """
        raw = await self.outcome()
        try:
            result = _read_result(raw)
        except MALFORMED as error:
            raise ProtocolError(f"The result of the task is invalid: {explain(error)}") from None
        if self.change_block is not None:
            result.content = list_of(map(self.change_block, result.content))
        return result

    async def outcome(self) -> Raw:
        """Wait for the end of the task like `result`, and return the raw result."""
        failures = 0
        while True:
            before = self._task
            try:
                return await self._follow()
            except (ConnectionLost, RequestTimeout) as error:
                # The next request opens a new connection, and the task may have survived the server's process.
                failures = failures + 1 if self._task is before else 1
                if failures == _TRIES or isinstance(error, RequestTimeout):
                    error.add_note(f"The task may continue: Client.resume_task({self.id!r}) returns its handle.")
                    raise
            self._is_current = False
            await asyncio.sleep(_FIRST_PAUSE * 2**failures)

    # --------------------------------------------------------------------------------- following

    async def _follow(self) -> Raw:
        task = self._task if self._is_current else await self.status()
        era = self._tasks.era()
        if not isinstance(era, ModernEra):
            return await self._follow_legacy(task)
        if task.status not in FINAL:
            async with _feed(era, self.id) as feed:
                while task.status not in FINAL:
                    if task.status == "input_required":
                        await self._answer_new(task)
                    task = await self._next(feed)
        return self._final()

    async def _follow_legacy(self, task: DetailedTask) -> Raw:
        while task.status == "working":
            await asyncio.sleep(self._pause())
            task = await self.status()
        if not self.id or task.status == "cancelled":
            return self._final()
        # Spec: 2025-11-25 basic/utilities/tasks, input required status: "the requestor SHOULD preemptively call
        # `tasks/result`", on whose stream the server may ask. The response comes when the task has ended.
        return await self._tasks.request("tasks/result", {"taskId": self.id}, timeout=None)

    def _final(self) -> Raw:
        task = self._task
        if task.status == "cancelled":
            raise TaskCancelled(task.status_message or "the task was cancelled")
        if task.status == "failed":
            if task.error is None:
                raise ProtocolError("The server's response to tasks/get is invalid: a failed task has no error")
            raise RemoteError(task.error.code, task.error.message, task.error.data)
        if not task.result:
            raise ProtocolError("The server's response to tasks/get is invalid: a completed task has no result")
        return task.result

    async def _next(self, feed: _Feed) -> DetailedTask:
        # Notifications may be lost, so the task is also polled now and then.
        seconds = _LONGEST_POLL if feed.is_acknowledged else self._pause()
        task = await feed.next(seconds)
        if task is None:
            return await self.status()
        self._tasks.saw(task)
        self._set(task)
        return task

    def _pause(self) -> float:
        milliseconds = self._task.poll_interval_ms
        # Compared as integers, because JSON has numbers that are too large for a float.
        seconds = _DEFAULT_POLL if milliseconds is None else min(max(milliseconds, 0), 1000 * int(_LONGEST_POLL)) / 1000
        seconds = max(seconds, _SHORTEST_POLL)
        # Many clients must not poll at the same time.
        return uniform(seconds, 1.1 * seconds)

    async def _answer_new(self, task: DetailedTask) -> None:
        # Spec: tasks-extension: "Clients SHOULD deduplicate `inputRequests` keys across consecutive polls".
        tasks, asked = self._tasks, task.input_requests or {}
        if len(asked) > tasks.limits.questions:
            text = f"The task asked more than {tasks.limits.questions} questions at once (ClientLimits.questions)"
            raise ProtocolError(text)
        async with self._answering:
            for key, question in asked.items():
                if key in self._sent:
                    continue
                if key not in self._answers:
                    params = Raw(encode({} if question.params is None else question.params))
                    answer = await answer_question(question.method, params, tasks.callbacks, tasks.faults)
                    self._answers[key] = answer
                # Sent at once, because the next question may have to wait for a user.
                await self.answer({key: self._answers[key]})

    def _set(self, task: DetailedTask) -> None:
        message, before = task.status_message, self._task.status_message
        self._task, self._is_current = task, True
        if self._on_progress is None or not message or message == before or task.status in ("failed", "cancelled"):
            return
        found = _PROGRESS.search(message)
        if found is not None:
            self._progress, message = (float(found[1]), float(found[2])), message[: found.start()]
        try:
            # A function of the program must not end the wait.
            self._on_progress(*self._progress, message or None)
        except Exception as error:
            self._tasks.faults.log(logging.ERROR, "on_progress failed", error=error)


class _Feed:
    """The notifications of one task, which have a `subscriptions/listen` request of their own."""

    def __init__(self, task_id: str) -> None:
        self.is_acknowledged = False
        self._task_id = task_id
        self._latest: DetailedTask | None = None
        self._changed = asyncio.Event()

    def receive(self, method: str, params: Raw) -> None:
        """Process a notification of the subscription."""
        with suppress(*MALFORMED):
            if method == TASK_CHANGED:
                task = _read_task(params)
                if task.task_id == self._task_id:
                    self._latest = task
                    self._changed.set()
            else:
                self.is_acknowledged = self._task_id in (_read_acknowledged(params).notifications.task_ids or ())

    async def next(self, seconds: float) -> DetailedTask | None:
        """Return the task as in the next notification; None after this time, and if the subscription ends."""
        if self._latest is None:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        latest, self._latest = self._latest, None
        return latest

    def end(self) -> None:
        """The subscription has ended, so the task must be polled."""
        if self.is_acknowledged:
            self.is_acknowledged = False
            self._changed.set()


@asynccontextmanager
async def _feed(era: ModernEra, task_id: str) -> AsyncIterator[_Feed]:
    """Request the notifications of a task, unless the server has none."""
    feed = _Feed(task_id)
    if not era.reports_tasks or era.feeds >= _MOST_FEEDS:
        yield feed
        return

    async def listen() -> None:
        try:
            await era.listen(ListenParams(notifications=SubscriptionFilter(task_ids=[task_id])), feed.receive)
        except McpdError:
            pass  # the task is polled instead
        if not feed.is_acknowledged and not era.connection.is_lost:
            era.reports_tasks = False
        feed.end()

    listening = asyncio.get_running_loop().create_task(listen())
    try:
        yield feed
    finally:
        listening.cancel()
        await asyncio.wait([listening])
