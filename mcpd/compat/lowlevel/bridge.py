"""Serves a low-level server with mcpd: each of mcpd's methods calls the author's handler for it, if there is one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from typing import Any
from weakref import WeakKeyDictionary

from msgspec.json import decode
from pydantic import BaseModel, ValidationError

from mcpd.compat.errors import McpError, WireError
from mcpd.compat.types import features
from mcpd.errors import (
    InvalidParams,
    LocalProtocolError,
    MethodNotFound,
    ProtocolError,
    ToolError,
    UrlElicitationRequired,
    as_told,
)
from mcpd.protocol.methods import METHODS
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import EmptyResult
from mcpd.server.app import Server as McpdServer
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange, Handler
from mcpd.server.context.peer import InputRequired, is_failure
from mcpd.server.registry.entries import ActiveExtensions, Entries, PromptEntry, ResourceEntry, TemplateEntry, ToolEntry
from mcpd.server.registry.tools import failed
from .session import RequestContext, ServerSession, current_exchange, lifespan, request_ctx, request_of
from .wire import REQUESTS, RESULTS, as_json, result_of, struct_of

log = logging.getLogger("mcpd")

_REQUESTS = {method: request for method, request in REQUESTS.items() if method != "ping"}  # mcpd answers pings itself

_NOTIFICATIONS: dict[str, type[features.BaseNotification]] = {
    "notifications/progress": features.ProgressNotification,
    "notifications/roots/list_changed": features.RootsListChangedNotification,
}

_SERVED_BY_BOTH = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""Methods that mcpd serves itself, too, whether or not the author has a handler."""


class CompatServer(McpdServer):
    """mcpd's server for one of another library."""

    original: Any
    """The `Server` of `lowlevel.server`, which loads this module when it is served."""

    listen = McpdServer._listen

    async def find_entries(self) -> Entries:
        """Return what the server's list functions return now, for commands that inspect a server."""
        entries: dict[str, Any] = {}
        for kind, method, member, key in _LISTS:
            pages = [getattr(struct_of(page, RESULTS[method]), member) async for page in _pages(self.original, method)]
            entries[kind] = [_Inspected(getattr(item, key), item) for page in pages for item in page] or None
        return Entries(**entries)


def mcpd_server(app: Any) -> McpdServer:
    """Return mcpd's server for `app`, which may get more handlers later."""
    options = app.initialization_options or app.identity
    icons = [icon.model_dump(by_alias=True, exclude_none=True) for icon in options.icons or ()]

    @asynccontextmanager
    async def open_lifespan(_: object) -> Any:
        async with app.lifespan(app) as value:
            yield value

    server = CompatServer(
        options.server_name,
        version=options.server_version,
        instructions=options.instructions,
        title=app.title,
        description=app.description,
        website_url=options.website_url,
        icons=icons,
        lifespan=None if app.lifespan is lifespan else open_lifespan,
        authenticate=app.authenticate,
    )
    server.original = app
    bridge = _Bridge(app, server)

    # Offering a capability puts its methods into the table. Which are offered is decided in the handshake.
    for capability in ("tools", "resources", "prompts", "completions"):
        server.catalog.offer(capability)
    server.catalog.offers.clear()

    for method in _REQUESTS:
        server.handlers.put(method, partial(bridge.handle, method, server.handlers.bare(method)))
    for method in _NOTIFICATIONS:
        server.listen(method, partial(bridge.handle_notification, method))
    for method in ("initialize", "server/discover"):
        server.handlers.put(method, partial(bridge.handshake, server.handlers.bare(method)))
    return server


class _Bridge:
    def __init__(self, app: Any, server: McpdServer) -> None:
        self._app = app
        self._server = server
        self._sessions: WeakKeyDictionary[object, ServerSession] = WeakKeyDictionary()

    async def handshake(self, native: Handler, exchange: Exchange, params: Any) -> Any:
        # By now the author has registered all handlers.
        for method, request in _REQUESTS.items():
            row = METHODS[method]
            if request in self._app.request_handlers and (row.is_list or row.capability == "completions"):
                self._server.catalog.offers.add(row.capability)
        options = self._app.initialization_options

        result = await _awaited(native(exchange, params))
        # Programs change the instructions after the server was made.
        result.instructions = (options or self._app.identity).instructions
        if options is not None and options.capabilities.experimental:
            result.capabilities.experimental = options.capabilities.experimental
        return result

    async def handle(self, method: str, native: Handler, exchange: Exchange, params: Any) -> Any:
        # Serves a request with the author's handler, or without one with mcpd's own (`native`).
        handler = self._app.request_handlers.get(_REQUESTS[method])
        if handler is None and method == "completion/complete":
            raise MethodNotFound(f"Method not found: {method}")  # mcpd's own handler knows none of the prompts

        # mcpd keeps subscriptions and log levels itself, so its own handler runs even if the author has one.
        if handler is None or method in _SERVED_BY_BOTH:
            result = await self._serve_natively(native, exchange, params)
            if handler is None:
                return result

        request = _request(method, exchange)
        context = request_ctx.set(self._context(exchange, request))
        current = current_exchange.set(exchange)
        try:
            result = await handler(request)
        except Exception as error:
            answer = _error_answer(error, exchange, method)
            if isinstance(answer, ToolError) and method == "tools/call":
                return failed(str(answer))
            raise answer from error
        finally:
            try:
                request_ctx.reset(context)
                current_exchange.reset(current)
            except ValueError:  # the last step ran in another context, which ends with it
                pass
        return self._result(method, result)

    async def handle_notification(self, method: str, exchange: Exchange, params: Any) -> None:
        # Passes a notification to the author's handler, if there is one.
        handler = self._app.notification_handlers.get(_NOTIFICATIONS[method])
        if handler is None:
            return
        try:
            await handler(_NOTIFICATIONS[method].model_validate(_message(method, exchange)))
        except Exception as error:
            log.error("%s: its handler failed", printable(method), exc_info=as_told(error))

    async def _serve_natively(self, native: Handler, exchange: Exchange, params: Any) -> Any:
        try:
            return await _awaited(native(exchange, params))
        except InvalidParams:
            if exchange.call.method != "resources/subscribe":
                raise
            # mcpd does not know the resource. Only the author knows which there are.
            exchange.call.session.watch(params.uri)
            return EmptyResult()

    def _context(self, exchange: Exchange, request: features.BaseRequest) -> RequestContext[Any, Any, Any]:
        params = request.params
        # Servers keep session objects beyond a request, so there is one for each session.
        session = self._sessions.get(exchange.call.session)
        if session is None:
            session = self._sessions[exchange.call.session] = ServerSession(exchange, self._server)
        session.latest = exchange

        async def close() -> None:
            Context(exchange).close_stream()

        return RequestContext(
            request_id=exchange.request_id,
            meta=params.meta if isinstance(params, features.RequestParams) else None,
            session=session,
            lifespan_context={} if self._app.lifespan is lifespan else exchange.lifespan,
            request=request_of(exchange.origin),
            close_sse_stream=close,
        )

    def _result(self, method: str, result: Any) -> Any:
        result = getattr(result, "root", result)  # of a `ServerResult`
        if isinstance(result, features.ErrorData):
            raise WireError(result.code, result.message, result.data)
        if isinstance(result, BaseModel):
            return result_of(method, result, keeps_unknown=self._app.keeps_unknown)
        raise WireError(0, f"the handler of {method} returned {type(result).__qualname__} instead of a result")


def _request(method: str, exchange: Exchange) -> features.BaseRequest:
    try:
        return _REQUESTS[method].model_validate(_message(method, exchange))
    except ValidationError:
        raise InvalidParams("Invalid request parameters", "") from None


def _message(method: str, exchange: Exchange) -> dict[str, Any]:
    raw = bytes(exchange.call.raw)
    return {"method": method, "params": decode(raw) if raw else None}


def _error_answer(error: Exception, exchange: Exchange, method: str) -> BaseException:
    # Returns the error response for an exception, with the code and message that its own library uses.
    if isinstance(error, ProtocolError):
        return error
    if isinstance(error, McpError):
        return _mcp_error(error.error, exchange)
    # A cancellation or a request for input is not a failure of the handler.
    if not is_failure(error):
        return error

    log.error("%s failed", printable(method), exc_info=as_told(error))
    return WireError(0, str(error))


def _mcp_error(error: features.ErrorData, exchange: Exchange) -> BaseException:
    # Returns an author's error response. URL elicitations are requested in the way of the protocol version.
    pages = error.data.get("elicitations") if isinstance(error.data, dict) else None
    # Any other error is sent as it is, with the author's code.
    if error.code != features.URL_ELICITATION_REQUIRED or not pages:
        return WireError(error.code, error.message, error.data)
    if exchange.call.version.has_error(UrlElicitationRequired):
        return UrlElicitationRequired(pages, error.message)

    from mcpd.server.context.questions import elicit_url  # few servers use URL elicitation

    # The user visits one page at a time: the handler runs again afterwards, and then asks for the next one.
    page = pages[0]
    question = elicit_url(page["message"], page["url"], page["elicitationId"])
    if exchange.asking.can_ask(question):
        try:
            exchange.asking.require(question, page["elicitationId"])
        except (InputRequired, ToolError) as answer:
            return answer
    return WireError(-32603, error.message, error.data)


async def _awaited(result: Any) -> Any:
    return await result if isawaitable(result) else result


# -- the lists of a server that serves nobody ------------------------------------------------


_LISTS = (
    ("tools", "tools/list", "tools", "name"),
    ("resources", "resources/list", "resources", "uri"),
    ("templates", "resources/templates/list", "resource_templates", "uri_template"),
    ("prompts", "prompts/list", "prompts", "name"),
)
"""For each kind of entry: the method that lists it, the member of its result, and the member that is the key."""


async def _pages(app: Any, method: str) -> AsyncIterator[dict[str, Any]]:
    request = REQUESTS[method]
    list_page = app.request_handlers.get(request)
    params: features.PaginatedRequestParams | None = None
    while list_page is not None:
        result: Any = await list_page(request.model_validate({"method": method, "params": params}))
        page = as_json(getattr(result, "root", result))
        yield page
        if page.get("nextCursor") is None:
            return
        params = features.PaginatedRequestParams(cursor=page["nextCursor"])


class _Inspected(ToolEntry, ResourceEntry, TemplateEntry, PromptEntry):
    """An entry of any kind that is listed and never called."""

    def __init__(self, key: str, item: Any) -> None:
        self.key, self._item = key, item

    def listed(self, active: ActiveExtensions) -> Any:
        return self._item

    def match(self, uri: str) -> None:
        """Templates match nothing here."""

    def run(self, *_: Any) -> Any:
        raise LocalProtocolError("this entry is for inspection only; the handlers of its server serve it")
