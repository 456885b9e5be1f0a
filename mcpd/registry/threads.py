"""Plain functions run in worker threads, so that one that blocks holds up no other call. The one place for that."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any

__all__ = ["run_in_thread"]

_limiter: Any = None
MAX_THREADS = 64


async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` in a thread of anyio's pool, at most 64 at once.

    A coroutine that comes back is awaited here: a decorator may hide that its function is async.
    If the waiting task is cancelled, the thread is left to finish by itself: Python cannot stop it.
    """
    global _limiter
    import anyio.to_thread  # loaded when the first plain function is called: it costs start-up

    if _limiter is None:
        _limiter = anyio.CapacityLimiter(MAX_THREADS)
    value = await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=_limiter)
    return await value if value.__class__ is CoroutineType else value
