"""The page's API: JSON-RPC 2.0 over a WebSocket, one text frame for each message, requests both ways.

Who may connect is decided three times: by the Host of the page, by its exact Origin, and by the token that the user
opened the page with, in the first message and soon. Another page, on another port too, is refused before it says a
word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from hmac import compare_digest
from typing import Any

from msgspec import Raw
from msgspec.json import decode as decode_json
from websockets.frames import CloseCode
from websockets.http11 import Request as HandshakeRequest

from mcpd.apps.preview.messages import Hello, Nothing
from mcpd.apps.preview.methods import HEARD, METHODS, PageRequestHandler
from mcpd.apps.preview.session import Page
from mcpd.errors import (
    InternalError,
    InvalidParams,
    McpdError,
    MethodNotFound,
    ProtocolError,
    RemoteError,
)
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
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.authentication import Refusal, RequestHeaders
from mcpd.transports.guards import Access, Guard
from mcpd.transports.websocket.connection import WebSocketChannel
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits

log = logging.getLogger("mcpd.preview")

PATH = "/api"
HELLO_SECONDS = 5.0
MAX_PAGES = 16

MakeHandler = Callable[[Page, str], PageRequestHandler]
"""Makes what a page works on, from its connection and its origin."""


class ApiEndpoint(Endpoint):
    """Who may connect. `is_page` is given Host and Origin; `token` is what a page has to say first."""

    def __init__(
        self,
        is_page: Callable[[str | None, str | None], bool],
        token: str,
        make_handler: MakeHandler,
        limits: WebSocketLimits,
        connection_limit: ConnectionLimit,
    ) -> None:
        super().__init__(self._begin, Guard(Access()), limits, (PATH,), connection_limit)
        self._is_page = is_page
        self._token = token
        self._make_handler = make_handler

    def check(self, headers: RequestHeaders) -> Principal | Refusal:
        """Only the page, which says where it comes from; a program that does not is none."""
        if not self._is_page(headers.get("host"), headers.get("origin")):
            return Refusal(403, "Only the page of this preview may connect here.\n")
        return ANONYMOUS

    def refuse(self, request: HandshakeRequest) -> Refusal | None:
        """There is one path, and there are not many pages."""
        if request.path != PATH:
            return Refusal(404, f"Connect to {PATH}.\n")
        if len(self.connections) > MAX_PAGES:
            return Refusal(503, f"{MAX_PAGES} pages are open; close one first.\n")
        return super().refuse(request)

    def _begin(self, channel: Channel) -> Receiver:
        assert isinstance(channel, WebSocketChannel)
        origin = dict(channel.origin().headers()).get("origin", "")
        return PageConnection(channel, self._token, lambda page: self._make_handler(page, origin))


class PageConnection:
    """One page that is connected: a receiver of its frames, and the `Page` that others ask and tell."""

    def __init__(
        self, channel: WebSocketChannel, token: str, make_handler: Callable[[Page], PageRequestHandler]
    ) -> None:
        self._channel = channel
        self._token = token
        self._make_handler = make_handler
        self._handler: PageRequestHandler | None = None
        self._page = Page(channel)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

        self._timer = self._loop.call_later(HELLO_SECONDS, self._refuse, "the first message is hello, and soon")

    # ------------------------------------------------------------------------- what the page says

    def receive(self, frame: bytes) -> None:
        """One message of the page."""
        try:
            message = decode(frame)
        except ProtocolError as error:
            if self._handler is None:
                self._refuse("the first message is hello")
            else:
                self._channel.send(encode(error_answer(error, error.request_id)))
            return

        if self._handler is None:
            self._greet(message)
        elif isinstance(message, Request):
            self._do(self._serve(self._handler, message))
        elif isinstance(message, Notification):
            self._hear(self._handler, message)
        elif isinstance(message, (Response, Failure)):
            self._page.receive(message)

    def receive_error(self, error: ProtocolError) -> None:
        """What came was no message."""
        self._refuse(error.message)

    def closed(self, error: McpdError | None = None) -> None:
        """The page is gone."""
        self._timer.cancel()
        handler, self._handler = self._handler, None
        self._page.closed()
        for task in self._tasks:
            task.cancel()

        if handler is not None:
            handler.session.pages.remove(self._page)
            handler.views.end()

    def _greet(self, message: object) -> None:
        """The first message has the token, or was the last."""
        if not isinstance(message, Request) or message.method != "hello" or not self._is_token(message.params):
            self._refuse("the first message is hello, with the token of the address that was printed")
            return
        self._timer.cancel()
        handler = self._handler = self._make_handler(self._page)
        handler.session.pages.append(self._page)
        self._do(self._serve(handler, message))

    def _is_token(self, params: Raw) -> bool:
        try:
            said = decode_json(params, type=Hello).token
        except MALFORMED:
            return False
        return compare_digest(said.encode("utf-8", "replace"), self._token.encode())

    def _refuse(self, reason: str) -> None:
        log.warning("A page was refused: %s", printable(reason))
        self._channel.fail(CloseCode.POLICY_VIOLATION, reason)

    async def _serve(self, handler: PageRequestHandler, request: Request) -> None:
        try:
            method = METHODS.get(request.method)
            if method is None:
                raise MethodNotFound(f"There is no {request.method!r:.80}")
            answer: object = Result(request.id, await method.run(handler, _read(method.params, request)))
        except (ProtocolError, RemoteError) as error:
            answer = error_answer(error, request.id)
        except McpdError as error:
            answer = error_answer(RemoteError(-32000, str(error)), request.id)
        except Exception:
            log.exception("%s failed", printable(request.method))
            answer = error_answer(InternalError(), request.id)

        self._channel.send(encode(answer))

    def _hear(self, handler: PageRequestHandler, told: Notification) -> None:
        heard = HEARD.get(told.method)
        if heard is None:
            return
        try:
            heard.run(handler, decode_json(told.params, type=heard.params))
        except MALFORMED as error:
            log.warning("A page sent a bad %s: %s", printable(told.method), printable(explain(error)))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _read(kind: type, request: Request) -> Any:
    """The params as what they are to be; none at all are an empty object."""
    if kind is Nothing:
        return None
    try:
        return decode_json(request.params if bytes(request.params) else b"{}", type=kind)
    except MALFORMED as error:
        raise InvalidParams(f"Invalid params: {explain(error)}") from None
