"""`HttpChannel`: a client's channel on which each message is an HTTP request of its own.

It decides what is sent when: no request overtakes the handshake of a session, the number of concurrent requests is
limited, and abandoned requests are cancelled. The task that waits for a response also carries its request; all other
messages are sent by tasks of the channel.

`HttpSse` is the transport of 2024-11-05: one stream for everything from the server, and an endpoint to post messages
to. Spec: 2026-07-28 basic/transports/streamable-http; 2025-11-25 basic/transports; 2024-11-05 basic/transports.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace
from yarl import URL

from mcpd.errors import (
    ConnectionLost,
    HeaderMismatch,
    HttpError,
    McpdError,
    MethodNotFound,
    MissingCapability,
    SessionLost,
    TransportError,
    UnsupportedVersion,
)
from mcpd.protocol.channel import Heading, Receiver
from mcpd.protocol.jsonrpc import Id, Request, decode
from mcpd.protocol.principal import Origin
from mcpd.protocol.printable import printable
from mcpd.protocol.wire.sse import SseEvent, SseReader
from mcpd.transports.challenge import Authorization
from mcpd.transports.stdio import MAX_FRAME_BYTES
from .exchange import (
    EVENTS,
    JSON,
    Inbound,
    OutgoingMessage,
    RefusedByServer,
    Requester,
    listen,
    post_message,
    post_request,
    refusal,
)
from .options import HttpOptions
from .pool import Body, HttpPool, Reply, read_some

_ENDPOINT_SECONDS = 10.0
_LONGEST_ENDPOINT = 8192


class HttpSse:
    """A connection to a server of 2024-11-05. When its stream ends, the connection has ended."""

    def __init__(self, requester: Requester, inbound: Inbound) -> None:
        self._requester = requester
        self._inbound = inbound
        self._endpoint: URL | None = None
        self._reply: Reply | None = None
        self._body: Body | None = None
        self._reader = SseReader(inbound.max_frame_bytes)
        self._events: deque[SseEvent] = deque()

    async def open(self) -> None:
        """Open the stream and wait for its first event, the endpoint. Raises TransportError without an endpoint."""
        requester, pool = self._requester, self._requester.pool
        reply = await requester.request("GET", pool.url, {"Accept": EVENTS})
        self._reply = reply
        try:
            if reply.status != 200 or reply.content_type != EVENTS:
                raise HttpError(f"{pool.name} answers a GET with HTTP {reply.status}, not with a stream", reply.status)

            self._body = Body(reply, pool)
            async with asyncio.timeout(_ENDPOINT_SECONDS):
                first = await self._next()
            if first is None or first.name != b"endpoint":
                raise HttpError(f"{pool.name}: the stream does not begin with its endpoint", reply.status)
            self._endpoint = self._checked(first.data)
        except TimeoutError:
            reply.close()
            text = f"{pool.name}: no endpoint arrived on the stream within {_ENDPOINT_SECONDS:g} s"
            raise HttpError(text, reply.status) from None
        except BaseException:
            reply.close()
            raise

    def _checked(self, data: bytes) -> URL:
        # Return the endpoint. It must be on the same origin, because messages may contain secrets.
        pool = self._requester.pool
        try:
            if len(data) > _LONGEST_ENDPOINT:
                raise ValueError("too long")
            endpoint = pool.url.join(URL(data.decode()))
            origin = endpoint.origin()
        except ValueError:
            raise HttpError(f"{pool.name}: its endpoint {printable(data)!r} is not a valid URL", 200) from None

        if origin != pool.origin:
            shown = printable(str(endpoint.with_query(None)))
            raise HttpError(f"{pool.name}: its endpoint {shown} is on another origin: refused", 200)
        return endpoint

    async def _next(self) -> SseEvent | None:
        # Return the next event; None at the end of the stream.
        assert self._body is not None
        while not self._events:
            chunk = await self._body.read()
            if not chunk:
                return None
            self._events.extend(self._reader.feed(chunk))
        return self._events.popleft()

    async def run(self) -> None:
        assert self._reply is not None
        error: TransportError = ConnectionLost(f"{self._requester.pool.name} ended the stream")
        try:
            while (event := await self._next()) is not None:
                await self._inbound.deliver(event, None)
        except ConnectionLost as lost:
            error = lost
        finally:
            self._reply.close()
        self._inbound.closed(error)

    async def post(self, message: OutgoingMessage) -> None:
        """Send a message; its response arrives on the stream. Raises the error of a refusal."""
        requester = self._requester
        assert self._endpoint is not None
        reply = await requester.request("POST", self._endpoint, {"Content-Type": JSON}, message.frame)
        try:
            if not 200 <= reply.status < 300:
                raise await refusal(requester, reply, message)
            await read_some(reply, requester.pool)
        finally:
            reply.close()


log = logging.getLogger("mcpd.client")

_HIGH_WATER = 1024 * 1024
_CONCURRENT_MESSAGES = 20
_END_SESSION_SECONDS = 2.0
_FALL_BACK = (400, 404, 405)
# Errors of modern servers. A server that sends one does not have the transport of 2024-11-05.
_MODERN_ERRORS = (MethodNotFound.code, HeaderMismatch.code, MissingCapability.code, UnsupportedVersion.code)

_CANCELLED = "notifications/cancelled"
# Seconds for which the response to a cancelled call may still arrive.
_LATE_SECONDS = 2.0
_INITIALIZED = "notifications/initialized"
# Seconds that the first request waits for the stream of the session. Some servers never send its head.
_LISTENING_SECONDS = 1.0


class HttpChannel:
    """The client's end. `open_http` creates it."""

    is_multiplexed = False

    def __init__(self, pool: HttpPool, max_frame_bytes: int, authorization: Authorization | None = None) -> None:
        self._pool = pool
        self._requester = Requester(pool, authorization)
        self._max_frame_bytes = max_frame_bytes
        self._inbound: Inbound | None = None
        self._sse: HttpSse | None = None

        self._slots = asyncio.Semaphore(pool.options.connections)
        # Cleared while a message is being sent that requests must not overtake.
        self._may_request = asyncio.Event()
        self._may_request.set()

        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._queued: deque[OutgoingMessage] = deque()
        self._queued_bytes = 0
        self._drained: asyncio.Future[None] | None = None
        self._is_closed = False

    def start(self, receiver: Receiver) -> None:
        """Deliver everything that arrives to `receiver`, which must be a `RequestReceiver`."""
        self._inbound = Inbound(receiver, self._pool, self._max_frame_bytes)

    # ----------------------------------------------------------------------------------------- requests

    async def carry(self, frame: bytes, request_id: Id, method: str | None, heading: Heading) -> None:
        """Send a request and deliver its response. Without a response, the receiver is notified of the reason."""
        if not self._may_request.is_set():
            await self._may_request.wait()
        message = OutgoingMessage(frame, request_id, method, heading)
        if method != "tools/call":
            await self._carry(message)
            return
        carrying = self._start(self._carry(message))
        if self._inbound is not None:
            self._inbound.carried_by(request_id, carrying)
        try:
            await asyncio.shield(carrying)
        except asyncio.CancelledError:
            # The server may have made a task of the call, which then must be cancelled: its response may be under way.
            if self._pool.stop_sending(carrying):
                asyncio.get_running_loop().call_later(_LATE_SECONDS, carrying.cancel)
            else:
                carrying.cancel()
            raise

    async def _carry(self, message: OutgoingMessage) -> None:
        async with self._slots:
            await self._attempt(partial(self._request, message), message.id)

    async def _request(self, message: OutgoingMessage) -> None:
        assert self._inbound is not None
        if self._is_closed:
            raise ConnectionLost("the client is closed")
        if self._sse is not None:
            self._post(self._sse, message)
        elif message.method == "initialize":
            await self._initialize(message, self._inbound)
        else:
            await post_request(self._requester, self._inbound, message)

    async def _attempt(self, send: Callable[[], Awaitable[None]], request_id: Id | None) -> None:
        inbound = self._inbound
        assert inbound is not None
        try:
            await send()
        except SessionLost as error:
            self._requester.session = {}  # the session cannot be ended any more
            inbound.failed(request_id, error)
            inbound.closed(error)
        except McpdError as error:
            inbound.failed(request_id, error)
        except Exception as error:
            # Functions of the program return header fields, and may raise anything.
            if request_id is None or inbound.waits_for(request_id):
                log.exception("a message over HTTP failed")
            inbound.failed(request_id, TransportError(f"{self._pool.name}: {type(error).__name__}: {error}"))

    async def _initialize(self, message: OutgoingMessage, inbound: Inbound) -> None:
        # Send `initialize`. A server that refuses the POST may have the transport of 2024-11-05.
        try:
            await post_request(self._requester, inbound, message)
        except (HttpError, RefusedByServer) as error:
            if error.status not in _FALL_BACK or (isinstance(error, RefusedByServer) and error.code in _MODERN_ERRORS):
                raise
            # Spec: 2025-11-25 basic/transports, backwards compatibility: a GET whose first event is the endpoint.
            old = HttpSse(self._requester, inbound)
            try:
                await old.open()
            except TransportError as refused:
                if isinstance(error, RefusedByServer):
                    raise error from None
                text = f"{error}; it is not an HTTP+SSE server of 2024-11-05 either: {refused}"
                raise HttpError(text, error.status) from error
            self._sse = old
            self._start(old.run())
            self._post(old, message)

    def _post(self, old: HttpSse, message: OutgoingMessage) -> None:
        # Send a request whose response arrives on the stream, possibly before the POST itself is answered.
        self._start(self._attempt(partial(old.post, message), message.id))

    # ------------------------------------------------------------------------ notifications and responses

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one message of unknown kind."""
        heading = Heading(isinstance(decode(frame), Request))
        if not heading.is_request:
            self.send_headed(frame, related_request_id, method, heading)
        elif related_request_id is not None and not self._is_closed:
            self._start(self.carry(frame, related_request_id, method, heading))

    send_separately = send

    def send_headed(
        self, frame: bytes, related_request_id: Id | None, method: str | None, heading: Heading | None
    ) -> None:
        """Queue a notification, or a response of this client."""
        if self._is_closed:
            return
        if heading is None:
            self.send(frame, related_request_id, method)
            return
        if method == _CANCELLED and not heading.in_session:
            # Spec: 2026-07-28 basic/patterns/cancellation: closing the connection cancels the request.
            return

        self._queued_bytes += len(frame)
        self._queued.append(OutgoingMessage(frame, related_request_id, method, heading))
        self._send_queued()

    def _send_queued(self) -> None:
        while self._queued and len(self._sending) < _CONCURRENT_MESSAGES:
            message = self._queued.popleft()
            if message.method == _INITIALIZED:
                # Spec: 2025-11-25 basic/lifecycle: requests follow `notifications/initialized`.
                self._may_request.clear()
                if message.heading.version is not None:
                    self._requester.version = {"MCP-Protocol-Version": message.heading.version}
            send = partial(post_message, self._requester) if self._sse is None else self._sse.post
            task = self._start(self._attempt(partial(send, message), None))
            self._sending.add(task)
            task.add_done_callback(partial(self._sent, message))

    def _sent(self, message: OutgoingMessage, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        # Only now, because a message that is being sent also needs memory.
        self._queued_bytes -= len(message.frame)
        # Taken first, because a waiter may ask for another one at once.
        taken, self._drained = self._drained, None
        if taken is not None and not taken.done():
            taken.set_result(None)

        if message.method == _INITIALIZED:
            if self._sse is None and not self._is_closed and self._inbound is not None:
                # A call may cause a request of the server, which is lost if the session has no stream yet.
                self._start(listen(self._requester, self._inbound, self._may_request.set))
                asyncio.get_running_loop().call_later(_LISTENING_SECONDS, self._may_request.set)
            else:
                self._may_request.set()
        if not self._is_closed:
            self._send_queued()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------------------ flow control, closing

    @property
    def is_congested(self) -> bool:
        """Whether more than 1 MiB waits to be received by the server."""
        return self._queued_bytes > _HIGH_WATER

    async def drain(self) -> None:
        """Wait until the server has received most of the queue."""
        while self.is_congested and not self._is_closed:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def pause(self) -> None:
        if self._inbound is not None:
            self._inbound.may_read.clear()

    def resume(self) -> None:
        if self._inbound is not None:
            self._inbound.may_read.set()

    async def send_beside(self, method: str, url: str, body: bytes | PurePath) -> tuple[int, bytes]:
        """Send a request that is no message, to the origin of the endpoint; a path is sent as the file's bytes.

        Returns the status and the beginning of the body. Raises HttpError for another origin, and the errors of
        requests.
        """
        target = self._pool.url.join(URL(url))
        if target.origin() != self._pool.origin:
            raise HttpError(f"{self._pool.name} asks for an upload to another origin, which is not made", 0)
        kind = "application/json" if isinstance(body, bytes) else "application/octet-stream"
        reply = await self._requester.request(method, target, {"Content-Type": kind}, body)
        try:
            return reply.status, await read_some(reply, self._pool)
        finally:
            reply.close()

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return Origin("http")

    async def aclose(self, reason: str = "") -> None:
        """Finish sending within a time limit, end the session, and close all connections. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._may_request.set()
        try:
            # Before the tasks are cancelled: the end of the session is a request of its own.
            await self._end_session()
            left = self._tasks - {asyncio.current_task()}
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)
        finally:
            await self._pool.aclose()

    async def _end_session(self) -> None:
        # Wait for messages that are being sent, then end the session: two seconds at most.
        requester = self._requester
        try:
            async with asyncio.timeout(_END_SESSION_SECONDS):
                if self._sending:
                    await asyncio.wait(self._sending)
                if requester.session:
                    fields = {**requester.session, **requester.version}
                    (await requester.request("DELETE", self._pool.url, fields)).close()
        except (TimeoutError, McpdError) as error:
            log.debug("the session was not ended: %s", printable(error))


async def open_http(
    url: str,
    options: HttpOptions | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    socket: str | None = None,
    ca_file: str | None = None,
    name: str = "",
    max_frame_bytes: int = MAX_FRAME_BYTES,
    authorization: Authorization | None = None,
) -> HttpChannel:
    """Return the channel to the server at an http or https URL. It connects when the first message is sent.

    `headers`, `socket` and `ca_file` belong to the target; `options` take precedence. `name` precedes the URL in
    errors. `authorization` authorizes the requests. Raises ConfigurationError for options that cannot be used.
    """
    options = options or HttpOptions()
    if options.socket is None and socket is not None:
        options = replace(options, socket=socket)
    if options.verify is True and ca_file is not None:
        options = replace(options, verify=ca_file)

    pool = HttpPool(url, options, headers or {}, name)
    if authorization is not None:
        pool.may_follow = authorization.covers
    channel = HttpChannel(pool, max_frame_bytes, authorization)
    await pool.open()
    return channel
