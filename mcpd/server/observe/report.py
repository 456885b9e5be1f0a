"""What is told of one server: its metrics, its state, whether it is well. Made where it is asked, kept nowhere."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from mcpd import __version__
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.printable import mask_text, printable
from mcpd.server.observe.metrics import OPEN_METRICS, TEXT, Family, Sample, expose, process_families, wants_open_metrics
from mcpd.server.observe.outside import Said

if TYPE_CHECKING:
    from mcpd.protocol.types.base import Implementation
    from mcpd.server.observe.meter import Meter


STUCK_SECONDS = 10.0
"""A loop that has not turned for so long is not healthy (OBS-13)."""

_WINDOW = 30.0


class Heartbeat:
    """Of the loop that it is made for. `beat` is called now and then on another thread, all else on any."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: float | None = None
        # The worst of the window that runs, and of the one before: a reader sees the last 30 to 60 seconds.
        self._worst = self._before = 0.0
        self._since = monotonic()

    def beat(self) -> None:
        """Ask the loop to say that it is there; nothing while it still owes the last answer."""
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
        """For how many seconds it owes an answer; 0.0 if it owes none."""
        asked = self._asked
        return 0.0 if asked is None else monotonic() - asked

    @property
    def lag(self) -> float:
        """The longest that it took to answer, in the last half minute to minute, in seconds."""
        return max(self._worst, self._before, self.late)


MOST_CALLS = 100
"""Of so many calls more is told than that they run."""


class CallNow(Struct, frozen=True):
    """A call that is not answered yet."""

    method: str
    name: str = ""
    """Of the tool or prompt."""
    seconds: float | None = None
    """How long it has been running."""
    version: str = ""


class ErrorThen(Struct, frozen=True):
    """Something that was logged as an error."""

    at: float
    """In seconds since 1970."""
    logger: str
    message: str
    error: str = ""
    """The type of the exception."""


class WorkerNow(Struct, frozen=True, kw_only=True):
    """One of several processes that serve together."""

    number: int
    """Its place among them, from 1."""
    pid: int
    state: str
    """starting, ready, stuck or stopping."""
    uptime_seconds: float
    in_flight: int
    deaths: int
    """How many before it have died in its place."""


class Running(Struct, frozen=True):
    """What the connections of a server have open."""

    clients: dict[str, int]
    """How many connections and sessions there are of each protocol version; "" where none was agreed on yet."""
    sessions: int
    """Those of the legacy eras, once the client has said that it is ready."""
    in_flight: int
    calls: tuple[CallNow, ...]


class Status(Struct, frozen=True, kw_only=True):
    """A server that runs."""

    pid: int
    mcpd: str
    """Our version."""
    name: str
    version: str
    target: str = ""
    state: Literal["starting", "ready", "stopping", "stuck"] = "ready"
    since: float
    """When it began to serve, in seconds since 1970."""
    uptime_seconds: float
    urls: tuple[str, ...] = ()
    clients: dict[str, int] = {}
    sessions: int = 0
    streams: int = 0
    """Event streams of HTTP that are open."""
    in_flight: int = 0
    calls: tuple[CallNow, ...] = ()
    backplane: str | None = None
    """None without one; "" if it is well, else what is wrong with it."""
    loop_lag_seconds: float = 0.0
    errors: tuple[ErrorThen, ...] = ()
    workers: tuple[WorkerNow, ...] = ()
    """Of `--workers`; all else is of them together, but for `pid`, which is the parent's."""


def running(connections: Iterable[Any]) -> Running:
    """What is open in these connections; those that have no session, such as the routes of HTTP, are passed over."""
    clients: Counter[str] = Counter()
    calls: list[CallNow] = []
    in_flight = sessions = 0
    now = perf_counter()
    for connection in connections:
        session = getattr(connection, "session", None)
        if session is None:
            continue
        clients["" if session.version is None else session.version.name] += 1
        sessions += session.is_initialized and not session.is_stateless
        for call in session.in_flight:
            in_flight += 1
            if len(calls) < MOST_CALLS:
                seconds = round(now - call.began, 3)
                calls.append(CallNow(printable(call.method), _name_of(call), seconds, call.version.name))
    return Running(dict(clients), sessions, in_flight, tuple(calls))


def _name_of(call: Any) -> str:
    name = getattr(call.params, "name", "") if SUBJECTS.get(call.method) == "name" else ""
    return printable(name) if isinstance(name, str) else ""


def _without_details(record: logging.LogRecord) -> str:
    """What a record says, up to where an error's own text begins, and without the URI of a resource."""
    template, details, _ = str(record.msg).partition(": %s")
    values = record.args if isinstance(record.args, tuple) else ()
    if template.startswith("resource %s"):
        values = ("…", *values[1:])
    try:
        return template % values[: template.count("%")] if details else str(template % values)
    except Exception:
        return template


class LastErrors(logging.Handler):
    """Keeps the last errors that mcpd has logged, without what the exceptions say."""

    def __init__(self, most: int = 5, clock: Callable[[], float] = time.time) -> None:
        super().__init__(logging.ERROR)
        self._clock = clock
        self._kept: deque[ErrorThen] = deque(maxlen=most)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        error = record.exc_info[0] if record.exc_info else None
        message = printable(mask_text(_without_details(record)), 200)
        self._kept.append(ErrorThen(self._clock(), record.name, message, "" if error is None else error.__name__))

    def kept(self) -> tuple[ErrorThen, ...]:
        """The newest last."""
        return tuple(self._kept)


JSON = "application/json"


class Facts(Protocol):
    """What an application of HTTP knows of itself now."""

    @property
    def streams(self) -> int:
        """The event streams that are open."""

    @property
    def backplane(self) -> str | None:
        """None without one; "" if it is well, else what is wrong with it."""

    @property
    def refused(self) -> int:
        """What came over it and was forged, too old, or said twice."""

    @property
    def dropped(self) -> int:
        """What was for other processes and could not be said."""


class _Service(NamedTuple):
    """All applications of a server as one."""

    streams: int
    backplane: str | None
    refused: int
    dropped: int


class Report:
    """Of a server of this identity. `connections` gives all that are open now, `target` is what was served.

    It is asked in the loop that serves, or while that does not turn on another thread.
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
        """Says how late the loop is; None where nobody looks."""
        self.meter: Meter | None = None
        """Counts calls; None where that is not wanted."""
        self.services: list[Callable[[], Facts]] = []
        self.sources: list[Callable[[], Iterable[Family]]] = [self._own_families, process_families]
        """What `/metrics` has, beside what the meter counts: others add what they know."""

    def start(self) -> None:
        """Keep the last errors from now on."""
        logging.getLogger("mcpd").addHandler(self._errors)

    def stop(self) -> None:
        """Keep no more. Safe to call twice."""
        logging.getLogger("mcpd").removeHandler(self._errors)

    def pulse(self) -> None:
        """To be called once a second, on a thread of its own."""
        if self.heartbeat is not None:
            self.heartbeat.beat()
        if self.meter is not None:
            self.meter.fold()

    # -- what is told ------------------------------------------------------------------------

    def health(self) -> Said:
        """Whether the event loop turns."""
        late = 0.0 if self.heartbeat is None else self.heartbeat.late
        if late > STUCK_SECONDS:
            return Said(503, f"the event loop has not turned for {late:.0f} s\n".encode())
        return Said(200, b"ok\n")

    def readiness(self) -> Said:
        """Whether it takes clients."""
        if self.state != "ready":
            return Said(503, b"shutting down\n" if self.state == "stopping" else b"starting\n")
        return self.health()

    def metrics(self, accept: str | None) -> Said:
        """All metrics as text, in the format that an `Accept` asks for."""
        is_open = wants_open_metrics(accept)
        return Said(200, expose(self.families(), open_metrics=is_open), OPEN_METRICS if is_open else TEXT)

    def families(self) -> list[Family]:
        """All metrics of this process."""
        counted = () if self.meter is None else self.meter.families()
        return [*counted, *(family for source in self.sources for family in source())]

    def status(self) -> Status:
        """What `mcpd status` shows."""
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
            backplane=service.backplane,
            loop_lag_seconds=round(lag, 4),
            errors=self._errors.kept(),
        )

    # -- what is known -----------------------------------------------------------------------

    def _service(self) -> _Service:
        known = [facts() for facts in self.services]
        backplanes = [each.backplane for each in known if each.backplane is not None]
        # Of several the one that is not well.
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
        found = [
            Family("mcpd_build", "info", "Which mcpd serves which server.", (Sample(build, 1),)),
            Family("mcpd_requests_in_flight", "gauge", "Requests not answered yet.", (Sample(value=now.in_flight),)),
            Family("mcpd_streams", "gauge", "Event streams of HTTP that are open.", (Sample(value=service.streams),)),
        ]
        if self.heartbeat is not None:
            lag = Sample(value=self.heartbeat.lag)
            text = "The longest that the event loop took to answer, in the last minute."
            found.append(Family("mcpd_loop_lag_seconds", "gauge", text, (lag,), most=True))
        if service.backplane is not None:
            is_up = Sample(value=float(not service.backplane))
            found.append(Family("mcpd_backplane_up", "gauge", "Processes that reach the backplane.", (is_up,)))
            for name, text, count in (
                ("refused", "Messages of the backplane that were forged, too old or said twice.", service.refused),
                ("dropped", "Messages for other processes that could not be said.", service.dropped),
            ):
                found.append(Family(f"mcpd_backplane_{name}", "counter", text, (Sample(value=count),)))
        return found
