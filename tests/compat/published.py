"""Published servers, unchanged: what they list and answer under mcpd is what they do under their own library.

`make published` runs this, and nothing else does: it installs each server twice, once without its library. One that
cannot be installed, as without the package index, is skipped.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from compat.test_servers import HERE, ORIGINAL, RUNNER, TOOLS, plain, report
from conftest import REPOSITORY, Child

pytestmark = pytest.mark.timeout(900)

SERVERS: list[dict[str, Any]] = tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))["server"]
LIBRARY = ("mcp", "mcp-types", "fastmcp", "fastmcp-slim")
# What comes with the library, and servers import without depending on it.
WITH_LIBRARY = (
    "httpx", "starlette", "uvicorn", "python-dotenv", "pydantic-settings", "typer", "rich", "pyyaml", "exceptiongroup",
)  # fmt: skip
PETS = {
    "openapi": "3.0.0",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "http://127.0.0.1:9"}],
    "paths": {"/pets": {"get": {"operationId": "listPets", "responses": {"200": {"description": "all"}}}}},
}


def installed(name: str, kind: str, *requirements: str) -> str:
    """The Python of an environment with a server."""
    folder = TOOLS / "published" / name / kind
    python = str(folder / "bin" / "python")
    if not (folder / "installed").exists():
        install = [sys.executable, str(REPOSITORY / ".ci" / "install.py"), python, name, *requirements]
        if subprocess.run(install, capture_output=True, check=False).returncode:
            pytest.skip(f"{name} cannot be installed here")
        (folder / "installed").touch()
    return python


def write_files(folder: Path) -> None:
    """What the arguments in the table name."""
    (folder / "PETSTORE.json").write_text(json.dumps(PETS), encoding="utf-8")
    connection = "connections:\n  my:\n    type: sqlite\n    path: A-FILE.sqlite\n"
    (folder / "SQLITE-CONFIG.yaml").write_text(connection, encoding="utf-8")
    sqlite3.connect(folder / "A-FILE.sqlite").execute("create table t (a)").connection.close()
    subprocess.run(["git", "init", "--quiet", folder / "A-GIT-REPOSITORY"], check=True)


def marked(server: dict[str, Any]) -> Any:
    marks = [pytest.mark.skip(f"{server['name']} needs {server['needs']}")] if "needs" in server else []
    return pytest.param(server, id=server["name"], marks=marks)


# How a server is run, and whether its own library is installed beside mcpd.
WAYS = {
    "without its library": ("never", False),
    "as mcpd chooses": ("auto", True),
    "with its library": ("always", True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("server", [marked(one) for one in SERVERS])
def test_it_lists_and_answers_what_it_does_under_its_own_library(
    server: dict[str, Any], way: str, child: Child, tmp_path: Path
) -> None:
    if not ORIGINAL.exists():
        pytest.skip("needs the official client: make setup-clients installs it")
    choice, has_library = WAYS[way]
    if "fails" in server and not has_library:
        pytest.xfail(f"mcpd.compat lacks {server['fails']}")
    name, target, arguments = server["name"], server["target"], server.get("arguments", [])
    write_files(tmp_path)
    without = tmp_path / "without.txt"
    without.write_text("".join(f'{each}; sys_platform == "none"\n' for each in LIBRARY), encoding="utf-8")
    original = installed(name, "theirs", *server.get("library", []))
    python = installed(name, "ours", "--override", str(without), f"{REPOSITORY}[compat,http]", *WITH_LIBRARY)

    env = {**child.env, "PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0", "HOME": str(tmp_path)}
    env |= server.get("environment", {})
    theirs = report([original, str(RUNNER), "", target, *arguments], tmp_path, None, env)
    # As if both were installed in one environment.
    (site,) = Path(original).parent.parent.glob("lib/python3*/site-packages")
    path = os.pathsep.join([str(REPOSITORY), *([str(site)] if has_library else [])])
    command = [python, "-m", "mcpd", "serve", "--stdio", "--library", choice, target, "--", *arguments]
    ours = report(["env", f"PYTHONPATH={path}", *command], tmp_path, theirs["calls"], env)

    is_child = "runs with its own library" in ours["stderr"]
    assert is_child if choice == "always" or "fails" in server else not is_child or choice == "auto"
    assert ours["said"].get("instructions") == theirs["said"].get("instructions")
    if is_child:
        assert ours["said"]["serverInfo"] == theirs["said"]["serverInfo"]
    for kind, listed in theirs["lists"].items():
        if "error" in listed and "error" not in ours["lists"][kind]:  # there is no such handler: an empty list here
            assert not any(ours["lists"][kind].values())
        elif "differs" in server and not is_child:
            assert names_of(ours["lists"][kind]) == names_of(listed), kind
        else:
            assert plain(ours["lists"][kind]) == plain(without_apps(listed) if is_child else listed), kind
    for call, mine, their in zip(theirs["calls"], ours["answers"], theirs["answers"], strict=True):
        if "varies" in server or ("differs" in server and not is_child):
            assert mine.get("isError") == their.get("isError"), call
        else:
            assert mine == their, call


def without_apps(listed: dict[str, Any]) -> dict[str, Any]:
    """A list without what clients only see if they show apps, which the official client does not."""
    found = {}
    for member, value in listed.items():
        entries = value if isinstance(value, list) else []
        for each in entries:
            each.get("_meta", {}).pop("ui", None)
            if each.get("_meta") == {}:
                del each["_meta"]
        found[member] = [each for each in entries if not each.get("uri", "").startswith("ui:")] if entries else value
    return found


def names_of(listed: dict[str, Any]) -> list[str]:
    """The names in a list."""
    return sorted(one["name"] for each in listed.values() if isinstance(each, list) for one in each)
