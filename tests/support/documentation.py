"""The blocks of a page in docs/, as files in a folder that tests can import."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from conftest import REPOSITORY

__all__ = ["blocks", "files_of", "page_modules"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:# |<!-- )([\w./]+\.(?:py|html))")


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block, in order."""
    return [(found[1], found[2]) for found in _FENCE.finditer(page.read_text(encoding="utf-8"))]


def files_of(page: Path) -> dict[str, str]:
    """The text of each file whose blocks are in the page, by its path. Blocks of one name are one file."""
    files: dict[str, str] = {}
    for language, text in blocks(page):
        if language in ("python", "html"):
            named = _FILE.match(text)
            assert named is not None, f"a block of {language} begins with the name of its file: {text[:60]!r}"
            files[named[1]] = files.get(named[1], "") + text
    return files


@pytest.fixture
def page_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[ModuleType]]]:
    """Write the files of a page into `tmp_path`, change to it, and import modules: `load("client", "program")`."""
    loaded: list[str] = []

    def load(page: str, *names: str) -> list[ModuleType]:
        for path, text in files_of(REPOSITORY / "docs" / f"{page}.md").items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
            loaded.append(path.removesuffix(".py"))
        for name in loaded:
            sys.modules.pop(name, None)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        return [importlib.import_module(name) for name in names]

    yield load
    for name in loaded:
        sys.modules.pop(name, None)
