"""The browser that shows apps under test: finds a Chromium, starts it without a window, and opens pages.

Views that are shown at the same time have pages in contexts of their own, so that they do not share the focus. Later
Views reuse the pages. Each View still has an origin of its own, and therefore storage of its own, and no cookies.
Playwright drives the browser and is loaded only here and in `trial`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcpd.apps.host.shown_view import ShownView
from mcpd.apps.host.view.events import Event
from mcpd.apps.preview.sandbox import Origins, PageFiles, Sandbox
from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Channel, Receiver
from mcpd.server.extensions.ui.assets import bundled_folder

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

VARIABLE: Final = "MCPD_CHROMIUM"
"""The environment variable that names the browser."""

HOW_TO_GET_ONE: Final = (
    f"install one (apt-get install chromium, or Google Chrome), or python -m playwright install chromium, or name "
    f"one by --browser PATH or {VARIABLE}; without a browser: --static"
)

_PROGRAMS: Final = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge",
    "microsoft-edge-stable", "msedge", "brave-browser",
)  # fmt: skip
_MAC_APPLICATIONS: Final = (
    "Google Chrome.app/Contents/MacOS/Google Chrome",
    "Chromium.app/Contents/MacOS/Chromium",
    "Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "Brave Browser.app/Contents/MacOS/Brave Browser",
)
_WINDOWS_PROGRAMS: Final = (
    "Google/Chrome/Application/chrome.exe",
    "Chromium/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
)
_PLAYWRIGHT_PATTERNS: Final = (
    "chromium-*/chrome-linux*/chrome",
    "chromium_headless_shell-*/chrome-*/*headless*shell*",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium-*/chrome-win*/chrome.exe",
)
"""Below the folder of Playwright, for each of its versions."""

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


def find_browser(
    named: str | None = None, *, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> str:
    """Return the path of a Chromium: `named`, the one in `MCPD_CHROMIUM`, or the first that is found.

    Raises ConfigurationError, with the ways to get one, if no browser is found or the named one does not exist.
    """
    for name, source in ((named, "--browser"), (environment.get(VARIABLE), VARIABLE)):
        if name:
            found = shutil.which(name, path=environment.get("PATH"))
            if found is None:
                raise ConfigurationError(f"{source} {name}: there is no such program; {HOW_TO_GET_ONE}")
            return found
    found = next(_candidates(environment, platform), None)
    if found is None:
        raise ConfigurationError(f"there is no Chromium on this machine; {HOW_TO_GET_ONE}")
    return found


def _candidates(environment: Mapping[str, str], platform: str) -> Iterator[str]:
    for name in _PROGRAMS:
        if found := shutil.which(name, path=environment.get("PATH", "")):
            yield found
    home = Path(environment.get("HOME") or environment.get("USERPROFILE") or "/nonexistent")
    places: list[Path] = []
    if platform == "darwin":
        folders = (Path("/Applications"), home / "Applications")
        places = [folder / application for folder in folders for application in _MAC_APPLICATIONS]
        downloads = home / "Library/Caches/ms-playwright"
    elif platform == "win32":
        variables = [environment.get(name) for name in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")]
        places = [Path(folder, program) for folder in variables if folder for program in _WINDOWS_PROGRAMS]
        downloads = Path(environment.get("LOCALAPPDATA") or home, "ms-playwright")
    else:
        downloads = Path(environment.get("XDG_CACHE_HOME") or home / ".cache", "ms-playwright")
    yield from (str(place) for place in places if place.is_file())

    playwright = Path(environment.get("PLAYWRIGHT_BROWSERS_PATH") or downloads)
    for pattern in _PLAYWRIGHT_PATTERNS:
        # The newest version comes first: longer numbers are higher.
        for place in sorted(playwright.glob(pattern), key=lambda path: (len(str(path)), str(path)), reverse=True):
            if place.is_file() and os.access(place, os.X_OK):
                yield str(place)


# ------------------------------------------------------------------------------------------ running


def read_script(name: str) -> str:
    """Return one of the scripts in assets/verdict."""
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
        self._free: list[Page] = []
        """Used pages that can be used again."""

    @property
    def name(self) -> str:
        """The name and version of the browser, for the report."""
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
            await context.add_init_script(read_script("spy.js"))
        return await context.new_page()


@asynccontextmanager
async def open_browser(named: str | None) -> AsyncIterator[AppBrowser]:
    """Start the browser that is `named`, or the first that is found.

    Raises ConfigurationError, with what to do, if none is found, it does not start, or Playwright is not installed.
    """
    try:
        from playwright.async_api import Error, async_playwright
    except ImportError:
        text = "showing apps in a browser needs Playwright: pip install 'mcpd-server[apps,http]'; without: --static"
        raise ConfigurationError(text) from None
    from mcpd.server.http.listener import HttpListener
    from mcpd.server.http.pages import PageApp

    executable = find_browser(named)
    sandbox = Sandbox()
    files = PageFiles(str(Path(bundled_folder()) / "verdict"))
    listeners = [HttpListener(PageApp(answer), ":0") for answer in (files.answer, sandbox.answer)]
    async with async_playwright() as playwright:
        # Chromium cannot use its own sandbox as root, nor in some containers as any user.
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        try:
            for has_sandbox in (False,) if is_root else (True, False):
                try:
                    browser = await playwright.chromium.launch(
                        executable_path=executable, args=list(_FLAGS), chromium_sandbox=has_sandbox, timeout=_START_MS
                    )
                    break
                except Error:
                    if not has_sandbox:
                        raise
        except Error as error:
            why = str(error).strip().splitlines()[0]
            raise ConfigurationError(f"{executable} does not start: {why}; {HOW_TO_GET_ONE}") from None

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
