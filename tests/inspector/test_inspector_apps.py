"""The Inspector's page shows our bundled apps: a host of other people's, with opaque origins."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.browser import BrowserError, Chromium, Page, chromium

__all__ = ["chromium"]

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
NODE = HERE.parent.parent / ".tools" / "bin" / "node"
CLI = HERE / "node_modules" / ".bin" / "mcp-inspector"
# Some kinds of views, by what is served: the tool that opens each, its arguments, and what is then to be read in it.
APPS: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "": {"apps_diagnostics": ({}, "")},
    "examples/views.py": {"stock": ({}, ""), "sales": ({}, ""), "order": ({}, "")},
    "examples/handbook": {
        "search_handbook": ({"query": "garden"}, "garden"),
        "read_docs_page": ({"path": "index"}, "handbook"),
    },
    "NOTES": {
        "show_notebook": ({"path": "spring"}, "Peas and beans."),
        "search_docs": ({"query": "compost"}, "compost"),
    },
}
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Spring\nPeas and beans."}],
}


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


async def shows(page: Page, text: str) -> None:
    """Await a text in one of the frames of a page."""
    read = "document.body?.innerText.toLowerCase() ?? ''"
    async with asyncio.timeout(60):
        while True:
            for frame in [one for one in page.frames.values() if one is not page.main and one.context is not None]:
                with contextlib.suppress(BrowserError):  # it may go meanwhile
                    if text.lower() in await frame.evaluate(read):
                        return
            await page.main.evaluate("new Promise(requestAnimationFrame)")


@pytest.mark.parametrize("target", APPS)
async def test_it_shows_our_apps(
    child: Child, chromium: Chromium, inspector: tuple[str, str], target: str, tmp_path: Path
) -> None:
    """APP-V-01, APP-V-03, APP-V-05: also the reader of documents and the page of a notebook, with what they show."""
    page_url, token = inspector
    files = [str(REPOSITORY / target)] if target else []
    if target == "NOTES":
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "soil.md").write_text("# Soil\n\nAll about compost.\n")
        (tmp_path / "resources").mkdir()
        (tmp_path / "resources" / "spring.ipynb").write_text(json.dumps(NOTEBOOK))
        files = [str(tmp_path)]
    command = child.mcpd("serve", "--http", "127.0.0.1:0", *files)
    server = subprocess.Popen(
        command, env=child.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        url = heard_url(server, rb"http://127\.0\.0\.1:\d+/\S*")
        for tool, (arguments, text) in APPS[target].items():
            async with chromium.page(width=1200, height=900) as page:
                link = f"{page_url}/?MCP_INSPECTOR_API_TOKEN={token}&autoConnect={token}&autoOpen={token}"
                given = f"&appArgs={urlsafe_b64encode(json.dumps(arguments).encode()).decode()}" if arguments else ""
                top = await page.goto(f"{link}&serverUrl={url}&transport=http&openApp={tool}{given}")
                await top.until("document.querySelector('[data-app-status=ready]') !== null")
                if text:
                    await shows(page, text)
                assert not page.errors, page.errors
    finally:
        server.terminate()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
