"""Sends requests to the server of a document, within limits of time and size.

All requests go to one origin, and redirects are followed inside it only. Private and loopback addresses are reached
only if the operator chose the base URL and it leads there when it is first used: a public name that changes to such an
address later is refused. Link-local addresses, where clouds keep credentials, are always refused.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from mcpd.auth.fetch import Response, kind_of_host, proxy_for
from mcpd.client.http.options import HttpOptions
from mcpd.client.http.pool import HttpPool, read_whole
from mcpd.errors import ConfigurationError, HttpError, ToolError
from mcpd.protocol.printable import printable
from mcpd.transports.address import Reach, kind_of, may_reach


def checked_base(base: str) -> str:
    """Return a base URL without a slash at its end. Raises ConfigurationError."""
    try:
        url = URL(base)
        is_usable = url.scheme in ("http", "https") and bool(url.host) and not (url.user or url.password)
    except ValueError:
        is_usable = False
    if not is_usable or any(c in base for c in "?#{}"):
        text = "use http://host/path or https://host/path, without a user, ? and #"
        raise ConfigurationError(f"the base URL {printable(base, 200)} cannot be used: {text}")
    return base.rstrip("/")


class Api:
    """The server at a base URL. `is_named` means that the operator has chosen it, and not the document."""

    def __init__(self, base: str, title: str, timeout: float, max_bytes: int, *, is_named: bool) -> None:
        self.base = checked_base(base)
        self._title = title
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._is_named = is_named
        self._reach: Reach | None = None
        self._pool: HttpPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send a request to the base URL followed by `target`, and read the whole response.

        Raises ToolError after the time limit or for a response that is too large, and the errors of `HttpPool`.
        """
        try:
            async with asyncio.timeout(self._timeout):
                pool = await self._opened()
                url = URL(f"{self.base}{target}", encoded=True)
                if url.origin() != pool.origin:
                    raise ToolError("the path leads to another server")
                reply = await pool.request(method, url, headers, body)
                try:
                    content = b"" if method == "HEAD" else await read_whole(reply, pool, self._max_bytes)
                finally:
                    reply.close()  # keeps the connection if the response was read to its end
        except TimeoutError:
            raise ToolError(f"no complete response within {self._timeout:g} s") from None

        if content is None:
            raise ToolError(f"the response is larger than {self._max_bytes:,} bytes")
        return Response(reply.status, tuple(reply.headers.items()), content)

    async def aclose(self) -> None:
        """Close all connections. The next request opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def _opened(self) -> HttpPool:
        if self._reach is None:
            kind = await kind_of_host(self.base, "the API")
            if kind == "never" or (kind != "global" and not self._is_named):
                raise HttpError(f"{self.base} is at a {kind} address; if that is intended, set it as the base URL", 0)
            self._reach = (kind,) if kind == "private" or kind == "loopback" else ()

        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:
            # Connections belong to their event loop, and there is more than one in tests only.
            self._pool, self._loop = HttpPool(self.base, HttpOptions(), {}, self._title), loop
            if proxy_for(self._pool.url) is None:
                self._pool.resolver = _ReachResolver(self._reach)
            await self._pool.open()

        return self._pool


class _ReachResolver(AbstractResolver):
    """Resolves names, and refuses those with an address that must not be reached."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._system = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._system.resolve(host, port, family)
        if not all(may_reach(kind_of(each["host"]), self._reach) for each in found):
            raise OSError(None, "its address has changed to one that is not allowed")
        return found

    async def close(self) -> None: ...
