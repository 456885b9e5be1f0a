"""What is said where a server listens, and what Claude Desktop is told."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpd import Principal
from mcpd.auth.base import TokenRequest
from mcpd.auth.settings import StaticTokens, TokenFunction
from mcpd.cli import _run
from mcpd.cli.listening import addresses, pointers, stdio_entry
from mcpd.server.settings import Options


def demo(**said: Any) -> Options:
    return Options(target="--demo", **said)


def test_the_addresses_and_what_to_copy() -> None:
    """HTTP and WebSocket are on one port; each host gets the words that it understands."""
    options = demo(http=":1")
    url = "http://127.0.0.1:1/mcp"
    assert addresses(url, options) == [
        f"mcpd: listening on {url} (Ctrl-C stops it)",
        "mcpd: listening for WebSocket on ws://127.0.0.1:1/mcp",
    ]
    said = pointers(url, "garden", options)
    assert f"  Claude Code  claude mcp add --transport http garden {url}" in said
    assert f"  Inspector    npx @modelcontextprotocol/inspector --transport http --server-url {url}" in said
    (line,) = [line for line in said if "VS Code" in line]
    assert json.loads(shlex.split(line)[-1]) == {"name": "garden", "type": "http", "url": url}
    entry = stdio_entry(options)
    assert entry.args[-1] == "--demo"
    assert json.loads(said[-1]) == {"mcpServers": {"garden": {"command": entry.command, "args": [*entry.args]}}}
    assert "claude_desktop_config.json" in said[-2]


def test_hosts_without_websocket_start_the_server_themselves() -> None:
    url = "ws://127.0.0.1:1/mcp"
    assert addresses(url, demo(ws=":1")) == [f"mcpd: listening on {url} (Ctrl-C stops it)"]
    claude, code, inspector = pointers(url, "garden", demo(ws=":1"))[1:4]
    assert shlex.split(claude)[2:6] == ["claude", "mcp", "add-json", "garden"]
    assert json.loads(shlex.split(claude)[-1]) == {"type": "ws", "url": url}
    entry = stdio_entry(demo(ws=":1"))
    assert json.loads(shlex.split(code)[-1]) == {"name": "garden", "command": entry.command, "args": [*entry.args]}
    assert shlex.split(inspector)[3:] == ["--", entry.command, *entry.args]


def test_a_token_is_asked_for_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPD_TOKEN", "secret")
    for url, options in (("http://127.0.0.1:1/mcp", demo(http=":1")), ("ws://127.0.0.1:1/mcp", demo(ws=":1"))):
        said = "\n".join(pointers(url, "garden", options))
        assert "Authorization" in said
        assert "Bearer TOKEN" in said
        assert "secret" not in said


def test_one_of_the_tokens_of_a_file_is_asked_for() -> None:
    tokens = StaticTokens({"0123456789abcdef": Principal("ada")})
    said = "\n".join(pointers("http://127.0.0.1:1/mcp", "garden", demo(http=":1", auth=tokens)))
    assert said.count("Bearer TOKEN") == 3
    assert "0123456789abcdef" not in said


def test_hosts_that_log_in_are_given_the_url_that_tokens_are_made_for() -> None:
    """AUTH-006, AUTH-163: by any other a host stops, as the metadata names another resource."""
    public = "https://tools.example.com/mcp"

    async def nobody(token: str, request: TokenRequest) -> Principal | None:
        return None

    auth = TokenFunction(nobody, issuers=["https://idp.example.com"], public_url=public)
    said = pointers("http://127.0.0.1:1/mcp", "garden", demo(http=":1", auth=auth))
    assert f"  Claude Code  claude mcp add --transport http garden {public}" in said
    assert f"  Inspector    npx @modelcontextprotocol/inspector --transport http --server-url {public}" in said
    (line,) = [line for line in said if "VS Code" in line]
    assert json.loads(shlex.split(line)[-1]) == {"name": "garden", "type": "http", "url": public}


def test_names_are_such_as_hosts_take() -> None:
    said = "\n".join(pointers("http://127.0.0.1:1/mcp", "My garden; rm -rf", demo(http=":1")))
    assert "add --transport http My-garden-rm--rf http://" in said
    assert " mcpd http://" in "\n".join(pointers("http://127.0.0.1:1/mcp", "…", demo(http=":1")))


def test_who_was_started_by_a_host_is_told_the_address_only() -> None:
    assert len(addresses("ws://127.0.0.1:1/mcp", demo(ws=":1", stdio=True))) == 1
    assert pointers("ws://127.0.0.1:1/mcp", "garden", demo(ws=":1", stdio=True)) == []


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_all_addresses_of_the_machine(scheme: str) -> None:
    """By 127.0.0.1 other machines reach themselves: they are told an address that leads here."""
    given = "0.0.0.0:1"
    said = addresses(f"{scheme}://127.0.0.1:1/mcp", demo(ws=given) if scheme == "ws" else demo(http=given))
    assert said[0] == f"mcpd: listening on {scheme}://127.0.0.1:1/mcp (Ctrl-C stops it)"
    found = re.fullmatch(rf"mcpd: other machines connect to {scheme}://([^/:]+):1/mcp", said[-1])
    assert found is not None
    assert found[1] == "ADDRESS-OF-THIS-MACHINE" or not found[1].startswith(("0.", "127."))


def test_a_name_that_was_given_is_the_name_that_is_announced() -> None:
    """Only by that name are requests served; see `Guard`."""
    said = addresses("http://192.0.2.7:1/mcp", demo(http="Garden.example:1"))
    assert said[0].startswith("mcpd: listening on http://garden.example:1/mcp ")
    assert said[1] == "mcpd: listening for WebSocket on ws://garden.example:1/mcp"
    assert addresses("ws://[::1]:1/mcp", demo(ws="[::1]:1"))[0].startswith("mcpd: listening on ws://[::1]:1/mcp ")


def test_a_unix_socket() -> None:
    url = "unix:/run/mcpd.sock (http://localhost/mcp)"
    assert len(addresses(url, demo(http="unix:/run/mcpd.sock"))) == 1
    assert "claude mcp add garden -- " in "\n".join(pointers(url, "garden", demo(http="unix:/run/mcpd.sock")))


SERVER = """
from mcpd import Server

server = Server({name!r})

@server.tool
def {tool}() -> str:
    return "done"
"""
WAYS = {
    "file": (["garden/server.py"], {"water"}),
    "object": (["garden/server.py:server"], {"water"}),
    "module": (["herbs:server"], {"cut"}),
    "folder": (["garden"], {"dig"}),
    "mcpd.toml": ([], {"dig"}),
    "several": (["garden/server.py", "herbs.py"], {"garden_water", "herbs_cut"}),
    "demo": (["--demo"], {"echo"}),
}


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with servers of all kinds in it."""
    (tmp_path / "garden" / "tools").mkdir(parents=True)
    (tmp_path / "garden" / "mcpd.toml").write_text('name = "garden"\n')
    (tmp_path / "garden" / "tools" / "dig.py").write_text('def dig() -> str:\n    return "done"\n')
    (tmp_path / "garden" / "server.py").write_text(SERVER.format(name="garden", tool="water"))
    (tmp_path / "herbs.py").write_text(SERVER.format(name="herbs", tool="cut"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tools_of(words: list[str], env: dict[str, str]) -> set[str]:
    """The tools of a server that is started from /, with the variables of its entry alone, as a host does."""
    meta = {
        f"io.modelcontextprotocol/{name}": value
        for name, value in (
            ("protocolVersion", "2026-07-28"),
            ("clientInfo", {"name": "test", "version": "1"}),
            ("clientCapabilities", {}),
        )
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    done = subprocess.run(
        words, check=False, cwd="/", env=env, input=f"{json.dumps(request)}\n", capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    return {tool["name"] for tool in json.loads(done.stdout.splitlines()[0])["result"]["tools"]}


@pytest.mark.skipif(sys.platform == "win32", reason="the words are for a shell of POSIX")
@pytest.mark.parametrize("way", WAYS)
def test_each_printed_entry_starts_the_server_from_the_root(
    yard: Path, way: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Hosts start servers in a folder of their own, and with variables of their own."""
    targets, wanted = WAYS[way]
    if way == "mcpd.toml":
        monkeypatch.chdir("garden/tools")  # it is above
    options = Options(ws=":1", target=targets[0] if targets else None, more_targets=(*targets[1:],))
    said = pointers("ws://127.0.0.1:1/mcp", "garden", options)
    lines = {line.split()[0]: line for line in said if line.startswith("  ")}

    desktop = json.loads(said[-1])["mcpServers"]["garden"]
    code = json.loads(shlex.split(lines["VS"])[-1])
    inspector = shlex.split(lines["Inspector"])
    entries = [desktop, code, {"command": inspector[3 + 1], "args": inspector[5:]}]
    claude = pointers("unix:/run/x.sock (http://localhost/mcp)", "garden", options)[1]
    entries.append({"command": shlex.split(claude)[7], "args": shlex.split(claude)[8:]})
    started = {json.dumps(entry.get("env", {})): entry for entry in entries}
    for entry in started.values():
        assert tools_of([entry["command"], *entry["args"]], entry.get("env", {})) >= wanted
    commands = [[word for word in [entry["command"], *entry["args"]] if "=" not in word and word != "env"]
                for entry in entries]  # fmt: skip
    assert all(command == commands[0] for command in commands)

    if not said[-3].endswith("--demo") and way != "several":
        capfd.readouterr()
        monkeypatch.setattr("tempfile.tempdir", str(yard))
        words = shlex.split(said[-3].partition(": mcpd install claude-desktop ")[2])
        assert _run(["install", "claude-desktop", *words, "--print", "--name", "garden"]) == 0
        assert json.loads(capfd.readouterr().out) == {"mcpServers": {"garden": desktop}}


def test_every_path_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude Desktop starts programs in another folder and with another PATH."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_MCPD_PYTHON", str(tmp_path / "bin" / "python"))
    Path("server.py").touch()
    entry = stdio_entry(Options(target="server.py:make"))
    assert entry.command == str(tmp_path / "bin" / "python")
    assert entry.args == ("-m", "mcpd", "serve", "--stdio", str(tmp_path / "server.py") + ":make")
    (tmp_path / "bin").mkdir()
    installed = tmp_path / "bin" / "mcpd"
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o755)
    entry = stdio_entry(demo())
    assert (entry.command, entry.args) == (str(installed), ("serve", "--stdio", "--demo"))


def test_a_module_of_the_current_folder_is_found_from_elsewhere(yard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded already where the banner is printed."""
    monkeypatch.setitem(sys.modules, "herbs", type(sys)("herbs"))
    entry = stdio_entry(Options(target="herbs:server"))
    assert entry.args[-1] == "herbs:server"
    assert entry.env == {"PYTHONPATH": str(yard)}
    assert stdio_entry(Options(target="json:server")).env == {}
    assert os.path.isabs(entry.command)
