"""The Inspector's command line against `mcpd serve --http`: it lists and calls, in a version it chooses itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Child

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
NODE = HERE.parent.parent / ".tools" / "bin" / "node"
CLI = HERE / "node_modules" / ".bin" / "mcp-inspector"

Inspect = Callable[..., Any]


@pytest.fixture
def inspect(child: Child, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Inspect]:
    """inspect("--method", "tools/list"): what the Inspector prints, as JSON, of the starter or the file in `param`."""
    files = [request.param] if hasattr(request, "param") else []
    if not (NODE.exists() and CLI.exists()):
        pytest.skip("needs Node 22 and the Inspector: make setup-test installs both")
    server = subprocess.Popen(
        child.mcpd("serve", "--http", "127.0.0.1:0", *files),
        env=child.env,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert server.stderr is not None
    try:
        heard = b""
        while not (found := re.search(rb"http://127\.0\.0\.1:\d+/\S*", heard)):
            chunk = os.read(server.stderr.fileno(), 4096)
            assert chunk, f"the server ended without a word on where it listens: {heard!r}"
            heard += chunk
        url = found[0].decode()
        # It keeps a catalogue of servers in the home directory.
        env = {**child.env, "HOME": str(tmp_path)}

        def run(*arguments: str) -> Any:
            done = subprocess.run(
                [NODE, CLI, "--cli", url, "--transport", "http", *arguments],
                env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr + done.stdout
            return json.loads(done.stdout)

        yield run
        server.terminate()
        assert server.wait(timeout=100) == 0
        assert b"Traceback" not in server.stderr.read()
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def test_it_lists_and_calls(inspect: Inspect) -> None:
    tools = inspect("--method", "tools/list")["tools"]
    assert {"echo", "add"} <= {tool["name"] for tool in tools}
    called = inspect("--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=héllo ✓")
    assert called["content"] == [{"type": "text", "text": "héllo ✓"}]
    assert called.get("isError") is not True
    uris = [resource["uri"] for resource in inspect("--method", "resources/list")["resources"]]
    assert "mcpd://welcome" in uris
    (content,) = inspect("--method", "resources/read", "--uri", "mcpd://welcome")["contents"]
    assert "mcpd" in content["text"]


@pytest.mark.parametrize("inspect", [str(HERE.parent / "clients" / "typed_server.py")], indirect=True)
def test_its_strict_mode_finds_no_schema_hard_to_read(inspect: Inspect) -> None:
    """It ends with 6 at an error, as it did at each tuple."""
    listed = inspect("--method", "tools/list", "--strict", "--format", "json")
    assert len(listed["result"]["tools"]) == 4
    assert not listed.get("schemaFindings")
