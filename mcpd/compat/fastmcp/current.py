"""What runs now: the request, its context, and which way it came."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from mcpd.compat.lowlevel.context import RequestContext, current_exchange, request_ctx
from mcpd.protocol.principal import Origin

__all__ = ["active", "current_context", "http_request", "origin", "request_context"]

current_context: ContextVar[Any] = ContextVar("fastmcp_context", default=None)


def active() -> Any:
    """The context of the request that runs. Raises RuntimeError where none does."""
    found = current_context.get()
    if found is None:
        raise RuntimeError("No active context found.")
    return found


def request_context() -> RequestContext[Any, Any, Any] | None:
    """The request that runs, None where none does."""
    return request_ctx.get(None)


def origin() -> Origin | None:
    """Which way that request came."""
    exchange = current_exchange.get(None)
    return None if exchange is None else exchange.origin


def http_request() -> Any:
    """The HTTP request that brought it, Starlette's where that is installed. Raises RuntimeError if none did."""
    running = request_context()
    request = None if running is None else running.request
    if request is None:
        raise RuntimeError("No active HTTP request found.")
    return request
