"""One request as the server's own code sees it: who asks, what is remembered for it, and ways to talk back.

Handlers get an `Exchange`; the `Context` of authors is made of one, where a function takes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from mcpd.errors import LocalProtocolError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.methods import subject_of
from mcpd.protocol.principal import Origin
from mcpd.protocol.session import Call

T = TypeVar("T")

if TYPE_CHECKING:
    from typing import Protocol

    from mcpd.protocol.types.interaction import ListenResult, SubscriptionFilter
    from mcpd.server.context.asking import Asking
    from mcpd.server.context.peer import Peer
    from mcpd.server.functions.threads import ThreadCall

    class CallClock(Protocol):
        """What a call with a time limit has, see `registry.time_limit`."""

        def stopped(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
            """A question to the client, during which no time passes."""


class Exchange(Struct, eq=False):
    """One request from receipt to answer. A struct because these are made in C, one for each request."""

    call: Call
    peer: Peer
    lifespan: Any = None
    """What the server's lifespan gave; None where it has none."""
    dependencies: Any = None
    """What dependencies gave for this request, see `registry.dependencies`; None while there is nothing."""
    clock: CallClock | None = None
    """What stands still while the client is asked; None where there is no time limit."""
    own_result: Any = None
    """What the server's own handler gave to middleware round it, where somebody has to know; else None."""
    _asking: Asking | None = None
    pending: set[ThreadCall] | None = None
    has_ended: bool = False

    @property
    def request_id(self) -> Id:
        """The JSON-RPC id, with its type."""
        return self.call.id

    @property
    def method(self) -> str:
        """The request's method, e.g. `tools/call`."""
        return self.call.method

    @property
    def protocol_version(self) -> str:
        """The protocol version of this request, e.g. `2026-07-28`."""
        return self.call.version.name

    @property
    def client(self) -> ClientIdentity:
        """Who asks: identity and capabilities."""
        return self.call.client

    @property
    def origin(self) -> Origin:
        """Which way the request came, by whom, and with which headers. Found when it is asked for: few tools do."""
        return self.peer.channel.origin(self.call.id)

    @property
    def owner(self) -> tuple[object, str]:
        """Whose shares of what is limited this request takes from: its connection, and the client behind it."""
        session = self.call.session
        return session, session.owner

    @property
    def subject(self) -> str:
        """What is asked for, for the log: the name of the tool or prompt, the URI of the resource, else the method."""
        return subject_of(self.call.params) or self.call.method

    @property
    def asking(self) -> Asking:
        """The questions of this request and their answers. Raises InvalidParams for a state that was tampered with."""
        if self._asking is None:
            from mcpd.server.context.asking import asking_for  # few tools ask, and this costs start-up

            self._asking = asking_for(self.call, self.peer)
        return self._asking

    # -- what a legacy session remembers -----------------------------------------------------

    @property
    def is_stateless(self) -> bool:
        """Whether this is an older client's request without a session: what it sets for later is not kept."""
        return self.call.session.is_stateless

    def set_log_level(self, level: str) -> None:
        """The least severe level that the session's client wants to see."""
        self.call.session.log_level = level

    def watch(self, uri: str) -> int:
        """The session's client wants to hear when a resource changes; gives how many it watches."""
        return self.call.session.watch(uri)

    def unwatch(self, uri: str) -> None:
        """It no longer does."""
        self.call.session.unwatch(uri)

    def hold(self, size: int) -> None:
        """Take so many bytes of the memory budget for this request. Raises InternalError if they are not to be had."""
        self.call.hold(size)

    def listen(self, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Make this request a subscription; returns when the server ends it."""
        return self.peer.listen(self.call, wanted)

    # -- talking back ------------------------------------------------------------------------

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification of an extension. Raises LocalProtocolError if none has declared it."""
        call = self.call
        try:
            is_wanted = call.session.vocabulary.is_wanted(method, call.client)
        except KeyError:
            raise LocalProtocolError(f"{method} is no notification of an extension of this server") from None
        if is_wanted:
            await self.peer.notify(method, params, call)

    def do(self, work: Coroutine[Any, Any, T], *, is_question: bool = False) -> Awaitable[T]:
        """`work` to be awaited on the event loop's thread; from another thread it is done when this returns."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        if is_question and self.clock is not None:
            work = self.clock.stopped(work)
        if running is self.peer.loop:
            return work
        from mcpd.server.functions.threads import (
            ThreadCall,  # where all functions are async it is never needed
            this_thread,
        )

        pending = ThreadCall(work, self.peer.loop)
        if is_question:
            if self.pending is None:
                self.pending = set()
            self.pending.add(pending)
            if self.has_ended:
                pending.cancel()  # the request was over before anybody could know of this

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
            del work, pending  # what is raised here has this frame in its traceback

    def end(self) -> None:
        """The request is over: give up what a thread still waits for, such as the answer to a question."""
        self.has_ended = True
        if self.pending is not None:
            for pending in list(self.pending):
                pending.cancel()


_OPEN_TO_MANY = ("http", "websocket")


def is_asked(origin: Origin) -> bool:
    """Whether scopes mean anything where this came from."""
    return origin.transport in _OPEN_TO_MANY or origin.user.is_authenticated


def lacking(origin: Origin, scopes: Iterable[str]) -> list[str]:
    """Those of the scopes that are not there."""
    return [scope for scope in scopes if scope not in origin.user.scopes] if is_asked(origin) else []
