"""A browser without a window, the sandbox of `mcpd preview`, and a bare page: where apps are shown to be tried.

Playwright drives the browser, and is loaded here only. Showings side by side have contexts of their own: no focus is
shared. One after the other they have the same page, which is loaded anew: each View has an origin of its own all the
same, and with it storage, and cookies there are none.
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
from mcpd.apps.preview.front import PageFiles
from mcpd.apps.preview.sandbox import Origins, Sandbox
from mcpd.errors import ConfigurationError
from mcpd.extensions.ui.assets import bundled_folder
from mcpd.protocol.channel import Channel, Receiver

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page


VARIABLE: Final = "MCPD_CHROMIUM"
"""The variable that names the browser."""

HOW_TO_GET_ONE: Final = (
    f"install one (apt-get install chromium, or Google Chrome), or python -m playwright install chromium, or name "
    f"one by --browser PATH or {VARIABLE}; without a browser: --static"
)

_NAMES: Final = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge",
    "microsoft-edge-stable", "msedge", "brave-browser",
)  # fmt: skip
_MAC: Final = (
    "Google Chrome.app/Contents/MacOS/Google Chrome",
    "Chromium.app/Contents/MacOS/Chromium",
    "Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "Brave Browser.app/Contents/MacOS/Brave Browser",
)
_WINDOWS: Final = (
    "Google/Chrome/Application/chrome.exe",
    "Chromium/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
)
# Below Playwright's folder, in any of its versions.
_PLAYWRIGHT: Final = (
    "chromium-*/chrome-linux*/chrome",
    "chromium_headless_shell-*/chrome-*/*headless*shell*",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium-*/chrome-win*/chrome.exe",
)


def find_browser(
    named: str | None = None, *, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> str:
    """The path of a Chromium: the one that is `named`, that `MCPD_CHROMIUM` names, or the first that is found.

    Raises ConfigurationError with how to get one, also if the one that was named is not there.
    """
    for name, what in ((named, "--browser"), (environment.get(VARIABLE), VARIABLE)):
        if name:
            found = shutil.which(name, path=environment.get("PATH"))
            if found is None:
                raise ConfigurationError(f"{what} {name}: there is no such program; {HOW_TO_GET_ONE}")
            return found
    found = next(_candidates(environment, platform), None)
    if found is None:
        raise ConfigurationError(f"there is no Chromium on this machine; {HOW_TO_GET_ONE}")
    return found


def _candidates(environment: Mapping[str, str], platform: str) -> Iterator[str]:
    for name in _NAMES:
        if found := shutil.which(name, path=environment.get("PATH", "")):
            yield found
    home = Path(environment.get("HOME") or environment.get("USERPROFILE") or "/nonexistent")
    places: list[Path] = []
    if platform == "darwin":
        places = [folder / app for folder in (Path("/Applications"), home / "Applications") for app in _MAC]
        fetched = home / "Library/Caches/ms-playwright"
    elif platform == "win32":
        folders = [environment.get(name) for name in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")]
        places = [Path(folder, app) for folder in folders if folder for app in _WINDOWS]
        fetched = Path(environment.get("LOCALAPPDATA") or home, "ms-playwright")
    else:
        fetched = Path(environment.get("XDG_CACHE_HOME") or home / ".cache", "ms-playwright")
    yield from (str(place) for place in places if place.is_file())

    own = Path(environment.get("PLAYWRIGHT_BROWSERS_PATH") or fetched)
    for pattern in _PLAYWRIGHT:
        # The newest version, by its number.
        for place in sorted(own.glob(pattern), key=lambda path: (len(str(path)), str(path)), reverse=True):
            if place.is_file() and os.access(place, os.X_OK):
                yield str(place)


_FLAGS: Final = (
    # Origins are kept apart all the same, within one process: three for each showing take most of the time.
    "--disable-site-isolation-trials",
    "--disable-features=Translate,OptimizationHints,MediaRouter,IsolateOrigins,site-per-process,IsolateSandboxedIframes,"
    "OriginIsolationHeader",
    "--disable-background-networking",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--enable-blink-features=ComputedAccessibilityInfo",  # the names of controls, as screen readers are told them
)
_START_MS: Final = 60_000


def script(name: str) -> str:
    """One of the scripts in assets/verdict."""
    return _folder().joinpath(name).read_text(encoding="utf-8")


def _folder() -> Path:
    return Path(bundled_folder()) / "verdict"


class Theatre:
    """The browser, where the bare page is, and the sandbox. `hear` says who is told of a View's events, by its id."""

    def __init__(self, browser: Browser, sandbox: Sandbox, origins: Origins) -> None:
        self._browser = browser
        self.sandbox = sandbox
        self.origins = origins
        self.page_origin = origins.url("").partition("/#")[0]
        self.hearers: dict[str, Callable[[Event], None]] = {}
        self._free: list[Page] = []
        """Pages that were used, and can be again."""

    @property
    def browser_name(self) -> str:
        """The browser, for the report."""
        return f"Chromium {self._browser.version}"

    def hear(self, view: ShownView, event: Event) -> None:
        """For `Hooks.event`."""
        hearer = self.hearers.get(view.id)
        if hearer is not None:
            hearer(event)

    @asynccontextmanager
    async def page(self, width: int, height: int, *, scheme: str = "light", spied: bool = False) -> AsyncIterator[Page]:
        """The bare page, which nobody else has meanwhile. With `spied`, spy.js runs in every frame of it."""
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
            await context.add_init_script(script("spy.js"))
        return await context.new_page()


@asynccontextmanager
async def open_theatre(named: str | None) -> AsyncIterator[Theatre]:
    """Start the browser that is `named`, or the first that is found. Raises ConfigurationError with what to do."""
    try:
        from playwright.async_api import Error, async_playwright
    except ImportError:
        text = "showing apps in a browser needs Playwright: pip install 'mcpd-server[apps,http]'; without: --static"
        raise ConfigurationError(text) from None
    from mcpd.http.listener import HttpListener
    from mcpd.http.pages import PageApp

    executable = find_browser(named)
    sandbox = Sandbox()
    files = PageFiles(str(_folder()))
    listeners = [HttpListener(PageApp(answer), ":0") for answer in (files.answer, sandbox.answer)]
    async with async_playwright() as playwright:
        try:
            # As root Chromium has no sandbox of its own, and in some containers nobody has one.
            for has_sandbox in (True, False):
                if has_sandbox and hasattr(os, "geteuid") and os.geteuid() == 0:
                    continue
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
                await listener.start(_no_one)
            ports = [int(listener.url.rpartition(":")[2].rstrip("/")) for listener in listeners]
            files.origins = origins = Origins(*ports)
            yield Theatre(browser, sandbox, origins)
        finally:
            sandbox.close()
            for listener in listeners:
                await listener.aclose()
            await browser.close()


def _no_one(channel: Channel) -> Receiver:
    raise AssertionError("nobody connects here but the page, which only reads files")
