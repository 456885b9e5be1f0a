"""One HTTP request of an ASGI server: its headers, its body, simple responses, and how to notice that the client left.

This module knows HTTP and ASGI, and of MCP only that bodies are JSON-RPC. Header names are lower-case bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Struct

from mcpd.errors import InternalError, InvalidRequest, ProtocolError
from mcpd.protocol.budget import OVER, SMALL, Charge, weigh
from mcpd.protocol.jsonrpc import Id, encode, error_answer
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal, Transport
from mcpd.transports.guards import Refusal

if TYPE_CHECKING:
    from mcpd.server.dispatcher.observing import PostFrames

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

FIELDS = "mcpd.fields"
"""The member of a scope of our own listener with the headers as a dict, which the request takes out."""

JSON: Header = (b"content-type", b"application/json")
EVENT_STREAM: Header = (b"content-type", b"text/event-stream")

_BIT_JSON, _BIT_EVENTS = 1, 2
_ACCEPTED = {
    b"application/json": _BIT_JSON,
    b"application/*": _BIT_JSON,
    b"text/event-stream": _BIT_EVENTS,
    b"text/*": _BIT_EVENTS,
    b"*/*": _BIT_JSON | _BIT_EVENTS,
}
_NONE: frozenset[bytes] = frozenset()
_NOTHING: dict[bytes, bytes] = {}


class ClientDisconnected(Exception):
    """The client left before its request was complete."""


class BadRequest(Exception):
    """A request that is answered with this status and JSON-RPC error, or with a generic error of this text."""

    def __init__(self, status: int, error: ProtocolError | str, request_id: Id | None = None) -> None:
        if isinstance(error, str):
            error = InternalError(error) if status == 503 else InvalidRequest(error)
        self.status = status
        self.error = error
        self.request_id = request_id
        super().__init__(error.message)


class Refused(Exception):
    """A request that is answered with this refusal."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.text)


def _nobody(request: HttpRequest) -> str:
    return ""


class HttpRequest:
    """One request and its response. `repeated` are the headers that came more than once, whose values are joined."""

    __slots__ = ("_on_refused", "charge", "headers", "method", "part", "path", "receive", "repeated",
                 "response_headers", "scope", "send", "status", "user", "watch")  # fmt: skip

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, on_refused: Callable[[str], object] | None = None
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self._on_refused = on_refused
        self.method: str = scope["method"]

        path: str = scope["path"]
        root: str | None = scope.get("root_path")
        # In a mounted application `path` may include the mount point.
        self.path = path[len(root) :] if root and path.startswith(root) else path

        headers: list[Header] = scope["headers"]
        self.headers: dict[bytes, bytes] = scope.pop(FIELDS, None) or dict(headers)
        self.repeated = _NONE
        if len(self.headers) != len(headers):
            self._join(headers)

        self.response_headers: tuple[Header, ...] = ()
        """Headers of every response to this request."""
        self.charge: Charge | None = None
        """The share of the memory budget that a large body takes."""
        self.watch: PostFrames | None = None
        """Reports frames, if an observer receives them."""
        self.part: tuple[str, ...] | None = None
        """The mounted servers that its path or query names; None for everything."""
        self.user: Principal = ANONYMOUS
        """The sender, from the authenticator."""
        self.status = 0
        """The status of the response; 0 before it."""

    def _join(self, headers: Iterable[Header]) -> None:
        joined: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            joined.setdefault(name, []).append(value)
        self.headers = {name: b", ".join(values) for name, values in joined.items()}
        self.repeated = frozenset(name for name, values in joined.items() if len(values) > 1)

    def origin(self) -> Origin:
        """Return the origin of the request, for authors of tools."""
        scope = self.scope
        transport: Transport = "websocket" if scope["type"] == "websocket" else "http"
        scheme, root_path = scope.get("scheme") or "http", scope.get("root_path") or ""
        return Origin(transport, self.user, scope["headers"], scheme=scheme, root_path=root_path)

    def header(self, name: bytes) -> str | None:
        """Return a header as text, None if it is missing."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def peer(self) -> str:
        """The client's address, without the port; empty if unknown."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    # -- headers -----------------------------------------------------------------------------

    @property
    def accepts_both(self) -> bool:
        """Whether the client accepts both JSON and event streams; without `Accept` it accepts anything."""
        return _read_accept(self.headers.get(b"accept", b"*/*")) == _BIT_JSON | _BIT_EVENTS

    @property
    def accepts_events(self) -> bool:
        """Whether the client accepts event streams."""
        return bool(_read_accept(self.headers.get(b"accept", b"*/*")) & _BIT_EVENTS)

    @property
    def has_json(self) -> bool:
        """Whether the headers declare an uncompressed JSON body in UTF-8."""
        value = self.headers.get(b"content-type")
        if value is None or b"content-encoding" in self.headers:
            return False
        kind, *parameters = [part.strip().lower() for part in value.split(b";")]
        charset = [part.partition(b"=")[2].strip(b'"') for part in parameters if part.startswith(b"charset=")]
        return kind == b"application/json" and charset in ([], [b"utf-8"], [b"utf8"])

    # -- reading -----------------------------------------------------------------------------

    async def read(self, most: int, timeout: float, owner: Callable[[HttpRequest], str] = _nobody) -> bytes:
        """Return the body. A large one is charged to the memory budget of `owner`.

        Raises BadRequest for a body over `most` bytes, one that takes longer than `timeout` seconds, or if the budget
        is used up; ClientDisconnected if the client leaves.
        """
        length = self.headers.get(b"content-length")
        if length is not None and length.isdigit() and (len(length) > 15 or int(length) > most):
            raise BadRequest(413, _too_large(most))

        message = await self.receive()
        if message["type"] != "http.request":
            raise ClientDisconnected
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            try:
                async with asyncio.timeout(timeout):
                    body = await self._read_on(body, most, owner)
            except TimeoutError:
                raise BadRequest(408, f"The body did not arrive within {timeout:g} s") from None

        if len(body) > most:
            raise BadRequest(413, _too_large(most))
        if len(body) > SMALL:
            self._hold(weigh(body), owner)
        return body

    def _hold(self, size: int, owner: Callable[[HttpRequest], str]) -> None:
        if self.charge is None:
            self.charge = Charge(id(self), owner(self))
        if not self.charge.set(size):
            self.charge = None
            raise BadRequest(503, OVER)

    async def _read_on(self, first: bytes, most: int, owner: Callable[[HttpRequest], str]) -> bytes:
        parts, size = [first], len(first)
        while size <= most:
            message = await self.receive()
            if message["type"] != "http.request":
                raise ClientDisconnected

            part: bytes = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > SMALL:
                self._hold(size, owner)
            if not message.get("more_body"):
                break

        return b"".join(parts)

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, for routes that store it. Raises ConnectionError if the client leaves."""
        while True:
            message = await self.receive()
            if message["type"] != "http.request":
                raise ConnectionError("the client left")
            if part := message.get("body", b""):
                yield part
            if not message.get("more_body"):
                return

    # -- responses ---------------------------------------------------------------------------

    async def answer(
        self, status: int, body: bytes, kind: Header | None = JSON, headers: Iterable[Header] = ()
    ) -> None:
        """Send a response with a body, or with an empty one without a `kind`."""
        if self.watch is not None and kind is JSON:
            self.watch.sent(body)
        self.status = status
        fields = [] if kind is None else [kind]
        if status not in (204, 304):
            fields.append((b"content-length", b"%d" % len(body)))
        fields += [*headers, *self.response_headers]
        await self.send({"type": "http.response.start", "status": status, "headers": fields})
        await self.send({"type": "http.response.body", "body": body if self.method != "HEAD" else b""})

    async def answer_empty(self, status: int, headers: Iterable[Header] = ()) -> None:
        """Send a response without a body."""
        await self.answer(status, b"", None, headers)

    async def refuse(self, refusal: Refusal, headers: Iterable[Header] = ()) -> None:
        """Send a refusal: JSON with an `error` for clients, text for browsers."""
        if self._on_refused is not None:
            self._on_refused(str(refusal.status))
        body, (kind, *fields) = self.written(refusal)
        await self.answer(refusal.status, body, kind, [*fields, *headers])

    def written(self, refusal: Refusal) -> tuple[bytes, list[Header]]:
        """Return the body of a refusal and its headers; the first header is the content type."""
        kind, body = refusal.body(self.header(b"accept"))
        fields = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
        return body, [(b"content-type", kind.encode()), *fields]

    async def fail(self, status: int, error: ProtocolError, request_id: Id | None = None) -> None:
        """Send a JSON-RPC error; without an id if the request has none, or it could not be read."""
        if self._on_refused is not None:
            # For a generic code, the status is more specific.
            is_vague = error.code in (InvalidRequest.code, InternalError.code)
            self._on_refused(str(status if is_vague else error.code))

        failure = error_answer(error, UNSET if request_id is None else request_id)
        # The unread part of the body would be parsed as the next request.
        headers: tuple[Header, ...] = ((b"connection", b"close"),) if status in (408, 413, 503) else ()
        if status == 503:
            headers = (*headers, (b"retry-after", b"5"))
        await self.answer(status, encode(failure), JSON, headers)

    async def begin(self, headers: Iterable[Header]) -> Send:
        """Begin a response of unknown length. Returns the function that sends the parts of its body."""
        self.status = 200
        self.headers = _NOTHING  # the response may last for hours, and the headers were read
        await self.send({"type": "http.response.start", "status": 200, "headers": [*headers, *self.response_headers]})
        return self.send


def _read_accept(value: bytes) -> int:
    bits = 0
    for part in value.split(b","):
        kind, *parameters = [item.strip().lower() for item in part.split(b";")]
        weights = [item[2:] for item in parameters if item.startswith(b"q=")]
        if not weights or weights[0].strip(b"0.") != b"":
            bits |= _ACCEPTED.get(kind, 0)
    return bits


def _too_large(most: int) -> str:
    return f"The body is too large: the limit is {most} bytes (setting max_body_bytes)"


class Departure(Struct, eq=False):
    """Calls back when the client of a request has left, or its response is complete: once, in the next iteration of the
    event loop. A callback needs less memory than an event and a task for each listening client."""

    _callback: Callable[[], object] | None

    def set(self) -> None:
        """Schedule the callback."""
        callback, self._callback = self._callback, None
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback)

    def cancel(self) -> None:
        """Drop the callback."""
        self._callback = None


def on_departure(request: HttpRequest, callback: Callable[[], object]) -> Departure | asyncio.Task[None]:
    """Call `callback` when the client of a request has left, or the response is complete. Cancel with `cancel`.

    Exchanges of our own listener call back, unless their body is incomplete. Other ASGI servers report it only to a
    pending `receive`, which takes a task.
    """
    exchange: Any = getattr(request.send, "__self__", None)
    if hasattr(exchange, "departure") and not (exchange.more_body or exchange.is_gone or exchange.is_complete):
        departure = exchange.departure = Departure(callback)
        return departure
    return asyncio.get_running_loop().create_task(_watch(request.receive, callback), name="mcpd-watch")


def departed(request: HttpRequest) -> asyncio.Future[None]:
    """Return a future that is done when the client of a request has left, or has its response."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watching = on_departure(request, partial(settle, future))
    if isinstance(watching, asyncio.Task):
        future.add_done_callback(lambda _: watching.cancel())
    return future


async def _watch(receive: Receive, callback: Callable[[], object]) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except Exception:
        # Whatever an ASGI server raises after the end of a request: the client has left.
        pass
    callback()


def settle(future: asyncio.Future[Any], value: object = None) -> None:
    """Set the result of a future, unless it is done."""
    if not future.done():
        future.set_result(value)
