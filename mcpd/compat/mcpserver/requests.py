"""`ServerRequestContext`, and handlers of a context and params as those of requests, which the bridge calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec.json import decode

from mcpd.compat.lowlevel.context import (
    LifespanContextT,
    RequestContext,
    RequestT,
    SessionT,
    current_exchange,
    request_ctx,
)
from mcpd.compat.lowlevel.decorators import Handler
from mcpd.compat.mcpserver.rounds import in_rounds
from mcpd.compat.types import lifecycle, notifications, prompts, resources, tools
from mcpd.compat.types.base import BaseRequest, Result
from mcpd.protocol.methods import SUBJECTS

__all__ = [
    "REQUESTS",
    "CallNext",
    "HandlerEntry",
    "HandlerResult",
    "ServerMiddleware",
    "ServerRequestContext",
    "handler_of",
    "running",
]

S = TypeVar("S")

HandlerResult: TypeAlias = Any
CallNext: TypeAlias = Callable[[Any], Awaitable[Any]]


class ServerMiddleware(Generic[S]):
    """`async (ctx, call_next) -> result`. For annotations."""


REQUESTS: dict[str, type[BaseRequest]] = {
    "ping": lifecycle.PingRequest,
    "tools/list": tools.ListToolsRequest,
    "tools/call": tools.CallToolRequest,
    "resources/list": resources.ListResourcesRequest,
    "resources/templates/list": resources.ListResourceTemplatesRequest,
    "resources/read": resources.ReadResourceRequest,
    "resources/subscribe": resources.SubscribeRequest,
    "resources/unsubscribe": resources.UnsubscribeRequest,
    "prompts/list": prompts.ListPromptsRequest,
    "prompts/get": prompts.GetPromptRequest,
    "completion/complete": prompts.CompleteRequest,
    "logging/setLevel": notifications.SetLevelRequest,
}


@dataclass
class ServerRequestContext(RequestContext[SessionT, LifespanContextT, RequestT]):
    """One request: as in version 1, with its version, its method, and its params as they came."""

    protocol_version: str = ""
    method: str = ""
    params: Mapping[str, Any] | None = None

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls


@dataclass(frozen=True)
class HandlerEntry:
    """A handler, and the model of its params."""

    params_type: Any
    handler: Callable[..., Awaitable[Any]]


def running() -> ServerRequestContext[Any, Any, Any]:
    """The request that runs. Raises LookupError where none does."""
    request, exchange = request_ctx.get(), current_exchange.get()
    raw = bytes(exchange.call.raw)
    return ServerRequestContext(
        request_id=request.request_id,
        meta=request.meta,
        session=request.session,
        lifespan_context=request.lifespan_context,
        request=request.request,
        close_sse_stream=request.close_sse_stream,
        protocol_version=exchange.protocol_version,
        method=exchange.method,
        params=decode(raw) if raw else None,
    )


def _context_of(asked: Any) -> ServerRequestContext[Any, Any, Any]:
    try:
        return running()
    except LookupError:
        # `mcpd check` asks for lists of a server that serves nobody.
        return ServerRequestContext(request_id=0, meta=None, session=None, lifespan_context={}, method=asked.method)


def handler_of(function: Callable[..., Awaitable[Any]], middleware: list[Any]) -> Handler:
    """A handler of `(ctx, params)` as one of a request, through the server's middleware."""

    async def last(asked: Any, ctx: Any) -> Any:
        params = asked.params
        call = partial(function, ctx, params)
        if asked.method in SUBJECTS:
            result = await in_rounds(current_exchange.get(), params, call, ctx.params)
        else:
            result = await call()
        return Result(**result) if isinstance(result, dict) else result

    async def handle(asked: Any) -> Any:
        step: CallNext = partial(last, asked)
        for one in reversed(middleware):
            step = partial(_through, one, step)
        return await step(_context_of(asked))

    return handle


async def _through(one: Any, call_next: CallNext, ctx: Any) -> Any:
    return await one(ctx, call_next)
