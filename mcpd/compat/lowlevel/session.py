"""The context of a request, the client's session, and handlers of version 2 of the official SDK.

Such a handler is a function of a context and params, behind the server's middleware. It may return an
`InputRequiredResult` with requests to the client. In 2026-07-28 the client receives such a result, with the author's
state inside mcpd's sealed state. In an earlier version the requests are sent one by one, and the handler is called
again with the responses.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from msgspec import Struct, to_builtins
from msgspec.json import decode

from mcpd.compat.errors import McpError
from mcpd.compat.install import refuse
from mcpd.compat.types import features
from mcpd.compat.types.features import BaseNotification, BaseRequest, Model, RequestId, RequestParams, Result
from mcpd.errors import LocalProtocolError, McpdError, MissingCapability, RemoteError, ToolError
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.principal import Origin
from mcpd.protocol.types.base import CancelledParams, LogMessageParams, ProgressParams
from mcpd.protocol.types.features import ResourceUpdatedParams
from mcpd.protocol.types.interaction import ElicitationCompleteParams
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import InputRequired
from mcpd.transports.authentication import RequestHeaders
from .wire import REFUSALS, REQUESTS, as_json, question_of, struct_of

if TYPE_CHECKING:
    from mcpd.compat.types import client_requests
    from mcpd.server.app import Server

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

    def _current(self) -> RequestContext[Any, Any, Any] | None:
        return request_ctx.get(None)

    @property
    @abstractmethod
    def session(self) -> Any:
        """The client's session, a `ServerSession`."""

    @property
    def client_id(self) -> str | None:
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

    # ASGI has lower-case names, and Starlette compares them as they are.
    headers = [(name.lower(), value) for name, value in origin.fields]
    return Request(
        {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers, "scheme": "http"}
    )


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

# Notifications of clients, subscriptions, which mcpd serves itself, and options of caches that it does not have.
_IGNORED_OPTIONS = frozenset(
    ("cache_hints", "get_tool_input_schema", "on_progress", "on_roots_list_changed", "on_subscriptions_listen")
)


@dataclass
class ServerRequestContext(RequestContext[SessionT, LifespanContextT, RequestT]):
    """A request: that of version 1, with its protocol version, its method, and its params as the client sent them."""

    protocol_version: str = ""
    method: str = ""
    params: Mapping[str, Any] | None = None

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls


class ServerMiddleware(Generic[SessionT]):
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
        return await run_through(middleware, ctx, partial(last, message))

    return handle


async def run_through(middleware: Sequence[Any], context: Any, last: CallNext) -> Any:
    """Pass a context through a chain of middleware, the first one outermost."""
    step = last
    for outer in reversed(middleware):
        step = partial(_call, outer, step)
    return await step(context)


async def _call(middleware: Any, call_next: CallNext, context: Any) -> Any:
    return await middleware(context, call_next)


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
    return getattr(result, "resultType", None) == "input_required"


async def _with_inputs(exchange: Exchange, params: Any, call: Callable[[], Awaitable[Any]], members: Any) -> Any:
    # Calls a handler until it needs no more input. `members` are its params as a dict.
    inputs = _NO_INPUTS
    if members and ("inputResponses" in members or "requestState" in members):
        inputs = Inputs(_types().parse_responses(members.get("inputResponses")), exchange.asking.kept.get(_STATE_KEY))
    while True:
        params.input_responses, params.request_state = inputs.responses, inputs.state
        token = current_inputs.set(inputs)
        try:
            result = await call()
        finally:
            current_inputs.reset(token)
        if not is_input_required(result):
            return result

        types = _types()
        questions = {
            key: question_of(types.parse_request(request)) for key, request in (result.inputRequests or {}).items()
        }
        exchange.asking.kept[_STATE_KEY] = result.requestState
        try:
            exchange.asking.required(questions)
        except LocalProtocolError:  # a version without such results
            pass
        else:
            raise InputRequired(questions)
        inputs = Inputs(types.parse_responses(await exchange.asking.ask(questions, None)), result.requestState)


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


R = TypeVar("R", bound=Model)
ServerSessionT = TypeVar("ServerSessionT", bound="ServerSession")

_PARAMS: dict[str, type[Struct]] = {
    "notifications/message": LogMessageParams,
    "notifications/progress": ProgressParams,
    "notifications/cancelled": CancelledParams,
    "notifications/elicitation/complete": ElicitationCompleteParams,
}


def _types() -> Any:
    from mcpd.compat.types import client_requests  # slow to import, and few servers ask their clients

    return client_requests


class ServerSession:
    """A client of a server. The object stays the same for as long as the connection lasts."""

    def __init__(self, exchange: Exchange, server: Server) -> None:
        # Programs send messages after a request has ended. They go the way of the client's latest request.
        self.latest = exchange
        self._server = server

    @property
    def _exchange(self) -> Exchange:
        # The current request of this client; outside of a request, its latest one.
        exchange = current_exchange.get(None)
        return exchange if exchange is not None and exchange.peer is self.latest.peer else self.latest

    @property
    def client_params(self) -> features.InitializeRequestParams:
        client = self._exchange.client
        return features.InitializeRequestParams.model_validate(
            {
                "protocolVersion": self._exchange.call.version.name,
                "capabilities": to_builtins(client.capabilities),
                "clientInfo": {"name": "", "version": ""} if client.info is None else to_builtins(client.info),
            }
        )

    def check_client_capability(self, capability: features.ClientCapabilities) -> bool:
        required = capability.model_dump(by_alias=True, exclude_none=True, mode="json")
        return _includes(to_builtins(self._exchange.client.capabilities), required)

    # -- requests ----------------------------------------------------------------------------

    async def create_message(
        self,
        messages: list[client_requests.SamplingMessage],
        *,
        max_tokens: int,
        tools: list[Any] | None = None,
        tool_choice: client_requests.ToolChoice | None = None,
        related_request_id: RequestId | None = None,
        **options: Any,
    ) -> Any:
        """Sample from the client's model. Raises McpError if the client has none, or cannot give it `tools`.

        Options are other members of the request: system_prompt, include_context, temperature, stop_sequences, metadata
        and model_preferences.
        """
        types = _types()
        params = types.CreateMessageRequestParams(
            messages=messages, maxTokens=max_tokens, tools=tools, toolChoice=tool_choice, **options
        )
        if tools is not None or tool_choice is not None:
            sampling = self._exchange.client.capabilities.sampling
            if sampling is None or sampling.tools is None:
                raise McpError(-32602, "Client does not support sampling tools capability")

        result = types.CreateMessageResult if tools is None else types.CreateMessageResultWithTools
        return await self.send_request(types.CreateMessageRequest(params=params), result)

    async def list_roots(self) -> client_requests.ListRootsResult:
        types = _types()
        return await self.send_request(types.ListRootsRequest(), types.ListRootsResult)

    async def elicit_form(
        self,
        message: str,
        requestedSchema: dict[str, Any],  # noqa: N803 - the library's name
        related_request_id: RequestId | None = None,
    ) -> client_requests.ElicitResult:
        types = _types()
        params = types.ElicitRequestFormParams(message=message, requestedSchema=requestedSchema)
        return await self.send_request(types.ElicitRequest(params=params), types.ElicitResult)

    elicit = elicit_form

    async def elicit_url(
        self, message: str, url: str, elicitation_id: str, related_request_id: RequestId | None = None
    ) -> client_requests.ElicitResult:
        types = _types()
        params = types.ElicitRequestURLParams(message=message, url=url, elicitationId=elicitation_id)
        return await self.send_request(types.ElicitRequest(params=params), types.ElicitResult)

    async def send_ping(self) -> features.EmptyResult:
        return await self.send_request(features.PingRequest(), features.EmptyResult)

    async def send_request(
        self,
        request: BaseRequest | client_requests.ServerRequest,
        result_type: type[R],
        request_read_timeout_seconds: Any = None,
        metadata: Any = None,
        progress_callback: Any = None,
    ) -> R:
        """Send a request to the client.

        `request_read_timeout_seconds` is a timedelta. Raises McpError for an error response, and if the client does
        not serve this request.
        """
        message: Any = request if isinstance(request, BaseRequest) else request.root
        seconds = None if request_read_timeout_seconds is None else request_read_timeout_seconds.total_seconds()
        return result_type.model_validate(await self._ask(message, seconds))

    async def _ask(self, request: BaseRequest, seconds: float | None) -> Any:
        exchange = self._exchange
        try:
            if request.method == "ping":
                await exchange.peer.request("ping", None, exchange.call, seconds)
                return {}
            question = question_of(request)
            # Clients that cannot be asked would not answer, or close the connection.
            if not exchange.asking.can_ask(question):
                raise McpError(-32600, REFUSALS[request.method])
            key = exchange.asking.next_key()
            return (await exchange.asking.ask({key: question}, seconds))[key]
        except ToolError as error:
            # mcpd turns an error response into a ToolError. These libraries raise the response itself.
            cause = error.__cause__
            if isinstance(cause, RemoteError):
                raise McpError(cause.code, cause.message, cause.data) from error
            raise McpError(-32600, str(error)) from error
        except MissingCapability:
            raise
        except McpdError as error:
            raise McpError(-32000, str(error)) from error

    # -- notifications -----------------------------------------------------------------------

    async def send_log_message(
        self,
        level: features.LoggingLevel,
        data: Any,
        logger: str | None = None,
        related_request_id: RequestId | None = None,
    ) -> None:
        """Send a log message, if the client wants messages of this level."""
        exchange = self._exchange
        # After its end, a request has no stream for messages. The session's own stream takes them.
        if exchange.call.is_open:
            await Context(exchange).log(level, data, logger)
        else:
            await self._notify("notifications/message", LogMessageParams(level=level, data=data, logger=logger))

    async def send_progress_notification(
        self,
        progress_token: str | int,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: str | None = None,
    ) -> None:
        params = ProgressParams(progress_token=progress_token, progress=progress, total=total, message=message)
        await self._notify("notifications/progress", params)

    async def send_elicit_complete(self, elicitation_id: str, related_request_id: RequestId | None = None) -> None:
        """Notify the client that the user has finished with the page of a URL elicitation."""
        params = ElicitationCompleteParams(elicitation_id=elicitation_id)
        await self._notify("notifications/elicitation/complete", params)

    # The lists are the same for all clients, so a change is announced to all of them.

    async def send_tool_list_changed(self) -> None:
        await self._list_changed("tools")

    async def send_resource_list_changed(self) -> None:
        await self._list_changed("resources")

    async def send_prompt_list_changed(self) -> None:
        await self._list_changed("prompts")

    async def _list_changed(self, kind: Any) -> None:
        announce = self._server.catalog.on_change
        if announce is not None:
            announce(kind)
            # The notification is sent two iterations of the loop later. It must precede the current response.
            for _ in range(3):
                await asyncio.sleep(0)

    async def send_resource_updated(self, uri: object) -> None:
        """Notify this client, and all that subscribe to the resource, that its contents have changed."""
        self._server.resource_updated(str(uri))
        # A client that subscribes is notified by the server already.
        session = self._exchange.call.session
        if session.is_initialized and not session.is_watched(str(uri)):
            await self._notify("notifications/resources/updated", ResourceUpdatedParams(uri=str(uri)))

    async def send_notification(
        self,
        notification: BaseNotification | client_requests.ServerNotification,
        related_request_id: RequestId | None = None,
    ) -> None:
        message: Any = notification if isinstance(notification, BaseNotification) else notification.root
        method: str = message.method
        params = {} if message.params is None else as_json(message.params)
        if method == "notifications/resources/updated":
            await self.send_resource_updated(struct_of(params, ResourceUpdatedParams).uri)
        elif method.endswith("/list_changed"):
            await self._list_changed(method.split("/")[1])
        else:
            kind = _PARAMS.get(method)
            await self._notify(method, None if kind is None else struct_of(params, kind))

    async def _notify(self, method: str, params: Struct | None) -> None:
        exchange = self._exchange
        await exchange.peer.notify(method, params, exchange.call if exchange.call.is_open else None)


def _includes(offered: Any, required: Any) -> bool:
    # Returns whether `offered` has each member of `wanted`, at every depth. Flags must be set as wanted.
    if isinstance(required, Mapping):
        return offered is not None and all(_includes(offered.get(name), value) for name, value in required.items())
    return offered is not None and (offered or required is not True)
