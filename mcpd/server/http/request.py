"""One HTTP request as ASGI brings it: its headers, its body, and the plain answers to it.

Knows HTTP and ASGI; of MCP only that bodies are JSON-RPC. Header names are lower-case bytes, as ASGI has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import UNSET

from mcpd.errors import InternalError, InvalidRequest, ProtocolError
from mcpd.protocol.budget import OVER, SMALL, Charge, weigh
from mcpd.protocol.jsonrpc import Id, encode, error_answer
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal
from mcpd.transports.guards import Refusal

if TYPE_CHECKING:
    from mcpd.server.dispatcher.observing import PostFrames


T = TypeVar("T")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
EVENT_STREAM: Header = (b"content-type", b"text/event-stream")
WHEN_GONE = "mcpd.when_gone"
"""Where our own listener's scopes have what tells that a client has left: see `departure`."""

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
    """The client left before its request was whole: nobody is there to be answered."""


class BadBody(Exception):
    """A body that is refused: the status, and the text for the client."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text
        super().__init__(text)


def _nobody(request: HttpRequest) -> str:
    return ""


class HttpRequest:
    """One request and its answer. `repeated` are the headers that came more than once (then joined by a comma)."""

    __slots__ = ("_on_refused", "_send", "charge", "headers", "method", "path", "receive", "repeated",
                 "response_headers", "scope", "status", "user", "watch")  # fmt: skip

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, on_refused: Callable[[str], object] | None = None
    ) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self._on_refused = on_refused
        self.method: str = scope["method"]

        path: str = scope["path"]
        root: str | None = scope.get("root_path")
        # Where an application is mounted, `path` may hold the place it is mounted at.
        self.path = path[len(root) :] if root and path.startswith(root) else path

        headers: list[Header] = scope["headers"]
        self.headers: dict[bytes, bytes] = dict(headers)
        self.repeated = _NONE
        if len(self.headers) != len(headers):
            self._join(headers)

        self.response_headers: tuple[Header, ...] = ()
        """Headers that every answer to this request carries."""
        self.charge: Charge | None = None
        """What its body takes of the budget, if it is large."""
        self.watch: PostFrames | None = None
        """Set where an observer hears of frames."""
        self.user: Principal = ANONYMOUS
        """Its sender, as the authenticator found."""
        self.status = 0
        """The status that was answered, 0 if none was."""

    def _join(self, headers: Iterable[Header]) -> None:
        joined: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            joined.setdefault(name, []).append(value)
        self.headers = {name: b", ".join(values) for name, values in joined.items()}
        self.repeated = frozenset(name for name, values in joined.items() if len(values) > 1)

    def origin(self) -> Origin:
        """Where it comes from, for authors; its headers are those of the scope, which lasts as long as it does."""
        return Origin("websocket" if self.scope["type"] == "websocket" else "http", self.user, self.scope["headers"])

    def header(self, name: bytes) -> str | None:
        """A header as text, None if it did not come."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def peer(self) -> str:
        """The address that the client connects from, without its port; empty if that is not known."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    # -- what the client says of itself ------------------------------------------------------

    @property
    def accepts_both(self) -> bool:
        """Whether the answer may be JSON as well as an event stream; no `Accept` means anything."""
        return _read_accept(self.headers.get(b"accept", b"*/*")) == _BIT_JSON | _BIT_EVENTS

    @property
    def accepts_events(self) -> bool:
        """Whether the answer may be an event stream."""
        return bool(_read_accept(self.headers.get(b"accept", b"*/*")) & _BIT_EVENTS)

    @property
    def has_json(self) -> bool:
        """Whether the body is said to be JSON in UTF-8, and not packed."""
        value = self.headers.get(b"content-type")
        if value is None or b"content-encoding" in self.headers:
            return False
        kind, *parameters = [part.strip().lower() for part in value.split(b";")]
        charset = [part.partition(b"=")[2].strip(b'"') for part in parameters if part.startswith(b"charset=")]
        return kind == b"application/json" and charset in ([], [b"utf-8"], [b"utf8"])

    # -- reading -----------------------------------------------------------------------------

    async def read(self, most: int, timeout: float, owner: Callable[[HttpRequest], str] = _nobody) -> bytes:
        """The body, which takes of the budget of its `owner`.

        Raises BadBody for one over `most` bytes, slower than `timeout` seconds or without memory for it;
        ClientDisconnected if the client leaves.
        """
        length = self.headers.get(b"content-length")
        if length is not None and length.isdigit() and (len(length) > 15 or int(length) > most):
            raise BadBody(413, _too_large(most))

        message = await self.receive()
        if message["type"] != "http.request":
            raise ClientDisconnected
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            try:
                async with asyncio.timeout(timeout):
                    body = await self._read_on(body, most, owner)
            except TimeoutError:
                raise BadBody(408, f"The body did not arrive within {timeout:g} s") from None

        if len(body) > most:
            raise BadBody(413, _too_large(most))
        if len(body) > SMALL:
            self._hold(weigh(body), owner)
        return body

    def _hold(self, size: int, owner: Callable[[HttpRequest], str]) -> None:
        if self.charge is None:
            self.charge = Charge(id(self), owner(self))
        if not self.charge.set(size):
            self.charge = None
            raise BadBody(503, OVER)

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

    # -- answering ---------------------------------------------------------------------------

    async def answer(self, status: int, body: bytes, kind: Header = JSON, headers: Iterable[Header] = ()) -> None:
        """Answer with a whole body."""
        if self.watch is not None and kind is JSON:
            self.watch.sent(body)
        self.status = status
        fields = [kind, (b"content-length", b"%d" % len(body)), *headers, *self.response_headers]
        await self._send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send({"type": "http.response.body", "body": body if self.method != "HEAD" else b""})

    async def answer_empty(self, status: int, headers: Iterable[Header] = ()) -> None:
        """Answer with a status alone."""
        self.status = status
        lengths = () if status in (204, 304) else ((b"content-length", b"0"),)
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*lengths, *headers, *self.response_headers]}
        )
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, refusal: Refusal, headers: Iterable[Header] = ()) -> None:
        """Answer that there is no such service: JSON with an `error` for clients, a text for browsers."""
        if self._on_refused is not None:
            self._on_refused(str(refusal.status))
        kind, body = refusal.body(self.header(b"accept"))
        fields = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
        await self.answer(refusal.status, body, (b"content-type", kind.encode()), [*fields, *headers])

    async def fail(self, status: int, error: ProtocolError, request_id: Id | None = None) -> None:
        """Answer with a JSON-RPC error; without an id where there is none, or none could be read."""
        if self._on_refused is not None:
            # Where the code says nothing but that something went wrong, the status says more.
            is_vague = error.code in (InvalidRequest.code, InternalError.code)
            self._on_refused(str(status if is_vague else error.code))
        failure = error_answer(error, UNSET if request_id is None else request_id)
        # What was not read of the body would be taken for the next request.
        headers: tuple[Header, ...] = ((b"connection", b"close"),) if status in (408, 413, 503) else ()
        if status == 503:
            headers = (*headers, (b"retry-after", b"5"))
        await self.answer(status, encode(failure), JSON, headers)

    async def fail_plainly(self, status: int, text: str) -> None:
        """Answer with a JSON-RPC error that says only this."""
        await self.fail(status, InternalError(text) if status == 503 else InvalidRequest(text))

    def have_told(self, tell: Callable[[Send, Callable[[], object]], T], callback: Callable[[], object]) -> T:
        """Let a connection of ours tell what becomes of it."""
        return tell(self._send, callback)

    async def begin(self, headers: Iterable[Header]) -> Send:
        """Begin an answer of unknown length; what is given back takes the parts of its body."""
        self.status = 200
        self.headers = _NOTHING  # it may last for hours, and its head was read
        await self._send({"type": "http.response.start", "status": 200, "headers": [*headers, *self.response_headers]})
        return self._send


def _read_accept(value: bytes) -> int:
    bits = 0
    for part in value.split(b","):
        kind, *parameters = [item.strip().lower() for item in part.split(b";")]
        weights = [item[2:] for item in parameters if item.startswith(b"q=")]
        if not weights or weights[0].strip(b"0.") != b"":
            bits |= _ACCEPTED.get(kind, 0)
    return bits


def _too_large(most: int) -> str:
    return f"The body is too large: at most {most} bytes are taken (setting max_body_bytes)"


class Departure:
    """Set when the client of a request that was read has left, or its answer is complete. The callback is called once,
    a turn of the loop later."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def set(self) -> None:
        """It has happened."""
        callback, self._callback = self._callback, None
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback)

    def cancel(self) -> None:
        """The callback is not wanted any more."""
        self._callback = None


def when_gone(send: Any, callback: Callable[[], object]) -> Departure | None:
    """Have an exchange of `http1`, whose `send` this is, call back; None if it is too late, or its body is to come."""
    exchange: Any = getattr(send, "__self__", None)
    if not hasattr(exchange, "departure") or exchange.more_body or exchange.is_gone or exchange.is_complete:
        return None
    departure = exchange.departure = Departure(callback)
    return departure


def on_departure(request: HttpRequest, callback: Callable[[], object]) -> Departure | asyncio.Task[None]:
    """Have this called when the client of a request that was read has left, or has its answer; `cancel` ends that."""
    tell = request.scope.get(WHEN_GONE)
    departure: Departure | None = None if tell is None else request.have_told(tell, callback)
    if departure is not None:
        return departure
    return asyncio.get_running_loop().create_task(_watch(request.receive, callback), name="mcpd-watch")


def departed(request: HttpRequest) -> asyncio.Future[None]:
    """Done when the client of a request that was read has left, or has its answer."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watching = on_departure(request, partial(_settle, future))
    if isinstance(watching, asyncio.Task):
        future.add_done_callback(lambda _: watching.cancel())
    return future


async def _watch(receive: Receive, callback: Callable[[], object]) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except Exception:
        # Whatever a server raises when there is nothing more to receive: for us the client is gone.
        pass
    callback()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
