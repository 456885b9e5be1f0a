"""Metrics as plain data: what is collected in a process, can be sent to another one as JSON, and summed there.

`Total` sums the processes of one server so that no counter goes back when one of them is replaced (OBS-14).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

Kind: TypeAlias = Literal["counter", "gauge", "histogram", "info"]
Labels: TypeAlias = tuple[tuple[str, str], ...]

SHORT_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0)
"""Those for what ought to take a millisecond, such as a command to a backplane."""

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper bounds of a histogram's buckets, in seconds; the OpenTelemetry conventions for MCP name them."""


class Sample(Struct, frozen=True):
    """One series now. Of a histogram `counts` are those of each bucket alone, the one without a bound last, and
    `value` is the sum of what was observed."""

    labels: Labels = ()
    value: float = 0.0
    counts: tuple[int, ...] = ()


class Family(Struct, frozen=True):
    """The series of one name. That of a counter is without `_total`, that of an info without `_info`."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...] = ()
    most: bool = False
    """Of several processes a gauge is the largest, not the sum: a lag, a point in time."""
    bounds: tuple[float, ...] = BOUNDS
    """The upper bounds of a histogram's buckets, in seconds, but for the last one, which has none."""


def summed(of_each: Iterable[Iterable[Family]]) -> list[Family]:
    """The families of several processes as one: counters, histograms and gauges added up.

    A histogram that has other buckets than one before it cannot be, and is left out.
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
        return one  # of another version of this program, with other bounds: a process may be replaced by a newer one
    counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
    return Sample(one.labels, one.value + other.value, counts)


class Total:
    """The sum over processes that come and go. What one has counted stays in the sum when it is gone."""

    def __init__(self) -> None:
        self._latest: dict[str, list[Family]] = {}
        self._gone: list[Family] = []

    def put(self, process: str, families: Iterable[Family]) -> None:
        """What a process says of itself now; it takes the place of what it said before."""
        self._latest[process] = list(families)

    def gone(self, process: str) -> None:
        """It has ended: its counters stay, its gauges go."""
        left = [each for each in self._latest.pop(process, ()) if each.kind in ("counter", "histogram")]
        self._gone = summed((self._gone, left))

    def families(self) -> list[Family]:
        """The sum."""
        return summed((*self._latest.values(), self._gone))
