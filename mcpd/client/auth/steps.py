"""The steps of a login flow, HTTP requests and interactions with the user, and how `run` performs them.

A part of a flow is a generator, which does no I/O. It yields one `Step` at a time and receives the result. `FetchError`
is thrown into it if a request got no response. Tests send recorded responses instead.

Spec: RFC 8252 7.3, 8.3; AUTH-192 (the listener that a browser is redirected to).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from errno import EADDRNOTAVAIL, EAFNOSUPPORT
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Struct

from mcpd.auth.fetch import FetchError, Response, fetch, reach_from
from mcpd.client.callbacks import run_in_thread, settled
from mcpd.errors import AuthorizationFailed, ConfigurationError
from mcpd.transports.address import Reach, is_loopback_url
from .settings import OAuth

T = TypeVar("T")


class HttpStep(Struct, frozen=True):
    """An HTTP request. The result is a `Response` with any status. The `repr` shows no content, which may be secret."""

    url: str
    what: str
    """The name of the endpoint in error messages."""
    method: Literal["GET", "POST"] = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"HttpStep({self.method} {self.url.partition('?')[0]})"


class ListenForRedirect(Struct, frozen=True):
    """Listen for the browser's redirect. The result is the redirect URI, or None if `wanted` is not available."""

    wanted: str | None = None
    """The registered redirect URI; None for any."""


class OpenBrowser(Struct, frozen=True):
    """Send the user to a page. The result is the URL that the browser was redirected to."""

    url: str

    def __repr__(self) -> str:
        return f"OpenBrowser({self.url.partition('?')[0]})"


class ShowCode(Struct, frozen=True):
    """Show the user a page and the code to type there (device grant), then wait `seconds`. The result is None."""

    url: str
    code: str
    seconds: float
    complete_url: str | None = None
    is_first: bool = True


Step: TypeAlias = HttpStep | ListenForRedirect | OpenBrowser | ShowCode
Steps: TypeAlias = Generator[Step, Any, T]


def send(step: HttpStep) -> Steps[Response]:
    found: Response = yield step
    return found


def send_form(
    endpoint: str, what: str, fields: Mapping[str, str | None], headers: Mapping[str, str] | None = None
) -> Steps[Response]:
    """Send a form, without the fields that are None, and return the response."""
    body = urlencode({name: value for name, value in fields.items() if value is not None}).encode()
    sent = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    return send(HttpStep(endpoint, what, "POST", tuple(sent.items()), body))


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
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}{self._path}"

    async def start(self) -> bool:
        """Start listening. Return whether the port was free."""
        # Browsers resolve localhost to either address, and another program must not receive the redirect on the other.
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
        # Counted, because any page in the browser may connect to this port.
        self._connections += 1
        try:
            if self._connections <= _MOST_CONNECTIONS:
                async with asyncio.timeout(_HEAD_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    is_result = self._take(head)
                    # The page says nothing about the login, because another program may have asked for it.
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
        f"HTTP/1.1 {'200 OK' if is_result else '404 Not Found'}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


class Network:
    """Sends the requests of a flow for the MCP server at `url`: to addresses of the same kind as the server's, and
    global ones.

    `tls` replaces the system's trusted certificates. `reach` are further kinds of addresses; None derives them from the
    server's address. `proxies` uses the proxies of the environment.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        allow_private: bool = False,
        reach: Reach | None = None,
        proxies: bool = True,
    ) -> None:
        self._url = url
        self._tls = tls
        self._allow_private = allow_private
        self._reach = reach
        self._proxies = proxies

    async def send(self, step: HttpStep) -> Response:
        """Send a request. Raises FetchError."""
        if self._reach is None:
            self._reach = await reach_from(self._url)
        reach: Reach = (*self._reach, "private") if self._allow_private else self._reach
        return await fetch(
            step.url,
            what=f"the {step.what}",
            method=step.method,
            headers=step.headers,
            body=step.body,
            reach=reach,
            tls=self._tls,
            proxies=self._proxies,
        )


class UserInteraction(Struct, kw_only=True):
    """How to reach the user: functions that replace the browser, the listener and the terminal.

    `paste` returns the URL that the browser was redirected to, for a browser on another machine. It runs beside the
    listener, and the first result is used.
    """

    open_url: Callable[[str], Any] | None = None
    wait_callback: Callable[[], Any] | None = None
    paste: Callable[[], Awaitable[str]] | None = None
    show_code: Callable[[str, str], Any] | None = None
    redirect: str = "http://127.0.0.1:0/callback"
    listener: Loopback | None = None

    @classmethod
    def of(cls, settings: OAuth) -> UserInteraction:
        return cls(
            open_url=settings.open_url,
            wait_callback=settings.wait_callback,
            show_code=settings.show_code,
            redirect=settings.redirect,
        )

    async def listen(self, wanted: str | None) -> str | None:
        """Listen for the redirect, and return its URI; None if `wanted` is in use or does not match the settings."""
        if self.wait_callback is not None:
            return self.redirect if wanted in (None, self.redirect) else None
        await self.aclose()
        parts, wish = urlsplit(self.redirect), urlsplit(wanted or "")
        if wanted is not None and (wish.hostname, wish.path) != (parts.hostname, parts.path):
            return None

        if wanted is not None and parts.port not in (None, 0, wish.port):
            return None
        listener = Loopback(wanted or self.redirect)
        if await listener.start():
            self.listener = listener
            return listener.redirect_uri
        if wanted is not None:
            return None
        raise ConfigurationError(f"{self.redirect}: the port is in use; choose another one, or port 0")

    async def open_page(self, url: str) -> str:
        """Send the user to a page, and return the URL that the browser was redirected to. Raises AuthorizationFailed.

        A browser in the foreground, or single sign-on, may be redirected before opening it returns.
        """
        if self.wait_callback is not None:
            await self._open(url)
            return str(await settled(self.wait_callback()))

        assert self.listener is not None
        self.listener.expect(parse_qs(urlsplit(url).query).get("state", [""])[0])
        opening = asyncio.ensure_future(self._open(url))
        ways = [asyncio.ensure_future(self.listener.wait())]
        try:
            await asyncio.wait((opening, *ways), return_when=asyncio.FIRST_COMPLETED)
            if not ways[0].done():
                await opening
                if self.paste is not None:
                    ways.append(asyncio.ensure_future(self.paste()))
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in (opening, *ways):
                task.cancel()
            await asyncio.gather(opening, *ways, return_exceptions=True)

    async def _open(self, url: str) -> None:
        if self.open_url is not None:
            await settled(self.open_url(url))
        elif not await open_browser(url):
            raise AuthorizationFailed(
                "no browser could be opened: use mcpd login --no-browser, which prints the URL, or OAuth(open_url=…)"
            )

    async def display_code(self, step: ShowCode) -> None:
        """Show the page and the code once, then wait."""
        if step.is_first:
            if self.show_code is None:
                raise ConfigurationError("a login with a code requires OAuth(show_code=…)")
            await settled(self.show_code(step.complete_url or step.url, step.code))
        await asyncio.sleep(step.seconds)

    async def aclose(self) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            await listener.aclose()


async def run(steps: Steps[T], network: Network, person: UserInteraction | None = None) -> T:
    """Perform the steps of a flow, and return its result. Raises AuthorizationFailed, ConfigurationError."""
    try:
        step = next(steps)
        while True:
            try:
                found: Any = await _do(step, network, person)
            except FetchError as error:
                # The flow decides whether another URL may be tried.
                step = steps.throw(error)
                continue
            step = steps.send(found)
    except StopIteration as end:
        result: T = end.value
        return result
    except FetchError as error:
        raise AuthorizationFailed(str(error)) from error
    finally:
        steps.close()
        if person is not None:
            await person.aclose()


async def _do(step: Step, network: Network, person: UserInteraction | None) -> Any:
    if isinstance(step, HttpStep):
        return await network.send(step)
    assert person is not None
    if isinstance(step, ListenForRedirect):
        return await person.listen(step.wanted)
    if isinstance(step, OpenBrowser):
        return await person.open_page(step.url)
    return await person.display_code(step)


def has_browser() -> bool:
    """Whether the user can see a browser on this machine: not over SSH, and not without a display."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    is_unix = sys.platform not in ("win32", "darwin")
    return not is_unix or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


async def open_browser(url: str) -> bool:
    """Open a page, whose URL was checked, in the user's browser. Return whether there is one. No shell is used."""
    import webbrowser

    try:
        # Opening a browser in the foreground returns when it is closed. Interpreter exit must not wait for that.
        return bool(await run_in_thread(webbrowser.open, url))
    except (webbrowser.Error, OSError):
        return False
