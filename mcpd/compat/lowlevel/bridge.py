"""A low-level server as an `mcpd.Server`: each method of ours calls the author's handler for it, if there is one."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec.json import decode
from pydantic import BaseModel, ValidationError

from mcpd import __version__
from mcpd.compat.exceptions import McpError, WireError
from mcpd.compat.lowlevel.application import Application, lifespan
from mcpd.compat.lowlevel.context import RequestContext, current_exchange, request_ctx
from mcpd.compat.lowlevel.http_request import request_of
from mcpd.compat.lowlevel.session import ServerSession
from mcpd.compat.types import notifications, prompts, resources, tools
from mcpd.compat.types.base import BaseNotification, BaseRequest, RequestParams
from mcpd.compat.types.errors import URL_ELICITATION_REQUIRED, ErrorData
from mcpd.compat.wire import result_of
from mcpd.errors import InvalidParams, MethodNotFound, ProtocolError, ToolError, UrlElicitationRequired, as_told
from mcpd.protocol.printable import printable
from mcpd.server import Server as McpdServer
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.input_required import InputRequired, is_failure
from mcpd.server.dispatcher.connection import NotificationListener
from mcpd.server.handlers.table import BoundHandler
from mcpd.server.registry.tools import failed

if TYPE_CHECKING:
    from mcpd.server.registry.entries import Entries

__all__ = ["CompatServer", "served"]

log = logging.getLogger("mcpd")

_REQUESTS: dict[str, type[BaseRequest]] = {
    "tools/list": tools.ListToolsRequest,
    "tools/call": tools.CallToolRequest,
    "resources/list": resources.ListResourcesRequest,
    "resources/templates/list": resources.ListResourceTemplatesRequest,
    "resources/read": resources.ReadResourceRequest,
    "prompts/list": prompts.ListPromptsRequest,
    "prompts/get": prompts.GetPromptRequest,
    "completion/complete": prompts.CompleteRequest,
    "logging/setLevel": notifications.SetLevelRequest,
    "resources/subscribe": resources.SubscribeRequest,
    "resources/unsubscribe": resources.UnsubscribeRequest,
}

_HEARD: dict[str, type[BaseNotification]] = {
    "notifications/progress": notifications.ProgressNotification,
    "notifications/roots/list_changed": notifications.RootsListChangedNotification,
}

_OFFERS: dict[type[BaseRequest], str] = {
    tools.ListToolsRequest: "tools",
    resources.ListResourcesRequest: "resources",
    resources.ListResourceTemplatesRequest: "resources",
    prompts.ListPromptsRequest: "prompts",
    prompts.CompleteRequest: "completions",
}

_BOTH = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""What we do ourselves too, whether or not the author has a handler for it."""


class CompatServer(McpdServer):
    """A server of ours that serves one of another library."""

    original: Application

    def listen(self, method: str, listener: NotificationListener) -> None:
        """Let it hear a notification of clients."""
        self._listen(method, listener)

    async def offered(self) -> Entries:
        """What it offers now, asked of its functions: for who looks at a server without serving it."""
        from mcpd.compat.lowlevel.offered import entries

        return await entries(self.original)


def served(app: Application) -> McpdServer:
    """The server of ours for `app`, which may get more handlers later."""
    said = app.said or app.identity
    icons = [icon.model_dump(by_alias=True, exclude_none=True) for icon in said.icons or ()]

    @asynccontextmanager
    async def life(_: object) -> Any:
        async with app.lifespan(app) as value:
            yield value

    server = CompatServer(
        said.server_name,
        version=said.server_version or __version__,
        instructions=said.instructions,
        title=getattr(app, "title", None),
        description=getattr(app, "description", None),
        website_url=said.website_url,
        icons=icons,
        lifespan=None if app.lifespan is lifespan else life,
        authenticate=app.authenticate,
    )
    server.original = app
    bridge = _Bridge(app, server)
    for capability in ("tools", "resources", "prompts", "completions"):
        server.catalog.offer(capability)  # their methods are in the table from then on
    server.catalog.offers.clear()
    for method in _REQUESTS:
        server.handlers.put(method, partial(bridge.handle, method, server.handlers.bare(method)))
    for method in _HEARD:
        server.listen(method, partial(bridge.hear, method))
    for method in ("initialize", "server/discover"):
        server.handlers.put(method, partial(bridge.hello, server.handlers.bare(method)))
    return server


class _Bridge:
    def __init__(self, app: Application, server: McpdServer) -> None:
        self._app = app
        self._server = server
        self._sessions: WeakKeyDictionary[object, ServerSession] = WeakKeyDictionary()

    async def hello(self, native: BoundHandler, exchange: Exchange, params: Any) -> Any:
        """`initialize` and `server/discover`: what there are handlers for by now is offered, and said of the server."""
        offers = {offer for request, offer in _OFFERS.items() if request in self._app.request_handlers}
        self._server.catalog.offers |= offers
        result = await _given(native(exchange, params))
        result.instructions = (self._app.said or self._app.identity).instructions
        said = self._app.said
        if said is not None and said.capabilities.experimental:
            result.capabilities.experimental = said.capabilities.experimental
        return result

    async def handle(self, method: str, native: BoundHandler, exchange: Exchange, params: Any) -> Any:
        """One request, by the author's handler for it; by ours if there is none."""
        handler = self._app.request_handlers.get(_REQUESTS[method])
        if handler is None and method == "resources/subscribe":
            return await self._watch(exchange, params, native)
        if handler is None and method == "completion/complete":
            raise MethodNotFound(f"Method not found: {method}")  # ours knows none of the prompts that there are
        if handler is None:
            return await _given(native(exchange, params))
        if method == "resources/subscribe":
            await self._watch(exchange, params, native)
        elif method in _BOTH:
            await _given(native(exchange, params))
        request = _request(method, exchange)
        context = request_ctx.set(self._context(exchange, request))
        current = current_exchange.set(exchange)
        try:
            result = await handler(request)
        except Exception as error:
            answer = self._error(error, exchange, method)
            if isinstance(answer, ToolError) and method == "tools/call":
                return failed(str(answer))
            raise answer from error
        finally:
            try:
                request_ctx.reset(context)
                current_exchange.reset(current)
            except ValueError:  # its last step ran in another context, which ends with it
                pass
        return self._result(method, result)

    async def hear(self, method: str, exchange: Exchange, params: Any) -> None:
        """A notification of the client, for the author's handler, if there is one."""
        handler = self._app.notification_handlers.get(_HEARD[method])
        if handler is None:
            return
        raw = bytes(exchange.call.raw)
        try:
            told = _HEARD[method].model_validate({"method": method, "params": decode(raw) if raw else None})
            await handler(told)
        except Exception as error:
            log.error("%s: its handler failed", printable(method), exc_info=as_told(error))

    async def _watch(self, exchange: Exchange, params: Any, native: BoundHandler) -> Any:
        """Any resource may be watched: only the author knows which there are."""
        try:
            return await _given(native(exchange, params))
        except InvalidParams:
            from mcpd.protocol.types.base import EmptyResult

            exchange.watch(params.uri)
            return EmptyResult()

    def _context(self, exchange: Exchange, request: BaseRequest) -> RequestContext[Any, Any, Any]:
        params = request.params
        meta = params.meta if isinstance(params, RequestParams) else None

        async def close() -> None:
            Context(exchange).close_stream()

        return RequestContext(
            request_id=exchange.request_id,
            meta=meta,
            session=self._session(exchange),
            lifespan_context={} if self._app.lifespan is lifespan else exchange.lifespan,
            request=request_of(exchange.origin),
            close_sse_stream=close,
        )

    def _session(self, exchange: Exchange) -> ServerSession:
        key = exchange.call.session
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = ServerSession(exchange)
            session.server = self._server
        session.renew(exchange)
        return session

    def _error(self, error: Exception, exchange: Exchange, method: str) -> BaseException:
        """An exception of a handler as the answer, with the code and text that its own library gives it."""
        if isinstance(error, ProtocolError):
            return error
        if isinstance(error, McpError):
            return _said(error.error, exchange)
        if not is_failure(error):
            return error
        log.error("%s failed", printable(method), exc_info=as_told(error))
        return WireError(0, str(error))

    def _result(self, method: str, result: Any) -> Any:
        from pydantic import RootModel  # built when it is imported, and not before a handler has answered

        if isinstance(result, RootModel):
            result = result.root
        if isinstance(result, ErrorData):
            raise WireError(result.code, result.message, result.data)
        if isinstance(result, BaseModel):
            return result_of(method, result, keeps_unknown=self._app.keeps_unknown)
        raise WireError(0, f"the handler of {method} gave {type(result).__qualname__}, which is no result")


def _request(method: str, exchange: Exchange) -> BaseRequest:
    raw = bytes(exchange.call.raw)
    try:
        return _REQUESTS[method].model_validate({"method": method, "params": decode(raw) if raw else None})
    except ValidationError:
        raise InvalidParams("Invalid request parameters", "") from None


def _said(error: ErrorData, exchange: Exchange) -> BaseException:
    """An error answer of the author's; pages to visit are asked for in the way of the request's version."""
    asked = error.data.get("elicitations") if isinstance(error.data, dict) else None
    if error.code != URL_ELICITATION_REQUIRED or not asked:
        return WireError(error.code, error.message, error.data)
    if exchange.call.version.has_error(UrlElicitationRequired):
        return UrlElicitationRequired(asked, error.message)
    for one in asked:
        from mcpd.server.context.questions import elicit_url  # few servers send anybody to a page

        question = elicit_url(one["message"], one["url"], one["elicitationId"])
        if not exchange.asking.can_ask(question):
            return WireError(-32603, error.message, error.data)
        try:
            exchange.asking.require(question, one["elicitationId"])
        except (InputRequired, ToolError) as answer:
            return answer
    return WireError(-32603, error.message, error.data)


async def _given(result: Any) -> Any:
    return await result if isawaitable(result) else result
