"""FastMCP's client drives our tasks by itself. Run by `make clients`, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from clients.test_frameworks import listening
from conftest import REPOSITORY, Child

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

INTERPRETER = REPOSITORY / ".tools" / "clients" / "fastmcp-tasks" / "bin" / "python"
SCRIPT = Path(__file__).with_name("fastmcp_tasks_client.py")
SERVER = str(REPOSITORY / "conformance" / "everything_with_extensions.py")


# FastMCP's client with `fastmcp-tasks` 4.1 leaves out the header Mcp-Name, which the specification demands of clients
# for all methods of tasks. So over HTTP it gets no further than the creation of a task.
NO_NAME = "Header mismatch: Mcp-Name is missing"


def report(target: list[str]) -> dict[str, Any]:
    if not INTERPRETER.exists():
        pytest.skip("needs fastmcp-tasks: make clients installs it")
    done = subprocess.run(
        [INTERPRETER, SCRIPT, *target], cwd=REPOSITORY, capture_output=True, text=True, timeout=200, check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_over_stdio(child: Child) -> None:
    """Tasks are created, read, answered, ended and cancelled."""
    assert report(child.mcpd("serve", "--stdio", SERVER)) == {
        "greet": "Hello, Ada!",
        "slow_compute": "Computed all for 0.5 s",
        "failing_job": "ToolError: This job always fails",
        "protocol_error_job": "ToolError: This job ends in an error of the protocol",
        "confirm_delete": "Deleted a.txt",
        "multi_input": "Ada answered",
        "test_tool_with_task": "Hello, Ada!",
        "asked": ["Delete a.txt?", "What is your name?", "Go on?", "What is your name?"],
        "cancelled": "working, cancelled",
    }


def test_over_http(child: Child) -> None:
    """TASK-055."""
    with listening(child.mcpd("serve", "--http", "127.0.0.1:0", SERVER), child.env) as url:
        found = report([url])
    assert found.pop("greet") == "Hello, Ada!"
    assert found.pop("asked") == ["What is your name?"]
    assert {name for name, text in found.items() if NO_NAME not in text} == set()
