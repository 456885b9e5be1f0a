"""What is told of one server: its metrics, its state, whether it is well. Made where it is asked, kept nowhere."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from mcpd import __version__
from mcpd.observe.exposition import OPEN_METRICS, TEXT, expose, wants_open_metrics
from mcpd.observe.families import Family, Sample
from mcpd.observe.heartbeat import STUCK_SECONDS, Heartbeat
from mcpd.observe.outside import Said
from mcpd.observe.process import process_families
from mcpd.observe.status import LastErrors, Status, running

if TYPE_CHECKING:
    from mcpd.observe.meter import Meter
    from mcpd.protocol.types.base import Implementation

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
