"""`mcpd install` and `mcpd uninstall`: a server is started, a file changed, and people are told what to do now."""

from __future__ import annotations

import base64
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from mcpd.cli import _run

SERVER = """\
import os
from mcpd import Server

server = Server("garden", instructions="Water it. " * 60)

@server.tool
def plant(bed: str) -> str:
    return bed

@server.tool
def a_name_that_is_far_too_long_for_a_host_that_counts_them_and_leaves_it_out() -> str:
    return os.environ["BED"]
"""

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing but a Cursor in it, and a server in the folder where we are."""
    home, garden = tmp_path / "home", tmp_path / "garden"
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "CLINE_MCP_SETTINGS_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    # Whoever has cloned this into a temporary folder is warned, which is tested by itself.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (home / ".cursor").mkdir(parents=True)
    garden.mkdir()
    (garden / "server.py").write_text(SERVER)
    monkeypatch.chdir(garden)
    return home


@pytest.fixture
def mcpd(capfd: pytest.CaptureFixture[str]) -> Said:
    def run(*words: str) -> tuple[int, str, str]:
        code = _run(words)
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def cursor(home: Path) -> Path:
    return home / ".cursor" / "mcp.json"


def test_there_and_back(home: Path, mcpd: Said) -> None:
    before = '{\n  "mcpServers": {\n    "other": {"command": "x"}\n  }\n}\n'
    cursor(home).write_text(before)
    code, out, err = mcpd("install", "cursor", "server.py", "--env", "BED=north", "--no-apps")
    assert (code, err) == (0, "")
    assert "started: garden" in out
    assert "tools (2): plant" in out
    assert "may be missing: names of tools can have" in out  # where the limits of the host bite
    assert f"Cursor: garden added in {cursor(home)}" in out
    assert out.endswith("now: restart Cursor\n")
    entry = json.loads(cursor(home).read_text())["mcpServers"]["garden"]
    assert entry["args"][-3:] == ["serve", "--stdio", str(Path("server.py").absolute())]
    assert entry["env"] == {"BED": "north", "MCP_APPS_ENABLED": "false"}

    written = cursor(home).read_bytes()
    assert mcpd("install", "cursor", "server.py") == (0, f"Cursor: nothing to change, {cursor(home)} has garden\n", "")
    assert cursor(home).read_bytes() == written
    code, out, _ = mcpd("install", "--list")
    assert [line.strip() for line in out.splitlines()] == [f"cursor             {cursor(home)}", "garden, 1 other"]

    code, out, _ = mcpd("uninstall", "cursor")
    assert (code, out.splitlines()[0]) == (0, f"Cursor: garden removed from {cursor(home)}")
    assert cursor(home).read_text() == before
    assert mcpd("uninstall", "cursor", "server.py")[:2] == (
        0,
        f"Cursor: no server server.py in {cursor(home)}; its servers: other\n",
    )
    code, out, _ = mcpd("install", "--undo", "cursor")
    assert (code, cursor(home).read_bytes()) == (0, written)
    assert "as it was before garden was removed" in out


def test_a_server_that_does_not_start_is_not_written(home: Path, mcpd: Said) -> None:
    Path("broken.py").write_text("import sys\nsys.exit('no key: set GARDEN_KEY')\n")
    code, out, err = mcpd("install", "cursor", "broken.py")
    assert (code, out) == (1, "")
    assert "it does not start" in err
    assert "GARDEN_KEY" in err
    assert "--no-start" in err
    assert not cursor(home).exists()
    assert mcpd("install", "cursor", "broken.py", "--no-start")[0] == 0
    assert cursor(home).exists()


def test_a_file_with_secrets_that_others_may_read(home: Path, mcpd: Said) -> None:
    cursor(home).write_text("{}")
    cursor(home).chmod(0o644)
    code, out, _ = mcpd("install", "cursor", "server.py", "--no-start")
    assert (code, "chmod" in out) == (0, False)
    said = (
        f"warning: {cursor(home)} now holds secrets, and other users of this machine may read it (mode 644): chmod 600"
    )
    for variable in ("API_KEY=abcd", "DATABASE_URL=postgres://ada:pw@db/beds"):
        code, out, _ = mcpd("install", "cursor", "server.py", "--no-start", "--env", variable)
        assert (code, out.count(f"{said} {cursor(home)}\n")) == (0, 1)
    cursor(home).chmod(0o600)
    assert "chmod" not in mcpd("install", "cursor", "server.py", "--no-start", "--env", "API_KEY=efgh")[1]


def test_a_file_that_its_host_does_not_read_is_not_written(home: Path, mcpd: Said) -> None:
    file = home / ".config" / "Claude" / "claude_desktop_config.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'{"mcpServers": {}} // mine')
    code, _, err = mcpd("install", "claude-desktop", "server.py", "--no-start")
    assert code == 1
    assert "comments or trailing commas, line 1, which Claude Desktop does not read; remove them" in err
    assert file.read_bytes() == b'{"mcpServers": {}} // mine'

    file.write_bytes(b'{"mcpServers": {"a": {}, "a": {}}}')
    code, out, err = mcpd("install", "claude-desktop", "server.py", "--no-start")
    assert code == 0
    assert "warning: " + f"{file}: the key 'a' is repeated" in out + err


def test_what_is_shown_and_not_done(home: Path, mcpd: Said) -> None:
    code, out, _ = mcpd("install", "cursor", "server.py", "--env", "API_KEY=hunter2hunter2", "--dry-run")
    assert code == 0
    assert '+    "garden": {' in out.splitlines()
    assert "hunter2" not in out

    _, out, _ = mcpd("install", "codex", "server.py", "--print", "--name", "g")
    assert out.startswith("[mcp_servers.g]\ncommand = ")
    _, out, _ = mcpd("install", "cursor", "server.py", "--link")
    query = parse_qs(urlsplit(out.strip()).query)
    entry = json.loads(base64.b64decode(query["config"][0]))
    assert (query["name"], os.path.isabs(entry["command"])) == (["garden"], True)
    _, out, _ = mcpd("install", "vscode", "--http", "http://127.0.0.1:8080/mcp", "--link")
    said = json.loads(unquote(out.strip().removeprefix("vscode:mcp/install?")))
    assert said == {"name": "mcpd", "type": "http", "url": "http://127.0.0.1:8080/mcp"}
    _, out, _ = mcpd("install", "goose", "--link", "--", "true", "a b")
    assert out.startswith("goose://extension?cmd=%2F")
    assert "arg=a%20b" in out
    assert not cursor(home).exists()


def test_json(home: Path, mcpd: Said) -> None:
    code, out, _ = mcpd("install", "cursor", "server.py", "--env", "API_KEY=hunter2hunter2", "--json")
    said = json.loads(out)
    assert (code, said["host"], said["name"], said["change"], said["written"]) == (0, "cursor", "garden", "added", True)
    assert said["started"]["tools"][0] == "plant"
    assert "hunter2" not in out
    (row,) = json.loads(mcpd("install", "--list", "--json")[1])
    assert row["ours"] == ["garden"]
    assert json.loads(mcpd("uninstall", "cursor", "--json")[1])["change"] == "removed"


def test_a_project(home: Path, mcpd: Said) -> None:
    code, out, _ = mcpd("install", "vscode", "server.py", "--project=.", "--no-start")
    assert code == 0
    assert "names paths of this machine" in out
    assert "answer yes when VS Code asks" in out
    assert list(json.loads(Path(".vscode/mcp.json").read_text())["servers"]) == ["garden"]
    assert mcpd("uninstall", "vscode", "--project", ".", "--name", "garden")[0] == 0
    assert os.listdir(".vscode") == []

    # Such a file is often in a repository.
    out = mcpd("install", "vscode", "server.py", "--project=.", "--no-start", "--env", "BED=secret")[1]
    assert "holds the values of BED: if one is secret, do not share it" in out

    # What is said of the way back is the way back.
    held = Path(".vscode/mcp.json").read_bytes()
    for words in (["--project=."], ["--file", ".vscode/mcp.json"]):
        out = mcpd("install", "vscode", "server.py", "--no-start", "--name", "two", *words)[1]
        back = next(line for line in out.splitlines() if "to restore it: " in line).partition("to restore it: mcpd ")[2]
        assert mcpd(*shlex.split(back))[0] == 0
        assert Path(".vscode/mcp.json").read_bytes() == held


def test_the_file_may_change_while_the_server_starts(home: Path, mcpd: Said) -> None:
    """What was written meanwhile stays, and our entry stands beside it."""
    writes = (
        "import pathlib\n"
        f'pathlib.Path({str(cursor(home))!r}).write_text(\'{{"mcpServers": {{"their": {{"command": "x"}}}}}}\')\n'
    )
    Path("server.py").write_text(writes + SERVER)
    code, _, err = mcpd("install", "cursor", "server.py", "--env", "BED=1")
    assert (code, err) == (0, "")
    assert list(json.loads(cursor(home).read_text())["mcpServers"]) == ["their", "garden"]


def test_every_host_that_is_here(home: Path, mcpd: Said) -> None:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text("model = \n")
    code, out, _ = mcpd("install", "--all", "server.py", "--no-start")
    assert code == 1
    assert "Codex: " in out
    assert "line 1, column 9" in out
    assert "garden" in cursor(home).read_text()
    (home / ".codex" / "config.toml").write_text("model = 1\n")
    assert mcpd("install", "--all", "server.py", "--no-start")[0] == 0
    assert mcpd("uninstall", "--all", "server.py")[0] == 0
    assert (home / ".codex" / "config.toml").read_text() == "model = 1\n"


def test_what_its_user_should_know(home: Path, mcpd: Said) -> None:
    _, out, _ = mcpd("install", "windsurf", "server.py", "--no-start")
    assert "Windsurf does not seem to be installed on this machine" in out
    _, out, _ = mcpd("install", "gemini-cli", "server.py", "--no-start", "--env", "PRICE=$5 and $HOME")
    assert "Gemini CLI replaces variables such as $NAME" in out
    (home / ".config" / "devin").mkdir(parents=True)
    (home / ".config" / "devin" / "mcp_config.json").write_text("{")
    code, out, _ = mcpd("uninstall", "--all", "server.py", "--json")
    said = {each["host"]: each for each in json.loads(out)}
    assert (code, said["windsurf"]["change"], said["cursor"]["change"]) == (1, "removed", "none")
    assert "line 1" in said["devin"]["error"]


def test_one_program_with_two_names_has_it_in_both_files(home: Path, mcpd: Said) -> None:
    """Which of the two its version reads is not known."""
    files = [home / ".config" / "devin" / "mcp_config.json", home / ".codeium" / "windsurf" / "mcp_config.json"]
    for file in files:
        file.parent.mkdir(parents=True)
    code, out, _ = mcpd("install", "devin", "server.py", "--no-start")
    assert (code, [word for word in ("Devin: garden added", "Windsurf: garden added") if word not in out]) == (0, [])
    assert [list(json.loads(file.read_text())["mcpServers"]) for file in files] == [["garden"], ["garden"]]
    assert mcpd("uninstall", "windsurf", "--file", str(files[1]))[0] == 0
    assert [file.exists() for file in files] == [True, False]
    assert mcpd("uninstall", "windsurf", "server.py")[0] == 0
    assert not files[0].exists()


FAKE_CLAUDE = """\
#!{python}
import json, os, sys
words, path = sys.argv[1:], os.path.expanduser("~/.claude.json")
open(os.path.expanduser("~/words"), "a").write(json.dumps(words) + "\\n")
if os.environ.get("FAIL"):
    sys.exit("you are not allowed to")
held = json.load(open(path)) if os.path.exists(path) else {{}}
servers = held.setdefault("mcpServers", {{}})
if words[1] == "remove":
    del servers[words[-1]]
elif not os.environ.get("LIE"):
    servers[words[-2]] = json.loads(words[-1])
json.dump(held, open(path, "w"))
"""


def test_claude_code_is_told_by_its_own_command(home: Path, mcpd: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """It rewrites its file while it runs."""
    program = home / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(FAKE_CLAUDE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    file = home / ".claude.json"
    file.write_text('{"numStartups": 3}')

    code, out, _ = mcpd("install", "claude-code", "server.py", "--no-start")
    assert code == 0
    assert f"garden added in {file} by claude mcp" in out
    assert json.loads(file.read_text())["mcpServers"]["garden"]["type"] == "stdio"
    words = json.loads((home / "words").read_text())
    assert words[:6] == ["mcp", "add-json", "--scope", "user", "--", "garden"]
    assert mcpd("uninstall", "claude-code")[0] == 0
    assert json.loads(file.read_text())["mcpServers"] == {}

    held = file.read_bytes()
    for name, said in (("FAIL", "you are not allowed to"), ("LIE", "does not show the")):
        monkeypatch.setenv(name, "1")
        code, _, err = mcpd("install", "claude-code", "server.py", "--no-start")
        assert (code, said in err) == (1, True)
        assert file.read_bytes() == held
        monkeypatch.delenv(name)
    assert mcpd("install", "claude-code", "server.py", "--no-start", "--file", str(file))[0] == 0
    assert file.read_bytes() != held


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["install"], 2, "name a host: claude-desktop, "),
        (["install", "curser"], 1, "did you mean cursor?"),
        (["install", "server.py", "cursor"], 2, "write the host first: HOST server.py"),
        (["install", "cursor", "a", "b"], 2, "leave out 'b'"),
        (["install", "cursor", "server.py", "--env", "x"], 2, "write --env NAME=VALUE"),
        (["install", "cursor", "server.py", "--env", "A B=c"], 2, "write --env NAME=VALUE"),
        (["install", "cursor", "server.py", "--name", "a b"], 1, "letters, digits"),
        (["install", "cursor", "--project", "server.py"], 2, "no such folder"),
        (["install", "cursor", "nothing.py"], 1, "no such file"),
        (["install", "claude-desktop", "--http", "http://h/mcp"], 1, "Settings > Connectors"),
        (["install", "cursor", "--link", "--http", "ws://h/mcp"], 1, "does not support WebSocket"),
        (["install", "zed", "server.py", "--link"], 1, "hosts with links: cursor"),
        (["install", "--undo", "cursor"], 1, "there is nothing to undo"),
        (["install", "--all", "--file", "x"], 2, "leave out --all"),
        (["uninstall", "cursor", "--name", "garden", "--force", "x", "y"], 2, "leave out 'y'"),
    ],
)
def test_wrong_use(words: list[str], code: int, said: str, home: Path, mcpd: Said) -> None:
    got, out, err = mcpd(*words)
    assert (got, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1


def test_several_of_ours(home: Path, mcpd: Said) -> None:
    Path("herbs.py").write_text(SERVER)
    for file in ("server.py", "herbs.py"):
        assert mcpd("install", "cursor", file, "--no-start")[0] == 0
    code, _, err = mcpd("uninstall", "cursor")
    assert code == 1
    assert "has several: garden, herbs; name one: --name NAME" in err
    assert mcpd("uninstall", "cursor", "herbs.py")[0] == 0
    assert list(json.loads(cursor(home).read_text())["mcpServers"]) == ["garden"]


def test_a_forgotten_target_is_asked_for(home: Path, mcpd: Said) -> None:
    for words in (["install", "cursor"], ["call", "query", "sql=1"], ["list"], ["serve", "--stdio"], ["check"]):
        code, out, err = mcpd(*words)
        said = "mcpd: no server was named; name server.py, which is here, or write --demo for the demo server of mcpd"
        assert (code, out, err) == (1, "", f"{said}\n")
    assert "--demo" not in mcpd("bundle")[2]
    assert not cursor(home).exists()

    assert mcpd("install", "cursor", "--demo")[0] == 0
    assert json.loads(cursor(home).read_text())["mcpServers"]["mcpd"]["args"][-1] == "--demo"
    assert mcpd("call", "--demo", "echo", "text=hi") == (0, "hi\n", "")
    assert mcpd("call", "--demo", "server.py", "plant")[0] == 2

    Path("server.py").unlink()
    Path("script.py").write_text("from mcpd import Client\n")
    assert "warning: no server was named, so this is the demo server of mcpd" in mcpd("install", "cursor")[1]
    said = "mcpd: no server was named, so this is the demo server of mcpd\n"
    assert mcpd("call", "echo", "text=hi") == (0, "hi\n", said)
    Path("beds").mkdir()
    Path("beds", "mcpd.toml").touch()
    assert "name beds, which is here" in mcpd("list")[2]


def test_an_entry_is_named_after_its_server(home: Path, mcpd: Said) -> None:
    Path("beds.py").write_text(SERVER)
    assert "would be" not in mcpd("install", "cursor", "beds.py", "--dry-run")[1]
    assert not cursor(home).exists()
    assert mcpd("install", "cursor", "beds.py")[0] == 0
    assert [*json.loads(cursor(home).read_text())["mcpServers"]] == ["garden"]
    code, out, _ = mcpd("install", "cursor", "beds.py", "--no-start")
    assert (code, out) == (0, f"Cursor: nothing to change, {cursor(home)} has garden\n")
    assert mcpd("install", "cursor", "server.py", "--no-start", "--name", "beds")[0] == 0
    assert [*json.loads(cursor(home).read_text())["mcpServers"]] == ["garden", "beds"]


def test_a_server_is_taken_out_by_its_name(home: Path, mcpd: Said) -> None:
    cursor(home).write_text('{"mcpServers": {"other": {"command": "x"}}}')
    for name in ("own", "more"):
        assert mcpd("install", "cursor", "server.py", "--no-start", "--name", name)[0] == 0
    code, out, err = mcpd("uninstall", "cursor", "onw")
    assert (code, out) == (1, "")
    assert f"no server onw in {cursor(home)}; its servers: other, own, more; as a target: onw: " in err
    assert mcpd("uninstall", "cursor", "own")[1].startswith("Cursor: own removed from")
    assert mcpd("uninstall", "cursor", "other")[0] == 1  # mcpd install has not written it
    code, out, _ = mcpd("uninstall", "cursor", "--name", "own")
    assert (code, out) == (
        0,
        f"Cursor: nothing to change, {cursor(home)} does not have own; its servers: other, more\n",
    )
    assert mcpd("uninstall", "cursor", "more")[0] == 0
    said = f"Cursor: no server that mcpd install has added in {cursor(home)}; its servers: other\n"
    assert mcpd("uninstall", "cursor")[:2] == (0, said)
