"""Pages on a port of their own, without an MCP endpoint: a function answers each request.

Connections, limits and shutdown are those of every HTTP listener. The function decides who is admitted: it receives the
whole request, including `Host` and `Origin`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from msgspec import Struct

from mcpd.protocol.channel import Channel, Ending, Receiver
from mcpd.protocol.printable import printable
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.authentication import Refusal
from mcpd.transports.guards import Access, Guard
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits
from .core import HttpSettings
from .request import BadRequest, ClientDisconnected, HttpRequest, Receive, Scope, Send

log = logging.getLogger("mcpd.http")

_FAILED = Refusal(500, "The page could not be created; details are in the log.\n")


class PageAnswer(Struct, frozen=True, kw_only=True):
    """A complete response; status 204 has no body."""

    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    status: int = 200


Answer: TypeAlias = Callable[[HttpRequest], Coroutine[Any, Any, PageAnswer | Refusal]]
MakeEndpoint: TypeAlias = Callable[[WebSocketLimits, ConnectionLimit], Endpoint]


class PageApp:
    """Sends what `answer` returns, for requests of any method. `make_endpoint` returns the WebSocket endpoint."""

    def __init__(
        self, answer: Answer, make_endpoint: MakeEndpoint | None = None, settings: HttpSettings | None = None
    ) -> None:
        self.settings = HttpSettings(path="/") if settings is None else settings
        self._answer = answer
        self._make_endpoint = make_endpoint
        self._running: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Do nothing."""

    def refused(self, status: int) -> None:
        """Do nothing: refusals of pages are not counted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Spec: ASGI 3."""
        if scope["type"] != "http":
            return

        request = HttpRequest(scope, receive, send)
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await _give(request, await self._answer(request))
        except ClientDisconnected:
            pass
        except BadRequest as bad:
            await request.refuse(Refusal(bad.status, f"{bad}\n"), ((b"connection", b"close"),))
        except Exception:
            log.exception("%s could not be answered", printable(request.path))
            if not request.status:
                await request.refuse(_FAILED)
        finally:
            request.charge = None
            self._running.discard(task)

    @property
    def endings(self) -> Iterable[Ending]:
        """Nothing: pages are answered immediately."""
        return ()

    def new_endpoint(
        self, accept: Callable[[Channel], Receiver], limits: WebSocketLimits, connection_limit: ConnectionLimit
    ) -> Endpoint:
        """See `Application`; without `make_endpoint` all handshakes are refused."""
        if self._make_endpoint is not None:
            return self._make_endpoint(limits, connection_limit)
        return _Nobody(accept, limits, connection_limit)

    def drain(self) -> None:
        """Do nothing: pages are answered immediately."""

    async def aclose(self) -> None:
        """Wait up to a second for running requests."""
        if self._running:
            await asyncio.wait(self._running, timeout=1)


async def _give(request: HttpRequest, answer: PageAnswer | Refusal) -> None:
    if isinstance(answer, Refusal):
        log.info("Refused a request: %d %s", answer.status, printable(answer.text.rstrip()))
        await request.refuse(answer)
        return

    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers]
    if answer.status == 204:
        await request.answer_empty(204, headers)
    else:
        await request.answer(answer.status, answer.body, (b"content-type", answer.content_type.encode()), headers)


class _Nobody(Endpoint):
    # Refuses every handshake.
    def __init__(
        self, accept: Callable[[Channel], Receiver], limits: WebSocketLimits, connection_limit: ConnectionLimit
    ) -> None:
        super().__init__(accept, Guard(Access()), limits, (), connection_limit)

    def check(self, headers: object) -> Refusal:
        # Return the refusal.
        return Refusal(404, "There is no WebSocket here.\n")
