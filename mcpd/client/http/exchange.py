"""Sends the HTTP requests of a client, and delivers responses: JSON, an event stream that may be resumed, or an error.

`Requester` adds header fields, session, cookies and authorization. Header fields of the program are checked before
anything is sent. Messages that a legacy server sends on its own arrive on the GET stream of the session, which is
reopened when it ends.

Spec: 2026-07-28 basic/transports/streamable-http; 2025-11-25 basic/transports, sending messages, listening for messages
from the server, resumability.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import PurePath

from msgspec import Struct
from yarl import URL

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
from mcpd.protocol.methods import REPEATABLE
from mcpd.protocol.printable import printable
from mcpd.protocol.wire.sse import SseEvent, SseReader
from mcpd.transports.challenge import Authorization, advice_on, has_judged, said_in
from .options import Authenticate, Challenge, checked
from .pool import Body, HttpPool, Reply, read_some, read_whole

MOST_COOKIES = 32
"""Number of cookies of a server, of up to 4,096 characters each, that a client keeps."""
_MOST_COOKIE = 4096


def _with_cookies(kept: Mapping[str, str], lines: Iterable[str], url: URL) -> dict[str, str]:
    # Return the cookies after these `Set-Cookie` lines of the server at `url` (RFC 6265 5.3).
    # Load balancers use cookies to route a session to its node. They are sent to this server only, and forgotten when
    # the client is closed.
    cookies = dict(kept)
    for line in lines:
        try:
            found = SimpleCookie(line[: 2 * _MOST_COOKIE])
        except CookieError:
            continue
        for name, cookie in found.items():
            domain, path, host = cookie["domain"].lstrip(".").lower(), cookie["path"] or "/", url.host or ""
            is_for_us = not domain or host == domain or host.endswith(f".{domain}")
            is_below = url.path == path or url.path.startswith(path if path.endswith("/") else f"{path}/")
            # A cookie of another host or path, or one that must not be sent without TLS.
            if not is_for_us or not is_below or (cookie["secure"] and url.scheme != "https"):
                continue
            if cookie["max-age"].lstrip("-").isdecimal() and int(cookie["max-age"][:18]) <= 0:
                cookies.pop(name, None)
            elif len(cookie.coded_value) <= _MOST_COOKIE and (name in cookies or len(cookies) < MOST_COOKIES):
                cookies[name] = cookie.coded_value
    return cookies


JSON = "application/json"
EVENTS = "text/event-stream"

_POST = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
_ATTEMPTS = 3

MOST_SESSION_CHARACTERS = 8000
"""Maximum length of a session id."""


class _Hook:
    """An `Authorization` by the program's function `authenticate`."""

    def __init__(self, authenticate: Authenticate) -> None:
        self.authenticate = authenticate
        self.granted: Mapping[str, str] = {}
        """The header fields that the function returned last."""
        self.lock = asyncio.Lock()

    def begin(self, method: str, url: str, operation: str) -> _HookedRequest:
        return _HookedRequest(self, url)

    def covers(self, url: str) -> bool:
        return True


class _HookedRequest:
    def __init__(self, hook: _Hook, url: str) -> None:
        self._hook = hook
        self._url = url
        self._attempt = 0

    async def fields(self) -> Mapping[str, str]:
        self._sent = self._hook.granted
        return self._sent

    def on_response(self, headers: Mapping[str, str]) -> None:
        """The function only sees refusals."""

    async def refused(self, status: int, challenges: Sequence[str]) -> bool:
        # Call the function, unless another request did meanwhile. Return whether to repeat the request.
        hook = self._hook
        if self._attempt == _ATTEMPTS:
            return False

        self._attempt += 1
        async with hook.lock:
            if hook.granted is self._sent:
                given = await hook.authenticate(Challenge(self._url, status, tuple(challenges), self._attempt))
                if given is None:
                    return False
                hook.granted = checked(given, "the result of authenticate")
        return True


class Requester:
    """Sends requests to one server."""

    def __init__(self, pool: HttpPool, authorization: Authorization | None = None) -> None:
        self.pool = pool
        self.options = pool.options
        self.session: dict[str, str] = {}
        """The header field of the session; empty without a session."""
        self.version: dict[str, str] = {}
        """The header field of the session's protocol version."""

        headers = self.options.headers
        self._fixed: Mapping[str, str] | None = None
        if headers is None or isinstance(headers, Mapping):
            self._fixed = checked(headers or {}, "headers")
        """The program's fields, or None if a function returns them for each request."""
        self._hook = None if pool.options.authenticate is None else _Hook(pool.options.authenticate)
        self._authorization: Authorization | None = authorization or self._hook
        self._cookies: dict[str, str] = {}

    async def post(
        self, heading: Heading, body: bytes, operation: str = "", hold: Callable[[bool], None] | None = None
    ) -> Reply:
        """Send a message. Raises like `request`."""
        for name, value in heading.fields:
            if name == "Mcp-Name":
                operation = f"{operation} {value}"
        return await self.request("POST", self.pool.url, self._fields(heading), body, operation, hold)

    def _remember_cookies(self, reply: Reply) -> Reply:
        lines = reply.headers.getall("Set-Cookie", ())
        if not lines or any(name.lower() == "cookie" for name in self._fixed or ()):
            return reply

        self._cookies = _with_cookies(self._cookies, lines, self.pool.url)
        return reply

    @property
    def has_token(self) -> bool:
        """Whether requests have a token, or may have one from the program or a login."""
        if self._fixed is None or self._authorization is not self._hook:
            return True
        granted = {} if self._hook is None else self._hook.granted
        return any(name.lower() == "authorization" for name in (*self.pool.headers, *self._fixed, *granted))

    def _fields(self, heading: Heading) -> dict[str, str]:
        fields = {**_POST}
        if heading.in_session:
            fields.update(self.session)
        if heading.version is not None:
            fields["MCP-Protocol-Version"] = heading.version
        fields.update(heading.fields)
        return fields

    async def request(
        self,
        method: str,
        url: URL,
        fields: Mapping[str, str],
        body: bytes | PurePath | None = None,
        operation: str = "",
        hold: Callable[[bool], None] | None = None,
    ) -> Reply:
        """Send a request with these fields in addition to the common ones. After a refusal, obtain what is missing and
        repeat the request.

        `hold` is called with True while somebody logs in for it, then with False. Raises the errors of
        `HttpPool.request`, and AuthorizationFailed or AuthorizationRequired.
        """
        asked = None if self._authorization is None else self._authorization.begin(method, str(url), operation)
        while True:
            own = self._fixed
            if own is None:
                own = checked(await self.options.fields(), "the function headers")
            # For each attempt: a refusal may have brought another token.
            granted = {} if asked is None else await asked.fields()
            cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
            sent = {**own, **granted, **({"Cookie": cookies} if cookies else {}), **fields}
            reply = self._remember_cookies(await self.pool.request(method, url, sent, body))
            if asked is None:
                return reply
            asked.on_response(reply.headers)
            # Nobody has to log in to end a session.
            if reply.status not in (401, 403) or method == "DELETE":
                return reply

            if hold is not None:
                hold(True)
            try:
                if not await asked.refused(reply.status, reply.headers.getall("WWW-Authenticate", ())):
                    return reply
                # The body is read, because that allows the connection to be reused.
                await read_some(reply, self.pool)
            except BaseException:
                reply.close()
                raise
            finally:
                if hold is not None:
                    hold(False)
            reply.close()

    def remember_session(self, reply: Reply) -> None:
        """Keep the session id of the response to `initialize`. Raises HttpError for an invalid id."""
        value = reply.headers.get("Mcp-Session-Id", "")
        if not value:
            return

        # It is sent with every request, and servers limit the size of a head.
        if len(value) > MOST_SESSION_CHARACTERS:
            why = f"{len(value)} characters; the maximum is {MOST_SESSION_CHARACTERS}"
            raise HttpError(f"{self.pool.name}: the header Mcp-Session-Id has {why}", reply.status)
        if not all(0x20 <= ord(c) <= 0x7E for c in value):
            text = f"{self.pool.name}: the header Mcp-Session-Id {printable(value, 60)!r} must be printable ASCII"
            raise HttpError(text, reply.status)
        self.session = {"Mcp-Session-Id": value}


_AFTER_ANSWER_SECONDS = 0.1
_AFTER_ANSWER_BYTES = 64 * 1024


class Inbound:
    """Delivers messages of the server to the receiver of one channel."""

    def __init__(self, receiver: Receiver, pool: HttpPool, max_frame_bytes: int) -> None:
        if not isinstance(receiver, RequestReceiver):
            raise ConfigurationError("an HTTP channel needs a RequestReceiver, whose requests can fail one by one")
        self.max_frame_bytes = max_frame_bytes
        self.waits_for = receiver.waits_for
        self.failed = receiver.failed
        self.receive = receiver.receive
        self.closed = receiver.closed
        self.hold: Callable[[Id, bool], None] = getattr(receiver, "hold", lambda request_id, is_held: None)
        """Stops the clock of a request while it waits for somebody other than the server, or starts it again."""
        self.carried_by: Callable[[Id, asyncio.Task[None]], None] = getattr(receiver, "carried_by", lambda *_: None)
        """Names the task that carries a request, if it is not the task that waits for the response."""
        self._pool = pool
        # Seconds to wait for the end of a stream after its response. Halved for each stream that stays open.
        self._end_seconds = _AFTER_ANSWER_SECONDS
        self.may_read = asyncio.Event()
        """Cleared while streams are not read."""
        self.may_read.set()

    async def read_events(self, reply: Reply, reader: SseReader, request_id: Id | None = None) -> int:
        """Deliver the events of a stream until it ends or the request has its response. Return their number.

        Raises ConnectionLost if the stream breaks off.
        """
        count = 0
        body = Body(reply, self._pool)
        while chunk := await body.read():
            for event in reader.feed(chunk):
                count += 1
                await self.deliver(event, request_id)
            if request_id is not None and not self.waits_for(request_id):
                await self._finish_stream(reply)
                break
        return count

    async def _finish_stream(self, reply: Reply) -> None:
        # After its response a stream should end. Wait briefly for that, so that the connection can be reused.
        # The caller waits meanwhile, so a server that keeps its streams open soon gets no such wait.
        size = 0
        try:
            async with asyncio.timeout(self._end_seconds):
                while size < _AFTER_ANSWER_BYTES and (chunk := await reply.content.readany()):
                    size += len(chunk)
            self._end_seconds = _AFTER_ANSWER_SECONDS
        except Exception:
            # A server that never ends its streams would otherwise delay each response.
            self._end_seconds /= 2
            reply.close()

    async def deliver(self, event: SseEvent, request_id: Id | None) -> None:
        """Deliver one event of the stream of `request_id`, or of the stream of the session, once reading is allowed."""
        if not self.may_read.is_set():
            # The server must wait as well, because the connection is not read meanwhile.
            await self.may_read.wait()
        if event.is_oversized:
            self.failed(request_id, self.too_large())
        elif event.name in (b"", b"message"):
            self.receive(event.data)

    def too_large(self) -> FrameTooLarge:
        return FrameTooLarge(f"{self._pool.name}: the server sent a message of more than {self.max_frame_bytes} bytes")


_RETRY_SECONDS = 1.0
# Minimum, so that a server which asks for no pause and closes its streams at once causes no busy loop.
_LEAST_RETRY_SECONDS = 0.1
# Consecutive attempts to resume a stream at a server that cannot be reached.
_CONNECTS = 6


class OutgoingMessage(Struct, frozen=True):
    frame: bytes
    id: Id | None
    """The id of the request that the message is, answers, or refers to."""
    method: str | None
    heading: Heading


class RefusedByServer(RemoteError):
    """A JSON-RPC error that arrived with an HTTP status other than success."""

    def __init__(self, error: RemoteError, status: int) -> None:
        super().__init__(error.code, error.message, error.data)
        self.status = status


async def post_message(requester: Requester, message: OutgoingMessage) -> None:
    """Send a notification or response. Raises the error of a refusal."""
    reply = await _post(requester, message, None)
    try:
        if reply.content_type != EVENTS:
            await read_some(reply, requester.pool)  # so that the connection can be reused
    finally:
        reply.close()


async def post_request(requester: Requester, inbound: Inbound, message: OutgoingMessage) -> None:
    """Send a request, and deliver its response and all other messages of its stream. Without a response, raises the
    reason.
    """
    assert message.id is not None
    reply = await _post(requester, message, partial(inbound.hold, message.id))
    try:
        if message.method == "initialize":
            # Spec: 2025-11-25 basic/transports: the id arrives with the response to `initialize`, and with no other.
            requester.remember_session(reply)

        kind = reply.content_type
        if kind == JSON:
            body = await read_whole(reply, requester.pool, inbound.max_frame_bytes)
            if body is None:
                raise inbound.too_large()
            if not body:
                raise HttpError(f"{requester.pool.name} answered {message.method} with an empty body", reply.status)
            inbound.receive(body)
        elif kind == EVENTS:
            reply = await _read_stream(requester, inbound, message, reply)
        else:
            raise await _not_mcp(requester, reply, message)
    finally:
        reply.close()

    if inbound.waits_for(message.id):
        text = f"{requester.pool.name} did not answer {message.method}: no message of the response has its id"
        raise ProtocolError(text)


async def _post(requester: Requester, message: OutgoingMessage, hold: Callable[[bool], None] | None) -> Reply:
    # Return the response. A repeatable request is sent a second time if its connection was closed meanwhile.
    # Raises the error of a refusal.
    post = partial(requester.post, message.heading, message.frame, message.method or "", hold)
    try:
        reply = await post()
    except ConnectionLost as error:
        if isinstance(error, CannotConnect) or (message.heading.is_request and message.method not in REPEATABLE):
            raise
        reply = await post()

    if not 200 <= reply.status < 300:
        with closing(reply):
            raise await refusal(requester, reply, message)
    return reply


async def refusal(requester: Requester, reply: Reply, message: OutgoingMessage) -> McpdError:
    """Return the error of a refused message: its JSON-RPC error if it has one; otherwise its status and first line."""
    name, status = requester.pool.name, reply.status
    body = await read_some(reply, requester.pool)
    is_in_session = bool(requester.session) and message.heading.in_session and message.method != "initialize"
    # Spec: 2025-11-25 basic/transports, session management: 404 to a request with a session id means a new session.
    if status == 404 and is_in_session:
        return SessionLost(f"{name} has ended the session (HTTP 404): open a new one")
    if reply.content_type == JSON:
        try:
            found = decode(body)
        except ProtocolError:
            found = None
        if isinstance(found, Failure):
            return RefusedByServer(remote_error(found), status)

    url = printable(str(requester.pool.url.with_query(None)))
    challenges = reply.headers.getall("WWW-Authenticate", ())
    wants_login = status == 401 and any("resource_metadata" in line for line in challenges)
    if wants_login and not requester.has_token and not has_judged(challenges):
        return AuthorizationRequired(url)

    reason = said_in(body)
    text = f"{name}: HTTP {status} {printable(reply.reason or '', 60)}".rstrip() + (f": {reason}" if reason else "")
    advice = advice_on(status, challenges, reason, has_token=requester.has_token)
    text += f"; {advice}" if advice else ""
    if wants_login:
        return AuthorizationRequired(url, (), f"{text}; to log in: mcpd login {url}")
    is_challenge = bool(challenges) or requester.options.authenticate is not None
    return HttpError(text, status, is_challenge=is_challenge)


async def _not_mcp(requester: Requester, reply: Reply, message: OutgoingMessage) -> HttpError:
    name, status, method = requester.pool.name, reply.status, message.method
    if status in (202, 204):
        return HttpError(f"{name} accepted the request {method} but sent no response (HTTP {status})", status)
    reason = said_in(await read_some(reply, requester.pool))
    kind = printable(reply.headers.get("Content-Type", "no Content-Type"), 80)
    return HttpError(
        f"{name} answered {method} with {kind}, not with MCP: is the path right? {reason}".rstrip(), status
    )


async def _read_stream(requester: Requester, inbound: Inbound, message: OutgoingMessage, reply: Reply) -> Reply:
    # Deliver the events of a request's stream until its response has arrived. Return the reply that was read last.
    assert message.id is not None
    reader = SseReader(inbound.max_frame_bytes)
    name = requester.pool.name
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
        # Spec: 2026-07-28 basic/transports/streamable-http: streams can no longer be resumed.
        if not message.heading.in_session or not reader.last_id:
            raise ConnectionLost(f"{name}: {why} before the response to {message.method}")
        reader = SseReader(inbound.max_frame_bytes, reader.last_id, reader.retry_ms)
        reply = await _resume(requester, message, reader)


async def _resume(requester: Requester, message: OutgoingMessage, reader: SseReader) -> Reply:
    name = requester.pool.name
    for attempt in range(_CONNECTS):
        await asyncio.sleep(retry_delay(reader, attempt))
        try:
            reply = await open_stream(requester, reader.last_id)
        except ConnectionLost as error:
            if attempt == _CONNECTS - 1:
                raise ConnectionLost(f"the stream ended before the response to {message.method}: {error}") from error
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
        text = (
            f"{name} ended the stream before the response to {message.method}, and refuses to resume it: HTTP {status}"
        )
        raise ConnectionLost(text)
    raise AssertionError


async def open_stream(requester: Requester, last_id: bytes) -> Reply:
    """Send a GET for the stream that was cut off after this event; without an event, for the stream of the session."""
    fields: Mapping[str, str] = {"Accept": EVENTS, **requester.session, **requester.version}
    if last_id:
        fields = {**fields, "Last-Event-ID": last_id.decode(errors="replace")}
    return await requester.request("GET", requester.pool.url, fields)


def retry_delay(reader: SseReader, attempt: int) -> float:
    """Return the seconds to wait: the server's delay, or one second; longer after failures."""
    seconds = _RETRY_SECONDS if reader.retry_ms is None else max(reader.retry_ms / 1000, _LEAST_RETRY_SECONDS)
    if attempt:
        seconds = max(seconds, _RETRY_SECONDS * 2 ** min(attempt - 1, 5)) * random.uniform(1, 1.2)
    return seconds


log = logging.getLogger("mcpd.client")

# Consecutive attempts to open the stream of a session without receiving anything.
_STREAM_ATTEMPTS = 10


async def listen(requester: Requester, inbound: Inbound, tried: Callable[[], None]) -> None:
    """Deliver messages from the stream of the session, until the server has no such stream or stays unreachable.

    `tried` is called after the first attempt. From then on no message of the server is lost.
    """
    name = requester.pool.name
    reader = SseReader(inbound.max_frame_bytes)
    attempt = 0
    has_been_open = False
    while attempt < _STREAM_ATTEMPTS:
        if attempt:
            await asyncio.sleep(retry_delay(reader, attempt - 1))
        attempt += 1
        try:
            reply = await open_stream(requester, reader.last_id)
        except (AuthorizationFailed, AuthorizationRequired, ConfigurationError) as error:
            # The next request raises the same error. The user should not have to log in again and again for this.
            log.warning("messages that %s sends on its own are not received: %s", printable(name), printable(error))
            return
        except (ConnectionLost, HttpError) as error:
            log.debug("the stream of the session cannot be opened: %s", printable(error))
            continue
        finally:
            tried()

        try:
            if reply.status >= 500:
                continue
            if reply.status == 404 and has_been_open and requester.session:
                # Spec: 2025-11-25 basic/transports, session management: 404 means that the session has ended.
                inbound.closed(SessionLost(f"{name} has ended the session (HTTP 404): open a new one"))
                return
            if reply.status != 200 or reply.content_type != EVENTS:
                # 405 means that the server has no such stream; some servers use other codes.
                log.debug("%s has no stream for its own messages: HTTP %d", printable(name), reply.status)
                return
            has_been_open = True
            reader = SseReader(inbound.max_frame_bytes, reader.last_id, reader.retry_ms)
            before = reader.last_id
            if await inbound.read_events(reply, reader) or reader.last_id != before:
                attempt = 1
        except ConnectionLost as error:
            log.debug("the stream of the session was interrupted: %s", printable(error))
        finally:
            reply.close()

    log.warning(
        "messages that %s sends on its own are no longer received: its stream ended %d times",
        printable(name),
        _STREAM_ATTEMPTS,
    )
