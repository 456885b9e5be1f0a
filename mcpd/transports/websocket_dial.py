"""The stream below a WebSocket client: TCP, TLS, a unix socket, or a tunnel through a proxy.

A proxy is the one that the environment names (`wss_proxy`, `ws_proxy`, `https_proxy`, `http_proxy`, `all_proxy`,
`no_proxy`), never for this machine; it is asked for a tunnel by CONNECT (RFC 9110 9.3.6). What fails is one line that
names the server: CannotConnect, or another TransportError where a second try would fail in the same way.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket as sockets
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from mcpd.errors import CannotConnect, ConfigurationError, TransportError
from mcpd.protocol.printable import printable
from mcpd.transports.address import is_loopback

if TYPE_CHECKING:
    from ssl import SSLContext

_PORTS = {"ws": 80, "wss": 443}
_MOST_HEAD = 64 * 1024
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_REFUSED = ("Connection refused", "No such file or directory")


class Dialed(Struct, frozen=True):
    """What is connected to: a URL of scheme ws or wss, and how. `name` is what errors call it."""

    url: SplitResult
    name: str
    socket: str | None = None
    ca_file: str | None = None

    @property
    def host(self) -> str:
        """The host of the URL, without brackets."""
        return self.url.hostname or ""

    @property
    def port(self) -> int:
        """The port of the URL, or that of its scheme."""
        return self.url.port or _PORTS[self.url.scheme]

    @property
    def is_secure(self) -> bool:
        """Whether there is TLS below the WebSocket."""
        return self.url.scheme == "wss"

    @property
    def authority(self) -> str:
        """Host and port, as CONNECT takes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def dial(to: Dialed, factory: Callable[[], asyncio.Protocol]) -> None:
    """Connect a protocol that `factory` makes. Raises TransportError; ConfigurationError for a file or proxy."""
    loop = asyncio.get_running_loop()
    context = _tls(to) if to.is_secure else None
    proxy = None if to.socket is not None else _proxy(to)
    hostname = to.host if context is not None else None
    place = f"unix:{to.socket}" if to.socket is not None else to.authority

    try:
        if to.socket is not None:
            await loop.create_unix_connection(factory, to.socket, ssl=context, server_hostname=hostname)
        elif proxy is None:
            await loop.create_connection(factory, to.host, to.port, ssl=context, server_hostname=hostname)
        else:
            place = f"the proxy {proxy.hostname}:{proxy.port or 80}"
            await _tunnel(to, proxy, factory, context)
    except OSError as error:
        raise _failed(to, place, error) from None


def _failed(to: Dialed, place: str, error: OSError) -> TransportError:
    if isinstance(error, sockets.gaierror):
        return CannotConnect(f"{to.name}: the name in {place} is not known ({error.strerror}); look at the URL")
    verify = getattr(error, "verify_message", None)
    if verify is not None:
        return TransportError(
            f"{to.name}: the certificate of {place} is not trusted: {verify}; give the file of its authority (ca_file)"
        )
    reason = getattr(error, "reason", None)
    if reason is not None:
        return TransportError(f"{to.name}: TLS with {place} failed: {printable(str(reason), 200)}; does it speak wss?")

    number = error.errno or next(map(int, _ERRNO.findall(str(error))), 0)
    text = os.strerror(number) if number else printable(str(error), 200)
    hint = "; does the server run?" if text in _REFUSED else ""
    return CannotConnect(f"{to.name}: cannot connect to {place}: {text}{hint}")


def _tls(to: Dialed) -> SSLContext:
    from ssl import SSLError, create_default_context  # what is on this machine needs none

    try:
        return create_default_context(cafile=to.ca_file)
    except (OSError, SSLError) as error:
        raise ConfigurationError(
            f"{to.ca_file}: no certificates can be read of it: {error.strerror or error}"
        ) from None


# ----------------------------------------------------------------------------------------- proxies


def _proxy(to: Dialed) -> SplitResult | None:
    """The proxy for this URL, as the environment or the system has it."""
    if is_loopback(to.host):
        return None
    from urllib.request import getproxies, proxy_bypass  # it loads an HTTP client

    if proxy_bypass(f"{to.host}:{to.port}"):
        return None
    known = getproxies()
    schemes = ("wss", "https", "all") if to.is_secure else ("ws", "http", "all")
    found = next((known[scheme] for scheme in schemes if known.get(scheme)), None)
    if found is None:
        return None

    proxy = urlsplit(found if "://" in found else f"http://{found}")
    try:
        is_good = proxy.scheme == "http" and proxy.hostname and (proxy.port or 80)
    except ValueError:
        is_good = False
    if not is_good:
        raise ConfigurationError(
            f"{to.name}: the environment names the proxy {proxy.scheme}://{proxy.hostname or ''}, and a WebSocket goes "
            "through http:// proxies only; set ws_proxy or wss_proxy to one, or add the host to no_proxy"
        )
    return proxy


async def _tunnel(
    to: Dialed, proxy: SplitResult, factory: Callable[[], asyncio.Protocol], context: SSLContext | None
) -> None:
    """Ask the proxy for a tunnel, and speak TLS through it where there is any."""
    loop = asyncio.get_running_loop()
    transport, connect = await loop.create_connection(
        lambda: _Connect(to, proxy), proxy.hostname or "", proxy.port or 80
    )
    try:
        rest = await connect.answered
        protocol = factory()
        transport.set_protocol(protocol)
        below: asyncio.BaseTransport = transport
        if context is not None:
            secured = await loop.start_tls(transport, protocol, context, server_hostname=to.host)
            assert secured is not None
            below = secured
        protocol.connection_made(below)
    except BaseException:
        transport.abort()
        raise
    if rest:
        protocol.data_received(rest)


class _Connect(asyncio.Protocol):
    """A CONNECT request, and the answer to it: `answered` gives what came behind its head."""

    def __init__(self, to: Dialed, proxy: SplitResult) -> None:
        self._to = to
        self._proxy = proxy
        self._head = b""
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        lines = [f"CONNECT {self._to.authority} HTTP/1.1", f"Host: {self._to.authority}"]
        if self._proxy.username is not None:
            secret = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {b64encode(secret.encode()).decode()}")
        cast("asyncio.Transport", transport).write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def data_received(self, data: bytes) -> None:
        if self.answered.done():
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end and len(self._head) <= _MOST_HEAD:
            return
        line = head.partition(b"\r\n")[0].decode("latin-1")
        version, _, status = line.partition(" ")
        if end and version.startswith("HTTP/1.") and status[:1] == "2":
            self.answered.set_result(rest)
        else:
            self._fail(f"answered {printable(status, 100) or 'nothing'} to CONNECT {self._to.authority}")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self._fail("closed the connection without an answer")

    def _fail(self, what: str) -> None:
        place = f"{self._proxy.hostname}:{self._proxy.port or 80}"
        self.answered.set_exception(CannotConnect(f"{self._to.name}: the proxy {place} {what}"))
