"""A browser without a window, the sandbox of `mcpd preview`, and a bare page: where apps are shown to be tried.

Playwright drives the browser, and is loaded here only. Showings side by side have contexts of their own: no focus is
shared. One after the other they have the same page, which is loaded anew: each View has an origin of its own all the
same, and with it storage, and cookies there are none.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcpd.errors import ConfigurationError
from mcpd.extensions.ui.assets import bundled_folder
from mcpd.host.shown import ShownView
from mcpd.host.view.events import Event
from mcpd.preview.origins import Origins
from mcpd.preview.page_files import PageFiles
from mcpd.preview.sandbox import Sandbox
from mcpd.protocol.channel import Channel, Receiver
from mcpd.verdict.finding_browsers import HOW_TO_GET_ONE, find_browser

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

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
