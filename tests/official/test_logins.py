"""The official clients log in by themselves, from 401 to an answer, and nobody sits at the browser.

Each at `mcpd serve --auth-server`, and at `mcpd serve --issuer` with a certified authorization server of others.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from support.login_stage import PASSWORD, users_file
from support.oidc_provider import free_port, provider

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
TOOLS = REPOSITORY / ".tools"
NODE = TOOLS / "bin" / "node"
PACKAGES = HERE / "node_modules" / "@modelcontextprotocol"
APPROVE = str(REPOSITORY / "conformance" / "approve.py")
LEGACY, MODERN = "2025-11-25", "2026-07-28"
SERVER = """
import json

from mcpd import Context, Server

server = Server("garden")


def said(user):
    return json.dumps([user.subject, sorted({"use", "notes"} & set(user.scopes)), user.claims["aud"]])


@server.tool
async def who(ctx: Context) -> str:
    return said(ctx.user)


@server.tool(scopes=["notes"])
async def save(ctx: Context) -> str:
    return said(ctx.user)
"""


@pytest.fixture(scope="module", params=["embedded", "oidc-provider"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of a server where somebody may log in, and who."""
    folder = tmp_path_factory.mktemp("logins")
    users_file(folder)
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    (folder / "auth.toml").write_text('[sign-in.users]\nfile = "users.toml"\n', encoding="utf-8")
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    with ExitStack() as stack:
        where = ("--auth-server", "auth.toml")
        if request.param == "oidc-provider":
            where = ("--issuer", stack.enter_context(provider(url, ["use", "notes"])).issuer)
        words = ("serve", "--http", f"127.0.0.1:{port}", "--scope", "use", *where, "server.py")
        server = subprocess.Popen(
            [sys.executable, "-m", "mcpd", *words],
            cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            assert f"listening on {url}" in line, line
            yield url, "ana" if request.param == "embedded" else "ada"
            server.terminate()
            rest = server.communicate(timeout=60)[1]
            assert server.returncode == 0
            assert "Traceback" not in rest
            assert PASSWORD not in rest
        finally:
            server.kill()
            server.communicate()


def logged_in(command: list[str | Path], *needs: Path) -> dict[str, Any]:
    """What a client says that logged in."""
    if not all(path.exists() for path in needs):
        pytest.skip("needs the official clients: make setup-test installs them")
    done = subprocess.run(
        command, env={**os.environ, "MCPD_LOGIN": f"ana:{PASSWORD}", "NO_PROXY": "*"}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def check(report: dict[str, Any], site: tuple[str, str], protocol: str) -> None:
    """Registered and let in once, once more for what the second tool needs, and then no more: that was a refresh."""
    url, user = site
    assert report["protocol"] == protocol
    (first, *others), asked = report["said"], report["asked"]
    assert first == [user, ["use"], url]
    assert others == [[user, ["notes", "use"], url]] * 2
    assert len(asked) == 2
    assert {"use", "notes"} <= set(asked[1])
    assert "notes" not in asked[0]
    assert report["refreshed"]


@pytest.mark.parametrize(("line", "protocol"), [(1, LEGACY), (2, LEGACY), (2, MODERN)])
def test_the_python_clients(site: tuple[str, str], line: int, protocol: str) -> None:
    """AUTH-001 … AUTH-006, AUTH-037, AUTH-080, AUTH-082, AUTH-120, AUTH-127: both lines, in what each speaks."""
    python = TOOLS / f"mcp{line}" / "bin" / "python"
    era = "legacy" if protocol == LEGACY else protocol
    report = logged_in([python, HERE / "login_python.py", era, site[0], APPROVE], python)
    assert report["client"].startswith(f"mcp {line}")
    check(report, site, protocol)


@pytest.mark.parametrize(("which", "protocol"), [("sdk", LEGACY), ("client", LEGACY), ("client", MODERN)])
def test_the_typescript_clients(site: tuple[str, str], which: str, protocol: str) -> None:
    """The same by both lines of the TypeScript SDK; the `state` of the client comes back."""
    era = "legacy" if protocol == LEGACY else protocol
    command: list[str | Path] = [NODE, HERE / "login_typescript.mjs", which, era, site[0], sys.executable, APPROVE]
    report = logged_in(command, NODE, PACKAGES / which)
    check(report, site, protocol)
    assert report["state"] == "a-state-of-the-client"


async def test_mcp_remote(site: tuple[str, str], tmp_path: Path) -> None:
    """AUTH-125: what hosts run that know no remote servers; it listens on a port of its own."""
    proxy = HERE / "node_modules" / "mcp-remote" / "dist" / "proxy.js"
    if not (NODE.exists() and proxy.exists()):
        pytest.skip("needs mcp-remote: make setup-test installs it")
    url, user = site
    environment = {
        **os.environ,
        "MCPD_LOGIN": f"ana:{PASSWORD}",
        "MCP_REMOTE_CONFIG_DIR": str(tmp_path),
        "PATH": "",  # no browser of this machine
    }
    client = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    remote = await asyncio.create_subprocess_exec(
        NODE, proxy, url, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    opening = asyncio.ensure_future(_opened(remote, environment))
    try:
        async with asyncio.timeout(60):
            await _answered(remote, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client})
            call = {"name": "who", "arguments": {}}
            answer = await _answered(remote, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    finally:
        remote.kill()
        said = await opening
        await remote.wait()
    assert json.loads(answer["result"]["content"][0]["text"])[::2] == [user, url], said


async def _opened(remote: asyncio.subprocess.Process, environment: dict[str, str]) -> str:
    """Open what it asks to be opened; gives all that it said."""
    assert remote.stderr is not None
    said = ""
    while line := (await remote.stderr.readline()).decode():
        said += line
        if line.startswith("http") and "response_type=code" in line:
            browser = await asyncio.create_subprocess_exec(sys.executable, APPROVE, line.strip(), env=environment)
            await browser.wait()
    return said


async def _answered(remote: asyncio.subprocess.Process, message: dict[str, Any]) -> dict[str, Any]:
    assert remote.stdin is not None
    assert remote.stdout is not None
    remote.stdin.write(json.dumps(message).encode() + b"\n")
    found: dict[str, Any] = json.loads(await remote.stdout.readline())
    assert found["id"] == message["id"]
    return found
