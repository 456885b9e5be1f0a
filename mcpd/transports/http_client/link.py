"""HTTP requests to one server. aiohttp (D17) is used here, in `pool` and `words` only; MCP is not known.

One connection pool, redirects within the origin, bodies in bounded memory. What fails is raised as a `TransportError`
whose text names the server and the cause.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import TypeAlias

import aiohttp
from yarl import URL

from ... import __version__
from ...errors import ConfigurationError, ConnectionLost, HttpError
from ...printable import printable
from .fields import checked
from .inflate import inflating
from .options import HttpOptions
from .pool import TcpPool, UnixPool
from .proxies import proxy_for
from .words import in_words

__all__ = ["Body", "Link", "read_some", "read_whole", "tls_context"]

Reply: TypeAlias = aiohttp.ClientResponse
"""An answer whose head has come. Close it, or read it to its end."""

_AGAIN = frozenset((301, 302, 307, 308))
_FOR_GOOD = frozenset((301, 308))
_REDIRECTS = _AGAIN | {303}
_ERROR_BYTES = 64 * 1024
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
            connector = UnixPool(path=options.socket, limit=0)
            if is_secure:
                raise ConfigurationError("a unix socket is spoken to without TLS: write the URL with http://")
        else:
            connector = TcpPool(limit=0, ssl=context)

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


# ------------------------------------------------------------------------------------------- bodies


class Body:
    """The body of an answer as it comes, unpacked, in pieces of bounded size."""

    def __init__(self, reply: Reply, link: Link) -> None:
        self._content = reply.content
        self._link = link
        self._inflate = inflating(reply.headers.get("Content-Encoding", ""), link.name)
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
