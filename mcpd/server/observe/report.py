"""The metrics, status and health of one server, computed when they are requested.

A status contains names and counts only: arguments, URIs and texts of errors may contain secrets (OBS-12). A thread
checks the event loop: a timer in the loop itself would cost every call more than metrics may.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from mcpd import __version__
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.printable import mask_text, printable
from mcpd.server.dispatcher.connection import cancelled_calls
from .http_thread import ObserverResponse
from .metrics import Family, Sample, process_families

if TYPE_CHECKING:
    from mcpd.protocol.types.base import Implementation
    from mcpd.server.http.core import EndpointStatus
    from .metrics import Kind, Meter

STUCK_SECONDS = 10.0
"""Seconds after which a blocked event loop is unhealthy (OBS-13)."""

_WINDOW = 30.0


class Heartbeat:
    """Measures the lag of an event loop. Call `beat` periodically on another thread; other methods on any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: float | None = None
        # The maximum of the current window and of the one before, which together are the last 30 to 60 seconds.
        self._worst = self._before = 0.0
        self._since = monotonic()

    def beat(self) -> None:
        """Schedule a callback in the loop, unless the last one has not run yet."""
        if self._asked is None:
            self._asked = monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # closed
                self._asked = None

    def _answer(self) -> None:
        now = monotonic()
        if now - self._since > _WINDOW:
            self._before, self._worst, self._since = self._worst, 0.0, now
        if self._asked is not None:
            self._worst = max(self._worst, now - self._asked)
        self._asked = None

    @property
    def late(self) -> float:
        """Seconds since the callback was scheduled that has not run yet; 0.0 if it has run."""
        asked = self._asked
        return 0.0 if asked is None else monotonic() - asked

    @property
    def lag(self) -> float:
        """The longest delay of a callback in the last 30 to 60 seconds."""
        return max(self._worst, self._before, self.late)


MOST_CALLS = 100
"""Running calls that a status describes; further ones are only counted."""


class RunningCall(Struct, frozen=True):
    """A running call."""

    method: str
    name: str = ""
    """The name of the tool or prompt."""
    seconds: float | None = None
    """How long it has been running."""
    version: str = ""


class LoggedError(Struct, frozen=True):
    """An error that was logged."""

    at: float
    """In seconds since 1970."""
    logger: str
    message: str
    error: str = ""
    """The class of the exception."""


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """One worker process of `--workers`."""

    number: int
    """Its number among the workers, from 1."""
    pid: int
    state: str
    """starting, ready, stuck or stopping."""
    uptime_seconds: float
    in_flight: int
    deaths: int
    """The number of its predecessors that have crashed."""


class MountStatus(Struct, frozen=True, kw_only=True):
    """One mounted server."""

    name: str
    target: str
    """Its command or URL, without secrets."""
    state: str
    """not started, starting, running, idle (it starts with the next request), failed, needs a login or refused."""
    era: str = ""
    """legacy, modern, or "" before the first connection."""
    instances: int = 0
    calls: int = 0
    failures: int = 0
    last_error: str = ""


def merged(mounts: Iterable[MountStatus]) -> tuple[MountStatus, ...]:
    """Return the mounts of all workers, with the sums of their counts."""
    found: dict[str, MountStatus] = {}
    for each in mounts:
        other = found.get(each.name, each)
        counts = {} if other is each else {one: getattr(other, one) + getattr(each, one) for one in _COUNTS}
        found[each.name] = replace(each, **counts, last_error=each.last_error or other.last_error)
    return tuple(found.values())


_COUNTS = ("instances", "calls", "failures")


class Running(Struct, frozen=True):
    """The open connections and running calls of a server."""

    clients: dict[str, int]
    """The number of connections and sessions by protocol version; "" before a version was negotiated."""
    sessions: int
    """The number of initialized sessions of legacy versions."""
    in_flight: int
    calls: tuple[RunningCall, ...]
    cancelled: tuple[RunningCall, ...] = ()


class Status(Struct, frozen=True, kw_only=True):
    """The status of a running server."""

    pid: int
    mcpd: str
    """The version of mcpd."""
    name: str
    version: str
    target: str = ""
    state: Literal["starting", "ready", "stopping", "stuck"] = "ready"
    since: float
    """When the server started, in seconds since 1970."""
    uptime_seconds: float
    urls: tuple[str, ...] = ()
    clients: dict[str, int] = {}
    sessions: int = 0
    streams: int = 0
    """Open event streams over HTTP."""
    in_flight: int = 0
    calls: tuple[RunningCall, ...] = ()
    cancelled: tuple[RunningCall, ...] = ()
    """Cancelled calls whose functions still run."""
    backplane: str | None = None
    """None without a backplane, "" if it can be reached, otherwise the problem."""
    loop_lag_seconds: float = 0.0
    errors: tuple[LoggedError, ...] = ()
    mounts: tuple[MountStatus, ...] = ()
    events: dict[str, int] = {}
    """Events that were emitted, delivered and failed, and subscriptions; empty for a server without events."""
    workers: tuple[WorkerStatus, ...] = ()
    """The workers of `--workers`. The other members are sums over them, except for `pid`, which is the parent's."""


def running(connections: Iterable[Any]) -> Running:
    """Count the open sessions and running calls of these connections. Those without a session, as HTTP routes, are
    skipped."""
    clients: Counter[str] = Counter()
    calls: list[RunningCall] = []
    threads = sys.modules.get("mcpd.server.functions.threads")
    cancelled: list[Any] = cancelled_calls() if threads is None else cancelled_calls() + threads.cancelled_calls()
    in_flight = sessions = 0
    now = perf_counter()
    for connection in connections:
        session = getattr(connection, "session", None)
        if session is None:
            continue
        clients["" if session.version is None else session.version.name] += 1
        sessions += session.is_initialized and not session.opening.is_stateless
        for call in session.in_flight:
            in_flight += 1
            if len(calls) < MOST_CALLS:
                calls.append(_described(call, now))

    described = tuple(_described(call, now) for call in cancelled[:MOST_CALLS])
    return Running(dict(clients), sessions, in_flight, tuple(calls), described)


def _described(call: Any, now: float) -> RunningCall:
    return RunningCall(printable(call.method), _name_of(call), round(now - call.began, 3), call.version.name)


def _name_of(call: Any) -> str:
    name = getattr(call.params, "name", "") if SUBJECTS.get(call.method) == "name" else ""
    return printable(name) if isinstance(name, str) else ""


def _without_details(record: logging.LogRecord) -> str:
    # Return the text of a log record without the text of an exception and without the URI of a resource.
    template, details, _ = str(record.msg).partition(": %s")
    values = record.args if isinstance(record.args, tuple) else ()
    if template.startswith("resource %s"):
        values = ("…", *values[1:])
    try:
        return template % values[: template.count("%")] if details else str(template % values)
    except Exception:
        return template


class LastErrors(logging.Handler):
    """Collects the last errors that mcpd has logged, without the texts of exceptions."""

    def __init__(self, most: int = 5) -> None:
        super().__init__(logging.ERROR)
        self._kept: deque[LoggedError] = deque(maxlen=most)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0] if record.exc_info else None
        message = printable(mask_text(_without_details(record)), 200)
        self._kept.append(LoggedError(time.time(), record.name, message, "" if error is None else error.__name__))

    def kept(self) -> tuple[LoggedError, ...]:
        """Return the errors, the newest last."""
        return tuple(self._kept)


JSON = "application/json"


_EVENTS: dict[str, tuple[Kind, str]] = {
    "emitted": ("counter", "Events that were emitted, or found by a source."),
    "delivered": ("counter", "Events that went out, counted for each subscriber."),
    "failed": ("counter", "Attempts of webhooks, and functions of events, that failed."),
    "subscriptions": ("gauge", "Streams and webhooks that are subscribed to events."),
}


class _Service(NamedTuple):
    # The status of all HTTP applications of a server.
    streams: int
    backplane: str | None
    refused: int
    dropped: int


class Report:
    """The state of a server. `connections` returns the open connections, `target` is the served file or folder.

    It is read in the event loop of the server, or on another thread while the loop is blocked.
    """

    def __init__(self, identity: Implementation, connections: Callable[[], Iterable[Any]], target: str = "") -> None:
        self._identity = identity
        self._connections = connections
        self._target = target
        self._errors = LastErrors()
        self._since = time.time()
        self.state: Literal["starting", "ready", "stopping"] = "starting"
        self.urls: list[str] = []
        self.heartbeat: Heartbeat | None = None
        """Measures the lag of the event loop; None if it is not observed."""
        self.meter: Meter | None = None
        """Counts calls; None without metrics."""
        self.services: list[Callable[[], EndpointStatus]] = []
        self.mounts: Callable[[], Iterable[MountStatus]] = tuple
        """Returns the status of each mounted server."""
        self.events: Callable[[], dict[str, int]] = dict
        """Returns the counts of `EventsExtension.counts`."""
        self.sources: list[Callable[[], Iterable[Family]]] = [self._own_families, process_families]
        """Sources of `/metrics` besides the meter. Other modules may add some."""

    def start(self) -> None:
        """Start collecting the last errors."""
        logging.getLogger("mcpd").addHandler(self._errors)

    def stop(self) -> None:
        """Stop collecting errors. Safe to call twice."""
        logging.getLogger("mcpd").removeHandler(self._errors)

    def pulse(self) -> None:
        """Check the event loop, and update the meter. Call it once a second, on another thread."""
        if self.heartbeat is not None:
            self.heartbeat.beat()
        if self.meter is not None:
            self.meter.fold()

    # -- requests ----------------------------------------------------------------------------

    def health(self) -> ObserverResponse:
        """Return whether the event loop is running."""
        late = 0.0 if self.heartbeat is None else self.heartbeat.late
        if late > STUCK_SECONDS:
            return ObserverResponse(503, f"the event loop has been blocked for {late:.0f} s\n".encode())
        return ObserverResponse(200, b"ok\n")

    def readiness(self) -> ObserverResponse:
        """Return whether the server accepts clients."""
        if self.state != "ready":
            return ObserverResponse(503, b"shutting down\n" if self.state == "stopping" else b"starting\n")
        return self.health()

    def families(self) -> list[Family]:
        """Return all metrics of this process."""
        counted = () if self.meter is None else self.meter.families()
        return [*counted, *(family for source in self.sources for family in source())]

    def status(self) -> Status:
        """Return the status that `mcpd status` shows."""
        now, service = running(self._connections()), self._service()
        lag = 0.0 if self.heartbeat is None else self.heartbeat.lag
        late = 0.0 if self.heartbeat is None else self.heartbeat.late
        return Status(
            pid=os.getpid(),
            mcpd=__version__,
            name=self._identity.name,
            version=self._identity.version,
            target=self._target,
            state="stuck" if self.state == "ready" and late > STUCK_SECONDS else self.state,
            since=self._since,
            uptime_seconds=round(time.time() - self._since, 3),
            urls=tuple(self.urls),
            clients=now.clients,
            sessions=now.sessions,
            streams=service.streams,
            in_flight=now.in_flight,
            calls=now.calls,
            cancelled=now.cancelled,
            backplane=service.backplane,
            loop_lag_seconds=round(lag, 4),
            errors=self._errors.kept(),
            mounts=tuple(self.mounts()),
            events=self.events(),
        )

    # -- sources -----------------------------------------------------------------------------

    def _service(self) -> _Service:
        known = [facts() for facts in self.services]
        backplanes = [each.backplane for each in known if each.backplane is not None]
        # The problem of one application is the problem of the server.
        return _Service(
            sum(each.streams for each in known),
            max(backplanes, default=None),
            sum(each.refused for each in known),
            sum(each.dropped for each in known),
        )

    def _own_families(self) -> list[Family]:
        now, service = running(self._connections()), self._service()
        build = (("version", __version__), ("server_name", self._identity.name),
                 ("server_version", self._identity.version))  # fmt: skip
        families = [
            Family("mcpd_build", "info", "Which mcpd serves which server.", (Sample(build, 1),)),
            Family("mcpd_requests_in_flight", "gauge", "Requests not answered yet.", (Sample(value=now.in_flight),)),
            Family("mcpd_streams", "gauge", "Event streams of HTTP that are open.", (Sample(value=service.streams),)),
        ]
        if self.heartbeat is not None:
            lag = Sample(value=self.heartbeat.lag)
            text = "The longest delay of the event loop in the last minute."
            families.append(Family("mcpd_loop_lag_seconds", "gauge", text, (lag,), most=True))

        if service.backplane is not None:
            is_up = Sample(value=float(not service.backplane))
            families.append(Family("mcpd_backplane_up", "gauge", "Processes that reach the backplane.", (is_up,)))
            for name, text, count in (
                ("refused", "Messages of the backplane that were forged, too old or repeated.", service.refused),
                ("dropped", "Messages to other processes that could not be sent.", service.dropped),
            ):
                families.append(Family(f"mcpd_backplane_{name}", "counter", text, (Sample(value=count),)))

        for name, count in self.events().items():
            kind, text = _EVENTS[name]
            families.append(Family(f"mcpd_events_{name}", kind, text, (Sample(value=count),)))

        return families
