"""Which Chromium is taken, on a machine made of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpd.apps.verdict.browser import find_browser, open_browser
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


@pytest.mark.medium
async def test_without_one_it_is_said_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MCPD_CHROMIUM", raising=False)
    monkeypatch.setattr("mcpd.apps.verdict.browser._CHANNELS", ("chrome-canary",))
    with pytest.raises(ConfigurationError, match=r"apt-get install chromium.*--browser PATH or MCPD_CHROMIUM"):
        async with open_browser(None):
            pass
