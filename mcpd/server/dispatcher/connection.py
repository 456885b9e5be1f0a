"""The asyncio side of a connection: it runs the handlers, and sends responses, notifications and requests.

A handler is a function (exchange, params) that returns a result or a coroutine. A result is sent at once. A coroutine
becomes a task, see `tasks`. An exception becomes a JSON-RPC error: the exceptions of `errors` keep their code and text,
all others are logged, and the client receives an InternalError with a fixed text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct, field, to_builtins

from mcpd.errors import (
    FrameTooLarge,
    InternalError,
    InvalidRequest,
    LocalProtocolError,
    McpdError,
    MethodNotFound,
    ProtocolError,
    RequestTimeout,
    ResultTooLarge,
    ToolError,
    forget_frames,
)
from mcpd.protocol.budget import CALL, OVER, SMALL, Charge, weigh
from mcpd.protocol.jsonrpc import (
    MALFORMED,
    Batch,
    Failure,
    Id,
    Message,
    Notification,
    Request,
    Response,
    as_json,
    decode_batch,
    decode_other,
    decode_request,
)
from mcpd.protocol.printable import printable
from mcpd.protocol.session import Call, Session, SessionHooks
from mcpd.protocol.types.base import ProgressParams
from mcpd.server.context.exchange import Exchange, Handler
from mcpd.server.context.peer import InputRequired, questions_of
from .tasks import Resumption, start

if TYPE_CHECKING:
    from mcpd.protocol.channel import Channel
    from mcpd.protocol.types.interaction import ListenResult, SubscriptionFilter
    from mcpd.server.context.request_state import RequestStateCodec
    from .heartbeats import Heartbeats
    from .outgoing import OutgoingRequests
    from .subscriptions import Subscriptions

log = logging.getLogger("mcpd")

# After this many bytes of notifications for one call the event loop runs other calls, even if the client keeps up.
_YIELD_BYTES = 64 * 1024

# Handles a notification: (exchange that belongs to no request, params).
NotificationListener: TypeAlias = Callable[[Exchange, Any], Coroutine[Any, Any, None]]


# The cancelled calls of all connections that still run, because their functions ignore it, by their tasks.
_cancelled: WeakKeyDictionary[asyncio.Task[Any], Call] = WeakKeyDictionary()


def cancelled_calls() -> list[Call]:
    """Return the calls of this process that still run although they were cancelled."""
    return [call for task, call in list(_cancelled.items()) if not task.get_loop().is_closed()]


class ServerConnection(Struct, eq=False, weakref=True):
    """One channel, its session, and the calls that run for it. Create it on the event loop's thread.

    It is the `peer` of every exchange. A struct, because one is made for each modern request over HTTP.
    """

    session: Session
    handlers: Mapping[str, Handler]
    channel: Channel
    _get_state_codec: Callable[[], RequestStateCodec] | None = None
    # Handlers of the client's notifications by method, except for notifications of the protocol itself.
    listeners: Mapping[str, NotificationListener] = {}
    # Converts log data to JSON values.
    to_builtins: Callable[[Any], Any] = to_builtins
    # The seconds without progress after which a call gets a heartbeat; 0 for never.
    heartbeat: float = 0
    # The sender of heartbeats; None unless a call with a token waits.
    heartbeats: Heartbeats | None = None
    # The hooks of the session that observe frames.
    frame_hooks: Sequence[SessionHooks] = ()
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _is_ending: bool = False
    # The calls and notifications that wait for something, with their tasks; over HTTP, the tasks of their POSTs.
    _running: dict[Call, asyncio.Task[Any]] = {}
    # Thousands of connections may be idle, or serve a single request: these are created when they are needed.
    # The calls whose responses belong to a batch.
    _batches: dict[Call, _BatchResponse] | None = None
    _on_closed: tuple[Callable[[Any], object], ...] = ()
    _subscriptions: Subscriptions | None = None
    _outgoing: OutgoingRequests | None = None
    _ended: asyncio.Future[McpdError | None] | None = None

    # -- for transports ----------------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """Handle one frame: start what it requests, or send an error response."""
        message: Message | Batch
        try:
            message = decode_request(frame)
        except MALFORMED:
            try:
                message = decode_other(frame)
            except ProtocolError as error:
                self.frame_received(frame, error)
                self.receive_error(error)
                return

        for hooks in self.frame_hooks:
            hooks.frame_received(self, frame, message)
        if isinstance(message, Request):
            if len(frame) > SMALL:
                self._start_large(message, weigh(frame))
            else:
                self._start(message)
        elif isinstance(message, Batch):
            self._receive_batch(message, weigh(frame))
        else:
            self.receive_message(message)

    def receive_error(self, error: ProtocolError) -> None:
        """Respond to a frame that could not be decoded. If it was a response, the request of the server fails."""
        if isinstance(error, FrameTooLarge) and error.is_answer:
            if self._outgoing is not None:
                self._outgoing.fail(error)
            return
        self.send(self.session.refuse(error), error.request_id)

    def closed(self, error: McpdError | None = None) -> None:
        """The client sends nothing more; running calls continue until `finish` or `abort`."""
        if self._outgoing is not None:
            self._outgoing.fail_all()
        if not self.ended.done():
            self.ended.set_result(error)
            for callback in self._on_closed:
                callback(self)

    @property
    def ended(self) -> asyncio.Future[McpdError | None]:
        """Done when the client sends nothing more; the result is the error that ended the connection, or None."""
        if self._ended is None:
            self._ended = self.loop.create_future()
        return self._ended

    def on_closed(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` with the connection, immediately, when the client sends nothing more.

        Unlike `ended`, this needs no future; thousands of connections may be idle.
        """
        self._on_closed = (*self._on_closed, callback)

    # -- observers ---------------------------------------------------------------------------

    def report_life(self) -> None:
        """Call the hooks of the session now, and when the connection has ended."""
        opened = perf_counter()
        for hooks in self.session.hooks:
            hooks.connection_opened()

        def report_end(connection: Any) -> None:
            for hooks in self.session.hooks:
                hooks.connection_closed(self.session, perf_counter() - opened)

        self.on_closed(report_end)

    def frame_received(self, frame: bytes, message: object) -> None:
        """Report a frame to observers, for frames that did not arrive through `receive`."""
        for hooks in self.frame_hooks:
            hooks.frame_received(self, frame, message)

    def frame_sent(self, frame: bytes, related_request_id: Id | None, method: str | None) -> None:
        """Report a frame to observers, for frames that are not sent by `send`."""
        for hooks in self.frame_hooks:
            hooks.frame_sent(frame, related_request_id, method)

    def method_of(self, request_id: object) -> str:
        """Return the method of the server's own request with this id; empty for an unknown id."""
        return "" if self._outgoing is None else self._outgoing.method_of(request_id)

    # -- ending ------------------------------------------------------------------------------

    def end_subscriptions(self) -> None:
        """End all subscriptions with their result."""
        if self._subscriptions is not None:
            self._subscriptions.end_all()

    async def finish(self, grace: float | None) -> None:
        """End subscriptions, let running calls answer for `grace` seconds (None: no limit), then `abort` the others."""
        self._is_ending = True
        self.end_subscriptions()

        if self._running:
            await asyncio.wait(self._running.values(), timeout=grace)
        self.abort()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=1)

    async def close_when_done(self) -> None:
        """Wait until all running work has ended, then end the connection."""
        if self._running:
            await asyncio.wait(self._running.values())
        self.closed()

    def abort(self) -> None:
        """Cancel all running calls. They are answered with errors, unless the client has closed the connection."""
        self._is_ending = True
        if self._ended is not None and self._ended.done():
            # Nobody would read the errors; a closed call sends nothing when its task ends.
            self.session.cancel_all()

        for call in self._running:
            self.loop.call_soon(self._cancel_task, call)

    def _cancel_task(self, call: Call) -> None:
        # Called by the event loop, because a task that is cancelled before its first step never begins: its call would
        # not be answered.
        if call in self._running:
            task = self._running[call]
            _cancelled[task] = call
            task.cancel()

    # -- requests ----------------------------------------------------------------------------

    def _start(self, request: Request, batch: _BatchResponse | None = None, charge: Charge | None = None) -> None:
        session = self.session
        try:
            if self._is_ending:
                raise InternalError("The server is shutting down")
            call = session.receive_request(request, charge)
        except ProtocolError as error:
            frame = session.refuse(error, request.id)
            if batch is None:
                self.send(frame, request.id, request.method)
            else:
                batch.add(frame)
            return

        if batch is not None:
            self._batches = self._batches or {}
            self._batches[call] = batch
        response = self._begin(call)
        if response.__class__ is not CoroutineType:
            self._respond(call, response)  # type: ignore[arg-type]
        elif (task := start(self.loop, response)) is not None:
            self._running[call] = task
            if self.heartbeats is None and call.meta is not None and call.meta.progress_token is not None:
                self._start_heartbeats()

    def _charge(self, size: int) -> Charge | None:
        # Charge the size of a message to the memory budget; None if the budget is used up.
        charge = Charge(id(self.session), self.session.owner)
        return charge if charge.set(size) else None

    def _start_large(self, request: Request, size: int) -> None:
        charge = self._charge(size)
        if charge is None:
            refusal = self.session.refuse(InternalError(OVER), request.id)
            self.send(refusal, request.id, request.method)
        else:
            self._start(request, charge=charge)

    def _start_heartbeats(self) -> None:
        if self.heartbeat:
            from .heartbeats import Heartbeats  # few calls that wait have a token

            self.heartbeats = Heartbeats(self, self.heartbeat)

    async def answer(self, call: Call, on_wait: Callable[[], None] | None = None) -> bytes | None:
        """Run an open call inside the calling task, and return its response; None if the client has cancelled it.

        For transports that have a task per request. `on_wait` is called if the call has to wait for something; most
        calls do not.
        """
        response = self._begin(call, hand_back=True)
        if response.__class__ is not CoroutineType:
            return response  # type: ignore[return-value]

        try:
            # The first step without a task of its own: most calls have no second one.
            waits_for = response.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

        # The call waits: from here on the task can be cancelled as the call's own.
        task: asyncio.Task[Any] | None = asyncio.current_task(self.loop)
        assert task is not None
        self._running[call] = task
        if self.heartbeats is None and call.meta is not None and call.meta.progress_token is not None:
            self._start_heartbeats()
        if on_wait is not None:
            on_wait()
            on_wait = None  # the call may last for hours
        return await Resumption(response, waits_for)  # type: ignore[no-any-return]

    def cancel(self, call: Call) -> None:
        """Cancel a call because its client has cancelled it or has left. No response is sent."""
        if call.is_open and self.session.cancel(call.id) is not None:
            self._stop(call, None)

    def fail(self, call: Call, error: ProtocolError) -> bytes | None:
        """Cancel a call whose client still waits, and return the error response.

        Returns None if the response belongs to a batch, or the call was answered before.
        """
        response = self.session.fail(call, error)
        return None if response is None or self._stop(call, response) else response

    def _stop(self, call: Call, response: bytes | None) -> bool:
        # Cancel the task of a closed call. Returns whether the response was added to a batch.
        if call in self._running:
            self.loop.call_soon(self._cancel_task, call)
        batch = self._batches.pop(call, None) if self._batches else None
        if batch is None:
            return False

        # Now, and only once: the other responses of the batch do not wait for the task to end.
        batch.add(response)
        return True

    def _begin(self, call: Call, *, hand_back: bool = False) -> Coroutine[Any, Any, bytes | None] | bytes | None:
        # Most handlers do not wait, so most responses need no coroutine.
        session = self.session
        try:
            if _cancelled and self._has_spent():
                raise InvalidRequest("Too many of your requests still run although they were cancelled; retry later")
            handler = self.handlers.get(call.method)
            if handler is None:
                raise MethodNotFound(f"Method not found: {call.method}")

            exchange = Exchange(call, self)
            if getattr(call.params, "request_state", None) is not None:
                exchange.asking  # noqa: B018  # a state that was tampered with is refused before anything runs (S26-086)

            result = handler(exchange, call.params)
            if result.__class__ is CoroutineType:
                return self._finish(call, exchange, result, hand_back)
            return session.respond(call, result)
        except (Exception, SystemExit) as error:
            return _fail_call(call, error)

    def _has_spent(self) -> bool:
        # Whether as many cancelled calls of this client still run as may be open.
        most, client = self.session.max_in_flight, self.session.responsible
        return len(_cancelled) >= most and sum(each.session.responsible == client for each in cancelled_calls()) >= most

    async def _finish(
        self, call: Call, exchange: Exchange, work: Coroutine[Any, Any, Any], hand_back: bool
    ) -> bytes | None:
        session = self.session
        response: bytes | None
        try:
            response = session.respond(call, await work)
        except asyncio.CancelledError:
            # If the client cancelled, the call is closed and `fail` returns None. If the server did, it gets an error.
            is_ours = self._is_ending or not call.is_open
            reason = "The server is shutting down" if self._is_ending else "The work was cancelled inside the server"
            response = session.fail(call, InternalError(reason))
            task = self._running.get(call) if hand_back else None
            if task is not None and task.cancelling():
                # The task is the transport's. We cancel only the call in it; if anyone else did, the task must end.
                if not is_ours:
                    raise
                task.uncancel()
        except InputRequired as needed:
            response = self._ask_again(call, exchange, needed)
        except Exception as error:
            response = _fail_call(call, error)
        except BaseExceptionGroup as group:  # of a task group that asked several questions
            response = self._ask_again(call, exchange, group)
        except BaseException as error:  # whatever it is, it ends its call, not the server
            if not self.loop.is_running():
                raise  # the coroutine is dropped unfinished, after its loop has ended
            response = _fail_call(call, error)
        finally:
            ended = self._running.pop(call, None)
            if _cancelled and ended is not None:
                _cancelled.pop(ended, None)
            exchange.has_ended = True
            if exchange.pending is not None:
                exchange.end()

        if hand_back:
            return response
        self._respond(call, response)
        return None

    def _ask_again(
        self, call: Call, exchange: Exchange, needed: InputRequired | BaseExceptionGroup[BaseException]
    ) -> bytes | None:
        # Return the response that asks the client to send the request again with answers.
        questions = questions_of(needed)
        if isinstance(questions, BaseException):
            response = _fail_call(call, questions)
        else:
            try:
                response = self.session.respond(call, exchange.asking.required(questions))
            except BaseException as error:
                response = _fail_call(call, error)

        forget_frames(needed)
        return response

    def _respond(self, call: Call, response: bytes | None) -> None:
        if self._batches and (batch := self._batches.pop(call, None)) is not None:
            batch.add(response)
        elif response is not None:
            for hooks in self.frame_hooks:
                hooks.frame_sent(response, call.id, call.method)
            send = self.channel.send_separately if call.bytes_sent else self.channel.send
            send(response, call.id, call.method)

    # -- notifications of the client, and batches --------------------------------------------

    def receive_message(self, message: Message) -> bool:
        """Handle a decoded message that is not a request. Returns False if the memory budget does not allow it."""
        if isinstance(message, Notification):
            params = self.session.receive_notification(message)
            if params is None:
                return True

            if message.method == "notifications/cancelled":
                # The call may have been answered already: the two messages have crossed.
                call = self.session.cancel(params.request_id)
                if call is not None:
                    self._stop(call, None)
            else:
                return self._run_listener(message, params)
        elif isinstance(message, (Response, Failure)) and self._outgoing is not None:
            self._outgoing.receive(message)
        return True

    def _run_listener(self, message: Notification, params: Any) -> bool:
        # Run the listener of a notification. Returns False if too many calls and listeners run already.
        version = self.session.version
        listener = self.listeners.get(message.method)
        if version is None or listener is None:
            return True

        no_id: Any = None  # the listener's questions belong to no request
        call = Call(no_id, message.method, self.session, message.params, version, params, params.meta)
        try:
            if len(self._running) >= 2 * self.session.max_in_flight:
                raise InternalError("the connection has reached its limit of running calls and notifications")
            call.hold(CALL + weigh(bytes(message.params)))
        except InternalError as error:
            log.warning("Dropped %s: %s", printable(message.method), printable(error))
            return False

        task = start(self.loop, listener(Exchange(call, self), params))
        if task is not None:
            self._running[call] = task
            task.add_done_callback(lambda task: (self._running.pop(call), _cancelled.pop(task, None)))
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
        # Send the response to a batch. `charge` is held until all parts of it are there.
        if frame is not None:
            self.send(frame, is_separate=True)

    def check_batches(self) -> None:
        """Raise InvalidRequest unless the version of the connection is 2025-03-26, the only one with batches."""
        version = self.session.version
        if version is None or not version.has_batches:
            raise InvalidRequest("JSON-RPC batches exist in protocol version 2025-03-26 only")

    def receive_batch(self, parts: list[Message | ProtocolError], done: Callable[[bytes | None], object]) -> None:
        """Start all requests of a batch. `done` is called with the response, or None if there is nothing to answer.

        Spec: 2025-03-26 basic/index, batching: an array in, an array out, nothing for notifications alone.
        """
        response = _BatchResponse(done, len(parts), self.session)
        for part in parts:
            if isinstance(part, Request) and part.method == "initialize":
                error = InvalidRequest("initialize cannot be part of a batch")
                error.request_id = part.id
                part = error
            if isinstance(part, ProtocolError):
                response.add(self.session.refuse(part))
            elif isinstance(part, Request):
                self._start(part, response)
            else:
                self.receive_message(part)
                response.add(None)

    # -- messages to the client --------------------------------------------------------------

    def send(
        self,
        frame: bytes,
        related_request_id: Id | None = None,
        method: str | None = None,
        *,
        is_separate: bool = False,
    ) -> None:
        """Send an encoded message, see `Channel.send`; with `is_separate` by `Channel.send_separately`."""
        for hooks in self.frame_hooks:
            hooks.frame_sent(frame, related_request_id, method)
        if is_separate:
            self.channel.send_separately(frame, related_request_id, method)
        else:
            self.channel.send(frame, related_request_id, method)

    def notify_nowait(
        self, method: str, params: Any, related_request: Call | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """Send a notification. Returns a coroutine that the caller must await before it sends more; usually None.

        The coroutine waits while the client does not read, and lets other calls run if one call sends much.
        """
        if related_request is not None and related_request.beat is not None and params.__class__ is ProgressParams:
            from .heartbeats import rise

            rise(params, related_request)
        frame = self.session.notify(method, params, related_request)
        if frame is None:
            return None

        related_request_id = None if related_request is None else related_request.id
        for hooks in self.frame_hooks:
            hooks.frame_sent(frame, related_request_id, method)
        self.channel.send(frame, related_request_id, method)
        if related_request is None:
            return self._pause(None)

        meta = related_request.meta
        if params.__class__ is ProgressParams and meta is not None and meta.progress_token == params.progress_token:
            related_request.report, related_request.reported = params, perf_counter()
        related_request.bytes_sent += len(frame)
        needs_pause = related_request.bytes_sent > _YIELD_BYTES or self.channel.is_congested
        return self._pause(related_request) if needs_pause else None

    async def _pause(self, related_request: Call | None) -> None:
        if self.channel.is_congested:
            await self.channel.drain()
        else:
            await asyncio.sleep(0)

        if related_request is not None:
            related_request.bytes_sent = 1  # not 0: the response is still sent apart from its notifications

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        """Send a notification, and wait while the client does not read."""
        pause = self.notify_nowait(method, params, related_request)
        if pause is not None:
            await pause

    def as_json(self, data: Any) -> Any:
        """Convert any object to JSON values; the fallback is its `repr`. Never raises."""
        return as_json(data, self.to_builtins)

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        """Send a request to the client as part of `related_request`, and return the raw result.

        `timeout` is in seconds, None for no limit. Raises RemoteError for an error response, RequestTimeout, and
        ConnectionLost.
        """
        if self._outgoing is None:
            from .outgoing import OutgoingRequests  # few servers send requests, and this costs start-up

            self._outgoing = OutgoingRequests(self.session, self.send, getattr(self.channel, "request_prefix", ""))
        return await self._outgoing.request(method, params, related_request, timeout)

    @property
    def subscriptions(self) -> Subscriptions:
        """The change notifications that this client has subscribed to."""
        if self._subscriptions is None:
            from .subscriptions import Subscriptions  # many clients never receive a change notification

            self._subscriptions = Subscriptions(self.session, self.channel, self.send)
        return self._subscriptions

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Keep a subscription open until the client cancels it or the server ends it."""
        return self.subscriptions.listen(call, wanted)

    @property
    def state_codec(self) -> RequestStateCodec:
        """The codec that seals the states of multi round-trip requests. Raises LocalProtocolError on a server without
        one.
        """
        if self._get_state_codec is None:
            raise LocalProtocolError("this connection has no key to seal states with")
        return self._get_state_codec()


class _BatchResponse:
    # Collects the responses of one batch into one array, up to the size that a message may have.
    # Spec: 2025-03-26 basic/index, batching.
    def __init__(self, done: Callable[[bytes | None], object], size: int, session: Session) -> None:
        self._done = done
        self._missing = size
        self._session = session
        self._responses: list[bytes] = []
        self._bytes = 2

    def add(self, response: bytes | None) -> None:
        if response is not None:
            self._bytes += len(response) + 1
            if self._bytes > self._session.max_frame_bytes:
                # Replace the response that is too large by an error: the others still arrive.
                size, self._bytes = self._bytes, self._bytes - len(response)
                response = self._session.replace(response, ResultTooLarge(size, self._session.max_frame_bytes))
                self._bytes += len(response)
            self._responses.append(response)

        self._missing -= 1
        if self._missing == 0:
            self._done(b"[" + b",".join(self._responses) + b"]" if self._responses else None)


def _fail_call(call: Call, error: BaseException) -> bytes | None:
    # Close a call that ended with an exception. Returns the error response, None if the call was cancelled.
    try:
        return call.session.fail(call, error_of(error, call))
    except Exception as not_encodable:
        # The text or data of the error is not valid JSON, but the client still waits for a response.
        log.error(
            "%s (id %s) failed with an error that cannot be sent",
            call.method,
            printable(call.id),
            exc_info=not_encodable,
        )
        return call.session.fail(call, InternalError())
    finally:
        forget_frames(error)


def error_of(error: BaseException, call: Call) -> ProtocolError:
    """Return the error to send for a call that ended with an exception."""
    if isinstance(error, ResultTooLarge):
        log.warning("%s (id %s): %s", call.method, printable(call.id), printable(error.message))
    if isinstance(error, ProtocolError):
        return error if call.version.has_error(type(error)) else error.without_code()
    if isinstance(error, (RequestTimeout, ToolError)):
        # Only results of tools/call have `isError`. The text of a ToolError is meant for the client anyway.
        return InternalError(str(error))

    log.error("%s (id %s) failed", call.method, printable(call.id), exc_info=error)
    return InternalError()
