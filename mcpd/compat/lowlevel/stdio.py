"""`stdio_server`: stands for stdin and stdout, which are ours to read and write."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

__all__ = ["StandIn", "stdio_server"]


class StandIn:
    """In the place of a stream of messages: `Server.run` takes it for the transport that is served."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __repr__(self) -> str:
        return f"<{self._what}, served by mcpd>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to close."""

    async def aclose(self) -> None:
        """There is nothing to close."""


@asynccontextmanager
async def stdio_server(stdin: object = None, stdout: object = None) -> AsyncIterator[tuple[StandIn, StandIn]]:
    """The two ends that `Server.run` takes.

    Programs wrap stdin and stdout in files of their own, which mcpd has no use for. Raises NotImplementedError for
    files that lead elsewhere.
    """
    if not (_is_of_process(stdin) and _is_of_process(stdout)):
        raise NotImplementedError("stdio_server(stdin, stdout): mcpd serves the stdin and stdout of the process only")
    yield StandIn("stdin"), StandIn("stdout")


def _is_of_process(stream: Any) -> bool:
    """Whether a file, which anyio may have wrapped, is one of the process's own, or reads from it in its own way."""
    fileno = getattr(getattr(stream, "wrapped", stream), "fileno", None)
    if fileno is None:
        return True
    try:
        found = os.fstat(fileno())
    except OSError:  # a file in memory
        return False
    return any(os.path.samestat(found, os.fstat(each)) for each in (0, 1, 2))
