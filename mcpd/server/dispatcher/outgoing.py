"""The server's requests to a legacy client: sent, awaited until a timeout, and cancelled.

Spec: 2025-11-25 basic/utilities/cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from mcpd.errors import FrameTooLarge, RemoteError, RequestTimeout
from mcpd.protocol.jsonrpc import Failure, Id, Response
from mcpd.protocol.requests import PendingRequest, PendingRequests
from mcpd.protocol.session import Call, Session
from mcpd.protocol.types.base import CancelledParams
from mcpd.protocol.wire import trace_context


class OutgoingRequests:
    """The requests of the server that a client has not answered yet. `prefix` is the beginning of their ids."""

    def __init__(self, session: Session, send: Callable[[bytes, Id, str], None], prefix: str) -> None:
        self._session = session
        self._send = send
        self.pending: PendingRequests[PendingRequest] = PendingRequests(prefix)

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        """Send a request, and wait `timeout` seconds for its result (None: no limit).

        If the wait ends early, the client receives a cancellation.
        """
        span = trace_context.start_span(method, params) if trace_context.is_traced else None
        try:
            result = await self._request(method, params, related_request, timeout)
        except BaseException as error:
            if span is not None:
                span.end(error)
            raise
        if span is not None:
            span.end()
        return result

    async def _request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        frame = self._session.ask(method, params, self.pending.next_id, trace_context.propagated())
        response: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        request_id = self.pending.add(PendingRequest(method, response))
        self._send(frame, related_request.id, method)

        try:
            async with asyncio.timeout(timeout):
                return await response
        except TimeoutError:
            self._cancel(request_id, related_request, "timed out")
            raise RequestTimeout(f"The client did not answer {method} within {timeout:g} s") from None
        except asyncio.CancelledError:
            self._cancel(request_id, related_request, "no longer needed")
            raise
        finally:
            self.pending.take(request_id)
            del response  # it holds the exception that it raised here, whose traceback holds this frame

    def method_of(self, request_id: object) -> str:
        """Return the method of the pending request with this id; empty for an unknown id."""
        request = self.pending.get(request_id)
        return "" if request is None else request.method

    def receive(self, message: Response | Failure) -> None:
        """Return a response to the caller that waits for it. A response to an unknown id is dropped."""
        self.pending.receive(message)

    def fail(self, error: FrameTooLarge) -> None:
        """Raise an error in the caller whose response could not be read; in all callers if the id is unknown."""
        for request in self.pending.take_unread(error.request_id):
            request.settle(RemoteError(error.code, f"the client's answer is too large: {error.message}"))

    def fail_all(self) -> None:
        """Raise ConnectionLost in all callers: the client has left."""
        self.pending.fail_all("the client is gone")

    def _cancel(self, request_id: Id, related_request: Call, reason: str) -> None:
        params = CancelledParams(request_id=request_id, reason=reason)
        # Not as part of the related request, which may be closed already.
        frame = self._session.notify("notifications/cancelled", params)
        if frame is not None:
            self._send(frame, related_request.id, "notifications/cancelled")
