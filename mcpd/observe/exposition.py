"""Metrics as text: Prometheus' format 0.0.4, and OpenMetrics 1.0 for who asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from mcpd.observe.families import Family, Labels, Sample

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_UNITS = ("seconds", "bytes")
_LONGEST_LABEL = 128
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def wants_open_metrics(accept: str | None) -> bool:
    """Whether an `Accept` names OpenMetrics. Of weights only 0 counts: who can read it wants it."""
    for part in (accept or "").lower().split(","):
        kind, *parameters = (each.strip() for each in part.split(";"))
        if kind == "application/openmetrics-text":
            weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
            version = next((each[8:].strip('"') for each in parameters if each.startswith("version=")), "1.0.0")
            return weight.strip("0.") != "" and version.startswith(("1.", "0.0."))
    return False


def is_label(value: str) -> bool:
    """Whether a name that is others' can be a label as it is. What cannot must not be cut: two might become one."""
    return len(value) <= _LONGEST_LABEL and value.isprintable()


def expose(families: Iterable[Family], *, open_metrics: bool = False) -> bytes:
    """All of it as text; families without a series are left out."""
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

    # As OpenMetrics wants them, in both formats: a series must not change its name with the format that it is read in.
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
