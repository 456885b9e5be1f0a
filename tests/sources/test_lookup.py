"""Which folder is meant where none is named: by mcpd.toml, by pyproject.toml, by the names of sub-folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.folders import write

from mcpd.cli.target import load
from mcpd.errors import ConfigurationError
from mcpd.sources.lookup import ServerFolder, folder_at, folder_here


def test_the_nearest_file_here_or_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path, {"mcpd.toml": "", "a/b/x": "", "a/pyproject.toml": "[tool.mcpd]\n", "c/pyproject.toml": ""})
    monkeypatch.chdir(root / "a" / "b")
    assert folder_here() == ServerFolder(str(root), str(root / "mcpd.toml"))
    (root / "mcpd.toml").unlink()
    assert folder_here() == ServerFolder(str(root / "a"), str(root / "a" / "pyproject.toml"))
    monkeypatch.chdir(root / "c")
    assert folder_here() is None
    assert folder_at(".") == ServerFolder(str(root / "c"))


@pytest.mark.parametrize("name", ["tools", "apps", "resources", "prompts"])
def test_the_sub_folders_that_make_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """D9: whose code is not trusted, since nobody named the folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("a file")
    assert folder_here() is None
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert folder_here() == ServerFolder(str(tmp_path), is_trusted=False)


def test_a_server_beside_its_apps_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the README: the pages are those of the server in the file."""
    write(tmp_path, {"apps/bed.html": "", "server.py": "from mcpd import Server\n\nserver = Server('garden')\n"})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"name server\.py, which is here, or \. for this folder, or write --d"
    ):
        folder_here()


def test_a_file_of_another_user_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where everybody may write, as in /tmp, anybody's file could have code run."""
    write(tmp_path, {"mcpd.toml": "", "tools/a.py": "", "deep/x": ""})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(os, "stat", _owned_by(54321))
    assert folder_here() == ServerFolder(str(tmp_path), is_trusted=False, ignored_file=str(tmp_path / "mcpd.toml"))
    monkeypatch.setattr(os, "stat", _owned_by(0))
    assert folder_here() == ServerFolder(str(tmp_path), str(tmp_path / "mcpd.toml"))


def _owned_by(uid: int) -> object:
    real = os.stat

    def stat(path: str, *arguments: object, **options: object) -> os.stat_result:
        found = list(real(path))
        found[4] = uid
        return os.stat_result(found)

    return stat


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", gone)
    assert folder_here() is None


def test_without_any_it_is_the_starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = load(None)
    assert server is not None
    assert server.name == "mcpd"
    write(tmp_path, {"mcpd.toml": 'name = "mine"\n'})
    mine = load(None)
    assert mine is not None
    assert mine.name == "mine"
