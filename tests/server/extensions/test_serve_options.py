"""An option that an extension of the target brings: behind the target, in the environment, to `Server.run`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Child
from support.wires import initialize, process_wire

TARGET = """
from typing import Annotated, TypedDict
from mcpd import Server
from mcpd.server.extensions.base import Extension
from mcpd.server.settings import Option

class NotesOptions(TypedDict, total=False):
    shelf: Annotated[str, Option("--shelf", "Notes", "The shelf that is open.", "NAME", ("a", "b"))]
    most: Annotated[int, Option("--most-notes", "Notes", "How many are found.", "NUMBER")]
    deep: Annotated[bool, Option("--deep", "Notes", "Look below.")]
    folders: Annotated[tuple[str, ...], Option("--folder", "Notes", "Where they are; can be repeated.", "PATH")]

class Notes(Extension):
    def __init__(self, shelf="a"):
        super().__init__("com.example/notes")
        self.shelf, self.most, self.deep, self.folders = shelf, 10, False, ()

    def serve_options(self):
        return NotesOptions

    def configure(self, options):
        if options.get("most") == 13:
            raise ValueError("most-notes: not 13")
        super().configure(options)

notes = Notes()
server = Server("s", extensions=[notes])

@server.tool
def state() -> str:
    return f"{notes.shelf} {notes.most} {notes.deep} {','.join(notes.folders)}"

if __name__ == "__main__":
    server.run(stdio=True, shelf="b", extensions={"com.example/notes": {"most": 4}})
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "notes.py").write_text(TARGET)
    return str(tmp_path / "notes.py")


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ([], {}, "a 10 False "),
        (["--shelf", "b"], {}, "b 10 False "),
        (["--shelf=b", "--deep", "--most-notes", "3", "--log-level", "debug"], {}, "b 3 True "),
        (["--folder", "x", "--folder", "y"], {"MCPD_SHELF": "b"}, "b 10 False x,y"),
        (["--shelf", "a"], {"MCPD_SHELF": "b", "MCPD_DEEP": "1"}, "a 10 True "),
        ([], {"MCPD_MOST_NOTES": "7"}, "a 7 False "),
    ],
)
async def test_an_option_of_the_target(
    child: Child, target: str, words: list[str], variables: dict[str, str], expected: str
) -> None:
    async with process_wire(child, target, *words, version="2025-11-25", env=variables) as wire:
        assert await wire.text("state") == expected


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--shelf", "c"], 2, "--shelf: 'c' is not one of a, b; see mcpd serve --help"),
        (["--shelv", "c"], 2, "no option --shelv; did you mean --shelf?"),
        (["--gracee", "5"], 2, "no option --gracee; did you mean --grace?"),
        (["--port", "5"], 2, "no option --port; write mcpd serve --http :PORT"),
        (["--shelf", "a", "b"], 2, "Got unexpected extra argument (b)"),
        (["--shelf"], 2, "Option '--shelf' requires an argument"),
        (["--most-notes", "13"], 1, "most-notes: not 13"),
    ],
)
def test_what_is_said_wrongly(child: Child, target: str, words: list[str], code: int, said: str) -> None:
    done = serve(child, target, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_no_target_no_options_of_one(child: Child, target: str) -> None:
    for words in (["--shelf", "b"], ["--shelf", "b", target]):
        done = serve(child, *words)
        assert done.returncode == 2
        assert "no option --shelf" in done.stderr


def test_an_option_of_ours_cannot_be_taken(child: Child, tmp_path: Path) -> None:
    (tmp_path / "thief.py").write_text(TARGET.replace('"--shelf"', '"--apps"'))
    done = serve(child, str(tmp_path / "thief.py"), "--deep")
    assert (done.returncode, done.stdout) == (1, "")
    assert "extension com.example/notes: the option --apps exists already; give it another name" in done.stderr


def test_run_takes_it(child: Child, target: str) -> None:
    """By its name, and by the extension's id."""
    messages = [
        initialize("2025-11-25", 1),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "state", "arguments": {}}},
    ]
    done = subprocess.run(
        [child.python, target], input="".join(json.dumps(message) + "\n" for message in messages),
        env=child.env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    answer = json.loads(done.stdout.splitlines()[1])
    assert answer["result"]["content"] == [{"type": "text", "text": "b 4 False "}]


def serve(child: Child, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command line that does not get as far as to serve says; on stdio, where nobody asks anything."""
    return subprocess.run(
        child.mcpd("serve", "--stdio", *words),
        env=child.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
