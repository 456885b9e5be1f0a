"""`HttpChannel`: a client's channel on which each message is an HTTP request of its own.

What is sent when: nothing overtakes the handshake of a session, so many requests are open at a time, what is given up
is cut or said so. Requests are carried by the task that waits for their answer, everything else by tasks of ours.
Spec: 2026-07-28 basic/transports/streamable-http; 2025-11-25 basic/transports.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace
from yarl import URL

from mcpd.client.http.exchange import Inbound, OutgoingMessage, Refused, ask, listen, refusal, tell
from mcpd.client.http.options import HttpOptions
from mcpd.client.http.pool import Body, Link, Reply, read_some
from mcpd.client.http.requester import EVENTS, JSON, Requester
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
from mcpd.transports.client_authorization import Authorization
from mcpd.transports.stdio import MAX_FRAME_BYTES

_ENDPOINT_SECONDS = 10.0
_LONGEST_ENDPOINT = 8192


class HttpSse:
    """The connection to one old server. Its stream is the connection: when it ends, all is over."""

    def __init__(self, requester: Requester, inbound: Inbound) -> None:
        self._requester = requester
        self._inbound = inbound
        self._endpoint: URL | None = None
        self._reply: Reply | None = None
        self._body: Body | None = None
        self._reader = SseReader(inbound.max_frame_bytes)
        self._events: deque[SseEvent] = deque()

    async def open(self) -> None:
        """Open the stream and wait for its first event, the endpoint. Raises TransportError if there is none."""
        requester, link = self._requester, self._requester.link
        reply = await requester.request("GET", link.url, {"Accept": EVENTS})
        self._reply = reply
        try:
            if reply.status != 200 or reply.content_type != EVENTS:
                raise HttpError(f"{link.name}: a GET is answered by HTTP {reply.status}, not by a stream", reply.status)

            self._body = Body(reply, link)
            async with asyncio.timeout(_ENDPOINT_SECONDS):
                first = await self._next()
            if first is None or first.name != b"endpoint":
                raise HttpError(f"{link.name}: the stream does not begin with its endpoint", reply.status)
            self._endpoint = self._checked(first.data)
        except TimeoutError:
            reply.close()
            text = f"{link.name}: the stream has no endpoint after {_ENDPOINT_SECONDS:g} s"
            raise HttpError(text, reply.status) from None
        except BaseException:
            reply.close()
            raise

    def _checked(self, data: bytes) -> URL:
        """The endpoint, which has to be on the same origin: what is posted there may hold secrets."""
        link = self._requester.link
        try:
            if len(data) > _LONGEST_ENDPOINT:
                raise ValueError("too long")
            endpoint = link.url.join(URL(data.decode()))
            origin = endpoint.origin()
        except ValueError:
            raise HttpError(f"{link.name}: its endpoint {printable(data)!r} is no URL", 200) from None
        if origin != link.origin:
            shown = printable(str(endpoint.with_query(None)))
            raise HttpError(f"{link.name} wants messages to be sent to {shown}, on another origin: refused", 200)
        return endpoint

    async def _next(self) -> SseEvent | None:
        """The next event; None at the end of the stream."""
        assert self._body is not None
        while not self._events:
            chunk = await self._body.read()
            if not chunk:
                return None
            self._events.extend(self._reader.feed(chunk))
        return self._events.popleft()

    async def run(self) -> None:
        """Deliver what comes until the stream ends."""
        assert self._reply is not None
        error: TransportError = ConnectionLost(f"{self._requester.link.name} ended the stream")
        try:
            while (event := await self._next()) is not None:
                await self._inbound.deliver(event, None)
        except ConnectionLost as lost:
            error = lost
        finally:
            self._reply.close()
        self._inbound.closed(error)

    async def post(self, message: OutgoingMessage) -> None:
        """Send a message; its answer comes on the stream. Raises what it was refused with."""
        requester = self._requester
        assert self._endpoint is not None
        reply = await requester.request("POST", self._endpoint, {"Content-Type": JSON}, message.frame)
        try:
            if not 200 <= reply.status < 300:
                raise await refusal(requester, reply, message)
            await read_some(reply, requester.link)
        finally:
            reply.close()


log = logging.getLogger("mcpd.client")

_HIGH_WATER = 1024 * 1024
_TELLING = 20
"""So many messages that want no answer are on their way at a time."""
_GOODBYE_SECONDS = 2.0
_FALL_BACK = (400, 404, 405)
_MODERN_ERRORS = (MethodNotFound.code, HeaderMismatch.code, MissingCapability.code, UnsupportedVersion.code)
"""With these a modern server refuses: it is none of the old transport."""

_CANCELLED = "notifications/cancelled"
_INITIALIZED = "notifications/initialized"
_LISTENING_SECONDS = 1.0
"""So long the first request waits for the stream of the session: a server may say nothing on it, not even its head."""


class HttpChannel:
    """The client's end. Make it with `open_http` of `open`."""

    is_multiplexed = False

    def __init__(self, link: Link, max_frame_bytes: int, authorization: Authorization | None = None) -> None:
        self._link = link
        self._requester = Requester(link, authorization)
        self._max_frame_bytes = max_frame_bytes
        self._inbound: Inbound | None = None
        self._old: HttpSse | None = None

        self._slots = asyncio.Semaphore(link.options.connections)
        self._may_ask = asyncio.Event()
        """Cleared while a message is on its way that requests must not overtake."""
        self._may_ask.set()

        self._tasks: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()
        self._waiting: deque[OutgoingMessage] = deque()
        """What wants no answer, and has to wait its turn."""
        self._queued_bytes = 0
        self._taken: asyncio.Future[None] | None = None
        self._is_closed = False

    def start(self, receiver: Receiver) -> None:
        """From now on hand what arrives to `receiver`, which has to be a `RequestReceiver` too."""
        self._inbound = Inbound(receiver, self._link, self._max_frame_bytes)

    # ----------------------------------------------------------------------------------------- requests

    async def carry(self, frame: bytes, request_id: Id, method: str | None, heading: Heading) -> None:
        """Send a request, and deliver what comes on its connection; the receiver hears why nothing comes."""
        inbound = self._inbound
        assert inbound is not None
        message = OutgoingMessage(frame, request_id, method, heading)
        try:
            if not self._may_ask.is_set():
                await self._may_ask.wait()
            async with self._slots:
                if self._is_closed:
                    raise ConnectionLost("the client is closed")
                if self._old is not None:
                    self._post(self._old, message, inbound)
                elif method == "initialize":
                    await self._initialize(message, inbound)
                else:
                    await ask(self._requester, inbound, message)
        except SessionLost as error:
            self._requester.session = {}  # there is none to be ended any more
            inbound.failed(request_id, error)
            inbound.closed(error)
        except McpdError as error:
            inbound.failed(request_id, error)
        except Exception as error:
            # The program's own functions are asked for header fields, and may raise anything.
            log.exception("a request over HTTP failed")
            inbound.failed(request_id, TransportError(f"{self._link.name}: {type(error).__name__}: {error}"))

    async def _initialize(self, message: OutgoingMessage, inbound: Inbound) -> None:
        """Ask; a server that refuses the POST may be one that has the old transport."""
        try:
            await ask(self._requester, inbound, message)
        except (HttpError, Refused) as error:
            if error.status not in _FALL_BACK or (isinstance(error, Refused) and error.code in _MODERN_ERRORS):
                raise
            old = HttpSse(self._requester, inbound)
            try:
                await old.open()
            except TransportError as refused:
                if isinstance(error, Refused):
                    raise error from None
                text = f"{error}; nor is it an HTTP+SSE server of 2024-11-05: {refused}"
                raise HttpError(text, error.status) from error
            self._old = old
            self._do(old.run())
            self._post(old, message, inbound)

    def _post(self, old: HttpSse, message: OutgoingMessage, inbound: Inbound) -> None:
        """Send a request whose answer comes elsewhere, perhaps before it is said that the request was taken."""

        async def post() -> None:
            try:
                await old.post(message)
            except McpdError as error:
                inbound.failed(message.id, error)

        self._do(post())

    # ------------------------------------------------------------------------------- what wants no answer

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one message, which is looked at to tell what it is."""
        heading = Heading(isinstance(decode(frame), Request))
        if not heading.is_request:
            self.send_headed(frame, related_request_id, method, heading)
        elif related_request_id is not None and not self._is_closed:
            self._do(self.carry(frame, related_request_id, method, heading))

    send_apart = send

    def send_headed(
        self, frame: bytes, related_request_id: Id | None, method: str | None, heading: Heading | None
    ) -> None:
        """Queue a notification, or an answer of ours."""
        if self._is_closed:
            return
        if heading is None:
            self.send(frame, related_request_id, method)
            return
        if method == _CANCELLED and not heading.in_session:
            # Spec: 2026-07-28 basic/patterns/cancellation: the connection was cut, and that says it.
            return

        self._queued_bytes += len(frame)
        self._waiting.append(OutgoingMessage(frame, related_request_id, method, heading))
        self._tell_on()

    def _tell_on(self) -> None:
        """Send of what waits as much as may be on its way at a time."""
        while self._waiting and len(self._telling) < _TELLING:
            message = self._waiting.popleft()
            if message.method == _INITIALIZED:
                self._may_ask.clear()
                if message.heading.version is not None:
                    self._requester.version = {"MCP-Protocol-Version": message.heading.version}
            task = self._do(self._tell(message))
            self._telling.add(task)
            task.add_done_callback(partial(self._told, message))

    async def _tell(self, message: OutgoingMessage) -> None:
        inbound = self._inbound
        assert inbound is not None
        try:
            if self._old is not None:
                await self._old.post(message)
            else:
                await tell(self._requester, message)
        except SessionLost as error:
            self._requester.session = {}
            inbound.closed(error)
        except McpdError as error:
            inbound.failed(None, error)
        except Exception:
            log.exception("a message over HTTP was not sent")

    def _told(self, message: OutgoingMessage, task: asyncio.Task[None]) -> None:
        self._telling.discard(task)
        self._queued_bytes -= len(message.frame)
        taken, self._taken = self._taken, None
        if taken is not None and not taken.done():
            taken.set_result(None)

        if message.method == _INITIALIZED:
            if self._old is None and not self._is_closed and self._inbound is not None:
                # What a call makes the server ask may come on the session's stream, and is lost if there is none yet.
                self._do(listen(self._requester, self._inbound, self._may_ask.set))
                asyncio.get_running_loop().call_later(_LISTENING_SECONDS, self._may_ask.set)
            else:
                self._may_ask.set()
        if not self._is_closed:
            self._tell_on()

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------------------------------- the rest

    @property
    def is_congested(self) -> bool:
        """More than 1 MiB waits for the server to take it."""
        return self._queued_bytes > _HIGH_WATER

    async def drain(self) -> None:
        """Wait until the server has taken most of what was sent."""
        while self.is_congested and not self._is_closed:
            if self._taken is None:
                self._taken = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._taken)

    def pause(self) -> None:
        """Read no stream until `resume`."""
        if self._inbound is not None:
            self._inbound.pause()

    def resume(self) -> None:
        """Read on."""
        if self._inbound is not None:
            self._inbound.resume()

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The server at the other end."""
        return Origin("http")

    async def aclose(self, reason: str = "") -> None:
        """Say what is on its way within bounds, end the session, and close all connections. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._may_ask.set()
        try:
            await self._say_goodbye()
            left = self._tasks - {asyncio.current_task()}
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)
        finally:
            await self._link.aclose()

    async def _say_goodbye(self) -> None:
        """Let what is told arrive, and end the session: within two seconds."""
        requester = self._requester
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                if self._telling:
                    await asyncio.wait(self._telling)
                if requester.session:
                    fields = {**requester.session, **requester.version}
                    (await requester.request("DELETE", self._link.url, fields)).close()
        except (TimeoutError, McpdError) as error:
            log.debug("the session was not ended: %s", printable(error))


_DEFAULTS = HttpOptions()


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
    """The channel to the server at an http or https URL; it connects when something is sent.

    `headers`, `socket` and `ca_file` are what a target says itself: `options` come first. `name` is what errors call
    the server, beside its URL. `authorization` lets the requests in. Raises ConfigurationError for what cannot be used.
    """
    options = options or _DEFAULTS
    if options.socket is None and socket is not None:
        options = replace(options, socket=socket)
    if options.verify is True and ca_file is not None:
        options = replace(options, verify=ca_file)

    link = Link(url, options, headers or {}, name)
    if authorization is not None:
        link.may_follow = authorization.covers
    channel = HttpChannel(link, max_frame_bytes, authorization)
    await link.open()
    return channel
