"""The asyncio side of a client's connection: who waits for which answer, time limits, the server's questions.

A request waits `timeout` seconds without a sign of life; progress is one, and so is a question of the server's,
while which the clock stands still: the server waits for us then.

Spec: 2025-11-25 basic/lifecycle, timeouts; basic/utilities/{cancellation,progress}.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from ..channel import Channel, Receiver
from ..errors import ConfigurationError, ConnectionLost, InternalError, McpdError, ProtocolError, RequestTimeout
from ..jsonrpc import Id
from .callbacks import Callbacks, answer_to, tell
from .session import Answered, Asked, Event, Notified, Progressed, Session, Withdrawn

__all__ = ["Connection", "OnProgress", "StartableChannel"]

log = logging.getLogger("mcpd.client")

OnProgress: TypeAlias = Callable[[float, float | None, str | None], Any]
"""Called with progress, total and message of a request; a plain function, for the answer does not wait for it."""


class StartableChannel(Channel, Protocol):
    """A channel that begins to deliver when it is told to whom."""

    def start(self, receiver: Receiver) -> None:
        """From now on hand what arrives to `receiver`."""


class _Waiting:
    """One request of ours: its answer to come, and its clock."""

    __slots__ = ("answer", "clock", "latest", "on_progress", "timeout")

    def __init__(self, answer: asyncio.Future[Raw], timeout: float | None, on_progress: OnProgress | None) -> None:
        self.answer = answer
        self.timeout = timeout
        self.on_progress = on_progress
        self.clock: asyncio.Timeout | None = None
        self.latest: float | None = None

    def restart(self, *, stopped: bool) -> None:
        """There was a sign of life; `stopped` until the next one."""
        clock, timeout = self.clock, self.timeout
        if clock is None or timeout is None or self.latest is None or self.answer.done() or clock.expired():
            return
        now = self.answer.get_loop().time()
        clock.reschedule(self.latest if stopped else min(now + timeout, self.latest))


class Connection:
    """One channel, its session, and the requests that wait. A `Receiver`; make it on the event loop's thread."""

    longest = 3600.0
    """No request waits longer, whatever the signs of life."""

    def __init__(self, session: Session, channel: Channel, callbacks: Callbacks) -> None:
        self.session = session
        self.channel = channel
        self.loop = asyncio.get_running_loop()
        self.is_wanted: Callable[[Notified], bool] = lambda told: True
        """Asked of each notification: whether the program hears of it."""
        self._callbacks = callbacks
        self._waiting: dict[Id, _Waiting] = {}
        self._answering: dict[Id, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: deque[Notified] = deque()
        self._lost: McpdError | None = None

    # --------------------------------------------------------------------------- what the channel calls

    def receive(self, frame: bytes) -> None:
        """Take one frame."""
        self.session.receive(frame)
        self._turn()

    def receive_error(self, error: ProtocolError) -> None:
        """What arrived was no frame; whoever waits for it goes on waiting."""
        log.warning("the server sent what cannot be taken: %s", error.message)

    def closed(self, error: McpdError | None = None) -> None:
        """The server will send no more: nobody gets an answer."""
        self._lose(ConnectionLost(str(error) if error is not None else "the server closed the connection"))

    def _lose(self, error: McpdError) -> None:
        if self._lost is None:
            self._lost = error
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(self._lost)
        for task in self._others():
            task.cancel()

    def _others(self) -> list[asyncio.Task[None]]:
        """What runs, but the callback that asks: it may be the one that closes the client."""
        return [task for task in self._tasks if task is not asyncio.current_task()]

    def _turn(self) -> None:
        """Hand on what came of a step of the session's, then send what it has to say."""
        for event in self.session.events():
            self._take(event)
        self.flush()

    def flush(self) -> None:
        """Send what the session has queued."""
        for frame in self.session.data_to_send():
            self.channel.send(frame)

    def _take(self, event: Event) -> None:
        if isinstance(event, Answered):
            waiting = self._waiting.get(event.request_id)
            if waiting is not None and not waiting.answer.done():
                if event.error is not None:
                    waiting.answer.set_exception(event.error)
                elif event.result is not None:
                    waiting.answer.set_result(event.result)
        elif isinstance(event, Progressed):
            self._progress(event)
        elif isinstance(event, Asked):
            answering = self._answering[event.ask_id] = self._do(self._answer(event))
            # Not at the end of the coroutine: one that is cancelled before its first step never gets there.
            answering.add_done_callback(lambda _: self._answered(event.ask_id))
            self._restart_clocks()
        elif isinstance(event, Withdrawn):
            task = self._answering.get(event.ask_id)
            if task is not None:
                task.cancel()
        elif self.is_wanted(event):
            # One after the other, in the order they came: a program must not see an old state last.
            self._told.append(event)
            if len(self._told) == 1:
                self._do(self._tell())

    def _progress(self, event: Progressed) -> None:
        waiting = self._waiting.get(event.request_id)
        if waiting is None:
            return
        waiting.restart(stopped=bool(self._answering))
        if waiting.on_progress is not None:
            try:
                waiting.on_progress(event.progress, event.total, event.message)
            except Exception:
                log.exception("the callback for progress failed")

    # ---------------------------------------------------------------------------- what the server wants

    async def _answer(self, asked: Asked) -> None:
        session = self.session
        try:
            result = await answer_to(self._callbacks, asked.method, asked.params)
            version = session.version
            session.answer(asked.ask_id, result if version is None else version.shape(result))
        except ProtocolError as error:
            session.refuse(asked.ask_id, error)
        except Exception:
            log.exception("%s: what the callback gave cannot be sent", asked.method)
            session.refuse(asked.ask_id, InternalError())

    def _answered(self, ask_id: Id) -> None:
        self._answering.pop(ask_id, None)
        self._restart_clocks()
        self.flush()

    def _restart_clocks(self) -> None:
        for waiting in self._waiting.values():
            waiting.restart(stopped=bool(self._answering))

    async def _tell(self) -> None:
        while self._told and self._lost is None:
            await tell(self._callbacks, self._told[0].method, self._told[0].params)
            self._told.popleft()

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
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
        if iscoroutinefunction(on_progress):
            raise ConfigurationError("on_progress is a coroutine function: give a plain one, which may start a task")
        request_id = self.session.request(method, params, wants_progress=on_progress is not None)
        return await self.answer(request_id, method, timeout, on_progress)

    async def answer(
        self, request_id: Id, method: str, timeout: float | None, on_progress: OnProgress | None = None
    ) -> Raw:
        """The answer to a request that the session has queued already."""
        if self._lost is not None:
            self.session.cancel(request_id, "")
            self.session.data_to_send()
            raise ConnectionLost(str(self._lost))
        waiting = _Waiting(self.loop.create_future(), timeout, on_progress)
        self._waiting[request_id] = waiting
        self.flush()
        try:
            async with asyncio.timeout(timeout) as clock:
                waiting.clock = clock
                waiting.latest = None if timeout is None else self.loop.time() + max(timeout, self.longest)
                if self._answering:
                    waiting.restart(stopped=True)
                return await waiting.answer
        except TimeoutError:
            self._give_up(request_id, "timed out")
            raise RequestTimeout(f"The server did not answer {method} within {timeout:g} s") from None
        except asyncio.CancelledError:
            self._give_up(request_id, "no longer needed")
            raise
        finally:
            del self._waiting[request_id]

    def _give_up(self, request_id: Id, reason: str) -> None:
        self.session.cancel(request_id, reason)
        self.flush()

    # -------------------------------------------------------------------------------------------- ending

    async def aclose(self) -> None:
        """Give up what waits, stop answering, and close the channel."""
        for request_id in self.session.pending:
            self._give_up(request_id, "the client is closing")
        self._lose(ConnectionLost("the client is closed"))
        try:
            if others := self._others():
                await asyncio.wait(others)
        finally:
            await self.channel.aclose()
