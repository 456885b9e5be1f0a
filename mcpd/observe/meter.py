"""Counts calls and sessions where they begin and end: in the session itself, which a `Meter` derives a class from.

An `Observer` is told of each call in two function calls with a struct each; that is ten times what counting may cost
(OBS-10). So what a call adds here is two readings of the clock, and a number more in a list.

Series are made of names that the server has registered, and of methods and versions that it knows: all else that a
client may send is `_other` (OBS-02).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, TypeAlias

from msgspec import field

from mcpd.backplane.base import Backplane
from mcpd.errors import McpdError, ProtocolError
from mcpd.observe.exposition import is_label
from mcpd.observe.families import BOUNDS, SHORT_BOUNDS, Family, Labels, Sample
from mcpd.protocol.channel import Channel
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.observer import SessionObserver
from mcpd.protocol.session import Call, Session
from mcpd.protocol.versions.table import Version

MOST_SERIES = 5000
"""So many series of calls are kept; what would be one more is counted for the tool `_other`, with the error `_other`
if that is a new one too."""

_OTHER = "_other"
_TRANSPORTS = {"stdio": "pipe", "websocket": "tcp", "http": "tcp", "memory": "inproc"}
_PROTOCOLS = {"websocket": "websocket", "http": "http"}

_NONE: Mapping[str, Callable[[float], None]] = {}

_Key = tuple[str, str, str, str, str]
"""Transport, version, method, tool, error type; "" for none."""


class _Series:
    """One histogram. What is observed waits in a list, which is worked off together: that is ten times cheaper."""

    __slots__ = ("_bounds", "_counts", "_seconds", "_waiting", "take")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._bounds = bounds
        self._waiting: list[float] = []
        self._counts = [0] * (len(bounds) + 1)
        self._seconds = 0.0
        self.take = self._waiting.append
        """Count what took so many seconds."""

    def fold(self) -> None:
        """Work off what waits. Others may add to it meanwhile, but not fold."""
        taken = self._waiting[:]
        if not taken:
            return
        del self._waiting[: len(taken)]
        self._seconds += sum(taken)
        bounds = self._bounds
        least = bounds[0]
        slow = [seconds for seconds in taken if seconds > least]  # nearly all are not
        self._counts[0] += len(taken) - len(slow)
        for seconds in slow:
            self._counts[bisect_left(bounds, seconds)] += 1

    def sample(self, labels: Labels) -> Sample:
        """What was counted until now."""
        self.fold()
        return Sample(labels, self._seconds, tuple(self._counts))


_Takers: TypeAlias = dict[Version, dict[str, Callable[[float], None]]]
"""By version, and there by tool or method: what is given the seconds of a call that went well."""


class Meter(SessionObserver):
    """The calls and sessions of one server. `is_tool` says whether a tool of that name is registered now."""

    def __init__(self, is_tool: Callable[[str], object]) -> None:
        self._is_tool = is_tool
        self._series: dict[_Key, _Series] = {}
        self._takers: dict[tuple[str, bool], _Takers] = {}
        """By transport, and whether calls of tools are meant, or those of other methods."""
        self._durations: dict[tuple[str, str], _Series] = {}
        self._open: dict[tuple[str, str], int] = {}
        self._refused: dict[str, int] = {}
        self._commands: dict[tuple[str, str], _Series] = {}
        self._classes: dict[tuple[type, str], type[Session]] = {}
        self._folding = Lock()

    def session_class(self, base: type[Session], channel: Channel) -> type[Session]:
        """See `SessionObserver`."""
        transport = channel.origin().transport
        found = self._classes.get((base, transport))
        if found is None:
            found = self._classes[base, transport] = _metered(base, self, transport)
        return found

    # -- what the sessions say ---------------------------------------------------------------

    def takers(self, transport: str, *, of_tools: bool) -> _Takers:
        """What is given the seconds of calls that went well; `ended` fills it."""
        return self._takers.setdefault((transport, of_tools), {})

    def ended(self, call: Call, seconds: float, transport: str, error: str = "") -> None:
        """A call of any method has ended, with this error or none."""
        version, method, tool = call.version, call.method, ""
        if method == "tools/call":
            name = getattr(call.params, "name", "")
            tool = self._tool_label(name)
        # The method is one that the version or an extension has: else it would have been refused.
        series = self._of((transport, version.name, method, tool, error))
        series.take(seconds)
        if not error and tool != _OTHER:
            self.takers(transport, of_tools=bool(tool)).setdefault(version, {})[tool or method] = series.take

    def refused(self, reason: str) -> None:
        """Something was refused, with this code of JSON-RPC or status of HTTP. Not with a text of the client's."""
        self._refused[reason] = self._refused.get(reason, 0) + 1

    def watched_backplane(self, backplane: Backplane) -> Backplane:
        """See `SessionObserver`."""
        from mcpd.observe.timed_backplane import TimedBackplane  # most servers have none

        return TimedBackplane(backplane, self.commanded)

    def commanded(self, command: str, seconds: float, error: str) -> None:
        """The backplane was asked for something, and took so long; `error` is what went wrong, or empty."""
        series = self._commands.get((command, error))
        if series is None:
            series = self._commands[command, error] = _Series(SHORT_BOUNDS)
        series.take(seconds)

    def opened(self, session: Session, ended: asyncio.Future[McpdError | None], transport: str) -> None:
        """A session that lasts, until `ended` is done."""
        # Its version is agreed on later, so it is counted without.
        key = transport, ""
        self._open[key] = self._open.get(key, 0) + 1
        ended.add_done_callback(partial(self._closed, session, transport, perf_counter()))

    def _closed(self, session: Session, transport: str, opened: float, _: object) -> None:
        self._open[transport, ""] -= 1
        version = "" if session.version is None else session.version.name
        self._durations.setdefault((transport, version), _Series()).take(perf_counter() - opened)

    def _of(self, key: _Key) -> _Series:
        found = self._series.get(key)
        if found is None:
            transport, version, method, tool, error = key
            least = transport, version, method, tool and _OTHER, error and _OTHER
            if len(self._series) >= MOST_SERIES and key != least:
                # Codes of errors can be without end too: a server that asks others hands on theirs.
                with_error = transport, version, method, least[3], error
                return self._of(least if key == with_error or with_error not in self._series else with_error)
            found = self._series[key] = _Series()
        return found

    def _tool_label(self, name: Any) -> str:
        return name if isinstance(name, str) and is_label(name) and self._is_tool(name) else _OTHER

    # -- what is told ------------------------------------------------------------------------

    def fold(self) -> None:
        """Work off what waits to be counted: once a second, so that it takes little memory. On any thread."""
        with self._folding:
            for series in [*self._series.values(), *self._commands.values()]:
                series.fold()

    def families(self) -> list[Family]:
        """What was counted until now. On any thread."""
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


class _TimedCall(Call, eq=False):
    """A call that knows when it came, without a function call of ours."""

    began: float = field(default_factory=perf_counter)


def _metered(base: Any, meter: Meter, transport: str) -> type[Session]:
    """A class of sessions like `base` that tell `meter` of their calls.

    The functions of the base are looked up once, here: `super()` would cost each call a tenth of a microsecond.
    """
    respond, fail, refused, cancel, cancel_all = base.respond, base.fail, base.refused, base.cancel, base.cancel_all
    follow = getattr(base, "follow", None)
    tools, others = meter.takers(transport, of_tools=True), meter.takers(transport, of_tools=False)

    class MeteredSession(base):  # type: ignore[misc]
        __slots__ = ()

        call_class = _TimedCall

        def respond(self, answered: Call, result: Any) -> bytes | None:
            frame: bytes | None = respond(self, answered, result)
            if frame is None:
                return None
            seconds, take = perf_counter() - answered.began, None
            # Of a tool all the same, if it is what a task gave.
            is_error = getattr(result, "is_error", None)
            if not is_error:
                is_tool = answered.method == "tools/call"
                found = (tools if is_tool else others).get(answered.version, _NONE)
                take = found.get(answered.params.name if is_tool else answered.method)
            if take is None:  # the first of its series, or an error
                meter.ended(answered, seconds, transport, "tool_error" if is_error else "")
            else:
                take(seconds)
            return frame

        def fail(self, answered: Call, error: ProtocolError) -> bytes | None:
            frame: bytes | None = fail(self, answered, error)
            if frame is not None:
                meter.ended(answered, perf_counter() - answered.began, transport, str(error.code))
            return frame

        def refused(self, error: ProtocolError) -> None:
            refused(self, error)
            meter.refused(str(error.code))

        def cancel(self, request_id: Id | None) -> Call | None:
            cancelled: Call | None = cancel(self, request_id)
            if cancelled is not None:
                meter.ended(cancelled, perf_counter() - cancelled.began, transport, "cancelled")
            return cancelled

        def cancel_all(self) -> list[Call]:
            cancelled: list[Call] = cancel_all(self)
            for call in cancelled:
                meter.ended(call, perf_counter() - call.began, transport, "cancelled")
            return cancelled

        def follow(self, ended: asyncio.Future[McpdError | None]) -> None:
            if follow is not None:
                follow(self, ended)
            meter.opened(self, ended, transport)

    return MeteredSession
