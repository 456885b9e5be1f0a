"""Hosts that write their file from memory while they run: they are seen, and what they take back is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcpd.cli import _run
from mcpd.cli.install import hosts
from mcpd.cli.install.files import Journal
from mcpd.client.targets.hosts import HOSTS

HOST = """
import os, sys, time
path = sys.argv[1]
memory = open(path, "rb").read()
print("ready", flush=True)
while True:
    if open(path, "rb").read() != memory:
        with open(path + ".new", "wb") as file:
            file.write(memory)
        os.replace(path + ".new", path)
    time.sleep(0.02)
"""

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text("from mcpd import Server\nserver = Server('garden')\n")
    (tmp_path / ".claude.json").write_text('{\n  "numStartups": 3\n}\n')
    return tmp_path


@pytest.fixture
def mcpd(capfd: pytest.CaptureFixture[str]) -> Said:
    def run(*words: str) -> tuple[int, str, str]:
        code = _run(words)
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def claude(home: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that is called as Claude Code is, and holds the file as it was when it began."""
    program = home / "bin" / "claude"
    program.parent.mkdir()
    program.symlink_to(os.path.realpath(sys.executable))
    words = [str(program), "-I", "-S", "-c", HOST, str(home / ".claude.json")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a link")
def test_a_host_that_runs_and_takes_back_what_is_written(home: Path, claude: subprocess.Popen[str], mcpd: Said) -> None:
    file = home / ".claude.json"
    before = file.read_bytes()
    install = ("install", "claude-code", "server.py", "--name", "garden", "--no-start")
    code, out, err = mcpd(*install)
    assert (code, out) == (1, "")
    assert f"Claude Code is running (process {claude.pid})" in err
    assert "quit it and try again" in err
    assert file.read_bytes() == before
    assert mcpd(*install, "--dry-run")[0] == 0
    assert mcpd(*install, "--project=.")[0] == 0  # that file is nobody's but the project's

    code, _, err = mcpd(*install, "--force")
    assert (code, file.read_bytes()) == (1, before)
    assert "has overwritten" in err
    gone = "garden was installed here and has been removed by Claude Code or by hand"
    assert gone in mcpd("install", "--list")[1]
    code, out, _ = mcpd("doctor", "--hosts")
    assert code == 0
    assert "garden was installed here and is missing now: Claude Code or somebody removed it" in out

    claude.kill()
    claude.wait()
    assert mcpd(*install)[0] == 0
    assert list(json.loads(file.read_text())["mcpServers"]) == ["garden"]
    assert "has been removed" not in mcpd("install", "--list")[1]

    # Somebody takes it out by hand, and says so.
    file.write_bytes(before)
    assert gone in mcpd("install", "--list")[1]
    assert mcpd("uninstall", "claude-code", "--name", "garden")[0] == 0
    assert "has been removed" not in mcpd("install", "--list")[1]
    assert Journal().missing_entries(str(file), ()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a link")
def test_a_host_of_another_home_has_another_file(home: Path, claude: subprocess.Popen[str]) -> None:
    host = HOSTS["claude-code"]
    found = hosts.running(host)
    assert found is not None
    assert found.pid == claude.pid
    if sys.platform.startswith("linux"):
        assert hosts.running(host, {"HOME": "/home/nobody-here"}) is None
    assert hosts.running(HOSTS["cursor"]) is None


PS = """\
    1 /sbin/launchd
  812 /Applications/Claude.app/Contents/MacOS/Claude
  813 /Applications/Claude.app/Contents/Frameworks/Claude Helper.app/Contents/MacOS/Claude Helper
  900 /Applications/Xcode 26.app/Contents/MacOS/Xcode
 4711 claude
"""
TASKLIST = """\
"System","4","Services","0","148 K"
"Claude.exe","5120","Console","1","212,040 K"
"claude.exe","6100","Console","1","92,040 K"
"""


@pytest.mark.parametrize(
    ("platform", "said", "found"),
    [
        ("darwin", PS, {"claude-desktop": 812, "claude-code": 4711, "xcode-claude": 900}),
        ("win32", TASKLIST, {"claude-desktop": 5120, "claude-code": 6100, "xcode-claude": None}),
        ("darwin", "", {"claude-desktop": None}),
    ],
)
def test_processes_of_other_systems(
    platform: str, said: str, found: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_output_of", lambda *words: said)
    for id, pid in found.items():
        process = hosts.running(HOSTS[id], {}, platform=platform)
        assert (process.pid if process is not None else None) == pid


def test_a_system_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*words: str) -> str:
        raise FileNotFoundError(words[0])

    monkeypatch.setattr(hosts, "_output_of", missing)
    assert hosts.processes("win32") == hosts.processes("darwin") == []


def test_every_host_that_rewrites_its_file_has_names() -> None:
    assert {id for id, host in HOSTS.items() if host.rewrites} == {id for id, host in HOSTS.items() if host.processes}
