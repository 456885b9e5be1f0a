"""Which Chromium is taken, on a machine made of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpd.apps.verdict.browser import find_browser
from mcpd.errors import ConfigurationError


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_one_that_is_named_comes_first(tmp_path: Path) -> None:
    mine, other = program(tmp_path / "mine"), program(tmp_path / "bin" / "chromium")
    environment = {"PATH": str(tmp_path / "bin"), "MCPD_CHROMIUM": mine}
    assert find_browser(other, environment=environment) == other
    assert find_browser(environment=environment) == mine
    assert find_browser(environment={"PATH": str(tmp_path / "bin")}) == other
    for named, variable in ((str(tmp_path / "gone"), ""), (None, str(tmp_path / "gone"))):
        with pytest.raises(ConfigurationError, match="there is no such program"):
            find_browser(named, environment={"MCPD_CHROMIUM": variable})


@pytest.mark.parametrize(
    ("platform", "variable", "place"),
    [
        ("linux", "HOME", ".cache/ms-playwright/chromium-1200/chrome-linux64/chrome"),
        ("linux", "PLAYWRIGHT_BROWSERS_PATH", "chromium_headless_shell-1200/chrome-linux/headless_shell"),
        ("darwin", "HOME", "Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
        ("darwin", "HOME", "Library/Caches/ms-playwright/chromium-9/chrome-mac/Chromium.app/Contents/MacOS/Chromium"),
        ("win32", "PROGRAMFILES", "Microsoft/Edge/Application/msedge.exe"),
        ("win32", "LOCALAPPDATA", "ms-playwright/chromium-1200/chrome-win/chrome.exe"),
    ],
)
def test_the_usual_places(tmp_path: Path, platform: str, variable: str, place: str) -> None:
    there = program(tmp_path / place)
    assert find_browser(environment={variable: str(tmp_path)}, platform=platform) == there


def test_without_one_it_is_said_how_to_get_one() -> None:
    with pytest.raises(ConfigurationError, match="apt-get install chromium.*--browser PATH or MCPD_CHROMIUM"):
        find_browser(environment={})
