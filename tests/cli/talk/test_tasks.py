"""`mcpd tasks` in pipes, with a server of each era: what is printed, where, and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SCRIPT = str(REPOSITORY / "tests" / "support" / "task_script.py")
BOTH = pytest.mark.parametrize("era", ["modern", "legacy"])


@pytest.fixture
def run(child: Child, tmp_path: Path) -> Run:
    """run("legacy", "list"): the finished command, for a server of this era."""

    def start(era: str, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            child.mcpd("tasks", *words, "--", sys.executable, SCRIPT, era), stdin=subprocess.DEVNULL, env=child.env,
            cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done

    return start


def test_list(run: Run) -> None:
    done = run("legacy", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["busy", "working", "2026-11-27T10:00:05.000Z", "frame", "(3", "of", "40)"],
        ["asks", "input_required", "2026-11-27T10:00:05.000Z"],
        ["done", "completed", "2026-11-27T10:00:05.000Z"],
        ["failed", "failed", "2026-11-27T10:00:05.000Z"],
    ]
    tasks = json.loads(run("legacy", "list", "--json").stdout)
    assert [task["taskId"] for task in tasks] == ["busy", "asks", "done", "failed"]
    done = run("modern", "list")
    assert (done.returncode, done.stdout) == (1, "")
    assert "only servers of protocol version 2025-11-25 list tasks" in done.stderr


@BOTH
def test_get(run: Run, era: str) -> None:
    done = run(era, "get", "busy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["working", "2026-11-27T10:00:05.000Z", "frame", "(3", "of", "40)"]
    assert json.loads(run(era, "get", "busy", "--json").stdout)["status"] == "working"
    done = run(era, "get", "done")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a forest\n", "")
    done = run(era, "get", "--wait", "busy", "--json")
    assert json.loads(done.stdout)["content"][0]["text"] == "a forest"
    unknown = "unknown task (code -32602)"
    for name, why in (("failed", "no disk (code -32603)"), ("other", unknown), ("-OQb", unknown)):
        done = run(era, "get", name)
        assert (done.returncode, done.stdout) == (1, "")
        assert why in done.stderr
    done = run(era, "get")
    assert (done.returncode, done.stdout) == (2, "")
    assert "which task? Write its id" in done.stderr


def test_the_questions_of_a_task(run: Run) -> None:
    """They are shown, and with --wait they are asked; without a terminal the answer is no."""
    done = run("modern", "get", "asks")
    assert done.stdout.splitlines()[1:] == ["  asks: Which size?", "  to answer, use --wait"]
    done = run("modern", "get", "asks", "--wait")
    assert (done.returncode, done.stdout) == (0, "a forest\n")
    assert "declined" in done.stderr


@BOTH
def test_cancel(run: Run, era: str) -> None:
    done = run(era, "cancel", "busy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["cancelled", "2026-11-27T10:00:05.000Z", "as", "asked"]
    done = run(era, "cancel", "one", "two")
    assert (done.returncode, done.stdout) == (2, "")
    assert "leave out 'two'" in done.stderr


@BOTH
def test_a_call_that_becomes_a_task(child: Child, era: str) -> None:
    """Its id is printed, because `mcpd tasks` needs it."""
    command = child.mcpd("call", "render", "--", sys.executable, SCRIPT, era)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, env=child.env, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout) == (0, "a forest\n")
    assert done.stderr.splitlines().count("mcpd: this call is a task now: busy") == 1


SERVER = """
from mcpd import Server

server = Server("studio")

@server.tool(task="required")
async def render() -> str:
    return "a forest"
"""


def test_a_task_of_another_process(child: Child, tmp_path: Path) -> None:
    """Each command starts our server again, which finds its tasks in the store."""
    (tmp_path / "studio.py").write_text(SERVER)
    env = {**child.env, "MCPD_TASK_STORE": f"sqlite:///{tmp_path}/tasks.db"}

    def run(*words: str) -> str:
        done = subprocess.run(
            child.mcpd(*words), stdin=subprocess.DEVNULL, env=env, cwd=tmp_path,
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("call", "studio.py", "render") == "a forest\n"
    task_id, status, *_ = run("tasks", "list", "studio.py").split()
    assert status == "completed"
    assert run("tasks", "get", "studio.py", task_id) == "a forest\n"
    assert json.loads(run("tasks", "get", "studio.py", task_id, "--json"))["taskId"] == task_id
