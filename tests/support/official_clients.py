"""The official clients: run one of them against a command or an address, and get its report."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY

__all__ = ["CLIENTS", "HERE", "TOOLS", "Run", "runner"]

HERE = REPOSITORY / "tests" / "official"
TOOLS = REPOSITORY / ".tools"

# Name, interpreter, script, what has to be installed for it. `make test` installs all of them.
CLIENTS: dict[str, tuple[Path, str, Path]] = {
    "mcp 2": (TOOLS / "mcp2" / "bin" / "python", "python_client.py", TOOLS / ".mcp2"),
    "mcp 1": (TOOLS / "mcp1" / "bin" / "python", "python1_client.py", TOOLS / ".mcp1"),
    "client": (TOOLS / "bin" / "node", "ts_client.mjs", HERE / "node_modules" / "@modelcontextprotocol" / "client"),
    "sdk": (TOOLS / "bin" / "node", "ts_sdk_client.mjs", HERE / "node_modules" / "@modelcontextprotocol" / "sdk"),
}

Run = Callable[..., dict[str, Any]]


def runner(env: dict[str, str]) -> Run:
    """run(client, target, steps=…, era=…, extensions=…, answers=…): the client's report, after a clean end."""

    def run_client(client: str, target: dict[str, Any], **scenario: Any) -> dict[str, Any]:
        interpreter, script, installed = CLIENTS[client]
        if not (interpreter.exists() and installed.exists()):
            pytest.skip(f"needs the official client {client!r}: make setup-test installs it")
        done = subprocess.run(
            [interpreter, HERE / script],
            input=json.dumps({"target": target, **scenario}),
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    return run_client
