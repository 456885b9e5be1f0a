"""`mcpd check --lock FILE`, `--write` and `--json`: exit codes, words, and one JSON object whatever happens."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Child

Run = Callable[..., "subprocess.CompletedProcess[str]"]

GARDEN = '''
from mcpd import Server

print("planting")
server = Server("garden", version="1.2")

@server.tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b
'''


@pytest.fixture
def run(child: Child, tmp_path: Path) -> Run:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            child.mcpd("check", *words), cwd=tmp_path, env=child.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    (tmp_path / "garden.py").write_text(GARDEN)
    return run


def test_a_lock_is_written_and_held_against(run: Run, tmp_path: Path) -> None:
    missing = run("garden.py", "--lock", "garden.json")
    assert missing.returncode == 1
    assert "mcpd: problem: there is no approval file garden.json yet; the same with --write writes it" in missing.stderr
    assert not (tmp_path / "garden.json").exists()

    written = run("garden.py", "--lock", "garden.json", "--write")
    assert (written.returncode, written.stderr) == (0, "mcpd: wrote garden.json\n")
    same = run("garden.py", "--lock", "garden.json")
    assert (same.returncode, same.stderr) == (0, "")

    (tmp_path / "garden.py").write_text(GARDEN.replace("b: int = 2", "b: int").replace("Add two", "Adds two"))
    other = run("garden.py", "--lock", "garden.json")
    assert other.returncode == 1
    assert other.stderr.splitlines() == [
        "mcpd: breaking: tool add: argument b is now required",
        "mcpd: harmless: tool add: the default of argument b is gone",
        "mcpd: harmless: tool add: description changed",
        "mcpd: garden.json says otherwise: 1 breaking and 2 harmless changes; if they are meant, the same with --write "
        "writes it anew",
    ]
    assert run("garden.py", "--lock", "garden.json", "--write").returncode == 0
    assert run("garden.py", "--lock", "garden.json").returncode == 0

    approved = (tmp_path / "garden.json").read_text()
    (tmp_path / "garden.json").write_text(approved.replace('"add"', '"\\u001b[2Jadd"'))
    foreign = run("garden.py", "--lock", "garden.json")
    assert "mcpd: breaking: tool \\x1b[2Jadd: removed" in foreign.stderr

    (tmp_path / "garden.json").write_text("{")
    broken = run("garden.py", "--lock", "garden.json")
    assert (broken.returncode, broken.stderr) == (1, "mcpd: garden.json is no approval file of mcpd; write it anew\n")
    alone = run("garden.py", "--write")
    assert (alone.returncode, alone.stderr) == (2, "mcpd: --write goes with --lock FILE; see mcpd check --help\n")


def test_json_has_everything_and_nothing_else(run: Run, tmp_path: Path) -> None:
    done = run("garden.py", "--json")
    assert done.returncode == 0
    said: dict[str, Any] = json.loads(done.stdout)  # what the file prints goes to stderr
    assert done.stderr == "planting\n"
    assert list(said) == [
        "target", "server", "problems", "warnings", "tools", "resources", "resourceTemplates", "prompts",
    ]  # fmt: skip
    assert said["server"] == {"name": "garden", "version": "1.2"}
    (tool,) = said["tools"]
    assert tool["name"] == "add"
    assert tool["inputSchema"]["required"] == ["a"]
    assert tool["outputSchema"]

    run("garden.py", "--lock", "garden.json", "--write")
    (tmp_path / "garden.py").write_text(
        GARDEN.replace('    """Add two numbers."""\n', "").replace("b: int = 2", "b: int")
    )
    done = run("garden.py", "--json", "--lock", "garden.json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["changes"][0] == {"where": "tool add", "text": "argument b is now required", "isBreaking": True}
    assert said["warnings"][0]["where"] == "tool add"
    assert said["problems"] == []
    assert run("garden.py", "--json", "--strict").returncode == 1

    done = run("nosuch.py", "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["server"] is None
    assert "no such file" in said["problems"][0]["text"]
