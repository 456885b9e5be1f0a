"""The one timer of a WebSocket connection: for its handshake, its pings, and the time that it has to close.

A client that was silent is pinged, one that does not answer is given up. What counts as a sign of life is said here;
what a ping is, and how a connection is given up, is the connection's (`websocket`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVarTuple

from websockets.frames import CloseCode

from .websocket_owner import WebSocketLimits

__all__ = ["ASK", "KeepAlive", "PingedConnection", "unread_asks"]

ASK = b"mcpd-"
"""How pings begin that are sent to learn whether all before them was read; their number follows."""


A = TypeVarTuple("A")


class PingedConnection(Protocol):
    """The connection, as far as pings go."""

    was_heard: bool
    """Anything came since this was last looked at."""
    is_held: bool
    """We do not read of it: its answer to a ping would wait."""

    @property
    def taken_bytes(self) -> int | None:
        """How much its client has taken of what was written; None where it is not open."""

    @property
    def is_congested(self) -> bool:
        """Its client does not take what is written."""

    def ping(self) -> None:
        """Ask for a sign of life."""

    def fail(self, code: CloseCode, reason: str) -> None:
        """Give it up."""


class KeepAlive:
    """The timer of one connection, which it is given each time: who held it would keep it after its end."""

    __slots__ = ("_limits", "_loop", "_taken_bytes", "_timer", "_was_pinged")

    def __init__(self, limits: WebSocketLimits, loop: asyncio.AbstractEventLoop) -> None:
        self._limits = limits
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._was_pinged = False
        self._taken_bytes = 0

    def set(self, delay: float, action: Callable[[*A], object], *arguments: *A) -> None:
        """Do that then, and not what was to be done before."""
        self.cancel()
        self._timer = self._loop.call_later(delay, action, *arguments)

    def cancel(self) -> None:
        """Do nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def answered(self, connection: PingedConnection) -> None:
        """A pong came."""
        if self._was_pinged:
            self._was_pinged = connection.was_heard = False
            self.set(self._limits.ping_interval, self.look, connection)

    def look(self, connection: PingedConnection) -> None:
        """Every so often: ping a client that was silent, give up one that did not answer.

        Anything that arrives is a sign of life. While we do not read because the client does not, what
        it takes is; its answer to a ping would wait behind that.
        """
        limits = self._limits
        taken = connection.taken_bytes
        if taken is None or not limits.ping_interval:
            return

        takes = connection.is_congested and taken != self._taken_bytes
        if connection.was_heard or connection.is_held or takes:
            connection.was_heard = self._was_pinged = False
            delay = limits.ping_interval
        elif not self._was_pinged:
            self._was_pinged = True
            connection.ping()
            delay = limits.ping_timeout
        else:
            connection.fail(CloseCode.INTERNAL_ERROR, f"no answer to a ping within {limits.ping_timeout:g} s")
            return

        self._taken_bytes = taken
        self.set(delay, self.look, connection)


def unread_asks(asked: int, pong: bytes) -> int:
    """How many of so many pings of that kind are not answered yet, given the pong to one: it may stand for several."""
    number = pong[len(ASK) :]
    return max(0, asked - int(number)) if number.isdigit() and len(number) < 10 else asked
