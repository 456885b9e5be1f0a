"""A folder is a server: what each of its sub-folders becomes, on the wire, in both eras; and what is left out of it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.folders import opened, problems, write
from support.wires import LEGACY, MODERN, memory_wire, process_wire, stdio_wire

from mcpd.errors import ConfigurationError
from mcpd.server.extensions.ui.constants import UI
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import ServerFolder, folder_at

BOTH = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
APPS = {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
HTML = '<!doctype html><meta charset="utf-8"><title>Beds</title>'

GARDEN: dict[str, str | bytes] = {
    "tools/beds.py": '''
from __future__ import annotations
import dataclasses

@dataclasses.dataclass
class Bed:
    name: str
    plants: int

BEDS = [Bed("north", 3), Bed("south", 5)]

def list_beds() -> list[Bed]:
    """List all beds."""
    return BEDS

async def water(bed: str, litres: float = 2.0) -> str:
    """Water a bed.

    Args:
        bed: Its name.
        litres: How much.
    """
    print("on its way")
    return f"{bed}: {litres:g} l"

def _secret(a: int) -> int:
    return a
''',
    "tools/shed/spade.py": 'def dig(depth: int) -> str:\n    """Dig."""\n    return "x" * depth\n',
    "apps/list_beds.html": HTML,
    "resources/notes/today.md": "# Today\n\nSow *beans*.\n",
    "resources/dot.png": b"\x89PNG\r\n\x1a\n\0\0",
    "resources/beds/[bed].txt": "About {{bed}}, and {{other}}.",
    "prompts/plan.md": "---\ndescription: Plan a bed\n---\nPlan {{bed}}.\n",
    "mcpd.toml": 'name = "garden"\nversion = "1.2"\ninstructions = "Ask for beds first."\n',
}  # fmt: skip


@BOTH
async def test_all_of_it_on_the_wire(tmp_path: Path, version: str) -> None:
    server = opened(tmp_path, GARDEN)
    assert problems(server) == []
    async with stdio_wire(server, version) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        assert list(tools) == ["list_beds", "water", "shed_dig"]
        assert tools["water"]["description"] == "Water a bed."
        assert tools["water"]["inputSchema"]["properties"]["bed"] == {"type": "string", "description": "Its name."}
        assert await wire.text("water", bed="north") == "north: 2 l"
        assert await wire.text("shed_dig", depth=2) == "xx"
        beds = await wire.call("list_beds")
        listed = beds["structuredContent"]
        assert (listed if isinstance(listed, list) else listed["result"])[0] == {"name": "north", "plants": 3}

        resources = {one["uri"]: one for one in (await wire.result("resources/list"))["resources"]}
        assert resources["resource://garden/notes/today.md"]["mimeType"] == "text/markdown"
        assert resources["resource://garden/notes/today.md"]["size"] == 22
        assert resources["resource://garden/notes/today.md"]["name"] == "notes/today.md"
        (note,) = (await wire.result("resources/read", {"uri": "resource://garden/notes/today.md"}))["contents"]
        assert note["text"] == "# Today\n\nSow *beans*.\n"
        (dot,) = (await wire.result("resources/read", {"uri": "resource://garden/dot.png"}))["contents"]
        assert (dot["blob"], dot["mimeType"]) == ("iVBORw0KGgoAAA==", "image/png")

        (template,) = (await wire.result("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "resource://garden/beds/{bed}.txt"
        (bed,) = (await wire.result("resources/read", {"uri": "resource://garden/beds/north%20one.txt"}))["contents"]
        assert bed["text"] == "About north one, and {{other}}."

        (prompt,) = (await wire.result("prompts/list"))["prompts"]
        assert (prompt["name"], prompt["description"]) == ("plan", "Plan a bed")
        got = await wire.result("prompts/get", {"name": "plan", "arguments": {"bed": "{{bed}} $1"}})
        assert got["messages"] == [{"role": "user", "content": {"type": "text", "text": "Plan {{bed}} $1."}}]


@BOTH
async def test_a_page_is_bound_to_the_tool_of_its_name(tmp_path: Path, version: str) -> None:
    """APP-S-05: with Apps the tool links it; without, there is no trace of it."""
    server = opened(tmp_path, {**GARDEN, "apps/shed/dig.html": HTML, "apps/nobody.html": HTML})
    async with memory_wire(server) as wire:
        await wire.open(version, APPS)
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        uri = tools["list_beds"]["_meta"]["ui"]["resourceUri"]
        assert uri.startswith("ui://garden/list_beds?v=")
        (page,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
        assert page["text"] == HTML
        assert tools["shed_dig"]["_meta"]["ui"]["resourceUri"].startswith("ui://garden/shed_dig?v=")
        assert "_meta" not in tools["water"]
    async with memory_wire(server, version) as wire:
        assert not any("_meta" in tool for tool in (await wire.result("tools/list"))["tools"])
        assert not any(one["uri"].startswith("ui:") for one in (await wire.result("resources/list"))["resources"])
    assert [str(problem) for problem in server.problems() if "nobody" in problem.where] == [
        "app ui://garden/nobody: no tool opens it; register one with ui='ui://garden/nobody'"
    ]


async def test_as_a_host_starts_it(tmp_path: Path, child: Child) -> None:
    """Over stdio in a process of its own: a broken file is named with its line, a print reaches no client."""
    write(tmp_path, {**GARDEN, "tools/broken.py": "import os\n\ndef f(:\n", "tools/loud.py": "print('boo')\n"})
    async with process_wire(child, str(tmp_path), version=LEGACY[-1]) as wire:
        assert await wire.text("water", bed="south", litres="3") == "south: 3 l"
        await wire.said("tools/broken.py, line 3: SyntaxError: invalid syntax; it is left out")
        await wire.said("tools/loud.py: prints on import: 'boo'")
        await wire.said("on its way")


async def test_the_folder_that_this_is_in(tmp_path: Path, child: Child) -> None:
    """With no target: mcpd.toml here or above."""
    write(tmp_path, GARDEN)
    async with process_wire(child, version=MODERN, cwd=tmp_path / "resources" / "notes") as wire:
        assert await wire.text("water", bed="south") == "south: 2 l"


async def test_code_of_a_folder_that_nobody_named_is_not_imported(tmp_path: Path, child: Child) -> None:
    """D9: without mcpd.toml and without being named, files are served and code is not."""
    files = {name: text for name, text in GARDEN.items() if name != "mcpd.toml"}
    write(tmp_path, {**files, "tools/evil.py": "open('done', 'w')\n", "lifespan.py": "open('done', 'w')\n"})
    async with process_wire(child, version=MODERN, cwd=tmp_path) as wire:
        assert (await wire.result("tools/list"))["tools"] == []
        assert (await wire.result("prompts/list"))["prompts"]
        await wire.said("tools: is not imported because no target was named")
    assert not (tmp_path / "done").exists()
    write(tmp_path, {"lifespan.py": "def lifespan():\n    yield 1\n"})
    async with process_wire(child, ".", version=MODERN, cwd=tmp_path) as wire:
        assert len((await wire.result("tools/list"))["tools"]) == 3
    assert (tmp_path / "done").exists()


async def test_a_project_file_says_it_too(tmp_path: Path, child: Child) -> None:
    files = {name: text for name, text in GARDEN.items() if name != "mcpd.toml"}
    write(tmp_path, {**files, "pyproject.toml": '[project]\nname = "x"\n[tool.mcpd]\nname = "yard"\n', "sub/x": ""})
    async with process_wire(child, cwd=tmp_path / "sub") as wire:
        hello = await wire.open(LEGACY[-1])
        assert hello["serverInfo"]["name"] == "yard"
        assert await wire.text("water", bed="south") == "south: 2 l"


def test_a_folder_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"empty/x.txt": "", "files/a.py": "", "files/server.py": ""})
    with pytest.raises(
        ConfigurationError,
        match=r"^empty has neither an mcpd.toml nor one of the folders tools, .*; mcpd init empty creates",
    ):
        opened(tmp_path / "empty")
    with pytest.raises(ConfigurationError, match=r'write docs\.folder = "\." into pages/mcpd\.toml$'):
        opened(tmp_path / "pages", {"a.md": "# A"})
    server = opened(tmp_path / "pages", {"mcpd.toml": 'docs.folder = "."'})  # as it says
    assert "docs://pages/a.md" in server.catalog.resources
    with pytest.raises(ConfigurationError, match=r"name a file in it, such as files/server\.py$"):
        opened(tmp_path / "files")
    monkeypatch.chdir(tmp_path.anchor)  # as hosts start servers
    with pytest.raises(ConfigurationError, match=f"name a file in it, such as {re.escape(str(tmp_path))}"):
        opened(tmp_path / "files")


# ------------------------------------------------------------------------------ what tools share

SHARED: dict[str, str | bytes] = {
    "lifespan.py": '''
import dataclasses, sqlite3
from collections.abc import AsyncIterator

EVENTS = []

@dataclasses.dataclass
class Shared:
    db: sqlite3.Connection
    names: list[str]

async def lifespan() -> AsyncIterator[Shared]:
    EVENTS.append("opened")
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute("create table bed (name)")
    yield Shared(db, [])
    db.close()
    EVENTS.append("closed")
''',
    "tools/beds.py": '''
from __future__ import annotations
import sqlite3
from lifespan import Shared
from ..lifespan import EVENTS

def add(name: str, db: sqlite3.Connection) -> int:
    """Add a bed."""
    db.execute("insert into bed values (?)", [name])
    return db.execute("select count(*) from bed").fetchone()[0]

async def names(shared: Shared, db: sqlite3.Connection | None = None) -> list[str]:
    """All names."""
    assert db is shared.db
    return [name for name, in shared.db.execute("select name from bed")]

def events() -> list[str]:
    """What happened."""
    return EVENTS
''',
}  # fmt: skip


@BOTH
async def test_tools_are_given_what_they_share(tmp_path: Path, version: str) -> None:
    server = opened(tmp_path, SHARED)
    assert problems(server) == []
    async with stdio_wire(server, version) as wire:
        tools = {tool["name"]: tool["inputSchema"] for tool in (await wire.result("tools/list"))["tools"]}
        assert list(tools["add"]["properties"]) == ["name"]
        assert tools["names"]["properties"] == {}
        assert await wire.text("add", name="north") == "1"
        assert await wire.text("add", name="south") == "2"
        assert json.loads(await wire.text("names")) == ["north", "south"]
        refused = await wire.call("names", shared={"names": []})
        assert refused["isError"]
        assert json.loads(await wire.text("events")) == ["opened"]
    await server.aclose()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0\n", "lifespan.py, line 1: ZeroDivisionError: division by zero"),
        ("x = 1\n", "lifespan.py has no function lifespan"),
        ("lifespan = 1\n", "lifespan: it is not a function"),
        ("class lifespan: pass\n", "lifespan: it is not a function"),
        ("def lifespan():\n    return 1\n", "lifespan: it does not yield"),
        ("def lifespan(a, b):\n    yield 1\n", "lifespan: it must take no argument, or only the server"),
    ],
)
def test_tools_without_what_they_share_are_not_served(tmp_path: Path, text: str, said: str) -> None:
    """Their parameters would be ones that clients set."""
    with pytest.raises(ConfigurationError) as caught:
        opened(tmp_path, {**SHARED, "lifespan.py": text})
    assert said in str(caught.value)


async def test_a_lifespan_of_another_name_and_kind(tmp_path: Path) -> None:
    files = {
        "mcpd.toml": 'lifespan = "lib/things.py:things"\n',
        "lib/things.py": (
            "import contextlib, pathlib\nfrom collections.abc import Iterator\n"
            "@contextlib.contextmanager\ndef things(server) -> Iterator[pathlib.PurePosixPath]:\n"
            "    yield pathlib.PurePosixPath('/' + server.name)\n"
        ),
        "tools/a.py": "from pathlib import PurePosixPath\ndef where(it: PurePosixPath) -> str:\n    return str(it)\n",
    }
    server = opened(tmp_path / "place", files)
    async with memory_wire(server, MODERN) as wire:
        assert await wire.text("where") == "/place"
    await server.aclose()


@pytest.mark.parametrize("place", ["../x.py:f", "/x.py:f", "x:f", "x.py", "none.py:f"])
def test_a_lifespan_that_is_not_in_the_folder(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigurationError, match="lifespan"):
        opened(tmp_path, {"mcpd.toml": f'lifespan = "{place}"\n', "tools/a.py": ""})


# ------------------------------------------------------------------------------ what is left out


async def test_the_rest_is_served(tmp_path: Path) -> None:
    """Each kind of bad file is named with its line, and takes nothing else with it."""
    files = {
        "tools/a_exits.py": "import sys\nsys.exit(3)\n",
        "tools/b_raises.py": "import os\n\nraise ValueError('no\\nbeds')\n",
        "tools/c_needs.py": "import nosuch_module\n",
        "tools/d_deeper.py": "from _below import x\n",
        "tools/_below.py": "\n\n1 / 0\n",
        "tools/e_syntax.py": "def f(:\n",
        "tools/f_bad.py": "import typing\ndef gen(a: int):\n    yield a\n\ndef fine(a: int) -> int:\n    return a\n",
        "tools/g_runs.py": "from mcpd import Server\nServer('x').run()\n",
        "tools/h.two.py": "",
        "tools/i_again.py": "def fine(b: int) -> int:\n    return b\n",
        "tools/j_threads.py": (
            "import threading\nwait = threading.Event().wait\n"
            "threading.Thread(target=wait, args=(9,), daemon=True, name='mine').start()\n"
            "def j(a: int) -> int:\n    return a\n"
        ),
        "tools/k_untyped.py": "def k(a, b: int):\n    return a\n",
        "tools/l_latin.py": b"x = '\xe4'\n",
        "tools/m_null.py": b"x = 1\0\n",
    }
    server = opened(tmp_path, files)
    said = "\n".join(problems(server))
    for line in [
        "tools/a_exits.py, line 2: it exits on import (exit 3); it is left out",
        "tools/b_raises.py, line 3: ValueError: no\\nbeds; it is left out",
        "tools/c_needs.py, line 1: no module 'nosuch_module'; install it for mcpd: ",
        "tools/d_deeper.py, line 1: ZeroDivisionError: division by zero (tools/_below.py, line 3); it is left out",
        "tools/e_syntax.py, line 1: SyntaxError: ",
        "tools/f_bad.py, line 2: function 'gen': it is a generator; return a list instead; gen is left",
        "tools/g_runs.py, line 2: it calls Server.run(); ",
        "tools/h.two.py: a Python file's name may contain only the dot of .py; rename it",
        "tools/i_again.py, line 1: f_bad.py already has a tool fine; this one is left out",
        "tools/j_threads.py: starts threads on import (mine); start and stop them in lifespan.py",
        "tools/k_untyped.py, line 1: k: a has no type, so it is not a tool; write def k(a: str, …), or _k for a helper",
        "tools/l_latin.py, line 1: SyntaxError: ",
        "tools/m_null.py",
    ]:
        assert line in said, said
    async with memory_wire(server, MODERN) as wire:
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["fine", "j"]


@pytest.mark.parametrize("text", ["while True:\n    pass\n", "try:\n    while True: pass\nexcept Exception: pass\n",
                                  "import threading\nthreading.Event().wait()\n"])  # fmt: skip
async def test_an_import_that_never_ends(tmp_path: Path, text: str, child: Child) -> None:
    """It is given up, and named with its line; the rest is served, and the process ends as any other."""
    write(tmp_path, {**GARDEN, "mcpd.toml": "[tools]\nimport-timeout = 0.3\n", "tools/a.py": text})
    async with process_wire(child, str(tmp_path), version=MODERN) as wire:
        assert await wire.text("water", bed="south") == "south: 2 l"
        await wire.said("tools/a.py, line ")
        await wire.said("its import took longer than 0.3 seconds; it is left out")
    assert wire.code == 0


async def test_files_of_two_folders_may_have_the_same_name(tmp_path: Path) -> None:
    """Neither of each other nor of Python's own."""
    for name in ("one", "two"):
        write(
            tmp_path / name,
            {
                "tools/json.py": f"from ._where import NAME\ndef {name}() -> str:\n    return NAME\n",
                "tools/_where.py": f"NAME = {name!r}\n",
            },
        )
    for name in ("one", "two"):
        async with memory_wire(opened(tmp_path / name), MODERN) as wire:
            assert await wire.text(name) == name
    assert json.loads("1") == 1


async def test_one_module_under_both_of_its_names(tmp_path: Path) -> None:
    files = {
        "tools/a.py": "from b import STATE\nSTATE.append('a')\ndef a() -> list[str]:\n    return STATE\n",
        "tools/b.py": "STATE = []\nSTATE.append('b')\ndef b() -> list[str]:\n    return STATE\n",
    }
    async with memory_wire(opened(tmp_path, files), MODERN) as wire:
        assert json.loads(await wire.text("a")) == json.loads(await wire.text("b")) == ["b", "a"]


def test_nothing_but_the_named_sub_folders(tmp_path: Path) -> None:
    server = opened(
        tmp_path,
        {
            **GARDEN,
            "mcpd.toml": '[tools]\nenabled = false\n[resources]\nfolder = "files"\nuri = "notes://"\n',
            "files/a.txt": "A",
        },
    )
    assert len(server.catalog.tools) == 0
    assert [entry.key for entry in server.catalog.resources if not entry.key.startswith("ui:")] == ["notes://a.txt"]


def test_an_untrusted_place_never_imports(tmp_path: Path) -> None:
    write(tmp_path, {"tools/a.py": "def a() -> str:\n    return ''\n"})
    server = Folder(ServerFolder(str(tmp_path), is_trusted=False)).server
    assert len(server.catalog.tools) == 0
    assert "is not imported" in problems(server)[0]


# ------------------------------------------------------------------------------ what is exchanged


async def test_what_is_the_same_changes_nothing(tmp_path: Path) -> None:
    """Files and prompts that have not changed are equal entries: clients hear of what did, once for each kind."""
    files: dict[str, Any] = {name: text for name, text in GARDEN.items() if not name.startswith(("tools", "apps"))}
    source = Folder(folder_at(str(write(tmp_path, files))))
    async with memory_wire(source.server, LEGACY[-1]) as wire:
        source.refresh()
        await wire.quiet()
        write(tmp_path, {"resources/notes/new.md": "new", "prompts/plan.md": "Other {{bed}}"})
        source.refresh()
        changed = {(await wire.receive())["method"] for _ in range(2)}
        assert changed == {f"notifications/{kind}/list_changed" for kind in ("prompts", "resources")}
        await wire.quiet()
        assert len((await wire.result("resources/list"))["resources"]) == 3


def test_each_of_many_broken_files_is_named_in_the_log(tmp_path: Path, child: Child) -> None:
    """Lines of one template are left out after the tenth: these are of none."""
    root = write(tmp_path / "garden", {f"tools/broken_{number}.py": "def (\n" for number in range(15)})
    done = subprocess.run(
        child.mcpd("serve", "--stdio", str(root)), env=child.env, input="", capture_output=True, text=True,
        timeout=100, check=True,
    )  # fmt: skip
    assert [number for number in range(15) if f"tools/broken_{number}.py, line 1" not in done.stderr] == []
