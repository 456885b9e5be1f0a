"""The worker's end of the connection: it reads in a thread of its own, and sends the messages of a call."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any

from msgspec import Raw

from mcpd.errors import LocalProtocolError
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.session import Call
from mcpd.transports.child import HAS_GROUPS
from .messages import HEAD_BYTES, Ask, Done, FromWorker, Reply, Run, error_of, frame_of, read_to_worker

PROGRESS = "notifications/progress"

# This many progress notifications may be sent at once, and as many in each second after that.
_PROGRESS_RATE = 20.0
_LAST_SECONDS = 1.0


class ServerLink:
    """The connection to the server. `kept` returns `ctx.state`, which goes with each question."""

    def __init__(self, sock: socket.socket, kept: Callable[[], dict[str, Any] | None]) -> None:
        self._socket = sock
        self._kept = kept
        # The next call; None after the end of the connection.
        self.calls: SimpleQueue[Run | None] = SimpleQueue()
        # The task of the call if it runs in the event loop.
        self.task: asyncio.Task[Any] | None = None
        # Whether a call runs, and whether the server has closed the connection.
        self.is_running = False
        self.has_ended = False
        self.lock = threading.RLock()
        self._numbers = count(1)
        self._waiting: dict[int, Future[Reply]] = {}
        # Progress that came too fast, and how much may be sent at once.
        self._held: Ask | None = None
        self._may_send = _PROGRESS_RATE
        self._counted = time.monotonic()

    def read(self) -> None:
        """Read all messages; at their end, end the call that runs. Called in a thread of its own."""
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))  # it has to interrupt the main thread
        with suppress(OSError):
            while head := self._receive(HEAD_BYTES):
                message = read_to_worker(self._receive(int.from_bytes(head, "big")))
                if isinstance(message, Run):
                    self.calls.put(message)
                elif (waiting := self._waiting.pop(message.number, None)) is not None:
                    waiting.set_result(message)

        self.has_ended = True
        self.calls.put(None)
        if self.is_running:
            if sys.platform == "win32":
                signal.raise_signal(signal.SIGTERM)  # `kill` would end the process there
            else:
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_LAST_SECONDS)

        if self.is_running:
            if HAS_GROUPS:
                os.killpg(0, signal.SIGKILL)  # with the processes that it has started
            os._exit(1)

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

    def send(self, message: FromWorker) -> None:
        """Send a message. Raises OSError."""
        frame = frame_of(message)
        with self.lock:
            self._socket.sendall(frame)

    def say(self, call: Call, what: str, body: Any) -> None:
        """Have the server do something for a call. Raises the errors of msgspec for a value that is not JSON."""
        message = Ask(what, Raw(encode(body)))
        with self.lock:
            if not call.is_open:
                return
            if what == PROGRESS:
                self._say_progress(message)
            else:
                self._flush()
                self.send(message)

    def _say_progress(self, message: Ask) -> None:
        # Hold back progress that comes too fast, until something else is sent or a moment has passed.
        now = time.monotonic()
        self._may_send = min(_PROGRESS_RATE, self._may_send + (now - self._counted) * _PROGRESS_RATE)
        self._counted = now
        was_held, self._held = self._held is not None, message
        if self._may_send >= 1:
            self._may_send -= 1
            self._flush()
        elif not was_held:
            timer = threading.Timer(1 / _PROGRESS_RATE, self._flush)
            timer.daemon = True
            timer.start()

    def _flush(self) -> None:
        with self.lock, suppress(OSError):  # if the server has ended, the reader finds out
            held, self._held = self._held, None
            if held is not None:
                self.send(held)

    def _ask(self, call: Call, what: str, body: Any) -> tuple[int, Future[Reply]]:
        number = next(self._numbers)
        waiting: Future[Reply] = Future()
        waiting.set_running_or_notify_cancel()  # from now on, it cannot be cancelled
        with self.lock:
            if not call.is_open:
                raise LocalProtocolError("the call has ended")
            self._flush()
            self._waiting[number] = waiting
            self.send(Ask(what, Raw(encode(body)), number, self._kept()))
        return number, waiting

    def ask_now(self, call: Call, what: str, body: Any) -> Raw:
        """Have the server do something, and wait for the reply without the event loop. Raises its exception."""
        return _result_of(self._ask(call, what, body)[1].result())

    def end_call(self, call: Call | None, done: Done) -> None:
        """Send how a call has ended. Threads and tasks that it has left behind cannot speak in the next one."""
        with self.lock:
            self._flush()
            self.send(done)
            if call is not None:
                call.session.cancel(call.id)
            while self._waiting:
                self._waiting.popitem()[1].set_exception(LocalProtocolError("the call has ended"))

    async def ask(self, call: Call, what: str, body: Any) -> Raw:
        """The same as `ask_now`, in the event loop if there is one."""
        if self.task is None:
            return self.ask_now(call, what, body)
        number, waiting = self._ask(call, what, body)
        try:
            return _result_of(await asyncio.wrap_future(waiting))
        except asyncio.CancelledError:
            self.say(call, "forget", number)
            raise

    def close(self) -> None:
        self._socket.close()


def _result_of(reply: Reply) -> Raw:
    if reply.error is not None:
        raise error_of(reply.error)
    return reply.result
