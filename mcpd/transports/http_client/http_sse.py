"""HTTP+SSE of 2024-11-05: one stream on which everything comes, and an endpoint that messages are posted to.

Spec: 2024-11-05 basic/transports, HTTP with SSE; 2025-11-25 basic/transports, backwards compatibility.
"""

from __future__ import annotations

import asyncio
from collections import deque

from yarl import URL

from mcpd.errors import ConnectionLost, HttpError, TransportError
from mcpd.protocol.printable import printable
from mcpd.protocol.wire.sse import SseEvent, SseReader
from mcpd.transports.http_client.exchange import OutgoingMessage, refusal
from mcpd.transports.http_client.inbound import Inbound
from mcpd.transports.http_client.link import Body, Reply, read_some
from mcpd.transports.http_client.requester import EVENTS, JSON, Requester

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
