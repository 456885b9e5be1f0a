"""The official clients as fixtures: run one of them against a command or an address, get its report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.official_clients import HERE, Run, runner
from support.wire_schema import Conversation


@pytest.fixture
def run(child: Child) -> Run:
    """run(client, target, steps=…, era=…, extensions=…, answers=…): the client's report, after a clean end."""
    return runner(child.env)


class Tapped:
    """A stdio server behind a tap: its target for a scenario, and afterwards all that it said."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.folder = folder
        self.target = {"command": [sys.executable, str(HERE / "tap.py"), str(folder), "--", *command]}

    def conversations(self) -> list[Conversation]:
        """Every run of the server, each of its messages held against the schema of its version."""
        talks = []
        for record in sorted(self.folder.iterdir()):
            talk = Conversation()
            # splitlines() would also cut at U+2028, which may stand in a JSON string.
            for line in record.read_text(encoding="utf-8").removesuffix("\n").split("\n"):
                (talk.client if line[0] == ">" else talk.server)(json.loads(line[2:]))
            talks.append(talk)
        assert talks, "the server was never started"
        return talks


@pytest.fixture
def tapped(child: Child) -> Iterator[Callable[..., Tapped]]:
    """tapped("serve", "--stdio"): this `mcpd` command behind a tap."""
    folder = Path(tempfile.mkdtemp(prefix="mcpd-tap-"))
    yield lambda *arguments: Tapped(folder, child.mcpd(*arguments))
    shutil.rmtree(folder)


@pytest.fixture
def websocket(child: Child) -> Iterator[dict[str, Any]]:
    """The starter on a free port of this machine, as the target of a scenario."""
    with _listening(child, "--ws") as target:
        yield target


@pytest.fixture
def http(child: Child) -> Iterator[dict[str, Any]]:
    """The same over HTTP."""
    with _listening(child, "--http") as target:
        yield target


@pytest.fixture
def everything(child: Child) -> Iterator[dict[str, Any]]:
    """The conformance server over HTTP."""
    with _listening(child, "--http", str(HERE.parent.parent / "conformance" / "everything.py")) as target:
        yield target


@pytest.fixture
def everything_with_extensions(child: Child) -> Iterator[dict[str, Any]]:
    """The same with skills and tasks."""
    with _listening(child, "--http", str(REPOSITORY / "conformance" / "everything_with_extensions.py")) as target:
        yield target


@pytest.fixture
def reporting(child: Child) -> Iterator[dict[str, Any]]:
    """The server whose tools report to the end, over WebSocket."""
    with _listening(child, "--ws", str(HERE / "reporting.py")) as target:
        yield target


@pytest.fixture
def reporting_over_http(child: Child) -> Iterator[dict[str, Any]]:
    """The same over HTTP, with a heartbeat five times a second."""
    with _listening(child, "--http", "--heartbeat", "0.2", str(HERE / "reporting.py")) as target:
        yield target


@contextmanager
def _listening(child: Child, option: str, *more: str) -> Iterator[dict[str, Any]]:
    # Left to the system is which port is free; the server says which one it got.
    server = subprocess.Popen(
        child.mcpd("serve", option, "127.0.0.1:0", *more),
        env=child.env,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert server.stderr is not None
    try:
        heard = b""
        while not (found := re.search(rb"(ws|http)://127\.0\.0\.1:\d+/\S*", heard)):
            chunk = os.read(server.stderr.fileno(), 4096)
            assert chunk, f"the server ended without a word on where it listens: {heard!r}"
            heard += chunk
        yield {"url": found[0].decode()}
        server.terminate()
        assert server.wait(timeout=100) == 0
        assert b"Traceback" not in server.stderr.read()
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
