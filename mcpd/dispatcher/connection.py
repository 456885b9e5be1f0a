"""The asyncio side of a connection: one task per request that waits, and the only except-to-wire.

A handler is a function (context, params) -> result or coroutine. What it gives at once is answered at
once; a coroutine becomes a task whose first step runs immediately, so that a tool that never waits
costs no turn of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Raw, to_builtins

from ..channel import Channel
from ..context.core import Context, InputNeeded, needed_by
from ..errors import (
    InternalError,
    InvalidRequest,
    LocalProtocolError,
    McpdError,
    MethodNotFound,
    ProtocolError,
    RequestTimeout,
    ToolError,
)
from ..jsonrpc import Batch, Failure, Message, Notification, Request, Response, decode, decode_batch, encode, mended
from ..session import Call, Session
from ..types.rounds import ListenResult, SubscriptionFilter
from .outgoing import Outgoing
from .subscriptions import Subscriptions
from .tasks import Rest, Starter

if TYPE_CHECKING:
    from ..context.seal import Sealer

__all__ = ["Connection", "Handler"]

log = logging.getLogger("mcpd")

# What is raised for half a surrogate pair, or a subclass of str, in a result; `mended` is without them.
_UNWRITABLE = (UnicodeEncodeError, TypeError)

Handler: TypeAlias = Callable[[Context, Any], Any]


class Connection:
    """One channel, its session, and the calls that run for it. Make it on the event loop's thread."""

    __slots__ = ("_ended", "_get_sealer", "_is_ending", "_outgoing", "_starter", "_subscriptions", "_tasks", "channel",
                 "handlers", "loop", "on_roots_changed", "session", "to_builtins")  # fmt: skip

    def __init__(
        self,
        session: Session,
        handlers: Mapping[str, Handler],
        channel: Channel,
        get_sealer: Callable[[], Sealer] | None = None,
    ) -> None:
        self.session = session
        self.handlers = handlers
        self.channel = channel
        self.loop = asyncio.get_running_loop()
        self.on_roots_changed: Callable[[Context], Coroutine[Any, Any, None]] | None = None
        """Run when a legacy client says that its roots changed, with a context that belongs to no request."""
        self.to_builtins: Callable[[Any], Any] = to_builtins
        """Makes JSON values of what is logged; the server's own knows more types."""
        self._get_sealer = get_sealer
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_ending = False
        # Over HTTP a connection may be for one request, which needs none of these: made when first asked for.
        self._subscriptions: Subscriptions | None = None
        self._outgoing: Outgoing | None = None
        self._ended: asyncio.Future[McpdError | None] | None = None
        self._starter: Starter | None = None

    @property
    def subscriptions(self) -> Subscriptions:
        """What this client wants to hear of unasked."""
        if self._subscriptions is None:
            self._subscriptions = Subscriptions(self.session, self.channel)
        return self._subscriptions

    @property
    def ended(self) -> asyncio.Future[McpdError | None]:
        """Done when the peer will send no more; its result is the error that ended it, or None."""
        if self._ended is None:
            self._ended = self.loop.create_future()
        return self._ended

    # -- what the transport calls ------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """Take one frame: start what it asks for, refuse what is wrong with it."""
        try:
            message = decode(frame)
        except ProtocolError as error:
            self.receive_error(error)
            return
        if message.__class__ is Request:
            self._start(message)
        elif isinstance(message, Batch):
            self._receive_batch(message)
        else:
            self._receive_other(message)

    def receive_error(self, error: ProtocolError) -> None:
        """Answer what could not be understood."""
        self.channel.send(self.session.refuse(error))

    def closed(self, error: McpdError | None = None) -> None:
        """The peer will send no more; calls in flight go on until `finish` or `abort`."""
        if self._outgoing is not None:
            self._outgoing.fail_all()
        if self._starter is not None:
            self._starter.close()
        if not self.ended.done():
            self.ended.set_result(error)

    # -- ending ------------------------------------------------------------------------------

    async def finish(self, grace: float) -> None:
        """Let running calls answer for up to `grace` seconds, then stop the rest as `abort` does.

        Subscriptions end at once, gracefully.
        """
        self._is_ending = True
        if self._subscriptions is not None:
            self._subscriptions.end_all()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        self.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    def abort(self) -> None:
        """Cancel all running calls now. A peer that is there hears of it; one that has hung up reads no answer."""
        self._is_ending = True
        if self._ended is not None and self._ended.done():
            for call in list(self.session.in_flight.values()):
                self.session.cancel(call.id)
        for task in self._tasks:
            task.cancel()

    # -- requests ----------------------------------------------------------------------------

    def _start(self, request: Request, batch: _BatchReply | None = None) -> None:
        session = self.session
        try:
            if self._is_ending:
                raise InternalError("The server is shutting down")
            call = session.receive_request(request)
        except ProtocolError as error:
            frame = session.refuse(error, request.id)
            if batch is None:
                self.channel.send(frame, request.id)
            else:
                batch.add(frame)
            return
        call.batch = batch
        answer = self._begin(call)
        if answer.__class__ is CoroutineType:
            call.task = self._run(answer)
        else:
            self._send(call, answer)  # type: ignore[arg-type]

    def _run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any] | None:
        if self._starter is None:
            self._starter = Starter(self.loop, self._tasks)
        return self._starter.start(work)

    async def answer(self, call: Call, waits: Callable[[], None] | None = None) -> bytes | None:
        """Run an opened call inside the calling task and give its answer; None if the client gave it up meanwhile.

        For transports with a task for each request already: a second one would only cost. `waits` is called
        if the work is not done with its first step, as most is.
        """
        answer = self._begin(call, hand_back=True)
        if answer.__class__ is not CoroutineType:
            return answer  # type: ignore[return-value]
        try:
            waits_for = answer.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        task: asyncio.Task[Any] | None = asyncio.current_task(self.loop)
        assert task is not None
        call.task = task
        self._tasks.add(task)
        if waits is not None:
            waits()
        try:
            return await Rest(answer, waits_for)  # type: ignore[no-any-return]
        finally:
            self._tasks.discard(task)

    def cancel(self, call: Call) -> None:
        """The client gave a call up, by a notification or by leaving: stop the work, and never answer it."""
        if self.session.cancel(call.id) is None:
            return
        if call.task is not None:
            call.task.cancel()
        if call.batch is not None:
            # Its place is given up now, and only once: the work may take its time to stop.
            batch, call.batch = call.batch, None
            batch.add(None)

    def _begin(self, call: Call, *, hand_back: bool = False) -> Coroutine[Any, Any, bytes | None] | bytes | None:
        """Run a call's handler: gives the answer, or if the handler has to be awaited what remains to be done."""
        session = self.session
        try:
            handler = self.handlers.get(call.method)
            if handler is None:
                raise MethodNotFound(f"Method not found: {call.method}")
            context = Context(call, self)
            if getattr(call.params, "request_state", None) is not None:
                context.rounds  # noqa: B018  # a state that was tampered with is refused before anything runs (S26-086)
            result = handler(context, call.params)
            if result.__class__ is CoroutineType:
                return self._finish(call, context, result, hand_back)
            try:
                return session.respond(call, result)
            except _UNWRITABLE:
                return session.respond(call, mended(result))
        except (Exception, SystemExit) as error:
            return self._fail(call, error)

    async def _finish(
        self, call: Call, context: Context, work: Coroutine[Any, Any, Any], hand_back: bool
    ) -> bytes | None:
        session = self.session
        answer: bytes | None
        if not call.is_open:
            # Given up before its first step: what nobody waits for is not begun.
            work.close()
            return None
        try:
            result = await work
            try:
                answer = session.respond(call, result)
            except _UNWRITABLE:
                answer = session.respond(call, mended(result))
        except asyncio.CancelledError:
            # Cancelled by the peer: the call is closed and this gives None. By us: the peer is told.
            is_ours = self._is_ending or not call.is_open
            reason = "The server is shutting down" if self._is_ending else "The work was cancelled inside the server"
            answer = session.fail(call, InternalError(reason))
            if hand_back and call.task is not None and call.task.cancelling():
                # The task is the transport's. What we cancelled is the call in it; if anyone else did, it has to end.
                if not is_ours:
                    raise
                call.task.uncancel()
        except InputNeeded as needed:
            answer = self._ask_again(call, context, needed)
        except Exception as error:
            answer = self._fail(call, error)
        except BaseExceptionGroup as group:  # of a task group in which several things were asked
            answer = self._ask_again(call, context, group)
        except BaseException as error:  # whatever it is, it ends its call, not the server
            if not self.loop.is_running():
                raise  # the coroutine is thrown away unfinished, after its loop
            answer = self._fail(call, error)
        finally:
            context.end()
        if not hand_back:
            self._send(call, answer)
        return answer

    def _ask_again(
        self, call: Call, context: Context, needed: InputNeeded | BaseExceptionGroup[BaseException]
    ) -> bytes | None:
        """The answer to a call that has to come back with what it asks for."""
        try:
            questions = needed_by(needed)
            return self.session.respond(call, context.rounds.required(questions))
        except BaseException as error:  # also what `needed_by` found beside the questions
            return self._fail(call, error)

    def _fail(self, call: Call, error: BaseException) -> bytes | None:
        try:
            return self.session.fail(call, _as_wire(error, call))
        except Exception as unwritable:
            # Its text or data are no JSON, and still somebody waits for an answer.
            log.error("%s (id %r) failed with an error that cannot be sent", call.method, call.id, exc_info=unwritable)
            return self.session.fail(call, InternalError())

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
                call = self.session.in_flight.get(params.request_id)
                if call is not None:
                    self.cancel(call)
            elif message.method == "notifications/roots/list_changed":
                version = self.session.version
                if version is not None and self.on_roots_changed is not None:
                    nobody: Any = None  # what it asks is no part of any request
                    request = Request("2.0", nobody, message.method, message.params)
                    call = Call(self.session, request, version, params, None)
                    self._run(self.on_roots_changed(Context(call, self)))
        elif isinstance(message, (Response, Failure)) and self._outgoing is not None:
            self._outgoing.receive(message)

    def _receive_batch(self, batch: Batch) -> None:
        try:
            self.check_batches()
        except ProtocolError as error:
            self.receive_error(error)
            return
        self.receive_batch(decode_batch(batch), self._send_batch)

    def _send_batch(self, frame: bytes | None) -> None:
        if frame is not None:
            self.channel.send(frame)

    def check_batches(self) -> None:
        """Raise InvalidRequest where a frame is one message: batches came and went with 2025-03-26."""
        version = self.session.version
        if version is None or not version.has_batches:
            raise InvalidRequest("JSON-RPC batches exist in protocol version 2025-03-26 only")

    def receive_batch(self, parts: list[Message | ProtocolError], done: Callable[[bytes | None], object]) -> None:
        """Start all that a batch asks for; `done` gets the answers as one frame, or None if nothing is to be answered.

        Spec: 2025-03-26 basic/index, batching: an array in, an array out, nothing for notifications alone.
        """
        reply = _BatchReply(done, len(parts))
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

    async def notify(self, method: str, params: Any, about: Call | None = None) -> None:
        """Send a notification; waits while the peer does not read."""
        frame = self.session.notify(method, params, about)
        if frame is None:
            return
        self.channel.send(frame, None if about is None else about.id)
        if self.channel.is_congested:
            await self.channel.drain()

    def as_json(self, data: Any) -> Any:
        """Any object as JSON values that can be sent, its `repr` if it has no better form. Never raises."""
        try:
            plain = mended(self.to_builtins(data))
            encode(plain)
        except Exception:
            try:
                return mended(repr(data))
            except Exception:
                return f"<{type(data).__qualname__}>"
        return plain

    async def request(self, method: str, params: Any, about: Call, timeout: float | None) -> Raw:
        """Ask the client something as part of `about`, and give its raw result.

        Raises RemoteError if it answers with an error, RequestTimeout, ConnectionLost.
        """
        if self._outgoing is None:
            self._outgoing = Outgoing(self.session, self.channel, self.loop)
        return await self._outgoing.request(method, params, about, timeout)

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Keep a subscription open until it is cancelled or the server ends it."""
        return self.subscriptions.listen(call, wanted)

    @property
    def sealer(self) -> Sealer:
        """What seals the states of multi round-trip requests."""
        if self._get_sealer is None:
            raise LocalProtocolError("this connection has no key to seal states with")
        return self._get_sealer()


class _BatchReply:
    """Gathers the answers of one batch and hands them on as one array."""

    def __init__(self, done: Callable[[bytes | None], object], size: int) -> None:
        self._done = done
        self._left = size
        self._answers: list[bytes] = []

    def add(self, answer: bytes | None) -> None:
        if answer is not None:
            self._answers.append(answer)
        self._left -= 1
        if self._left == 0:
            self._done(b"[" + b",".join(self._answers) + b"]" if self._answers else None)


def _as_wire(error: BaseException, call: Call) -> ProtocolError:
    """The only place where an exception becomes an error answer."""
    if isinstance(error, ProtocolError):
        # A code that this version does not have leaves as a plain internal error with the same text.
        return error if call.version.has_error(type(error)) else InternalError(error.message)
    if isinstance(error, RequestTimeout):
        return InternalError(str(error))
    if isinstance(error, ToolError):
        # Outside tools/call there is no isError; its text is meant to be read all the same.
        return InternalError(str(error))
    log.error("%s (id %r) failed", call.method, call.id, exc_info=error)
    return InternalError()
