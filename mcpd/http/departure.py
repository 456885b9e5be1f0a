"""How a long request learns that its client has left.

Our own connections tell by a call: an event, a task and what they are made of would take 2 KiB of each client that
listens. Other ASGI servers report it only to a pending `receive`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from mcpd.http.request import WHEN_GONE, HttpRequest, Receive


class Departure:
    """Set when the client of a request that was read has left, or its answer is complete. The callback is called once,
    a turn of the loop later."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def set(self) -> None:
        """It has happened."""
        callback, self._callback = self._callback, None
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback)

    def cancel(self) -> None:
        """The callback is not wanted any more."""
        self._callback = None


def when_gone(send: Any, callback: Callable[[], object]) -> Departure | None:
    """Have an exchange of `http1`, whose `send` this is, call back; None if it is too late, or its body is to come."""
    exchange: Any = getattr(send, "__self__", None)
    if not hasattr(exchange, "departure") or exchange.more_body or exchange.is_gone or exchange.is_complete:
        return None
    departure = exchange.departure = Departure(callback)
    return departure


def on_departure(request: HttpRequest, callback: Callable[[], object]) -> Departure | asyncio.Task[None]:
    """Have this called when the client of a request that was read has left, or has its answer; `cancel` ends that."""
    tell = request.scope.get(WHEN_GONE)
    departure: Departure | None = None if tell is None else request.have_told(tell, callback)
    if departure is not None:
        return departure
    return asyncio.get_running_loop().create_task(_watch(request.receive, callback), name="mcpd-watch")


def departed(request: HttpRequest) -> asyncio.Future[None]:
    """Done when the client of a request that was read has left, or has its answer."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watching = on_departure(request, partial(_settle, future))
    if isinstance(watching, asyncio.Task):
        future.add_done_callback(lambda _: watching.cancel())
    return future


async def _watch(receive: Receive, callback: Callable[[], object]) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except Exception:
        # Whatever a server raises when there is nothing more to receive: for us the client is gone.
        pass
    callback()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
