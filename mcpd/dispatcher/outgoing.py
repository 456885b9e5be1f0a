"""Our own requests to a legacy client: who waits for which answer, and giving up.

Spec: 2025-11-25 basic/utilities/cancellation.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from ..channel import Channel
from ..errors import ConnectionLost, FrameTooLarge, RemoteError, RequestTimeout
from ..jsonrpc import Failure, Id, Response, remote_error
from ..session import Call, Session
from ..types.notifications import CancelledParams

__all__ = ["OutgoingRequests"]


class OutgoingRequests:
    """The requests of one connection that the peer has not answered yet."""

    def __init__(self, session: Session, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._channel = channel
        self._loop = loop
        self._waiting: dict[Id, asyncio.Future[Raw]] = {}

    async def request(self, method: str, params: Any, about: Call, timeout: float | None) -> Raw:
        """Ask, and wait `timeout` seconds at most (None: for ever); if the wait ends early, the peer is told."""
        request_id, frame = self._session.ask(method, params)
        answer: asyncio.Future[Raw] = self._loop.create_future()
        self._waiting[request_id] = answer
        self._channel.send(frame, about.id)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            self._give_up(request_id, about, "timed out")
            raise RequestTimeout(f"The client did not answer {method} within {timeout:g} s") from None
        except asyncio.CancelledError:
            self._give_up(request_id, about, "no longer needed")
            raise
        finally:
            self._waiting.pop(request_id, None)
            del answer  # it holds the error that it raised here, whose traceback holds this frame

    def receive(self, message: Response | Failure) -> None:
        """Hand an answer to whoever waits for it; one that nobody waits for is dropped."""
        request_id = self._session.receive_answer(message)
        waiting = None if request_id is None else self._waiting.get(request_id)
        if waiting is None or waiting.done():
            return
        if isinstance(message, Response):
            waiting.set_result(message.result)
        else:
            waiting.set_exception(remote_error(message))

    def fail(self, error: FrameTooLarge) -> None:
        """An answer could not be taken: whoever waits for it hears that, or if it cannot be told whose it is, all."""
        for request_id, waiting in self._waiting.items():
            if error.request_id in (request_id, None) and not waiting.done():
                self._session.forget(request_id)
                waiting.set_exception(RemoteError(error.code, f"the client's answer is too large: {error.message}"))

    def fail_all(self) -> None:
        """The peer is gone: nobody will answer."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost("the client is gone"))

    def _give_up(self, request_id: Id, about: Call, reason: str) -> None:
        self._session.forget(request_id)
        params = CancelledParams(request_id=request_id, reason=reason)
        # Not as part of `about`: that may be closed already, and this has to be said all the same.
        frame = self._session.notify("notifications/cancelled", params)
        if frame is not None:
            self._channel.send(frame, about.id)
