"""`stdio_server`: stands for stdin and stdout, which are ours to read and write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

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
    """The two ends that `Server.run` takes. Files of one's own are not read: mcpd serves the process's."""
    if stdin is not None or stdout is not None:
        raise NotImplementedError("stdio_server(stdin, stdout): mcpd serves the stdin and stdout of the process only")
    yield StandIn("stdin"), StandIn("stdout")
