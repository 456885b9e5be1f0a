"""What tests of apps share: a browser, pages on loopback, the bundled app, and the two hosts that show it.

The scripted host (`scripted_host.html`) does exactly what a test says, right or wrong. The official host is the
AppBridge class of the MCP Apps SDK, bundled by `npm ci` in this folder.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.apps_scene import HASTY, OPAQUE, STRICT, Open, Scene, initialize_result
from support.browser import Chromium, chromium
from support.pages import Pages
from support.views_stage import CALLED, FORM_TOOL

from mcpd.server.extensions.ui.pages import page as make_page

__all__ = ["chromium"]

HERE = Path(__file__).resolve().parent
APPS = HERE.parent.parent / "examples" / "diagnostics"
BUNDLE = HERE / "node_modules" / ".bundle" / "app-bridge.js"


@pytest.fixture
def pages() -> Iterator[Pages]:
    """Pages on loopback, for this test."""
    served = Pages()
    yield served
    served.close()


@pytest.fixture(scope="session")
def diagnostics_html() -> str:
    """The bundled app as it ships."""
    return (APPS / "apps_diagnostics.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def diagnostics_meta() -> Any:
    """Its metadata."""
    return json.loads((APPS / "apps_diagnostics.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def bridge_bundle() -> str:
    """The official host code as one script that defines `ExtApps`."""
    if not BUNDLE.is_file():
        pytest.skip("needs the official host code: npm ci in tests/apps")
    return BUNDLE.read_text(encoding="utf-8")


@pytest.fixture
def open_app(chromium: Chromium, pages: Pages, diagnostics_html: str) -> Open:
    """Show the bundled app in the scripted host: `async with open_app(result=…, answers=…) as scene`."""

    @contextlib.asynccontextmanager
    async def opened(
        *,
        result: Any = None,
        answers: dict[str, Any] | None = None,
        policy: str | None = STRICT,
        sandbox: str | None = OPAQUE,
        size: tuple[int, int] = (800, 700),
        scheme: str = "light",
        hasty: bool = False,
        await_phase: str | None = "live",
        view_host: str = "view",
        dress: Callable[[str], str] = str,
        **scenario: Any,
    ) -> AsyncIterator[Scene]:
        pages.put("/host", (HERE / "scripted_host.html").read_text(encoding="utf-8"))
        pages.put("/view", dress(diagnostics_html), **({"content_security_policy": policy} if policy else {}))
        planned = {"ui/initialize": {"result": initialize_result() if result is None else result}, **(answers or {})}
        scenario = {"view": pages.url("/view", view_host), "answers": planned, "sandbox": sandbox, **scenario}
        if sandbox is None:
            del scenario["sandbox"]
        async with chromium.page(width=size[0], height=size[1], scheme=scheme, script=HASTY if hasty else "") as page:
            host = await page.goto(pages.url("/host"))
            await host.call("(scenario) => host.open(scenario)", scenario)
            view = await page.frame("/view")
            if await_phase:
                await view.until(f"document.documentElement.dataset.phase === '{await_phase}'")
            yield Scene(page, host, view)

    return opened


@pytest.fixture
def open_view(chromium: Chromium, pages: Pages) -> Open:
    """Show a bundled view in the scripted host: `async with open_view("table", data(rows)) as scene`."""

    @contextlib.asynccontextmanager
    async def opened(
        kind: str,
        result: Any = None,
        *,
        options: Any = None,
        arguments: Any = None,
        context: Any = None,
        capabilities: Any = None,
        answers: dict[str, Any] | None = None,
        policy: str = STRICT,
        size: tuple[int, int] = (800, 700),
        await_phase: str | None = "shown",
        **scenario: Any,
    ) -> AsyncIterator[Scene]:
        pages.put("/host", (HERE / "scripted_host.html").read_text(encoding="utf-8"))
        html = make_page(kind, options or {}, FORM_TOOL if kind == "form" else None)
        pages.put("/view", html, content_security_policy=policy)
        told = initialize_result()
        told["hostContext"].update({"locale": "en-GB", "timeZone": "UTC", **(context or {})})
        offered = {**told["hostCapabilities"], **(capabilities or {})}
        told["hostCapabilities"] = {name: offer for name, offer in offered.items() if offer is not None}
        called = {"tools/call": {"result": CALLED[kind]}} if kind in CALLED else {}
        sent = [("tool-input", {"arguments": arguments or {}})] + ([] if result is None else [("tool-result", result)])
        planned = {
            "view": pages.url("/view", "view"),
            "answers": {"ui/initialize": {"result": told}, **called, **(answers or {})},
            "sandbox": OPAQUE,
            "fitHeight": True,
            "initialized": [{"jsonrpc": "2.0", "method": f"ui/notifications/{m}", "params": p} for m, p in sent],
            **scenario,
        }
        async with chromium.page(width=size[0], height=size[1]) as page:
            host = await page.goto(pages.url("/host"))
            await host.call("(planned) => host.open(planned)", planned)
            view = await page.frame("/view")
            if await_phase:
                await view.until(f"document.documentElement.dataset.phase === '{await_phase}'")
            yield Scene(page, host, view)

    return opened
