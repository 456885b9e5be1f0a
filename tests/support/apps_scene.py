"""A bundled app on stage: the app's frame, the host page around it, and words for what tests ask of both.

Lives here: the policies of the specification, the scene, a good answer to ui/initialize. Never here: fixtures (they are
in tests/apps/conftest.py) and the host pages (tests/apps/*.html).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from support.browser import Frame, Page

__all__ = ["HASTE", "HASTY", "OPAQUE", "OWN_ORIGIN", "STRICT", "Open", "Scene", "initialize_result"]

# The default policy of the specification (no csp member), with what we add to it: see mcpd/apps/host.
STRICT = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "media-src 'self' data:; connect-src 'none'; frame-src 'none'; object-src 'none'; base-uri 'self'; "
    "form-action 'none'"
)
OPAQUE = "allow-scripts"
OWN_ORIGIN = "allow-scripts allow-same-origin allow-forms"

# How long a View waits is divided by this where a test asks for it, so that a minute passes in 0.6 seconds.
HASTE = 100
HASTY = f"""{{
  const wait = window.setTimeout.bind(window);
  window.setTimeout = (run, time = 0, ...more) => wait(run, time >= 10000 ? time / {HASTE} : time, ...more);
}}"""


@dataclass
class Scene:
    """The bundled app in a host page: `host` is the page, `view` the app's frame."""

    page: Page
    host: Frame
    view: Frame

    async def send(self, method: str, params: Any = None) -> None:
        """Send the View a notification."""
        await self.host.call("(method, params) => host.notify(method, params ?? undefined)", method, params)

    async def post(self, *messages: Any) -> None:
        """Send the View anything at all."""
        await self.host.call("(...messages) => host.send(...messages)", *messages)

    async def request(self, method: str, params: Any = None) -> Any:
        """Send the View a request and await its answer, the whole message."""
        return await self.host.call("(method, params) => host.request(method, params ?? undefined)", method, params)

    async def received(self, method: str | None = None) -> list[Any]:
        """What the View has sent, all of it or the messages of one method."""
        found = await self.host.call("(method) => method ? host.of(method) : host.received", method)
        assert isinstance(found, list)
        return found

    async def said(self) -> int:
        """How much the View has sent, without its reports of size, which come in their own time."""
        return len([one for one in await self.received() if one.get("method") != "ui/notifications/size-changed"])

    async def status(self, check: str) -> str:
        """The status of one line of the check list."""
        return str(await self.view.evaluate(f"document.querySelector('[data-check=\"{check}\"]').dataset.status"))

    async def becomes(self, check: str, status: str) -> str:
        """Await a status of a check, and give its explanation."""
        line = f"document.querySelector('[data-check=\"{check}\"]')"
        await self.view.until(f"{line}.dataset.status === '{status}'")
        return str(await self.view.evaluate(f"{line}.querySelector('.how').textContent"))

    async def checks(self) -> dict[str, str]:
        """All checks with their statuses, once what has arrived is painted (the app joins paints over 20 ms)."""
        read = """async () => {
          await new Promise((painted) => setTimeout(painted, 30));
          const lines = [...document.querySelectorAll("[data-check]")];
          return lines.map(({ dataset }) => [dataset.check, dataset.status]);
        }"""
        return dict(await self.view.call(read))

    async def failing(self) -> set[str]:
        """The checks that have failed."""
        return {name for name, status in (await self.checks()).items() if status == "fail"}

    async def outcome(self, request: str) -> tuple[str, str]:
        """Await the outcome of a request card: the outcome and what the card says."""
        card = f"document.querySelector('[data-request=\"{request}\"]')"
        await self.view.until(f"!['idle', 'pending'].includes({card}.dataset.outcome)")
        return tuple(await self.view.evaluate(f"[{card}.dataset.outcome, {card}.querySelector('.answer').textContent]"))

    async def ask(self, request: str) -> tuple[str, str]:
        """Press the button of a request card and await the outcome."""
        await self.tab("requests")
        await self.view.click(f'[data-action="{request}"]')
        return await self.outcome(request)

    async def tab(self, name: str) -> None:
        """Open a tab."""
        await self.view.click(f'[data-tab="{name}"]')

    def clean(self) -> None:
        """Nothing was blocked, thrown or complained about anywhere on the page."""
        assert self.page.violations == [], self.page.violations
        assert self.page.errors == [], self.page.errors
        complaints = [line for line in self.page.console if line.startswith(("warning:", "error:", "assert:"))]
        assert complaints == [], complaints


Open = Callable[..., AbstractAsyncContextManager[Scene]]


def initialize_result(**changes: Any) -> dict[str, Any]:
    """A good answer to ui/initialize."""
    return {
        "protocolVersion": "2026-01-26",
        "hostInfo": {"name": "scripted-host", "version": "1.0"},
        "hostCapabilities": {
            "openLinks": {},
            "serverTools": {"listChanged": True},
            "serverResources": {},
            "logging": {},
            "message": {"text": {}},
            "updateModelContext": {"text": {}, "structuredContent": {}},
            "sandbox": {"csp": {}, "permissions": {}},
        },
        "hostContext": {
            "theme": "light",
            "displayMode": "inline",
            "availableDisplayModes": ["inline", "fullscreen"],
            "containerDimensions": {"maxHeight": 4000},
            "platform": "web",
            "locale": "de-DE",
            "timeZone": "Europe/Berlin",
        },
        **changes,
    }
