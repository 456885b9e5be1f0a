"""Handlers of version 2 of the official SDK: functions of a context and params, behind the server's middleware.

A handler may return an `InputRequiredResult` with requests to the client. In 2026-07-28 the client receives such a
result, with the author's state inside mcpd's sealed state. In an earlier version the requests are sent one by one, and
the handler is called again with the responses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeAlias, TypeVar

from msgspec.json import decode

from mcpd.compat.lowlevel.context import (
    Handler,
    LifespanContextT,
    RequestContext,
    RequestT,
    SessionT,
    current_exchange,
    request_ctx,
)
from mcpd.compat.lowlevel.wire import REQUESTS, question_of
from mcpd.compat.missing import refuse
from mcpd.compat.types.base import Result
from mcpd.errors import LocalProtocolError
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import InputRequired

S = TypeVar("S")

HandlerResult: TypeAlias = Any
CallNext: TypeAlias = Callable[[Any], Awaitable[Any]]

_OPTIONS = {
    "on_ping": "ping",
    "on_list_tools": "tools/list",
    "on_call_tool": "tools/call",
    "on_list_resources": "resources/list",
    "on_list_resource_templates": "resources/templates/list",
    "on_read_resource": "resources/read",
    "on_subscribe_resource": "resources/subscribe",
    "on_unsubscribe_resource": "resources/unsubscribe",
    "on_list_prompts": "prompts/list",
    "on_get_prompt": "prompts/get",
    "on_completion": "completion/complete",
    "on_set_logging_level": "logging/setLevel",
}

# Notifications of clients, and subscriptions, which mcpd serves itself.
_IGNORED_OPTIONS = frozenset(("on_progress", "on_roots_list_changed", "on_subscriptions_listen"))

_MAY_ASK = frozenset(("tools/call", "resources/read", "prompts/get"))
"""Methods whose handlers may return an `InputRequiredResult`."""


@dataclass
class ServerRequestContext(RequestContext[SessionT, LifespanContextT, RequestT]):
    """A request: that of version 1, with its protocol version, its method, and its params as the client sent them."""

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


class ServerMiddleware(Generic[S]):
    """`async (ctx, call_next) -> result`. For annotations."""


def add_handlers(server: Any, handlers: Mapping[str, Callable[..., Awaitable[Any]] | None]) -> None:
    """Register the handlers of a constructor, such as `on_call_tool=…`. Raises TypeError for unknown options."""
    for name, handler in handlers.items():
        if name in _OPTIONS and handler is not None:
            add_handler(server, _OPTIONS[name], handler)
        elif name not in _OPTIONS and name not in _IGNORED_OPTIONS:
            raise TypeError(f"Server.__init__() got an unexpected keyword argument {name!r}")


def add_handler(server: Any, method: str, handler: Callable[..., Awaitable[Any]]) -> None:
    """Serve a method. Raises NotHere for a method that is not in the specification."""
    request = REQUESTS.get(method)
    if request is None:
        refuse(f"add_request_handler({method!r}), a custom method,", "the official SDK")

    server.keeps_unknown = False
    server.request_handlers[request] = _with_middleware(handler, server.middleware)


def running() -> ServerRequestContext[Any, Any, Any]:
    """Return the current request. Raises LookupError outside of a request."""
    request, exchange = request_ctx.get(), current_exchange.get()
    raw = bytes(exchange.call.raw)
    return ServerRequestContext(
        **vars(request),
        protocol_version=exchange.call.version.name,
        method=exchange.call.method,
        params=decode(raw) if raw else None,
    )


def _with_middleware(function: Callable[..., Awaitable[Any]], middleware: list[Any]) -> Handler:
    async def last(message: Any, ctx: Any) -> Any:
        params = message.params
        call = partial(function, ctx, params)
        if message.method in _MAY_ASK:
            result = await _with_inputs(current_exchange.get(), params, call, ctx.params)
        else:
            result = await call()
        return Result(**result) if isinstance(result, dict) else result

    async def handle(message: Any) -> Any:
        try:
            ctx = running()
        except LookupError:
            # `mcpd check` calls the list functions of a server that serves nobody.
            ctx = ServerRequestContext(
                request_id=0, meta=None, session=None, lifespan_context={}, method=message.method
            )
        step: CallNext = partial(last, message)
        for outer in reversed(middleware):
            step = partial(_call, outer, step)
        return await step(ctx)

    return handle


async def _call(middleware: Any, call_next: CallNext, ctx: Any) -> Any:
    return await middleware(ctx, call_next)


# -- results that ask for input --------------------------------------------------------------

_STATE_KEY = "compat.state"


@dataclass(frozen=True)
class Inputs:
    """The client's responses to an `InputRequiredResult` by name, and the state that it carried."""

    responses: dict[str, Any] | None = None
    state: str | None = None


_NO_INPUTS = Inputs()

current_inputs: ContextVar[Inputs] = ContextVar("inputs", default=_NO_INPUTS)


def is_input_required(result: Any) -> bool:
    """Return whether a function returned an `InputRequiredResult`."""
    return getattr(result, "resultType", None) == "input_required"


async def _with_inputs(exchange: Exchange, params: Any, call: Callable[[], Awaitable[Any]], members: Any) -> Any:
    """Call a handler until it needs no more input. `members` are its params as a dict."""
    inputs = _NO_INPUTS
    if members and ("inputResponses" in members or "requestState" in members):
        from mcpd.compat.types.client_requests import parse_responses

        inputs = Inputs(parse_responses(members.get("inputResponses")), exchange.asking.kept.get(_STATE_KEY))
    while True:
        params.input_responses, params.request_state = inputs.responses, inputs.state
        token = current_inputs.set(inputs)
        try:
            result = await call()
        finally:
            current_inputs.reset(token)
        if not is_input_required(result):
            return result

        from mcpd.compat.types.client_requests import parse_request, parse_responses

        questions = {key: question_of(parse_request(request)) for key, request in (result.inputRequests or {}).items()}
        exchange.asking.kept[_STATE_KEY] = result.requestState
        try:
            exchange.asking.required(questions)
        except LocalProtocolError:  # a version without such results
            pass
        else:
            raise InputRequired(questions)
        inputs = Inputs(parse_responses(await exchange.asking.ask(questions, None)), result.requestState)


# -- options without effect ------------------------------------------------------------------


class _Ignored:
    def __init__(self, **options: Any) -> None:
        self.options = options


class CacheHint(_Ignored):
    """How long a result may be cached. It is accepted and not used."""


class RequestStateSecurity(_Ignored):
    """How request states are sealed. mcpd seals them with keys of its own."""

    @classmethod
    def ephemeral(cls) -> Self:
        return cls()
