"""The pages in docs/ say what is so: their Python runs, their tests pass, their links lead somewhere.

A block of Python begins with the name of its file, `# server.py`; blocks of one name are one file. The files of a page
are laid in a folder of their own, in which each is imported and those that begin with `test_` are run by pytest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import REPOSITORY
from support.documentation import blocks, files_of
from support.our_plugin import OUR_PLUGIN

PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))

# With the name of the file, without empty lines.
MOST_LINES = 26

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@each_page
def test_it_can_be_read(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# "), "a page begins with its title"
    prose = [line for line in text.splitlines() if not line.startswith("|") and "](" not in line]
    assert max(map(len, prose)) <= 120
    assert text.count("\n```") == 2 * len(blocks(page)), "every block says its language"
    assert max((sum(map(bool, code.splitlines())) for _, code in blocks(page)), default=0) <= MOST_LINES
    for link in re.findall(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link


@each_page
def test_its_code_runs(page: Path, tmp_path: Path) -> None:
    for language, text in blocks(page):
        if language == "json":
            json.loads(text)
        elif language == "toml":
            tomllib.loads(text)
    files = files_of(page)
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
