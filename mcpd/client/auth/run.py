"""Drives the steps of the flow: requests through the guarded fetch, the user by a browser, a listener or a terminal."""

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

from mcpd.auth.addresses import Reach
from mcpd.auth.fetch import FetchError, Limits, fetch, reach_from
from mcpd.client.auth.loopback import Loopback
from mcpd.client.auth.settings import OAuth
from mcpd.client.auth.steps import Answer, HttpStep, Listen, Step, Steps, Tell, Visit
from mcpd.errors import AuthorizationFailed, ConfigurationError

T = TypeVar("T")
_LIMITS = Limits()


class Network:
    """Requests of a flow on behalf of the MCP server at `url`: to addresses of its own kind, and to global ones.

    `tls` decides in place of the system whose certificates are trusted; `reach` is where requests may go besides, None
    to find that out of the address of the server. Without `proxies` those of the environment are not used.
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

    async def ask(self, step: HttpStep) -> Answer:
        """Make a request. Raises FetchError."""
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
        return Answer.of(response)


class Person(Struct, kw_only=True):
    """How the user is reached: hooks in place of the browser, the listener and the terminal.

    `paste` is asked for the URL that the browser was sent back to, beside the listener: whichever is first.
    """

    open_url: Callable[[str], Any] | None = None
    wait_callback: Callable[[], Any] | None = None
    paste: Callable[[], Awaitable[str]] | None = None
    show_code: Callable[[str, str], Any] | None = None
    redirect: str = "http://127.0.0.1:0/callback"
    listener: Loopback | None = None

    @classmethod
    def of(cls, settings: OAuth) -> Person:
        """As a program has said it."""
        return cls(
            open_url=settings.open_url,
            wait_callback=settings.wait_callback,
            show_code=settings.show_code,
            redirect=settings.redirect,
        )

    async def listen(self, wanted: str | None) -> str | None:
        """Be ready for the browser's return; None if the wanted place is taken, or is not where it will return to."""
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
        raise ConfigurationError(f"{self.redirect}: this port is taken; name another, or none")

    async def visit(self, url: str) -> str:
        """Send the user to a page; gives the URL that the browser came back to. Raises AuthorizationFailed.

        The browser may come back before it counts as opened: one that runs in the foreground, a single sign-on.
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
                "no browser could be opened: mcpd login --no-browser prints the address, OAuth(open_url=…) is told it"
            )

    async def tell(self, step: Tell) -> None:
        """Show where the code is to be typed, once, and wait."""
        if step.is_first:
            if self.show_code is None:
                raise ConfigurationError("a login by a code needs somebody to show it to: OAuth(show_code=…)")
            shown = self.show_code(step.complete_url or step.url, step.code)
            if isawaitable(shown):
                await shown
        await asyncio.sleep(step.seconds)

    async def aclose(self) -> None:
        """Listen no more."""
        listener, self.listener = self.listener, None
        if listener is not None:
            await listener.aclose()


async def run(steps: Steps[T], network: Network, person: Person | None = None) -> T:
    """What a part of the flow gives, its steps done. Raises AuthorizationFailed, ConfigurationError, FetchError."""
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


async def _do(step: Step, network: Network, person: Person | None) -> Any:
    if isinstance(step, HttpStep):
        return await network.ask(step)
    assert person is not None
    if isinstance(step, Listen):
        return await person.listen(step.wanted)
    if isinstance(step, Visit):
        return await person.visit(step.url)
    return await person.tell(step)


def has_browser() -> bool:
    """Whether a browser of this machine is seen by the user: not over SSH, not without a display."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    is_unix = sys.platform not in ("win32", "darwin")
    return not is_unix or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


async def open_browser(url: str) -> bool:
    """Show a page, whose URL was checked, in the user's browser; whether there is one. No shell is asked."""
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
        with suppress(RuntimeError):  # the loop is gone: the login ended before the browser did
            loop.call_soon_threadsafe(answer, is_open)

    # A browser in the foreground returns when it is closed: the end of the program does not wait for that.
    threading.Thread(target=show, daemon=True).start()
    return await shown
