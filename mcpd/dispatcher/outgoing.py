"""The server's requests to a legacy client: sent, awaited until a timeout, and cancelled.

Spec: 2025-11-25 basic/utilities/cancellation.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from mcpd.errors import FrameTooLarge, RemoteError, RequestTimeout
from mcpd.protocol.channel import Channel
from mcpd.protocol.jsonrpc import Failure, Id, Response
from mcpd.protocol.requests import PendingRequest, PendingRequests
from mcpd.protocol.session import Call, Session
from mcpd.protocol.types.base import CancelledParams
from mcpd.protocol.wire import trace_context


class OutgoingRequests:
    """What one connection's client was asked and has not answered yet."""

    def __init__(self, session: Session, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._channel = channel
        self._loop = loop
        self.pending: PendingRequests[PendingRequest] = PendingRequests(getattr(channel, "request_prefix", ""))

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        """Ask, and wait `timeout` seconds at most (None: for ever); if the wait ends early, a cancellation is sent."""
        if not trace_context.is_carried:
            return await self._request(method, params, related_request, timeout)
        span = trace_context.ask(method, params)
        try:
            answer = await self._request(method, params, related_request, timeout)
        except BaseException as error:
            if span is not None:
                span.end(error)
            raise
        if span is not None:
            span.end()
        return answer

    async def _request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        frame = self._session.ask(method, params, self.pending.next_id, trace_context.carried())
        answer: asyncio.Future[Raw] = self._loop.create_future()
        request_id = self.pending.add(PendingRequest(method, answer))
        self._channel.send(frame, related_request.id, method)

        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            self._give_up(request_id, related_request, "timed out")
            raise RequestTimeout(f"The client did not answer {method} within {timeout:g} s") from None
        except asyncio.CancelledError:
            self._give_up(request_id, related_request, "no longer needed")
            raise
        finally:
            self.pending.take(request_id)
            del answer  # it holds the error that it raised here, whose traceback holds this frame

    def method_of(self, request_id: object) -> str:
        """That of the request of ours with this id; empty if none such waits."""
        request = self.pending.get(request_id)
        return "" if request is None else request.method

    def receive(self, message: Response | Failure) -> None:
        """Give an answer to the caller that waits for it; one to an unknown id is dropped."""
        self.pending.receive(message)

    def fail(self, error: FrameTooLarge) -> None:
        """An answer could not be read: its caller gets an error; if its id is unknown, all callers do."""
        for request in self.pending.take_unread(error.request_id):
            request.settle(RemoteError(error.code, f"the client's answer is too large: {error.message}"))

    def fail_all(self) -> None:
        """The peer is gone: nobody will answer."""
        self.pending.fail_all("the client is gone")

    def _give_up(self, request_id: Id, related_request: Call, reason: str) -> None:
        params = CancelledParams(request_id=request_id, reason=reason)
        # Not as part of that: that may be closed already, and this has to be said all the same.
        frame = self._session.notify("notifications/cancelled", params)
        if frame is not None:
            self._channel.send(frame, related_request.id, "notifications/cancelled")
