"""Performs the steps of a login flow: HTTP requests through the guarded fetch, and interactions with the user."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from mcpd.auth.fetch import FetchError, Limits, Reach, fetch, reach_from
from mcpd.client.auth.loopback import Loopback
from mcpd.client.auth.settings import OAuth
from mcpd.client.auth.steps import HttpStep, ListenForRedirect, OpenBrowser, ShowCode, Step, StepResponse, Steps
from mcpd.errors import AuthorizationFailed, ConfigurationError

T = TypeVar("T")
_LIMITS = Limits()


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
        self._also: tuple[Any, ...] = ("private",) if allow_private else ()
        self._reach = reach
        self._proxies = proxies

    async def send(self, step: HttpStep) -> StepResponse:
        """Send a request. Raises FetchError."""
        if self._reach is None:
            self._reach = await reach_from(self._url)
        response = await fetch(
            step.url,
            what=f"the {step.what}",
            method="POST" if step.method == "POST" else "GET",
            headers=step.headers,
            body=step.body,
            reach=(*self._reach, *self._also),
            limits=_LIMITS,
            tls=self._tls,
            proxies=self._proxies,
        )
        return StepResponse.of(response)


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
        """The interaction that the settings of a program describe."""
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
            found = self.wait_callback()
            return str(await found if isawaitable(found) else found)

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
            opened = self.open_url(url)
            if isawaitable(opened):
                await opened
        elif not await open_browser(url):
            raise AuthorizationFailed(
                "no browser could be opened: use mcpd login --no-browser, which prints the URL, or OAuth(open_url=…)"
            )

    async def display_code(self, step: ShowCode) -> None:
        """Show the page and the code once, then wait."""
        if step.is_first:
            if self.show_code is None:
                raise ConfigurationError("a login with a code requires OAuth(show_code=…)")
            shown = self.show_code(step.complete_url or step.url, step.code)
            if isawaitable(shown):
                await shown
        await asyncio.sleep(step.seconds)

    async def aclose(self) -> None:
        """Stop listening."""
        listener, self.listener = self.listener, None
        if listener is not None:
            await listener.aclose()


async def run(steps: Steps[T], network: Network, person: UserInteraction | None = None) -> T:
    """Perform the steps of a flow, and return its result. Raises AuthorizationFailed, ConfigurationError,
    FetchError.
    """
    try:
        step = next(steps)
        while True:
            try:
                found: Any = await _do(step, network, person)
            except FetchError as error:
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

    loop = asyncio.get_running_loop()
    shown: asyncio.Future[bool] = loop.create_future()

    def answer(is_open: bool) -> None:
        if not shown.done():
            shown.set_result(is_open)

    def show() -> None:
        try:
            is_open = webbrowser.open(url)
        except (webbrowser.Error, OSError):
            is_open = False
        with suppress(RuntimeError):  # the loop was closed because the login ended before the browser
            loop.call_soon_threadsafe(answer, is_open)

    # Opening a browser in the foreground returns when it is closed. Interpreter exit must not wait for that.
    threading.Thread(target=show, daemon=True).start()
    return await shown
