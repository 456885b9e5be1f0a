"""The asyncio side of a connection: it runs the handlers, a task for each request that waits.

A handler is a function (exchange, params) -> result or coroutine. What it gives at once is answered at
once; a coroutine becomes a task, see `tasks`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias
from warnings import catch_warnings, simplefilter

from msgspec import to_builtins

from mcpd.context.exchange import Exchange
from mcpd.context.input_required import InputRequired, questions_of
from mcpd.dispatcher.client_peer import ClientPeer
from mcpd.dispatcher.tasks import EagerTaskRunner, Resumption
from mcpd.dispatcher.wire_errors import fail_call
from mcpd.errors import (
    FrameTooLarge,
    InternalError,
    InvalidRequest,
    McpdError,
    MethodNotFound,
    ProtocolError,
    forget_frames,
)
from mcpd.protocol.budget import CALL, OVER, SMALL, Charge, weigh
from mcpd.protocol.jsonrpc import (
    MALFORMED,
    Batch,
    Failure,
    Message,
    Notification,
    Request,
    Response,
    decode_batch,
    decode_other,
    decode_request,
    replace_lone_surrogates,
)
from mcpd.protocol.printable import printable
from mcpd.protocol.session import Call, Session

if TYPE_CHECKING:
    from mcpd.context.request_state import RequestStateCodec
    from mcpd.dispatcher.batch_reply import BatchReply
    from mcpd.protocol.channel import Channel

log = logging.getLogger("mcpd")

# What is raised for a lone surrogate, or a subclass of str, in a result; `replace_lone_surrogates` leaves neither.
_UNWRITABLE = (UnicodeEncodeError, TypeError)

Handler: TypeAlias = Callable[[Exchange, Any], Any]

NotificationListener: TypeAlias = Callable[[Exchange, Any], Coroutine[Any, Any, None]]
"""(exchange that belongs to no request, params) -> what is done about a notification."""

_NO_LISTENERS: Mapping[str, NotificationListener] = {}


class ServerConnection(ClientPeer):
    """One channel, its session, and the calls that run for it. Make it on the event loop's thread."""

    __slots__ = ("_batches", "_is_ending", "_runner", "_running", "_tasks", "handlers", "listeners")

    def __init__(
        self,
        session: Session,
        handlers: Mapping[str, Handler],
        channel: Channel,
        get_state_codec: Callable[[], RequestStateCodec] | None = None,
        listeners: Mapping[str, NotificationListener] = _NO_LISTENERS,
        to_builtins: Callable[[Any], Any] = to_builtins,
    ) -> None:
        self.session = session
        self.handlers = handlers
        self.channel = channel
        self.loop = asyncio.get_running_loop()
        self.listeners = listeners
        """What hears the client's notifications that are not the protocol's own business, by method."""
        self.to_builtins = to_builtins
        self._get_state_codec = get_state_codec
        self._is_ending = False
        # Thousands of connections may wait, or be for one request, and need none of these: made when first asked for.
        self._tasks: set[asyncio.Task[Any]] | None = None
        """Those of calls and of what listens to notifications, until they are done."""
        self._running: dict[Call, asyncio.Task[Any]] | None = None
        """The calls that wait, each with the task in which it does; one of HTTP's has that of its POST."""
        self._batches: dict[Call, BatchReply] | None = None
        """The calls whose answers are part of a batch's, until they are given."""
        self._on_closed = ()
        self._subscriptions = self._outgoing = self._ended = None
        self._runner: EagerTaskRunner | None = None

    # -- what the transport calls ------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """Take one frame: start what it asks for, refuse what is wrong with it."""
        message: Message | Batch
        try:
            message = decode_request(frame)
        except MALFORMED:
            try:
                message = decode_other(frame)
            except ProtocolError as error:
                self.receive_error(error)
                return

        self._receive_decoded(message, frame)

    def _receive_decoded(self, message: Message | Batch, frame: bytes) -> None:
        if isinstance(message, Request):
            if len(frame) > SMALL:
                self._start_large(message, weigh(frame))
            else:
                self._start(message)
        elif isinstance(message, Batch):
            self._receive_batch(message, weigh(frame))
        else:
            self._receive_other(message)

    def receive_message(self, message: Message) -> bool:
        """Take one decoded message that is no request; False if the memory budget is used up."""
        return self._receive_other(message)

    def receive_error(self, error: ProtocolError) -> None:
        """Answer what could not be read; if it was an answer to a request of ours, that request fails."""
        if isinstance(error, FrameTooLarge) and error.is_answer:
            if self._outgoing is not None:
                self._outgoing.fail(error)
            return
        self.channel.send(self.session.refuse(error), error.request_id)

    def closed(self, error: McpdError | None = None) -> None:
        """The peer will send no more; calls in flight go on until `finish` or `abort`."""
        if self._outgoing is not None:
            self._outgoing.fail_all()
        if not self.ended.done():
            self.ended.set_result(error)
            for call in self._on_closed:
                call(self)

    # -- ending ------------------------------------------------------------------------------

    def end_subscriptions(self) -> None:
        """End all that listens, gracefully."""
        if self._subscriptions is not None:
            self._subscriptions.end_all()

    async def finish(self, grace: float | None) -> None:
        """End subscriptions, let calls answer for `grace` seconds (None: as long as they take), `abort` the rest."""
        self._is_ending = True
        self.end_subscriptions()

        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        self.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    async def settle(self) -> None:
        """Wait for all that runs to end by itself, then end the connection."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.closed()

    def abort(self) -> None:
        """Cancel all running calls now. They are answered with errors, unless the peer has closed the connection."""
        self._is_ending = True
        if self._ended is not None and self._ended.done():
            # Nobody would read the errors; a call that is closed says nothing when its task ends.
            self.session.cancel_all()

        for task in self._tasks or ():
            task.cancel()

    # -- requests ----------------------------------------------------------------------------

    def _start(self, request: Request, batch: BatchReply | None = None, charge: Charge | None = None) -> None:
        session = self.session
        try:
            if self._is_ending:
                raise InternalError("The server is shutting down")
            call = session.receive_request(request, charge)
        except ProtocolError as error:
            frame = session.refuse(error, request.id)
            if batch is None:
                self.channel.send(frame, request.id, request.method)
            else:
                batch.add(frame)
            return

        if batch is not None:
            self._batches = self._batches or {}
            self._batches[call] = batch
        self._run(call)

    def _run(self, call: Call) -> None:
        """Work on an open call till it is answered or waits."""
        answer = self._begin(call)
        if answer.__class__ is not CoroutineType:
            self._send(call, answer)  # type: ignore[arg-type]
        elif (task := (self._runner or self._make_runner()).start(answer)) is not None:
            self._running[call] = task  # type: ignore[index]  # made with the runner; most calls do not wait
            call.began = call.began or perf_counter()

    def _charge(self, size: int) -> Charge | None:
        """The memory that a message takes, charged to the budget; None if the budget is used up."""
        return charge if (charge := Charge(id(self.session), self.session.owner)).set(size) else None

    def _start_large(self, request: Request, size: int) -> None:
        charge = self._charge(size)
        if charge is None:
            refusal = self.session.refuse(InternalError(OVER), request.id)
            self.channel.send(refusal, request.id, request.method)
        else:
            self._start(request, charge=charge)

    def _make_runner(self) -> EagerTaskRunner:
        self._runner = EagerTaskRunner(self.loop, self._make_tables()[0])
        return self._runner

    def _make_tables(self) -> tuple[set[asyncio.Task[Any]], dict[Call, asyncio.Task[Any]]]:
        if self._tasks is None or self._running is None:
            self._tasks, self._running = set(), {}
        return self._tasks, self._running

    async def answer(self, call: Call, waits: Callable[[], None] | None = None) -> bytes | None:
        """Run an opened call inside the calling task and give its answer; None if the client gave it up meanwhile.

        For transports that have a task for it. `waits` is called if it is not done with its first step, as most is.
        """
        answer = self._begin(call, hand_back=True)
        if answer.__class__ is not CoroutineType:
            return answer  # type: ignore[return-value]

        try:
            # The first step without a task of its own: most calls have no second one.
            waits_for = answer.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

        # It waits: from here on the task can be cancelled as the call's own.
        task: asyncio.Task[Any] | None = asyncio.current_task(self.loop)
        assert task is not None
        tasks, running = self._make_tables()
        running[call] = task
        tasks.add(task)
        call.began = call.began or perf_counter()
        if waits is not None:
            waits()
            waits = None  # it may be for hours
        try:
            return await Resumption(answer, waits_for)  # type: ignore[no-any-return]
        finally:
            tasks.discard(task)

    def cancel(self, call: Call) -> None:
        """The client gave a call up, by a notification or by leaving: stop the work, and never answer it."""
        if call.is_open and self.session.cancel(call.id) is not None:
            self._stop(call, None)

    def stop(self, call: Call, error: ProtocolError) -> bytes | None:
        """Stop the work of a call that its client still waits for: gives the answer, None if that is part of a batch's.

        Nothing more is sent for it. None too for what was answered before.
        """
        answer = self.session.fail(call, error)
        return None if answer is None or self._stop(call, answer) else answer

    def _stop(self, call: Call, answer: bytes | None) -> bool:
        """End the work of a call that is closed; whether `answer` went into its batch."""
        task = self._running.get(call) if self._running else None
        if task is not None:
            task.cancel()
        batch = self._batches.pop(call, None) if self._batches else None
        if batch is None:
            return False

        # At once, and only once: the other answers of the batch do not wait until the work has stopped.
        batch.add(answer)
        return True

    def _begin(self, call: Call, *, hand_back: bool = False) -> Coroutine[Any, Any, bytes | None] | bytes | None:
        """Run a call's handler: gives the answer, or if the handler has to be awaited what remains to be done."""
        session = self.session
        try:
            handler = self.handlers.get(call.method)
            if handler is None:
                raise MethodNotFound(f"Method not found: {call.method}")

            exchange = Exchange(call, self)
            if getattr(call.params, "request_state", None) is not None:
                exchange.asking  # noqa: B018  # a state that was tampered with is refused before anything runs (S26-086)

            result = handler(exchange, call.params)
            if result.__class__ is CoroutineType:
                return self._finish(call, exchange, result, hand_back)
            try:
                # Most results can be written; to look through each of them before would cost every call.
                return session.respond(call, result)
            except _UNWRITABLE:
                return session.respond(call, replace_lone_surrogates(result))
        except (Exception, SystemExit) as error:
            return fail_call(call, error)

    async def _finish(
        self, call: Call, exchange: Exchange, work: Coroutine[Any, Any, Any], hand_back: bool
    ) -> bytes | None:
        session = self.session
        answer: bytes | None
        if session.in_flight.by_id.get(call.id) is not call:
            # Cancelled before its first step: the handler is not started. Python would warn of a coroutine that
            # another one, such as a trace's, was to await.
            with catch_warnings():
                simplefilter("ignore", RuntimeWarning)
                work.close()
            if self._running:
                self._running.pop(call, None)
            return None

        try:
            result = await work
            try:
                answer = session.respond(call, result)
            except _UNWRITABLE:
                answer = session.respond(call, replace_lone_surrogates(result))
        except asyncio.CancelledError:
            # If the peer cancelled, the call is closed and `fail` gives None. If we did, the peer gets an error.
            is_ours = self._is_ending or not call.is_open
            reason = "The server is shutting down" if self._is_ending else "The work was cancelled inside the server"
            answer = session.fail(call, InternalError(reason))
            task = self._running.get(call) if hand_back and self._running else None
            if task is not None and task.cancelling():
                # The task is the transport's. What we cancelled is the call in it; if anyone else did, it has to end.
                if not is_ours:
                    raise
                task.uncancel()
        except InputRequired as needed:
            answer = self._ask_again(call, exchange, needed)
        except Exception as error:
            answer = fail_call(call, error)
        except BaseExceptionGroup as group:  # of a task group in which several things were asked
            answer = self._ask_again(call, exchange, group)
        except BaseException as error:  # whatever it is, it ends its call, not the server
            if not self.loop.is_running():
                raise  # the coroutine is thrown away unfinished, after its loop
            answer = fail_call(call, error)
        finally:
            if self._running:
                self._running.pop(call, None)
            if exchange.pending is None:
                exchange.has_ended = True  # what `end` would do: most calls have nothing to give up
            else:
                exchange.end()

        if hand_back:
            return answer
        if not self._batches and answer is not None and not call.told:  # most calls: sent without a call more
            self.channel.send(answer, call.id, call.method)
        else:
            self._send(call, answer)
        return None

    def _ask_again(
        self, call: Call, exchange: Exchange, needed: InputRequired | BaseExceptionGroup[BaseException]
    ) -> bytes | None:
        """The answer to a call that has to come back with what it asks for."""
        questions = questions_of(needed)
        if isinstance(questions, BaseException):
            answer = fail_call(call, questions)
        else:
            try:
                answer = self.session.respond(call, exchange.asking.required(questions))
            except BaseException as error:
                answer = fail_call(call, error)

        forget_frames(needed)
        return answer

    def _send(self, call: Call, answer: bytes | None) -> None:
        if self._batches and (batch := self._batches.pop(call, None)) is not None:
            batch.add(answer)
        elif answer is None:
            pass
        elif call.told:
            self.channel.send_apart(answer, call.id, call.method)
        else:
            self.channel.send(answer, call.id, call.method)

    # -- the rest ----------------------------------------------------------------------------

    def _receive_other(self, message: Message) -> bool:
        if isinstance(message, Notification):
            params = self.session.receive_notification(message)
            if params is None:
                return True

            if message.method == "notifications/cancelled":
                # One for a call that was answered meanwhile is no fault: the two have crossed.
                call = self.session.cancel(params.request_id)
                if call is not None:
                    self._stop(call, None)
            else:
                return self._run_listener(message, params)
        elif isinstance(message, (Response, Failure)) and self._outgoing is not None:
            self._outgoing.receive(message)
        return True

    def _run_listener(self, message: Notification, params: Any) -> bool:
        """Run what listens to a notification, with an exchange that belongs to no request; False if too much runs."""
        version = self.session.version
        listener = self.listeners.get(message.method)
        if version is None or listener is None:
            return True

        nobody: Any = None  # what it asks is no part of any request
        call = Call(nobody, message.method, self.session, message.params, version, params, params.meta)
        try:
            if len(self._tasks or ()) >= 2 * self.session.max_in_flight:
                raise InternalError("as many calls and notifications are worked on as one connection may have")
            call.hold(CALL + weigh(bytes(message.params)))
        except InternalError as error:
            log.warning("Dropped %s: %s", printable(message.method), printable(error))
            return False

        (self._runner or self._make_runner()).start(listener(Exchange(call, self), params))
        return True

    def _receive_batch(self, batch: Batch, size: int) -> None:
        try:
            self.check_batches()
        except ProtocolError as error:
            self.receive_error(error)
            return

        charge = self._charge(size)
        if charge is None:
            self.receive_error(InternalError(OVER))
            return
        self.receive_batch(decode_batch(batch), partial(self._send_batch, charge))

    def _send_batch(self, charge: Charge, frame: bytes | None) -> None:
        """Send the answers to a batch; its charge lasts as long as they are gathered."""
        if frame is not None:
            self.channel.send_apart(frame)

    def check_batches(self) -> None:
        """Raise InvalidRequest where a frame is one message: batches came and went with 2025-03-26."""
        version = self.session.version
        if version is None or not version.has_batches:
            raise InvalidRequest("JSON-RPC batches exist in protocol version 2025-03-26 only")

    def receive_batch(self, parts: list[Message | ProtocolError], done: Callable[[bytes | None], object]) -> None:
        """Start all that a batch asks for; `done` gets the answers as one frame, or None if nothing is to be answered.

        Spec: 2025-03-26 basic/index, batching: an array in, an array out, nothing for notifications alone.
        """
        from mcpd.dispatcher.batch_reply import BatchReply  # of one old version

        reply = BatchReply(done, len(parts), self.session)
        for part in parts:
            if isinstance(part, Request) and part.method == "initialize":
                error = InvalidRequest("initialize cannot be part of a batch")
                error.request_id = part.id
                part = error
            if isinstance(part, ProtocolError):
                reply.add(self.session.refuse(part))
            elif isinstance(part, Request):
                self._start(part, reply)
            else:
                self._receive_other(part)
                reply.add(None)
