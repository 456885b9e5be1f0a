"""`RequestContext`: what a handler finds of its request, in a context variable as in the library it comes from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcpd.compat.types.base import RequestId, RequestParams

if TYPE_CHECKING:
    from mcpd.server.context.exchange import Exchange

__all__ = ["LifespanContextT", "RequestContext", "RequestT", "SessionT", "current_exchange", "request_ctx"]

SessionT = TypeVar("SessionT")
LifespanContextT = TypeVar("LifespanContextT")
RequestT = TypeVar("RequestT")

Close = Callable[[], Awaitable[None]]


@dataclass
class RequestContext(Generic[SessionT, LifespanContextT, RequestT]):
    """One request: its id, its `_meta`, the client's session, what the lifespan gave, and the HTTP request, if any."""

    request_id: RequestId
    meta: RequestParams.Meta | None
    session: SessionT
    lifespan_context: LifespanContextT
    experimental: Any = None
    request: RequestT | None = None
    close_sse_stream: Close | None = None
    close_standalone_sse_stream: Close | None = None


request_ctx: ContextVar[RequestContext[Any, Any, Any]] = ContextVar("request_ctx")

current_exchange: ContextVar[Exchange] = ContextVar("current_exchange")
"""The same request as the rest of mcpd sees it."""
