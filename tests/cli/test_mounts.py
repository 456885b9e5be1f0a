"""Servers of others on the command line: `mcpd serve … -- command`, mcpServers files, `mcpd connect`, `mcpd mounts`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.http_script import Asked, Write, legacy, reply, scripted, text_result
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


TOOL = {"name": "who", "inputSchema": {"type": "object"}, "x-own": 1}
LINES = [
    ("initialize", {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}),
    ("notifications/initialized", None),
    ("ping", None),
    ("tools/list", {}),
    ("prompts/list", None),
    ("ping", {"_meta": {"progressToken": 7}}),
    ("tools/list", {"cursor": "none"}),
    ("tools/call", {"name": "who"}),
    ("tools/list", None),
]


def conversation(version: str) -> bytes:
    messages: list[dict[str, Any]] = []
    for number, (method, params) in enumerate(LINES):
        own = {"params": params} if params is not None else {}
        if method == "initialize":
            own["params"] = {"protocolVersion": version, **LINES[0][1]}
        numbered = {} if method.startswith("notifications/") else {"id": f"{number}\u00e9"}
        messages.append({"jsonrpc": "2.0", **numbered, "method": method, **own})
    return b"".join(json.dumps(each).encode() + b"\n" for each in messages)


async def connected(child: Child, url: str, data: bytes | Path, pieces: int = 0) -> list[bytes]:
    """What `mcpd connect URL` answers: in the order of ids, because answers to calls may change places."""
    with ExitStack() as stack:
        given = stack.enter_context(data.open("rb")) if isinstance(data, Path) else asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *child.mcpd("connect", url), stdin=given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=child.env,
        )  # fmt: skip
    if isinstance(data, bytes) and pieces:
        assert process.stdin is not None
        for at in range(0, len(data), pieces):
            process.stdin.write(data[at : at + pieces])
            await process.stdin.drain()
    rest = None if isinstance(data, Path) else b"" if pieces else data
    out, err = await process.communicate(rest)
    assert process.returncode == 0, err
    return sorted(out.splitlines())


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], child: Child) -> Child:
    child.env.update(environment)
    return child


async def answered(asked: Asked, write: Write) -> bool:
    if asked.rpc == "GET":
        await write(reply(405))
    elif asked.rpc == "tools/call":
        await write(reply(200, text_result(asked, "up")))
    else:
        await write(reply(200, {"jsonrpc": "2.0", "id": asked.id, "result": {"prompts": [{"name": "p"}]}}))
    return True


@pytest.mark.parametrize("version", [LEGACY[0], LEGACY[-1], "1999-01-01"])
async def test_what_is_answered_before_the_first_call_is_what_would_be_answered(
    version: str, known: Child, tmp_path: Path
) -> None:
    """MNT-01, MNT-27: the same bytes, whether the manifest answers with little of mcpd loaded, or the server does."""
    (tmp_path / "asked").write_bytes(conversation(version))
    async with scripted(legacy(answered, tools=[TOOL, {**TOOL, "name": "other"}], prompts={})) as server:
        cold = await connected(known, server.url, conversation(version))
        # A file is never read before the server is loaded.
        late = await connected(known, server.url, tmp_path / "asked")
        early = await connected(known, server.url, conversation(version))
        in_pieces = await connected(known, server.url, conversation(version), 37)
    assert len(early) == len(LINES) - 1
    assert early == late == in_pieces
    assert [line for line in cold if b"tools" in line] == [line for line in early if b"tools" in line]


async def test_lists_need_neither_the_server_nor_asyncio(known: Child) -> None:
    """MNT-27, MNT-43: until the first call the process is small, and nothing is asked upstream."""
    asked = conversation(LEGACY[-1]).splitlines(keepends=True)
    async with scripted(legacy(answered, tools=[TOOL], prompts={})) as server:
        await connected(known, server.url, b"".join(asked))
    unmeasured = {name: value for name, value in known.env.items() if not name.startswith("COV")}
    child = await asyncio.create_subprocess_exec(
        known.python, "-X", "importtime", "-m", "mcpd", "connect", server.url, env=unmeasured,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await child.communicate(b"".join(asked[:5]))
    assert child.returncode == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == [f"{number}\u00e9" for number in (0, 2, 3, 4)]
    loaded = {line.rpartition("|")[2].strip() for line in err.decode().splitlines() if line.startswith("import time:")}
    assert "mcpd.cli.early" in loaded
    assert not loaded & {"asyncio", "ssl", "logging.config", "mcpd.server", "mcpd.client.link", "aiohttp", "tomllib"}
    # The first call needs the server, which has gone since.
    last = (await connected(known, server.url, b"".join(asked[:5] + asked[7:8])))[-1]
    assert json.loads(last)["result"]["isError"] is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_before_the_first_call_ends_it(number: int, known: Child) -> None:
    async with scripted(legacy(answered, tools=[TOOL], prompts={})) as server:
        await connected(known, server.url, conversation(LEGACY[-1]))
        process = await asyncio.create_subprocess_exec(
            *known.mcpd("connect", server.url), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=known.env,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(conversation(LEGACY[-1]).splitlines(keepends=True)[0])
        await process.stdout.readline()
        process.send_signal(number)
        _, err = await process.communicate()
    assert process.returncode == 0
    assert b"the process received SIG" in err


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
