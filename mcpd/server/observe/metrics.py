"""Metrics as plain data and as Prometheus and OpenMetrics text; the process's own; and the meter, which counts calls.

Families can be sent to another process as JSON and summed there. `Total` sums the processes of one server so that no
counter decreases when a process is replaced (OBS-14). The text formats are Prometheus 0.0.4 and OpenMetrics 1.0.

A call costs the meter two readings of the clock and one number that is appended to a list (OBS-10). Labels are names
that the server has registered, and methods and versions that it knows; any other name from a client is counted as
`_other` (OBS-02).
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mcpd.protocol.observer import OutcomeKind
from mcpd.protocol.session import SessionHooks
from mcpd.server.dispatcher.observing import HookedObserver

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.protocol.session import Call, Session

Kind: TypeAlias = Literal["counter", "gauge", "histogram", "info"]
Labels: TypeAlias = tuple[tuple[str, str], ...]

SHORT_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0)
"""Upper bounds for operations of about a millisecond, such as a command of a backplane."""

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper bounds of a histogram's buckets, in seconds, from the OpenTelemetry conventions for MCP."""


class Sample(Struct, frozen=True):
    """The current value of one series. For a histogram `value` is the sum of all observations, and `counts` has the
    number in each bucket, the bucket without a bound last."""

    labels: Labels = ()
    value: float = 0.0
    counts: tuple[int, ...] = ()


class Family(Struct, frozen=True):
    """The series of one name, without the suffix `_total` of counters and `_info` of infos."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...] = ()
    most: bool = False
    """Whether a gauge of several processes is the maximum instead of the sum, as for a lag or a point in time."""
    bounds: tuple[float, ...] = BOUNDS
    """The upper bounds of a histogram's buckets, in seconds, without the last bucket."""


def summed(of_each: Iterable[Iterable[Family]]) -> list[Family]:
    """Sum the families of several processes.

    A histogram whose buckets differ from an earlier one is left out.
    """
    merged: dict[str, tuple[Family, dict[Labels, Sample]]] = {}
    for families in of_each:
        for family in families:
            samples = merged.setdefault(family.name, (family, {}))[1]
            for sample in family.samples:
                before = samples.get(sample.labels)
                samples[sample.labels] = sample if before is None else _joined(family, before, sample)

    return [replace(family, samples=tuple(samples.values())) for family, samples in merged.values()]


def _joined(family: Family, one: Sample, other: Sample) -> Sample:
    if family.kind == "info":
        return one
    if family.most:
        return Sample(one.labels, max(one.value, other.value))
    if len(one.counts) != len(other.counts):
        return one  # another version of mcpd has other bounds: a process may be replaced by a newer one
    counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
    return Sample(one.labels, one.value + other.value, counts)


class Total(Struct, eq=False):
    """The sum over processes that start and end. The counts of an ended process stay in the sum."""

    _latest: dict[str, list[Family]] = {}
    _gone: list[Family] = []

    def put(self, process: str, families: Iterable[Family]) -> None:
        """Replace the metrics of a process."""
        self._latest[process] = list(families)

    def gone(self, process: str) -> None:
        """Record that a process has ended: its counters stay, its gauges are removed."""
        left = [each for each in self._latest.pop(process, ()) if each.kind in ("counter", "histogram")]
        self._gone = summed((self._gone, left))

    def families(self) -> list[Family]:
        """Return the sum."""
        return summed((*self._latest.values(), self._gone))


TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_SUFFIXES = {"counter": "_total", "info": "_info"}
_UNITS = ("seconds", "bytes")
_LONGEST_LABEL = 128
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def wants_open_metrics(accept: str | None) -> bool:
    """Whether an `Accept` header includes OpenMetrics with any weight but 0."""
    for part in (accept or "").lower().split(","):
        kind, *parameters = (each.strip() for each in part.split(";"))
        if kind == "application/openmetrics-text":
            weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
            version = next((each[8:].strip('"') for each in parameters if each.startswith("version=")), "1.0.0")
            return weight.strip("0.") != "" and version.startswith(("1.", "0.0."))
    return False


def is_label(value: str) -> bool:
    """Whether a name can be a label unchanged. Other names must not be shortened: two could become equal."""
    return len(value) <= _LONGEST_LABEL and value.isprintable()


def expose(families: Iterable[Family], *, open_metrics: bool = False) -> bytes:
    """Return all families as text. Families without a series are left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.extend(_family(family, open_metrics))
    if open_metrics:
        lines.append("# EOF")
    lines.append("")
    return "\n".join(lines).encode("utf-8", "replace")


def _family(family: Family, open_metrics: bool) -> Iterator[str]:
    name, kind = family.name, family.kind
    series = name + _SUFFIXES.get(kind, "")
    shown = name if open_metrics else series
    yield f"# HELP {shown} {family.help.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {shown} {'gauge' if kind == 'info' and not open_metrics else kind}"
    unit = name.rpartition("_")[2]
    if open_metrics and unit in _UNITS:
        yield f"# UNIT {shown} {unit}"

    # As in OpenMetrics, in both formats: the name of a series must not depend on the format.
    bounds = (*map(str, family.bounds), "+Inf")
    for sample in family.samples:
        if kind == "histogram":
            yield from _histogram(series, bounds, sample)
        else:
            yield f"{series}{_labels(sample.labels)} {1 if kind == 'info' else _number(sample.value)}"


def _histogram(name: str, bounds: tuple[str, ...], sample: Sample) -> Iterator[str]:
    count = 0
    for bound, count in zip(bounds, accumulate(sample.counts), strict=True):
        yield f"{name}_bucket{_labels((*sample.labels, ('le', bound)))} {count}"
    labels = _labels(sample.labels)
    yield f"{name}_count{labels} {count}"
    yield f"{name}_sum{labels} {_number(sample.value)}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


STARTED = time.time()
"""When observation of this process began, in seconds since 1970. `_start` returns when the process began."""


def process_families() -> list[Family]:
    """Return CPU time, start, and with /proc memory and descriptors, under the usual names of Prometheus clients."""
    families = [
        _one("process_cpu_seconds", "counter", "User and system CPU time.", time.process_time()),
        _one("process_start_time_seconds", "gauge", "When the process began, since 1970.", _start(), most=True),
    ]
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = map(int, file.read().split()[:2])
        page = os.sysconf("SC_PAGE_SIZE")
        families += [
            _one("process_virtual_memory_bytes", "gauge", "Virtual memory.", virtual * page),
            _one("process_resident_memory_bytes", "gauge", "Resident memory.", resident * page),
            _one("process_open_fds", "gauge", "Open descriptors.", len(os.listdir("/proc/self/fd")) - 1),
            _one("process_max_fds", "gauge", "Descriptors that may be open.", os.sysconf("SC_OPEN_MAX")),
        ]
    except (OSError, ValueError):
        pass

    return families


def _one(name: str, kind: Kind, help: str, value: float, *, most: bool = False) -> Family:
    return Family(name, kind, help, (Sample(value=value),), most)


def _start() -> float:
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat", "rb") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
        return booted + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, StopIteration, IndexError):
        return STARTED


MOST_SERIES = 5000
"""Series of calls that are kept. Further ones are counted for the tool `_other`, and the error `_other` if that is new
too."""

_OTHER = "_other"
_TRANSPORTS = {"stdio": "pipe", "websocket": "tcp", "http": "tcp", "memory": "inproc"}
_PROTOCOLS = {"websocket": "websocket", "http": "http"}

# Transport, version, method, tool, error type; "" for none.
_Key = tuple[str, str, str, str, str]


class _Series:
    # One histogram. Observed values wait in a list until `fold` sorts them into the buckets.
    __slots__ = ("_bounds", "_counts", "_seconds", "_waiting", "observe")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._bounds = bounds
        self._waiting: list[float] = []
        self._counts = [0] * (len(bounds) + 1)
        self._seconds = 0.0
        self.observe = self._waiting.append
        """Count something that took this many seconds. Safe from any thread."""

    def fold(self) -> None:
        # Sort the waiting values into the buckets. Only one thread may fold at a time.
        observed = self._waiting[:]
        del self._waiting[: len(observed)]
        self._seconds += sum(observed)
        for seconds in observed:
            self._counts[bisect_left(self._bounds, seconds)] += 1

    def sample(self, labels: Labels) -> Sample:
        # Return the histogram as it is now.
        self.fold()
        return Sample(labels, self._seconds, tuple(self._counts))


class Meter(HookedObserver):
    """The metrics of one server's calls and sessions. `is_tool` says whether a tool of a name is registered."""

    def __init__(self, is_tool: Callable[[str], object]) -> None:
        self._is_tool = is_tool
        self._series: dict[_Key, _Series] = {}
        self._durations: dict[tuple[str, str], _Series] = {}
        self._open: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._commands: dict[tuple[str, str], _Series] = {}
        self._tasks_created: dict[str, int] = {}
        self._tasks_ended: dict[tuple[str, str], _Series] = {}
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

    def task_changed(self, tool: str, status: str | None, seconds: float) -> None:
        label = self._tool_label(tool)
        if status is None:
            self._tasks_created[label] = self._tasks_created.get(label, 0) + 1
        else:
            self._tasks_ended.setdefault((label, status), _Series()).observe(seconds)

    def session_opened(self, transport: str) -> None:
        """Count a session that is open. It has no version yet."""
        self._open[transport] = self._open.get(transport, 0) + 1

    def session_closed(self, session: Session, transport: str, seconds: float) -> None:
        """Count a session that has ended."""
        self._open[transport] -= 1
        version = "" if session.version is None else session.version.name
        self._durations.setdefault((transport, version), _Series()).observe(seconds)

    def _new_series(self, key: _Key) -> _Series:
        transport, version, method, tool, error = key
        rest = transport, version, method, tool and _OTHER, error and _OTHER
        if len(self._series) >= MOST_SERIES and key != rest:
            # Error codes can be unlimited too: a server that calls other servers passes on theirs.
            with_error = transport, version, method, rest[3], error
            key = rest if key == with_error or with_error not in self._series else with_error

        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series()
        return series

    def _tool_label(self, name: str) -> str:
        return name if is_label(name) and self._is_tool(name) else _OTHER

    # -- reading -----------------------------------------------------------------------------

    def fold(self) -> None:
        """Sort waiting values into the buckets, so that they take little memory. Call it once a second."""
        with self._folding:
            for series in [*self._series.values(), *self._commands.values(), *self._tasks_ended.values()]:
                series.fold()

    def families(self) -> list[Family]:
        """Return all metrics. Safe from any thread."""
        with self._folding:
            return self._families()

    def _families(self) -> list[Family]:
        calls = [series.sample(_call_labels(key)) for key, series in list(self._series.items())]
        lives = [series.sample(_session_labels(*key)) for key, series in list(self._durations.items())]
        sessions = [Sample(_session_labels(name, ""), count) for name, count in list(self._open.items())]
        commands = [
            series.sample(_present(("command", key[0]), ("error_type", key[1])))
            for key, series in list(self._commands.items())
        ]
        created = [
            Sample(_present(("gen_ai_tool_name", tool)), count) for tool, count in [*self._tasks_created.items()]
        ]
        ended = [
            series.sample(_present(("gen_ai_tool_name", tool), ("status", status)))
            for (tool, status), series in list(self._tasks_ended.items())
        ]
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
            Family("mcpd_tasks_created", "counter", "Calls that became tasks.", tuple(created)),
            Family(
                "mcpd_task_duration_seconds", "histogram", "How long tasks took, by their final status.", tuple(ended),
            ),
        ]  # fmt: skip


def _call_labels(key: _Key) -> Labels:
    transport, version, method, tool, error = key
    named = _present(("mcp_method_name", method), ("gen_ai_tool_name", tool), ("error_type", error))
    return named + _session_labels(transport, version)


def _session_labels(transport: str, version: str) -> Labels:
    return _present(
        ("mcp_protocol_version", version),
        ("network_transport", _TRANSPORTS.get(transport, _OTHER)),
        ("network_protocol_name", _PROTOCOLS.get(transport, "")),
    )


def _present(*labels: tuple[str, str]) -> Labels:
    return tuple(label for label in labels if label[1])


class _MeterHooks(SessionHooks):
    # Counts the calls of all connections over one transport.
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
