"""Servers that others wrote, unchanged: what they list and answer under mcpd is what they do under their own library.

Run by `make clients`. The library lives in an environment of its own, with its client; beside mcpd it is not installed.
Each server of `servers.toml` is asked over stdio by that client, once in each environment.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parent
TOOLS = REPOSITORY / ".tools" / "compat"
# Runs a server with its own library: this file needs nothing of mcpd.
RUNNER = REPOSITORY / "mcpd" / "cli" / "own_library.py"
ORIGINAL, SECOND, OURS = (TOOLS / name / "bin" / "python" for name in ("original", "second", "ours"))
EXAMPLES, SECOND_EXAMPLES = TOOLS / "examples", TOOLS / "second-examples"
NEEDED = (ORIGINAL, SECOND, OURS, EXAMPLES, SECOND_EXAMPLES)

SERVERS: list[dict[str, Any]] = tomllib.loads((HERE / "servers.toml").read_text(encoding="utf-8"))["server"]

# The models of results are described in other words here; the schemas are the same.
_DESCRIBED = ("$defs",)


def is_second(server: dict[str, Any]) -> bool:
    """Whether its library is in the other environment: FastMCP, or version 2 of the official SDK."""
    return bool(server.get("library") == "second")


def report(command: list[str], folder: Path, calls: list[Any] | None, env: dict[str, str]) -> Any:
    wanted = {"command": command, "folder": str(folder), "calls": calls}
    done = subprocess.run(
        [ORIGINAL, HERE / "asking.py"],
        input=json.dumps(wanted),
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "stderr": done.stderr}


def plain(value: Any, *, in_definitions: bool = False) -> Any:
    """Without what is said of our models in other words, and where members have no order, in one."""
    if isinstance(value, dict):
        return {
            key: plain(member, in_definitions=in_definitions or key in _DESCRIBED)
            for key, member in value.items()
            if not (in_definitions and key == "description")
        }
    if isinstance(value, list):
        return [plain(member, in_definitions=in_definitions) for member in value]
    return value


@pytest.mark.parametrize(
    "server", [pytest.param(one, id="/".join((one.get("folder", ""), one["target"]))) for one in SERVERS]
)
def test_it_answers_as_under_its_own_library(server: dict[str, Any], child: Child) -> None:
    if not all(place.exists() for place in NEEDED):
        pytest.skip("needs the library and its examples: make setup-clients installs them")
    env = {**child.env, "PYTHONWARNINGS": "ignore"}
    arguments = server.get("arguments", [])
    python = SECOND if is_second(server) else ORIGINAL
    folder, calls = (SECOND_EXAMPLES if is_second(server) else EXAMPLES) / server.get("folder", "."), server["calls"]
    theirs = report([str(python), str(RUNNER), "", server["target"], *arguments], folder, calls, env)
    ours = report([str(OURS), "-m", "mcpd", "serve", "--stdio", server["target"], "--", *arguments], folder, calls, env)
    # Of a low-level server that is served as an object it is the object's; its program may say another one.
    assert ours["said"]["serverInfo"]["name"] == server.get("named", theirs["said"]["serverInfo"]["name"])
    assert ours["said"].get("instructions") == theirs["said"].get("instructions")
    for kind, listed in theirs["lists"].items():
        if "error" in listed:  # no such handler: the list is an empty one here
            assert not any(ours["lists"][kind].values())
        else:
            assert plain(ours["lists"][kind]) == plain(listed), kind
    without = server.get("without", [])
    for call, mine, their in zip(server["calls"], ours["answers"], theirs["answers"], strict=True):
        if call.get("tool") in without:
            assert mine.get("isError") == their.get("isError"), call
            assert set(mine) == set(their)
        else:
            assert mine == their, call


def test_the_table_is_long_enough() -> None:
    assert len(SERVERS) >= 25
    assert all(server["calls"] for server in SERVERS)
