"""`mcpd check --lock FILE`, `--write` and `--json`: exit codes, words, and one JSON object whatever happens."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Child

Run = Callable[..., "subprocess.CompletedProcess[str]"]

GARDEN = '''
from mcpd import Server

print("planting")
server = Server("garden", version="1.2")

@server.tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b
'''


@pytest.fixture
def run(child: Child, tmp_path: Path) -> Run:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            child.mcpd("check", *words), cwd=tmp_path, env=child.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    (tmp_path / "garden.py").write_text(GARDEN)
    return run


def test_a_lock_is_written_and_held_against(run: Run, tmp_path: Path) -> None:
    missing = run("garden.py", "--lock", "garden.json")
    assert missing.returncode == 1
    assert "mcpd: problem: there is no approval file garden.json yet; to write it, add --write" in missing.stderr
    assert not (tmp_path / "garden.json").exists()

    written = run("garden.py", "--lock", "garden.json", "--write")
    assert (written.returncode, written.stderr) == (0, "mcpd: wrote garden.json\n")
    same = run("garden.py", "--lock", "garden.json")
    assert (same.returncode, same.stderr) == (0, "")

    (tmp_path / "garden.py").write_text(GARDEN.replace("b: int = 2", "b: int").replace("Add two", "Adds two"))
    other = run("garden.py", "--lock", "garden.json")
    assert other.returncode == 1
    assert other.stderr.splitlines() == [
        "mcpd: breaking: tool add: argument b is now required",
        "mcpd: harmless: tool add: the default of argument b was removed",
        "mcpd: harmless: tool add: description changed",
        "mcpd: the server differs from garden.json: 1 breaking and 2 harmless changes; to approve them, add --write",
    ]
    assert run("garden.py", "--lock", "garden.json", "--write").returncode == 0
    assert run("garden.py", "--lock", "garden.json").returncode == 0

    approved = (tmp_path / "garden.json").read_text()
    (tmp_path / "garden.json").write_text(approved.replace('"add"', '"\\u001b[2Jadd"'))
    foreign = run("garden.py", "--lock", "garden.json")
    assert "mcpd: breaking: tool \\x1b[2Jadd: removed" in foreign.stderr

    (tmp_path / "garden.json").write_text("{")
    broken = run("garden.py", "--lock", "garden.json")
    assert (broken.returncode, broken.stderr) == (
        1,
        "mcpd: garden.json is not an approval file of mcpd; write it again\n",
    )
    alone = run("garden.py", "--write")
    assert (alone.returncode, alone.stderr) == (2, "mcpd: --write requires --lock FILE; see mcpd check --help\n")


def test_json_has_everything_and_nothing_else(run: Run, tmp_path: Path) -> None:
    done = run("garden.py", "--json")
    assert done.returncode == 0
    said: dict[str, Any] = json.loads(done.stdout)  # what the file prints goes to stderr
    assert done.stderr == "planting\n"
    assert list(said) == [
        "target", "server", "problems", "warnings", "tools", "resources", "resourceTemplates", "prompts",
    ]  # fmt: skip
    assert said["server"] == {"name": "garden", "version": "1.2"}
    (tool,) = said["tools"]
    assert tool["name"] == "add"
    assert tool["inputSchema"]["required"] == ["a"]
    assert tool["outputSchema"]

    run("garden.py", "--lock", "garden.json", "--write")
    (tmp_path / "garden.py").write_text(
        GARDEN.replace('    """Add two numbers."""\n', "").replace("b: int = 2", "b: int")
    )
    done = run("garden.py", "--json", "--lock", "garden.json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["changes"][0] == {"where": "tool add", "text": "argument b is now required", "isBreaking": True}
    assert said["warnings"][0]["where"] == "tool add"
    assert said["problems"] == []
    assert run("garden.py", "--json", "--strict").returncode == 1

    done = run("nosuch.py", "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["server"] is None
    assert "no such file" in said["problems"][0]["text"]


WRONG = """
from mcpd import Server
server = Server("t")

@server.tool
def first(x: "Missing") -> str: return ""

@server.tool("second")
def second() -> str: return ""

@server.tool
def good() -> str:
    "A tool."
    return first("") + second()

@server.resource
def third() -> str: return ""

@server.completion("x")
def fourth(text: str) -> list[str]: return []

@server.route("orders")
def fifth() -> str: return ""

@server.middleware
def sixth(request): return ""

@server.prompt(nam="x")
def seventh() -> str: return ""

server.tool(lambda *a: "", name="eighth")
"""
REFUSED = {
    5: "'Missing'",
    8: "name='second'",
    16: "the URI is the first argument",
    19: "either prompt= or template=",
    22: "begins with /",
    25: "async def sixth",
    28: "unknown option 'nam'",
    31: "*args",
}


def test_every_decorator_that_fails_is_a_problem(run: Run, tmp_path: Path) -> None:
    """Loading goes on behind each of them, and what can be registered is."""
    (tmp_path / "wrong.py").write_text(WRONG)
    found = run("wrong.py", "--json")
    assert found.returncode == 1
    said = json.loads(found.stdout)
    assert [tool["name"] for tool in said["tools"]] == ["good"]
    refused = [problem for problem in said["problems"] if problem["where"].startswith("wrong.py, line ")]
    assert [problem["where"] for problem in refused] == [f"wrong.py, line {line}" for line in REFUSED]
    for problem, text in zip(refused, REFUSED.values(), strict=True):
        assert text in problem["text"]

    assert run("wrong.py", "--lock", "lock.json", "--write").returncode == 1
    assert not (tmp_path / "lock.json").exists()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgres://db/tasks", "expected a URL that begins with one of memory://, sqlite://"),
        ("sqlite://tasks.db", "write sqlite:///path/to/file"),
        ("redis://127.0.0.1:x/0", "redis://HOST:PORT/0"),
        ("sqlite:///nowhere/tasks.db", ""),
        ("memory://", ""),
    ],
)
@pytest.mark.parametrize("place", ["code", "file"])
def test_the_store_of_tasks_is_judged(run: Run, tmp_path: Path, place: str, url: str, problem: str) -> None:
    """In the code and in mcpd.toml; nothing is created or connected to."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "one.py").write_text("async def one() -> str:\n    return ''\n")
    (tmp_path / "mcpd.toml").write_text(f'[serve]\ntask-store = "{url}"\n' if place == "file" else "")
    (tmp_path / "server.py").write_text(f"from mcpd import Server\nserver = Server('a', task_store='{url}')\n")
    found = run("server.py" if place == "code" else ".")
    assert found.returncode == (1 if problem else 0), found.stderr
    assert ("task_store: backplane" in found.stderr) is bool(problem)
    assert problem in found.stderr


def test_what_decorators_refused_is_told_before_what_ends_the_import(run: Run, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(f"{WRONG}\nraise ValueError('at the end')\n")
    found = run("wrong.py")
    assert found.returncode == 1
    *refused, last = found.stderr.splitlines()
    assert [line.split(":")[2] for line in refused] == [f" wrong.py, line {line}" for line in REFUSED]
    assert last == "mcpd: wrong.py cannot be imported: ValueError: at the end (line 33)"
    assert "ValueError: at the end" in json.loads(run("wrong.py", "--json").stdout)["problems"][-1]["text"]


@pytest.mark.parametrize(("library", "call"), [("mcp.server.fastmcp", "()"), ("fastmcp", "")])
def test_decorators_of_other_libraries_are_collected(run: Run, tmp_path: Path, library: str, call: str) -> None:
    text = f"from {library} import FastMCP\nmcp = FastMCP('t')\n"
    for number, kind in enumerate(("tool", "prompt", "tool")):
        text += f"@mcp.{kind}{call}\ndef f{number}(x: 'Missing{number}') -> str: return ''\n"
    text += f"@mcp.resource\ndef r() -> str: return ''\n@mcp.tool{call}\ndef good() -> str: return ''\n"
    (tmp_path / "wrong.py").write_text(text)
    found = run("wrong.py")
    assert found.returncode == 1
    assert "  good" in found.stdout
    for line in (3, 5, 7, 9):
        assert f"mcpd: problem: wrong.py, line {line}: " in found.stderr


@pytest.mark.parametrize("library", ["mcp.server.fastmcp", "mcp.server.mcpserver", "fastmcp"])
@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_a_context_without_annotation_under_other_libraries(run: Run, tmp_path: Path, library: str, kind: str) -> None:
    """Clients are asked for it, as under the library itself."""
    name = "MCPServer" if "mcpserver" in library else "FastMCP"
    text = f"from {library} import {name}\nmcp = {name}('t')\n@mcp.{kind}()\ndef f(ctx): 'Doc.'\n"
    (tmp_path / "untyped.py").write_text(text)
    said = run("untyped.py").stderr
    assert said.count("for the context of the request write ctx: Context\n") == 1
