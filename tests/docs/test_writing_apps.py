"""The app of docs/writing-apps.md: it passes the strict test, and its button calls a tool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child
from support.browser import Chromium, chromium, find_chromium
from support.preview_page_stage import opened

__all__ = ["chromium"]

pytestmark = pytest.mark.slow

PAGE = REPOSITORY / "docs" / "writing-apps.md"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The files of the page."""
    for text in re.findall(
        r"^```(?:python|html)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        found = re.match(r"(?:# |<!-- )([\w./]+)[^\n]*\n", text)
        assert found is not None
        path = tmp_path / found[1]
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text[found.end() :] if path.suffix == ".html" else text)
    return tmp_path / "server.py"


def test_it_passes_the_strict_test(shop: Path, child: Child) -> None:
    if (browser := find_chromium()) is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    done = subprocess.run(
        child.mcpd("apps", "test", "--strict", "--browser", browser, "--step-timeout", "30", "server.py"),
        env=child.env, cwd=shop.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


async def test_its_button_plants_kale(shop: Path, chromium: Chromium) -> None:
    async with opened(chromium, str(shop)) as stage:
        await stage.pick("tool show_bed")
        await stage.press("Call")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        for frame in list(stage.page.frames.values()):
            if frame.context is not None and await frame.evaluate("!!document.querySelector('#plants')"):
                await frame.until("document.querySelectorAll('#plants li').length === 1")
                await frame.evaluate("document.querySelector('#add').click()")
                await frame.until("document.querySelector('#plants').textContent.includes('kale')")
                return
        raise AssertionError("no frame shows the app")
