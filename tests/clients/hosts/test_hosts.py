"""Hosts themselves, as they are published: what was installed is in their own list, is started, and is gone after.

Run by `make clients`. Each has a home folder of its own, no account and no network: all that it may reach is a proxy
that nobody is at. Hosts that cannot be had as a package are named in docs/hosts.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from conftest import REPOSITORY, Child

pytestmark = [pytest.mark.clients, pytest.mark.timeout(170)]

HERE = Path(__file__).resolve().parent
NODE = REPOSITORY / ".tools" / "bin" / "node"
PACKAGES = HERE / "node_modules"

SERVER = """
import os
from mcpd import Server

server = Server("garden", version="1.2.0")
with open(os.environ["GARDEN_LOG"], "a") as file:
    file.write("started\\n")

@server.tool
def water(bed: str) -> str:
    "Water a bed."
    return bed
"""

NOBODY = "http://127.0.0.1:9"


class Real(NamedTuple):
    """A host, how its own list is had, and how a server that it has started looks there."""

    id: str
    file: str
    program: Path
    is_script: bool
    words: tuple[str, ...]
    connected: str = ""
    """Empty for one that lists what it has and starts nothing for it."""


REAL = {
    host.id: host
    for host in (
        Real("claude-code", ".claude.json", PACKAGES / ".bin" / "claude", False, ("mcp", "list"),
             "garden: .*Connected"),
        Real("codex", ".codex/config.toml", PACKAGES / ".bin" / "codex", True, ("mcp", "list", "--json")),
        Real("gemini-cli", ".gemini/settings.json", PACKAGES / ".bin" / "gemini", True, ("mcp", "list"),
             "garden: .*Connected"),
        Real("opencode", ".config/opencode/opencode.jsonc", PACKAGES / "opencode-linux-x64" / "bin" / "opencode", False,
             ("mcp", "list"), "garden .*connected"),
        Real("goose", ".config/goose/config.yaml", PACKAGES / "@aaif" / "goose-binary-linux-x64" / "bin" / "goose",
             False, ("info", "-v")),
        Real("copilot-cli", ".copilot/mcp-config.json", PACKAGES / ".bin" / "copilot", True, ("mcp", "list", "--json")),
    )
}  # fmt: skip


class Desk(NamedTuple):
    """Somebody's machine with one host on it."""

    child: Child
    home: Path
    project: Path
    env: dict[str, str]

    def run(self, *words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
        """A program in the project's folder."""
        done = subprocess.run(
            list(map(str, words)), env=self.env, cwd=self.project, capture_output=True, text=True, timeout=90,
            check=False, stdin=subprocess.DEVNULL, **more,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.args}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done

    def mcpd(self, *words: str) -> str:
        """One of our commands: what it prints."""
        return self.run(*self.child.mcpd(*words)).stdout

    def listed(self, host: Real) -> str:
        """The host's own list, without colours."""
        before = (NODE,) if host.is_script else ()
        done = self.run(*before, host.program, *host.words)
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)

    def starts(self) -> int:
        """How often the server was started."""
        log = self.home / "garden.log"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def desk(child: Child, tmp_path: Path) -> Desk:
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home, project):
        folder.mkdir()
    (project / "server.py").write_text(SERVER, encoding="utf-8")
    env = {name: child.env[name] for name in ("PATH", "PYTHONPATH") if name in child.env}
    env |= {"HOME": str(home), "LANG": "C.UTF-8", "HTTPS_PROXY": NOBODY, "HTTP_PROXY": NOBODY, "NO_PROXY": "127.0.0.1"}
    return Desk(child, home, project, env)


def real(name: str) -> Real:
    host = REAL[name]
    if not host.program.exists() or not NODE.exists():
        pytest.skip(f"needs the host {name!r}: make clients installs it")
    return host


def trust(desk: Desk) -> None:
    """Gemini CLI starts nothing, not even its user's own servers, in a folder that nobody has said is trusted."""
    file = desk.home / ".gemini" / "trustedFolders.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({str(desk.project): "TRUST_FOLDER"}), encoding="utf-8")


INSTALL = ("server.py", "--name", "garden")


@pytest.mark.parametrize("name", REAL)
def test_a_host_lists_what_was_installed_and_starts_it(name: str, desk: Desk) -> None:
    host = real(name)
    trust(desk)
    assert "garden" not in desk.listed(host)
    file = desk.home / host.file
    before = file.read_bytes() if file.exists() else None

    log = desk.home / "garden.log"
    desk.mcpd("install", name, *INSTALL, "--env", f"GARDEN_LOG={log}")
    assert desk.starts() == 1, "it is started once before anything is written"
    shown = desk.listed(host)
    assert "garden" in shown
    assert str(desk.project / "server.py") in shown
    if host.connected:
        assert re.search(host.connected, shown, re.DOTALL), shown
        assert desk.starts() > 1, "the host has started it"

    found = json.loads(desk.mcpd("doctor", "--hosts", "--json"))
    (own,) = (each for each in found["hosts"] if each["host"] == name)
    assert [(each["name"], each["state"]) for each in own["servers"]] == [("garden", "works")]

    desk.mcpd("uninstall", name, "--name", "garden")
    assert "garden" not in desk.listed(host)
    if name != "claude-code":  # which writes its file whenever it runs
        assert (file.read_bytes() if file.exists() else None) in (before, b"{}\n" if before is None else before)


def test_claude_code_is_told_by_its_own_command(desk: Desk) -> None:
    host = real("claude-code")
    desk.env["PATH"] = f"{host.program.parent}{os.pathsep}{desk.env['PATH']}"
    log = desk.home / "garden.log"
    desk.mcpd("install", "claude-code", *INSTALL, "--env", f"GARDEN_LOG={log}", "--env", "LEVEL=two words")
    assert re.search(host.connected, desk.listed(host))
    entry = json.loads((desk.home / ".claude.json").read_text(encoding="utf-8"))["mcpServers"]["garden"]
    assert entry["env"]["LEVEL"] == "two words"
    desk.mcpd("uninstall", "claude-code", "--name", "garden")
    assert "garden" not in desk.listed(host)


def test_a_projects_entry_waits_for_approval_in_claude_code(desk: Desk) -> None:
    host = real("claude-code")
    log = desk.home / "garden.log"
    desk.mcpd("install", "claude-code", *INSTALL, "--env", f"GARDEN_LOG={log}", "--project")
    began = desk.starts()
    shown = desk.listed(host)
    assert re.search("garden: .*approv", shown, re.IGNORECASE), shown
    assert desk.starts() == began


def test_codex_gets_the_tools(desk: Desk) -> None:
    """What its app and its extension for editors are made of starts the server, and lists what it has."""
    host = real("codex")
    log = desk.home / "garden.log"
    desk.mcpd("install", "codex", *INSTALL, "--env", f"GARDEN_LOG={log}")
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "mcpd", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "mcpServerStatus/list", "params": {}},
    ]
    answer = _talk([str(NODE), str(host.program), "app-server"], asked, desk)
    (found,) = (each for each in answer["data"] if each["name"] == "garden")
    assert found["serverInfo"]["version"] == "1.2.0"
    assert list(found["tools"]) == ["water"]
    assert desk.starts() == 2


def test_goose_gives_the_tools_to_its_model(desk: Desk) -> None:
    """Its first request to a model, of which there is none here, has those of the server that it has started."""
    host = real("goose")
    desk.mcpd("install", "goose", *INSTALL, "--env", f"GARDEN_LOG={desk.home / 'garden.log'}")
    offered: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _model(offered)) as model:
        thread = Thread(target=model.serve_forever)
        thread.start()
        desk.env.update(
            GOOSE_PROVIDER="openai",
            GOOSE_MODEL="gpt-4o",
            GOOSE_DISABLE_KEYRING="1",
            OPENAI_API_KEY="none",
            OPENAI_HOST=f"http://127.0.0.1:{model.server_port}",
        )
        try:
            desk.run(host.program, "run", "--no-session", "-t", "water the beds")
        finally:
            model.shutdown()
            thread.join()
    assert "garden__water" in offered
    assert desk.starts() == 2


@pytest.mark.parametrize("tool", ["grow", "count"])
def test_claude_code_calls_a_tool_that_can_be_a_task_and_one_in_a_process(tool: str, desk: Desk) -> None:
    """Without an account: its model is a program here, which calls the tool. Tasks are not offered to servers then."""
    host = real("claude-code")
    (desk.project / "server.py").write_text(LONG_RUNNING, encoding="utf-8")
    desk.mcpd("install", "claude-code", *INSTALL)
    name = f"mcp__garden__{tool}"
    with ThreadingHTTPServer(("127.0.0.1", 0), _calls(name)) as model:
        thread = Thread(target=model.serve_forever)
        thread.start()
        desk.env.update(
            ANTHROPIC_BASE_URL=f"http://127.0.0.1:{model.server_port}",
            ANTHROPIC_API_KEY="none",
            ENABLE_TOOL_SEARCH="false",  # otherwise its first request has no tools of servers
            MCP_CONNECTION_NONBLOCKING="0",
        )
        try:
            said = desk.run(host.program, "-p", "go on", "--allowedTools", name, "--output-format", "json").stdout
        finally:
            model.shutdown()
            thread.join()
    assert f"{tool} in another process: {tool == 'count'}" in json.loads(said)["result"]


LONG_RUNNING = """
import asyncio, os
from mcpd import Context, Server

server = Server("garden", version="1.2.0")

@server.tool(task="auto", task_after=0)
async def grow(ctx: Context) -> str:
    for step in range(3):
        await asyncio.sleep(0.2)
        await ctx.progress(step, 3)
    return f"grow in another process: {BEFORE != os.getpid()}"

@server.tool(process=True)
def count() -> str:
    return f"count in another process: {BEFORE != os.getpid()}"

BEFORE = os.getpid()
"""


def _calls(tool: str) -> type[BaseHTTPRequestHandler]:
    """A model that calls a tool, and then repeats its result."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            offered = {each.get("name") for each in asked.get("tools", ())}
            parts = [
                part for each in asked["messages"] if isinstance(each["content"], list) for part in each["content"]
            ]
            results = [part["content"] for part in parts if part["type"] == "tool_result"]
            block: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": json.dumps(results)}
            if tool in offered and not results:
                block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": "{}"}
            usage = {"input_tokens": 1, "output_tokens": 1}
            message = {"id": "m", "type": "message", "role": "assistant", "model": asked["model"], "content": [],
                       "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
            reason = {"stop_reason": "tool_use" if "id" in block else "end_turn", "stop_sequence": None}
            events = (
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": reason, "usage": usage},
                {"type": "message_stop"},
            )
            data = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    return Handler


def _model(offered: list[str]) -> type[BaseHTTPRequestHandler]:
    """Somebody who notes the tools that a host's model may use, and knows no account."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            offered.extend(tool["function"]["name"] for tool in asked.get("tools", ()))
            self.send_response(401)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    return Handler


def _talk(words: list[str], asked: list[dict[str, Any]], desk: Desk) -> dict[str, Any]:
    """Say these messages to a program, and give the result of the last of them."""
    program = subprocess.Popen(
        words, env=desk.env, cwd=desk.project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        program.stdin.write("".join(f"{json.dumps(message)}\n" for message in asked))
        program.stdin.flush()
        for line in program.stdout:
            said = json.loads(line)
            if said.get("id") == asked[-1]["id"]:
                result: dict[str, Any] = said["result"]
                return result
        raise AssertionError("it ended without an answer")
    finally:
        program.kill()
        program.wait()
        program.stdin.close()
        program.stdout.close()
