"""When a worker that has died is started again: the policy alone, without a process."""

from __future__ import annotations

from mcpd.cli.workers.parent import Restarts


def waits(*deaths: float) -> list[float]:
    """For how long the next one waits after each of these deaths."""
    restarts = Restarts()
    return [restarts.died(at) for at in deaths]


def test_three_deaths_in_ten_seconds_slow_it_down() -> None:
    """SCALE-26."""
    assert waits(0, 1, 2, 4, 7, 12, 21, 32) == [0, 0, 1, 2, 4, 8, 10, 10]
    assert waits(0, 5, 10) == [0, 0, 1]


def test_deaths_now_and_then_do_not() -> None:
    """SCALE-26: nor is what was slow once slow for ever."""
    assert waits(0, 6, 12, 18, 24) == [0] * 5
    assert waits(0, 1, 2, 100, 101, 102, 104) == [0, 0, 1, 0, 0, 1, 2]
