"""Names of the official SDK's transports. They are placeholders, since mcpd has the transports itself."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias


class StandIn:
    """Replaces a stream of messages. `Server.run` serves mcpd's transport when it receives one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}, served by mcpd>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing needs closing."""

    async def aclose(self) -> None:
        """Nothing needs closing."""


@asynccontextmanager
async def stdio_server(stdin: object = None, stdout: object = None) -> AsyncIterator[tuple[StandIn, StandIn]]:
    """Yield the two streams that `Server.run` takes.

    Programs wrap stdin and stdout in files of their own, which mcpd does not need. Raises NotImplementedError for
    files that are not stdin, stdout or stderr of the process.
    """
    if not (_is_of_process(stdin) and _is_of_process(stdout)):
        raise NotImplementedError("stdio_server(stdin, stdout): mcpd serves the stdin and stdout of the process only")

    yield StandIn("stdin"), StandIn("stdout")


def _is_of_process(stream: Any) -> bool:
    # anyio may have wrapped the file. A stream without a file descriptor reads stdin in its own way.
    fileno = getattr(getattr(stream, "wrapped", stream), "fileno", None)
    if fileno is None:
        return True
    try:
        found = os.fstat(fileno())
    except OSError:  # a file in memory
        return False

    return any(os.path.samestat(found, os.fstat(descriptor)) for descriptor in (0, 1, 2))


def create_mcp_http_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:
    """Return an `httpx.AsyncClient` that follows redirects, with a timeout of 30 seconds (300 to read)."""
    import httpx

    limit = httpx.Timeout(30.0, read=300.0) if timeout is None else timeout
    return httpx.AsyncClient(follow_redirects=True, headers=headers, timeout=limit, auth=auth)


# -- event stores ----------------------------------------------------------------------------

StreamId: TypeAlias = str
EventId: TypeAlias = str


@dataclass
class EventMessage:
    message: Any
    event_id: EventId | None = None


EventCallback: TypeAlias = Callable[[EventMessage], Awaitable[None]]


class EventStore:
    """The base class of a server's own store of events. It is not used: mcpd resumes streams from its own memory."""
