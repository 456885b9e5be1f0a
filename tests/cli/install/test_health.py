"""`mcpd doctor --hosts`: every way in which an entry does not work where it stands, each told with its mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Child

from mcpd.cli.install import checks
from mcpd.cli.install.checks import CheckedFile, CheckedServer, check_hosts, entry_findings, key_findings
from mcpd.client.targets.hosts import HOSTS

SERVE = [sys.executable, "-m", "mcpd", "serve", "--stdio"]
NEEDY = "import os, runpy\nos.environ['GARDEN_SECRET']\nrunpy.run_module('mcpd', run_name='__main__')"

Write = Callable[[str, Any], Path]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, which is the one of this process and of what it starts."""
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLINE_MCP_SETTINGS_PATH", "APPDATA", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return folder


@pytest.fixture
def write(home: Path) -> Write:
    def put(name: str, content: Any) -> Path:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return put


def command(*words: str, **more: Any) -> dict[str, Any]:
    return {"command": words[0], "args": [*words[1:]], **more}


def of(found: list[CheckedFile], host: str) -> CheckedFile:
    (checked,) = (each for each in found if each.host.id == host)
    return checked


def server(checked: CheckedFile, name: str) -> CheckedServer:
    (one,) = (each for each in checked.servers if each.name == name)
    return one


def said(one: CheckedServer) -> str:
    return "\n".join(f"{finding.text} > {finding.advice}" for finding in one.findings)


async def test_nobody_is_here(home: Path) -> None:
    assert await check_hosts(folder=str(home)) == []


async def test_what_works_and_what_does_not(write: Write, home: Path) -> None:
    before = write(
        ".claude.json",
        {
            "numStartups": 3,
            "mcpServers": {
                "good": {"type": "stdio", **command(*SERVE)},
                "again": command(*SERVE),
                "gone": command("/nowhere/bin/mcpd", "serve", "--stdio", "/nowhere/server.py"),
                "broken": command(sys.executable, "-c", "import sys; sys.exit('no soil')"),
                "missing": command("no-such-program-here"),
                "off": command("x", disabled=True),
                "url": {"url": "http://127.0.0.1:9/mcp"},
            },
        },
    ).read_bytes()
    told: list[CheckedFile] = []
    found = await check_hosts(told.append, timeout=30, folder=str(home))
    assert told == found
    (checked,) = found
    assert {one.name: one.state for one in checked.servers} == {
        "good": "works", "again": "works", "gone": "broken", "broken": "broken", "missing": "broken", "off": "off",
        "url": "broken",
    }  # fmt: skip
    good = server(checked, "good")
    assert good.tools > 0
    assert "same server as good" in said(server(checked, "again"))
    assert "/nowhere/bin/mcpd" in said(server(checked, "gone"))
    assert "mcpd uninstall claude-code --name gone" in said(server(checked, "gone"))
    assert server(checked, "broken").stderr_tail == ("no soil",)
    assert "exit code 1" in said(server(checked, "broken"))
    assert "no such program: no-such-program-here" in said(server(checked, "missing"))
    assert 'write "type": "http"' in said(server(checked, "url"))
    assert (home / ".claude.json").read_bytes() == before


async def test_a_variable_that_the_host_keeps_back(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GARDEN_SECRET", "s3cret-value")
    entry = command(sys.executable, "-c", f"import sys; sys.argv[1:] = ['serve', '--stdio']\n{NEEDY}")
    write(".gemini/settings.json", {"mcpServers": {"needy": entry}})
    write(".config/opencode/opencode.json", {"mcp": {"needy": {"type": "local", "command": _words(entry)}}})
    words = f"command = {json.dumps(entry['command'])}\nargs = {json.dumps(entry['args'])}"
    write(".codex/config.toml", f'[mcp_servers.needy]\n{words}\nenv_vars = ["GARDEN_SECRET"]\n')
    found = await check_hosts()
    needy = server(of(found, "gemini-cli"), "needy")
    assert needy.state == "broken"
    assert "add GARDEN_SECRET to its `env`" in said(needy)
    assert "s3cret-value" not in said(needy)
    assert server(of(found, "opencode"), "needy").state == "works"
    assert server(of(found, "codex"), "needy").state == "works"


def _words(entry: dict[str, Any]) -> list[str]:
    return [entry["command"], *entry["args"]]


async def test_files_that_cannot_be_read_and_servers_in_the_wrong_place(write: Write) -> None:
    write(".cursor/mcp.json", '{"mcpServers": {')
    write(".config/Code/User/mcp.json", {"mcpServers": {"lost": command(*SERVE)}, "servers": {}})
    write(".claude.json", '{"mcpServers": {}, // mine\n}')
    write(".config/zed/settings.json", '{"theme": "One", // mine\n "context_servers": {},}')
    found = await check_hosts()
    assert "line 1" in of(found, "cursor").findings[0].text
    (finding,) = of(found, "vscode").findings
    assert (finding.text, finding.advice) == (
        "lost: under `mcpServers`, which VS Code does not read", "move the content of `mcpServers` to `servers`",
    )  # fmt: skip
    assert of(found, "zed").is_well
    assert "comments or trailing commas, line 1" in of(found, "claude-code").findings[0].text
    assert not of(found, "vscode").is_well


@pytest.mark.parametrize(
    ("host", "path", "data", "said"),
    [
        (
            "claude-code",
            ".claude.json",
            b'\xef\xbb\xbf{"mcpServers": {}}',
            "begins with a byte order mark, which Claude",
        ),
        (
            "claude-code",
            ".claude.json",
            b'{"mcpServers": {"a": {"url": "x"}, "a": {}}}',
            "the key 'a' is repeated",
        ),
        ("cursor", ".cursor/mcp.json", b'\xef\xbb\xbf{"mcpServers": {}}', "which Cursor may not read"),
        (
            "vscode",
            ".config/Code/User/mcp.json",
            b'{"servers": {}, // x\n"servers": {}}',
            "the key 'servers' is repeated",
        ),
        ("vscode", ".config/Code/User/mcp.json", b'\xef\xbb\xbf{"servers": {},}', None),
    ],
)
async def test_what_a_host_does_not_read_of_json_is_named(
    write: Write, tmp_path: Path, host: str, path: str, data: bytes, said: str | None
) -> None:
    write(path, {})
    (file,) = tmp_path.rglob(Path(path).name)
    file.write_bytes(data)
    texts = [finding.text for finding in of(await check_hosts(), host).findings]
    assert [text for text in texts if said is None or said in text] == texts
    assert bool(texts) == (said is not None)


async def test_a_projects_file_is_looked_at_and_not_started(write: Write, tmp_path: Path) -> None:
    write(".claude.json", {})
    project = tmp_path / "project"
    project.mkdir()
    trap = command(sys.executable, "-c", f"open({str(tmp_path / 'sprung')!r}, 'w')")
    wrong = {"httpUrl": "https://example.com/mcp"}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"trap": trap, "wrong": wrong}}), encoding="utf-8")
    checked = next(each for each in await check_hosts(folder=str(project)) if each.is_project)
    assert server(checked, "trap").state == "not started"
    assert "write `url` instead of `httpUrl`" in said(server(checked, "wrong"))
    assert not (tmp_path / "sprung").exists()


async def test_what_takes_too_long_is_left(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = command(sys.executable, "-c", "import time; time.sleep(60)")
    write(".cursor/mcp.json", {"mcpServers": {"slow": entry}})
    (checked,) = await check_hosts(timeout=0.5)
    assert "did not answer initialize within 0.5 s" in said(server(checked, "slow"))
    monkeypatch.setattr(checks, "_TOTAL_SECONDS", -1.0)
    (checked,) = await check_hosts(timeout=0.5)
    assert "not tried" in said(server(checked, "slow"))
    assert "mcpd doctor cursor:slow" in said(server(checked, "slow"))


# ------------------------------------------------------------------------------------------- entries


@pytest.mark.parametrize(
    ("host", "entry", "advice"),
    [
        ("gemini-cli", {"url": "https://example.com/mcp"}, "write `httpUrl` instead of `url`"),
        ("qwen-code", {"serverUrl": "https://example.com/mcp"}, "write `httpUrl` instead of `serverUrl`"),
        ("windsurf", {"url": "https://example.com/mcp"}, "write `serverUrl` instead of `url`"),
        ("cursor", {"serverUrl": "https://example.com/mcp"}, "write `url` instead of `serverUrl`"),
        ("goose", {"type": "streamable_http", "url": "https://example.com/mcp"}, "write `uri` instead of `url`"),
        (
            "codex",
            {"url": "https://example.com/mcp", "headers": {"A": "b"}},
            "write `http_headers` instead of `headers`",
        ),
        ("codex", {"url": "https://example.com/mcp", "transport": "http"}, "remove it"),
        ("claude-code", {"url": "https://example.com/mcp", "transport": "http"}, 'write "type": "http"'),
        ("cline", {"url": "https://example.com/mcp"}, 'write "type": "streamableHttp"'),
        ("claude-desktop", {"url": "https://example.com/mcp"}, "Settings > Connectors"),
        ("opencode", {"type": "local", "command": ["/x"], "env": {"A": "b"}}, "write `environment` instead of `env`"),
        ("goose", {"type": "stdio", "command": "/x", "args": []}, "write `cmd` instead of `command`"),
        ("opencode", {"type": "local", "command": "/x"}, "change it"),
        ("cursor", {"command": ["/x", "y"]}, "change it"),
        ("cursor", {"command": "python server.py"}, "write the program alone"),
        ("cursor", {"command": "./server"}, "write its absolute path"),
        ("cursor", {"command": "/x", "args": ["server.py"]}, "write its absolute path"),
        ("cursor", {"command": "~/bin/x"}, f"write {os.path.expanduser('~/bin/x')}"),
        ("claude-desktop", {"command": "/x", "env": {"KEY": "${KEY}"}}, "write the value itself"),
        ("cursor", {"args": []}, "add one of them"),
        ("cursor", "npx", "write an object"),
    ],
)
def test_entries_of_other_hosts(host: str, entry: Any, advice: str) -> None:
    assert advice in "\n".join(finding.advice for finding in entry_findings(HOSTS[host], entry))


@pytest.mark.parametrize(
    ("host", "entry"),
    [
        ("claude-code", {"type": "http", "url": "https://example.com/mcp", "headers": {"A": "${B}"}}),
        ("claude-code", {"type": "sse", "url": "https://example.com/sse"}),
        ("gemini-cli", {"url": "https://example.com/sse"}),
        ("gemini-cli", {"httpUrl": "https://example.com/mcp", "headers": {}}),
        ("cursor", {"command": "npx", "args": ["-y", "@scope/thing.js@1", "--port", "$PORT"]}),
        ("codex", {"url": "https://example.com/mcp", "bearer_token_env_var": "T"}),
        ("opencode", {"type": "local", "command": ["/x", "/y.py"], "enabled": True, "environment": {}}),
        ("vscode", {"type": "stdio", "command": "${workspaceFolder}/x", "args": ["${workspaceFolder}/s.py"]}),
        ("gemini-cli", {"command": "python", "args": ["server.py"], "cwd": "/srv"}),
        ("copilot-jetbrains", {"url": "https://example.com/mcp", "requestInit": {"headers": {}}}),
    ],
)
def test_entries_that_are_well(host: str, entry: Any) -> None:
    assert list(entry_findings(HOSTS[host], entry)) == []


def test_other_settings_are_no_servers() -> None:
    document = {"mcp": {"allowed": ["a"]}, "extensions": {"disabled": ["x"], "ui": {"theme": "x"}}, "mcpServers": {}}
    assert list(key_findings(HOSTS["gemini-cli"], document)) == []


# ------------------------------------------------------------------------------------------- the command


def test_on_the_command_line(write: Write, child: Child, home: Path, tmp_path: Path) -> None:
    write(".cursor/mcp.json", {"mcpServers": {"garden": command(*SERVE), "\x1b[31mred": command("/nowhere/x")}})

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = child.env | {"HOME": str(home)}
        words = tuple(child.mcpd("doctor", "--hosts", *words))
        return subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    done = run()
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"Cursor: {home}/.cursor/mcp.json"
    assert any(line.startswith("  ✓ garden ") for line in lines)
    assert "\x1b" not in done.stdout
    assert lines[-1] == "1 of 2 servers work, 1 does not."

    write(".cursor/mcp.json", {"mcpServers": {"garden": command(*SERVE)}})
    done = run("--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["works"], found["hosts"][0]["servers"][0]["state"]) == (True, "works")
    assert run("server.py").returncode == 2


async def test_goose(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "  memory:\n    type: builtin\n    enabled: true\n"
    entry = (
        f"  garden:\n    type: stdio\n    cmd: {sys.executable}\n    args: {json.dumps(SERVE[1:])}\n    enabled: true\n"
    )
    write(".config/goose/config.yaml", f"# mine\nextensions:\n{own}{entry}")
    (checked,) = await check_hosts()
    assert [(one.name, one.state) for one in checked.servers] == [("garden", "works")]
    # That we cannot read a file for want of a library is no fault of the file.
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    (checked,) = await check_hosts()
    assert checked.is_well
    assert checked.findings[0].advice == "pip install 'mcpd-server[install]'"
