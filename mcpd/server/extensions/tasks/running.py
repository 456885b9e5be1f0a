"""How a call becomes a task.

Theory of operation. The call's whole work, with middleware and all checks, runs in a task of the event loop of its own.
Until the call is answered, everything that the work says passes through to the client, as without tasks. When
its time is over, or the tool wants it, the task is stored, the call is answered with it, and the same work goes on: now
progress becomes the status message, questions wait in the record, and the result is stored.

The call and the connection that the work sees are stand-ins. After the answer they hold nothing of the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import CoroutineType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from mcpd.errors import InternalError, MethodNotFound, MissingExtension, ProtocolError
from mcpd.protocol.envelope import ClientIdentity, Opening
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.principal import Origin
from mcpd.protocol.printable import printable
from mcpd.protocol.session import Call, Session
from mcpd.protocol.types.base import NO_JSON, RequestMeta
from mcpd.protocol.types.features import CallToolParams, CallToolResult, TextContent
from mcpd.protocol.types.tasks import TASKS
from mcpd.protocol.versions import table
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.context.asking import Asking
from mcpd.server.context.exchange import Exchange, Handler
from mcpd.server.context.peer import InputRequired, TaskHandedOver, questions_of
from mcpd.server.dispatcher.connection import error_of
from mcpd.server.registry.tools import failed
from .methods import form_of
from .record import Outcome, Record, Restart, outcome_of, short
from .registry import Tasks, identity_of
from .stand_ins import QuietChannel, Refusing, TaskAsking, TaskCall, TaskPeer

if TYPE_CHECKING:
    from mcpd.protocol.types.base import LogLevel
    from mcpd.server.context.peer import Peer
    from mcpd.server.context.questions import Question
    from mcpd.server.extensions.base import ExtensionHost
    from .settings import TaskTool

log = logging.getLogger("mcpd.tasks")

# Seconds between two changes of a status message (TASK-052).
_NOTE_EVERY = 1.0
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING}


class TaskRun:
    """One call of a tool that can be a task: `CallTask` for its exchange.

    `after` is the number of seconds that the call may take without becoming one; None for as long as it wants. With
    `must` it becomes one at once. With `has_text` the client accepts no tasks, and receives a text with the id.
    """

    __slots__ = ("_after", "_announced", "_announcing", "_is_begun", "_is_counted", "_is_refused", "_must", "_news",
                 "_noted", "_seed", "_stopped", "_timer",
                 "call", "caller", "exchange", "form", "has_text", "host", "immediate", "is_listed", "is_open",
                 "message", "node", "outer", "owner", "params", "peer", "record", "retries", "tasks", "view",
                 "view_until", "wish", "work")  # fmt: skip

    def __init__(
        self, tasks: Tasks, host: ExtensionHost, exchange: Exchange, params: CallToolParams, tool: TaskTool | None
    ) -> None:
        outer = exchange.call
        self.tasks = tasks
        self.host = host
        self.params = params
        self.retries = 0 if tool is None else tool.retries_of(host.catalog.tools.find_enabled(params.name))
        self.outer: Exchange | None = exchange
        self.record: Record | None = None
        self.work: asyncio.Task[Any] | None = None
        self.node = ""
        self.owner = tasks.owner(exchange)
        # An anonymous client must not have more tasks because it opens more WebSockets, each with an owner of its own.
        self.caller = self.owner if outer.session.opening.principal else outer.session.owner
        self.form = form_of(outer)
        self.is_listed = False
        self.is_open = True
        self.has_text = False
        self.immediate = ""
        self.wish: float | None = None
        self.message: str | None = None
        self.view: Any = None
        self.view_until = 0.0
        self._noted = 0.0
        self._after: float | None = None
        self._must = False
        self._is_counted = False
        self._is_begun = False
        self._is_refused = False
        self._seed: Record | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._announced: asyncio.Future[bool] | None = None
        self._news: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: ProtocolError | None = None
        self.call = TaskCall(
            outer.id, outer.method, outer.session, outer.source, outer.version, outer.params, outer.meta,
            charge=outer.charge, trace=outer.trace, began=outer.began, run=self,
        )  # fmt: skip
        self.peer = TaskPeer(self, exchange.peer)
        self.exchange = Exchange(self.call, self.peer, exchange.lifespan, task=self)
        before = exchange.asked
        if before is not None:
            self.exchange.use(TaskAsking(self, before))

    @property
    def id(self) -> str | None:
        """The task's id; None before the call has become one."""
        return None if self.record is None else self.record.id

    # -- the call ----------------------------------------------------------------------------

    async def answer(self, handler: Handler, *, after: float | None, must: bool = False) -> Any:
        """Run a handler, and return its result, or the task that the call has become."""
        assert self.outer is not None
        loop, request = self.peer.loop, self.outer.call
        self._after, self._must = after, must
        self._news = loop.create_future()
        work = self.work = loop.create_task(self._run(handler), name="mcpd-task")
        work.add_done_callback(self._wake)
        try:
            while True:
                await self._news
                if self._seed is not None:
                    if not request.is_open:
                        raise asyncio.CancelledError  # the client has cancelled it in this turn of the loop
                    return self._told()
                if work.done():
                    return self._direct(work)
                self._news = loop.create_future()
        except BaseException:
            self._give_up(work)
            await asyncio.wait((work,))
            raise
        finally:
            self._news = None

    def _give_up(self, work: asyncio.Task[Any]) -> None:
        # The client has left before it was told of a task: there is none (TASK-047).
        if self._announcing is not None:
            self._announcing.cancel()
        if self._seed is not None:
            self.tasks.spawn(self.tasks.discard(self, self._seed))
            self.stop(None)
        work.cancel()
        work.add_done_callback(_retrieve)

    def _wake(self, _: object = None) -> None:
        news = self._news
        if news is not None and not news.done():
            news.set_result(None)

    def _direct(self, work: asyncio.Task[Any]) -> Any:
        # Return the result of work that has not become a task.
        outer = self.outer
        assert outer is not None
        outer.call.denied = self.call.denied
        if self._stopped is not None:
            raise self._stopped
        asking = self.exchange.asked
        if isinstance(asking, TaskAsking):
            outer.use(asking.before)
        self._close()
        self._let_go()
        return work.result()

    def _count(self, is_working: bool) -> None:
        if is_working is not self._is_counted:
            self._is_counted = is_working
            self.tasks.count(self.caller, 1 if is_working else -1)

    def asking_for(self, call: Call, peer: Peer) -> Asking:
        return TaskAsking(self, None)

    def _close(self) -> None:
        # Refer to nothing any more: the work has ended.
        self._count(False)
        self.is_open = False
        self.call.run = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _let_go(self) -> None:
        # The exchange refers to this run. Without the way back no garbage collector is needed to free both.
        self.exchange = self.peer = self.call = None  # type: ignore[assignment]

    # -- becoming a task ---------------------------------------------------------------------

    def entered(self) -> None:
        """The tool begins. Its time is counted from now on."""
        if self._is_begun:
            return  # middleware has called it again
        self._is_begun = True
        if self._must:
            self._admit()
            self._come_due()
        elif self._after is not None:
            self._timer = self.peer.loop.call_later(self._after, self._come_due)

    def _admit(self) -> None:
        self.tasks.admit(self.caller)
        self._count(True)

    def _come_due(self) -> None:
        self._timer = None
        is_done = self.work is not None and self.work.done()
        if self._announced is not None or self._is_refused or self.outer is None or is_done:
            return
        if self.tasks.store.is_memory:
            # It never waits, and saves the turns of the loop that most of a short task would be.
            run_now(self._announce())
        else:
            self._announced = self.peer.loop.create_future()
            self._announcing = self.peer.loop.create_task(self._announce())

    def _settle(self, is_task: bool) -> None:
        self._is_refused = not is_task
        self._announcing = None
        announced, self._announced = self._announced, None
        if announced is not None:
            announced.set_result(is_task)
        self._wake()

    async def become(self, message: str) -> None:
        if self.outer is None or self.has_text:
            if message:
                self.message = message
                if self._seed is not None:
                    self.immediate = message  # the call is not answered yet
                self.progress_noted()
            return
        if message:
            self.message = self.immediate = message
        if self._timer is not None:
            self._timer.cancel()
        self._is_begun = True
        self._come_due()
        await self.is_task()

    async def is_task(self) -> bool:
        """Wait if the task is being stored, and return whether the call has become a task."""
        if self._announced is None:
            return self.record is not None
        return await asyncio.shield(self._announced)

    async def _announce(self) -> None:
        # Store the task; it then is the answer to the call.
        tasks, outer = self.tasks, self.outer
        assert outer is not None
        now = tasks.clock()
        most = tasks.settings.max_ttl
        wish = None if self.wish is None else min(self.wish, most)
        self.is_listed = tasks.is_known(outer)
        record = Record(
            id="", owner=self.owner, server=self.host.name, tool=self.params.name, node="", created=now, updated=now,
            ttl=most if wish is None else wish, wish=wish, message=short(self.message),
            retries=self.retries, restart=self._restart() if self.retries else None,
        )  # fmt: skip
        try:
            if not self._must:
                self._admit()
            await tasks.create(self, record)
        except (InternalError, BackplaneAway):
            self._count(False)
            self._settle(False)
            if self._must and self.work is not None:
                self._stopped = InternalError("The store of tasks cannot be reached: try again later")
                self.work.cancel()
            return
        except BaseException:
            if record.id:
                tasks.spawn(tasks.discard(self, record))
            self._settle(False)
            raise
        self.record = self._seed = record
        self.node = record.node
        if self.host.lifespan is not None:
            self.host.lifespan.hold(self)
        self.peer.answered(stays=self.form.stays(outer.call))
        asking = self.exchange.asked
        if isinstance(asking, TaskAsking):
            asking.before.move(self.call, self.peer)
        self.outer = None
        self.call.forget_message(self.params.name)
        self.params = self.call.params
        if self.work is not None:
            self.work.remove_done_callback(self._wake)
        self._settle(True)

    def _restart(self) -> Restart:
        arguments = self.params.arguments
        capabilities = encode(self.call.client.capabilities)
        kept = self.exchange.kept
        given = b"{}" if arguments is NO_JSON else bytes(arguments)
        return Restart(self.call.version.name, given, capabilities, kept)

    def _told(self) -> Any:
        # Return the answer to the call that has become a task.
        record, self._seed = self._seed, None
        assert record is not None
        if self.has_text:
            text = (
                f"This still works after {self._after:g} s, as the task {record.id}. Call task_result with this id to "
                "wait for the result, or task_cancel to stop it."
            )
            return CallToolResult(content=[TextContent(text)])
        record.message = record.message or self.message
        return self.form.seed(record, record.created, self.immediate)

    def begin_again(self, record: Record, kept: Mapping[str, Any], handler: Handler) -> None:
        """Run a task that another node has begun."""
        self.record, self.node = record, record.node
        self.peer.answered(stays=False)
        self.outer = None
        self.exchange.asking.kept.update(kept)
        self.tasks.runs[record.id] = self
        self._count(True)
        if self.host.lifespan is not None:
            self.host.lifespan.hold(self)
        self.work = self.peer.loop.create_task(self._run(handler), name="mcpd-task")

    # -- the work ----------------------------------------------------------------------------

    async def _run(self, handler: Handler) -> Any:
        exchange = self.exchange
        outcome: Any
        try:
            outcome = handler(exchange, self.params)
            if outcome.__class__ is CoroutineType:
                outcome = await outcome
        except TaskHandedOver as over:
            if self.outer is not None and not self.has_text:
                await self.become("")
            outcome = over
            if not await self.is_task():
                return failed("This work takes long, and needs a client that takes tasks")
        except BaseException as error:
            if not await self.is_task():
                raise
            outcome = error
        finally:
            exchange.has_ended = True
            if exchange.pending is not None:
                exchange.end()
        if isinstance(outcome, BaseException) or await self.is_task():
            await self._end(outcome)
            return None
        return outcome

    async def _end(self, outcome: Any) -> None:
        # Record the end of the task.
        tasks, record = self.tasks, self.record
        assert record is not None
        is_given = False
        try:
            if isinstance(outcome, TaskHandedOver):
                await tasks.hand_over(self, outcome.keep)
            elif isinstance(outcome, BaseException):
                error, is_given = await self._failure(outcome)
                if error is not None and not is_given:
                    await tasks.end_run(self, error, "failed")
            else:
                await tasks.end_run(self, self._outcome(outcome), "completed")
        finally:
            if self.is_open:
                self._over()
            self._let_go()
            if self.host.lifespan is not None:
                await self.host.lifespan.release(self)

    def _outcome(self, result: Any) -> Outcome | ProtocolError:
        try:
            return outcome_of(result, identity_of(self.host))
        except Exception as error:
            return error_of(error, self.call)

    async def _failure(self, error: BaseException) -> tuple[ProtocolError | None, bool]:
        # Return the error of the task, or None if it has ended already, and whether another node takes it over.
        if isinstance(error, asyncio.CancelledError):
            stopped = self._stopped
            if not self.is_open:
                return None, False
            if stopped is not None and await self.tasks.give_away(self):
                return None, True
            return stopped or InternalError("The work was cancelled inside the server"), False
        if isinstance(error, InputRequired) or isinstance(questions_of(error), dict):
            return InternalError("The tool asked its client in a way that a task cannot"), False
        return error_of(error, self.call), False

    def _over(self) -> None:
        # The task no longer belongs to this node.
        self._close()
        self.tasks.leave(self)

    def stop(self, error: ProtocolError | None) -> None:
        """Cancel the work. The task then fails with `error`; None means that its end is recorded already."""
        if error is None:
            if self.is_open:
                self._over()
        else:
            self._stopped = error
        if self.exchange is not None:
            self.exchange.end()
        if self.work is not None:
            self.work.cancel()

    # -- while it is a task ------------------------------------------------------------------

    def changed(self, record: Record) -> None:
        """The record has changed: count the task while it works, and notify a client of 2025-11-25 (TASK-069)."""
        before, self.record, self.view = self.record, record, None
        if self.is_open:
            self._count(record.status == "working")
        if not self.has_text:
            is_new = before is None or before.status != record.status
            self.form.changed(self, self.peer.real_or_none, self.call, record, is_new=is_new)

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self.message = share if message is None else f"{message} ({share})"
        self.progress_noted()

    def progress_noted(self) -> None:
        """Write the message into the record, at most once a second."""
        if self.outer is None and self.is_open and self._timer is None:
            loop = self.peer.loop
            wait = max(0.0, self._noted + _NOTE_EVERY - loop.time())
            try:
                self._timer = loop.call_later(wait, self._write_note)
            except RuntimeError:
                pass
            self._noted = loop.time() + wait

    def _write_note(self) -> None:
        self._timer = None
        record = self.record
        if self.is_open and record is not None and record.message != self.message:
            self.tasks.spawn(self.tasks.note(record.id, self.message or ""))

    def takes_log(self, level: LogLevel, data: object, logger: str | None) -> bool:
        if self.outer is not None or (self.peer.real_or_none is not None and not self.has_text):
            return False
        log.log(
            _LEVELS.get(level, logging.ERROR), "task %s, tool %s: %s",
            (self.id or "")[:8], printable(self.params.name), printable(self.peer.as_json(data)),
        )  # fmt: skip
        return True

    def say(self, peer: Peer, method: str, params: Any) -> Coroutine[Any, Any, None] | None:
        """Send a notification to the client, if it receives any for this task."""
        if self.has_text or not self.is_open:
            return None
        return self.form.say(self, peer, method, params)

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask the client through the record."""
        assert self.id is not None
        return await self.tasks.questions.ask(self.id, questions, self.exchange.kept)


def run_now(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("it waits")


def _retrieve(work: asyncio.Task[Any]) -> None:
    if not work.cancelled():
        work.exception()  # marks it as retrieved


# -- which calls -------------------------------------------------------------------------------


def wrapping(
    get_tasks: Callable[[], Tasks], host: ExtensionHost, fallback_after: float | None
) -> Callable[[str, Handler], Handler]:
    """Return the wrapper of `tools/call`, outside of all others, so that they see the final result of a task."""

    def wrapped(method: str, handler: Handler) -> Handler:
        return partial(enter, handler) if method == "tools/call" else handler

    def enter(handler: Handler, exchange: Exchange, params: CallToolParams) -> Any:
        if exchange.task is not None:
            return handler(exchange, params)  # the server that includes this one has begun it
        entry = host.catalog.tools.find_enabled(params.name)
        tool: TaskTool | None = None if entry is None else entry.extension_meta.get(TASKS)  # type: ignore[assignment]
        if tool is None:
            if params.task is not NO_JSON:  # 2026-07-28 has no such member
                text = f"Method not found: {params.name} cannot run as a task; call it without the member task"
                exchange.task = Refusing(MethodNotFound(text))
            return handler(exchange, params)

        form = form_of(exchange.call)
        is_taken = form.is_taken(exchange.call)
        if not is_taken and tool.mode == "required":
            text = f"{params.name} runs as a task only, and needs a client that takes tasks"
            exchange.task = Refusing(MissingExtension(TASKS, text))
            return handler(exchange, params)
        after = tool.after if is_taken else fallback_after
        if not is_taken and after is None:
            return handler(exchange, params)
        must, wish = form.wish(exchange.call)
        run = TaskRun(get_tasks(), host, exchange, params, tool)
        run.has_text, run.wish = not is_taken, wish
        return run.answer(handler, after=after, must=must or (is_taken and tool.mode == "required" and after == 0))

    return wrapped


# -- running again -----------------------------------------------------------------------------


def run_again(tasks: Tasks, host: ExtensionHost, record: Record) -> None:
    """Run a task of a dead node from the top, with the answers that it had. Its user is no longer known."""
    restart = record.restart
    assert restart is not None
    version = table.get(restart.version)
    session = Session(identity_of(host), opening=Opening(version))
    capabilities = Raw(restart.capabilities)
    session.client = ClientIdentity(raw_capabilities=capabilities)
    params = CallToolParams(name=record.tool, arguments=Raw(restart.arguments))
    meta = RequestMeta(client_capabilities=capabilities, protocol_version=version.name)
    call = Call(record.id, "tools/call", session, Raw(b"{}"), version, params, meta)
    nobody: Any = SimpleNamespace(loop=asyncio.get_running_loop(), channel=QuietChannel(Origin("memory")))
    run = TaskRun(tasks, host, Exchange(call, nobody), params, None)
    run.owner = run.caller = record.owner
    run.retries = record.retries
    run.begin_again(record, restart.kept, host.handlers["tools/call"])
