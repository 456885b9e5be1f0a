"""`mcpd init`, and the folder in examples/: small, working, without a word of `mcpd check`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child
from support.folders import opened, problems, write
from support.wires import LEGACY, MODERN, memory_wire, process_wire

from mcpd.errors import ConfigurationError
from mcpd.sources.scaffold import write_folder


async def test_as_a_new_user_does_it(tmp_path: Path, child: Child) -> None:
    """init, the two commands that it says, a call; it says nothing of what it wrote but that it works."""
    done = subprocess.run(
        child.mcpd("init", "my notes"), cwd=tmp_path, env=child.env, capture_output=True, text=True, timeout=100,
        check=True,
    )  # fmt: skip
    assert done.stdout.split() == [
        "mcpd.toml", "apps/list_notes.html", "prompts/tidy.md", "resources/about.md", "tools/notes.py",
        ".mcpd.schema.json",
    ]  # fmt: skip
    assert done.stderr.splitlines()[1:] == [
        "  mcpd check 'my notes'", "  mcpd preview 'my notes'", "  mcpd serve --http :8080 'my notes'",
    ]  # fmt: skip
    check = subprocess.run(
        child.mcpd("check", "--strict", "my notes"), cwd=tmp_path, env=child.env, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert (check.returncode, check.stderr) == (0, "")
    assert check.stdout.startswith("my-notes 0.1.0\n")
    for version in (LEGACY[-1], MODERN):
        async with process_wire(child, "my notes", version=version, cwd=tmp_path) as wire:
            assert await wire.text("add_note", text="Sow beans") == "2"
            assert json.loads(await wire.text("list_notes", containing="BEANS")) == ["Sow beans"]
            got = await wire.result("prompts/get", {"name": "tidy"})
            assert "notes about everything" in got["messages"][0]["content"]["text"]

    again = subprocess.run(
        child.mcpd("init", "my notes"), cwd=tmp_path, env=child.env, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert again.returncode == 1
    assert again.stderr == "mcpd: my notes/mcpd.toml already exists, so nothing was written; name another folder\n"


def test_what_is_there_stays(tmp_path: Path) -> None:
    write(tmp_path, {"tools/notes.py": "mine", "x": ""})
    with pytest.raises(ConfigurationError, match=r"tools/notes\.py already exists"):
        write_folder(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tools", "x"]
    with pytest.raises(ConfigurationError, match="cannot be written: "):
        write_folder(str(tmp_path / "x"))
    (tmp_path / "'\n\"").mkdir()
    write_folder(str(tmp_path / "'\n\""))
    assert opened(tmp_path / "'\n\"").name == "notes"


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_the_example(version: str) -> None:
    server = opened(REPOSITORY / "examples" / "garden")
    assert problems(server) == []
    assert server.problems() == []
    async with memory_wire(server, version) as wire:
        names = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
        assert names == ["list_beds", "plant", "shed_borrow"]
        assert await wire.text("plant", bed="east", name="chard") == "chard grows in the east bed"
        assert {"name": "east", "plants": ["chard"]} in json.loads(await wire.text("list_beds"))
        assert await wire.text("shed_borrow", what="rake") == "Here is the rake"
        (card,) = (await wire.result("resources/read", {"uri": "resource://garden/plants/mint.md"}))["contents"]
        assert card["text"].startswith("# mint\n")
    await server.aclose()
