"""What is left for the end of a turn is done once, at its end, and never lost."""

from __future__ import annotations

import asyncio

import pytest

from mcpd import turn


async def test_outside_of_a_turn_it_is_done_in_the_loops_next() -> None:
    done: list[str] = []
    turn.at_end(asyncio.get_running_loop(), lambda: done.append("a"))
    assert done == []
    await asyncio.sleep(0)
    assert done == ["a"]


async def test_inside_of_one_it_is_done_at_its_end_in_order_and_what_that_leaves_after_it() -> None:
    loop = asyncio.get_running_loop()
    done: list[str] = []

    def last() -> None:
        done.append("b")
        turn.at_end(loop, lambda: done.append("c"))

    around = turn.begin()
    turn.at_end(loop, lambda: done.append("a"))
    turn.at_end(loop, last)
    assert done == []
    turn.end(around, loop)
    assert done == ["a", "b"]
    await asyncio.sleep(0)
    assert done == ["a", "b", "c"]


async def test_a_turn_inside_of_another_is_one_for_itself() -> None:
    loop = asyncio.get_running_loop()
    done: list[str] = []
    outer = turn.begin()
    turn.at_end(loop, lambda: done.append("outer"))
    inner = turn.begin()
    turn.at_end(loop, lambda: done.append("inner"))
    turn.end(inner, loop)
    assert done == ["inner"]
    turn.end(outer, loop)
    assert done == ["inner", "outer"]


async def test_one_that_fails_keeps_no_other_from_being_done() -> None:
    loop = asyncio.get_running_loop()
    done: list[str] = []
    around = turn.begin()
    turn.at_end(loop, lambda: done.append("a"))
    turn.at_end(loop, lambda: done[5])
    turn.at_end(loop, lambda: done.append("b"))
    with pytest.raises(IndexError):
        turn.end(around, loop)
    await asyncio.sleep(0)
    assert done == ["a", "b"]
    turn.at_end(loop, lambda: done.append("c"))
    assert done == ["a", "b"]  # it is over, though it failed
    await asyncio.sleep(0)
    assert done == ["a", "b", "c"]
