"""All workers as one server: the sum of their metrics, and what `mcpd status` and health checks report."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from logging import getLogger
from typing import Literal

from mcpd import __version__
from mcpd.errors import ConfigurationError
from mcpd.server.observe.http_thread import HttpThread, ObserverResponse
from mcpd.server.observe.metrics import Family, Sample, Total, process_families
from mcpd.server.observe.report import MOST_CALLS, STUCK_SECONDS, LastErrors, Status, WorkerStatus, merged
from mcpd.server.observe.watching import Site
from mcpd.server.settings import Options
from mcpd.transports.address import parse
from .process import Worker, WorkerReport

_POLL_SECONDS = 1.0
_PARENT = "parent"
_STATES = ("starting", "ready", "stuck", "stopping")

log = getLogger("mcpd")


class Overview(Site):
    """The metrics and status of all workers. `count` is how many workers there should be."""

    def __init__(self, options: Options, count: int, workers: Callable[[], Iterable[Worker]]) -> None:
        super().__init__(options)
        self.count = count
        self._has_backplane = options.backplane is not None
        # How many workers have died, by their number.
        self.deaths: Counter[int] = Counter()
        # Whether all workers have been ready.
        self.is_serving = False
        self.is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._since = time.time()
        self._total = Total()
        # The names of the stuck workers that were logged.
        self._stuck_names: set[str] = set()
        self._errors = LastErrors()
        self._thread_server: HttpThread | None = None
        self._pulsing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to poll the workers, and to answer requests for metrics and status. Raises ConfigurationError."""
        log.addHandler(self._errors)
        metrics = self._settings.metrics
        sockets = [] if metrics in (None, "http") else await self._bind(parse(metrics or ""))

        try:
            control = self._bind_control()
        except ConfigurationError:
            for each in sockets:
                each.close()
            raise
        if sockets or control is not None:
            self._thread_server = HttpThread(self.answer, sockets, control, lambda: None)
            self._thread_server.start()
        self._pulsing = self._loop.create_task(self._pulse(), name="mcpd-poll")

    def stop(self) -> None:
        """Stop polling and answering. Safe to call twice."""
        log.removeHandler(self._errors)
        if self._pulsing is not None:
            self._pulsing.cancel()
        self._unbind_control()
        if self._thread_server is not None:
            self._thread_server.stop()
            self._thread_server = None

    async def _pulse(self) -> None:
        # Once a second, so that little of a killed worker's metrics is lost.
        while True:
            await self.poll()
            await asyncio.sleep(_POLL_SECONDS)

    async def poll(self) -> None:
        """Poll each worker for its metrics and status."""
        workers = list(self._workers())
        found = await asyncio.gather(*(worker.poll(_POLL_SECONDS) for worker in workers))
        for worker, seen in zip(workers, found, strict=True):
            if worker.code is None:
                self._total.put(worker.name, seen.families)
                self._log(worker)

    def _log(self, worker: Worker) -> None:
        was_stuck = worker.name in self._stuck_names
        if _is_stuck(worker) and not was_stuck:
            self._stuck_names.add(worker.name)
            log.error(
                "Worker %d (pid %d) is stuck: its event loop has not responded for %.0f s",
                worker.number, worker.pid, worker.late,
            )  # fmt: skip
        elif was_stuck and not worker.late:
            self._stuck_names.discard(worker.name)
            log.info("Worker %d (pid %d) works again", worker.number, worker.pid)

    def gone(self, worker: Worker) -> None:
        """Keep what the worker had counted before it ended."""
        last = worker.last or worker.latest
        self._total.put(worker.name, last.families)
        self._total.gone(worker.name)
        self._stuck_names.discard(worker.name)

    def _families(self) -> list[Family]:
        self._total.put(_PARENT, process_families())
        states = Counter(_state(worker) for worker in self._workers())
        samples = tuple(Sample((("state", state),), states[state]) for state in _STATES)
        return [
            *self._total.families(),
            Family("mcpd_workers", "gauge", "Worker processes, by state.", samples),
            Family(
                "mcpd_worker_deaths", "counter", "Workers that ended unexpectedly.",
                (Sample(value=self.deaths.total()),),
            ),
        ]  # fmt: skip

    async def whole(self) -> WorkerReport:
        """Return the metrics and status of all workers."""
        await self.poll()
        return WorkerReport(self._families(), self._status())

    # -- requests, on the thread of `HttpThread` ------------------------------------------------

    async def _in_loop(self) -> WorkerReport:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.whole(), self._loop))

    async def asked_families(self) -> Sequence[Family]:
        """See `Site`."""
        return (await self._in_loop()).families

    async def asked_status(self) -> Status:
        """See `Site`."""
        found = (await self._in_loop()).status
        assert found is not None
        return found

    def health(self) -> ObserverResponse:
        """See `Site`."""
        stuck = [worker for worker in self._workers() if _is_stuck(worker)]
        if stuck:
            lines = (
                f"the event loop of worker {each.number} has not responded for {each.late:.0f} s" for each in stuck
            )
            return ObserverResponse(503, "".join(f"{line}\n" for line in lines).encode())
        return ObserverResponse(200, b"ok\n")

    def readiness(self) -> ObserverResponse:
        """See `Site`. Once all workers have been ready, one that is not stuck is enough."""
        if self.is_stopping:
            return ObserverResponse(503, b"shutting down\n")
        ready = len({worker.number for worker in self._workers() if _state(worker) == "ready"})
        missing = "" if ready >= self.count else f"{ready} of {self.count} workers are ready\n"
        if not self.is_serving:
            return ObserverResponse(503, f"starting: {missing}".encode())
        if not ready:
            return ObserverResponse(503, missing.encode())
        return ObserverResponse(200, f"ok\n{missing}".encode())

    def _status(self) -> Status:
        workers = sorted(self._workers(), key=lambda worker: worker.number)
        each = [worker.latest.status for worker in workers if worker.latest.status is not None]
        clients = sum((Counter(status.clients) for status in each), Counter[str]())

        errors = sorted(
            (*self._errors.kept(), *(error for status in each for error in status.errors)), key=lambda error: error.at
        )
        is_stuck = any(status.state == "stuck" for status in each) or any(map(_is_stuck, workers))
        state: Literal["starting", "ready", "stopping", "stuck"]
        state = "stopping" if self.is_stopping else "stuck" if is_stuck else "ready" if self.is_serving else "starting"
        backplane = max((status.backplane for status in each if status.backplane is not None), default=None)
        if not self._has_backplane:
            backplane = backplane or None  # the memory of the parent, which is worth a line only if it fails

        return Status(
            pid=os.getpid(),
            mcpd=__version__,
            name=each[0].name if each else "",
            version=each[0].version if each else "",
            target=getattr(self._settings, "target", None) or "",
            state=state,
            since=self._since,
            uptime_seconds=round(time.time() - self._since, 3),
            urls=each[0].urls if each else (),
            clients=dict(clients),
            sessions=sum(status.sessions for status in each),
            streams=sum(status.streams for status in each),
            backplane=backplane,
            in_flight=sum(status.in_flight for status in each),
            calls=tuple(call for status in each for call in status.calls)[:MOST_CALLS],
            cancelled=tuple(call for status in each for call in status.cancelled)[:MOST_CALLS],
            loop_lag_seconds=max((status.loop_lag_seconds for status in each), default=0.0),
            errors=tuple(errors[-5:]),
            mounts=merged(mount for status in each for mount in status.mounts),
            events={
                name: sum(one.events.get(name, 0) for one in each) for status in each[:1] for name in status.events
            },
            workers=tuple(
                WorkerStatus(
                    number=worker.number,
                    pid=worker.pid,
                    state=_state(worker),
                    uptime_seconds=round(time.time() - worker.since, 3),
                    in_flight=0 if worker.latest.status is None else worker.latest.status.in_flight,
                    deaths=self.deaths[worker.number],
                )
                for worker in workers
            ),
        )


def _is_stuck(worker: Worker) -> bool:
    return worker.late > STUCK_SECONDS


def _state(worker: Worker) -> str:
    return "stuck" if worker.state == "ready" and _is_stuck(worker) else worker.state
