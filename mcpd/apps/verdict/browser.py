"""The browser that shows apps under test: finds a Chromium, starts it without a window, and opens pages.

Views that are shown at the same time have pages in contexts of their own, so that they do not share the focus. Later
Views reuse the pages. Each View still has an origin of its own, and therefore storage of its own, and no cookies.
Playwright drives the browser and is loaded only here and in `trial`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcpd.apps.host.shown_view import ShownView
from mcpd.apps.host.view.events import Event
from mcpd.apps.preview.sandbox import Origins, PageFiles, Sandbox
from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Channel, Receiver
from mcpd.transports.files import bundled_folder

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

VARIABLE: Final = "MCPD_CHROMIUM"

HOW_TO_GET_ONE: Final = (
    f"install one (apt-get install chromium, or Google Chrome), or python -m playwright install chromium, or name "
    f"one by --browser PATH or {VARIABLE}; without a browser: --static"
)

_PROGRAMS: Final = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge",
    "microsoft-edge-stable", "msedge", "brave-browser",
)  # fmt: skip
# Playwright finds its own download, and browsers that are installed in the usual place of each system.
_CHANNELS: Final = ("chromium", "chrome", "msedge")
_FLAGS: Final = (
    # Origins stay apart within one process. Three processes for each View would take most of the time.
    "--disable-site-isolation-trials",
    "--disable-features=Translate,OptimizationHints,MediaRouter,IsolateOrigins,site-per-process,IsolateSandboxedIframes,"
    "OriginIsolationHeader",
    "--disable-background-networking",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    # The names of controls for screen readers.
    "--enable-blink-features=ComputedAccessibilityInfo",
)
_START_MS: Final = 60_000


# ------------------------------------------------------------------------------------------ finding


def find_browser(named: str | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of a Chromium, or None. Raises ConfigurationError if the one that is named does not exist."""
    path = environment.get("PATH", "")
    for name, source in ((named, "--browser"), (environment.get(VARIABLE), VARIABLE)):
        if name:
            found = shutil.which(name, path=path)
            if found is None:
                raise ConfigurationError(f"{source} {name}: there is no such program; {HOW_TO_GET_ONE}")
            return found

    return next((found for name in _PROGRAMS if (found := shutil.which(name, path=path))), None)


# ------------------------------------------------------------------------------------------ running


def read_asset(name: str) -> str:
    return (Path(bundled_folder()) / "verdict" / name).read_text(encoding="utf-8")


class AppBrowser:
    """A running browser, the sandbox that serves Views, and the page that frames them."""

    def __init__(self, browser: Browser, sandbox: Sandbox, origins: Origins) -> None:
        self._browser = browser
        self.sandbox = sandbox
        self.origins = origins
        self.page_origin = origins.url("").partition("/#")[0]
        self.listeners: dict[str, Callable[[Event], None]] = {}
        """The functions that receive the events of a View, by its id."""
        # Used pages that can be used again.
        self._free: list[Page] = []

    @property
    def name(self) -> str:
        return f"Chromium {self._browser.version}"

    def on_event(self, view: ShownView, event: Event) -> None:
        """Pass an event on to the listener of its View. This is `Hooks.event` of the host."""
        listener = self.listeners.get(view.id)
        if listener is not None:
            listener(event)

    @asynccontextmanager
    async def page(self, width: int, height: int, *, scheme: str = "light", spied: bool = False) -> AsyncIterator[Page]:
        """Open the bare page for exclusive use. With `spied`, spy.js runs first in each of its frames."""
        page = self._free.pop() if self._free and not spied else await self._new_page(spied=spied)
        try:
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
            await page.set_viewport_size({"width": width, "height": height})
            await page.goto(f"{self.page_origin}/")
            yield page
        except BaseException:
            await page.context.close()
            raise

        if spied or page.is_closed():
            await page.context.close()
        else:
            self._free.append(page)

    async def _new_page(self, *, spied: bool) -> Page:
        context = await self._browser.new_context(
            locale="en-GB", timezone_id="UTC", accept_downloads=False, service_workers="block"
        )
        if spied:
            await context.add_init_script(read_asset("spy.js"))
        return await context.new_page()


@asynccontextmanager
async def open_browser(named: str | None) -> AsyncIterator[AppBrowser]:
    """Start the browser that is `named`, or the first that is found. Raises ConfigurationError with what to do."""
    try:
        from playwright.async_api import Error, async_playwright
    except ImportError:
        text = "showing apps in a browser needs Playwright: pip install 'mcpd-server[apps,http]'; without: --static"
        raise ConfigurationError(text) from None
    from mcpd.server.http.listener import HttpListener
    from mcpd.server.http.pages import PageApp

    executable = find_browser(named)
    channels = (None,) if executable is not None else _CHANNELS
    sandbox = Sandbox()
    files = PageFiles(str(Path(bundled_folder()) / "verdict"))
    listeners = [HttpListener(PageApp(answer), ":0") for answer in (files.answer, sandbox.answer)]
    async with async_playwright() as playwright:
        # Chromium cannot use its own sandbox as root, nor in some containers as any user.
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        browser, problem = None, ""
        for channel, has_sandbox in product(channels, (False,) if is_root else (True, False)):
            try:
                browser = await playwright.chromium.launch(
                    executable_path=executable,
                    channel=channel,
                    args=list(_FLAGS),
                    chromium_sandbox=has_sandbox,
                    timeout=_START_MS,
                )
                break
            except Error as error:
                problem = str(error).strip().splitlines()[0]
        if browser is None:
            raise ConfigurationError(f"{executable or 'a Chromium'} does not start: {problem}; {HOW_TO_GET_ONE}")

        try:
            for listener in listeners:
                await listener.start(_no_receiver)
            ports = [int(listener.url.rpartition(":")[2].rstrip("/")) for listener in listeners]
            files.origins = origins = Origins(*ports)
            yield AppBrowser(browser, sandbox, origins)
        finally:
            sandbox.close()
            for listener in listeners:
                await listener.aclose()
            await browser.close()


def _no_receiver(channel: Channel) -> Receiver:
    raise AssertionError("the page only reads files: it opens no WebSocket")
