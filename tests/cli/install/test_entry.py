"""What a host is told of a server: nothing in it is looked for on a PATH or in a working folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mcpd import __version__
from mcpd.cli.install.entry import (
    SWITCHES,
    Entry,
    as_target,
    make_entry,
    serving_command,
    start_words,
    temporary_environment,
    without_spaces,
)
from mcpd.errors import ConfigurationError

SERVER = "from mcpd import Server\n\nserver = Server('garden')\n"


def program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_file_is_served_by_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "garden").mkdir()
    file = tmp_path / "garden" / "server.py"
    file.write_text(SERVER)
    monkeypatch.chdir(tmp_path)

    made = make_entry("garden/server.py:server", env={"BED": "north", **SWITCHES["--no-apps"][0]})
    entry = made.entry
    assert os.path.isabs(entry.command)
    assert entry.args[-3:] == ("serve", "--stdio", f"{file}:server")
    assert entry.env == {"BED": "north", "MCP_APPS_ENABLED": "false"}
    assert made.name == "garden"  # "server" would say nothing
    assert make_entry("garden").entry.args[-1] == str(tmp_path / "garden")


def test_the_entry_starts_where_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module beside us, started in the root folder with next to no variables."""
    (tmp_path / "herbs.py").write_text(SERVER)
    monkeypatch.chdir(tmp_path)
    entry = make_entry("herbs:server").entry
    assert entry.env == {"PYTHONPATH": str(tmp_path)}

    ask = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ask}) + "\n"
    words, env = [entry.command, *entry.args], {"PATH": "", **entry.env}
    done = subprocess.run(words, input=line, capture_output=True, text=True, timeout=60, cwd="/", env=env, check=False)
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "garden", done.stderr


def test_an_installed_module_needs_no_folder() -> None:
    assert make_entry("mcpd.sources.demo:make_server").entry.env == {}


def test_programs_are_found_now_or_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = program(tmp_path / "bin", "npx-like")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    made = make_entry(None, ["npx-like", "-y", "@someone/server-files@1.2"])
    assert made == make_entry(None, [str(found), "-y", "@someone/server-files@1.2"])
    assert (made.entry.command, made.name) == (str(found), "server-files")

    # A file of the folder here is looked for elsewhere by every host.
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "run"):
        (tmp_path / name).touch()
    made = make_entry(None, ["npx-like", "run", "mine.py", "other.py"])
    assert made.entry.args == ("run", str(tmp_path / "mine.py"), "other.py")
    assert made.warnings == (f"mine.py is written as {tmp_path / 'mine.py'}",)
    with pytest.raises(ConfigurationError, match="no such program"):
        make_entry(None, ["npx-unlike"])


def test_batch_files_are_started_by_the_shell() -> None:
    npx = r"C:\Program Files\nodejs\npx.CMD"
    assert start_words(npx, ["-y", "x"], platform="win32", environment={"COMSPEC": r"C:\cmd.exe"}) == (
        r"C:\cmd.exe", "/c", npx, "-y", "x",
    )  # fmt: skip
    assert start_words(npx, [], platform="linux") == (npx,)
    assert start_words(r"C:\uv.exe", ["x"], platform="win32") == (r"C:\uv.exe", "x")


SHORT = {
    r"C:\Program Files": r"C:\PROGRA~1",
    r"C:\Program Files\nodejs\npx.CMD": r"C:\PROGRA~1\nodejs\npx.CMD",
    r"C:\Users\Ada L": r"C:\Users\ADAL~1",
    r"C:\Users\Ada L\longgarden": r"C:\Users\ADAL~1\LONGGA~1",
    r"C:\Users\Ada L\longgarden\my server.py": r"C:\Users\ADAL~1\LONGGA~1\MYSERV~1.PY",
}
"""What Windows says of these paths: all parts are short, of those without spaces too."""
MINE = r"C:\Users\Ada L\longgarden\my server.py"


def on_windows(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return without_spaces(words, platform="win32", short=lambda path: SHORT.get(path, ""))


@pytest.mark.parametrize(
    ("word", "plain"),
    [
        (r"C:\Program Files\nodejs\npx.CMD", r"C:\PROGRA~1\nodejs\npx.CMD"),
        (MINE, r"C:\Users\ADAL~1\longgarden\MYSERV~1.PY"),
        (f"{MINE}:server", r"C:\Users\ADAL~1\longgarden\MYSERV~1.PY:server"),
        (r"C:\Other Place\x.exe", r"C:\Other Place\x.exe"),
        (r"C:\none\x.exe", r"C:\none\x.exe"),
        ("two words", "two words"),
    ],
)
def test_paths_with_spaces_are_short_on_windows(word: str, plain: str) -> None:
    (said, made), warnings = on_windows(["x", word])
    assert (said, made, warnings) == ("x", plain, ())
    assert without_spaces([word], platform="linux") == without_spaces([word], platform="darwin") == ((word,), ())
    # Only the program is told: what is an argument, a shell may quote.
    assert [word in each for each in on_windows([word])[1]] == ([True] if " " in plain else [])


def test_entries_on_windows_have_short_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpd.cli.install.entry.without_spaces", on_windows)
    monkeypatch.setattr("mcpd.cli.install.entry._program", lambda word, cwd: r"C:\Program Files\nodejs\npx.CMD")
    made = make_entry(None, ["npx", "-y", MINE])
    assert [made.entry.command, *made.entry.args][-3:] == [
        r"C:\PROGRA~1\nodejs\npx.CMD", "-y", r"C:\Users\ADAL~1\longgarden\MYSERV~1.PY",
    ]  # fmt: skip
    monkeypatch.setattr("mcpd.cli.install.entry.serving_command", lambda: ((r"C:\Other Place\mcpd.exe", "serve"), ()))
    (tmp_path / "server.py").touch()
    made = make_entry(str(tmp_path / "server.py"))
    assert made.entry.command == r"C:\Other Place\mcpd.exe"
    (warning,) = made.warnings
    assert "has a space in it, and no short name here" in warning


def test_urls() -> None:
    made = make_entry(None, url="http://127.0.0.1:8080/mcp", headers={"Authorization": "Bearer x"})
    assert made.entry == Entry(url="http://127.0.0.1:8080/mcp", headers={"Authorization": "Bearer x"}, transport="http")
    assert "x" not in repr(made.entry).replace("Entry", "")
    assert as_target(made.entry).headers == {"Authorization": "Bearer x"}  # type: ignore[union-attr]
    assert make_entry("ws://localhost:8080/mcp").entry.transport == "ws"
    assert make_entry("https://mcp.example.com/").name == "example"


def test_what_is_copied_from_another_host_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    file = tmp_path / ".mcp.json"
    file.write_text('{"mcpServers": {"github": {"url": "https://h/mcp", "headers": {"X-Key": "${KEY}"}}}}')
    made = make_entry(f"{file}:github")
    assert (made.name, made.entry.headers) == ("github", {"X-Key": "s3cret"})
    (warning,) = made.warnings
    assert "X-Key are copied as they are now" in warning
    assert "s3cret" not in warning


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "x", "url": "http://h/"}, "one of TARGET"),
        ({"target": None, "url": "server.py"}, "no such file|needs the URL"),
        ({"target": None, "url": "http://h/mcp", "env": {"A": "b"}}, "this one is already running"),
        ({"target": "unix:/run/mcpd.sock"}, "cannot connect to unix sockets"),
        ({"target": None, "env": {"A": "\udcff"}}, "A: its value is not UTF-8"),
        ({"target": None, "url": "http://h/mcp", "headers": {"A": "\udcff"}}, "A: its value is not UTF-8"),
        ({"target": "\udcff.py"}, r"\\udcff.py is not UTF-8"),
        ({"target": None, "command": ["true"], "headers": {"A": "b"}}, "only for a server behind a URL"),
    ],
)
def test_what_cannot_be(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make_entry(**given)  # type: ignore[arg-type]


def test_a_folder_that_nobody_named_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="name it"):
        make_entry(None)
    (tmp_path / "mcpd.toml").write_text("")
    assert make_entry(None).entry.args[-1] == str(tmp_path)


@pytest.mark.parametrize(
    ("path", "maker"),
    [
        ("~/.cache/uv/archive-v0/a1b2/bin/python", "uvx"),
        ("~/.cache/uv/environments-v2/tool-1/bin/python3", "uvx"),
        ("~/Library/Caches/uv/builds-v0/.tmpAb/bin/python", "uvx"),
        ("~/.local/share/pipx/.cache/d41d8/bin/python", "pipx"),
        ("~/.local/share/pipx/venvs/mcpd-server/bin/python", ""),
        ("~/.local/share/uv/tools/mcpd-server/bin/python", ""),
        ("~/project/.venv/bin/python", ""),
    ],
)
def test_environments_of_one_run_are_known(path: str, maker: str) -> None:
    assert temporary_environment(path.replace("~", "/home/someone"), {}) == maker


def test_what_is_soon_gone_is_not_named(tmp_path: Path) -> None:
    uvx = program(tmp_path / "bin", "uvx")
    python = "/home/someone/.cache/uv/archive-v0/a1/bin/python"
    words, said = serving_command(python, {"PATH": str(uvx.parent)})
    assert words == (str(uvx), "--from", f"mcpd-server[all]=={__version__}", "mcpd", "serve", "--stdio")
    assert "uvx" in said[0]

    words, said = serving_command(python, {"PATH": ""})
    assert words[:3] == (python, "-m", "mcpd")
    assert "install it permanently" in said[0]
    assert temporary_environment(str(tmp_path / "python"), {}) == "temporary"


def test_the_command_of_this_installation_is_taken(tmp_path: Path) -> None:
    """Beside the interpreter, as installers put it; a link to it is not followed."""
    assert os.path.dirname(serving_command()[0][0]) == os.path.dirname(os.path.abspath(sys.executable))
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert serving_command(str(python), {})[0][:3] == (str(python), "-m", "mcpd")
    own = program(python.parent, "mcpd")
    assert serving_command(str(python), {})[0][0] == str(own)
