"""The picture of the preview in the README, which this test takes again if MCPD_WRITE_PICTURE is set."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from pathlib import Path

import pytest
from conftest import REPOSITORY
from support.browser import Chromium
from support.preview_page_stage import PageStage, opened

pytestmark = pytest.mark.slow

PICTURE = REPOSITORY / "docs" / "images" / "preview.png"


async def drawn(stage: PageStage) -> None:
    """Wait until a frame has a chart, and until it is painted."""
    async with asyncio.timeout(60):
        while True:
            for frame in [one for one in stage.page.frames.values() if one.context is not None]:
                if await frame.evaluate("document.querySelectorAll('svg path').length > 5 && innerWidth < 700"):
                    await frame.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
                    return
            await stage.main.evaluate("new Promise((done) => requestAnimationFrame(done))")


async def test_the_picture_of_the_preview(chromium: Chromium, tmp_path: Path) -> None:
    """A chart of the example shop, in the page as it is now."""
    spec = importlib.util.spec_from_file_location("views_example", REPOSITORY / "examples" / "views.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    taken = tmp_path / "preview.png"
    async with opened(chromium, module.server) as stage:
        await stage.page.resize(1280, 800)
        await stage.pick("tool sales")
        await stage.press("Call")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        await drawn(stage)
        await stage.page.screenshot(taken)
    if os.environ.get("MCPD_WRITE_PICTURE"):
        PICTURE.write_bytes(taken.read_bytes())
    for picture in (taken, PICTURE):
        data = picture.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (1280, 800)
