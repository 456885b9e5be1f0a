"""docs/long-running-tools.md: its tools run, and a client hears that they do."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from support.documentation import page_modules

from mcpd import Client

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


async def test_heartbeats_and_progress(page_modules: Pages) -> None:
    (page,) = page_modules("long-running-tools", "server")
    page.server.heartbeat = 0.01
    async with Client(page.server) as client:
        heard: list[tuple[float | None, str | None]] = []

        def on_progress(value: float, total: float | None, message: str | None) -> None:
            heard.append((total, message))

        assert await client.call("render", scene="dawn", seconds=0.3, on_progress=on_progress) == "dawn.mp4"
        assert (None, "still running (0 s)") in heard
        heard.clear()
        assert await client.call("render_frames", scene="dusk", frames=2, on_progress=on_progress) == "dusk.mp4"
        assert heard[:2] == [(2, "Rendering"), (2, "Rendering")]
