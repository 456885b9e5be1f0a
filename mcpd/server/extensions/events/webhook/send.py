"""The guarded HTTPS client of webhooks: signed requests to URLs that strangers choose.

A host is resolved at each connect, all its addresses must be global, and the connection goes to one of them, with the
host's own name for TLS. No redirect is followed, no proxy of the environment is used, and nothing of an answer but its
status and `Retry-After` leaves this module, except to compare a challenge.

Spec: SEP-3415, webhook delivery; Standard Webhooks. EVT-036, 037, 054 to 060.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import socket
import ssl
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from mcpd import __version__
from mcpd.transports.address import Reach, kind_of, may_reach

Category: TypeAlias = Literal["connection_refused", "timeout", "tls_error", "http_4xx", "http_5xx", "challenge_failed"]
"""All that anybody learns about a failure; more would make this machine a scanner of its network (EVT-064)."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> its addresses. Raises OSError."""

MOST_URL_CHARACTERS = 2048
_SECRET_BYTES = (24, 64)
_ANSWER_BYTES = 8 * 1024
_KEEP_ALIVE = 30.0
_MOST_CONNECTIONS = 256
_RESOLVERS = 16

_url = re.compile(
    r"https://(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^?#\s]*)?(?P<query>\?[^#\s]*)?"
).fullmatch
_has_bad_character = re.compile(r'[^\x21-\x7e]|["<>\\^`{|}]').search


# -- URLs and secrets --------------------------------------------------------------------------


class Target(Struct, frozen=True):
    """Where a webhook is received. `path` has the query, and `name` is the host as TLS and DNS know it."""

    name: str
    port: int
    authority: str
    path: str

    @property
    def origin(self) -> str:
        """The URL without path and query."""
        return f"https://{self.authority}"


@lru_cache(1024)
def read_url(url: str) -> Target:
    """Parse the URL of a receiver. Raises ValueError with a sentence for the client."""
    if len(url) > MOST_URL_CHARACTERS:
        raise ValueError(f"delivery.url has more than {MOST_URL_CHARACTERS:,} characters")
    found = None if _has_bad_character(url) else _url(url)
    if found is None:
        raise ValueError("delivery.url must be an absolute https URL without user and fragment, in ASCII")
    port = int(found["port"] or 443)
    if not 0 < port < 65536:
        raise ValueError("delivery.url has a port that does not exist")
    host = found["host"].lower()
    path = (found["path"] or "/") + (found["query"] or "")
    authority = host if port == 443 else f"{host}:{port}"
    return Target(host.strip("[]").rstrip("."), port, authority, path)


def is_below(target: Target, prefixes: Collection[str]) -> bool:
    """Return whether a path begins with one of these, at whole segments. Paths that a receiver may rewrite do not."""
    path = target.path.partition("?")[0]
    if (
        "//" in path
        or "%2" in path
        or "%5" in path
        or any(part.partition(";")[0] in (".", "..") for part in path.split("/"))
    ):
        return False

    return any(
        path == prefix.rstrip("/") or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")
        for prefix in prefixes
        if prefix.startswith("/")
    )


def read_secret(secret: str) -> bytes:
    """Return the key of a `whsec_` secret. Raises ValueError without the secret in its text."""
    prefix, _, text = secret.partition("whsec_")
    try:
        key = b64decode(text, validate=True) if not prefix else b""
    except (Base64Error, ValueError):
        key = b""
    least, most = _SECRET_BYTES
    if not least <= len(key) <= most or b64encode(key).decode() != text:
        raise ValueError(f'delivery.secret must be "whsec_" and base64 of {least} to {most} random bytes')
    return key


def sign(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature for each key, in the form of Standard Webhooks."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    return " ".join(["v1," + b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys])


# -- answers and failures ----------------------------------------------------------------------


class Answer(Struct, frozen=True):
    """What a receiver has answered. `body` is empty unless it was asked for."""

    status: int
    body: bytes = b""
    retry_after: float | None = None
    cache_control: str = ""

    @property
    def is_accepted(self) -> bool:
        """Whether the status is one of 2xx."""
        return 200 <= self.status < 300

    @property
    def category(self) -> Category:
        """The category of a status that is not 2xx. A redirect counts as the receiver's mistake (EVT-059)."""
        return "http_4xx" if 300 <= self.status < 500 else "http_5xx"


class Unreached(Exception):
    """A request was not answered."""

    def __init__(self, category: Category) -> None:
        self.category: Category = category
        super().__init__(category)


_ENDED = b"\r\n\r\n"
_status = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: |\r\n)").match
_number = re.compile(rb"[0-9]{1,18}").fullmatch
_hexadecimal = re.compile(rb"[0-9A-Fa-f]{1,8}").fullmatch


class _Connection(asyncio.Protocol):
    # One connection, with one request at a time. Bytes beyond the limit end it.

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[Answer] | None = None
        self.idle_since = 0.0
        self.is_open = True
        self._begin(_ANSWER_BYTES, wants_body=False)

    def _begin(self, most: int, *, wants_body: bool) -> None:
        self._most, self._wants_body = most, wants_body
        self._buffer = bytearray()
        self._head: dict[bytes, bytes] | None = None
        self._status = 0
        # Bytes of the body that are left, None until the end of the connection, -1 for chunks.
        self._left: int | None = 0
        self._body = bytearray()
        self._received = 0
        self._may_stay = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transport has another base class

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._waiter is not None:
            if self._head is not None and (self._left is None or not self._wants_body):
                self._finish()
            else:
                self._fail()

    def eof_received(self) -> None:
        self.close()

    def close(self) -> None:
        """End the connection at once."""
        self.is_open = False
        self.transport.abort()

    @property
    def has_begun(self) -> bool:
        """Whether any of an answer has arrived."""
        return self._received > 0

    async def request(self, data: bytes, most: int, *, wants_body: bool) -> Answer:
        """Send a request and return the answer. Raises Unreached if the connection ends before."""
        self._begin(most, wants_body=wants_body)
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._waiter = waiter
        self.transport.write(data)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    @property
    def early(self) -> Answer | None:
        """The answer if its head has arrived and its body is not needed."""
        return None if self._head is None or self._wants_body else self._answer()

    def _fail(self, category: Category = "connection_refused") -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(Unreached(category))

    def _finish(self) -> None:
        if not self._may_stay or self._buffer or not self.is_open:
            self.close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(self._answer())

    def _answer(self) -> Answer:
        assert self._head is not None
        after = self._head.get(b"retry-after", b"")
        control = self._head.get(b"cache-control", b"").decode("latin-1")
        return Answer(self._status, bytes(self._body), float(after) if _number(after) else None, control)

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            self.close()  # nobody has asked
            return
        self._received += len(data)
        self._buffer += data
        if self._head is None and not self._read_head():
            if self._waiter is not None and self._received > self._most:  # interim answers count too
                self._fail("http_5xx")
                self.close()
            return

        is_complete = self._read_body()
        is_too_long = self._received > self._most
        if self._wants_body and is_too_long:
            self._fail("http_5xx")
            self.close()
        elif is_complete or is_too_long or (self._left is None and not self._wants_body):
            self._may_stay = self._may_stay and is_complete
            self._finish()

    def _read_head(self) -> bool:
        # Return whether the head of the final answer is complete.
        while (end := self._buffer.find(_ENDED)) >= 0:
            lines = bytes(self._buffer[: end + 2]).split(b"\r\n")
            found = _status(lines[0] + b"\r\n")
            if found is None:
                break
            del self._buffer[: end + len(_ENDED)]
            self._status = int(found[2])
            if 100 <= self._status < 200 and self._status != 101:
                continue  # an interim answer

            head: dict[bytes, bytes] = {}
            for line in lines[1:-1]:
                name, _, value = line.partition(b":")
                name = name.lower()
                head[name] = head[name] + b", " + value.strip() if name in head else value.strip()
            self._head = head
            self._may_stay = found[1] == b"1" and b"close" not in head.get(b"connection", b"").lower()
            length = head.get(b"content-length", b"")
            if self._status in (204, 304):
                self._left = 0
            elif b"transfer-encoding" in head:
                self._left = -1 if head[b"transfer-encoding"].lower() == b"chunked" else None
            else:
                self._left = int(length) if _number(length) else None
            if self._left is None:
                self._may_stay = False
            return True

        if end >= 0 or not b"HTTP/1.".startswith(bytes(self._buffer[:7])):
            self._fail("http_5xx")
            self.close()
        return False

    def _read_body(self) -> bool:
        # Move what has arrived to the body. Returns whether it is complete.
        if self._left == -1:
            return self._read_chunks()
        if self._left is None:
            self._body += self._buffer
            self._buffer.clear()
            return False
        part = self._buffer[: self._left]
        del self._buffer[: self._left]
        self._body += part
        self._left -= len(part)
        return self._left == 0

    def _read_chunks(self) -> bool:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            size = _hexadecimal(bytes(self._buffer[:end]).partition(b";")[0].strip())
            if size is None:
                self._left, self._may_stay = None, False  # no chunks: the rest is not understood
                return not self._wants_body
            length = int(size[0], 16)
            if length == 0:
                trailer = self._buffer.find(_ENDED, end) if self._buffer[end : end + 4] != _ENDED else end
                if trailer < 0:
                    return False
                del self._buffer[: trailer + len(_ENDED)]
                return True
            if len(self._buffer) < end + 2 + length + 2:
                return False
            self._body += self._buffer[end + 2 : end + 2 + length]
            del self._buffer[: end + 2 + length + 2]

        return False


# -- the sender --------------------------------------------------------------------------------


class Sender:
    """Sends requests to receivers. `allow_private` are origins that may have private or loopback addresses.

    `tls` is for receivers with certificates of a private authority, and `resolve` replaces the name service.
    """

    connect_seconds = 3.0
    seconds = 10.0

    def __init__(
        self,
        allow_private: Collection[str] = (),
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._allowed = frozenset(read_url(origin).origin for origin in allow_private)
        self._tls = tls or ssl.create_default_context()
        self._resolve = resolve or self._look_up
        # Threads of its own: a slow name service must not take those of the application.
        self._threads: ThreadPoolExecutor | None = None
        self._lookups: dict[tuple[str, int], asyncio.Future[list[str]]] = {}
        self._idle: dict[str, list[_Connection]] = {}
        self._idle_count = 0
        self._sweeper: asyncio.TimerHandle | None = None

    async def aclose(self) -> None:
        """Close idle connections. Safe to call twice."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        self._idle_count = 0
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def post(
        self, target: Target, headers: Sequence[tuple[str, str]], body: bytes, *, wants_body: bool = False
    ) -> Answer:
        """Send a POST of JSON. Raises Unreached."""
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers])
        head = (
            f"POST {target.path} HTTP/1.1\r\nHost: {target.authority}\r\nUser-Agent: mcpd/{__version__}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{fields}\r\n"
        )
        return await self._send(target, head.encode("latin-1") + body, _ANSWER_BYTES, wants_body=wants_body)

    async def get(self, target: Target, most: int) -> Answer:
        """Fetch a document of JSON. Raises Unreached."""
        head = (
            f"GET {target.path} HTTP/1.1\r\nHost: {target.authority}\r\nUser-Agent: mcpd/{__version__}\r\n"
            "Accept: application/json\r\nAccept-Encoding: identity\r\n\r\n"
        )
        return await self._send(target, head.encode("latin-1"), most, wants_body=True)

    async def _send(self, target: Target, data: bytes, most: int, *, wants_body: bool) -> Answer:
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self.seconds):
                connection = self._reused(target)
                if connection is not None:
                    try:
                        return await connection.request(data, most, wants_body=wants_body)
                    except Unreached:
                        if connection.has_begun:
                            raise
                    # It was closed while the request was on its way; the receiver knows a repeated webhook-id.
                connection = await self._connect(target)
                return await connection.request(data, most, wants_body=wants_body)
        except TimeoutError:
            early = None if connection is None else connection.early
            if early is None:
                raise Unreached("timeout") from None
            return early
        finally:
            if connection is not None and connection.is_open:
                self._keep(target, connection)

    # -- connections -------------------------------------------------------------------------

    def _reused(self, target: Target) -> _Connection | None:
        connections = self._idle.get(target.authority)
        while connections:
            connection = connections.pop()
            self._idle_count -= 1
            if connection.is_open and not connection.transport.is_closing():
                return connection
        return None

    def _keep(self, target: Target, connection: _Connection) -> None:
        if self._idle_count >= _MOST_CONNECTIONS:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(target.authority, []).append(connection)
        self._idle_count += 1
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_KEEP_ALIVE, self._sweep)

    def _sweep(self) -> None:
        # Close connections that were not used for long; at the latest after twice the time.
        self._sweeper = None
        oldest = self._loop.time() - _KEEP_ALIVE
        for key, connections in list(self._idle.items()):
            for connection in [each for each in connections if each.idle_since <= oldest or not each.is_open]:
                connections.remove(connection)
                self._idle_count -= 1
                connection.close()
            if not connections:
                del self._idle[key]
        if self._idle:
            self._sweeper = self._loop.call_later(_KEEP_ALIVE / 2, self._sweep)

    async def _connect(self, target: Target) -> _Connection:
        # Connect to an address that was judged. A name without an address and one that leads inside look alike, also
        # in time: otherwise strangers could ask which names exist in this network.
        addresses: Sequence[str] = ()
        until = self._loop.time() + self.connect_seconds
        try:
            async with asyncio.timeout_at(until):
                addresses = await self._judged(target)
                if not addresses:
                    await asyncio.sleep(2 * self.connect_seconds)
            for number, address in enumerate(addresses):
                share = (until - self._loop.time()) / (len(addresses) - number)
                try:
                    async with asyncio.timeout(share):
                        return await self._open(target, address)
                except ssl.SSLError:
                    raise Unreached("tls_error") from None
                except OSError as error:  # TimeoutError is one
                    is_late = isinstance(error, TimeoutError)
        except TimeoutError:
            is_late = False

        raise Unreached("timeout" if is_late else "connection_refused")

    async def _open(self, target: Target, address: str) -> _Connection:
        _, connection = await self._loop.create_connection(
            lambda: _Connection(self._loop), address, target.port, ssl=self._tls, server_hostname=target.name
        )
        return connection

    async def _judged(self, target: Target) -> Sequence[str]:
        # Return the addresses of a host, or none if one of them must not be reached.
        reach: Reach = ("private", "loopback") if target.origin in self._allowed else ()
        try:
            found = await self._resolve(target.name, target.port)
            return found if all(may_reach(kind_of(address), reach) for address in found) else ()
        except (OSError, ValueError):
            return ()

    async def _look_up(self, host: str, port: int) -> list[str]:
        # One question at a time for each name.
        key = host, port
        asked = self._lookups.get(key)
        if asked is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="mcpd-webhook-names")
            asked = asyncio.ensure_future(self._loop.run_in_executor(self._threads, _addresses_of, host, port))
            self._lookups[key] = asked
            asked.add_done_callback(lambda done: (self._lookups.pop(key), done.cancelled() or done.exception()))
        return await asyncio.shield(asked)


def _addresses_of(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError("not a name") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
