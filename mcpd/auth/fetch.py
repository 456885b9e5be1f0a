"""Fetches documents whose URLs come from others: metadata, keys, client documents and tokens.

URLs must be https; http is possible for loopback addresses, where these are allowed. All addresses of a host are
checked, and the connection goes to one of the checked addresses. Redirects are followed one by one, with the same
checks. Responses are limited in size and time. If the environment names a proxy (`HTTPS_PROXY`, `NO_PROXY`), requests
to other machines go through it. The host is still checked, as far as it can be resolved here, but the proxy chooses the
address.

Spec: security best practices, server-side request forgery; AUTH-240 to AUTH-245.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import quote_plus
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import DecodeError, Struct
from msgspec.json import decode
from yarl import URL

from mcpd import __version__
from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.printable import printable
from mcpd.transports.address import FROM_WORST, Kind, Reach, kind_of, may_reach

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_MAX_URL_CHARACTERS = 2048
_max_age = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,9})").search


class Limits(Struct, frozen=True, kw_only=True):
    """Limits for one document: bytes of the body, seconds in total, and redirects of a GET."""

    max_bytes: int = 64 * 1024
    seconds: float = 10.0
    redirects: int = 3


_DEFAULTS = Limits()


class FetchError(McpdError):
    """A document could not be fetched.

    Attributes:
        url: Its URL without the query.
        reason: Why.
        is_refused: No request was sent, because the URL is not permitted.
        status: The HTTP status, or 0 without a response.
    """

    def __init__(self, what: str, url: str, reason: str, *, is_refused: bool = False, status: int = 0) -> None:
        self.url = printable(url.partition("?")[0], 300)
        self.reason = reason
        self.is_refused = is_refused
        self.status = status
        super().__init__(f"{what} at {self.url}: {reason}")


class Response(Struct, frozen=True):
    """An HTTP response with any status. `headers` are in the original order; `url` is the URL after redirects."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    url: str = ""

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body)} bytes)"  # the response may contain tokens

    def header(self, name: str) -> str | None:
        """Return the values of a header joined by commas, or None."""
        values = [value for other, value in self.headers if other.lower() == name.lower()]
        return ", ".join(values) or None

    def json_object(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raises ValueError with a readable message otherwise."""
        try:
            found = decode(self.body)
        except (DecodeError, RecursionError, UnicodeDecodeError):
            raise ValueError("it is not JSON") from None
        if not isinstance(found, dict):
            raise ValueError("it is JSON, but not an object")
        return found

    def members(self) -> dict[str, Any]:
        """Return the members of the body; {} if it is not a JSON object."""
        try:
            return self.json_object()
        except ValueError:
            return {}

    def fresh_seconds(self, least: float, most: float) -> float:
        """Return for how many seconds the document is fresh, by its Cache-Control, within these limits."""
        match = _max_age((self.header("cache-control") or "").lower())
        return min(max(float(match[1]) if match else 0.0, least), most)


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
    into: Callable[[bytes], Awaitable[None]] | None = None,
) -> Response:
    """Send one request and return the response, whatever its status. Only a GET follows redirects.

    Args:
        what: Names the document in errors.
        reach: Allows private or loopback addresses; the latter also allows http. See `reach_from`.
        tls: For servers with private certificates.
        proxies: Whether to use the proxy of the environment.
        into: Receives the parts of a body with status 200 instead of the response.

    Headers with credentials are sent to the origin of `url` only. Raises FetchError.
    """
    fields = list(headers.items() if isinstance(headers, Mapping) else headers)
    target = url
    try:
        async with asyncio.timeout(limits.seconds):
            for _ in range(limits.redirects + 1):
                response = await _request(
                    target, what, method, fields, body, reach, limits, tls, proxies=proxies, into=into
                )
                if response.status not in _REDIRECTS:
                    return response

                if method != "GET" or not limits.redirects:
                    raise FetchError(what, target, "it redirects, which is not followed", status=response.status)
                next_url = _redirect_target(response, what)
                if next_url.startswith("http:") and target.startswith("https:"):
                    # An http URL is on this machine, and no other machine may send a request there.
                    raise FetchError(what, target, "it redirects to http, from https", status=response.status)
                if _origin(next_url) != _origin(target):
                    fields = [pair for pair in fields if pair[0].lower() in ("accept", "mcp-protocol-version")]
                target = next_url
            raise FetchError(what, target, f"it redirects more than {limits.redirects} times", status=response.status)
    except TimeoutError:
        raise FetchError(what, target, f"no complete response within {limits.seconds:g} s") from None


async def fetch_json(
    url: str,
    *,
    what: str = "the document",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    reach: Reach = (),
    limits: Limits = _DEFAULTS,
    tls: ssl.SSLContext | None = None,
) -> tuple[dict[str, Any], Response]:
    """Fetch a JSON object and return it with its response. Raises FetchError, also for any status but 200."""
    fields = [*(headers.items() if isinstance(headers, Mapping) else headers), ("Accept", "application/json")]
    response = await fetch(url, what=what, headers=fields, reach=reach, limits=limits, tls=tls)
    if response.status != 200:
        raise FetchError(what, response.url, f"it answers {response.status}", status=response.status)
    try:
        return response.json_object(), response
    except ValueError as error:
        raise FetchError(what, response.url, str(error), status=200) from None


def basic_credentials(client_id: str, secret: str) -> str:
    """Return the header field `Authorization` of a client. Both parts are form-encoded first (RFC 6749 2.3.1)."""
    return f"Basic {b64encode(f'{quote_plus(client_id)}:{quote_plus(secret)}'.encode()).decode()}"


async def reach_from(url: str) -> Reach:
    """Return which addresses a server at this URL may refer to: addresses of its own kind. Raises FetchError."""
    kind = await kind_of_host(url)
    return (kind,) if kind == "private" or kind == "loopback" else ()


async def kind_of_host(url: str, what: str = "the server") -> Kind:
    """Return where a URL's host is: `global` only if all its addresses are. Raises FetchError if it has no address."""
    target = _parsed_url(url, what)
    found = await _resolve(target, what, is_needed=_proxy(target, what) is None)
    return min((kind_of(address) for _, address in found), key=FROM_WORST.index, default="global")


class _CheckedResolver(AbstractResolver):
    """Resolves to the checked addresses only. A second lookup might return others."""

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

    async def close(self) -> None: ...


async def _request(
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
    into: Callable[[bytes], Awaitable[None]] | None,
) -> Response:
    # Send one request, if its URL is permitted.
    target = _parsed_url(url, what)
    # A proxy resolves the host itself, so the check of addresses below is only a first line of defence.
    proxy = _proxy(target, what) if proxies else None
    found = await _resolve(target, what, is_needed=proxy is None)
    if any(kind_of(address) == "loopback" for _, address in found):
        proxy = None  # a proxy's loopback is another machine
    _check_addresses(target, what, found, reach)

    # Each request uses a connection of its own, because the check applies to one request only.
    resolver = _CheckedResolver(found) if proxy is None else None
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
                content = await _read(answer, url, what, limits, into if answer.status == 200 else None)
                return Response(answer.status, tuple(answer.headers.items()), content, url)
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise FetchError(what, url, _reason_of(error)) from None


async def _read(
    answer: aiohttp.ClientResponse,
    url: str,
    what: str,
    limits: Limits,
    into: Callable[[bytes], Awaitable[None]] | None,
) -> bytes:
    # Read the body within the limits.
    coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        # The request asked for no compression, and compressed data may expand to any size.
        text = f"it is compressed ({printable(coding, 40)}), although it was requested uncompressed"
        raise FetchError(what, url, text, status=answer.status)
    too_large = FetchError(what, url, f"it is larger than {limits.max_bytes:,} bytes", status=answer.status)
    # Refused by its length, before any of it is read.
    if (answer.content_length or 0) > limits.max_bytes:
        raise too_large

    content, size = bytearray(), 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > limits.max_bytes:
            raise too_large
        if into is None:
            content += part
        else:
            await into(part)
    return bytes(content)


def _parsed_url(url: str, what: str) -> URL:
    # Parse a URL strictly, so that parsers cannot disagree about its host. Raises FetchError.
    if len(url) > _MAX_URL_CHARACTERS:
        text = f"the URL is longer than {_MAX_URL_CHARACTERS:,} characters"
        raise FetchError(what, url[:100] + "…", text, is_refused=True)
    if not url.isascii() or not url.isprintable() or any(c in url for c in ' \\"<>^`{|}'):
        raise FetchError(what, url, "not a URL: it has characters that are not allowed", is_refused=True)

    try:
        target = URL(url)
        port = target.port
    except ValueError:
        raise FetchError(what, url, "not a URL", is_refused=True) from None
    if target.scheme not in ("https", "http") or not target.host or port is None:
        raise FetchError(what, url, "not an https URL", is_refused=True)
    if target.user is not None or target.password is not None:
        raise FetchError(what, url.partition("//")[0], "a URL must not contain a user or password", is_refused=True)
    return target.with_fragment(None)


def _proxy(target: URL, what: str) -> URL | None:
    # Return the proxy for an https URL, or None. Plain HTTP stays on this machine. Raises FetchError.
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
    # Return all addresses of a URL's host, or none if only a proxy can resolve it. Raises FetchError.
    host = target.host or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        if not is_needed:
            return []
        raise FetchError(what, str(target), f"the host {printable(host, 100)} cannot be resolved") from None
    return [(socket.AddressFamily(family), str(address[0])) for family, _, _, _, address in found]


def _check_addresses(target: URL, what: str, found: list[tuple[socket.AddressFamily, str]], reach: Reach) -> None:
    # Raise FetchError unless a request may go to all these addresses.
    kinds: set[Kind] = {kind_of(address) for _, address in found}
    for kind in ("never", "loopback", "private"):
        if kind in kinds and not may_reach(kind, reach):
            where = "a reserved address" if kind == "never" else f"a {kind} address"
            raise FetchError(what, str(target), f"{where}, which is not allowed here", is_refused=True)
    if target.scheme == "http" and kinds != {"loopback"}:
        raise FetchError(what, str(target), "http is allowed for loopback only; use https", is_refused=True)


def _reason_of(error: Exception) -> str:
    # Return why the request failed, without addresses, which would reveal the internal network.
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "") or "the name does not match"
        return f"its certificate is not trusted: {printable(reason)}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refused the connection: {error.status}"

    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"cannot connect to the proxy: {printable(error.os_error.strerror or type(error.os_error).__name__)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {printable(error.os_error.strerror or type(error.os_error).__name__)}"
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | ConnectionError):
        return "the connection ended before the response was complete"
    return f"not an HTTP response: {printable(type(error).__name__)}"


def _redirect_target(response: Response, what: str) -> str:
    # Return the target of a redirect. Raises FetchError if it is missing.
    where = response.header("Location")
    try:
        if where:
            return str(URL(response.url).join(URL(where)))
    except ValueError:
        pass
    raise FetchError(what, response.url, "it redirects without a valid URL", status=response.status)


def _origin(url: str) -> URL | None:
    try:
        return URL(url).origin()
    except ValueError:
        return None
