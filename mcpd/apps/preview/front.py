"""The two ports of a preview, both on this machine only: the page with its API, and the sandbox.

The API is JSON-RPC 2.0 over a WebSocket, one text frame for each message, with requests in both directions. A page
needs its own Host, its exact Origin and, in the first message and soon, the token of the address that the user
opened. Another page, even on another port, is refused before it can send a message.

Loaded while the server of the user starts in a process of its own (`preview`), because both take about as long.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from hmac import compare_digest
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import decode as decode_json
from websockets.frames import CloseCode
from websockets.http11 import Request as HandshakeRequest

from mcpd.errors import InternalError, InvalidParams, McpdError, MethodNotFound, ProtocolError, RemoteError
from mcpd.protocol.channel import Channel, Receiver
from mcpd.protocol.jsonrpc import (
    MALFORMED,
    Failure,
    Notification,
    Request,
    Response,
    Result,
    decode,
    encode,
    error_answer,
    explain,
)
from mcpd.protocol.principal import ANONYMOUS, Principal
from mcpd.protocol.printable import printable
from mcpd.server.http.core import HttpSettings
from mcpd.server.http.listener import HttpListener
from mcpd.server.http.pages import PageApp
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.authentication import Refusal, RequestHeaders
from mcpd.transports.files import bundled_folder
from mcpd.transports.guards import Access, Guard
from mcpd.transports.websocket.connection import WebSocketChannel
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits
from .messages import Hello, NoParams
from .methods import NOTIFICATIONS, REQUESTS, PageRequestHandler
from .sandbox import Origins, PageFiles, Sandbox
from .session import Page, PreviewSession
from .views import PageViews

log = logging.getLogger("mcpd.preview")

PATH = "/api"
HELLO_SECONDS = 5.0
MAX_PAGES = 16


class ApiEndpoint(Endpoint):
    def __init__(self, front: Front, limits: WebSocketLimits, connection_limit: ConnectionLimit) -> None:
        super().__init__(self._begin, Guard(Access()), limits, (PATH,), connection_limit)
        self._front = front

    def check(self, headers: RequestHeaders) -> Principal | Refusal:
        # A program that sends no Origin is refused too.
        if not self._front.is_page(headers.get("host"), headers.get("origin")):
            return Refusal(403, "Only the page of this preview may connect here.\n")
        return ANONYMOUS

    def refuse(self, request: HandshakeRequest) -> Refusal | None:
        if request.path != PATH:
            return Refusal(404, f"Connect to {PATH}.\n")
        if len(self.connections) > MAX_PAGES:
            return Refusal(503, f"{MAX_PAGES} pages are open; close one first.\n")
        return super().refuse(request)

    def _begin(self, channel: Channel) -> Receiver:
        assert isinstance(channel, WebSocketChannel)
        origin = dict(channel.origin().headers()).get("origin", "")
        return PageConnection(channel, self._front, origin)


class PageConnection:
    def __init__(self, channel: WebSocketChannel, front: Front, origin: str) -> None:
        self._channel = channel
        self._front = front
        self._origin = origin
        self._handler: PageRequestHandler | None = None
        self._page = Page(channel)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

        reason = f"the first message must be hello, within {HELLO_SECONDS:g} seconds"
        self._timer = self._loop.call_later(HELLO_SECONDS, self._refuse, reason)

    def receive(self, frame: bytes) -> None:
        try:
            message = decode(frame)
        except ProtocolError as error:
            if self._handler is None:
                self._refuse("the first message must be hello")
            else:
                self._channel.send(encode(error_answer(error, error.request_id)))
            return

        if self._handler is None:
            self._on_hello(message)
        elif isinstance(message, Request):
            self._start(self._answer(self._handler, message))
        elif isinstance(message, Notification):
            self._on_notification(self._handler, message)
        elif isinstance(message, (Response, Failure)):
            self._page.receive(message)

    def receive_error(self, error: ProtocolError) -> None:
        self._refuse(error.message)

    def closed(self, error: McpdError | None = None) -> None:
        self._timer.cancel()
        handler, self._handler = self._handler, None
        self._page.closed()
        for task in self._tasks:
            task.cancel()

        if handler is not None:
            handler.session.pages.remove(self._page)
            handler.views.end()

    def _on_hello(self, message: object) -> None:
        if not isinstance(message, Request) or message.method != "hello" or not self._has_token(message.params):
            self._refuse("the first message must be hello, with the token of the address that was printed")
            return
        self._timer.cancel()
        handler = self._handler = self._front.new_handler(self._page, self._origin)
        handler.session.pages.append(self._page)
        self._start(self._answer(handler, message))

    def _has_token(self, params: Raw) -> bool:
        try:
            token = decode_json(params, type=Hello).token
        except MALFORMED:
            return False
        return compare_digest(token.encode("utf-8", "replace"), self._front.token.encode())

    def _refuse(self, reason: str) -> None:
        log.warning("A page was refused: %s", printable(reason))
        self._channel.fail(CloseCode.POLICY_VIOLATION, reason)

    async def _answer(self, handler: PageRequestHandler, request: Request) -> None:
        try:
            if request.method not in REQUESTS:
                raise MethodNotFound(f"Unknown method: {request.method!r:.80}")
            params_type, handle = REQUESTS[request.method]
            result = await handle(handler, _decode_params(params_type, request))
            answer: object = Result(request.id, NoParams() if result is None else result)
        except (ProtocolError, RemoteError) as error:
            answer = error_answer(error, request.id)
        except McpdError as error:
            answer = error_answer(RemoteError(-32000, str(error)), request.id)
        except Exception:
            log.exception("%s failed", printable(request.method))
            answer = error_answer(InternalError(), request.id)
        self._channel.send(encode(answer))

    def _on_notification(self, handler: PageRequestHandler, notification: Notification) -> None:
        if notification.method not in NOTIFICATIONS:
            return
        params_type, handle = NOTIFICATIONS[notification.method]
        try:
            handle(handler, decode_json(notification.params, type=params_type))
        except MALFORMED as error:
            text = "A page sent an invalid %s: %s"
            log.warning(text, printable(notification.method), printable(explain(error)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _decode_params(params_type: type[Struct], request: Request) -> Any:
    if params_type is NoParams:
        return NoParams()
    try:
        return decode_json(request.params if bytes(request.params) else b"{}", type=params_type)
    except MALFORMED as error:
        raise InvalidParams(f"Invalid params: {explain(error)}") from None


# A message of the page may contain one of a View, or an answer that the user wrote instead of a model.
MAX_FRAME_BYTES = 64 * 1024 * 1024
# Room for all cookies that a browser stores for one site: a View may set them, and the page must still load.
MAX_HEAD_BYTES = 1024 * 1024


class Front:
    """Serves the page and the sandbox of a session. A page has to send `token`; `folder` has its files."""

    def __init__(self, session: PreviewSession, token: str, folder: str | None) -> None:
        self._session = session
        self.token = token
        self._sandbox = Sandbox()
        self._files = PageFiles(os.path.join(bundled_folder(), "host") if folder is None else folder)
        self._origins: Origins | None = None
        self._limit = ConnectionLimit()
        self._listeners: list[HttpListener] = []

    async def open(self, port: int) -> Origins:
        """Listen with the page on this port; 0 uses any free one. Raises ConfigurationError if that is impossible."""
        settings = HttpSettings(path="/", max_head_bytes=MAX_HEAD_BYTES)
        try:
            sandbox_port = await self._listen(PageApp(self._sandbox.answer, settings=settings), 0)
            page_port = await self._listen(PageApp(self._files.answer, self._new_endpoint, settings), port)
        except BaseException:
            await self.aclose()
            raise
        self._origins = self._files.origins = Origins(page_port, sandbox_port)
        return self._origins

    async def aclose(self) -> None:
        self._sandbox.close()
        while self._listeners:
            await self._listeners.pop().aclose()

    async def _listen(self, app: PageApp, port: int) -> int:
        listener = HttpListener(app, f":{port}", connection_limit=self._limit)
        await listener.start(_no_receiver)
        self._listeners.append(listener)
        return int(listener.url.rpartition(":")[2].rstrip("/"))

    def _new_endpoint(self, limits: WebSocketLimits, connection_limit: ConnectionLimit) -> Endpoint:
        wide = WebSocketLimits(max_frame_bytes=MAX_FRAME_BYTES, max_connections=limits.max_connections)
        return ApiEndpoint(self, wide, connection_limit)

    def is_page(self, host: str | None, origin: str | None) -> bool:
        return self._origins is not None and self._origins.is_page(host, origin)

    def new_handler(self, page: Page, page_origin: str) -> PageRequestHandler:
        assert self._origins is not None
        views = PageViews(self._session, page, self._sandbox, self._origins, page_origin)
        return PageRequestHandler(self._session, page, views, self._origins.sandbox(page_origin))


def _no_receiver(channel: Channel) -> Receiver:
    raise AssertionError("`ApiEndpoint` takes all connections")
