"""What is said where a server listens, and what Claude Desktop is told."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from mcpd import Principal
from mcpd.auth.base import TokenRequest
from mcpd.auth.static_tokens import StaticTokens
from mcpd.auth.token_function import TokenFunction
from mcpd.cli.announcement import addresses, claude_desktop, pointers
from mcpd.serve_options import Options


def test_the_addresses_and_what_to_copy() -> None:
    """HTTP and WebSocket are on one port; each host gets the words that it understands."""
    options = Options(http=":1")
    url = "http://127.0.0.1:1/mcp"
    assert addresses(url, options) == [
        f"mcpd: listening on {url} (Ctrl-C ends it)",
        "mcpd: and for WebSocket on ws://127.0.0.1:1/mcp",
    ]
    said = pointers(url, "garden", options)
    assert f"  Claude Code  claude mcp add --transport http garden {url}" in said
    assert f"  Inspector    npx @modelcontextprotocol/inspector --transport http --server-url {url}" in said
    (line,) = [line for line in said if "VS Code" in line]
    assert json.loads(shlex.split(line)[-1]) == {"name": "garden", "type": "http", "url": url}
    assert json.loads(said[-1]) == {"mcpServers": {"garden": claude_desktop(None)}}
    assert "claude_desktop_config.json" in said[-2]


def test_hosts_without_websocket_start_the_server_themselves() -> None:
    url = "ws://127.0.0.1:1/mcp"
    assert addresses(url, Options(ws=":1")) == [f"mcpd: listening on {url} (Ctrl-C ends it)"]
    claude, code, inspector = pointers(url, "garden", Options(ws=":1"))[1:4]
    assert shlex.split(claude)[2:6] == ["claude", "mcp", "add-json", "garden"]
    assert json.loads(shlex.split(claude)[-1]) == {"type": "ws", "url": url}
    assert json.loads(shlex.split(code)[-1]) == {"name": "garden", **claude_desktop(None)}
    entry = claude_desktop(None)
    assert shlex.split(inspector)[3:] == ["--", entry["command"], *entry["args"]]


def test_a_token_is_asked_for_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPD_TOKEN", "secret")
    for url, options in (("http://127.0.0.1:1/mcp", Options(http=":1")), ("ws://127.0.0.1:1/mcp", Options(ws=":1"))):
        said = "\n".join(pointers(url, "garden", options))
        assert "Authorization" in said
        assert "Bearer TOKEN" in said
        assert "secret" not in said


def test_one_of_the_tokens_of_a_file_is_asked_for() -> None:
    tokens = StaticTokens({"0123456789abcdef": Principal("ada")})
    said = "\n".join(pointers("http://127.0.0.1:1/mcp", "garden", Options(http=":1", auth=tokens)))
    assert said.count("Bearer TOKEN") == 3
    assert "0123456789abcdef" not in said


def test_hosts_that_log_in_are_given_the_url_that_tokens_are_made_for() -> None:
    """AUTH-006, AUTH-163: by any other a host stops, as the metadata names another resource."""
    public = "https://tools.example.com/mcp"

    async def nobody(token: str, request: TokenRequest) -> Principal | None:
        return None

    auth = TokenFunction(nobody, issuers=["https://idp.example.com"], public_url=public)
    said = pointers("http://127.0.0.1:1/mcp", "garden", Options(http=":1", auth=auth))
    assert f"  Claude Code  claude mcp add --transport http garden {public}" in said
    assert f"  Inspector    npx @modelcontextprotocol/inspector --transport http --server-url {public}" in said
    (line,) = [line for line in said if "VS Code" in line]
    assert json.loads(shlex.split(line)[-1]) == {"name": "garden", "type": "http", "url": public}


def test_names_are_such_as_hosts_take() -> None:
    said = "\n".join(pointers("http://127.0.0.1:1/mcp", "My garden; rm -rf", Options(http=":1")))
    assert "add --transport http My-garden-rm--rf http://" in said
    assert " mcpd http://" in "\n".join(pointers("http://127.0.0.1:1/mcp", "…", Options(http=":1")))


def test_who_was_started_by_a_host_is_told_the_address_only() -> None:
    assert len(addresses("ws://127.0.0.1:1/mcp", Options(ws=":1", stdio=True))) == 1
    assert pointers("ws://127.0.0.1:1/mcp", "garden", Options(ws=":1", stdio=True)) == []


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_all_addresses_of_the_machine(scheme: str) -> None:
    """By 127.0.0.1 other machines reach themselves: they are told an address that leads here."""
    given = "0.0.0.0:1"
    said = addresses(f"{scheme}://127.0.0.1:1/mcp", Options(ws=given) if scheme == "ws" else Options(http=given))
    assert said[0] == f"mcpd: listening on {scheme}://127.0.0.1:1/mcp (Ctrl-C ends it)"
    found = re.fullmatch(rf"mcpd: other machines reach it at {scheme}://([^/:]+):1/mcp", said[-1])
    assert found is not None
    assert found[1] == "ADDRESS-OF-THIS-MACHINE" or not found[1].startswith(("0.", "127."))


def test_a_name_that_was_given_is_the_name_that_is_announced() -> None:
    """Only by that name are requests served; see `Guard`."""
    said = addresses("http://192.0.2.7:1/mcp", Options(http="Garden.example:1"))
    assert said[0].startswith("mcpd: listening on http://garden.example:1/mcp ")
    assert said[1] == "mcpd: and for WebSocket on ws://garden.example:1/mcp"
    assert addresses("ws://[::1]:1/mcp", Options(ws="[::1]:1"))[0].startswith("mcpd: listening on ws://[::1]:1/mcp ")


def test_a_unix_socket() -> None:
    url = "unix:/run/mcpd.sock (http://localhost/mcp)"
    assert len(addresses(url, Options(http="unix:/run/mcpd.sock"))) == 1
    assert "claude mcp add garden -- " in "\n".join(pointers(url, "garden", Options(http="unix:/run/mcpd.sock")))


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
