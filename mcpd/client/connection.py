"""One connection of a client on asyncio: waiting for responses, time limits, and requests of the server.

A request may wait `timeout` seconds without progress. While the client answers a request of the server, the clocks of
all its own requests stand still, because the server may be waiting for the client.

Spec: 2025-11-25 basic/lifecycle, timeouts; basic/utilities/{cancellation,progress}.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, TypeAlias, cast

from msgspec import Raw

from mcpd.errors import (
    CannotConnect,
    ConfigurationError,
    ConnectionLost,
    FrameTooLarge,
    InternalError,
    InvalidRequest,
    McpdError,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    SessionLost,
)
from mcpd.protocol.channel import Channel, HeadedChannel, Heading
from mcpd.protocol.envelope import Envelope
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.printable import printable
from .callbacks import Callbacks, NotificationQueue, UrlElicitations, answer_request, detached
from .channels import PausableChannel
from .limits import ClientLimits
from .messages import Headings
from .session import (
    ClientRequest,
    ClientSession,
    Event,
    Frame,
    NotificationReceived,
    OnProgress,
    ProgressReceived,
    RequestCancelled,
    ResponseReceived,
    ServerRequest,
    UnreadResult,
)

log = logging.getLogger("mcpd.client")

OnRequest: TypeAlias = Callable[[ServerRequest, ClientRequest | None], Awaitable[Any]]
"""Returns the result of a request of the server, or raises ProtocolError. The second argument is the request of this
client whose own stream brought the server's request; None if the stream is shared."""

_DEFAULT_LIMITS = ClientLimits()
_NEVER = math.inf


class ClientConnection:
    """A channel, its session, and the waiting requests. It is a `Receiver`, created on the event loop's thread."""

    longest = 3600.0
    """Seconds after which a request is cancelled, whatever its progress."""

    def __init__(
        self, session: ClientSession, channel: Channel, callbacks: Callbacks, limits: ClientLimits = _DEFAULT_LIMITS
    ) -> None:
        self.session = session
        self.channel = channel
        if isinstance(channel, HeadedChannel):
            session.headings = Headings(session.faults)
        self.loop = asyncio.get_running_loop()
        self.is_wanted: Callable[[NotificationReceived], bool] = lambda told: True
        """Called for each notification: whether the program receives it."""
        self.on_notification: Callable[[str, Raw], None] | None = None
        """Called for each notification as soon as it arrives."""
        self.on_request: OnRequest | None = None
        """Answers requests of the server instead of the callbacks."""
        self.on_lost: Callable[[McpdError], None] | None = None
        """Called once with the reason when the connection has ended."""
        self.on_unread: Callable[[Raw], None] | None = None
        """Called with the result of a tool call that was cancelled."""

        self._callbacks = callbacks
        self._limits = limits

        # Requests of the server whose callbacks are running, including cancelled ones.
        self._answering: dict[ServerRequest, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._notifications = NotificationQueue(callbacks, limits, session.faults, self._pause, self._end_connection)
        self._url_elicitations = UrlElicitations()

        # The request that was just queued. The task that waits for its response sends it.
        self._to_carry: Frame | None = None
        self._answered_bytes = self._unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timeouts_at = _NEVER
        self._lost: McpdError | None = None
        self.is_lost = False
        """Whether the connection has ended, so that no request can be sent."""
        self.is_closed = False
        """Whether this client closed the connection."""
        self.is_abandoned = False
        """Whether the server exceeded a limit. A new connection would end in the same way."""
        self._closing: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------------------------------- receiving

    def receive(self, frame: bytes) -> None:
        if self.is_lost:
            return
        session = self.session
        answered = session.receive(frame)
        if answered is None:
            self._process_events()
            return

        request, result = answered
        self._settle(request, result)
        if session.outgoing:
            self.flush()

    def receive_error(self, error: ProtocolError) -> None:
        """Report data that is not a frame. If a response was too large, its request raises the error."""
        self.session.faults.log(logging.WARNING, "the server sent an invalid frame: %s", printable(error.message))
        if isinstance(error, FrameTooLarge):
            self.session.receive_error(error)
            self._process_events()

    def closed(self, error: McpdError | None = None) -> None:
        """The server has closed the connection: waiting requests raise an error."""
        text = "the server closed the connection" if error is None else str(error)
        self._lose(error if isinstance(error, ConnectionLost) else ConnectionLost(text))

    def waits_for(self, request_id: Id) -> bool:
        return request_id in self.session.pending

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        """The channel got no response to that request, or could not send a notification."""
        if request_id is None:
            self.session.faults.log(logging.WARNING, "a message to or from the server was lost: %s", printable(error))
            return
        request = self.session.pending.take(request_id)
        if request is not None:
            self._settle(request, error)

    def _lose(self, error: McpdError) -> None:
        if self._lost is None:
            self._lost, self.is_lost = error, True
            if self.on_lost is not None:
                self.on_lost(error)

        for request in self.session.pending:
            self._settle(request, _copy_of(self._lost))

        # Callbacks are not called for a connection that the program may have replaced already.
        self._notifications.clear()
        for task in self._other_tasks():
            task.cancel()

    def loss_error(self) -> McpdError:
        return _copy_of(self._lost or ConnectionLost("the connection has ended"))

    def report_change(self, method: str, params: Raw) -> None:
        """Process a notification that the server would have sent: that something may have changed."""
        if self.on_notification is not None:
            self.on_notification(method, params)
        if self._notifications.put(NotificationReceived(method, params)):
            self._start(self._notifications.deliver(self._callback_returned))

    def _end_connection(self, error: McpdError) -> None:
        if self._lost is None:
            # Reconnecting would only meet the same limit again.
            self.is_abandoned = True
            log.error("closing the connection to the server: %s", printable(error))
            self._lose(error)
            self._closing = self.loop.create_task(self.channel.aclose())

    def _pause(self, is_wanted: bool) -> bool:
        channel = self.channel
        if not isinstance(channel, PausableChannel):
            return False
        if is_wanted:
            channel.pause()
        else:
            channel.resume()
        return True

    def _other_tasks(self) -> list[asyncio.Task[None]]:
        # All tasks except the current one, which may be a callback that closes the client.
        return [task for task in self._tasks if task is not asyncio.current_task()]

    def _process_events(self) -> None:
        session = self.session
        for event in session.events():
            self._handle(event)
        if session.outgoing:
            self.flush()

    def flush(self) -> None:
        session, channel = self.session, self.channel
        frames, session.outgoing = session.outgoing, []  # like `data_to_send`
        for frame, request_id, method, heading in frames:
            # With headers, the task that waits for a request also sends it, so that cancelling closes its stream.
            if heading is None:
                channel.send(frame, request_id, method)
            elif heading.is_request:
                self._to_carry = frame, request_id, method, heading
            else:
                cast("HeadedChannel", channel).send_headed(frame, request_id, method, heading)

        if session.answered_bytes != self._answered_bytes:
            size = session.answered_bytes - self._answered_bytes
            self._answered_bytes = session.answered_bytes
            self._unread_bytes = self._unread_bytes + size if channel.is_congested else 0
            # The channel queues responses without limit, so a server that only sends could use up the memory.
            if self._unread_bytes > self._limits.unread_bytes:
                limit = f"{self._limits.unread_bytes} bytes wait (ClientLimits.unread_bytes)"
                self._end_connection(ConnectionLost(f"The server does not read the responses to its requests: {limit}"))

    def _handle(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            request, outcome = event.request, event.outcome
            if isinstance(outcome, RemoteError):
                self._url_elicitations.required(outcome)
            self._settle(request, outcome)
        elif isinstance(event, ProgressReceived):
            self._progress(event)
        elif isinstance(event, ServerRequest):
            self._start_answer(event)
        elif isinstance(event, RequestCancelled):
            # Its response is dropped by the session; the callback should end soon, too.
            task = self._answering.get(event.asked)
            if task is not None:
                task.cancel()
        elif isinstance(event, UnreadResult):
            self._leave(event.request, event.result)
        else:
            if self.on_notification is not None:
                self.on_notification(event.method, event.params)

            is_completion = event.method == "notifications/elicitation/complete"
            if is_completion and not self._url_elicitations.complete(event.params):
                self.session.faults.log(logging.INFO, "the server completed an elicitation that it had not requested")
            elif self.is_wanted(event) and self._notifications.put(event):
                self._start(self._notifications.deliver(self._callback_returned))

    def _progress(self, event: ProgressReceived) -> None:
        request = event.request
        request.restart(self.loop.time(), is_stopped=bool(self._answering))
        self._schedule_timeouts(request.deadline)
        if request.on_progress is not None:
            try:
                # A function of the program must not break the connection.
                request.on_progress(event.params.progress, event.params.total, event.params.message)
            except Exception as error:
                self.session.faults.log(logging.ERROR, "on_progress failed", error=error)

    # --------------------------------------------------------------------------- requests of the server

    def _start_answer(self, asked: ServerRequest) -> None:
        limits = self._limits
        size = len(asked.params) + sum(len(request.params) for request in self._answering)
        is_much = self._answering and size > limits.waiting_bytes
        # A server that asks without end would otherwise fill the memory with its params.
        if is_much or len(self._answering) >= limits.questions:
            text = f"This client processes at most {limits.questions} requests at a time: wait for its responses"
            self.session.refuse(asked, InvalidRequest(text))
            return

        if asked.method == "elicitation/create":
            self._url_elicitations.asked(asked.params)

        # Now, because the callback runs in another task.
        carried = None if self.on_request is None else self.carried_request()
        task = self._answering[asked] = self._start(self._answer(asked, carried))
        # Not at the end of the coroutine, which is not reached if the task is cancelled before its first step.
        task.add_done_callback(lambda _: self._answered(asked))
        self._restart_clocks()

    def carried_request(self) -> ClientRequest | None:
        """Return the request whose own stream brings the message that is processed now; None for a shared stream."""
        task = asyncio.current_task()
        return next((one for one in self.session.pending if one.carrier is not None and one.carrier is task), None)

    async def _answer(self, asked: ServerRequest, carried: ClientRequest | None) -> None:
        session = self.session
        try:
            if self.on_request is not None:
                result = await self.on_request(asked, carried)
            else:
                result = await answer_request(self._callbacks, asked.method, asked.params, session.faults)
            version = session.version
            session.answer(asked, result if version is None else version.shape(result))
        except ProtocolError as error:
            session.refuse(asked, error)
        except Exception as error:
            text = "%s: the result of the callback cannot be sent"
            session.faults.log(logging.ERROR, text, printable(asked.method), error=error)
            session.refuse(asked, InternalError())

    def _answered(self, asked: ServerRequest) -> None:
        del self._answering[asked]
        self._restart_clocks()
        self.flush()

    def hold(self, request_id: Id, is_held: bool) -> None:
        """Stop the clock of a request, for example during a login, or start it again. `longest` still applies."""
        request = self.session.pending.get(request_id)
        if request is not None:
            request.restart(self.loop.time(), is_stopped=is_held or bool(self._answering))
            self._schedule_timeouts(request.deadline)

    def carried_by(self, request_id: Id, task: asyncio.Task[Any]) -> None:
        """Take the outcome of a request from this task without an interruption: it carries the request."""
        request = self.session.pending.get(request_id)
        if request is not None:
            request.carrier = task

    def _restart_clocks(self) -> None:
        now, is_stopped = self.loop.time(), bool(self._answering)
        for request in self.session.pending:
            request.restart(now, is_stopped=is_stopped)
        self._schedule_timeouts(self.session.pending.deadline)

    def _callback_returned(self) -> None:
        # If the server was not being read, responses may be waiting: give all requests more time.
        if self._notifications.is_paused:
            self._restart_clocks()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # A detached context, because this work is not done on behalf of the task that received the message.
        task = self.loop.create_task(work, context=detached())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ----------------------------------------------------------------------------------------- requests

    async def request(
        self, method: str, params: Any = None, *, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> Raw:
        """Send a request, and return the raw result. `timeout` is in seconds without progress, None for no limit.

        Raises RemoteError, RequestTimeout and ConnectionLost; ProtocolError for an invalid response, LocalProtocolError
        for a method that the version lacks, ConfigurationError for an `on_progress` that is a coroutine function.
        """
        return await self.answer(self.begin(method, params, on_progress), timeout)

    def begin(
        self, method: str, params: Any, on_progress: OnProgress | None, envelope: Envelope | None = None
    ) -> ClientRequest:
        """Queue a request, for `answer`. Raises LocalProtocolError and ConfigurationError like `request`."""
        if on_progress is None:
            return self.session.request(method, params, envelope=envelope)
        if iscoroutinefunction(on_progress):
            raise ConfigurationError("on_progress must be a plain function, which may start a task")
        request = self.session.request(method, params, wants_progress=True, envelope=envelope)
        request.on_progress = on_progress
        return request

    async def answer(self, request: ClientRequest, timeout: float | None) -> Raw:
        if self._lost is not None:
            self.session.cancel(request.id, "")
            self.session.data_to_send()
            raise _copy_of(self._lost)

        answer: asyncio.Future[Raw] = self.loop.create_future()
        # Set before the request is sent: a memory channel may answer it at once.
        request.waiter = answer
        # Kept with the request, because progress restarts its clock.
        request.timeout = timeout
        self.flush()
        is_nested = self._notifications.has_delivered and self._notifications.begin_request()

        try:
            # One timer for all requests, because a timer for each would cost as much as reading its response.
            if timeout is not None:
                now = self.loop.time()
                request.latest = now + (timeout if timeout > self.longest else self.longest)
                request.deadline = deadline = now + timeout
                if deadline < self._timeouts_at or self._answering:
                    # While this client answers a request of the server, the clock stands still.
                    request.restart(now, is_stopped=bool(self._answering))
                    self._schedule_timeouts(request.deadline)
            if self._to_carry is not None:
                try:
                    await self._carry(request)
                except TimeoutError:
                    if not answer.done():
                        raise
                    self.session.pending.take(request.id)  # settled elsewhere while it was carried
            return await answer
        except TimeoutError:
            self._abandon(request, "timed out")
            raise RequestTimeout(f"The server did not answer {request.method} within {timeout:g} s") from None
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._leave(request, answer.result())
            self._abandon(request, "no longer needed")
            raise
        except BaseException:
            self.session.pending.take(request.id)
            raise
        finally:
            # Break the reference cycle of an error and this frame, and mark a late error as retrieved.
            request.waiter = None
            if answer.done() and not answer.cancelled():
                answer.exception()
            del answer
            if is_nested:
                self._notifications.end_request()

    def _schedule_timeouts(self, deadline: float | None) -> None:
        if deadline is None or self._timeouts_at <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(deadline, self._check_timeouts)
        self._timeouts_at = deadline

    def _check_timeouts(self) -> None:
        self._timer, self._timeouts_at = None, _NEVER
        now = self.loop.time()
        for request in self.session.pending:
            if request.deadline is not None and request.deadline <= now:
                # Otherwise it would be found again before its task has ended.
                request.deadline = None
                request.interrupt(now)
        self._schedule_timeouts(self.session.pending.deadline)

    async def _carry(self, request: ClientRequest) -> None:
        # Send a request over its own connection, and read the response there.
        assert self._to_carry is not None
        frame, _, method, heading = self._to_carry
        self._to_carry = None
        # An outcome from elsewhere must interrupt this task, which waits for the server.
        request.carrier = asyncio.current_task()
        try:
            async with asyncio.timeout(None) as request.clock:
                await cast("HeadedChannel", self.channel).carry(frame, request.id, method, cast("Heading", heading))
        finally:
            request.carrier = request.clock = None

    def _settle(self, request: ClientRequest, outcome: Raw | McpdError) -> None:
        # Set the outcome of a request, and interrupt the task that still carries it.
        if not request.settle(outcome) and isinstance(outcome, Raw):
            self._leave(request, outcome)
        carrier = request.carrier
        if carrier is not None and carrier is not asyncio.current_task():
            request.interrupt(self.loop.time())

    def _leave(self, request: ClientRequest, result: Raw) -> None:
        # Nobody waits for this result any more, but a tool call may have become a task.
        if request.method == "tools/call" and self.on_unread is not None:
            self.on_unread(result)

    def _abandon(self, request: ClientRequest, reason: str) -> None:
        self.session.cancel(request.id, reason)
        self.flush()

    async def aclose(self) -> None:
        """Cancel waiting requests and running callbacks, and close the channel."""
        self.is_closed = True
        # A copy: cancelling a request takes it out of the table.
        pending = list(self.session.pending)
        for request in pending:
            self._abandon(request, "the client is closing")

        if self._timer is not None:
            self._timer.cancel()
        self._lose(ConnectionLost("the client is closed"))
        for request in pending:
            self._settle(request, ConnectionLost(str(self._lost)))

        try:
            if others := self._other_tasks():
                await asyncio.wait(others)
        finally:
            if self._closing is None:
                await self.channel.aclose()
            else:
                await self._closing


def _copy_of(lost: McpdError) -> McpdError:
    # Return a new instance of the error, because each waiting task raises its own.
    return type(lost)(str(lost)) if isinstance(lost, (SessionLost, CannotConnect)) else ConnectionLost(str(lost))
