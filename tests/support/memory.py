"""How much memory this process holds, and that it does not grow by more than so much."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["memory", "resident"]


@contextmanager
def memory(most: int) -> Iterator[None]:
    """What this process holds must not grow by more than that, at any time that the loop turns."""
    loop, begin, top = asyncio.get_running_loop(), resident(), 0
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal top, timer
        top = max(top, resident())
        timer = loop.call_later(0.005, look)

    look()
    try:
        yield
    finally:
        assert timer is not None
        timer.cancel()
    assert max(top, resident()) - begin < most


def resident() -> int:
    """Bytes of it that are in memory now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
