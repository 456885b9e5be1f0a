"""The opening handshake of a WebSocket connection: it is read, its sender is authenticated, and it is answered.

Nothing here outlives the answer: what follows it is the connection's, in `websocket`.
Spec: RFC 6455 4.2; the checks beyond it are those of every listener, in `guards` and `authentication`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

from websockets.http11 import Request, Response
from websockets.protocol import SERVER, Protocol as Framing
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from mcpd.protocol.principal import ANONYMOUS, Principal
from mcpd.protocol.printable import printable
from mcpd.transports.accepting import is_tls
from mcpd.transports.authentication import HandshakeFields, Refusal, RequestHeaders
from mcpd.transports.websocket import ConnectionOwner, WebSocketChannel
from mcpd.transports.wire_log import wire_log

log = logging.getLogger("mcpd.websocket")

SUBPROTOCOL = Subprotocol("mcp")

_MOST_EARLY = 16 * 1024

_Known: TypeAlias = Principal | Refusal


class _ServerProtocol(ServerProtocol):
    """One connection until it is open; takes the subprotocol `mcp` if it is offered, and none otherwise."""

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        return SUBPROTOCOL if SUBPROTOCOL in subprotocols else None


class Admission(ConnectionOwner, Protocol):
    """Who may connect, see `websocket_server.Endpoint`."""

    authenticating: int

    def check(self, headers: RequestHeaders) -> _Known | Coroutine[Any, Any, _Known]:
        """Who sends this handshake, or why it gets no WebSocket; to be awaited if that is not known at once."""

    def refuse(self, request: Request) -> Refusal | None:
        """Why this handshake, of somebody who may come in, gets no WebSocket."""

    def refused(self, status: int) -> None:
        """A handshake was refused with this status."""


class Handshake:
    """Fed by a connection until it is answered. `close` is for one that was lost before."""

    __slots__ = ("_admission", "_connection", "_early", "_task", "framing")

    _connection: WebSocketChannel

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.framing = _ServerProtocol(max_size=admission.limits.max_frame_bytes, logger=wire_log)
        self._task: asyncio.Task[_Known] | None = None
        """Finds out who sends the handshake; meanwhile nothing is read on, and little is kept."""
        self._early = b""

    def begin(self, connection: WebSocketChannel) -> None:
        """The request is awaited."""
        self._connection = connection

    def eof(self) -> None:
        """The client sends no more: there is nobody to hear what came of its handshake."""
        if self._task is not None:
            self._connection.abort()
        else:
            self.framing.receive_eof()

    def receive(self, data: bytes) -> None:
        """Feed the request line by line and answer it.

        The library parses on without waiting for the answer: a ping sent too early would be answered before it.
        """
        if self._task is not None:
            self._keep_early(data)
            return

        protocol = self.framing
        start = 0
        if is_tls(data, self._peer()):
            data += b"\n"  # a whole line, which is refused at once

        while start < len(data) and protocol.handshake_exc is None:
            end = data.find(b"\n", start) + 1 or len(data)
            protocol.receive_data(data[start:end])
            start = end
            for request in protocol.events_received():
                self._take(cast("Request", request), data[start:])
                return

        error = protocol.handshake_exc
        if error is not None:
            # Not HTTP, or a POST: where the library would only hang up, say why.
            text = f"This port speaks WebSocket, and this was no handshake of it: {error.__cause__ or error}.\n"
            self._admission.refused(400)
            farewell = _reject(protocol, Refusal(400, text), None).serialize()
            self._connection.refuse(farewell)

    def close(self) -> None:
        """The connection is lost: nobody is there to be answered."""
        task, self._task = self._task, None
        self._early = b""
        if task is not None:
            task.cancel()

    def _take(self, request: Request, rest: bytes) -> None:
        """Answer the handshake, or begin to find out who sends it."""
        found = self._admission.check(RequestHeaders.of(_raw_fields(request)))
        if isinstance(found, Principal | Refusal):
            self._answer(request, found, rest)
            return

        self._connection.begin_authenticating()
        self._admission.authenticating += 1
        self._task = asyncio.get_running_loop().create_task(found)
        self._task.add_done_callback(partial(self._authenticated, request))
        self._keep_early(rest)

    def _authenticated(self, request: Request, task: asyncio.Task[_Known]) -> None:
        self._admission.authenticating -= 1
        if self._task is not task:
            return  # the connection is lost

        self._task = None
        if task.cancelled():  # with all that runs in the event loop
            self._connection.abort()
            return

        early, self._early = self._early, b""
        self._answer(request, task.result(), early)

    def _keep_early(self, data: bytes) -> None:
        """What a client sends before its handshake is answered; RFC 6455 4.1 has it wait."""
        self._early += data
        if len(self._early) > _MOST_EARLY:
            log.warning("Cut off %s, which did not wait for the answer to its handshake", printable(self._peer()))
            self._connection.abort()

    def _answer(self, request: Request, found: _Known, rest: bytes) -> None:
        """Decide, and answer; `rest` came behind the request."""
        protocol = self.framing
        refusal = found if isinstance(found, Refusal) else self._admission.refuse(request)
        headers = RequestHeaders.of(_raw_fields(request))  # those of the library raise for a header that came twice
        accept = headers.get("accept")
        if refusal is None:
            response = protocol.accept(request)
            if response.status_code == 426:
                place = f"ws://{headers.get('host')}/mcp"
                text = f"This is an MCP server that speaks WebSocket: connect an MCP client to {place}.\n"
                response = _reject(protocol, Refusal(426, text, (("Upgrade", "websocket"),)), accept)
            elif response.status_code != 101:
                response = _reject(protocol, Refusal(response.status_code, response.body.decode()), accept)
        else:
            log.warning(
                "Refused a connection from %s: %d %s",
                printable(self._peer()),
                refusal.status,
                printable(refusal.text.rstrip()),
            )
            response = _reject(protocol, refusal, accept)

        if response.status_code == 101:
            try:
                user = found if isinstance(found, Principal) else ANONYMOUS
                self._connection.accept(HandshakeFields(request.path, _raw_fields(request), user))
            except Exception:
                log.exception("A connection could not be set up")
                text = "The server failed to set up the connection; see its log.\n"
                response = _reject(protocol, Refusal(500, text), accept)

        protocol.send_response(response)
        if response.status_code != 101:
            self._admission.refused(response.status_code)
            self._connection.refuse()
        else:
            # Of the library's protocol of a handshake some 3 KiB would stay.
            framing = Framing(SERVER, max_size=self._admission.limits.max_frame_bytes, logger=wire_log)
            self._connection.opened(framing, rest=rest)

    def _peer(self) -> str:
        return self._connection.peer or "a local peer"


def _raw_fields(request: Request) -> list[tuple[bytes, bytes]]:
    """The headers as they came; older versions of the library give bytes beyond ASCII as lone surrogates."""
    return [
        (name.encode("latin-1"), value.encode("latin-1", "surrogateescape"))
        for name, value in request.headers.raw_items()
    ]


def _reject(protocol: ServerProtocol, refusal: Refusal, accept: str | None) -> Response:
    response = protocol.reject(refusal.status, refusal.text)
    kind, response.body = refusal.body(accept)
    for name, value in (("Content-Type", kind), ("Content-Length", str(len(response.body)))):
        del response.headers[name]
        response.headers[name] = value
    for name, value in refusal.headers:
        response.headers[name] = value
    return response
