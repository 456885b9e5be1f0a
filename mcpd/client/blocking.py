"""`BlockingClient`: the methods of a `Client` as plain methods, and the thread on which its event loop runs.

It is the base of `mcpd.sync.Client` and `mcpd.testing.SyncTestClient`. `BlockingCalls`, the part that also fits a group
of clients, is the base of `mcpd.sync.ClientGroup`. `blocking` derives each method from the awaited one.

The thread is a daemon, so a program that forgets to close its client still ends. At interpreter exit, open clients are
closed within `CLOSE_SECONDS`. Any thread may call except the loop's own, which would wait for itself.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial, wraps
from inspect import iscoroutinefunction
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, cast

from msgspec import Raw

from mcpd.errors import ConfigurationError, ConnectionLost, LocalProtocolError
from mcpd.protocol.types.features import CallToolResult
from mcpd.transports.process import open_process  # noqa: F401 - its exit handler must be registered before ours
from .client import Client, ServerDetails
from .session import ClientSession, OnProgress
from .tasks import TaskHandle, Tasks

if TYPE_CHECKING:
    from .events import DeliveryMode, Event, EventGap, EventSubscription
    from .group import ClientGroup
    from .tool_function import ToolFunction

__all__ = ["BlockingCalls", "BlockingClient", "blocking", "parameters_of"]


log = logging.getLogger("mcpd.client")

T = TypeVar("T")
CLOSE_SECONDS = 10.0
"""Seconds that interpreter exit waits for open clients to close. Child processes are killed after that."""

# Progress reports that wait for a slow callback. Further ones are dropped.
_MAX_QUEUED_PROGRESS = 1000


class LoopThread:
    """A thread that runs an event loop between `start` and `stop`. `on_stop` runs last on the loop in any case."""

    def __init__(self, name: str, on_stop: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._owner = 0

    def start(self) -> None:
        """Start the thread. Raises LocalProtocolError if it was started before."""
        running = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(running)), name=self._name, daemon=True)
        with self._lock:
            if self._thread is not None:
                raise LocalProtocolError("a client can be opened only once; create another one")
            self._thread, self._owner = thread, os.getpid()
        thread.start()
        # Calls on other threads need the loop, which the new thread creates.
        running.wait()
        _running.add(self)

    async def _serve(self, running: threading.Event) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        running.set()
        await self._stopping.wait()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._on_stop()
        except Exception:
            log.exception("a client could not be closed")

    def stop(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stop the thread, and wait for it at most `seconds`. Calls that still wait raise ConnectionLost."""
        _running.discard(self)
        with self._lock:
            loop, stopping, thread = self._loop, self._stopping, self._thread
            self._loop = None
            # Under the lock: earlier calls are scheduled on the loop before it learns that it must stop.
            if loop is not None and stopping is not None and self._owner == os.getpid():
                loop.call_soon_threadsafe(stopping.set)
        if thread is not None and thread is not threading.current_thread() and self._owner == os.getpid():
            thread.join(seconds)

    @property
    def is_running(self) -> bool:
        """Whether the thread runs in this process. A forked child does not have it."""
        return self._loop is not None and self._owner == os.getpid()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work()` on the loop and return its result, or raise its exception.

        If the caller is interrupted (Ctrl-C), the work is cancelled. Raises LocalProtocolError if this thread cannot
        wait for the loop, and ConnectionLost if the loop stops meanwhile.
        """
        return self._result(self._schedule(work()))

    def run_with_progress(
        self, work: Callable[[Callable[..., None]], Coroutine[Any, Any, T]], on_progress: Callable[..., object]
    ) -> T:
        """Like `run`, for work that reports progress. `on_progress` is called on the caller's thread.

        If `on_progress` raises, the work is cancelled and the exception is raised.
        """
        reports: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()

        def report(*progress: Any) -> None:
            if reports.qsize() < _MAX_QUEUED_PROGRESS:
                reports.put(progress)

        future = self._schedule(work(report))
        # The end of the work wakes the loop below, also after an error.
        future.add_done_callback(lambda _: reports.put(None))
        try:
            while (progress := reports.get()) is not None:
                on_progress(*progress)
        except BaseException:
            future.cancel()
            raise
        return self._result(future)

    def _schedule(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        problem = "the client is not open: use it inside `with`"
        with self._lock:
            if self._thread is threading.current_thread():
                problem = "the client works on this thread, which cannot wait for it: call it from another thread"
            elif self._loop is not None and self._owner != os.getpid():
                problem = "the client belongs to the parent of this forked process: create another one here"
            elif self._loop is not None:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        # A coroutine that is never awaited causes a warning.
        work.close()
        raise LocalProtocolError(problem)

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            raise ConnectionLost("the client is closed") from None
        except BaseException:
            future.cancel()  # has no effect if the work itself raised
            raise


_running: set[LoopThread] = set()


@atexit.register
def _stop_all() -> None:
    # Close clients that the program left open, so that servers are notified and child processes end.
    for thread in list(_running):
        thread.stop()


AnyClient = TypeVar("AnyClient", bound="Client | ClientGroup")
OneClient = TypeVar("OneClient", bound=Client)
P = ParamSpec("P")


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a plain method that runs `method` of the wrapped client on its loop, and waits for the result.

    An `on_progress` callback is called on the caller's thread, where it may block. If it raises, the call is cancelled
    and the exception is raised.
    """
    name = method.__name__

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        thread, awaited = self._thread, getattr(self._client, name)
        on_progress = options.pop("on_progress", None)
        if on_progress is None:
            return thread.run(lambda: awaited(*args, **options))
        if iscoroutinefunction(on_progress):
            raise ConfigurationError("on_progress must be a plain function, not a coroutine function")
        return thread.run_with_progress(lambda report: awaited(*args, on_progress=report, **options), on_progress)

    return cast("Callable[Concatenate[Any, P], T]", call)


def parameters_of(kind: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the signature of another class, for people and for type checkers."""

    def decorate(function: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        function.__wrapped__ = kind.__init__  # type: ignore[attr-defined]
        return function

    return decorate


class BlockingCalls(Generic[AnyClient]):
    """Drives an unopened client or group by plain methods. Any thread may call them, several at a time.

    Methods return the result of the awaited method and raise the same errors.
    """

    _thread_name = "mcpd-client"

    def __init__(self, client: AnyClient) -> None:
        self._client = client
        self._thread = LoopThread(self._thread_name, client.aclose)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect and negotiate a protocol version. Raises the errors of `Client.open`."""
        self._thread.start()
        try:
            self._thread.run(self._client.open)
        except BaseException:
            self._thread.stop()
            raise

    def close(self) -> None:
        """Close the connection. Calls that wait on other threads raise ConnectionLost. Safe to call twice."""
        if not self._thread.is_running:
            return
        try:
            self._thread.run(self._client.aclose)
        finally:
            self._thread.stop()

    list_tools = blocking(Client.list_tools)
    call_tool = blocking(Client.call_tool)
    call = blocking(Client.call)
    list_resources = blocking(Client.list_resources)
    list_resource_templates = blocking(Client.list_resource_templates)
    read_resource = blocking(Client.read_resource)
    subscribe = blocking(Client.subscribe)
    unsubscribe = blocking(Client.unsubscribe)
    list_prompts = blocking(Client.list_prompts)
    get_prompt = blocking(Client.get_prompt)
    complete = blocking(Client.complete)
    set_log_level = blocking(Client.set_log_level)

    def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> BlockingTaskHandle:
        """Call a tool, and return the handle of its task as soon as the server has created it.

        `on_progress` runs on the client's thread, so it must not block. See `mcpd.Client.start_tool`.
        """
        start = partial(self._client.start_tool, name, arguments, on_progress=on_progress, timeout=timeout)
        return BlockingTaskHandle(self._thread.run(start), self._thread)

    def tool_functions(
        self, *names: str, timeout: float | None | Literal["default"] = "default"
    ) -> list[ToolFunction[Any]]:
        """Return the tools as plain functions with types and docstrings, for agent libraries: see `ToolFunction`.

        `names` selects tools, in that order; by default all tools that a model may call are returned. `timeout` is the
        `timeout` of each call. Raises ConfigurationError for a name that no tool has.
        """
        from .tool_function import plain_functions

        def call(name: str, arguments: dict[str, Any]) -> CallToolResult:
            return self.call_tool(name, arguments, timeout=timeout)

        return plain_functions(self.list_tools(), names, call)


class BlockingTaskHandle:
    """A `TaskHandle` with plain methods."""

    def __init__(self, handle: TaskHandle, thread: LoopThread) -> None:
        self._client = handle
        self._thread = thread

    @property
    def id(self) -> str:
        """The id of the task; "" if the server answered the call without a task."""
        return self._client.id

    status = blocking(TaskHandle.status)
    answer = blocking(TaskHandle.answer)
    cancel = blocking(TaskHandle.cancel)
    result = blocking(TaskHandle.result)


class BlockingEventSubscription:
    """An `EventSubscription` with plain methods: `with client.events("incident.created") as events:`."""

    def __init__(self, subscription: EventSubscription, thread: LoopThread) -> None:
        self._client = subscription
        self._thread = thread

    def __enter__(self) -> Self:
        self._thread.run(self._client.__aenter__)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._thread.is_running:
            self._thread.run(partial(self._client.__aexit__, kind, *rest))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event | EventGap:
        """Wait for the next event. Raises RemoteError when the server ends the subscription."""
        return self._thread.run(self._client.__anext__)

    @property
    def mode(self) -> str:
        """How events arrive: "webhook", "push" or "poll"."""
        return self._client.mode

    @property
    def cursor(self) -> str | None:
        """The position after the events that the program has taken; None if the server has no positions."""
        return self._client.cursor

    @property
    def gaps(self) -> int:
        """How often events were lost."""
        return self._client.gaps


class BlockingTasks:
    """`Client.tasks` with plain methods."""

    def __init__(self, tasks: Tasks, thread: LoopThread) -> None:
        self._client = tasks
        self._thread = thread

    list = blocking(Tasks.list)
    get = blocking(Tasks.get)
    cancel = blocking(Tasks.cancel)


class BlockingClient(BlockingCalls[OneClient], ServerDetails):
    """Drives the client of one server by plain methods."""

    call_with_files = blocking(Client.call_with_files)
    ping = blocking(Client.ping)
    request = blocking(Client.request)
    list_tools_as_sent = blocking(Client.list_tools_as_sent)
    list_events = blocking(Client.list_events)

    def events(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        delivery: DeliveryMode = "auto",
        cursor: str | None = None,
        max_age: float | None = None,
        gaps: bool = False,
    ) -> BlockingEventSubscription:
        """Return a subscription to events: `with client.events("incident.created") as events:`. See `Client.events`."""
        found = self._client.events(name, arguments, delivery=delivery, cursor=cursor, max_age=max_age, gaps=gaps)
        return BlockingEventSubscription(found, self._thread)

    def resume_task(self, task_id: str) -> BlockingTaskHandle:
        """Return the handle of a task that was started earlier, perhaps by another process."""
        return BlockingTaskHandle(self._client.resume_task(task_id), self._thread)

    @property
    def tasks(self) -> BlockingTasks:
        """Lists, reads and cancels the tasks of this client."""
        return BlockingTasks(self._client.tasks, self._thread)

    def roots_changed(self) -> None:
        """Notify the server that `Callbacks.roots` returns other roots now. Modern servers ask when they need them."""

        async def notify() -> None:
            self._client.roots_changed()

        self._thread.run(notify)

    def _negotiated(self) -> ClientSession:
        return self._client._negotiated()
