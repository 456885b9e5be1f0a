"""Heartbeats: progress notifications for calls that report nothing, so that clients do not give up on them.

Many clients end a request after 60 seconds, and some of them wait longer if they receive progress. A call gets a
heartbeat when its client sent a `progressToken` and has received no progress for `heartbeat` seconds
(`Settings.heartbeat`). Loaded when the first such call has to wait.
"""

from __future__ import annotations

import weakref
from math import inf, nextafter
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from mcpd.protocol.channel import ResumableChannel
from mcpd.protocol.types.base import ProgressParams
from mcpd.server.context.peer import Peer

if TYPE_CHECKING:
    from mcpd.protocol.session import Call, Session

# The value of a heartbeat before the first real value. Smaller positive numbers exist, but some JSON libraries reject
# the smallest ones.
_LEAST = 1e-9

# A subscription lasts for hours by design, and its stream has no notifications but those that the client chose.
_SUBSCRIPTIONS = ("subscriptions/listen", "events/stream")


class Connection(Peer, Protocol):
    """The connection whose calls get heartbeats. `heartbeats` is None when no call needs them."""

    session: Session
    heartbeats: Heartbeats | None


class Heartbeats:
    """Sends heartbeats for the calls of one connection, from now until no call needs them.

    One timer serves all calls. It does not keep the connection alive, because HTTP has a connection for each request.
    """

    __slots__ = ("_connection", "_interval")

    def __init__(self, connection: Connection, interval: float) -> None:
        self._connection = weakref.ref(connection)
        self._interval = interval
        connection.loop.call_later(interval, self._tick)

    def _tick(self) -> None:
        # Send the heartbeats that are due, and come back when the next call is due.
        connection = self._connection()
        if connection is None:
            return

        now = perf_counter()
        nearest = inf
        for call in connection.session.in_flight:
            if has_token(call):
                silent = now - max(call.began, call.reported)
                if silent >= self._interval:
                    self._beat(connection, call, now)
                    silent = 0.0
                nearest = min(nearest, self._interval - silent)

        if nearest == inf:
            connection.heartbeats = None
        else:
            connection.loop.call_later(nearest, self._tick)

    def _beat(self, connection: Connection, call: Call, now: float) -> None:
        call.reported = now
        last = call.report
        real = 0.0 if last is None else float(last.progress)
        value = next_value(real if call.beat is None else max(real, call.beat))
        if value == inf or connection.channel.is_congested:
            return  # a client that reads slowly has enough to read
        if isinstance(connection.channel, ResumableChannel) and connection.channel.is_away(call.id):
            return  # they would be stored, in place of messages that the client has missed

        total, message = (None, None) if last is None else (last.total, last.message)
        params = ProgressParams(
            progress_token=call.meta.progress_token,  # type: ignore[union-attr, arg-type]  # has_token
            progress=value,
            total=total,
            message=message or f"still running ({now - call.began:.0f} s)",
        )
        pause = connection.notify_nowait("notifications/progress", params, call)
        if pause is not None:
            pause.close()
        call.report, call.beat = last, value


def has_token(call: Call) -> bool:
    """Return whether the client wants progress of this call."""
    return call.meta is not None and call.meta.progress_token is not None and call.method not in _SUBSCRIPTIONS


def rise(params: ProgressParams, call: Call) -> None:
    """Raise the progress above the value of the last heartbeat, if the function has sent a smaller one.

    On a call that waits for a task, the progress of the task has a token of its own, and is not changed.
    """
    is_own = call.meta is not None and call.meta.progress_token == params.progress_token
    if is_own and call.beat is not None and params.progress <= call.beat:
        params.progress = call.beat = next_value(call.beat)


def next_value(value: float) -> float:
    """Return the smallest value to send after `value`, by so little that real values remain larger."""
    return _LEAST if abs(value) < _LEAST else nextafter(value, inf)
