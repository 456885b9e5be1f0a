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

STORE = '''"""Sessions in files of one folder, which processes share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["FileSessionStore"]


class FileSessionStore:
    """A file for each session: when it is over, then its record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watchers: list[Callable[[str], None]] = []

    async def put(self, session_id: str, record: bytes, life: float) -> None:
        over = time.time() + life if life else 0
        (self._folder / session_id).write_bytes(b"%f\\n%s" % (over, record))

    async def get(self, session_id: str) -> bytes | None:
        try:
            over, _, record = (self._folder / session_id).read_bytes().partition(b"\\n")
        except FileNotFoundError:
            return None
        return None if 0 < float(over) <= time.time() else record

    async def delete(self, session_id: str) -> None:
        (self._folder / session_id).unlink(missing_ok=True)
        for deleted in list(self._watchers):
            deleted(session_id)

    def watch(self, deleted: Callable[[str], None]) -> Callable[[], None]:
        self._watchers.append(deleted)

        def end() -> None:
            if deleted in self._watchers:
                self._watchers.remove(deleted)

        return end
'''

SHARING = '''"""Two applications that share a store serve each other's sessions."""

import asyncio
import sys
from pathlib import Path

from support.http_peer import serving

from mcpd import Server
from mcpd.backplane.files import FileSessionStore
from mcpd.http import HttpSettings


def make_server() -> Server:
    server = Server("shared")

    @server.tool
    def echo(text: str) -> str:
        return text

    return server


async def main() -> None:
    settings = HttpSettings(session_store=FileSessionStore(Path(sys.argv[1])))
    async with serving(make_server(), settings) as one, serving(make_server(), settings) as other:
        session = await one.open()
        session.port = other
        answer = await session.ask("tools/call", {"name": "echo", "arguments": {"text": "here too"}})
        assert answer.json["result"]["content"][0]["text"] == "here too", answer


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
        for name in ("mcpd", "tests", "docs"):
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
    (copy.root / "mcpd/backplane/files.py").write_text(STORE)
    contracts = "tests/backplane/test_contracts.py"
    stores = "SESSION_STORES: list[Callable[[], SessionStore]] = [MemorySessionStore"
    copy.change(contracts, stores, f"{stores}, lambda: FileSessionStore(Path(mkdtemp()))")
    copy.change(
        contracts,
        "import threading\n",
        "import threading\nfrom pathlib import Path\nfrom tempfile import mkdtemp\n"
        "from mcpd.backplane.files import FileSessionStore\n",
    )
    assert copy.passes(contracts, "-k", "TestSessionStore")
    # What the contract promises is looked at: a store that keeps what is deleted does not pass.
    copy.change("mcpd/backplane/files.py", "        (self._folder / session_id).unlink(missing_ok=True)\n", "")
    assert not copy.passes(contracts, "-k", "TestSessionStore")

    (copy.root / "mcpd/backplane/files.py").write_text(STORE)
    (copy.root / "sharing.py").write_text(SHARING)
    folder = tmp_path / "sessions"
    folder.mkdir()
    run = copy.run("sharing.py", str(folder))
    assert run.returncode == 0, run.stderr


def test_adding_an_option(copy: Copy) -> None:
    copy.change(
        "mcpd/serve_options.py",
        "    max_frame_bytes: int | None = None\n",
        "    max_frame_bytes: int | None = None\n"
        '    nap: Annotated[float, Option("--nap", "Limits", "How long it rests at first.", "SECONDS")] = 0.5\n',
    )
    options = "tests/cli/test_options.py"
    assert not copy.passes(options)
    copy.change("mcpd/server/options.py", "    grace: float\n", "    grace: float\n    nap: float\n")
    assert copy.passes(options)
    shown = copy.run("-m", "mcpd", "serve", "--help")
    assert re.search(r"--nap SECONDS +How long it rests at first\..*MCPD_NAP", shown.stdout, re.DOTALL), shown
    given = copy.run("-c", "from mcpd.serve_options import Options; print(Options(nap=2).nap, Options().nap)")
    assert given.stdout == "2 0.5\n", given


def test_adding_an_option_of_a_decorator(copy: Copy) -> None:
    names = ("tests/server/test_app.py", "-k", "test_what_type_checkers_know_of_is_what_is_taken")
    copy.change("mcpd/registry/options.py", "    icons: Icons\n", "    icons: Icons\n    nap: int | None\n")
    assert not copy.passes(*names)
    copy.change("mcpd/server/metadata.py", '"description", "icons", "meta",', '"description", "icons", "nap", "meta",')
    assert copy.passes(*names)
    entry = '        title=options.get("title"),\n        description=_description(options, callee) or None,\n'
    use = entry.replace("_description(options, callee) or None", "f\"Rests for {options.get('nap')} s\"")
    text = (copy.root / "mcpd/server/entries.py").read_text("utf-8")
    before, prompt = text[: text.index("def prompt_entry")], text[text.index("def prompt_entry") :]
    assert prompt.count(entry) == 1
    (copy.root / "mcpd/server/entries.py").write_text(before + prompt.replace(entry, use), "utf-8")
    run = copy.run("-c", PROMPT)
    assert run.stdout == "Rests for 3 s\n", run


def test_adding_a_limit(copy: Copy) -> None:
    sessions = "    max_sessions: int = 10_000\n"
    copy.change("mcpd/http/core.py", sessions, f"{sessions}    max_naps: int = 7\n")
    limits = "tests/test_limits.py"
    assert not copy.passes(limits)
    page = (copy.root / "docs/limits.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if "`http.core.HttpSettings.max_sessions`" in line]
    wrong = (
        "| Naps at once | 8 | `HttpSettings(max_naps=…)` | the next is refused | `http.core.HttpSettings.max_naps` |"
    )
    copy.change("docs/limits.md", row, f"{row}\n{wrong}")
    assert not copy.passes(limits)
    copy.change("docs/limits.md", wrong, wrong.replace("| 8 |", "| 7 |"))
    assert copy.passes(limits)
