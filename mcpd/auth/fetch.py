"""Requests for documents whose URLs come from others: metadata, keys, client documents, token endpoints.

Each is https, but to loopback where that is allowed; each address that its host has is judged, and one of those that
were judged is dialled; redirects are followed one by one, each judged anew. The answer is small, and comes in time.
Where the environment names a proxy (`HTTPS_PROXY`, `NO_PROXY`) what is not on this machine is asked through that. Its
host is judged all the same, as far as this machine knows the name; which address is dialled is then the proxy's choice.
Spec: security best practices, server-side request forgery; AUTH-240 … AUTH-245.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Literal, TypeAlias
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import DecodeError, Struct
from msgspec.json import decode
from yarl import URL

from mcpd import __version__
from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.printable import printable

Kind: TypeAlias = Literal["global", "private", "loopback", "never"]
"""Where an address is; `never` are those that no document of ours is at."""

Reach: TypeAlias = Collection[Literal["private", "loopback"]]
"""Which addresses besides global ones a request may go to."""

_Address: TypeAlias = IPv4Address | IPv6Address

_NEVER = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "240.0.0.0/4",
            # Where clouds tell their machines secrets, besides link-local addresses.
            "168.63.129.16/32",
            "100.100.100.200/32",
            "192.0.0.192/32",
            "fd00:ec2::254/128",
            "fd20:ce::254/128",
        ),
    )
)
_TRANSLATED = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
_FROM_WORST = ("never", "loopback", "private", "global")


def kind_of(address: str) -> Kind:
    """Where an address is, by the worst of it and all IPv4 addresses inside it. Raises ValueError for no address."""
    return min(map(_kind, _all_in(ip_address(address))), key=_FROM_WORST.index)


def may_reach(kind: Kind, reach: Reach) -> bool:
    """Whether a request may go to an address of this kind."""
    return kind == "global" or (kind != "never" and kind in reach)


def _all_in(address: _Address) -> Iterator[_Address]:
    """The address, and what a router, a tunnel or a translator makes of it."""
    if not isinstance(address, IPv6Address):
        yield address
        return

    inner = address.ipv4_mapped
    if inner is not None:
        yield inner
        return

    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    # What is below 2**16 is `::` and `::1`, and no IPv4 address.
    if any(address in network for network in _TRANSLATED) and int(address) >= 1 << 16:
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _kind(address: _Address) -> Kind:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return "never"
    if any(address.version == network.version and address in network for network in _NEVER):
        return "never"
    if isinstance(address, IPv6Address) and (address.sixtofour or address.teredo or _is_translated(address)):
        return "global"  # judged by what is inside
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    return "global" if address.is_global and not is_site_local else "private"


def _is_translated(address: IPv6Address) -> bool:
    return any(address in network for network in _TRANSLATED)


_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_LONGEST_URL = 2048


class Limits(Struct, frozen=True, kw_only=True):
    """What one document may take: bytes of its body, seconds in all, redirects that a GET follows."""

    max_bytes: int = 64 * 1024
    seconds: float = 10.0
    redirects: int = 3


_DEFAULTS = Limits()


class FetchError(McpdError):
    """A document could not be had: `what` it is, its `url` without a query, the `reason`.

    `is_refused` says that it was not asked for, as its URL leads where no request may go: that does not pass.
    `status` is that of an answer which is no such document, 0 if none came.
    """

    def __init__(self, what: str, url: str, reason: str, *, is_refused: bool = False, status: int = 0) -> None:
        self.what = what
        self.url = printable(url.partition("?")[0], 300)
        self.reason = reason
        self.is_refused = is_refused
        self.status = status
        super().__init__(f"{what} at {self.url}: {reason}")


class Response(Struct, frozen=True):
    """An answer, whatever its status. `headers` are pairs as they came; `url` is where it came from at last."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    url: str

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body)} bytes)"  # it may hold tokens

    def header(self, name: str) -> str | None:
        """The values of a header field, joined by a comma; None if it did not come."""
        values = self.all_headers(name)
        return ", ".join(values) if values else None

    def all_headers(self, name: str) -> list[str]:
        """Each value of a header field by itself."""
        name = name.lower()
        return [value for other, value in self.headers if other.lower() == name]

    def json_object(self) -> dict[str, Any]:
        """The body, which is one JSON object. Raises ValueError, in words, for any other."""
        try:
            found = decode(self.body)
        except (DecodeError, RecursionError, UnicodeDecodeError):
            raise ValueError("it is no JSON") from None
        if not isinstance(found, dict):
            raise ValueError("it is JSON, and no object")
        return found


async def fetch(
    url: str,
    *,
    what: str = "the document",
    method: Literal["GET", "POST"] = "GET",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    reach: Reach = (),
    limits: Limits = _DEFAULTS,
    tls: ssl.SSLContext | None = None,
    proxies: bool = True,
) -> Response:
    """Send one request and read its whole answer, whatever its status; only a GET follows redirects.

    `what` names the document in errors. `reach` allows private addresses, or loopback ones, where http is allowed too;
    see `reach_from`. `tls` is for servers with certificates of one's own; without `proxies` the environment names none.
    Credentials in `headers` go to the origin of `url` alone. Raises FetchError.
    """
    fields = list(headers.items() if isinstance(headers, Mapping) else headers)
    target = url
    try:
        async with asyncio.timeout(limits.seconds):
            for _ in range(limits.redirects + 1):
                response = await _once(target, what, method, fields, body, reach, limits, tls, proxies=proxies)
                if response.status not in _REDIRECTS:
                    return response

                if method != "GET" or not limits.redirects:
                    raise FetchError(what, target, "it redirects, which is not followed here", status=response.status)
                following = _redirected(response, what)
                if following.startswith("http:") and target.startswith("https:"):
                    # What has no TLS is on this machine: nobody else has any business to send us there.
                    raise FetchError(what, target, "it redirects to http, from https", status=response.status)
                if _origin(following) != _origin(target):
                    fields = [pair for pair in fields if pair[0].lower() in ("accept", "mcp-protocol-version")]
                target = following
            raise FetchError(what, target, f"it redirects more than {limits.redirects} times", status=response.status)
    except TimeoutError:
        raise FetchError(what, target, f"no whole answer within {limits.seconds:g} s") from None


async def fetch_json(
    url: str,
    *,
    what: str = "the document",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    reach: Reach = (),
    limits: Limits = _DEFAULTS,
    tls: ssl.SSLContext | None = None,
) -> tuple[dict[str, Any], Response]:
    """GET a document that is one JSON object, and the answer it came in.

    Raises FetchError, for any status but 200 too.
    """
    fields = [*(headers.items() if isinstance(headers, Mapping) else headers), ("Accept", "application/json")]
    response = await fetch(url, what=what, headers=fields, reach=reach, limits=limits, tls=tls)
    if response.status != 200:
        raise FetchError(what, response.url, f"it answers {response.status}", status=response.status)
    try:
        return response.json_object(), response
    except ValueError as error:
        raise FetchError(what, response.url, str(error), status=200) from None


async def reach_from(url: str) -> Reach:
    """What may be reached on behalf of a server at this URL: addresses of its own kind. Raises FetchError."""
    kind = await kind_of_host(url)
    return (kind,) if kind == "private" or kind == "loopback" else ()


async def kind_of_host(url: str, what: str = "the server") -> Kind:
    """Where the host of a URL is: `global` only if all its addresses are. Raises FetchError if it has none."""
    target = _checked(url, what)
    found = await _resolve(target, what, is_needed=_proxy(target, what) is None)
    kinds = {kind_of(address) for _, address in found}
    return next((kind for kind in ("never", "loopback", "private") if kind in kinds), "global")


# -- one request -------------------------------------------------------------------------------


class _Judged(AbstractResolver):
    """Gives the addresses that were judged, and asks nobody again: the answer could be another one."""

    def __init__(self, found: list[tuple[socket.AddressFamily, str]]) -> None:
        self._found = found

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=flags)
            for kind, address in self._found
        ]

    async def close(self) -> None:
        """Nothing is open."""


async def _once(
    url: str,
    what: str,
    method: str,
    fields: list[tuple[str, str]],
    body: bytes | None,
    reach: Reach,
    limits: Limits,
    tls: ssl.SSLContext | None,
    *,
    proxies: bool,
) -> Response:
    """One request to where the URL leads, if that is allowed."""
    target = _checked(url, what)
    proxy = _proxy(target, what) if proxies else None
    found = await _resolve(target, what, is_needed=proxy is None)
    if any(kind_of(address) == "loopback" for _, address in found):
        proxy = None  # whose own machine is another one
    _judge(target, what, found, reach)

    # A connection of its own for each: what was judged for one request says nothing of the next.
    resolver = _Judged(found) if proxy is None else None
    connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True, ssl=tls or True)
    own = {"User-Agent": f"mcpd/{__version__}", "Accept-Encoding": "identity"}
    try:
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None),
            headers=own,
            requote_redirect_url=False,
        ) as session:
            sent = session.request(method, target, data=body, headers=fields, allow_redirects=False, proxy=proxy)
            async with sent as answer:
                content = await _read(answer, url, what, limits)
                return Response(answer.status, tuple(answer.headers.items()), content, url)
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise FetchError(what, url, _in_words(error)) from None


async def _read(answer: aiohttp.ClientResponse, url: str, what: str, limits: Limits) -> bytes:
    """The body, as far as it is one that was asked for."""
    coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        # It was asked for as it is: what is packed may become any size.
        raise FetchError(what, url, f"it is packed ({printable(coding, 40)}), unasked", status=answer.status)
    too_large = FetchError(what, url, f"it has more than {limits.max_bytes:,} bytes", status=answer.status)
    if (answer.content_length or 0) > limits.max_bytes:
        raise too_large

    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > limits.max_bytes:
            raise too_large
    return bytes(content)


def _checked(url: str, what: str) -> URL:
    """A URL that says plainly where it leads: readers must not differ about its host. Raises FetchError."""
    if len(url) > _LONGEST_URL:
        raise FetchError(what, url[:100] + "…", f"a URL of more than {_LONGEST_URL:,} characters", is_refused=True)
    if not url.isascii() or not url.isprintable() or any(c in url for c in ' \\"<>^`{|}'):
        raise FetchError(what, url, "no URL: it has characters that none has", is_refused=True)

    try:
        target = URL(url)
        port = target.port
    except ValueError:
        raise FetchError(what, url, "no URL", is_refused=True) from None
    if target.scheme not in ("https", "http") or not target.host or port is None:
        raise FetchError(what, url, "no https URL", is_refused=True)
    if target.user is not None or target.password is not None:
        raise FetchError(what, url.partition("//")[0], "a URL with a user or a password", is_refused=True)
    return target.with_fragment(None)


def _proxy(target: URL, what: str) -> URL | None:
    """The proxy of the environment for what has TLS: plain HTTP stays on this machine. Raises FetchError."""
    if target.scheme != "https":
        return None
    try:
        return proxy_for(target)
    except ConfigurationError as error:
        raise FetchError(what, str(target), str(error)) from None


def proxy_for(url: URL) -> URL | None:
    """Return the proxy in `HTTP_PROXY` or `HTTPS_PROXY`, unless `NO_PROXY` applies. Raises ConfigurationError."""
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
        raise ConfigurationError(f"{variable} is not the URL of a proxy; use http://host:port") from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        advice = f"use http://host:port, or bypass the proxy with NO_PROXY={printable(host)}"
        raise ConfigurationError(f"{variable}: {printable(proxy.scheme)} proxies are not supported; {advice}")
    return proxy


async def _resolve(target: URL, what: str, *, is_needed: bool) -> list[tuple[socket.AddressFamily, str]]:
    """All addresses of a URL's host; none for a name that only a proxy knows. Raises FetchError."""
    host = target.host or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        if not is_needed:
            return []
        raise FetchError(what, str(target), f"the host {printable(host, 100)} is not found") from None
    return [(socket.AddressFamily(family), str(address[0])) for family, _, _, _, address in found]


def _judge(target: URL, what: str, found: list[tuple[socket.AddressFamily, str]], reach: Reach) -> None:
    """Raise FetchError unless a request may go to each of these addresses."""
    kinds: set[Kind] = {kind_of(address) for _, address in found}
    for kind in ("never", "loopback", "private"):
        if kind in kinds and not may_reach(kind, reach):
            where = "an address that no request goes to" if kind == "never" else f"a {kind} address"
            raise FetchError(what, str(target), f"{where}, which is not allowed here", is_refused=True)
    if target.scheme == "http" and kinds != {"loopback"}:
        raise FetchError(what, str(target), "http is only for loopback: it has to be https", is_refused=True)


def _in_words(error: Exception) -> str:
    """Why there is no answer, without addresses, which say what is inside a network."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "") or "the name is another one"
        return f"its certificate is not trusted: {printable(reason)}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refused the connection: {error.status}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy is not reached: {printable(error.os_error.strerror or type(error.os_error).__name__)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"not reached: {printable(error.os_error.strerror or type(error.os_error).__name__)}"
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | ConnectionError):
        return "the connection ended before the whole answer came"
    return f"no answer of HTTP: {printable(type(error).__name__)}"


def _redirected(response: Response, what: str) -> str:
    """Where a redirect leads. Raises FetchError if it does not say."""
    where = response.header("Location")
    try:
        if where:
            return str(URL(response.url).join(URL(where)))
    except ValueError:
        pass
    raise FetchError(what, response.url, "it redirects to no URL", status=response.status)


def _origin(url: str) -> URL | None:
    try:
        return URL(url).origin()
    except ValueError:
        return None
