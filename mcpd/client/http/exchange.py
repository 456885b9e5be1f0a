"""One message to the server, and what comes back: JSON, an event stream that may have to be resumed, or a refusal.

What a legacy server says by itself comes on the GET stream of a session, which is opened again when it ends.
Spec: 2026-07-28 basic/transports/streamable-http; 2025-11-25 basic/transports, sending messages, listening for messages
from the server, resumability.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from mcpd.client.http.pool import Body, Link, Reply, read_some, read_whole
from mcpd.client.http.requester import EVENTS, JSON, Requester
from mcpd.errors import (
    AuthorizationFailed,
    AuthorizationRequired,
    CannotConnect,
    ConfigurationError,
    ConnectionLost,
    FrameTooLarge,
    HttpError,
    McpdError,
    ProtocolError,
    RemoteError,
    SessionLost,
)
from mcpd.protocol.channel import Heading, Receiver, RequestReceiver
from mcpd.protocol.jsonrpc import Failure, Id, decode, remote_error
from mcpd.protocol.printable import printable
from mcpd.protocol.wire.sse import SseEvent, SseReader
from mcpd.transports.client_authorization import advice_on, has_judged, said_in

_AFTER_ANSWER_SECONDS = 0.1
_AFTER_ANSWER_BYTES = 64 * 1024


class Inbound:
    """The receiver of one channel."""

    def __init__(self, receiver: Receiver, link: Link, max_frame_bytes: int) -> None:
        if not isinstance(receiver, RequestReceiver):
            raise ConfigurationError("an HTTP channel needs a receiver whose requests can fail one by one")
        self.max_frame_bytes = max_frame_bytes
        self.waits_for = receiver.waits_for
        self.failed = receiver.failed
        self.receive = receiver.receive
        self._receiver = receiver
        self._hold = getattr(receiver, "hold", None)
        self._link = link
        self._patience = _AFTER_ANSWER_SECONDS
        """So long the end of a stream is waited for after its answer: less with each that stayed open."""
        self._may_read = asyncio.Event()
        self._may_read.set()

    def hold(self, request_id: Id, is_held: bool) -> None:
        """That request waits for somebody else than the server, or does so no more: its time stands still."""
        if self._hold is not None:
            self._hold(request_id, is_held)

    def pause(self) -> None:
        """Read no stream on."""
        self._may_read.clear()

    def resume(self) -> None:
        """Read on."""
        self._may_read.set()

    def closed(self, error: McpdError) -> None:
        """The server is gone for good."""
        receiver: Receiver = self._receiver
        receiver.closed(error)

    async def read_events(self, reply: Reply, reader: SseReader, request_id: Id | None = None) -> int:
        """Deliver the events of a stream to its end, or until that request has its answer; how many there were.

        Raises ConnectionLost if the stream breaks off.
        """
        count = 0
        body = Body(reply, self._link)
        while chunk := await body.read():
            for event in reader.feed(chunk):
                count += 1
                await self.deliver(event, request_id)
            if request_id is not None and not self.waits_for(request_id):
                await self._let_end(reply)
                break
        return count

    async def _let_end(self, reply: Reply) -> None:
        """After its answer a stream ends: a moment for that, so that its connection can be used again.

        Whoever asked waits for that long; a server that leaves its streams open is soon not waited for any more.
        """
        size = 0
        try:
            async with asyncio.timeout(self._patience):
                while size < _AFTER_ANSWER_BYTES and (chunk := await reply.content.readany()):
                    size += len(chunk)
            self._patience = _AFTER_ANSWER_SECONDS
        except Exception:
            self._patience /= 2
            reply.close()

    async def deliver(self, event: SseEvent, request_id: Id | None) -> None:
        """Hand over one event of the stream of that request, or of one that is nobody's, when it may be."""
        if not self._may_read.is_set():
            await self._may_read.wait()
        if event.is_torn:
            self.failed(request_id, self.too_large())
        elif event.name in (b"", b"message"):
            self.receive(event.data)

    def too_large(self) -> FrameTooLarge:
        """For a message that was not kept."""
        return FrameTooLarge(
            f"{self._link.name}: a message of the server's is larger than {self.max_frame_bytes} bytes"
        )


_RETRY_SECONDS = 1.0
_LEAST_RETRY_SECONDS = 0.1
"""A server that wants no pause, and cuts its streams at once, would be asked for ever without one."""
_CONNECTS = 6
"""So often in a row it is tried to resume a stream at a server that cannot be reached."""

_REPEATABLE = frozenset(
    (
        "completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list",
        "resources/list", "resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe",
        "server/discover", "subscriptions/listen", "tools/list",
    )
)  # fmt: skip
"""What may be said twice: a server that closes a connection just when it is used may have read it, or not."""


class OutgoingMessage(Struct, frozen=True):
    """A message to send."""

    frame: bytes
    id: Id | None
    """Of the request that it is, answers, or is about."""
    method: str | None
    heading: Heading


class Refused(RemoteError):
    """A JSON-RPC error that came with an HTTP status other than success."""

    def __init__(self, error: RemoteError, status: int) -> None:
        super().__init__(error.code, error.message, error.data)
        self.status = status


async def tell(requester: Requester, message: OutgoingMessage) -> None:
    """Send what wants no answer. Raises what it was refused with."""
    reply = await _post(requester, message, None)
    try:
        if not 200 <= reply.status < 300:
            raise await refusal(requester, reply, message)
        if reply.content_type != EVENTS:
            await read_some(reply, requester.link)  # what little there is, so that the connection can be used again
    finally:
        reply.close()


async def ask(requester: Requester, inbound: Inbound, message: OutgoingMessage) -> None:
    """Send a request and deliver its answer, with what else comes on its stream. Raises why there is none."""
    assert message.id is not None
    reply = await _post(requester, message, partial(inbound.hold, message.id))
    try:
        if not 200 <= reply.status < 300:
            raise await refusal(requester, reply, message)
        if message.method == "initialize":
            requester.remember_session(reply)

        kind = reply.content_type
        if kind == JSON:
            body = await read_whole(reply, requester.link, inbound.max_frame_bytes)
            if body is None:
                raise inbound.too_large()
            if not body:
                raise HttpError(f"{requester.link.name} answered {message.method} with nothing", reply.status)
            inbound.receive(body)
        elif kind == EVENTS:
            reply = await _read_stream(requester, inbound, message, reply)
        else:
            raise await _no_mcp(requester, reply, message)
    finally:
        reply.close()

    if inbound.waits_for(message.id):
        text = f"{requester.link.name} answered {message.method} with something else: no message has its id"
        raise ProtocolError(text)


async def _post(requester: Requester, message: OutgoingMessage, hold: Callable[[bool], None] | None) -> Reply:
    """The head of the answer. What may be said twice is, once, when its connection was closed meanwhile."""
    method = message.method or ""
    try:
        return await requester.post(message.heading, message.frame, method, hold)
    except CannotConnect:
        raise
    except ConnectionLost:
        if message.heading.is_request and message.method not in _REPEATABLE:
            raise
    return await requester.post(message.heading, message.frame, method, hold)


# ----------------------------------------------------------------------------------------- refusals


async def refusal(requester: Requester, reply: Reply, message: OutgoingMessage) -> McpdError:
    """Why a message was refused: the JSON-RPC error in the answer, if it has one, else its status and first line."""
    name, status = requester.link.name, reply.status
    body = await read_some(reply, requester.link)
    is_in_session = bool(requester.session) and message.heading.in_session and message.method != "initialize"
    if status == 404 and is_in_session:
        return SessionLost(f"{name} knows the session no more (HTTP 404): open a new one")
    if reply.content_type == JSON:
        try:
            found = decode(body)
        except ProtocolError:
            found = None
        if isinstance(found, Failure):
            return Refused(remote_error(found), status)

    url = printable(str(requester.link.url.with_query(None)))
    challenges = reply.headers.getall("WWW-Authenticate", ())
    wants_login = status == 401 and any("resource_metadata" in line for line in challenges)
    if wants_login and not requester.has_token and not has_judged(challenges):
        return AuthorizationRequired(url)

    said = said_in(body)
    text = f"{name}: HTTP {status} {printable(reply.reason or '', 60)}".rstrip() + (f": {said}" if said else "")
    advice = advice_on(status, challenges, said, has_token=requester.has_token)
    text += f"; {advice}" if advice else ""
    if wants_login:
        return AuthorizationRequired(url, (), f"{text}; to log in: mcpd login {url}")
    is_challenge = bool(challenges) or requester.options.authenticate is not None
    return HttpError(text, status, is_challenge=is_challenge)


async def _no_mcp(requester: Requester, reply: Reply, message: OutgoingMessage) -> HttpError:
    name, status, method = requester.link.name, reply.status, message.method
    if status in (202, 204):
        return HttpError(f"{name} took the request {method} and answers nothing (HTTP {status})", status)
    said = said_in(await read_some(reply, requester.link))
    kind = printable(reply.headers.get("Content-Type", "no Content-Type"), 80)
    return HttpError(f"{name} answered {method} by {kind}, which is no MCP: is the path right? {said}".rstrip(), status)


# ------------------------------------------------------------------------------------------ streams


async def _read_stream(requester: Requester, inbound: Inbound, message: OutgoingMessage, reply: Reply) -> Reply:
    """Deliver the events of a request's stream until its answer has come; gives the reply that was read last."""
    assert message.id is not None
    reader = SseReader(inbound.max_frame_bytes)
    name = requester.link.name
    while True:
        why = "the stream ended"
        try:
            await inbound.read_events(reply, reader, message.id)
        except ConnectionLost as error:
            why = str(error)
        finally:
            reply.close()

        if not inbound.waits_for(message.id):
            return reply
        # Spec: 2026-07-28 basic/transports/streamable-http: streams cannot be resumed any more.
        if not message.heading.in_session or not reader.last_id:
            raise ConnectionLost(f"{name}: {why} before the answer to {message.method} had come")
        reader = SseReader(inbound.max_frame_bytes, reader.last_id, reader.retry_ms)
        reply = await _resume(requester, message, reader)


async def _resume(requester: Requester, message: OutgoingMessage, reader: SseReader) -> Reply:
    """The rest of a stream that was cut: waits as long as the server wants."""
    name = requester.link.name
    for attempt in range(_CONNECTS):
        await asyncio.sleep(pause_before(reader, attempt))
        try:
            reply = await resumed(requester, reader.last_id)
        except ConnectionLost as error:
            if attempt == _CONNECTS - 1:
                raise ConnectionLost(f"the stream was cut before the answer to {message.method}: {error}") from error
            continue

        if reply.status == 200 and reply.content_type == EVENTS:
            return reply
        status = reply.status
        if status in (502, 503, 504) and attempt < _CONNECTS - 1:
            reply.close()
            continue
        refused = await refusal(requester, reply, message)
        reply.close()
        if isinstance(refused, SessionLost):
            raise refused
        text = f"{name} cut the stream before the answer to {message.method}, and it cannot be resumed: HTTP {status}"
        raise ConnectionLost(text)
    raise AssertionError


async def resumed(requester: Requester, last_id: bytes) -> Reply:
    """A GET for a stream: one that was cut after this event or, without one, the session's own."""
    fields: Mapping[str, str] = {"Accept": EVENTS, **requester.session, **requester.version}
    if last_id:
        fields = {**fields, "Last-Event-ID": last_id.decode(errors="replace")}
    return await requester.request("GET", requester.link.url, fields)


def pause_before(reader: SseReader, attempt: int) -> float:
    """Seconds to wait: what the server said, else one; longer when it failed before."""
    seconds = _RETRY_SECONDS if reader.retry_ms is None else max(reader.retry_ms / 1000, _LEAST_RETRY_SECONDS)
    if attempt:
        seconds = max(seconds, _RETRY_SECONDS * 2 ** min(attempt - 1, 5)) * random.uniform(1, 1.2)
    return seconds


log = logging.getLogger("mcpd.client")

_ATTEMPTS = 10
"""So often in a row a stream that brings nothing is opened again."""


async def listen(requester: Requester, inbound: Inbound, tried: Callable[[], None]) -> None:
    """Deliver what comes, until the server has no such stream or is not to be reached for long.

    `tried` is called when the first attempt has its answer: from then on nothing that the server says goes astray.
    """
    name = requester.link.name
    reader = SseReader(inbound.max_frame_bytes)
    attempt = 0
    has_been_open = False
    while attempt < _ATTEMPTS:
        if attempt:
            await asyncio.sleep(pause_before(reader, attempt - 1))
        attempt += 1
        try:
            reply = await resumed(requester, reader.last_id)
        except (AuthorizationFailed, AuthorizationRequired, ConfigurationError) as error:
            # The next request says so to whoever makes it; nobody is asked to log in again and again for this.
            log.warning("what %s says by itself is not heard: %s", printable(name), printable(error))
            return
        except (ConnectionLost, HttpError) as error:
            log.debug("no stream for what the server says by itself: %s", printable(error))
            continue
        finally:
            tried()

        try:
            if reply.status >= 500:
                continue
            if reply.status == 404 and has_been_open and requester.session:
                # Spec: 2025-11-25 basic/transports, session management: 404 is how a server says that it has ended.
                inbound.closed(SessionLost(f"{name} knows the session no more (HTTP 404): open a new one"))
                return
            if reply.status != 200 or reply.content_type != EVENTS:
                # 405 is how a server says that it has none; others are met as well.
                log.debug("%s has no stream for what it says by itself: HTTP %d", printable(name), reply.status)
                return
            has_been_open = True
            reader = SseReader(inbound.max_frame_bytes, reader.last_id, reader.retry_ms)
            before = reader.last_id
            if await inbound.read_events(reply, reader) or reader.last_id != before:
                attempt = 1
        except ConnectionLost as error:
            log.debug("the stream of the session was cut: %s", printable(error))
        finally:
            reply.close()

    log.warning(
        "what %s says by itself is not heard any more: its stream ended %d times over", printable(name), _ATTEMPTS
    )
