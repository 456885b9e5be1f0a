"""Counts calls, sessions, refusals and backplane commands, as hooks of the sessions.

A call costs two readings of the clock and one number that is appended to a list (OBS-10). Labels are names that the
server has registered, and methods and versions that it knows; any other name from a client is counted as `_other`
(OBS-02).
"""

from __future__ import annotations

from bisect import bisect_left
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING

from mcpd.protocol.observer import OutcomeKind
from mcpd.protocol.session import SessionHooks
from mcpd.server.dispatcher.observing import HookedObserver
from mcpd.server.observe.metrics import BOUNDS, SHORT_BOUNDS, Family, Labels, Sample, is_label

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.protocol.session import Call, Session

MOST_SERIES = 5000
"""Series of calls that are kept. Further ones are counted for the tool `_other`, and the error `_other` if that is new
too."""

_OTHER = "_other"
_TRANSPORTS = {"stdio": "pipe", "websocket": "tcp", "http": "tcp", "memory": "inproc"}
_PROTOCOLS = {"websocket": "websocket", "http": "http"}

_Key = tuple[str, str, str, str, str]
"""Transport, version, method, tool, error type; "" for none."""


class _Series:
    """One histogram. Observed values wait in a list until `fold` sorts them into the buckets."""

    __slots__ = ("_bounds", "_counts", "_seconds", "_waiting", "observe")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._bounds = bounds
        self._waiting: list[float] = []
        self._counts = [0] * (len(bounds) + 1)
        self._seconds = 0.0
        self.observe = self._waiting.append
        """Count something that took this many seconds. Safe from any thread."""

    def fold(self) -> None:
        """Sort the waiting values into the buckets. Only one thread may fold at a time."""
        observed = self._waiting[:]
        del self._waiting[: len(observed)]
        self._seconds += sum(observed)
        for seconds in observed:
            self._counts[bisect_left(self._bounds, seconds)] += 1

    def sample(self, labels: Labels) -> Sample:
        """Return the histogram as it is now."""
        self.fold()
        return Sample(labels, self._seconds, tuple(self._counts))


class Meter(HookedObserver):
    """The metrics of one server's calls and sessions. `is_tool` says whether a tool of a name is registered."""

    def __init__(self, is_tool: Callable[[str], object]) -> None:
        self._is_tool = is_tool
        self._series: dict[_Key, _Series] = {}
        self._durations: dict[tuple[str, str], _Series] = {}
        self._open: dict[tuple[str, str], int] = {}
        self._refused: dict[str, int] = {}
        self._commands: dict[tuple[str, str], _Series] = {}
        self._hooks: dict[str, _MeterHooks] = {}
        self._folding = Lock()

    # -- counting ----------------------------------------------------------------------------

    def hooks_for(self, transport: str) -> SessionHooks:
        hooks = self._hooks.get(transport)
        if hooks is None:
            hooks = self._hooks[transport] = _MeterHooks(self, transport)
        return hooks

    def call_took(self, call: Call, seconds: float, transport: str, error: str = "") -> None:
        """Count a call. `error` is its error type, empty for success."""
        # The version or an extension has the method; otherwise the request would have been refused.
        version, method = call.version.name, call.method
        name = call.params.name if method == "tools/call" else ""
        series = self._series.get((transport, version, method, name, error))
        if series is None:
            series = self._new_series((transport, version, method, name and self._tool_label(name), error))
        series.observe(seconds)

    def refused(self, reason: str) -> None:
        """See `HookedObserver`. `reason` must not be a text of the client's."""
        self._refused[reason] = self._refused.get(reason, 0) + 1

    def backplane_answered(self, command: str, seconds: float, error: str) -> None:
        series = self._commands.get((command, error))
        if series is None:
            series = self._commands[command, error] = _Series(SHORT_BOUNDS)
        series.observe(seconds)

    def session_opened(self, transport: str) -> None:
        """Count a session that is open. It has no version yet."""
        key = transport, ""
        self._open[key] = self._open.get(key, 0) + 1

    def session_closed(self, session: Session, transport: str, seconds: float) -> None:
        """Count a session that has ended."""
        self._open[transport, ""] -= 1
        version = "" if session.version is None else session.version.name
        self._durations.setdefault((transport, version), _Series()).observe(seconds)

    def _new_series(self, key: _Key) -> _Series:
        transport, version, method, tool, error = key
        rest = transport, version, method, tool and _OTHER, error and _OTHER
        if len(self._series) >= MOST_SERIES and key != rest:
            # Error codes can be unlimited too: a server that calls other servers passes on theirs.
            with_error = transport, version, method, rest[3], error
            key = rest if key == with_error or with_error not in self._series else with_error
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = _Series()
        return found

    def _tool_label(self, name: str) -> str:
        return name if is_label(name) and self._is_tool(name) else _OTHER

    # -- reading -----------------------------------------------------------------------------

    def fold(self) -> None:
        """Sort waiting values into the buckets, so that they take little memory. Call it once a second."""
        with self._folding:
            for series in [*self._series.values(), *self._commands.values()]:
                series.fold()

    def families(self) -> list[Family]:
        """Return all metrics. Safe from any thread."""
        with self._folding:
            return self._families()

    def _families(self) -> list[Family]:
        calls = [series.sample(_call_labels(key)) for key, series in list(self._series.items())]
        lives = [series.sample(_session_labels(*key)) for key, series in list(self._durations.items())]
        sessions = [Sample(_session_labels(*key), count) for key, count in list(self._open.items())]
        commands = [series.sample(_command_labels(*key)) for key, series in list(self._commands.items())]
        refused = [Sample((("reason", reason),), count) for reason, count in list(self._refused.items())]
        return [
            Family(
                "mcp_server_operation_duration_seconds", "histogram",
                "How long requests took, from their receipt to the answer.", tuple(calls),
            ),
            Family(
                "mcp_server_session_duration_seconds", "histogram", "How long sessions lasted that have ended.",
                tuple(lives),
            ),
            Family("mcpd_sessions", "gauge", "Sessions and connections that are open.", tuple(sessions)),
            Family(
                "mcpd_refused", "counter", "Requests refused before any work, by JSON-RPC code or HTTP status.",
                tuple(refused),
            ),
            Family(
                "mcpd_backplane_command_seconds", "histogram", "How long the backplane took to answer.",
                tuple(commands), bounds=SHORT_BOUNDS,
            ),
        ]  # fmt: skip


def _call_labels(key: _Key) -> Labels:
    transport, version, method, tool, error = key
    named = (
        ("mcp_method_name", method),
        ("gen_ai_tool_name", tool),
        ("error_type", error),
    )
    return tuple(pair for pair in named if pair[1]) + _session_labels(transport, version)


def _command_labels(command: str, error: str) -> Labels:
    named = (("command", command), ("error_type", error))
    return tuple(pair for pair in named if pair[1])


def _session_labels(transport: str, version: str) -> Labels:
    named = (
        ("mcp_protocol_version", version),
        ("network_transport", _TRANSPORTS.get(transport, _OTHER)),
        ("network_protocol_name", _PROTOCOLS.get(transport, "")),
    )
    return tuple(pair for pair in named if pair[1])


class _MeterHooks(SessionHooks):
    """Counts the calls of all connections over one transport."""

    def __init__(self, meter: Meter, transport: str) -> None:
        self._meter = meter
        self._transport = transport

    def connection_opened(self) -> None:
        self._meter.session_opened(self._transport)

    def connection_closed(self, session: Session, seconds: float) -> None:
        self._meter.session_closed(session, self._transport, seconds)

    def call_ended(self, call: Call, kind: OutcomeKind, code: int | None = None, is_error: bool = False) -> None:
        error = "tool_error" if is_error else "cancelled" if kind == "cancelled" else "" if code is None else str(code)
        self._meter.call_took(call, perf_counter() - call.began, self._transport, error)

    def refused(self, reason: str) -> None:
        self._meter.refused(reason)
