"""Metrics as plain data, as Prometheus and OpenMetrics text, and those of the process itself.

Families can be sent to another process as JSON and summed there. `Total` sums the processes of one server so that no
counter decreases when a process is replaced (OBS-14). The text formats are Prometheus 0.0.4 and OpenMetrics 1.0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

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
    found: dict[str, tuple[Family, dict[Labels, Sample]]] = {}
    for families in of_each:
        for family in families:
            samples = found.setdefault(family.name, (family, {}))[1]
            for sample in family.samples:
                before = samples.get(sample.labels)
                samples[sample.labels] = sample if before is None else _joined(family, before, sample)
    return [replace(family, samples=tuple(samples.values())) for family, samples in found.values()]


def _joined(family: Family, one: Sample, other: Sample) -> Sample:
    if family.kind == "info":
        return one
    if family.most:
        return Sample(one.labels, max(one.value, other.value))
    if len(one.counts) != len(other.counts):
        return one  # another version of mcpd has other bounds: a process may be replaced by a newer one
    counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
    return Sample(one.labels, one.value + other.value, counts)


class Total:
    """The sum over processes that start and end. The counts of an ended process stay in the sum."""

    def __init__(self) -> None:
        self._latest: dict[str, list[Family]] = {}
        self._gone: list[Family] = []

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
    if kind == "counter":
        series = f"{name}_total"
    elif kind == "info":
        series = f"{name}_info"
    else:
        series = name

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
    found = [
        _one("process_cpu_seconds", "counter", "User and system CPU time.", time.process_time()),
        _one("process_start_time_seconds", "gauge", "When the process began, since 1970.", _start(), most=True),
    ]
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = map(int, file.read().split()[:2])
        page = os.sysconf("SC_PAGE_SIZE")
        found += [
            _one("process_virtual_memory_bytes", "gauge", "Virtual memory.", virtual * page),
            _one("process_resident_memory_bytes", "gauge", "Resident memory.", resident * page),
            _one("process_open_fds", "gauge", "Open descriptors.", len(os.listdir("/proc/self/fd")) - 1),
            _one("process_max_fds", "gauge", "Descriptors that may be open.", os.sysconf("SC_OPEN_MAX")),
        ]
    except (OSError, ValueError):
        pass
    return found


def _one(name: str, kind: str, help: str, value: float, *, most: bool = False) -> Family:
    return Family(name, "counter" if kind == "counter" else "gauge", help, (Sample(value=value),), most)


def _start() -> float:
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat", "rb") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
        return booted + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, StopIteration, IndexError):
        return STARTED
