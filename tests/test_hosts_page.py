"""docs/hosts.md says what works: its commands start the server, its addresses are those that mcpd prints."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from mcpd.cli import launch
from mcpd.cli.listening import pointers
from mcpd.server.settings import Options

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "hosts.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHELL = [
    line
    for language, text in BLOCKS
    if language == "sh"
    for line in text.splitlines()
    if not line.startswith(("mcpd install ", "mcpd uninstall ", "mcpd bundle ", "mcpd publish-info ", " "))
]
ENTRIES = [json.loads(text) for language, text in BLOCKS if language == "json"]

COMMAND = ["/path/to/mcpd/.venv/bin/mcpd", "serve", "--stdio"]
HTTP, WS = "http://127.0.0.1:8080/mcp", "ws://127.0.0.1:8080/mcp"


def check(entry: dict[str, Any]) -> None:
    """An entry starts the starter, as README's are started by a test, or names the address of `make serve`."""
    if "command" in entry:
        assert [entry["command"], *entry["args"]] == COMMAND
    else:
        (url,) = [value for key, value in entry.items() if key.lower().endswith("url")]
        assert url == (WS if entry.get("type") == "ws" else HTTP)


def test_the_command_is_one() -> None:
    assert launch.stdio_options(COMMAND[1:], {}) == Options(stdio=True, given=frozenset({"stdio"}))


def test_every_block_is_looked_at() -> None:
    assert {language for language, _ in BLOCKS} == {"sh", "json"}
    assert PAGE.count("```") == 2 * len(BLOCKS)
    assert len(ENTRIES) >= 5


def test_entries_of_files() -> None:
    for block in ENTRIES:
        ((_, servers),) = block.items()
        ((name, entry),) = servers.items()
        assert name == "mcpd"
        check(entry)


def test_lines_for_a_shell() -> None:
    for line in SHELL:
        words = shlex.split(line)
        if words[-1].startswith("{"):
            check(json.loads(words[-1]))
        elif "--" in words:
            assert words[words.index("--") + 1 :] == COMMAND
        else:
            assert words[-1] == HTTP


def test_they_are_what_mcpd_prints() -> None:
    said = "\n".join(pointers(HTTP, "mcpd", Options(http=":8080")) + pointers(WS, "mcpd", Options(ws=":8080")))
    printed = [line for line in SHELL if HTTP in line or WS in line]
    assert sum(line in said for line in printed) == 4
