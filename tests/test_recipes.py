"""The recipes "Adding a store", "Adding an option" and "Adding a limit" of DEVELOPERS.md, followed in a copy of it all.

Each is followed step by step: what holds a step fails before it is done, and passes after it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

pytestmark = pytest.mark.slow

STORE = '''"""Events in files of one folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["FileEventStore"]


class FileEventStore:
    """A file for each event: its stream, its number and its place in the order of all."""

    def __init__(self, folder: Path, most_events: int, most_bytes: int) -> None:
        self._folder, self._most_events, self._most_bytes = folder, most_events, most_bytes
        self._kept: list[tuple[int, int, Path]] = []

    def add(self, stream: int, number: int, data: bytes) -> Iterable[int]:
        file = self._folder / f"{stream}-{number}"
        file.write_bytes(data)
        self._kept.append((stream, number, file))
        gone = set()
        while len(self._kept) > 1 and (len(self._kept) > self._most_events or self._size() > self._most_bytes):
            oldest, _, file = self._kept.pop(0)
            file.unlink()
            gone.add(oldest)
        return sorted(gone - {kept for kept, _, _ in self._kept})

    def _size(self) -> int:
        return sum(file.stat().st_size for _, _, file in self._kept)

    async def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        return [(n, file.read_bytes()) for kept, n, file in self._kept if kept == stream and n > number]

    def clear(self) -> None:
        self._kept.clear()
'''

RESUMING = '''"""A client that lost its stream gets from the store what followed."""

import asyncio
import sys
from pathlib import Path

from support.http_peer import call, serving
from support.http_stage import Stage

from mcpd.server.backplane.files import FileEventStore
from mcpd.server.http import HttpSettings


async def main() -> None:
    stage, folder = Stage(), Path(sys.argv[1])
    settings = HttpSettings(event_store=lambda session_id: FileEventStore(folder, 256, 1 << 20))
    async with serving(stage.server, settings) as port:
        session = await port.open("2025-11-25")
        params = {"name": "count", "arguments": {"steps": 3, "door": "d"}, "_meta": {"progressToken": "t"}}
        peer = await session.start(call("tools/call", params, "x"))
        await peer.head()
        first = await peer.event()
        await stage.entered.get()
        peer.abort()
        stage.open("d")
        resumed = await session.listen(first["id"])
        events = []
        while (event := await resumed.event()) is not None:
            events.append(event)
        assert len(events) == 4, events
        assert list(folder.iterdir())


asyncio.run(main())
'''

PROMPT = """
import asyncio
from mcpd import Client, Server

server = Server("drowsy")

@server.prompt(nap=3)
def rest() -> str:
    return "rest"

async def main() -> None:
    async with Client(server) as client:
        (prompt,) = await client.list_prompts()
        print(prompt.description)

asyncio.run(main())
"""


class Copy:
    """A copy of the repository, to be changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ignored = shutil.ignore_patterns("node_modules", "__pycache__")
        for name in ("assets", "mcpd", "tests", "docs"):
            shutil.copytree(REPOSITORY / name, root / name, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "DEVELOPERS.md"):
            shutil.copy(REPOSITORY / name, root / name)

    def change(self, path: str, old: str, new: str) -> None:
        """Put `new` in the place of `old`, which is there once."""
        file = self.root / path
        text = file.read_text("utf-8")
        assert text.count(old) == 1, (path, old)
        file.write_text(text.replace(old, new), "utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Python in the copy."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            "PYTHONPATH": f"{self.root}{os.pathsep}{self.root / 'tests'}",
        }
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def passes(self, *tests: str) -> bool:
        """Whether these tests of the copy do; there have to be some."""
        run = self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
        assert run.returncode in (0, 1), run.stdout + run.stderr
        assert re.search(r"[0-9]+ (passed|failed)", run.stdout), run.stdout
        return run.returncode == 0


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    root = tmp_path / "copy"
    root.mkdir()
    return Copy(root)


def test_adding_a_store(copy: Copy, tmp_path: Path) -> None:
    (copy.root / "mcpd/server/backplane/files.py").write_text(STORE)
    contracts = "tests/server/backplane/test_contracts.py"
    stores = "EVENT_STORES: list[Callable[[int, int], EventStore]] = [MemoryEventStore"
    copy.change(contracts, stores, f"{stores}, lambda *most: FileEventStore(Path(mkdtemp()), *most)")
    copy.change(
        contracts,
        "import gc\n",
        "import gc\nfrom pathlib import Path\nfrom tempfile import mkdtemp\n"
        "from mcpd.server.backplane.files import FileEventStore\n",
    )
    assert copy.passes(contracts, "-k", "TestEventStore")
    # What the contract promises is looked at: a store that keeps what is deleted does not pass.
    copy.change("mcpd/server/backplane/files.py", "        self._kept.clear()\n", "        pass\n")
    assert not copy.passes(contracts, "-k", "TestEventStore")

    (copy.root / "mcpd/server/backplane/files.py").write_text(STORE)
    (copy.root / "resuming.py").write_text(RESUMING)
    folder = tmp_path / "events"
    folder.mkdir()
    run = copy.run("resuming.py", str(folder))
    assert run.returncode == 0, run.stderr


def test_adding_an_option(copy: Copy) -> None:
    copy.change(
        "mcpd/server/settings.py",
        "    max_frame_bytes: int | None = None\n",
        "    max_frame_bytes: int | None = None\n"
        '    nap: Annotated[float, Option("--nap", "Limits", "How long it rests at first.", "SECONDS")] = 0.5\n',
    )
    options = "tests/cli/test_options.py"
    assert not copy.passes(options)
    copy.change("mcpd/server/options.py", "    grace: float\n", "    grace: float\n    nap: float\n")
    assert copy.passes(options)
    shown = copy.run("-m", "mcpd", "serve", "--help-all")
    assert re.search(r"--nap SECONDS +How long it rests at first\..*MCPD_NAP", shown.stdout, re.DOTALL), shown
    given = copy.run("-c", "from mcpd.server.settings import Options; print(Options(nap=2).nap, Options().nap)")
    assert given.stdout == "2 0.5\n", given


def test_adding_an_option_of_a_decorator(copy: Copy) -> None:
    names = ("tests/server/test_app.py", "-k", "test_what_type_checkers_know_of_is_what_is_taken")
    copy.change("mcpd/server/registry/options.py", "    icons: Icons\n", "    icons: Icons\n    nap: int | None\n")
    assert not copy.passes(*names)
    copy.change("mcpd/server/metadata.py", '"description", "icons", "meta",', '"description", "icons", "nap", "meta",')
    assert copy.passes(*names)
    entry = "Prompt(name=name, **_described(options, callee, where))"
    rests = """{"description": f"Rests for {options.get('nap')} s"}"""
    copy.change("mcpd/server/entries.py", entry, f"Prompt(name=name, **(_described(options, callee, where) | {rests}))")
    run = copy.run("-c", PROMPT)
    assert run.stdout == "Rests for 3 s\n", run


def test_adding_a_limit(copy: Copy) -> None:
    sessions = "    max_sessions: int = 10_000\n"
    copy.change("mcpd/server/http/core.py", sessions, f"{sessions}    max_naps: int = 7\n")
    limits = "tests/test_limits.py"
    assert not copy.passes(limits)
    page = (copy.root / "docs/reference/limits.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if "server.http.core.HttpSettings.max_sessions " in line]
    place = "server.http.core.HttpSettings.max_naps"
    wrong = f"| Naps at once | 8 | `HttpSettings(max_naps=…)` | the next is refused <!-- {place} --> |"
    copy.change("docs/reference/limits.md", row, f"{row}\n{wrong}")
    assert not copy.passes(limits)
    copy.change("docs/reference/limits.md", wrong, wrong.replace("| 8 |", "| 7 |"))
    assert copy.passes(limits)
