"""What runs in a server now, found when somebody asks: nothing is kept for it, and no call pays for it.

Only names and counts: no arguments, no URIs, no texts of errors, for any of these may hold secrets (OBS-12).
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Literal

from msgspec import Struct

from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.printable import mask_text, printable

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
