"""A worker runs the calls that it receives, one at a time, and sends the server the requests of the functions.

A plain function runs in the main thread, without an event loop, so that SIGTERM can end it by an exception. A coroutine
runs in an event loop that lasts as long as the worker. Another thread reads what the server sends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import CoroutineType, FrameType
from typing import Any, NoReturn, TypeVar, cast

from msgspec import Raw
from msgspec.json import decode

from mcpd.errors import ResultTooLarge, ToolError
from mcpd.protocol.jsonrpc import encode, replace_lone_surrogates
from mcpd.protocol.types.features import CallToolResult
from mcpd.server.context.peer import InputRequired
from . import callee as callees
from .callee import ProcessCallee
from .link import ServerLink
from .messages import Done, ErrorData, Ready, Run, error_data, frame_of
from .relay import WorkerExchange

T = TypeVar("T")

_SET_PDEATHSIG = 1


def serve(sock: socket.socket, problem: str = "") -> NoReturn:
    """Run calls until the server closes the socket. `problem` is why the target could not be imported."""
    code = 0
    end_with_parent()
    try:
        sock.setblocking(True)
        if problem:
            sock.sendall(frame_of(Ready(problem=problem)))
        else:
            Worker(sock).run()
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


def end_with_parent(number: int = getattr(signal, "SIGKILL", 0)) -> None:
    """Have the system send this signal when the process that started this one ends, where it can; 0 undoes that.

    Without it, the process ends when it reads the end of its connection, which C code may prevent.
    """
    if _prctl is not None:
        _prctl(_SET_PDEATHSIG, number)


def _find_prctl() -> Any:
    try:
        import ctypes  # some Pythons are built without it

        return ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    except (ImportError, OSError, AttributeError):
        return None


_prctl = _find_prctl()


class Worker:
    """The call that runs in this process."""

    def __init__(self, sock: socket.socket) -> None:
        self.link = ServerLink(sock, self._kept)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.exchange: WorkerExchange | None = None
        self._lifespans: list[Any] = []
        # Whether it waits for a call, or runs a plain function.
        self._is_waiting = False
        self._is_in_function = False
        # Whether SIGTERM has come, or a tool has forked this process.
        self._is_stopped = False
        self._is_child = False

    def run(self) -> None:
        """Run calls until the server closes the connection."""
        link = self.link
        signal.signal(signal.SIGTERM, self._stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_hold_sigterm, after_in_parent=_take_sigterm, after_in_child=self._become_child)
        threading.Thread(target=link.read, name="mcpd-worker", daemon=True).start()
        link.send(Ready(os.getpid()))
        with suppress(asyncio.CancelledError):  # of SIGTERM, outside of a function
            while not self._is_stopped and (run := self._next()) is not None:
                link.is_running = True
                done = self.done(run)
                link.is_running = False
                if self._is_child:
                    why = "" if done.error is None else f"\n{done.error.trace}"
                    raise RuntimeError(f"a child process that the tool {run.tool} has forked did not end{why}")
                with suppress(Exception):  # a tool may have closed or replaced it
                    sys.stdout.flush()
                exchange, self.exchange = self.exchange, None
                link.end_call(None if exchange is None else exchange.call, done)

        link.is_running = False
        for lifespan in self._lifespans:
            self._run(lifespan.release(self))

    def _next(self) -> Run | None:
        self._is_waiting = True
        try:
            return self.link.calls.get()
        finally:
            self._is_waiting = False

    # -- the end of a call -------------------------------------------------------------------

    def _become_child(self) -> None:
        # The server would take a message of a child process for the answer to this call or the next one.
        self._is_child = True
        self.link.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _take_sigterm()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        # End the call by a cancellation, so that its `finally` blocks run, and then the process.
        was_stopped, self._is_stopped = self._is_stopped, True
        has_task = self.link.is_running and self.link.task is not None
        if was_stopped or not (self._is_waiting or self._is_in_function or has_task):
            return  # this is not code of the tool, and checks the flag itself
        exchange = self.exchange
        if exchange is not None:
            exchange.call.session.cancel(exchange.call.id)
        task = self.link.task
        if task is None:
            raise asyncio.CancelledError
        current = asyncio.current_task(task.get_loop())
        if current is not task:
            task.get_loop().call_soon_threadsafe(task.cancel)
        if current is not None:
            raise asyncio.CancelledError  # the call may never return to the event loop

    @property
    def _must_stop(self) -> bool:
        return self.link.is_running and (self._is_stopped or self.link.has_ended)

    # -- one call ----------------------------------------------------------------------------

    def done(self, run: Run) -> Done:
        """Run a call; return how it has ended."""
        callee = (callees.registered or {}).get(run.tool)
        try:
            if callee is None:
                return Done(error=_NOT_THERE)
            self.exchange = exchange = (
                None if run.request is None else WorkerExchange.of(run.request, callee, self.link)
            )
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
        if callee.runs_in_loop:
            return self._run(_awaited(callee, arguments, exchange))
        self._is_in_function = True
        try:
            if self._must_stop:
                raise asyncio.CancelledError
            value = callee.function(arguments, exchange)
        finally:
            self._is_in_function = False
        return self._run(value) if value.__class__ is CoroutineType else value

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        # Run a coroutine in the event loop.
        loop = self.loop = self.loop or asyncio.new_event_loop()
        task = self.link.task = loop.create_task(work)
        if self._must_stop:
            task.cancel()
        try:
            return cast(T, loop.run_until_complete(task))
        finally:
            self.link.task = None

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


_NOT_THERE = ErrorData(
    "RegistrationError", "importing the target does not register this tool; register it at the top level of its module"
)


async def _awaited(callee: ProcessCallee, arguments: Raw, exchange: WorkerExchange | None) -> Any:
    return await callee.function(arguments, exchange)


def _hold_sigterm() -> None:
    # Before a tool forks: a signal that comes too early for the child must not get to the handler of this process.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _take_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


def _encoded(result: CallToolResult) -> bytes:
    try:
        return encode(result)
    except (UnicodeEncodeError, TypeError):  # a lone surrogate, or a subclass of str
        return encode(replace_lone_surrogates(result))
