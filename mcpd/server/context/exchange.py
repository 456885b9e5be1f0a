"""One request as the server's own code sees it: its sender, its data, and ways to talk to its client.

Handlers take an `Exchange`; the `Context` of authors wraps one, if a function takes a context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from mcpd.errors import LocalProtocolError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.methods import subject_of
from mcpd.protocol.principal import Origin
from mcpd.protocol.session import Call

if TYPE_CHECKING:
    from mcpd.server.functions.thread_steps import ThreadCall
    from .asking import Asking, CallTask
    from .peer import CallClock, Peer
    from .questions import Question, Timeout

T = TypeVar("T")


class Exchange(Struct, eq=False):
    """One request from its receipt to its answer.

    A struct, because one is made for each request.
    """

    call: Call
    # The connection, which sends notifications and requests to the client.
    peer: Peer
    # The value of the server's lifespan; None without one.
    lifespan: Any = None
    # The dependencies of this request, see `functions.dependencies`; None before the first one.
    dependencies: Any = None
    # The clock that stops while the client is asked; None without a time limit.
    clock: CallClock | None = None
    # The result of the server's own handler, for middleware that needs it.
    own_result: Any = None
    # The task that the call may become; None if it cannot become one.
    task: CallTask | None = None
    _asking: Asking | None = None
    pending: set[ThreadCall] | None = None
    has_ended: bool = False

    @property
    def request_id(self) -> Id:
        """The JSON-RPC id, with its type."""
        return self.call.id

    @property
    def client(self) -> ClientIdentity:
        """The client's identity and capabilities."""
        return self.call.client

    @property
    def origin(self) -> Origin:
        """The transport, user and headers of the request. Looked up on demand, as few tools need it."""
        return self.peer.channel.origin(self.call.id)

    @property
    def owner(self) -> tuple[object, str]:
        """The connection and the client behind it, whose shares of limited resources this request uses."""
        session = self.call.session
        return session, session.owner

    @property
    def subject(self) -> str:
        """The name or URI that the request is about, or its method, for the log."""
        return subject_of(self.call.params) or self.call.method

    @property
    def asking(self) -> Asking:
        """The questions of this request and their answers. Raises InvalidParams for a forged state."""
        if self._asking is None:
            from .asking import asking_for  # few tools ask, and this costs start-up

            make = asking_for if self.task is None else self.task.asking_for
            self._asking = make(self.call, self.peer)
        return self._asking

    @property
    def kept(self) -> dict[str, Any]:
        """The values of `ctx.state`; {} if nothing has looked at it."""
        return {} if self._asking is None else self._asking.kept

    @property
    def asked(self) -> Asking | None:
        """The questions of this request; None while it has none."""
        return self._asking

    def use(self, asking: Asking) -> None:
        """Ask in this way from now on."""
        self._asking = asking

    # -- talking back ------------------------------------------------------------------------

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification of an extension. Raises LocalProtocolError if no extension has declared it."""
        call = self.call
        try:
            is_wanted = call.session.vocabulary.is_wanted(method, call.client)
        except KeyError:
            raise LocalProtocolError(f"{method} is not a notification of an extension of this server") from None
        if is_wanted:
            await self.peer.notify(method, params, call)

    def ask(self, questions: Mapping[str, Question], timeout: Timeout) -> Coroutine[Any, Any, dict[str, Any]]:
        """Ask the client, and return a coroutine of the answers by key. The time limit of the call does not run
        meanwhile.

        Call it on the event loop's thread. A question may wait for hours, so it has as few coroutines as possible.
        """
        if self.clock is None:
            return self.asking.ask(questions, timeout)
        return self._ask_untimed(self.clock, questions, timeout)

    async def _ask_untimed(
        self, clock: CallClock, questions: Mapping[str, Question], timeout: Timeout
    ) -> dict[str, Any]:
        clock.stop()
        try:
            return await self.asking.ask(questions, timeout)
        finally:
            clock.resume()

    def do(self, work: Coroutine[Any, Any, T], *, is_question: bool = False) -> Awaitable[T]:
        """Return `work` to be awaited on the event loop's thread; in another thread, run it and return its result."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        if running is self.peer.loop:
            return work
        from mcpd.server.functions.thread_steps import ThreadCall  # loaded with the first plain function
        from mcpd.server.functions.threads import this_thread

        pending = ThreadCall(work, self.peer.loop)
        if is_question:
            if self.pending is None:
                self.pending = set()
            self.pending.add(pending)
            if self.has_ended:
                pending.cancel()  # the request ended before this question was known

        slot = this_thread.slot if is_question else None
        if slot is not None:
            slot.release()
        try:
            return pending.result()  # type: ignore[no-any-return]  # where there is no loop, nothing can be awaited
        finally:
            if slot is not None:
                slot.reacquire()
            if self.pending is not None:
                self.pending.discard(pending)
            del work, pending  # exceptions raised here refer to this frame

    def end(self) -> None:
        """End the request: cancel what a thread still waits for, such as an answer."""
        self.has_ended = True
        if self.pending is not None:
            for pending in list(self.pending):
                pending.cancel()


# The transports whose clients are other people's programs.
OPEN_TO_MANY = ("http", "websocket")


def checks_scopes(origin: Origin) -> bool:
    """Return whether scopes are checked for this origin.

    They are not on stdio, and in memory without a user: whoever starts the process has all rights. Spec: 2026-07-28
    basic/authorization, which is for HTTP only.
    """
    return origin.transport in OPEN_TO_MANY or origin.user.is_authenticated


def missing_scopes(origin: Origin, scopes: Iterable[str]) -> list[str]:
    """Return the scopes that the user lacks."""
    return [scope for scope in scopes if scope not in origin.user.scopes] if checks_scopes(origin) else []


# A function (exchange, params) that returns a result or a coroutine of one.
Handler: TypeAlias = Callable[[Exchange, Any], Any]


async def finished(result: Any) -> Any:
    """Return the result of a handler, which may be a coroutine of it."""
    return await result if result.__class__ is CoroutineType else result
