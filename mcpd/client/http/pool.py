"""HTTP requests to one server: a pool of connections, redirects within the origin, proxies, bodies, and error messages.

aiohttp (D17) is used through its documented interface. This module knows nothing of MCP. Failures are raised as a
`TransportError` whose text names the server and the cause.

The pool never reuses a connection on which data or the end of the stream arrived while it was idle. aiohttp's own pool
only checks whether the event loop has already seen that the connection was closed. If the program was busy, it has not:
a request would be lost, and a tool call must not be sent twice. Unexpected data would be taken for the response to the
next request.
"""

from __future__ import annotations

import asyncio
import os
import select
import ssl
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import PurePath
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary, WeakSet

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from mcpd import __version__
from mcpd.auth.fetch import proxy_for
from mcpd.errors import CannotConnect, ConfigurationError, ConnectionLost, HttpError, TransportError
from mcpd.protocol.printable import printable
from .options import HttpOptions, checked

Reply: TypeAlias = aiohttp.ClientResponse
"""A response whose head has arrived. Close it, or read it to its end."""

_SAME_METHOD = frozenset((301, 302, 307, 308))
_PERMANENT = frozenset((301, 308))
_REDIRECTS = _SAME_METHOD | {303}
_STREAMED_BYTES = 1024 * 1024
_MOST_REDIRECTS = 100


class HttpPool:
    """The connections to one URL and to other URLs of the same origin."""

    def __init__(self, url: str, options: HttpOptions, headers: Mapping[str, str], name: str = "") -> None:
        self.url, user = _split(url)
        self.headers = {**user, **checked(headers, "headers of the target")}
        """The target's header fields, sent with every request."""
        self.options = options
        self.origin = self.url.origin()
        shown = f"unix:{options.socket}" if options.socket is not None else str(self.url.with_query(None))
        self.name = f"{printable(name)} ({shown})" if name else shown
        """The name of the server in errors. It has no query, which may contain a secret."""
        self.may_follow: Callable[[str], bool] | None = None
        """Called with the URL of each redirect within the origin: whether to follow it."""
        self.resolver: AbstractResolver | None = None
        """Resolves the host, instead of the system. Must be set before `open`."""
        self._permanent_redirects: dict[URL, URL] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Create the session; connects to nothing yet. Raises ConfigurationError."""
        options, is_secure = self.options, self.url.scheme == "https"
        context = tls_context(options.verify) if is_secure else True
        connector: aiohttp.BaseConnector
        if options.socket is not None:
            connector = _UnixPool(path=options.socket, limit=0)
            if is_secure:
                raise ConfigurationError("TLS over a unix socket is not supported: use http:// in the URL")
        else:
            connector = _TcpPool(limit=0, ssl=context, resolver=self.resolver, use_dns_cache=self.resolver is None)

        proxy = proxy_for(self.url) if options.proxies and options.socket is None else None
        self._session = aiohttp.ClientSession(
            connector=connector,
            # `Requester` keeps cookies, so that they are checked and limited in one place.
            cookie_jar=aiohttp.DummyCookieJar(),
            # Decompressed here in bounded chunks; aiohttp would decompress a bomb at once.
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=options.connect_seconds),
            proxy=proxy,
            headers={"User-Agent": f"mcpd/{__version__}", "Accept-Encoding": "gzip, deflate", **self.headers},
            requote_redirect_url=False,
        )

    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | PurePath | None = None
    ) -> Reply:
        """Send a request and wait for the head of its response, following redirects within the origin.

        Raises CannotConnect if nothing was sent, ConnectionLost if the server may have received the request, and
        HttpError for a redirect that is not followed.
        """
        target = self._permanent_redirects.get(url, url)
        for _ in range(self.options.redirects + 1):
            if self._session is None:
                raise ConnectionLost(f"{self.name}: the client is closed")
            try:
                # aiohttp writes a file in chunks as the server reads, but a `bytes` body all at once.
                data: Any = BytesIO(body) if isinstance(body, bytes) and len(body) > _STREAMED_BYTES else body
                if isinstance(body, PurePath):
                    data = open(body, "rb")  # noqa: ASYNC230, SIM115 - aiohttp closes it
                reply = await self._session.request(method, target, data=data, headers=headers, allow_redirects=False)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise transport_error(error, self.name, self.options) from None

            if reply.status not in _REDIRECTS:
                return reply
            reply.close()
            target = self._redirect_target(method, url, target, reply)
        raise HttpError(
            f"{self.name} redirects too often, at last to {printable(str(target.with_query(None)))}", reply.status
        )

    def _redirect_target(self, method: str, url: URL, target: URL, reply: Reply) -> URL:
        status, where = reply.status, reply.headers.get("Location", "")
        try:
            following = target.join(URL(where))
            origin = following.origin()
        except ValueError:
            raise HttpError(f"{self.name} redirects to {printable(where)!r}, which is not a URL", status) from None

        shown = printable(str(following.with_user(None).with_query(None)))
        if not where:
            raise HttpError(f"{self.name} answers {status} without a Location", status)
        # Header fields and bodies may contain secrets, which another origin must not receive.
        if origin != self.origin:
            text = f"{self.name} redirects to {shown} on another origin: if that is intended, connect to that URL"
            raise HttpError(text, status)
        if self.may_follow is not None and not self.may_follow(str(following)):
            text = f"{self.name} redirects to {shown}, where its token is not valid: to use it, connect to that URL"
            raise HttpError(text, status)
        # RFC 9110 15.4.4: 303 changes the method, and a message cannot be sent with GET.
        if status not in _SAME_METHOD and method != "GET":
            raise HttpError(
                f"{self.name} answers {method} with {status}, a redirect to GET {shown}, which is not followed", status
            )
        if status in _PERMANENT and len(self._permanent_redirects) < _MOST_REDIRECTS:
            # RFC 9110 15.4.2, 15.4.9: permanent, so the next request goes there directly.
            self._permanent_redirects[url] = following
        return following

    def stop_sending(self, task: asyncio.Task[Any]) -> bool:
        """Close the client's direction of the connection of a task's request, so that the server cancels it.

        A response that is under way still arrives. Returns False if that is not possible, as with TLS.
        """
        transport = _transports.get(task)
        if transport is None or transport.is_closing() or not transport.can_write_eof():
            return False
        transport.write_eof()
        _half_closed.add(transport)
        return True

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _split(text: str) -> tuple[URL, dict[str, str]]:
    # Split a URL from its user and password, which become a header. Raises ConfigurationError for an invalid URL.
    try:
        url = URL(text)
        is_usable = url.scheme in ("http", "https") and bool(url.host)
        if is_usable:
            url.origin()
    except ValueError as error:
        raise ConfigurationError(f"{printable(text)} is not a valid URL: {printable(str(error))}") from None
    if not is_usable:
        raise ConfigurationError(f"{printable(text)} is not the URL of an HTTP server: use http://host:port/mcp")

    headers = {}
    if url.user is not None:
        headers["Authorization"] = aiohttp.BasicAuth(url.user, url.password or "", "utf-8").encode()
    return url.with_user(None).with_fragment(None), headers


def tls_context(verify: bool | str | os.PathLike[str] | ssl.SSLContext) -> ssl.SSLContext:
    """Return a TLS context that trusts these certificates. Raises ConfigurationError for an unusable file."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, bool):
        context = ssl.create_default_context()
        if not verify:
            # In this order: the mode cannot be changed while names are checked.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    path = os.fspath(verify)
    try:
        is_folder = os.path.isdir(path)
        return ssl.create_default_context(cafile=None if is_folder else path, capath=path if is_folder else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"verify={path!r}: cannot read certificates: {error}") from None


class _IdleGuard(asyncio.Protocol):
    """Between the transport of a connection and aiohttp: closes the connection if data arrives while it is idle."""

    def __init__(self, transport: asyncio.Transport, user: aiohttp.connector.Connection) -> None:
        self._transport = transport
        self._inner = cast("asyncio.Protocol", transport.get_protocol())
        self.user = user
        """The current user of the connection; closed once the connection is back in the pool."""

    def data_received(self, data: bytes) -> None:
        if self.user.closed:
            self._transport.abort()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


# The connection that the latest request of each task uses.
_transports: WeakKeyDictionary[asyncio.Task[Any], asyncio.Transport] = WeakKeyDictionary()
# Connections on which nothing can be sent any more.
_half_closed: WeakSet[asyncio.Transport] = WeakSet()


class _CheckedPool:
    async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
        # Return a connection that is new, or silent. Raises the errors of aiohttp.
        while True:
            connection: aiohttp.connector.Connection = await super().connect(*args, **options)  # type: ignore[misc]
            transport = connection.transport
            if transport is None:
                return connection  # just lost; aiohttp raises the error
            if transport in _half_closed:
                connection.close()
                continue
            task = asyncio.current_task()
            if task is not None:
                _transports[task] = transport

            watched = transport.get_protocol()
            if not isinstance(watched, _IdleGuard):
                # On a new connection, TLS may have data to read that is not a response.
                transport.set_protocol(_IdleGuard(transport, connection))
                return connection
            if not _has_input(transport):
                watched.user = connection
                return connection
            connection.close()


class _TcpPool(_CheckedPool, aiohttp.TCPConnector):
    """Connections to hosts, directly or through a proxy."""


class _UnixPool(_CheckedPool, aiohttp.UnixConnector):
    """Connections to a unix socket."""


def _has_input(transport: asyncio.Transport) -> bool:
    # Whether the socket has data, or the end of the stream, that the event loop has not read yet.
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return True

    if not hasattr(select, "poll"):
        return bool(select.select([socket], [], [], 0)[0])
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def transport_error(error: Exception, name: str, options: HttpOptions) -> TransportError:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        seconds = f"{options.connect_seconds:g} s (HttpOptions.connect_seconds)"
        return CannotConnect(f"{name}: no connection within {seconds}")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return CannotConnect(f"{name}: the proxy refused the connection: {error.status} {_one_line(error.message)}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return CannotConnect(f"{name}: {_connecting(error)}")

    if isinstance(error, aiohttp.ClientResponseError):
        return ConnectionLost(f"{name} sent an invalid HTTP response: {_one_line(error.message)}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ConnectionLost(f"{name} closed the connection without a response")
    if isinstance(error, aiohttp.ClientPayloadError):
        return ConnectionLost(f"{name}: the connection was lost in the middle of a response")
    if isinstance(error, asyncio.TimeoutError):
        return ConnectionLost(f"{name}: the connection timed out")
    return ConnectionLost(f"{name}: {_one_line(_reason(error))}")


def _connecting(error: aiohttp.ClientConnectorError) -> str:
    cause: BaseException
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    else:
        cause = error.os_error
    reason = _one_line(_reason(cause))
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name {printable(str(error.host))} cannot be resolved: {reason}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"cannot connect to the proxy (HTTP_PROXY, HTTPS_PROXY): {reason}"
    path = getattr(error, "path", None)  # aiohttp does not export the error of a unix socket
    if path is not None:
        return f"cannot connect to the socket {printable(path)}: {reason}"

    if isinstance(cause, ssl.SSLCertVerificationError):
        how = "to trust it, use SSL_CERT_FILE=FILE or HttpOptions(verify=FILE)"
        return f"the certificate is not trusted: {_one_line(cause.verify_message or reason)}; {how}"
    if isinstance(cause, ssl.SSLError):
        return f"the TLS handshake failed: {reason}; is this an https port?"
    where = f"{error.host}:{error.port}" if error.port else str(error.host)
    if isinstance(cause, ConnectionRefusedError):
        return f"no server listens on {where}: the connection was refused"
    return f"cannot connect to {where}: {reason}"


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    strerror = getattr(error, "strerror", None)
    return strerror if isinstance(strerror, str) and strerror else str(error) or type(error).__name__


def _one_line(text: object) -> str:
    return printable(" ".join(str(text).split()), 300)


_ERROR_BYTES = 64 * 1024


class Body:
    """The body of a response, decompressed in chunks of bounded size, so that bombs never fill the memory."""

    def __init__(self, reply: Reply, pool: HttpPool) -> None:
        self._content = reply.content
        self._pool = pool
        self._unpacker = _unpacker_of(reply.headers.get("Content-Encoding", ""), pool.name)
        self._pieces: Iterator[bytes] = iter(())

    async def read(self) -> bytes:
        """Return the next chunk; b"" at the end. Raises ConnectionLost for a body that is incomplete or damaged."""
        try:
            while True:
                for piece in self._pieces:
                    return piece
                chunk = await self._content.readany()
                if self._unpacker is None:
                    return chunk
                if not chunk:
                    self._unpacker.finish()
                    return chunk
                self._pieces = self._unpacker.feed(chunk)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise transport_error(error, self._pool.name, self._pool.options) from None


async def read_whole(reply: Reply, pool: HttpPool, limit: int) -> bytes | None:
    """Return the body; None if it is larger than `limit` bytes, without reading the rest."""
    length = reply.content_length
    # Refused by its length, before any of it is read.
    if length is not None and length > limit:
        return None
    body, content = Body(reply, pool), bytearray()
    while chunk := await body.read():
        content += chunk
        if len(content) > limit:
            return None
    return bytes(content)


async def read_some(reply: Reply, pool: HttpPool, seconds: float = 5.0) -> bytes:
    """Return the beginning of a body that explains a refusal: what arrives within `seconds`, at most 64 KiB."""
    found = b""
    try:
        async with asyncio.timeout(seconds):
            body = Body(reply, pool)
            while len(found) < _ERROR_BYTES and (chunk := await body.read()):
                found += chunk
    except (ConnectionLost, TimeoutError):
        pass
    return found[:_ERROR_BYTES]


_CHUNK_BYTES = 64 * 1024


class _Unpacker:
    """Decompresses a body that is "gzip" or "deflate"."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._bits = zlib.MAX_WBITS | 16 if encoding != "deflate" else 0  # 0: the first byte decides
        self._unpacker: Any = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the content of a chunk in pieces. Raises ValueError for damaged data."""
        # Servers send "deflate" with the header of zlib or without.
        self._bits = self._bits or (zlib.MAX_WBITS if chunk[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        is_full = False
        try:
            while chunk or is_full:
                if self._unpacker is not None and self._unpacker.eof:
                    if self._bits <= zlib.MAX_WBITS or chunk[0] != 0x1F:
                        return  # what follows is padding
                    self._unpacker = None  # RFC 1952 2.2: the next one of several members
                if self._unpacker is None:
                    self._unpacker = zlib.decompressobj(self._bits)
                if piece := self._unpacker.decompress(chunk, _CHUNK_BYTES):
                    yield piece
                chunk = self._unpacker.unconsumed_tail or self._unpacker.unused_data
                is_full = len(piece) == _CHUNK_BYTES and not self._unpacker.eof
        except zlib.error as error:
            raise ValueError(f"the {self._encoding} body cannot be decompressed: {error}") from None

    def finish(self) -> None:
        """Raise ValueError if the body ends too early."""
        if self._unpacker is not None and not self._unpacker.eof:
            raise ValueError(f"the {self._encoding} body is cut off")


def _unpacker_of(encoding: str, name: str) -> _Unpacker | None:
    # None if the body is not compressed. Raises ConnectionLost for an encoding that was not requested.
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ConnectionLost(f"{name} uses the encoding {printable(encoding, 40)!r}, which was not requested")
    return _Unpacker(encoding)
