"""docs/long-running-tools.md: its tools run, and a client hears that they do."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from support.documentation import page_modules

from mcpd import Callbacks, Client
from mcpd.types import ElicitResult

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


@pytest.mark.medium
async def test_heartbeats_and_progress(page_modules: Pages) -> None:
    (page,) = page_modules("long-running-tools", "server")
    page.server.heartbeat = 0.01
    async with Client(page.server) as client:
        heard: list[tuple[float | None, str | None]] = []

        def on_progress(value: float, total: float | None, message: str | None) -> None:
            heard.append((total, message))

        assert await client.call("render", scene="dawn", seconds=0.3, on_progress=on_progress) == "dawn.mp4"
        assert any(total is None and str(message).startswith("still running (") for total, message in heard)


async def test_tasks(page_modules: Pages) -> None:
    (page,) = page_modules("long-running-tools", "server")
    answer = ElicitResult(action="accept", content={"width": 640})
    async with Client(page.server, Callbacks(elicit_form=lambda _: answer)) as client:
        assert await client.call("animate", scene="dusk") == "dusk-640.mp4"
        handle = await client.start_tool("build", {"branch": "main"})
        assert (await handle.status()).status == "working"
        await page.build_ended("main", "All is well.")
        (block,) = (await handle.result()).content
        assert block.text == "All is well."
