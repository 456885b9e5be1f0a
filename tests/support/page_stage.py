"""Our `Host` behind a thin page in a real Chromium: the page passes messages on, every decision is made in Python.

Lives here: the host with its page (tests/apps/relay_page.html), and its answers. Never here: servers, and assertions
about rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from support.browser import Chromium, Page
from support.pages import Pages

from mcpd import Hooks, Host, HostOptions, Server
from mcpd.apps.host.shown_view import ShownView
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view.context import ContainerDimensions, HostContext
from mcpd.apps.host.view.events import Event

__all__ = ["CONTEXT", "Show", "showing"]

RELAY = Path(__file__).resolve().parent.parent / "apps" / "relay_page.html"
CONTEXT = HostContext(
    theme="dark",
    available_display_modes=["inline", "fullscreen"],
    container_dimensions=ContainerDimensions(max_height=5000),
    locale="nb-NO",
    time_zone="Europe/Oslo",
    platform="web",
)


class Show:
    """One host, what it heard, and one View in the page."""

    def __init__(self, host: Host, page: Page, pages: Pages) -> None:
        self.host = host
        self.page = page
        self.pages = pages
        self.events: list[Event] = []
        self.opened: list[str] = []

    async def view(self, call: ToolCall, *, keep: bool = False) -> ShownView:
        """Show a call's View in the page, under its policy, at an origin of its own."""
        relay = await self.host.listen_views(":0", origin=self.pages.url("").rstrip("/"))
        view, address = await relay.open_view(call)
        self.pages.put("/view", view.document.html, content_security_policy=view.grant.policy())
        host = await self.page.goto(self.pages.url("/page"))
        planned = {
            "socket": address,
            "view": self.pages.url("/view", "view"),
            "sandbox": view.grant.sandbox,
            "allow": view.grant.allow,
            "keep": keep,
        }
        await host.call("(planned) => relay.open(planned)", planned)
        return view


@contextlib.asynccontextmanager
async def showing(
    chromium: Chromium, pages: Pages, server: Server, *, version: str | None = None, **hooks: Any
) -> AsyncIterator[Show]:
    """A host of this server, whose hooks allow everything and note it."""
    pages.put("/page", RELAY.read_text(encoding="utf-8"))
    show: Show

    def opened(view: ShownView, url: str) -> bool:
        show.opened.append(url)
        return True

    given = {
        "open_link": opened,
        "download": lambda view, items: True,
        "display_mode": lambda view, mode: mode,
        "event": lambda view, event: show.events.append(event),
        **hooks,
    }
    async with chromium.page(width=800, height=900) as page:
        async with Host(server, hooks=Hooks(**given), options=HostOptions(context=CONTEXT, version=version)) as host:
            show = Show(host, page, pages)
            yield show
