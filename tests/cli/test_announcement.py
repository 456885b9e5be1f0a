"""What is said where a server listens, and what Claude Desktop is told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from mcpd.cli.announcement import claude_desktop, lines
from mcpd.cli.launch import Options


def test_the_address_and_a_block_to_copy() -> None:
    said = lines("ws://127.0.0.1:1/mcp", "garden", Options(ws=":1"))
    assert said[0] == "mcpd: listening on ws://127.0.0.1:1/mcp (Ctrl-C ends it)"
    assert "claude_desktop_config.json" in said[2]
    assert 3 <= len(said) <= 6
    assert json.loads(said[-1]) == {"mcpServers": {"garden": claude_desktop(None)}}


def test_who_was_started_by_a_host_is_told_the_address_only() -> None:
    assert len(lines("ws://127.0.0.1:1/mcp", "garden", Options(ws=":1", stdio=True))) == 1


def test_every_path_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude Desktop starts programs in another folder and with another PATH."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    Path("server.py").touch()
    assert claude_desktop("server.py:make") == {
        "command": str(tmp_path / "bin" / "python"),
        "args": ["-m", "mcpd", "serve", "--stdio", str(tmp_path / "server.py") + ":make"],
    }


@pytest.mark.parametrize("how", ["called", "beside"])
def test_the_installed_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    command = tmp_path / "mcpd"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["./mcpd" if how == "called" else "/usr/lib/mcpd/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python") if how == "beside" else "/usr/bin/python3")
    assert claude_desktop(None) == {"command": str(command), "args": ["serve", "--stdio"]}


def test_a_module_of_the_current_folder_is_found_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = type(sys)("garden_of_this_test")
    here.__file__ = str(tmp_path / "garden_of_this_test.py")
    monkeypatch.setitem(sys.modules, "garden_of_this_test", here)
    entry = claude_desktop("garden_of_this_test:server")
    assert entry["args"][-1] == "garden_of_this_test:server"
    assert entry["env"] == {"PYTHONPATH": str(tmp_path)}
    assert "env" not in claude_desktop("json:server")
    assert os.path.isabs(entry["command"])
