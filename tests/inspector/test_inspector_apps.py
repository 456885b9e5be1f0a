"""The Inspector's page shows our bundled apps: a host of other people's, with opaque origins."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child
from support.browser import Chromium, chromium

__all__ = ["chromium"]

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
NODE = HERE.parent.parent / ".tools" / "bin" / "node"
CLI = HERE / "node_modules" / ".bin" / "mcp-inspector"
# Some kinds of views, by the tool that opens each.
APPS = {"": ("apps_diagnostics",), "examples/views.py": ("stock", "sales", "order")}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def heard_url(process: subprocess.Popen[bytes], pattern: bytes) -> str:
    """The address that a process prints."""
    heard = b""
    assert process.stdout is not None
    while not (found := re.search(pattern, heard)):
        chunk = os.read(process.stdout.fileno(), 4096)
        assert chunk, f"it ended without a word on where it listens: {heard!r}"
        heard += chunk
    return found[0].decode()


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The Inspector's page, and its token."""
    if not (NODE.exists() and CLI.exists()):
        pytest.skip("needs Node 22 and the Inspector: make setup-test installs both")
    token, home = secrets.token_hex(16), str(tmp_path_factory.mktemp("home"))
    env = {**os.environ, "HOME": home, "MCP_INSPECTOR_API_TOKEN": token, "MCP_AUTO_OPEN_ENABLED": "false",
           "CLIENT_PORT": str(free_port()), "HOST": "127.0.0.1", "MCP_STORAGE_DIR": home,
           "MCP_INSPECTOR_SECRET_STORE": "file"}  # fmt: skip
    process = subprocess.Popen(
        [NODE, CLI, "--web"],
        env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield heard_url(process, rb"http://(127\.0\.0\.1|localhost):\d+"), token
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("target", APPS)
async def test_it_shows_our_apps(child: Child, chromium: Chromium, inspector: tuple[str, str], target: str) -> None:
    """APP-V-01, APP-V-03, APP-V-05."""
    page_url, token = inspector
    files = [str(REPOSITORY / target)] if target else []
    command = child.mcpd("serve", "--http", "127.0.0.1:0", *files)
    server = subprocess.Popen(
        command, env=child.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        url = heard_url(server, rb"http://127\.0\.0\.1:\d+/\S*")
        for tool in APPS[target]:
            async with chromium.page(width=1200, height=900) as page:
                link = f"{page_url}/?MCP_INSPECTOR_API_TOKEN={token}&autoConnect={token}&autoOpen={token}"
                top = await page.goto(f"{link}&serverUrl={url}&transport=http&openApp={tool}")
                await top.until("document.querySelector('[data-app-status=ready]') !== null")
                assert not page.errors, page.errors
    finally:
        server.terminate()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
