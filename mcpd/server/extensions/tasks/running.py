"""How a call becomes a task.

Theory of operation. The call's whole work, with middleware and all checks, runs in a task of the event loop of its own.
Until the call is answered, all messages of the work pass through to the client, as without tasks. When the time is
over, or the tool calls `become_task`, the task is stored and the call is answered with it. The same work goes on: now
progress becomes the status message, questions wait in the record, and the result is stored.

The work sees a `TaskRun` instead of its connection, and a `TaskCall` instead of its call. After the answer they hold
nothing of the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
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
from mcpd.server.context.peer import TaskHandedOver, questions_of
from mcpd.server.dispatcher.connection import error_of
from mcpd.server.registry.tools import failed
from .methods import form_of
from .peer import QuietChannel, Refusal, Run, TaskAsking, TaskCall
from .questions import as_json
from .record import Outcome, Record, Restart, error_outcome, outcome_of, short
from .registry import Tasks, identity_of

if TYPE_CHECKING:
    from mcpd.protocol.types.base import LogLevel
    from mcpd.server.context.peer import Peer
    from mcpd.server.context.questions import Question, Timeout
    from mcpd.server.extensions.base import ExtensionHost
    from .settings import TaskTool

log = logging.getLogger("mcpd.tasks")

# Seconds between two changes of a status message (TASK-052).
_NOTE_EVERY = 1.0
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING}


class TaskRun(Run):
    """One call of a tool that can be a task: the `CallTask` and the `Peer` of the exchange that its work sees.

    `after` is the number of seconds that the call may take without becoming one; None for no limit. With
    `must` it becomes one at once. With `has_text` the client accepts no tasks, and receives a text with the id.
    """

    __slots__ = ("_after", "_is_counted", "_is_refused", "_must", "_noted", "_ready", "_seed", "_stopped", "_storing",
                  "_timer", "_wish", "exchange", "form", "host", "immediate", "tasks", "tool")  # fmt: skip

    def __init__(
        self,
        tasks: Tasks,
        host: ExtensionHost,
        exchange: Exchange,
        tool: TaskTool,
        *,
        after: float | None = None,
        must: bool = False,
        has_text: bool = False,
        wish: float | None = None,
    ) -> None:
        outer = exchange.call
        session = outer.session
        self.tasks = tasks
        self.host = host
        self.tool = tool
        self.outer = exchange
        self.real = exchange.peer
        self.loop = exchange.peer.loop
        self.channel = exchange.peer.channel
        # An anonymous client must not have more tasks because it opens more WebSockets, each with an owner of its own.
        self.caller = tasks.owner(exchange) if session.opening.principal else session.owner
        self.form = form_of(outer)
        self.has_text = has_text
        self.is_open = True
        self.record = None
        self.node = ""
        self.message = None
        self.immediate = ""
        self.view = None
        self.work = None
        self._after = after
        self._wish = wish
        self._must = must
        self._is_counted = False
        self._is_refused = False
        # The record until the call is answered with it, and what the call waits for.
        self._seed: Record | None = None
        self._ready: asyncio.Future[None] | None = None
        # Stores the task; None before and after that.
        self._storing: asyncio.Task[None] | None = None
        self._noted = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: ProtocolError | None = None
        self.call = TaskCall(
            outer.id, "tools/call", session, outer.source, outer.version, outer.params, outer.meta,
            charge=outer.charge, trace=outer.trace, began=outer.began, run=self,
        )  # fmt: skip
        self.exchange = Exchange(self.call, self, exchange.lifespan, task=self)
        if exchange.asked is not None:
            self.exchange.use(TaskAsking(self, exchange.asked))

    @property
    def id(self) -> str | None:
        """The task's id; None before the call has become one."""
        return None if self.record is None else self.record.id

    # -- the call ----------------------------------------------------------------------------

    async def answer(self, handler: Handler) -> Any:
        """Run a handler, and return its result, or the task that the call has become."""
        assert self.outer is not None
        request, channel = self.outer.call, self.channel
        self._ready = self.loop.create_future()
        work = self.work = self.loop.create_task(self._run(handler), name="mcpd-task")
        work.add_done_callback(self._wake)
        try:
            await self._ready
            if self._seed is not None and not (request.is_open and not getattr(channel, "has_left", False)):
                raise asyncio.CancelledError  # the client has cancelled it, or has left, in this turn of the loop
        except BaseException:
            self._give_up(work)
            await asyncio.wait((work,))
            raise

        return self._direct(work) if self._seed is None else self._described()

    def _give_up(self, work: asyncio.Task[Any]) -> None:
        # The client has left before it received the id: no task is left, even if its time is over now (TASK-047).
        self._is_refused = True
        if self._storing is not None:
            self._storing.cancel()
        if self._seed is not None:
            self.tasks.spawn(self.tasks.discard(self, self._seed))
            self.stop(None)
        work.cancel()
        work.add_done_callback(self._given_up)

    def _given_up(self, work: asyncio.Task[Any]) -> None:
        self._close()
        if not work.cancelled():
            work.exception()  # marks it as retrieved

    def _wake(self, _: object = None) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _direct(self, work: asyncio.Task[Any]) -> Any:
        # Return the result of work that has not become a task.
        outer = self.outer
        assert outer is not None
        outer.call.denied = self.call.denied
        if self._stopped is not None:
            raise self._stopped
        asking: Any = self.exchange.asked
        if asking is not None and asking.before is not None:
            outer.use(asking.before)
        self._close()
        return work.result()

    def _described(self) -> Any:
        # Return the answer to the call that has become a task.
        record, self._seed, self._ready = self._seed, None, None
        assert record is not None
        if self.has_text:
            text = (
                f"This still works after {self._after:g} s, as the task {record.id}. Call task_result with this id to "
                "wait for the result, or task_cancel to stop it."
            )
            return CallToolResult(content=[TextContent(text)])
        record.message = record.message or self.message
        return self.form.seed(record, self.immediate)

    def _count(self, is_working: bool) -> None:
        if is_working is not self._is_counted:
            self._is_counted = is_working
            self.tasks.count(self.caller, 1 if is_working else -1)

    def _end_here(self) -> None:
        # The work has ended, or the task no longer belongs to this node.
        self._count(False)
        self.is_open = False
        self.call.run = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        if self.is_open:
            self._end_here()
        # The exchange refers to this run. Without the way back no garbage collector is needed to free both.
        self.exchange = self.call = None  # type: ignore[assignment]

    # -- becoming a task ---------------------------------------------------------------------

    def entered(self) -> None:
        """The tool begins. Its time is counted from now on."""
        if self.outer is None or self._timer is not None or self._is_counted:
            return  # it has begun; middleware may call it several times
        if self._must:
            self._admit()
            self._come_due()
        elif self._after is not None:
            self._timer = self.loop.call_later(self._after, self._come_due)

    def _admit(self) -> None:
        self.tasks.admit(self.caller)
        self._count(True)

    def _come_due(self) -> None:
        self._timer = None
        is_done = self.work is not None and self.work.done()
        if self._storing is not None or self._is_refused or self.outer is None or is_done:
            return
        if self.tasks.store.is_memory:
            # It never waits, and saves the turns of the loop that most of a short task would be.
            run_now(self._become_record())
            self._stored()
        else:
            self._storing = self.loop.create_task(self._become_record())
            self._storing.add_done_callback(self._stored)

    def _stored(self, _: object = None) -> None:
        self._storing = None
        self._is_refused = self.record is None
        if not self._is_refused:
            self._wake()

    def storing(self) -> Coroutine[Any, Any, object] | None:
        return None if self._storing is None else asyncio.wait((self._storing,))

    async def become(self, message: str) -> None:
        if message:
            self.message = message
            if self.outer is not None or self._seed is not None:
                self.immediate = message  # the call is not answered yet
            self.note_progress()

        if self.outer is None or self.has_text:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._come_due()
        if (storing := self.storing()) is not None:
            await storing

    async def _become_record(self) -> None:
        # Store the task; it then is the answer to the call.
        tasks, outer = self.tasks, self.outer
        assert outer is not None
        try:
            if not self._must:
                self._admit()
            record = self._new_record(outer)
            await tasks.create(self, record, is_listed=tasks.is_known(outer))
        except (InternalError, BackplaneAway):
            self._count(False)
            if self._must and self.work is not None:
                self._stopped = InternalError("The store of tasks cannot be reached: try again later")
                self.work.cancel()
            return

        self.record = self._seed = record
        self.node = record.node
        if self.host.lifespan is not None:
            self.host.lifespan.hold(self)
        self.answered(stays=self.form.stays(outer.call))
        asking: Any = self.exchange.asked
        if asking is not None and asking.before is not None:
            asking.before.move(self.call, self)
        self.call.forget_message()
        if self.work is not None:
            self.work.remove_done_callback(self._wake)

    def _new_record(self, outer: Exchange) -> Record:
        tasks, call = self.tasks, outer.call
        now, most = tasks.clock(), tasks.settings.max_ttl
        wish = None if self._wish is None else min(self._wish, most)
        retries, restart = self.tool.retries_of(self.host.catalog.tools.find_enabled(call.params.name)), None
        if retries and not tasks.store.is_memory:
            arguments = call.params.arguments
            given = b"{}" if arguments is NO_JSON else bytes(arguments)
            restart = Restart(call.version.name, given, encode(call.client.capabilities), as_json(self.exchange.kept))

        return Record(
            owner=tasks.owner(outer), server=self.host.name, tool=call.params.name, created=now, updated=now,
            ttl=most if wish is None else wish, wish=wish, retries=retries, restart=restart,
            message=self.message and short(self.message),
        )  # fmt: skip

    def begin_again(self, record: Record, restart: Restart) -> None:
        """Run a task that another node has begun."""
        self.record, self.node, self.caller = record, record.node, record.owner
        self.answered(stays=False)
        self.exchange.asking.kept.update(restart.kept)
        self.tasks.runs[record.id] = self
        self._count(True)
        if self.host.lifespan is not None:
            self.host.lifespan.hold(self)
        self.work = self.loop.create_task(self._run(self.host.handlers["tools/call"]), name="mcpd-task")

    # -- the work ----------------------------------------------------------------------------

    async def _run(self, handler: Handler) -> Any:
        exchange = self.exchange
        outcome: Any
        try:
            outcome = handler(exchange, self.call.params)
            if outcome.__class__ is CoroutineType:
                outcome = await outcome
        except BaseException as error:
            if isinstance(error, TaskHandedOver):
                await self.become("")
            if (storing := self.storing()) is not None:
                await storing
            if self.record is None:
                if isinstance(error, TaskHandedOver):
                    return failed("This work takes long, and needs a client that takes tasks")
                raise
            outcome = error
        finally:
            exchange.has_ended = True
            if exchange.pending is not None:
                exchange.end()

        if (storing := self.storing()) is not None:
            await storing
        if self.record is None:
            return outcome
        await self._end(outcome)
        return None

    async def _end(self, outcome: Any) -> None:
        # Record the end of the task.
        tasks = self.tasks
        try:
            if isinstance(outcome, TaskHandedOver):
                await tasks.hand_over(self, outcome.keep)
            elif not isinstance(outcome, asyncio.CancelledError):
                await tasks.end_run(self, self._outcome(outcome))
            elif self.is_open and not (self._stopped is not None and await tasks.give_away(self)):
                error = self._stopped or InternalError("The work was cancelled inside the server")
                await tasks.end_run(self, error_outcome(error))
        finally:
            tasks.leave(self)
            self._close()
            if self.host.lifespan is not None:
                await self.host.lifespan.release(self)

    def _outcome(self, ended: Any) -> Outcome:
        if isinstance(ended, BaseException):
            if isinstance(questions_of(ended), dict):  # `InputRequired`, or a group of them
                return error_outcome(InternalError("The tool asked its client in a way that a task cannot"))
            return error_outcome(error_of(ended, self.call))
        try:
            return outcome_of(ended, self.call.session.identity)
        except Exception as error:
            return error_outcome(error_of(error, self.call))

    def stop(self, error: ProtocolError | None) -> None:
        if error is not None:
            self._stopped = error
        elif self.is_open:
            self._end_here()
            self.tasks.leave(self)
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
            self.form.changed(self.tasks, self, record, is_new=is_new)

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self.message = share if message is None else f"{message} ({share})"
        self.note_progress()

    def note_progress(self) -> None:
        """Write the message into the record, at most once a second."""
        if self.outer is None and self.is_open and self._timer is None:
            wait = max(0.0, self._noted + _NOTE_EVERY - self.loop.time())
            try:
                self._timer = self.loop.call_later(wait, self._write_note)
            except RuntimeError:
                pass
            self._noted = self.loop.time() + wait

    def _write_note(self) -> None:
        self._timer = None
        record = self.record
        if self.is_open and record is not None and record.message != self.message:
            self.tasks.spawn(self.tasks.note(record.id, self.message or ""))

    def takes_log(self, level: LogLevel, data: object, logger: str | None) -> bool:
        if self.outer is not None or (self.real is not None and not self.has_text):
            return False
        log.log(
            _LEVELS.get(level, logging.ERROR), "task %s, tool %s: %s",
            (self.id or "")[:8], printable(self.call.params.name), printable(self.as_json(data)),
        )  # fmt: skip
        return True

    def say(self, peer: Peer, method: str, params: Any) -> Coroutine[Any, Any, None] | None:
        if self.has_text or not self.is_open:
            return None
        return self.form.say(self.tasks, self, peer, method, params)

    def asking_for(self, call: Call, peer: Peer) -> Asking:
        return TaskAsking(self, None)

    def ask(self, questions: dict[str, Question], timeout: Timeout) -> Coroutine[Any, Any, dict[str, Any]]:
        assert self.record is not None
        return self.tasks.questions.ask(self.record.id, questions, timeout, self.exchange.kept)


def run_now(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("it waits")


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
                exchange.task = Refusal(MethodNotFound(text))
            return handler(exchange, params)

        form = form_of(exchange.call)
        if not form.is_taken(exchange.call):
            if tool.mode == "required":
                text = f"{params.name} runs as a task only, and needs a client that takes tasks"
                exchange.task = Refusal(MissingExtension(TASKS, text))
            if tool.mode == "required" or fallback_after is None:
                return handler(exchange, params)
            return TaskRun(get_tasks(), host, exchange, tool, after=fallback_after, has_text=True).answer(handler)

        must, wish = form.wish(exchange.call)
        must = must or (tool.mode == "required" and tool.after == 0)
        return TaskRun(get_tasks(), host, exchange, tool, after=tool.after, must=must, wish=wish).answer(handler)

    return wrapped


# -- running again -----------------------------------------------------------------------------


def run_again(tasks: Tasks, host: ExtensionHost, record: Record) -> None:
    """Run a task of a dead node from the top, with the answers that it had. Its user is no longer known."""
    restart = record.restart
    tool: Any = host.catalog.tools.find_enabled(record.tool)
    assert restart is not None
    version = table.get(restart.version)
    session = Session(identity_of(host), opening=Opening(version))
    capabilities = Raw(restart.capabilities)
    session.client = ClientIdentity(raw_capabilities=capabilities)
    params = CallToolParams(name=record.tool, arguments=Raw(restart.arguments))
    meta = RequestMeta(client_capabilities=capabilities, protocol_version=version.name)
    call = Call(record.id, "tools/call", session, Raw(b"{}"), version, params, meta)
    nobody: Any = SimpleNamespace(loop=asyncio.get_running_loop(), channel=QuietChannel(Origin("memory")))
    TaskRun(tasks, host, Exchange(call, nobody), tool).begin_again(record, restart)
