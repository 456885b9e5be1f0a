"""The context of a request, what the `Context` classes of all libraries share, and handlers of version 2 of the SDK.

Such a handler is a function of a context and params, behind the server's middleware. It may return an
`InputRequiredResult` with requests to the client. In 2026-07-28 the client receives such a result, with the author's
state inside mcpd's sealed state. In an earlier version the requests are sent one by one, and the handler is called
again with the responses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from msgspec.json import decode

from mcpd.compat.install import refuse
from mcpd.compat.lowlevel.wire import REQUESTS, question_of
from mcpd.compat.types.base import RequestId, RequestParams, Result
from mcpd.errors import LocalProtocolError
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.principal import Origin
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import InputRequired
from mcpd.transports.authentication import RequestHeaders

if TYPE_CHECKING:
    from mcpd.server.context.exchange import Exchange


SessionT = TypeVar("SessionT")
LifespanContextT = TypeVar("LifespanContextT")
RequestT = TypeVar("RequestT")

Close = Callable[[], Awaitable[None]]
Handler = Callable[[Any], Awaitable[Any]]


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[dict[str, Any]]:
    """The lifespan of a server that has none of its own."""
    yield {}


@dataclass
class RequestContext(Generic[SessionT, LifespanContextT, RequestT]):
    """A request: its id, its `_meta`, the client's session, the lifespan's value, and the HTTP request, if any."""

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
"""The current request as the rest of mcpd sees it."""


def _log_method(level: str) -> Callable[..., Awaitable[None]]:
    async def log(
        self: SharedContext, message: Any, logger_name: str | None = None, extra: Any = None, **_: Any
    ) -> None:
        await self._log(level, message, logger_name, extra)

    return log


class SharedContext(ABC):
    """The methods that the `Context` classes of all libraries share."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    @abstractmethod
    def _current(self) -> RequestContext[Any, Any, Any] | None:
        """Return the current request, None outside of a request."""

    @property
    @abstractmethod
    def session(self) -> Any:
        """The client's session, a `ServerSession`."""

    @property
    def client_id(self) -> str | None:
        """The member `client_id` of the request's `_meta`, if there is one."""
        request = self._current()
        client_id: str | None = None if request is None else getattr(request.meta, "client_id", None)
        return client_id

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send the progress of the request, if the client asked for it."""
        request = self._current()
        if request is not None and request.meta is not None and request.meta.progressToken is not None:
            await self.session.send_progress_notification(
                progress_token=request.meta.progressToken, progress=progress, total=total, message=message
            )

    @abstractmethod
    async def _log(self, level: Any, message: Any, logger_name: str | None, extra: Any) -> None:
        """Send a log message to the client."""

    debug = _log_method("debug")
    info = _log_method("info")
    warning = _log_method("warning")
    error = _log_method("error")

    async def send_tool_list_changed(self) -> None:
        await self.session.send_tool_list_changed()

    async def send_prompt_list_changed(self) -> None:
        await self.session.send_prompt_list_changed()

    async def send_resource_list_changed(self) -> None:
        await self.session.send_resource_list_changed()

    async def close_sse_stream(self) -> None:
        """Close the connection on which the client waits. It reconnects for the response."""
        request = self._current()
        if request is not None and request.close_sse_stream is not None:
            await request.close_sse_stream()


# -- the HTTP request ------------------------------------------------------------------------


class HttpRequest:
    """The headers of a request, where Starlette is not installed. It has no body, query or address."""

    method = "POST"

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.query_params: Mapping[str, str] = {}


def request_of(origin: Origin) -> Any:
    """Return the HTTP request with all its headers, None for other transports. It is Starlette's if that is installed.

    Credentials are among the headers, since servers of these libraries read them there.
    """
    if origin.transport not in ("http", "websocket"):
        return None
    try:
        from starlette.requests import Request
    except ImportError:
        return HttpRequest(RequestHeaders.of(origin.fields))

    headers = [(name.lower(), value) for name, value in origin.fields]
    return Request(
        {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers, "scheme": "http"}
    )


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


@dataclass
class ServerRequestContext(RequestContext[SessionT, LifespanContextT, RequestT]):
    """A request: that of version 1, with its protocol version, its method, and its params as the client sent them."""

    protocol_version: str = ""
    method: str = ""
    params: Mapping[str, Any] | None = None

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls


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
        if message.method in SUBJECTS:  # only these may ask
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
