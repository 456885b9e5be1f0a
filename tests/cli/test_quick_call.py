"""`mcpd call` without click reads a line as click does, or leaves it to click; it loads only what it uses."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from conftest import Child

from mcpd.cli import call as by_click
from mcpd.cli.quick_call import read
from mcpd.cli.talk.calling import CallOptions
from mcpd.cli.talk.reach import Reach


@pytest.mark.parametrize(
    "line",
    [
        "call echo text=hi",
        "call echo text=-5",
        "call a.py echo text=hi --json",
        "call --json a.py echo -",
        "call echo text=hi -- npx -y some-server --json",
        "call a.py",
        "call",
    ],
)
def test_it_reads_what_click_reads(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = line.split()
    found = read(words)
    assert found is not None
    names, command, as_json = found

    seen: list[Any] = []
    monkeypatch.setattr(by_click, "run", lambda work, reach: seen.append((work, reach)) or 0)
    with by_click.command.make_context("mcpd call", words[1:]) as ctx:
        assert by_click.command.invoke(ctx) == 0
    (work, reach) = seen[0]
    options = next(cell.cell_contents for cell in work.__closure__ if isinstance(cell.cell_contents, CallOptions))

    from mcpd.cli.talk.words import split_words

    target, tool, arguments = split_words(names, command, "tool")
    assert reach == Reach(target=target, command=command)
    assert options == CallOptions(tool=tool, words=tuple(arguments), as_json=as_json)


@pytest.mark.parametrize(
    "line",
    ["list", "call --help", "call -h", "call echo --output x", "call echo -o x", "call echo --", "serve --stdio"],
)
def test_all_else_is_left_to_click(line: str) -> None:
    assert read(line.split()) is None
    assert read([]) is None


NOT_FOR_A_CALL = {
    "click", "email", "http", "importlib.metadata", "urllib.request", "websockets", "webbrowser", "mimetypes",
    "mcpd.cli.commands", "mcpd.cli.talk.forms", "mcpd.cli.talk.tables", "mcpd.server", "mcpd.client.targets.grammar",
}  # fmt: skip


def test_a_call_loads_only_what_it_uses(child: Child) -> None:
    env = {name: value for name, value in child.env.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [child.python, "-X", "importtime", "-m", "mcpd", "call", "echo", "text=hi"], env=env,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stdout == b"hi\n"
    lines = done.stderr.decode().splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "mcpd.client.session" in loaded, "the list of imports was not read"
    assert not loaded & NOT_FOR_A_CALL
