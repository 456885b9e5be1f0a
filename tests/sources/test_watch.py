"""`--reload`: what changes in a folder changes in the server that runs, for clients that stay; no call is lost."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import until
from support.folders import problems, write
from support.wires import LEGACY, MODERN, ProcessWire, Wire, memory_wire, process_wire

from mcpd.errors import ConfigurationError
from mcpd.server.extensions.ui.constants import UI
from mcpd.sources.files import folders_below
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import folder_at
from mcpd.sources.watch import WatchedFolder, watch_later, watching

FILES: dict[str, str | bytes] = {
    "tools/beds.py": "from _plants import COUNT\ndef count() -> int:\n    return COUNT\n",
    "tools/_plants.py": "COUNT = 1\n",
    "mcpd.toml": 'name = "g"\n',
}
HTML = '<!doctype html><meta charset="utf-8"><title>x</title>'


def folder(root: Path, files: dict[str, str | bytes]) -> Folder:
    return Folder(folder_at(str(write(root, files))), is_growing=True)


async def names(wire: Wire) -> list[str]:
    return [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]


async def changed(wire: Wire, kind: str) -> None:
    """The next thing that the server says is that."""
    assert (await wire.receive())["method"] == f"notifications/{kind}/list_changed"


# ------------------------------------------------------------------- what is exchanged, without a watch


async def test_code_with_its_neighbours(tmp_path: Path) -> None:
    """A module that tools import is read again with them; edits in one second too; what is broken keeps what it had."""
    source = folder(tmp_path, FILES)
    async with memory_wire(source.server, LEGACY[-1]) as wire:
        assert await wire.text("count") == "1"
        write(tmp_path, {"tools/_plants.py": "COUNT = 2\n"})
        source.refresh()
        await changed(wire, "tools")
        assert await wire.text("count") == "2"
        source.refresh()
        await wire.quiet()

        write(tmp_path, {"tools/_plants.py": "COUNT = = 3\n"})
        source.refresh()
        assert await wire.text("count") == "2"
        said = "tools/beds.py, line 1: SyntaxError: invalid syntax (tools/_plants.py, line 1)"
        assert problems(source.server) == [f"{said}; its previous tools are served"]
        write(tmp_path, {"tools/_plants.py": "COUNT = 4\n", "tools/more.py": "def more() -> str:\n    return 'm'\n"})
        source.refresh()
        assert await wire.text("count") == "4"
        assert problems(source.server) == []
        assert await names(wire) == ["count", "more"]
        (tmp_path / "tools" / "beds.py").unlink()
        source.refresh()
        assert await names(wire) == ["more"]
    packages = {name for name in sys.modules if name.startswith("_mcpd_folder_") and name.endswith(".tools.more")}
    assert len(packages) <= 3


async def test_every_kind_may_come_later(tmp_path: Path) -> None:
    source = folder(tmp_path, {"mcpd.toml": 'name = "g"\n'})
    async with memory_wire(source.server) as wire:
        hello = await wire.open(LEGACY[-1])
        assert {"tools", "resources", "prompts"} <= hello["capabilities"].keys()
        write(tmp_path, {"tools/a.py": "def a() -> str:\n    return 'a'\n", "resources/r.md": "R", "prompts/p.md": "P"})
        source.refresh()
        said = {(await wire.receive())["method"] for _ in range(3)}
        assert said == {f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")}
        assert await wire.text("a") == "a"
        write(tmp_path, {"prompts/p.md": "---\nx"})
        source.refresh()
        await wire.quiet()
        assert (await wire.result("prompts/get", {"name": "p"}))["messages"][0]["content"]["text"] == "P"
        assert "its previous version is served" in problems(source.server)[0]


async def test_what_lifespan_opened_stays_what_tools_take(tmp_path: Path) -> None:
    files = {
        "lifespan.py": "from collections.abc import Iterator\nfrom store import Store\n"
        "def lifespan() -> Iterator[Store]:\n    yield Store()\n",
        "store.py": "class Store:\n    value = 1\n",
        "tools/a.py": "from store import Store\ndef a(store: Store) -> int:\n    return store.value\n",
    }
    source = folder(tmp_path, files)
    async with memory_wire(source.server, MODERN) as wire:
        assert await wire.text("a") == "1"
        write(
            tmp_path, {"tools/a.py": "from store import Store\ndef a(store: Store) -> int:\n    return -store.value\n"}
        )
        source.refresh()
        assert await wire.text("a") == "-1"
        write(tmp_path, {"store.py": "class Store:\n    value = 2000\n"})
        source.refresh()
        assert await wire.text("a") == "-1"
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert tool["inputSchema"]["properties"] == {}
        assert "store.py: has changed, but lifespan.py uses it" in problems(source.server)[0]
    await source.server.aclose()


async def test_a_page_that_is_watched(tmp_path: Path) -> None:
    """Its listed URI names what it holds: who watches that hears, and the tool links the new one."""
    files = {"tools/a.py": "def a() -> str:\n    return 'a'\n", "apps/a.html": HTML}
    source = folder(tmp_path, files)
    async with memory_wire(source.server) as wire:
        await wire.open(LEGACY[-1], {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}})

        async def link() -> str:
            (tool,) = (await wire.result("tools/list"))["tools"]
            return str(tool["_meta"]["ui"]["resourceUri"])

        before = await link()
        await wire.result("resources/subscribe", {"uri": before})
        write(tmp_path, {"apps/a.html": HTML + "<p>new"})
        source.refresh()
        said = [await wire.receive() for _ in range(3)]
        assert {"method": "notifications/resources/updated", "params": {"uri": before}} in [
            {key: one[key] for key in ("method", "params") if key in one} for one in said
        ]
        assert await link() != before
        write(tmp_path, {"apps/a.html": b"\xff"})
        source.refresh()
        assert "is not UTF-8" in problems(source.server)[0]
        assert (await wire.result("resources/read", {"uri": await link()}))["contents"][0]["text"] == HTML + "<p>new"


# ------------------------------------------------------------------------------------ with the watch


@asynccontextmanager
async def watched(root: Path, child: Child, version: str) -> AsyncIterator[ProcessWire]:
    async with process_wire(child, "--reload", str(write(root, FILES)), version=version) as wire:
        yield wire


async def test_a_client_that_stays(tmp_path: Path, child: Child) -> None:
    """Over stdio, in a process of its own: edit after edit."""
    async with watched(tmp_path, child, LEGACY[-1]) as wire:
        assert await wire.text("count") == "1"
        for count in range(2, 6):
            write(tmp_path, {"tools/_plants.py": f"COUNT = {count}\n"})
            await changed(wire, "tools")
            assert await wire.text("count") == str(count)
        write(tmp_path, {"tools/beds.py": "def count( -> int:\n"})
        await wire.said("its previous tools are served")
        assert await wire.text("count") == "5"
        write(tmp_path, {"mcpd.toml": 'name = "other"\n'})
        await wire.said("mcpd.toml has changed; restart the server to apply it")
    assert wire.code == 0


async def test_a_call_in_flight_ends_on_what_it_began_with(tmp_path: Path) -> None:
    text = (
        "import asyncio\nfrom ._gate import GATE\nasync def slow() -> str:\n"
        "    GATE.begun.set()\n    await GATE.open.wait()\n    from ._late import NAME\n    return NAME\n"
    )
    gate = "import asyncio\nclass GATE:\n    begun = asyncio.Event()\n    open = asyncio.Event()\n"
    source = folder(tmp_path, {"tools/a.py": text, "tools/_gate.py": gate, "tools/_late.py": "NAME = 'old'\n"})
    gates = next(module for name, module in list(sys.modules.items()) if name.endswith("tools._gate")
                 and getattr(module, "__file__", "").startswith(str(tmp_path)))  # fmt: skip
    async with memory_wire(source.server, LEGACY[-1]) as wire:
        asked = wire.ask("tools/call", {"name": "slow", "arguments": {}})
        await gates.GATE.begun.wait()
        write(tmp_path, {"tools/a.py": "async def slow() -> str:\n    return 'new'\n"})
        source.refresh()
        assert await wire.text("slow") == "new"
        gates.GATE.open.set()
        assert (await wire.answer(asked))["result"]["content"][0]["text"] == "old"


async def test_no_call_is_lost(tmp_path: Path) -> None:
    """Edits while calls come one after another: each is answered, with one value or the next."""
    source = folder(tmp_path, FILES)
    seen: list[int] = []
    is_over = False

    async def call(wire: Wire) -> None:
        while not is_over:
            seen.append(json.loads(await wire.text("count")))

    async with memory_wire(source.server, MODERN) as wire:
        calling = asyncio.create_task(call(wire))
        for count in range(2, 42):
            write(tmp_path, {"tools/_plants.py": f"COUNT = {count}\n"})
            await asyncio.to_thread(source.refresh)
        is_over = True
        await calling
        assert await wire.text("count") == "41"
    assert seen == sorted(seen)
    assert len(seen) > 40
    mine = [name for name in sys.modules if str(tmp_path) in str(getattr(sys.modules[name], "__file__", ""))]
    assert len(mine) <= 6


@pytest.mark.slow
async def test_a_thousand_edits_under_load(tmp_path: Path, child: Child) -> None:
    """Over stdio, faster than they can be taken: each call has an answer, none an older one than the call before."""
    async with watched(tmp_path, child, LEGACY[-1]) as wire:
        seen = [int(await wire.text("count"))]
        for count in range(2, 1002):
            write(tmp_path, {"new": f"COUNT = {count}\n"})
            (tmp_path / "new").replace(tmp_path / "tools" / "_plants.py")
            seen.append(int(await wire.text("count")))
        while seen[-1] < 1001:
            await changed(wire, "tools")
            seen.append(int(await wire.text("count")))
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert wire.code == 0


async def test_changes_before_the_watch_began(tmp_path: Path) -> None:
    source = folder(tmp_path, FILES)
    write(tmp_path, {"tools/b.py": "def b() -> str:\n    return 'b'\n"})
    with watching([WatchedFolder(source)]):
        await until(lambda: "b" in source.server.catalog.tools)


def test_what_concerns_a_folder(tmp_path: Path) -> None:
    """Not what its tools write beside: a database, a log."""
    source = WatchedFolder(folder(tmp_path, FILES))
    names = ("tools/x.txt", "lib/a.py", "mcpd.toml", "prompts", "skills/a/SKILL.md")
    assert all(source.concerns(str(tmp_path / name)) for name in names)
    assert not any(source.concerns(str(tmp_path / name)) for name in ("garden.db", "data/x.json", "../tools/a.py"))


def test_which_folders_are_watched(tmp_path: Path) -> None:
    """Not what is there by installation, nothing behind links, and no more than so many."""
    for name in ("tools/deep/er", "node_modules/x", ".venv/lib", ".git", "venv", "lib/__pycache__", "lib/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "lib")
    (tmp_path / "round").symlink_to(tmp_path)
    source = WatchedFolder(folder(tmp_path, FILES))
    found = [str(Path(path).relative_to(tmp_path)) for path in source.folders()]
    assert found == [".", "tools", "tools/deep", "tools/deep/er", "lib", "lib/a"]
    assert {str(Path(path).relative_to(tmp_path)) for path in source.files()} == {
        "tools/beds.py", "tools/_plants.py", "mcpd.toml"
    }  # fmt: skip
    for number in range(30):
        (tmp_path / "lib" / str(number)).mkdir()
    assert len(folders_below([str(tmp_path)], limit=10)) == 10
    assert folders_below([str(tmp_path / "none")]) == [str(tmp_path / "none")]


async def test_folders_that_come_and_go(tmp_path: Path) -> None:
    source = folder(tmp_path, FILES)
    with watching([WatchedFolder(source)]):
        write(tmp_path, {"tools/new/deep/c.py": "def c() -> int:\n    return 1\n"})
        await until(lambda: "new_deep_c" in source.server.catalog.tools)
        write(tmp_path, {"tools/new/deep/d.py": "def d() -> int:\n    return 1\n"})
        await until(lambda: "new_deep_d" in source.server.catalog.tools)


async def test_where_the_system_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where too many folders are watched already: files are looked at instead."""

    def refuse(*paths: str, **how: object) -> None:
        raise OSError("OS file watch limit reached")

    source = folder(tmp_path, FILES)
    monkeypatch.setattr("watchfiles.watch", refuse)
    with watching([WatchedFolder(source)]):
        await until(lambda: "OS file watch limit reached; files are polled instead" in caplog.text)
        for name in "bc":
            write(tmp_path, {f"tools/{name}.py": f"def {name}() -> str:\n    return 'x'\n"})
            await until(lambda name=name: name in source.server.catalog.tools)


def test_what_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'mcpd-server\[watch\]'"):
        watching([]).__enter__()


async def test_what_is_written_while_it_is_read(tmp_path: Path) -> None:
    """A file that is read when half of it is written is read again with the next word of a change."""
    again = (
        "import pathlib\nfrom _plants import COUNT\nhere = pathlib.Path(__file__).with_name('_plants.py')\n"
        "if COUNT == 2:\n    here.write_text('COUNT = 3\\n')\ndef count() -> int:\n    return COUNT\n"
    )
    source = folder(tmp_path, {**FILES, "tools/beds.py": again})
    async with memory_wire(source.server, LEGACY[-1]) as wire:
        write(tmp_path, {"tools/_plants.py": "COUNT = 2\n"})
        source.refresh()
        assert await wire.text("count") == "2"
        source.refresh({str(tmp_path / "tools" / "_plants.py")})
        assert await wire.text("count") == "3"


async def test_what_tools_lack_comes_later(tmp_path: Path) -> None:
    """A module beside `tools/` that was broken, and one that was not there yet."""
    files = {"tools/a.py": "from helper import N\ndef count() -> int:\n    return N\n", "helper.py": "N = 1\n"}
    source = folder(tmp_path, {**FILES, **files, "tools/beds.py": ""})

    def saved(text: str, name: str = "helper.py") -> None:
        write(tmp_path, {name: text})
        source.refresh({str(tmp_path / name)})

    async with memory_wire(source.server, LEGACY[-1]) as wire:
        for text, expected in (("N = = 2\n", "1"), ("N = 3\n", "3"), ("from later import N\n", "3")):
            saved(text)
            assert await wire.text("count") == expected
        assert "no module 'later'" in problems(source.server)[0]
        saved("N = 44\n", "later.py")
        assert await wire.text("count") == "44"
        assert problems(source.server) == []
        before = {name for name in sys.modules if name.endswith(".tools.a")}
        source.refresh()
        assert {name for name in sys.modules if name.endswith(".tools.a")} == before


class _Stalled(WatchedFolder):
    has_refreshed = False

    def files(self) -> Iterator[str]:
        """As where others have the processor while files are looked at."""
        threading.Event().wait(0.4)
        yield from super().files()
        self.has_refreshed = True


@contextmanager
def watched_later(watched: WatchedFolder) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=watch_later, args=([watched], stop, time.time_ns() + 10**9))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


async def test_a_look_that_was_made_to_wait(tmp_path: Path) -> None:
    """The next one is not put off for it: an edit would be seen after a minute."""
    source = folder(tmp_path, FILES)
    watched = _Stalled(source)
    with watched_later(watched):
        await until(lambda: watched.has_refreshed)
        write(tmp_path, {"tools/b.py": "def b() -> int:\n    return 1\n"})
        await until(lambda: "b" in source.server.catalog.tools)


async def test_where_looking_costs_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is asked to tell of changes from the beginning."""
    import watchfiles

    clock, asked, watch = count(), threading.Event(), watchfiles.watch

    def output(*paths: str, **how: Any) -> Any:
        asked.set()
        return watch(*paths, **how)

    monkeypatch.setattr("mcpd.sources.watch.thread_time", lambda: float(next(clock)))
    monkeypatch.setattr("watchfiles.watch", output)
    source = folder(tmp_path, FILES)
    with watched_later(WatchedFolder(source)):
        await until(asked.is_set)
        write(tmp_path, {"tools/b.py": "def b() -> int:\n    return 1\n"})
        await until(lambda: "b" in source.server.catalog.tools)
