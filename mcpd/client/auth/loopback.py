"""The listener on this machine that a browser is redirected to after a login. It receives one result.

Spec: RFC 8252 7.3, 8.3; AUTH-192. The page shows nothing of the request.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from errno import EADDRNOTAVAIL, EAFNOSUPPORT
from urllib.parse import parse_qs, urlsplit

from mcpd.client.auth.documents import is_loopback_url
from mcpd.errors import AuthorizationFailed, ConfigurationError

LISTEN_SECONDS = 300.0
"""Seconds that a login may take."""
_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 10.0
_MOST_CONNECTIONS = 16

_PAGE = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>mcpd</title>"
    b"<p>You can close this page and go back to where you came from.</p></html>"
)
_NOT_HERE = b"<!doctype html><html lang=en><meta charset=utf-8><title>mcpd</title><p>There is nothing here.</p></html>"


class Loopback:
    """Listens on a loopback address from `start` to `aclose`. Port 0 in the URI `redirect` selects a free port."""

    def __init__(self, redirect: str) -> None:
        parts = urlsplit(redirect)
        if parts.scheme != "http" or not is_loopback_url(redirect) or parts.query or parts.fragment:
            raise ConfigurationError(
                f"redirect {redirect}: use http://127.0.0.1:PORT/callback; any other URL requires wait_callback"
            )
        self._host, self._port, self._path = parts.hostname or "", parts.port or 0, parts.path or "/"
        self._servers: list[asyncio.Server] = []
        self._result: asyncio.Future[str] | None = None
        self._state = ""
        self._connections = 0

    @property
    def redirect_uri(self) -> str:
        """The URI to redirect the browser to."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}{self._path}"

    async def start(self) -> bool:
        """Start listening. Return whether the port was free."""
        hosts = ["127.0.0.1", "::1"] if self._host == "localhost" else [self._host]
        for host in hosts:
            try:
                server = await asyncio.start_server(self._serve, host, self._port, limit=_HEAD_BYTES)
            except OSError as error:
                if self._servers and error.errno in (EADDRNOTAVAIL, EAFNOSUPPORT):
                    continue  # this machine has no IPv6; otherwise another program could receive the redirect there
                await self.aclose()
                return False
            self._servers.append(server)
            self._port = server.sockets[0].getsockname()[1]
        return True

    def expect(self, state: str) -> None:
        """Accept the redirect with this `state` from now on. It may arrive before opening the browser returns."""
        self._state = state
        self._result = asyncio.get_running_loop().create_future()

    async def wait(self) -> str:
        """Return the URL of the redirect with the expected `state`. Raises AuthorizationFailed."""
        assert self._result is not None, "call expect() first"
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                return await self._result
        except TimeoutError:
            raise AuthorizationFailed(
                f"the login was not completed within {LISTEN_SECONDS / 60:g} minutes: log in again"
            ) from None

    async def aclose(self) -> None:
        """Stop listening. Safe to call twice."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _MOST_CONNECTIONS:
                async with asyncio.timeout(_HEAD_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    is_result = self._take(head)
                    writer.write(_answer(is_result))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _take(self, head: bytes) -> bool:
        """Whether this request is the expected redirect."""
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.rpartition(" ")[0]
        hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.lower().startswith("host:")]
        ours = (f"{self._host}:{self._port}", f"[{self._host}]:{self._port}")
        path, _, query = target.partition("?")
        if method != "GET" or path != self._path or len(hosts) != 1 or hosts[0] not in ours:
            return False
        result = self._result
        if result is None or result.done() or not self._state:
            return False
        # A redirect that somebody else caused must not end the login.
        if parse_qs(query).get("state") != [self._state]:
            return False
        result.set_result(f"{self.redirect_uri}?{query}")
        return True


def _answer(is_result: bool) -> bytes:
    body = _PAGE if is_result else _NOT_HERE
    head = (
        f"HTTP/1.1 {'200 OK' if is_result else '404 Not Discovery'}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
