"""A server's lifespan: an author's context manager, such as a database, that is open for the whole process.

Theory of operation. The context manager is entered and left in one task of its own, as task groups and cancel scopes
inside it require. The first user opens it: `mcpd serve` before it listens, an ASGI server at its start, otherwise the
first call, for which that call and all others wait. It is closed when its last holder releases it: a program, a served
process, an ASGI application or a client in this process. Without holders it is closed with its event loop, which
cancels the task.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from inspect import isasyncgenfunction
from threading import Lock
from types import TracebackType
from typing import Any

from mcpd.errors import ConfigurationError, InternalError, RegistrationError
from mcpd.protocol.printable import printable
from mcpd.server.context.exchange import Exchange, Handler, finished
from .dispatcher import ServerConnection

log = logging.getLogger("mcpd")

_CALLS_SECONDS = 5.0


class Lifespan:
    """The lifespan of one server. `function` takes the server and returns an async context manager.

    Safe in several event loops: other loops wait for the loop in which it was opened. Raises RegistrationError for
    another kind of function.
    """

    def __init__(self, function: Callable[[Any], AbstractAsyncContextManager[Any]], server: Any) -> None:
        name = getattr(function, "__qualname__", repr(function))
        if isasyncgenfunction(function):
            raise RegistrationError(f"lifespan: write @contextlib.asynccontextmanager above {name}")
        if not callable(function):
            raise RegistrationError(f"lifespan: expected a function that gives an async context manager, not {name}")
        self.function = function
        self._enter = partial(function, server)
        self._where = f"the lifespan of server {server.name!r}"
        # Called before the context manager is left, for connections of the server's sources.
        self.closing: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._life: _Life | None = None
        self._holders: set[object] = set()
        self._lock = Lock()

    def adopt(self, other: Lifespan) -> None:
        """Use the state of another lifespan from now on. Must be called before this one is used."""
        other.closing += self.closing
        self.__dict__ = other.__dict__  # handlers are bound to methods of this object

    def hold(self, holder: object) -> None:
        """Keep it open, once it is, until `holder` releases it."""
        self._holders.add(holder)

    @property
    def value(self) -> Any:
        """The value of the context manager; None while it is not open."""
        return None if self._life is None else self._life.value

    async def open(self) -> None:
        """Open it, if necessary, and wait for that. Raises ConfigurationError if it fails.

        A failed start is not repeated while somebody holds the lifespan.
        """
        with self._lock:
            life = self._life
            if life is None or life.is_over or (life.failure and not self._holders):
                life = self._life = _Life(self)
        await _wait(life.started)
        if life.failure:
            raise ConfigurationError(life.failure)

    async def release(self, holder: object) -> None:
        """Release it; the last holder's call closes it and waits for that. Safe to call twice.

        It closes even if this call is cancelled.
        """
        self._holders.discard(holder)
        if self._holders:
            return
        with self._lock:
            life, self._life = self._life, None
        if life is not None and not life.is_over:
            life.end()
            await _wait(life.done)

    def follow(self, connection: ServerConnection) -> Callable[[], Coroutine[Any, Any, None]]:
        """Hold it for a connection in this process. Returns a coroutine function to call when the client has closed it.

        Running calls get some seconds to end.
        """
        self.hold(connection)

        async def close() -> None:
            try:
                await asyncio.wait([connection.ended], timeout=_CALLS_SECONDS)
                await connection.finish(_CALLS_SECONDS)
            finally:
                await self.release(connection)

        return close

    def cancel(self) -> None:
        """Stop waiting for an end that takes too long, by a cancellation inside the author's code."""
        if self._life is not None:
            self._life.cancel()

    # -- calls -------------------------------------------------------------------------------

    def guard(self, handler: Handler) -> Handler:
        """Return a handler that is called once the lifespan is open, with its value in the exchange."""

        def handle(exchange: Exchange, params: Any) -> Any:
            life = self._life
            if life is None or not life.is_open:
                return self._handle_later(handler, exchange, params)
            exchange.lifespan = life.value
            return handler(exchange, params)

        return handle

    async def _handle_later(self, handler: Handler, exchange: Exchange, params: Any) -> Any:
        try:
            await self.open()
        except ConfigurationError:
            raise InternalError("The server could not start; details are in its log") from None
        exchange.lifespan = self.value
        return await finished(handler(exchange, params))

    # -- its task ----------------------------------------------------------------------------

    async def run(self, life: _Life) -> None:
        """Run from start to end. Handles all exceptions of the author's code."""
        try:
            async with self._enter() as value:
                life.value = value
                life.is_open = True
                life.started.set_result(None)
                try:
                    await life.ending.wait()
                except asyncio.CancelledError:
                    # The event loop ends: the context manager is left as at any other time.
                    life.uncancel()

                # Calls must not find it while the author's code closes it.
                life.is_open = False
                for close in self.closing:
                    await close()
        except BaseException as error:
            if not life.started.done():
                life.failure = self._why(error)
            elif not isinstance(error, asyncio.CancelledError):
                log.error("%s failed to close", printable(self._where), exc_info=_author_traceback(error))
        finally:
            life.is_open = False
            life.value = None
            if not life.started.done():
                life.started.set_result(None)
            life.done.set_result(None)

    def _why(self, error: BaseException) -> str:
        # Return why it could not start, in a line, and log the author's traceback.
        if isinstance(error, asyncio.CancelledError):
            return f"{self._where} was stopped before it had started"
        log.error("%s could not start", printable(self._where), exc_info=_author_traceback(error))
        reason = f"{type(error).__name__}: {error}".strip().rstrip(":").partition("\n")[0]
        return f"{self._where} could not start: {reason}; the log above says where"


class _Life:
    # One period in which a lifespan is open, in the event loop that opened it. Must be made there.
    def __init__(self, lifespan: Lifespan) -> None:
        self.loop: AbstractEventLoop = asyncio.get_running_loop()
        # Futures of threads, because other event loops may wait for them.
        self.started: Future[None] = Future()
        self.done: Future[None] = Future()
        for future in (self.started, self.done):
            future.set_running_or_notify_cancel()  # a cancelled waiter must not cancel them
        self.ending = asyncio.Event()
        self.is_open = False
        # The value of the context manager: `ctx.lifespan`.
        self.value: Any = None
        # Why it could not start.
        self.failure = ""
        self._task = self.loop.create_task(lifespan.run(self), name="mcpd-lifespan")

    @property
    def is_over(self) -> bool:
        # Whether it has ended, or its event loop has. A failed start lasts as long as it is held.
        return self.loop.is_closed() or (self.done.done() and not self.failure)

    def end(self) -> None:
        self._call_soon(self.ending.set if self.started.done() else self._task.cancel)

    def cancel(self) -> None:
        self._call_soon(self._task.cancel)

    def uncancel(self) -> None:
        self._task.uncancel()

    def _call_soon(self, what: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop was closed and has ended it
            pass


async def _wait(future: Future[None]) -> None:
    if not future.done():
        await asyncio.wrap_future(future)


def _author_traceback(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    # Return the exception with its traceback from the author's code on.
    place = error.__traceback__
    while place is not None and place.tb_next is not None and _is_ours(place):
        place = place.tb_next
    return type(error), error.with_traceback(place), place


def _is_ours(place: TracebackType) -> bool:
    frame = place.tb_frame
    return frame.f_code.co_filename == __file__ or frame.f_globals.get("__name__") == "contextlib"
