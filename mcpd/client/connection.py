"""The asyncio side of a client's connection: answers awaited, time limits, the server's questions.

A request waits `timeout` seconds without a sign of life; progress is one, and so is a question of the server's,
during which the clock stands still: the server waits for us then.

Spec: 2025-11-25 basic/lifecycle, timeouts; basic/utilities/{cancellation,progress}.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, cast

from msgspec import Raw

from mcpd.client.callbacks import Callbacks, Inbox, Visits, answer_to, detached
from mcpd.client.channels import PausableChannel
from mcpd.client.headings import Headings
from mcpd.client.limits import ClientLimits
from mcpd.client.session import (
    Answered,
    Asked,
    ClientRequest,
    ClientSession,
    Event,
    Frame,
    Notified,
    OnProgress,
    Progressed,
    Withdrawn,
)
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
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd.client")


_DEFAULT_LIMITS = ClientLimits()
_NEVER = math.inf


class ClientConnection:
    """One channel, its session, and the requests that wait. A `Receiver`; make it on the event loop's thread."""

    longest = 3600.0
    """No request waits longer, whatever the signs of life."""

    def __init__(
        self, session: ClientSession, channel: Channel, callbacks: Callbacks, limits: ClientLimits = _DEFAULT_LIMITS
    ) -> None:
        self.session = session
        self.channel = channel
        if isinstance(channel, HeadedChannel):
            session.headings = Headings(session.faults)
        self.loop = asyncio.get_running_loop()
        self.is_wanted: Callable[[Notified], bool] = lambda told: True
        """Asked of each notification: whether the program hears of it."""
        self.on_notification: Callable[[str, Raw], None] | None = None
        """Told of each notification, as soon as it comes."""
        self.on_lost: Callable[[McpdError], None] | None = None
        """Told once why the connection has ended, or is about to."""

        self._callbacks = callbacks
        self._limits = limits

        self._answering: dict[Asked, asyncio.Task[None]] = {}
        """The questions that are worked on, given up or not, until the callback ends."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._inbox = Inbox(callbacks, limits, session.faults, self._pause, self._end)
        self._visits = Visits()

        self._to_carry: Frame | None = None
        """The request that was just queued, for whoever waits for its answer to send."""
        self._answered_bytes = self._unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = _NEVER
        """When the timer looks for requests whose time is up."""
        self._lost: McpdError | None = None
        self.is_lost = False
        """Nothing can be asked any more."""
        self.is_closed = False
        """It was closed by us."""
        self.is_given_up = False
        """It was ended by us, for the server took more than it may: a new one would end in the same way."""
        self._closing: asyncio.Task[None] | None = None

    # --------------------------------------------------------------------------- what the channel calls

    def receive(self, frame: bytes) -> None:
        """Take one frame."""
        if self.is_lost:
            return
        session = self.session
        answered = session.receive(frame)
        if answered is None:
            self._turn()
            return

        request, result = answered
        self._settle(request, result)  # behind the callbacks for what came before it
        if session.outgoing:
            self.flush()

    def receive_error(self, error: ProtocolError) -> None:
        """What arrived was no frame. Of one that was too large whoever waits for it hears."""
        self.session.faults.say(logging.WARNING, "the server sent what cannot be taken: %s", printable(error.message))
        if isinstance(error, FrameTooLarge):
            self.session.receive_error(error)
            self._turn()

    def closed(self, error: McpdError | None = None) -> None:
        """The server will send no more: nobody gets an answer."""
        text = str(error) if error is not None else "the server closed the connection"

        self._lose(error if isinstance(error, ConnectionLost) else ConnectionLost(text))

    def waits_for(self, request_id: Id) -> bool:
        """Whether that request still has no answer."""
        return request_id in self.session.pending

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        """The channel got no answer to that request, or could not send a message that wants none."""
        if request_id is None:
            self.session.faults.say(logging.WARNING, "a message to or from the server was lost: %s", printable(error))
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
            self._settle(request, _another(self._lost))

        self._inbox.clear()
        for task in self._others():
            task.cancel()

    @property
    def lost(self) -> str:
        """Why it has ended; "" while it has not."""
        return "" if self._lost is None else str(self._lost)

    def another_loss(self) -> McpdError:
        """Why it has ended, as an error to be raised."""
        return _another(self._lost or ConnectionLost("the connection has ended"))

    def tell(self, method: str, params: Raw) -> None:
        """Tell the program what the server would have told: that something may have changed."""
        if self.on_notification is not None:
            self.on_notification(method, params)
        if self._inbox.put(Notified(method, params)):
            self._do(self._inbox.deliver(self._told))

    def _end(self, error: McpdError) -> None:
        """The server takes more than it may: be done with it."""
        if self._lost is None:
            self.is_given_up = True
            log.error("the connection to the server is ended: %s", printable(error))
            self._lose(error)
            self._closing = self.loop.create_task(self.channel.aclose())

    def _pause(self, is_wanted: bool) -> bool:
        """Read nothing of the server, or read on; whether that can be."""
        channel = self.channel
        if not isinstance(channel, PausableChannel):
            return False
        if is_wanted:
            channel.pause()
        else:
            channel.resume()
        return True

    def _others(self) -> list[asyncio.Task[None]]:
        """What runs, but the callback that asks: it may be the one that closes the client."""
        return [task for task in self._tasks if task is not asyncio.current_task()]

    def _turn(self) -> None:
        """Hand on what came of a step of the session's, then send what it has to say."""
        session = self.session
        for event in session.events():
            self._take(event)
        if session.outgoing:
            self.flush()

    def flush(self) -> None:
        """Send what the session has queued."""
        session, channel = self.session, self.channel
        frames, session.outgoing = session.outgoing, []  # as `data_to_send`
        for frame, request_id, method, heading in frames:
            if heading is None:
                channel.send(frame, request_id, method)
            elif heading.is_request:
                self._to_carry = frame, request_id, method, heading
            else:
                cast("HeadedChannel", channel).send_headed(frame, request_id, method, heading)

        if session.answered_bytes != self._answered_bytes:
            said = session.answered_bytes - self._answered_bytes
            self._answered_bytes = session.answered_bytes
            self._unread_bytes = self._unread_bytes + said if channel.is_congested else 0
            if self._unread_bytes > self._limits.unread_bytes:
                much = f"{self._limits.unread_bytes} bytes of answers wait for it (ClientLimits.unread_bytes)"
                self._end(ConnectionLost(f"The server asks and does not read: {much}"))

    def _take(self, event: Event) -> None:
        if isinstance(event, Answered):
            request, outcome = event.request, event.outcome
            if isinstance(outcome, RemoteError):
                self._visits.required(outcome)
            self._settle(request, outcome)  # behind the callbacks for what came before it
        elif isinstance(event, Progressed):
            self._progress(event)
        elif isinstance(event, Asked):
            self._begin_to_answer(event)
        elif isinstance(event, Withdrawn):
            task = self._answering.get(event.asked)
            if task is not None:
                task.cancel()
        else:
            if self.on_notification is not None:
                self.on_notification(event.method, event.params)

            if event.method == "notifications/elicitation/complete" and not self._visits.complete(event.params):
                self.session.faults.say(logging.INFO, "the server says that something is complete which it never asked")
            elif self.is_wanted(event) and self._inbox.put(event):
                self._do(self._inbox.deliver(self._told))

    def _progress(self, event: Progressed) -> None:
        request = event.request
        request.restart(self.loop.time(), is_stopped=bool(self._answering))
        self._look_at(request.deadline)
        if request.on_progress is not None:
            try:
                request.on_progress(event.progress, event.total, event.message)
            except Exception as error:
                self.session.faults.say(logging.ERROR, "the callback for progress failed", error=error)

    # ---------------------------------------------------------------------------- what the server wants

    def _begin_to_answer(self, asked: Asked) -> None:
        limits = self._limits
        size = len(asked.params) + sum(len(each.params) for each in self._answering)
        is_much = self._answering and size > limits.waiting_bytes
        if is_much or len(self._answering) >= limits.questions:
            text = f"This client works on {limits.questions} questions at a time: wait for its answers"
            self.session.refuse(asked, InvalidRequest(text))
            return

        if asked.method == "elicitation/create":
            self._visits.asked(asked.params)

        task = self._answering[asked] = self._do(self._answer(asked))
        # Not at the end of the coroutine: one that is cancelled before its first step never gets there.
        task.add_done_callback(lambda _: self._answered(asked))
        self._restart_clocks()

    async def _answer(self, asked: Asked) -> None:
        session = self.session
        try:
            result = await answer_to(self._callbacks, asked.method, asked.params, session.faults)
            version = session.version
            session.answer(asked, result if version is None else version.shape(result))
        except ProtocolError as error:
            session.refuse(asked, error)
        except Exception as error:
            text = "%s: what the callback gave cannot be sent"
            session.faults.say(logging.ERROR, text, printable(asked.method), error=error)
            session.refuse(asked, InternalError())

    def _answered(self, asked: Asked) -> None:
        del self._answering[asked]
        self._restart_clocks()
        self.flush()

    def hold(self, request_id: Id, is_held: bool) -> None:
        """While it is held the server is not waited for, as when somebody logs in: only the longest time counts."""
        request = self.session.pending.get(request_id)
        if request is not None:
            request.restart(self.loop.time(), is_stopped=is_held or bool(self._answering))
            self._look_at(request.deadline)

    def _restart_clocks(self) -> None:
        now, is_stopped = self.loop.time(), bool(self._answering)
        for request in self.session.pending:
            request.restart(now, is_stopped=is_stopped)
        self._look_at(self.session.pending.deadline)

    def _told(self) -> None:
        """A callback has ended. While the server is not read, that is a sign of life: answers may wait to be read."""
        if self._inbox.is_paused:
            self._restart_clocks()

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # Whose task carries what arrives does not matter: nothing here is done on its behalf.
        task = self.loop.create_task(work, context=detached())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------------------------------- asking

    async def request(
        self, method: str, params: Any = None, *, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> Raw:
        """Ask, and give the raw result. `timeout` is in seconds without a sign of life, None for as long as it takes.

        Raises RemoteError, RequestTimeout, ConnectionLost; ProtocolError for an answer that cannot be read,
        LocalProtocolError for a method this version lacks, ConfigurationError for an `on_progress` to be awaited.
        """
        return await self.answer(self.begin(method, params, on_progress), timeout)

    def begin(self, method: str, params: Any, on_progress: OnProgress | None) -> ClientRequest:
        """Queue a request, for `answer`. Raises LocalProtocolError, ConfigurationError as `request`."""
        if on_progress is None:
            return self.session.request(method, params)
        if iscoroutinefunction(on_progress):
            raise ConfigurationError("on_progress is a coroutine function: give a plain one, which may start a task")
        request = self.session.request(method, params, wants_progress=True)
        request.on_progress = on_progress
        return request

    async def answer(self, request: ClientRequest, timeout: float | None) -> Raw:
        """The answer to a request that the session has queued already."""
        if self._lost is not None:
            self.session.cancel(request.id, "")
            self.session.data_to_send()
            raise _another(self._lost)

        answer: asyncio.Future[Raw] = self.loop.create_future()
        request.waiter = answer
        request.timeout = timeout
        self.flush()
        is_nested = self._inbox.has_delivered and self._inbox.begin_request()

        try:
            # One timer for all requests sees to the time limits: one for each costs as much as reading an answer.
            if timeout is not None:
                now = self.loop.time()
                request.latest = now + (timeout if timeout > self.longest else self.longest)
                request.deadline = deadline = now + timeout
                if deadline < self._looks_at or self._answering:
                    self._limit(request, now)
            if self._to_carry is not None:
                try:
                    await self._carry(request)
                except TimeoutError:
                    if not answer.done():
                        raise
                    self.session.pending.take(request.id)  # settled by somebody else, while we carried it
            return await answer  # which took the request out of the table
        except TimeoutError:
            self._give_up(request, "timed out")
            raise RequestTimeout(f"The server did not answer {request.method} within {timeout:g} s") from None
        except asyncio.CancelledError:
            self._give_up(request, "no longer needed")
            raise
        except BaseException:
            self.session.pending.take(request.id)
            raise
        finally:
            # An error would keep this frame, by its traceback, and the frame the error; and asyncio would log one that
            # comes now, when nobody waits for it.
            request.waiter = None
            if answer.done() and not answer.cancelled():
                answer.exception()
            del answer
            if is_nested:
                self._inbox.end_request()

    def _limit(self, request: ClientRequest, now: float) -> None:
        # While we work on questions of the server it may be waiting for us: only the longest time counts.
        request.restart(now, is_stopped=bool(self._answering))
        self._look_at(request.deadline)

    def _look_at(self, deadline: float | None) -> None:
        """Look for requests whose time is up, at that time or before."""
        if deadline is None or self._looks_at <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(deadline, self._look)
        self._looks_at = deadline

    def _look(self) -> None:
        self._timer, self._looks_at = None, _NEVER
        now = self.loop.time()
        for request in self.session.pending:
            if request.deadline is not None and request.deadline <= now:
                request.deadline = None
                request.interrupt(now)
        self._look_at(self.session.pending.deadline)

    async def _carry(self, request: ClientRequest) -> None:
        """Send a request over its own connection, and read what comes there."""
        assert self._to_carry is not None
        frame, _, method, heading = self._to_carry
        self._to_carry = None
        request.carrier = asyncio.current_task()
        try:
            async with asyncio.timeout(None) as request.clock:
                await cast("HeadedChannel", self.channel).carry(frame, request.id, method, cast("Heading", heading))
        finally:
            request.carrier = request.clock = None

    def _settle(self, request: ClientRequest, outcome: Raw | McpdError) -> None:
        """Hand over the outcome, and call off who still carries the request."""
        request.settle(outcome)
        carrier = request.carrier
        if carrier is not None and carrier is not asyncio.current_task():
            request.interrupt(self.loop.time())

    def _give_up(self, request: ClientRequest, reason: str) -> None:
        self.session.cancel(request.id, reason)
        self.flush()

    # -------------------------------------------------------------------------------------------- ending

    async def aclose(self) -> None:
        """Give up what waits, stop answering, and close the channel."""
        self.is_closed = True
        pending = list(self.session.pending)
        for request in pending:
            self._give_up(request, "the client is closing")

        if self._timer is not None:
            self._timer.cancel()
        self._lose(ConnectionLost("the client is closed"))
        for request in pending:
            self._settle(request, ConnectionLost(str(self._lost)))

        try:
            if others := self._others():
                await asyncio.wait(others)
        finally:
            if self._closing is None:
                await self.channel.aclose()
            else:
                await self._closing


def _another(lost: McpdError) -> McpdError:
    """The same error once more: each who waits raises one of its own."""
    return type(lost)(str(lost)) if isinstance(lost, (SessionLost, CannotConnect)) else ConnectionLost(str(lost))
