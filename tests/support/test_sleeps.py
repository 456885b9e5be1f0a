"""What the house tests take for a sleep."""

from __future__ import annotations

import pytest
from support.sleeps import sleeps
from support.source_code import parsed


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("await asyncio.sleep(0.1)", 1),
        ("time.sleep(pause)", 1),
        ("await asyncio.sleep(0)", 0),
        ("await asyncio.sleep(3600)", 0),
        ("'time.sleep(1)'", 0),
    ],
)
def test_what_counts_as_a_sleep(text: str, number: int) -> None:
    assert sleeps(parsed(text)) == number
