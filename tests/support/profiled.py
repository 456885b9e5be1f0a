"""Watching which functions run, for tests that count them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def profiled(watch: Callable[[FrameType, str, Any], object]) -> Iterator[None]:
    """`watch` is called as `sys.setprofile` says, of this thread.

    Meanwhile the collector rests: what earlier tests left in cycles, as a coroutine of mcpd that ends when it is
    collected, would be steps of the call that happens to be watched then.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        if was_enabled:
            gc.enable()
