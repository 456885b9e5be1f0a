"""The pages in docs/ say what is so: their Python runs, their tests pass, their links lead somewhere.

A block of Python begins with the name of its file, `# server.py`; blocks of one name are one file. The files of a page
are laid in a folder of their own, in which each is imported and those that begin with `test_` are run by pytest.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from support.our_plugin import OUR_PLUGIN
from websockets.asyncio.client import connect

PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:# |<!-- )([\w./]+\.(?:py|html))")


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in _FENCE.finditer(page.read_text(encoding="utf-8"))]


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@each_page
def test_it_can_be_read(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# "), "a page begins with its title"
    prose = [line for line in text.splitlines() if not line.startswith("|") and "](" not in line]
    assert max(map(len, prose)) <= 120
    assert text.count("\n```") == 2 * len(blocks(page)), "every block says its language"
    for link in re.findall(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link


@each_page
def test_its_code_runs(page: Path, tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for language, text in blocks(page):
        if language == "json":
            json.loads(text)
        elif language == "toml":
            tomllib.loads(text)
        elif language in ("python", "html"):
            named = _FILE.match(text)
            assert named is not None, f"a block of {language} begins with the name of its file: {text[:60]!r}"
            files[named[1]] = files.get(named[1], "") + text
    if not files:
        return
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(REPOSITORY)))}
    modules = [name.removesuffix(".py") for name in files if name.endswith(".py") and "/" not in name]
    _run(["-c", f"import {', '.join(modules)}"], tmp_path, environment)
    tests = [name for name in files if Path(name).name.startswith("test_")]
    if tests:
        run = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *OUR_PLUGIN, *tests]
        if any("mcpd_lock" in files[name] for name in tests):
            _run([*run, "--mcpd-write"], tmp_path, environment)  # as the page says, of the first run
        _run(run, tmp_path, environment)


def _run(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


async def test_the_agent_of_the_page_on_hosting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that picks the app's tool, and a page whose View asks for a link and leaves a message."""
    for _, text in blocks(REPOSITORY / "docs" / "hosting-apps.md"):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("server", "agent"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    turn, bed = importlib.import_module("agent").turn, importlib.import_module("server").BED
    shown: list[tuple[str, str]] = []
    answers: dict[int, Any] = {}
    watching: list[asyncio.Task[None]] = []

    async def ask_model(tools: list[Any]) -> tuple[str, dict[str, Any]]:
        assert "show_bed" in [tool.name for tool in tools]
        return "show_bed", {"bed": "south"}

    async def show(html: str, policy: str, address: str) -> None:
        shown.append((html, policy))
        watching.append(asyncio.ensure_future(watch(address)))

    async def watch(address: str) -> None:
        text = [{"type": "text", "text": "more beans"}]
        requests = [
            (
                "ui/initialize",
                {"appInfo": {"name": "p", "version": "1"}, "appCapabilities": {}, "protocolVersion": "x"},
            ),
            ("ui/open-link", {"url": "https://garden.example/beans"}),
            ("ui/open-link", {"url": "https://elsewhere.example/"}),
            ("ui/message", {"role": "user", "content": text}),
            ("ui/update-model-context", {"structuredContent": {"selected": "beans"}}),
        ]
        async with connect(address, origin="http://localhost:8000", proxy=None) as page:  # type: ignore[arg-type]
            for number, (method, params) in enumerate(requests):
                await page.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
                if number == 0:
                    await page.send('{"jsonrpc": "2.0", "method": "ui/notifications/initialized"}')
                while number not in answers:
                    told = json.loads(await page.recv())
                    answers[told.get("id", told.get("method"))] = told

    result, messages, context = await turn(ask_model, show)
    await watching[0]
    for name in ("server", "agent"):
        monkeypatch.delitem(sys.modules, name)
    assert result.structured_content["plants"] == ["beans"]
    assert shown[0][0] == bed
    assert shown[0][1].startswith("default-src 'none'; ")
    assert answers[1]["result"] == {}
    assert answers[2]["error"]["code"] == -32000
    assert [message.content[0].text for message in messages] == ["more beans"]
    assert [one.structured_content for one in context] == [{"selected": "beans"}]
