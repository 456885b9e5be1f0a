"""A worker: runs the calls that it receives, one at a time, and relays messages and questions to the server.

A plain function runs in the main thread, without an event loop, so that SIGTERM can end it by an exception. A coroutine
runs in an event loop that lasts as long as the worker.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from types import CoroutineType, FrameType
from typing import Any, NoReturn, TypeVar, cast

from msgspec import Raw
from msgspec.json import decode

from mcpd.errors import LocalProtocolError, ResultTooLarge, ToolError
from mcpd.protocol.envelope import ClientIdentity, Opening
from mcpd.protocol.jsonrpc import MALFORMED, as_json, encode, explain, replace_lone_surrogates
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal
from mcpd.protocol.session import Call, Session
from mcpd.protocol.types.base import LogMessageParams, Params, ProgressParams
from mcpd.protocol.types.features import CallToolParams, CallToolResult
from mcpd.protocol.versions import table
from mcpd.server.context.asking import Asking
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import InputRequired
from mcpd.server.context.questions import Question
from mcpd.server.functions.results import to_builtins
from mcpd.server.functions.threads import ThreadCall
from . import callee as callees
from .callee import ProcessCallee
from .messages import (
    HEAD_BYTES,
    Ask,
    Done,
    ErrorData,
    FromWorker,
    Reply,
    RequestData,
    Run,
    Say,
    ToWorker,
    UserData,
    error_data,
    error_of,
    frame_of,
    read_to_worker,
)  # fmt: skip

T = TypeVar("T")

_PROGRESS = "notifications/progress"
# This many progress notifications may be sent at once, and as many in each second after that.
_PROGRESS_RATE = 20.0


def serve(sock: socket.socket, problem: str, *, is_tied: bool) -> NoReturn:
    """Run calls until the server closes the socket. `problem` is why the target could not be imported.

    Unless it `is_tied` to its parent, a thread ends the process when the server has ended.
    """
    code = 0
    try:
        sock.setblocking(True)
        if not is_tied:
            threading.Thread(target=_end_with_server, args=(sock,), name="mcpd-end", daemon=True).start()
        Worker(sock, problem).run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has ended
    except BaseException:
        logging.getLogger("mcpd").exception("the process of a tool has failed")
        code = 1
    finally:
        # Functions that the target has registered with `atexit` belong to the server, and are not called here.
        with suppress(Exception):
            logging.shutdown()
            sys.stdout.flush()
        os._exit(code)


def _hold_sigterm() -> None:
    # Before a tool forks: a signal that comes too early for the child must not get to the handler of this process.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _take_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


def _end_with_server(sock: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(sock, 0)  # registered without events, it reports only that the other end is closed
    waiting.poll()
    time.sleep(1)  # an idle worker ends on its own meanwhile
    os.killpg(0, signal.SIGKILL)


class Worker:
    """The worker's end of the socket, and the call that runs."""

    def __init__(self, sock: socket.socket, problem: str) -> None:
        self._socket = sock
        self._problem = problem
        self._runner: asyncio.Runner | None = None
        self._lifespans: list[Any] = []
        # Whether it waits for a call, runs one, or runs a plain function, and whether SIGTERM has come.
        self._is_waiting = False
        self._is_running = False
        self._is_in_function = False
        self._is_stopped = False
        # Whether this is a child process that a tool has forked.
        self._is_child = False
        # The task of the call if it runs in the event loop.
        self.task: asyncio.Task[Any] | None = None
        self._sending = threading.RLock()
        self._reading = threading.Condition()
        self._has_reader = False
        # The next call, and whether the server has ended.
        self._call: Run | None = None
        self._has_ended = False
        self._numbers = count(1)
        self._replies: dict[int, Reply] = {}
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._progress = _Progress(self._send, self._sending)
        self.exchange: WorkerExchange | None = None

    def run(self) -> None:
        """Run calls until the server closes the socket."""
        signal.signal(signal.SIGTERM, self._stop)
        os.register_at_fork(before=_hold_sigterm, after_in_parent=_take_sigterm, after_in_child=self._become_child)
        with suppress(asyncio.CancelledError):  # of SIGTERM, outside of a function
            while not self._is_stopped and (message := self._next()) is not None:
                self._run_call(message)
        self._is_running = False
        for lifespan in self._lifespans:
            self._run(lifespan.release(self))

    def _next(self) -> Run | None:
        self._is_waiting = True
        try:
            self._read_until(lambda: self._call is not None or self._has_ended)
            call, self._call = self._call, None
            return call
        finally:
            self._is_waiting = False

    def _run_call(self, message: Run) -> None:
        self._is_running = True
        done = self._done(message)
        self._is_running = False
        if self._is_child:
            why = "" if done.error is None else f"\n{done.error.trace}"
            raise RuntimeError(f"a child process that the tool {message.tool} has forked did not end{why}")
        with suppress(Exception):  # a tool may have closed or replaced it
            sys.stdout.flush()
        with self._sending:
            self._progress.flush()
            self._send(done)
            self._end_call()

    def _end_call(self) -> None:
        # Threads and tasks that the function has left behind must not speak in the next call.
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.call.session.cancel(exchange.call.id)

    def _become_child(self) -> None:
        # The server would take what a child says for the answer to this call or the next one.
        self._is_child = True
        self._socket.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _take_sigterm()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        # End the call by a cancellation, so that its `finally` blocks run, and then the process.
        was_stopped, self._is_stopped = self._is_stopped, True
        has_task = self._is_running and self.task is not None
        if was_stopped or not (self._is_waiting or self._is_in_function or has_task):
            return  # what runs now is not the tool's, and looks itself
        exchange = self.exchange
        if exchange is not None:
            exchange.call.session.cancel(exchange.call.id)
        task = self.task
        if task is None:
            raise asyncio.CancelledError
        current = asyncio.current_task(task.get_loop())
        if current is not task:
            task.get_loop().call_soon_threadsafe(task.cancel)
        if current is not None:
            raise asyncio.CancelledError  # the call may never return to the event loop

    # -- one call ----------------------------------------------------------------------------

    def _done(self, run: Run) -> Done:
        callee = (callees.registered or {}).get(run.tool)
        try:
            if self._problem or callee is None:
                return Done(error=ErrorData("NoTarget", self._problem) if self._problem else _NOT_THERE)
            self.exchange = exchange = None if run.request is None else WorkerExchange.of(run.request, callee, self)
            if exchange is not None and callee.lifespan is not None:
                exchange.lifespan = self._run(self._opened(callee.lifespan))

            result = callee.result(self._value(callee, run.arguments, exchange))
            kind = type(result)
            name = "" if kind is CallToolResult else f"{kind.__module__}:{kind.__qualname__}"
            data = _encoded(result)
            if len(data) > run.most:
                raise ToolError(str(ResultTooLarge(len(data), run.most)))
            return Done(Raw(data), name, kept=self._kept())
        except BaseException as error:
            kept = self._kept()
            exchange = self.exchange
            if isinstance(error, InputRequired) and kept is None and exchange is not None and exchange.asking.kept:
                error = ToolError("ctx.state cannot be kept until the next round, because it is not JSON")
            return Done(error=error_data(error), kept=kept)

    def _value(self, callee: ProcessCallee, arguments: Raw, exchange: WorkerExchange | None) -> Any:
        value: Any
        if callee.runs_in_loop:
            value = self._run(self._awaited(callee, arguments, exchange))
        else:
            self._is_in_function = True
            try:
                self._check_stopped()
                value = callee.function(arguments, exchange)
            finally:
                self._is_in_function = False
            if value.__class__ is CoroutineType:
                value = self._run(value)
        return value

    def _check_stopped(self) -> None:
        if self._is_stopped and self._is_running:
            raise asyncio.CancelledError

    async def _awaited(self, callee: ProcessCallee, arguments: Raw, exchange: WorkerExchange | None) -> Any:
        return await callee.function(arguments, exchange)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        # Run a coroutine in the event loop, which reads the replies meanwhile.
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def run() -> T:
            loop = asyncio.get_running_loop()
            self.task = asyncio.current_task()
            loop.add_reader(self._socket, self._on_readable)
            try:
                self._check_stopped()
                return await work
            finally:
                loop.remove_reader(self._socket)
                self.task = None

        try:
            return self._runner.run(run())
        finally:
            work.close()  # SIGTERM may have come before it began

    async def _opened(self, lifespan: Any) -> Any:
        if lifespan not in self._lifespans:
            lifespan.hold(self)
            await lifespan.open()
            self._lifespans.append(lifespan)
        return lifespan.value

    def _kept(self) -> dict[str, Any] | None:
        # Return `ctx.state`; None if the tool has not used it, or if it is not JSON.
        exchange = self.exchange
        if exchange is None or not (exchange.asking.kept or exchange.had_kept):
            return None
        try:
            return decode(encode(exchange.asking.kept), type=dict[str, Any])
        except (TypeError, ValueError, RecursionError, OverflowError):
            return None

    def _read_until(self, is_done: Callable[[], bool]) -> None:
        # One thread reads for all that wait, also a thread that a call has left behind with a question.
        with self._reading:
            while not is_done():
                if self._has_reader:
                    self._reading.wait()
                    continue
                self._has_reader = True
                self._reading.release()
                try:
                    message = self._read()
                finally:
                    self._reading.acquire()
                    self._has_reader = False
                    self._reading.notify_all()
                self._take(message)

    # -- frames ------------------------------------------------------------------------------

    def _read(self) -> ToWorker | None:
        head = self._receive(HEAD_BYTES)
        return None if not head else read_to_worker(self._receive(int.from_bytes(head, "big")))

    def _receive(self, size: int) -> bytearray:
        # Return this many bytes, or none at the end of the connection.
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            read = self._socket.recv_into(view[at:])
            if not read:
                return bytearray()
            at += read
        return data

    def _send(self, message: FromWorker) -> None:
        frame = frame_of(message)
        with self._sending:
            self._socket.sendall(frame)

    def say(self, call: Call, what: str, body: Any) -> None:
        """Have the server do something for a call. Raises the errors of msgspec for a value that is not JSON."""
        say = Say(what, Raw(encode(body)))
        with self._sending:
            if not call.is_open:
                return
            if what == _PROGRESS:
                self._progress.put(say)
            else:
                self._progress.flush()
                self._send(say)

    def _ask(self, call: Call, what: str, body: Any) -> int:
        number = next(self._numbers)
        with self._sending:
            if not call.is_open:
                raise LocalProtocolError("the call has ended")
            self._progress.flush()
            self._send(Ask(number, what, Raw(encode(body)), self._kept()))
        return number

    def ask_now(self, call: Call, what: str, body: Any) -> Raw:
        """Have the server do something, and wait for the reply without the event loop. Raises its exception."""
        task = self.task
        if task is not None and threading.current_thread() is not threading.main_thread():
            return cast(Raw, ThreadCall(self.ask(call, what, body), task.get_loop()).result())
        number = self._ask(call, what, body)
        self._read_until(lambda: number in self._replies or not call.is_open)
        if number not in self._replies:
            raise LocalProtocolError("the call has ended")
        return _result_of(self._replies.pop(number))

    async def ask(self, call: Call, what: str, body: Any) -> Raw:
        """The same as `ask_now`, in the event loop if there is one."""
        if self.task is None:
            return self.ask_now(call, what, body)
        number = self._ask(call, what, body)
        self._waiting[number] = waiting = asyncio.get_running_loop().create_future()
        try:
            return _result_of(await waiting)
        except asyncio.CancelledError:
            self.say(call, "forget", number)
            raise
        finally:
            del self._waiting[number]

    def _on_readable(self) -> None:
        # `ask_now` may have read it in the same iteration of the event loop.
        if select.select([self._socket], [], [], 0)[0]:
            self._take(self._read())

    def _take(self, message: ToWorker | None) -> None:
        if isinstance(message, Run):
            self._call = message
            return
        if message is None:
            if self._is_running:
                os._exit(1)
            self._has_ended = True
            return
        waiting = self._waiting.get(message.number)
        if waiting is None:
            self._replies[message.number] = message
        elif not waiting.done():
            waiting.set_result(message)


_NOT_THERE = ErrorData(
    "RegistrationError", "importing the target does not register this tool; register it at the top level of its module"
)


def _result_of(reply: Reply) -> Raw:
    if reply.error is not None:
        raise error_of(reply.error)
    return reply.result


def _encoded(result: CallToolResult) -> bytes:
    try:
        return encode(result)
    except (UnicodeEncodeError, TypeError):  # a lone surrogate, or a subclass of str
        return encode(replace_lone_surrogates(result))


class _Progress:
    # Sends progress. What comes too fast is held back, until the next thing is sent or a moment later.
    # `lock` is also held to send anything else.
    def __init__(self, send: Callable[[Say], None], lock: Any) -> None:
        self._send = send
        self._lock = lock
        self._held: Say | None = None
        self._left = _PROGRESS_RATE
        self._at = time.monotonic()

    def put(self, say: Say) -> None:
        with self._lock:
            now = time.monotonic()
            self._left = min(_PROGRESS_RATE, self._left + (now - self._at) * _PROGRESS_RATE)
            self._at = now
            if self._left < 1:
                if self._held is None:
                    timer = threading.Timer(1 / _PROGRESS_RATE, self._flush_late)
                    timer.daemon = True
                    timer.start()
                self._held = say
                return
            self._left -= 1
            self._held = None
            self._send(say)

    def flush(self) -> None:
        with self._lock:
            held, self._held = self._held, None
            if held is not None:
                self._send(held)

    def _flush_late(self) -> None:
        with suppress(OSError):  # the server has ended
            self.flush()


# -- the request as the tool sees it -----------------------------------------------------------


class _NoLoop:
    # Replaces the event loop for calls that have none.
    @staticmethod
    def call_soon_threadsafe(function: Any, *arguments: Any) -> None:
        function(*arguments)


class ServerPeer:
    """The server as the `Peer` and the channel of a call in a worker."""

    def __init__(self, worker: Worker, call: Call, origin: Origin) -> None:
        self.worker = worker
        self.call = call
        self.channel = self
        self._origin = origin

    @property
    def loop(self) -> Any:
        """The event loop of the worker, if the call uses it."""
        return _NoLoop if self.worker.task is None else self.worker.task.get_loop()

    def origin(self, request_id: object = None) -> Origin:
        """How the request has arrived at the server."""
        return self._origin

    def close_stream(self, request_id: object) -> None:
        self.worker.say(self.call, "close_stream", None)

    def is_away(self, request_id: object) -> bool:
        """See `ResumableChannel`. The server sends the heartbeats."""
        return False

    def notify_nowait(self, method: str, params: Any, related_request: Call | None = None) -> None:
        self.worker.say(self.call, method, params)

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        self.worker.say(self.call, method, params)

    def as_json(self, data: Any) -> Any:
        return as_json(data, to_builtins)


def _not_here(*_: Any, **__: Any) -> Any:
    # The server does this, because it has the questions.
    raise NotImplementedError


class ServerAsking(Asking):
    """Has the server ask the client, in the way of its version; the answers become values here."""

    def __init__(self, call: Call, peer: Any, kept: dict[str, Any]) -> None:
        super().__init__(call, peer)
        self._worker: Worker = peer.worker
        self.kept = kept

    def can_ask(self, question: Question) -> bool:
        return decode(self._worker.ask_now(self._call, "can_ask", _as_data(question)), type=bool)

    async def ask(self, questions: Mapping[str, Question], timeout: float | None) -> dict[str, Any]:
        data = {key: _as_data(question) for key, question in questions.items()}
        raw = await self._worker.ask(self._call, "ask", [data, timeout])
        answers = decode(raw, type=dict[str, Raw])
        return {key: _read_answer(question, answers[key]) for key, question in questions.items()}

    def require(self, question: Question, key: str | None) -> NoReturn:
        self._worker.ask_now(self._call, "require", [_as_data(question), key])
        raise AssertionError("the server lets nothing go on after `require`")

    put = required = missing = _not_here


class ServerTask:
    """The task that the call may become. It is the server's: what is said here becomes what is said there."""

    def __init__(self, worker: Worker, call: Call) -> None:
        self._worker = worker
        self._call = call
        self._has_token = call.meta is not None and call.meta.progress_token is not None

    @property
    def id(self) -> str | None:
        return decode(self._worker.ask_now(self._call, "task_id", None), type=str | None)

    def entered(self) -> None:
        """See `CallTask`. The server has called it."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """See `CallTask`. With a token the context sends it anyway."""
        if not self._has_token and math.isfinite(progress):
            params = ProgressParams(progress_token="", progress=progress, total=total, message=message)
            self._worker.say(self._call, _PROGRESS, as_json(params, to_builtins))

    def takes_log(self, level: Any, data: object, logger: str | None) -> bool:
        """See `CallTask`. The server decides who gets the message."""
        message = LogMessageParams(level=level, data=as_json(data, to_builtins), logger=logger)
        self._worker.say(self._call, "notifications/message", message)
        return True

    asking_for = _not_here

    async def become(self, message: str) -> None:
        await self._worker.ask(self._call, "become_task", message)


def _as_data(question: Question) -> dict[str, Any]:
    return {"method": question.method, "params": question.params, "needs": question.needs}


def _read_answer(question: Question, raw: Raw) -> Any:
    try:
        return question.read(raw)
    except MALFORMED as error:
        raise ToolError(f"The client's answer to {question.method} cannot be used: {explain(error)}") from None


class WorkerExchange(Exchange, eq=False):
    """One request in a worker."""

    # Whether `ctx.state` had values at the beginning.
    had_kept: bool = False

    @classmethod
    def of(cls, data: RequestData, callee: ProcessCallee, worker: Worker) -> WorkerExchange:
        """Return the exchange of a call."""
        version = table.get(data.version)
        session = Session(opening=Opening(version=version))
        session.client = ClientIdentity(raw_capabilities=data.capabilities, raw_info=data.info)
        session.log_level = data.log_level
        source = Raw(b'{"_meta":%s}' % (bytes(data.meta) or b"null"))
        meta = decode(source, type=Params).meta
        params = CallToolParams(name=callee.tool)
        call = Call(data.id, "tools/call", session, source, version, params, meta)
        if data.trace is not None:
            from mcpd.protocol.wire.trace_context import TraceContext  # few requests are traced

            trace = TraceContext(**data.trace)
            call.trace = lambda: trace
        session.in_flight.by_id[call.id] = call

        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in data.headers.items()]
        peer = ServerPeer(worker, call, Origin(cast(Any, data.transport), _user(data.user, worker, call), fields))
        exchange = cls(call, cast(Any, peer))
        exchange._asking = ServerAsking(call, peer, data.kept)
        exchange.had_kept = bool(data.kept)
        if data.can_be_task:
            exchange.task = ServerTask(worker, call)
        return exchange

    def do(self, work: Coroutine[Any, Any, T], *, is_question: bool = False) -> Awaitable[T]:
        """See `Exchange`. Without an event loop nothing in `work` waits for one."""
        if self.peer.worker.task is not None:  # type: ignore[attr-defined]
            return super().do(work, is_question=is_question)
        try:
            work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        raise RuntimeError("a method of the context waits for an event loop")

    async def notify(self, method: str, params: Any) -> None:
        await self.peer.worker.ask(self.call, "notify", [method, params])  # type: ignore[attr-defined]


def _user(data: UserData | None, worker: Worker, call: Call) -> Principal:
    if data is None:
        return ANONYMOUS
    user = Principal(
        data.subject,
        issuer=data.issuer,
        client=data.client,
        scopes=data.scopes,
        claims=data.claims,
        expires=data.expires,
    )

    async def upstream() -> str:
        return decode(await worker.ask(call, "upstream_token", None), type=str)

    return user.with_upstream(upstream) if data.has_upstream else user
