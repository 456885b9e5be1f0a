"""The asyncio side of a connection: one task per request that waits, and the only except-to-wire.

A handler is a function (context, params) -> result or coroutine. What it gives at once is answered at
once; a coroutine becomes a task whose first step runs immediately, so that a tool that never waits
costs no turn of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType
from typing import Any, TypeAlias

from .channel import Channel
from .context import Context
from .errors import InternalError, InvalidRequest, McpdError, MethodNotFound, ProtocolError, ToolError
from .jsonrpc import Batch, Failure, Message, Notification, Request, Response, decode
from .session import Call, Session

__all__ = ["Connection", "Handler", "start_task"]

log = logging.getLogger("mcpd")

Handler: TypeAlias = Callable[[Context, Any], Any]


class Connection:
    """One channel, its session, and the calls that run for it. Make it on the event loop's thread."""

    def __init__(self, session: Session, handlers: Mapping[str, Handler], channel: Channel) -> None:
        self.session = session
        self.handlers = handlers
        self.channel = channel
        self.loop = asyncio.get_running_loop()
        self.on_notification: Callable[[str, Any], None] | None = None
        self.ended = self.loop.create_future()
        """Done when the peer will send no more; its result is the error that ended it, or None."""
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what the transport calls ------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """Take one frame: start what it asks for, refuse what is wrong with it."""
        try:
            message = decode(frame)
        except ProtocolError as error:
            self.receive_error(error)
            return
        if message.__class__ is Request:
            self._start(message)  # type: ignore[arg-type]
        elif isinstance(message, Batch):
            self._receive_batch(message)
        else:
            self._receive_other(message)

    def receive_error(self, error: ProtocolError) -> None:
        """Answer what could not be understood."""
        self.channel.send(self.session.refuse(error))

    def closed(self, error: McpdError | None = None) -> None:
        """The peer will send no more; calls in flight go on until `finish` or `abort`."""
        if not self.ended.done():
            self.ended.set_result(error)

    # -- ending ------------------------------------------------------------------------------

    async def finish(self, grace: float) -> None:
        """Let running calls answer for up to `grace` seconds, then stop the rest with an error answer."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        self.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    def abort(self) -> None:
        """Cancel all running calls now."""
        for task in self._tasks:
            task.cancel()

    # -- requests ----------------------------------------------------------------------------

    def _start(self, request: Request, batch: _BatchReply | None = None) -> None:
        session = self.session
        try:
            call = session.receive_request(request)
        except ProtocolError as error:
            frame = session.refuse(error, request.id)
            if batch is None:
                self.channel.send(frame, request.id)
            else:
                batch.add(frame)
            return
        call.batch = batch
        answer: bytes | None
        try:
            handler = self.handlers.get(call.method)
            if handler is None:
                raise MethodNotFound(f"Method not found: {call.method}")
            result = handler(Context(call, self), call.params)
            if result.__class__ is CoroutineType:
                start_task(self.loop, self._finish(call, result), call, self._tasks)
                return
            answer = session.respond(call, result)
        except Exception as error:
            answer = session.fail(call, _as_wire(error, call))
        self._send(call, answer)

    async def _finish(self, call: Call, work: Coroutine[Any, Any, Any]) -> None:
        session = self.session
        answer: bytes | None
        try:
            answer = session.respond(call, await work)
        except asyncio.CancelledError:
            # Cancelled by the peer: the call is closed and this gives None. By us: the peer is told.
            answer = session.fail(call, InternalError("The server is shutting down"))
        except Exception as error:
            answer = session.fail(call, _as_wire(error, call))
        self._send(call, answer)

    def _send(self, call: Call, answer: bytes | None) -> None:
        if call.batch is not None:
            call.batch.add(answer)
        elif answer is not None:
            self.channel.send(answer, call.id)

    # -- the rest ----------------------------------------------------------------------------

    def _receive_other(self, message: Message) -> None:
        if isinstance(message, Notification):
            params = self.session.receive_notification(message)
            if params is None:
                return
            if message.method == "notifications/cancelled":
                call = self.session.cancel(params.request_id)
                if call is not None:
                    if call.task is not None:
                        call.task.cancel()
                    if call.batch is not None:
                        call.batch.add(None)
            elif self.on_notification is not None:
                self.on_notification(message.method, params)
        elif isinstance(message, (Response, Failure)):
            self.session.receive_answer(message)

    def _receive_batch(self, batch: Batch) -> None:
        """Spec: 2025-03-26 basic/index, batching: an array in, an array out, nothing for notifications alone."""
        version = self.session.version
        if version is None or not version.has_batches:
            self.receive_error(InvalidRequest("JSON-RPC batches exist in protocol version 2025-03-26 only"))
            return
        reply = _BatchReply(self.channel, len(batch))
        for part in batch:
            try:
                message = decode(part)
                if isinstance(message, Batch):
                    raise InvalidRequest("A batch cannot hold a batch")
                if isinstance(message, Request) and message.method == "initialize":
                    error = InvalidRequest("initialize cannot be part of a batch")
                    error.request_id = message.id
                    raise error
            except ProtocolError as error:
                reply.add(self.session.refuse(error))
                continue
            if isinstance(message, Request):
                self._start(message, reply)
            else:
                self._receive_other(message)
                reply.add(None)

    async def notify(self, method: str, params: Any, about: Call | None = None) -> None:
        """Send a notification; waits while the peer does not read."""
        frame = self.session.notify(method, params, about)
        if frame is None:
            return
        self.channel.send(frame, None if about is None else about.id)
        if self.channel.is_congested:
            await self.channel.drain()


class _BatchReply:
    """Gathers the answers of one batch and sends them as one array."""

    def __init__(self, channel: Channel, size: int) -> None:
        self._channel = channel
        self._left = size
        self._answers: list[bytes] = []

    def add(self, answer: bytes | None) -> None:
        if answer is not None:
            self._answers.append(answer)
        self._left -= 1
        if self._left == 0 and self._answers:
            self._channel.send(b"[" + b",".join(self._answers) + b"]")


def _as_wire(error: Exception, call: Call) -> ProtocolError:
    """The only place where an exception becomes an error answer."""
    if isinstance(error, ProtocolError):
        return error
    if isinstance(error, ToolError):
        # Outside tools/call there is no isError; its text is meant to be read all the same.
        return InternalError(str(error))
    log.error("%s (id %r) failed", call.method, call.id, exc_info=error)
    return InternalError()


if sys.version_info >= (3, 12):

    def start_task(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], call: Call, tasks: set[asyncio.Task[None]]
    ) -> None:
        """Run `work` as a task, its first step now; `tasks` holds it while it waits, `call.task` names it."""
        task = asyncio.Task(work, loop=loop, eager_start=True)
        if not task.done():
            call.task = task
            tasks.add(task)
            task.add_done_callback(tasks.discard)

else:

    def start_task(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], call: Call, tasks: set[asyncio.Task[None]]
    ) -> None:
        """Run `work` as a task, its first step now; `tasks` holds it while it waits, `call.task` names it.

        Python 3.11 has no eager start. A new task has just queued its first step as the last entry of the
        loop's ready queue: taking that entry out and running it is an eager start by hand, with the task
        current and its context entered. Loops without that queue (uvloop), and callers that are
        themselves inside a task, start it the ordinary way, one turn later.
        """
        task = asyncio.Task(work, loop=loop)
        ready = getattr(loop, "_ready", None)
        if ready and asyncio.current_task(loop) is None:
            ready.pop()._run()
            if task.done():
                return
        call.task = task
        tasks.add(task)
        task.add_done_callback(tasks.discard)
