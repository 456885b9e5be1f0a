"""What is left for the end of a callback of the event loop, so that it is done once for all that the callback did.

`call_soon` leaves it for the next turn of the loop, which first asks the system again what is ready. A callback that
may come upon many messages, or many results, makes a turn of its own: what is left to `at_end` between `begin` and
`end` is done by `end`. At any other time it goes to `call_soon`. A turn inside of another one, as of a loop that was
made to run in itself, is one for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["Left", "at_end", "begin", "do", "end", "this_thread"]

Left: TypeAlias = list[Callable[[], object]] | None
"""What was left to the turn around one that begins; None if it is inside of none."""


class _Turn(threading.local):
    left: Left = None
    """What was left to the turn that runs; None if none does."""


this_thread = _Turn()
"""One event loop at a time runs in a thread. Who has no time for `begin` and `end` puts a list here and back what was
there before, and calls `do` if there is something in it."""


def begin() -> Left:
    """A turn begins; `end` has to be called with what this gives."""
    around, this_thread.left = this_thread.left, []
    return around


def at_end(loop: AbstractEventLoop, step: Callable[[], object]) -> None:
    """Do it at the end of this turn, or in the next one of `loop`, which runs in this thread, if this is none."""
    left = this_thread.left
    if left is None:
        loop.call_soon(step)
    else:
        left.append(step)


def end(around: Left, loop: AbstractEventLoop) -> None:
    """Do what was left, in its order. What these steps leave is for the turn around this one, or the loop."""
    left, this_thread.left = this_thread.left, around
    if left:
        do(left, loop)


def do(left: Iterable[Callable[[], object]], loop: AbstractEventLoop) -> None:
    """Do what was left to a turn that has ended."""
    steps = iter(left)
    try:
        for step in steps:
            step()
    finally:
        for step in steps:  # one has failed, which the loop tells; the others are done all the same
            loop.call_soon(step)
