"""`fastmcp.server.lifespan`: lifespans that are put together, `first | second`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

__all__ = ["ComposedLifespan", "ContextManagerLifespan", "Lifespan", "has_lifespan", "lifespan", "opened"]


class Lifespan:
    """A generator function of a server as its lifespan; what it yields is a dict."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._open = asynccontextmanager(fn)

    @asynccontextmanager
    async def __call__(self, server: Any) -> AsyncIterator[dict[str, Any]]:
        """Open for the length of the block."""
        async with self._open(server) as value:
            yield {} if value is None else value

    def __or__(self, other: Lifespan) -> ComposedLifespan:
        return ComposedLifespan(self, other)


class ContextManagerLifespan(Lifespan):
    """The same of a function that gives a context manager."""

    def __init__(self, fn: Callable[[Any], AbstractAsyncContextManager[Any]]) -> None:
        self._open = fn  # type: ignore[assignment]


class ComposedLifespan(Lifespan):
    """Two, one after the other, and what both give."""

    def __init__(self, left: Lifespan, right: Lifespan) -> None:
        self._both = left, right

    @asynccontextmanager
    async def __call__(self, server: Any) -> AsyncIterator[dict[str, Any]]:
        """Open for the length of the block."""
        left, right = self._both
        async with left(server) as first, right(server) as second:
            yield {**first, **second}


def lifespan(fn: Callable[[Any], Any]) -> Lifespan:
    """Make a lifespan of a generator function."""
    return Lifespan(fn)


def has_lifespan(server: Any) -> bool:
    """Whether a server has a lifespan, or one that is mounted on it."""
    return server.own_lifespan is not None or any(has_lifespan(mount.server) for mount in server.mounts)


@asynccontextmanager
async def opened(server: Any, life: Callable[[Any], AbstractAsyncContextManager[Any]] | None) -> AsyncIterator[Any]:
    """A server's lifespan, and those of the servers that are mounted on it; gives its own value."""
    async with AsyncExitStack() as stack:
        value = None if life is None else await stack.enter_async_context(life(server))
        for mount in server.mounts:
            await stack.enter_async_context(opened(mount.server, mount.server.own_lifespan))
        yield {} if value is None else value
