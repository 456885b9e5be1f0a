"""Servers of others on the command line: `mcpd serve … -- command`, mcpServers files, `mcpd connect`, `mcpd mounts`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.wires import LEGACY, MODERN, process_wire

from mcpd import Server
from mcpd.cli.commands.mounts import lines_of
from mcpd.cli.target import command_in, names_mount
from mcpd.errors import ConfigurationError
from mcpd.server.observe.report import MountStatus
from mcpd.server.observe.watching import mounts_of as status_of
from mcpd.sources.mounts.targets import named_here

SERVER = """
from mcpd import Server
server = Server("up", instructions="Use up.")
@server.tool
async def who() -> str:
    return "up"
"""


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def up(tmp_path: Path, child: Child) -> list[str]:
    (tmp_path / "up.py").write_text(SERVER)
    return child.mcpd("serve", "--stdio", str(tmp_path / "up.py"))


async def names(wire: Any) -> list[str]:
    return [each["name"] for each in (await wire.result("tools/list"))["tools"]]


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_a_command_is_served_as_it_is(
    version: str, up: list[str], child: Child, environment: dict[str, str]
) -> None:
    async with process_wire(child, "--", *up, env=environment) as wire:
        assert (await wire.open(version))["instructions"] == "Use up."
        assert await names(wire) == ["who"]
        assert await wire.text("who") == "up"


async def test_beside_others_it_gets_a_prefix(
    up: list[str], child: Child, environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {name: {"command": up[0], "args": up[1:]} for name in ("a", "b")}}))
    own = str(tmp_path / "up.py")
    async with process_wire(child, own, str(file), version=MODERN, env={**child.env, **environment}) as wire:
        assert await names(wire) == ["who", "a_who", "b_who"]
    async with process_wire(child, "--only", "b", str(file), version=MODERN, env=environment) as wire:
        assert await names(wire) == ["b_who"]
    async with process_wire(child, "--prefix", "always", f"{file}:a", version=MODERN, env=environment) as wire:
        assert await names(wire) == ["a_who"]


def test_connect_serves_one_server_of_a_file(
    up: list[str], child: Child, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"up": {"command": up[0], "args": up[1:]}}}))
    start = {"protocolVersion": LEGACY[-1], "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start}) + "\n"
    done = subprocess.run(
        child.mcpd("connect", "mcp.json:up"), input=asked, env={**child.env, **environment}, cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "up"


def test_a_mount_of_the_folder_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mcpd.toml").write_text('[mounts.db]\ncommand = ["db"]\n')
    monkeypatch.chdir(tmp_path)
    found = named_here("db")
    assert found is not None
    assert (found.name, getattr(found.target, "command", None)) == ("db", ("db",))
    assert named_here("other") is None


@pytest.mark.parametrize(
    ("target", "words", "expected"),
    [
        (None, ["npx", "-y", "x"], True),
        (None, ["python3", "server.py"], True),
        ("server.py", ["--flag"], False),
        ("server.py", ["word"], False),
        ("https://x.example", ["npx", "x"], True),
        (".", ["npx", "x"], True),
    ],
)
def test_the_words_are_a_command_or_arguments(target: str | None, words: list[str], expected: bool) -> None:
    assert command_in(target, words) == (tuple(words) if expected else ())


def test_what_is_mounted() -> None:
    for target in ("https://x.example/mcp", "ws://x.example", "unix:/run/x.sock", "mcp.json", "mcp.json:db"):
        assert names_mount(target)
    for target in ("server.py", "folder", "package.module:server", "unix", "old.json.d/server.py"):
        assert not names_mount(target)


def test_a_setting_that_is_unknown_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mcpd.toml").write_text('[mounts.db]\ncommand = ["db"]\nalow = ["x"]\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"mounts\.db: unknown setting alow; did you mean allow\?"):
        named_here("db")


async def test_the_status_of_mounts() -> None:
    server = Server("front")
    server.mount("up", Server("up"))
    server.mount("db", ["db", "--token", "secret"], start_timeout=5)
    (up, db) = await asyncio.to_thread(status_of, server)
    assert (up.name, up.state, up.target) == ("up", "not started", "Server")
    assert "secret" not in db.target
    failed = MountStatus(name="db", target="db", state="failed", era="legacy", calls=2, failures=1, last_error="why")
    assert list(lines_of(failed)) == ["  mount db: failed, legacy, 0 running, 2 calls, 1 failures  db", "    why"]
    await server.aclose()
