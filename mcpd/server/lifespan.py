"""What an author opens once for the whole process, such as a database: started before the first call, ended last.

Theory of operation. The author's context manager is entered and left in one task of its own, as task groups and
cancel scopes inside it demand. It is opened by whoever asks first: `mcpd serve` before it listens, an ASGI server at
its start, else the first call, which waits for it, as do all that come meanwhile. It is closed when the last of its
holders lets go (a program, a served process, an ASGI application, a client in this process); what nobody holds is
closed with its event loop, which cancels the task, and the task leaves the context manager then.
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
from mcpd.server.context.exchange import Exchange
from mcpd.server.dispatcher import ServerConnection
from mcpd.server.handlers.table import HandlerTable

log = logging.getLogger("mcpd")

_CALLS_SECONDS = 5.0

Enter = Callable[[], AbstractAsyncContextManager[Any]]
Handler = Callable[[Exchange, Any], Any]


class Lifespan:
    """The lifespan of one server. `function` gets the server, and gives an async context manager.

    Safe in several event loops: whoever comes from another one waits for the loop in which it was opened.
    """

    def __init__(self, function: Callable[[Any], AbstractAsyncContextManager[Any]], server: Any) -> None:
        name = getattr(function, "__qualname__", repr(function))
        if isasyncgenfunction(function):
            raise RegistrationError(f"lifespan: write @contextlib.asynccontextmanager above {name}")
        if not callable(function):
            raise RegistrationError(f"lifespan: expected a function that gives an async context manager, not {name}")
        self.function = function
        self._enter: Enter = partial(function, server)
        self._where = f"the lifespan of server {server.name!r}"
        self._life: _Life | None = None
        self._holders: set[object] = set()
        self._lock = Lock()

    def share(self, other: Lifespan) -> None:
        """Be the same as another one from now on, whether that is open or not; before this one is used."""
        self.__dict__ = other.__dict__  # calls are guarded by methods of this object

    def hold(self, holder: object) -> None:
        """Keep it open, once it is, until `holder` lets go of it."""
        self._holders.add(holder)

    @property
    def value(self) -> Any:
        """What the context manager gave; None while it is not open."""
        return None if self._life is None else self._life.value

    async def open(self) -> None:
        """Start it, if that was not done yet, and wait until it is. Raises ConfigurationError if it fails.

        While somebody holds it a start that failed is not tried again.
        """
        with self._lock:
            life = self._life
            if life is None or life.is_over or (life.failure and not self._holders):
                life = self._life = _Life(self)
        await _wait(life.started)
        if life.failure:
            raise ConfigurationError(life.failure)

    async def let_go(self, holder: object) -> None:
        """`holder` needs it no more: if no other holder does, it ends now, and this waits for that. Safe to call twice.

        Cancelled, it ends all the same.
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
        """Hold it for a connection in this process; what is given is to be awaited when its client has closed it.

        The calls that run then have some seconds to end.
        """
        self.hold(connection)

        async def close() -> None:
            try:
                await asyncio.wait([connection.ended], timeout=_CALLS_SECONDS)
                await connection.finish(_CALLS_SECONDS)
            finally:
                await self.let_go(connection)

        return close

    def cancel(self) -> None:
        """End the wait for an end that takes too long, with a cancellation inside the author's code."""
        if self._life is not None:
            self._life.cancel()

    # -- where calls come in ------------------------------------------------------------------

    def guard(self, handler: Handler) -> Handler:
        """The handler of a method, which is called when the lifespan is open, and can tell its value."""

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
        result = handler(exchange, params)
        return await result if isinstance(result, Coroutine) else result

    # -- what its task does -------------------------------------------------------------------

    async def run(self, life: _Life) -> None:
        """From start to end. All that the author's code raises ends here."""
        try:
            async with self._enter() as value:
                life.value = value
                life.is_open = True
                life.started.set_result(None)
                try:
                    await life.ending.wait()
                except asyncio.CancelledError:
                    # The event loop ends: what was opened is to be closed as at any other time.
                    life.uncancel()

                # While the author's code closes what it opened, no call may find it.
                life.is_open = False
        except BaseException as error:
            if not life.started.done():
                life.failure = self._why(error)
            elif not isinstance(error, asyncio.CancelledError):
                log.error("%s failed at its end", printable(self._where), exc_info=_own(error))
        finally:
            life.is_open = False
            life.value = None
            if not life.started.done():
                life.started.set_result(None)
            life.done.set_result(None)

    def _why(self, error: BaseException) -> str:
        """Why it could not start, in a line; the author's traceback goes into the log."""
        if isinstance(error, asyncio.CancelledError):
            return f"{self._where} was stopped before it had started"
        log.error("%s could not start", printable(self._where), exc_info=_own(error))
        said = f"{type(error).__name__}: {error}".strip().rstrip(":").partition("\n")[0]
        return f"{self._where} could not start: {said}; the log above says where"


def guarded(
    function: Callable[[Any], AbstractAsyncContextManager[Any]], server: Any, handlers: HandlerTable
) -> Lifespan:
    """The lifespan of a server, for which the calls of all methods wait. Raises RegistrationError."""
    lifespan = Lifespan(function, server)
    handlers.wrap(lambda _, handler: lifespan.guard(handler))
    return lifespan


class _Life:
    """One time that a lifespan is open, in the event loop of whoever opened it. Make it there."""

    def __init__(self, lifespan: Lifespan) -> None:
        self.loop: AbstractEventLoop = asyncio.get_running_loop()
        # Futures of threads: those who wait may do so in other event loops.
        self.started: Future[None] = Future()
        self.done: Future[None] = Future()
        for future in (self.started, self.done):
            future.set_running_or_notify_cancel()  # whoever waits may be cancelled, and they not with it
        self.ending = asyncio.Event()
        self.is_open = False
        self.value: Any = None
        """What the context manager gave: `ctx.lifespan`."""
        self.failure = ""
        """Why it could not start."""
        self._task = self.loop.create_task(lifespan.run(self), name="mcpd-lifespan")

    @property
    def is_over(self) -> bool:
        """It has ended, or its event loop has without it. One that could not start stands for as long as it is held."""
        return self.loop.is_closed() or (self.done.done() and not self.failure)

    def end(self) -> None:
        """Close it; if it is starting, give that up."""
        self._tell(self.ending.set if self.started.done() else self._task.cancel)

    def cancel(self) -> None:
        """Cancel what it does now."""
        self._tell(self._task.cancel)

    def uncancel(self) -> None:
        """A cancellation was taken note of."""
        self._task.uncancel()

    def _tell(self, what: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop was closed, and has ended it
            pass


async def _wait(future: Future[None]) -> None:
    if not future.done():
        await asyncio.wrap_future(future)


def _own(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """The exception with its traceback from where the author's code begins."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None and _is_ours(place):
        place = place.tb_next
    return type(error), error.with_traceback(place), place


def _is_ours(place: TracebackType) -> bool:
    frame = place.tb_frame
    return frame.f_code.co_filename == __file__ or frame.f_globals.get("__name__") == "contextlib"
