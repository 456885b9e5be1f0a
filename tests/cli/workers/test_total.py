"""The sum over processes that come and go, one of which may be of another version of this program."""

from __future__ import annotations

from mcpd.server.observe.metrics import Family, Sample, Total


def seconds(value: float, *counts: int) -> list[Family]:
    """A histogram of one series."""
    return [Family("seconds", "histogram", "", (Sample(value=value, counts=counts),))]


def test_what_is_gone_stays_in_the_sum_unless_it_has_other_buckets() -> None:
    """OBS-14: after an upgrade the metrics of the new processes are told, and nothing fails."""
    total = Total()
    total.put("1", seconds(1.0, 1, 2))
    total.put("2", seconds(2.0, 3, 4))
    total.gone("1")
    (family,) = total.families()
    assert family.samples == (Sample(value=3.0, counts=(4, 6)),)

    total.put("3", seconds(5.0, 1, 1, 1))
    total.gone("2")
    (family,) = total.families()
    assert family.samples == (Sample(value=5.0, counts=(1, 1, 1)),)
