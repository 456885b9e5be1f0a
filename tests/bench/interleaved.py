"""Clients in processes of their own that take turns: what `client_http.py` and `client_streams.py` measure with.

All are open at once, and each makes a small batch of calls in its turn, so that a machine that is busy for a while is
so for all of them. Of two the ratio is said twice: the median of what neighbours in time took, which is held against
what is promised, and that of the quickest batch of each: what is left, given enough rounds, when nobody else wants the
processor. On a busy machine calls one after the other are mostly waiting to be woken, which is the same for everybody.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import IO

__all__ = ["TEXT", "Call", "Rounds", "Worker", "add_options", "serve_batches"]

TEXT = "x" * 200

Call = Callable[[], Awaitable[None]]

_WARM_UP = 2


async def serve_batches(call: Call, chain: Callable[[int], Awaitable[None]] | None = None) -> None:
    """In a client's process: batches as they are asked for on stdin: how many calls, and how many at a time.

    `chain` makes so many calls one after the other by itself.
    """
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        calls, together = map(int, line.split())

        async def some(number: int) -> None:
            for _ in range(number):
                await call()

        began, used = time.perf_counter(), time.process_time()
        if chain is not None:
            await chain(calls)
        else:
            await asyncio.gather(*(some(calls // together) for _ in range(together)))
        took, used = time.perf_counter() - began, time.process_time() - used
        print(took / calls * 1e6, used / calls * 1e6, flush=True)


class Worker:
    """One client in a process of its own."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def batch(self, calls: int, together: int) -> tuple[float, float]:
        """Microseconds for one call: how long it took, and how long the client's processor worked."""
        print(calls, together, file=_open(self._process.stdin), flush=True)
        took, used = _open(self._process.stdout).readline().split()
        return float(took), float(used)

    def end(self) -> None:
        """Close its input, which ends it."""
        _open(self._process.stdin).close()
        self._process.wait(20)


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--rounds` and `--calls`."""
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=320, help="in one batch")


class Rounds:
    """What some clients took, one at a time and sixteen at a time."""

    def __init__(self, workers: dict[str, Worker], options: argparse.Namespace, single: Sequence[str] = ()) -> None:
        """Measure, and end them. `single` are those that make one call at a time only."""
        self._found: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for number in range(options.rounds + _WARM_UP):
            for together in (1, 16):
                for name, worker in workers.items():
                    if name in single and together > 1:
                        continue
                    # The official client is slow: fewer calls take as long.
                    calls = options.calls // 4 if name.startswith("official") else options.calls
                    took = worker.batch(calls // 16 * 16, together)
                    if number >= _WARM_UP:
                        self._found.setdefault((name, together), []).append(took)
        for worker in workers.values():
            worker.end()

    def line(self, together: int) -> str:
        """The medians of all of them."""
        said = []
        for name, count in self._found:
            if count == together:
                took, used = (statistics.median(one) for one in zip(*self._found[name, count], strict=True))
                said.append(f"{name} {self.quickest(name, together):.0f}/{took:.0f} (cpu {used:.0f})")
        return ", ".join(said)

    def quickest(self, name: str, together: int) -> float:
        """Microseconds for one call, in the best batch."""
        return min(took for took, _ in self._found[name, together])

    def ratio(self, slow: str, fast: str, together: int) -> tuple[float, float]:
        """How many times as long `slow` takes as `fast`: the median of neighbours, and of their quickest batches."""
        pairs = zip(self._found[slow, together], self._found[fast, together], strict=True)
        middle = statistics.median(a / b for (a, _), (b, _) in pairs)
        return middle, self.quickest(slow, together) / self.quickest(fast, together)
