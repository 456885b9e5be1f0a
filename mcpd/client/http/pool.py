"""HTTP requests to one server: one pool of connections, redirects within the origin, proxies, and errors in words.

aiohttp (D17) is used by its documented interface; MCP is not known here. What fails is raised as a `TransportError`
whose text names the server and the cause.

The pool gives no connection on which something came, or an end, while nobody had asked. aiohttp's own looks whether the
loop has heard that a connection was closed. A server that closes it while the program computes is heard of too late:
what is sent then is lost, and a call must not be sent twice. What a server says there between two answers would be
taken for the answer to the next request, whoever had made the first.
"""

from __future__ import annotations

import asyncio
import os
import select
import ssl
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, TypeAlias, cast
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from mcpd import __version__
from mcpd.client.http.options import HttpOptions, checked
from mcpd.errors import CannotConnect, ConfigurationError, ConnectionLost, HttpError, TransportError
from mcpd.protocol.printable import printable

Reply: TypeAlias = aiohttp.ClientResponse
"""An answer whose head has come. Close it, or read it to its end."""

_AGAIN = frozenset((301, 302, 307, 308))
_FOR_GOOD = frozenset((301, 308))
_REDIRECTS = _AGAIN | {303}
_PIECEMEAL_BYTES = 1024 * 1024


class Link:
    """The way to one URL and what is beside it on the same origin."""

    def __init__(self, url: str, options: HttpOptions, headers: Mapping[str, str], name: str = "") -> None:
        self.url, user = _split(url)
        self.headers = {**user, **checked(headers, "headers of the target")}
        """The fields of every request that the target names."""
        self.options = options
        self.origin = self.url.origin()
        shown = f"unix:{options.socket}" if options.socket is not None else str(self.url.with_query(None))
        self.name = f"{printable(name)} ({shown})" if name else shown
        """What the server is called in errors: no query, which may hold a secret."""
        self.may_follow: Callable[[str], bool] | None = None
        """Asked of each redirect, where not all that stays on the origin is followed."""
        self._moved: dict[URL, URL] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make what requests need; connects to nothing. Raises ConfigurationError."""
        options, is_secure = self.options, self.url.scheme == "https"
        context = tls_context(options.verify) if is_secure else True
        connector: aiohttp.BaseConnector
        if options.socket is not None:
            connector = _UnixPool(path=options.socket, limit=0)
            if is_secure:
                raise ConfigurationError("a unix socket is spoken to without TLS: write the URL with http://")
        else:
            connector = _TcpPool(limit=0, ssl=context)

        proxy = proxy_for(self.url) if options.proxies and options.socket is None else None
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=options.connect_seconds),
            proxy=proxy,
            headers={"User-Agent": f"mcpd/{__version__}", "Accept-Encoding": "gzip, deflate", **self.headers},
            requote_redirect_url=False,
        )

    async def request(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """Send a request and wait for the head of its answer, after redirects within the origin.

        Raises CannotConnect if nothing was sent, ConnectionLost if it is unknown what became of it, HttpError for a
        redirect that is not followed.
        """
        target = self._moved.get(url, url)
        for _ in range(self.options.redirects + 1):
            if self._session is None:
                raise ConnectionLost(f"{self.name}: the client is closed")
            try:
                # A large body is given as a file, which the library writes piece by piece as the server reads.
                data = BytesIO(body) if body is not None and len(body) > _PIECEMEAL_BYTES else body
                reply = await self._session.request(method, target, data=data, headers=headers, allow_redirects=False)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise in_words(error, self.name, self.options) from None

            if reply.status not in _REDIRECTS:
                return reply
            reply.close()
            target = self._redirected(method, url, target, reply)
        raise HttpError(
            f"{self.name} redirects without end, at last to {printable(str(target.with_query(None)))}", reply.status
        )

    def _redirected(self, method: str, url: URL, target: URL, reply: Reply) -> URL:
        """Where a redirect leads, if it is one to follow."""
        status, where = reply.status, reply.headers.get("Location", "")
        try:
            following = target.join(URL(where))
            origin = following.origin()
        except ValueError:
            raise HttpError(f"{self.name} redirects to {printable(where)!r}, which is no URL", status) from None

        shown = printable(str(following.with_user(None).with_query(None)))
        if not where:
            raise HttpError(f"{self.name} answers {status} and does not say where to", status)
        if origin != self.origin:
            text = f"{self.name} redirects to {shown} on another origin: if that is right, give that URL"
            raise HttpError(text, status)
        if self.may_follow is not None and not self.may_follow(str(following)):
            text = f"{self.name} redirects to {shown}, which its token is not for: if that is right, give that URL"
            raise HttpError(text, status)
        if status not in _AGAIN and method != "GET":
            raise HttpError(
                f"{self.name} answers {method} by {status}: a GET of {shown}, which is not followed", status
            )
        if status in _FOR_GOOD:
            self._moved[url] = following
        return following

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _split(text: str) -> tuple[URL, dict[str, str]]:
    """A URL without its user and password, and these as a header. Raises ConfigurationError for what is no such URL."""
    try:
        url = URL(text)
        is_usable = url.scheme in ("http", "https") and bool(url.host)
        if is_usable:
            url.origin()
    except ValueError as error:
        raise ConfigurationError(f"{printable(text)} is no URL: {printable(str(error))}") from None
    if not is_usable:
        raise ConfigurationError(f"{printable(text)} is no URL of an HTTP server: write http://host:port/mcp")

    headers = {}
    if url.user is not None:
        headers["Authorization"] = aiohttp.BasicAuth(url.user, url.password or "", "utf-8").encode()
    return url.with_user(None).with_fragment(None), headers


def tls_context(verify: bool | str | os.PathLike[str] | ssl.SSLContext) -> ssl.SSLContext:
    """What decides whether a certificate is trusted. Raises ConfigurationError for a file that has none."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, bool):
        context = ssl.create_default_context()
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    path = os.fspath(verify)
    try:
        if os.path.isdir(path):
            return ssl.create_default_context(capath=path)
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"verify={path!r}: no certificates can be read there: {error}") from None


class _Watched(asyncio.Protocol):
    """Between a connection's transport and the library: closes it when something comes while nobody uses it."""

    def __init__(self, transport: asyncio.Transport, user: aiohttp.connector.Connection) -> None:
        self._transport = transport
        self._inner = cast("asyncio.Protocol", transport.get_protocol())
        self.user = user
        """Whoever has it now; closed once it is back in the pool."""

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


class _Fresh:
    """Of a pool: looks at a connection that was used before it is used again."""

    async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
        """A connection that is new, or silent. Raises what aiohttp raises."""
        while True:
            connection: aiohttp.connector.Connection = await super().connect(*args, **options)  # type: ignore[misc]
            transport = connection.transport
            if transport is None:
                return connection  # it was just lost, and the library says so

            watched = transport.get_protocol()
            if not isinstance(watched, _Watched):
                # Of a new one TLS may have something to read that is no answer.
                transport.set_protocol(_Watched(transport, connection))
                return connection
            if not _has_something(transport):
                watched.user = connection
                return connection
            connection.close()


class _TcpPool(_Fresh, aiohttp.TCPConnector):
    """Connections to hosts, directly or through a proxy."""


class _UnixPool(_Fresh, aiohttp.UnixConnector):
    """Connections to a unix socket."""


def _has_something(transport: asyncio.Transport) -> bool:
    """Whether there is something to read, or the end, that the loop has not come to."""
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return True

    if not hasattr(select, "poll"):
        return bool(select.select([socket], [], [], 0)[0])
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def proxy_for(url: URL) -> URL | None:
    """What `HTTP_PROXY` or `HTTPS_PROXY` says, unless `NO_PROXY` has the host. Raises ConfigurationError."""
    host = url.host or ""
    proxies = getproxies()
    kind = url.scheme if proxies.get(url.scheme) else "all"
    named = proxies.get(kind)
    if not named or proxy_bypass(f"{host}:{url.port}") or proxy_bypass(host):
        return None

    variable = f"{kind.upper()}_PROXY"
    try:
        proxy = URL(named if "://" in named else f"http://{named}")
    except ValueError:
        raise ConfigurationError(f"{variable} is no URL of a proxy; write it as http://host:port") from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        todo = f"name one as http://host:port, or go past it with NO_PROXY={printable(host)}"
        raise ConfigurationError(f"{variable} names a {printable(proxy.scheme)} proxy, which cannot be used: {todo}")
    return proxy


def in_words(error: Exception, name: str, options: HttpOptions) -> TransportError:
    """An error of the library as one of ours."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        text = f"no connection within {options.connect_seconds:g} s (HttpOptions.connect_seconds)"
        return CannotConnect(f"{name}: {text}")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return CannotConnect(f"{name}: the proxy refused the connection: {error.status} {_said(error.message)}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return CannotConnect(f"{name}: {_connecting(error)}")
    if isinstance(error, aiohttp.ClientResponseError):
        return ConnectionLost(f"{name} answered what is no HTTP: {_said(error.message)}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ConnectionLost(f"{name} closed the connection without an answer")
    if isinstance(error, aiohttp.ClientPayloadError):
        return ConnectionLost(f"{name}: the connection was cut in the middle of an answer")
    if isinstance(error, asyncio.TimeoutError):
        return ConnectionLost(f"{name}: the connection timed out")
    return ConnectionLost(f"{name}: {_said(_reason(error))}")


def _connecting(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection."""
    where = f"{error.host}:{error.port}" if error.port else str(error.host)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {printable(str(error.host))} is not known (DNS): {_said(_reason(error.os_error))}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy cannot be reached: {_said(_reason(error.os_error))} (HTTP_PROXY, HTTPS_PROXY)"
    path = getattr(error, "path", None)  # a unix socket's, whose kind of error is not exported
    if path is not None:
        return f"the socket {printable(path)} cannot be connected to: {_said(_reason(error.os_error))}"

    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif error.os_error is not None:
        cause = error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        said = cause.verify_message or _reason(cause)
        how = "SSL_CERT_FILE=FILE, or HttpOptions(verify=FILE), names one to trust"
        return f"the certificate is not trusted: {_said(said)}; {how}"
    if isinstance(cause, ssl.SSLError):
        return f"no TLS connection: {_said(_reason(cause))}; does the server speak https there?"
    if isinstance(cause, ConnectionRefusedError):
        return f"nothing listens on {where}: the connection was refused"
    return f"no connection to {where}: {_said(_reason(cause))}"


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    strerror = getattr(error, "strerror", None)
    return strerror if isinstance(strerror, str) and strerror else str(error) or type(error).__name__


def _said(text: object) -> str:
    return printable(" ".join(str(text).split()), 300)


_ERROR_BYTES = 64 * 1024


class Body:
    """The body of an answer as it comes, unpacked, in pieces of bounded size."""

    def __init__(self, reply: Reply, link: Link) -> None:
        self._content = reply.content
        self._link = link
        self._inflate = _inflating(reply.headers.get("Content-Encoding", ""), link.name)
        self._pieces: Iterator[bytes] | None = None

    async def read(self) -> bytes:
        """The next piece; nothing at the end. Raises ConnectionLost for a body that breaks off, or is spoilt."""
        try:
            while True:
                if self._pieces is not None:
                    for piece in self._pieces:
                        return piece
                    self._pieces = None
                chunk = await self._content.readany()
                if not chunk or self._inflate is None:
                    return chunk
                self._pieces = self._inflate(chunk)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise in_words(error, self._link.name, self._link.options) from None


async def read_whole(reply: Reply, link: Link, limit: int) -> bytes | None:
    """The body; None if it is larger than `limit`, of which the rest is not read."""
    length = reply.content_length
    if length is not None and length > limit:
        return None
    if length is not None and "Content-Encoding" not in reply.headers:
        content = reply.content
        try:
            return content.read_nowait() if content.is_eof() else await content.read()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise in_words(error, link.name, link.options) from None

    body = Body(reply, link)
    found: list[bytes] = []
    size = 0
    while chunk := await body.read():
        size += len(chunk)
        if size > limit:
            return None
        found.append(chunk)
    return b"".join(found)


async def read_some(reply: Reply, link: Link, seconds: float = 5.0) -> bytes:
    """The beginning of a body that says why something was refused; whatever of it can be had in that time."""
    found = b""
    try:
        async with asyncio.timeout(seconds):
            body = Body(reply, link)
            while len(found) < _ERROR_BYTES and (chunk := await body.read()):
                found += chunk
    except (ConnectionLost, TimeoutError):
        pass
    return found[:_ERROR_BYTES]


_PIECE_BYTES = 64 * 1024


def _inflating(encoding: str, name: str) -> Callable[[bytes], Iterator[bytes]] | None:
    """What unpacks a body of this `Content-Encoding`, from a chunk to its pieces; None for one that is not packed.

    Raises ConnectionLost for an encoding that was not asked for. What cannot be unpacked raises ValueError.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ConnectionLost(f"{name} answers in the encoding {printable(encoding, 40)!r}, which was not asked for")

    is_gzip = encoding != "deflate"
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16 if is_gzip else zlib.MAX_WBITS)
    has_begun = is_gzip

    def inflate(chunk: bytes) -> Iterator[bytes]:
        nonlocal unpacker, has_begun
        if not has_begun:
            has_begun = True
            # Both spellings of "deflate" are met: with the header of zlib, and without.
            if chunk[0] & 0x0F != 8:
                unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            while chunk and not unpacker.eof:
                if piece := unpacker.decompress(chunk, _PIECE_BYTES):
                    yield piece
                chunk = unpacker.unconsumed_tail
        except zlib.error as error:
            raise ValueError(f"the {encoding} body cannot be unpacked: {error}") from None

    return inflate
