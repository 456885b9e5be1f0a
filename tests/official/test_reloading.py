"""As a new user does it: init, serve, and edit after edit, with one session of the official Python client all the time.

The server is started as hosts start it: what changed is served by itself.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.official_clients import CLIENTS, HERE

pytestmark = pytest.mark.slow

SERVER = """
from mcpd import Server
from words import WORD
server = Server("mine")

@server.tool
def say() -> str:
    return WORD
"""


def run(child: Child, client: str, command: list[str], edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    interpreter, _, installed = CLIENTS[client]
    if not (interpreter.exists() and installed.exists()):
        pytest.skip(f"needs the official client {client!r}: make setup-test installs it")
    done = subprocess.run(
        [interpreter, HERE / "editing_client.py"], input=json.dumps({"command": command, "edits": edits}),
        env=child.env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    report: list[dict[str, Any]] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("client", ["mcp 1", "mcp 2"])
def test_a_folder(child: Child, client: str, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    subprocess.run(child.mcpd("init", str(folder)), env=child.env, check=True, capture_output=True, timeout=100)
    tool, helper = str(folder / "tools" / "more.py"), str(folder / "tools" / "_words.py")
    text = "from _words import WORD\ndef more() -> str:\n    return WORD\n"
    tools = "notifications/tools/list_changed"
    edits = [
        {"write": {helper: "WORD = 'one'\n", tool: text}, "tool": "more", "lists": [tools]},
        {"write": {helper: "WORD = 'two'\n"}, "tool": "more", "lists": [tools]},
        {"write": {str(folder / "prompts" / "p.md"): "Say it."}, "tool": "more", "lists": ["prompts"]},
        {"write": {tool: "def more( -> str\n", str(folder / "prompts" / "q.md"): "Q"}, "tool": "more", "lists": ["q"]},
        {"write": {tool: text.replace("WORD\n", "'three'\n", 2).replace("'three'", "WORD", 1)}, "tool": "more",
         "lists": [tools]},
    ]  # fmt: skip
    report = run(child, client, child.mcpd("serve", "--stdio", str(folder)), edits)
    assert [one["said"] for one in report] == ["one", "two", "two", "two", "three"]
    assert all("more" in one["tools"] for one in report)
    assert [one["heard"] for one in report[:3]] == [[tools], [tools], ["notifications/prompts/list_changed"]]


@pytest.mark.parametrize("client", ["mcp 1", "mcp 2"])
def test_a_file(child: Child, client: str, tmp_path: Path) -> None:
    server, words = tmp_path / "server.py", tmp_path / "words.py"
    server.write_text(SERVER, encoding="utf-8")
    words.write_text("WORD = 'zero'\n", encoding="utf-8")
    tools = "notifications/tools/list_changed"
    more = SERVER + "\n@server.tool\ndef more() -> str:\n    return WORD + '!'\n"
    renamed = more.replace("def more", "def most")
    edits = [
        {"write": {str(server): more}, "tool": "more", "lists": [tools]},
        {"write": {str(server): renamed, str(words): "WORD = 'one'\n"}, "tool": "most", "lists": [tools]},
        {"write": {str(server): more.replace("-> str", "-> list[str]")}, "tool": "say", "lists": [tools]},
    ]  # fmt: skip
    report = run(child, client, child.mcpd("serve", "--stdio", str(server)), edits)
    assert [one["said"] for one in report][:2] == ["zero!", "one!"]
    assert [one["tools"] for one in report] == [["more", "say"], ["most", "say"], ["more", "say"]]
    assert [one["heard"] for one in report] == [[tools]] * 3
