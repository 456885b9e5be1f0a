"""HTTP as users start it: `mcpd serve --http` with its options, and the application in an ASGI server of their own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from conftest import Child
from support.http_peer import Peer, call, envelope, initialize, modern, post, request
from support.websocket_peer import TEXT, Peer as WebSocketPeer, frame

pytestmark = pytest.mark.slow

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}'

MOUNTED = """
from mcpd import Context, Server

server = Server("mounted", version="1")

@server.tool
async def count(steps: int, *, ctx: Context) -> str:
    for step in range(steps):
        await ctx.progress(step + 1)
    return "counted"

app = server.asgi_app(settings=None)
"""


@asynccontextmanager
async def running(child: Child, command: list[str], says: bytes) -> AsyncIterator[bytes]:
    """A child process that has said this on stderr; gives all it said. It has to end with 0 on SIGTERM."""
    process = await asyncio.create_subprocess_exec(
        *command, env=child.env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        heard = b""
        async with asyncio.timeout(60):
            while says not in heard:
                chunk = await process.stderr.read(1000)
                assert chunk, heard.decode()
                heard += chunk
            if not heard.endswith(b"\n"):
                heard += await process.stderr.readline()
        yield heard
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() in (0, -signal.SIGTERM)  # uvicorn's own server ends by the signal itself
            assert b"Traceback" not in await process.stderr.read()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def port_of(heard: bytes) -> int:
    return int(heard.partition(b"127.0.0.1:")[2].split(b"/")[0].split(b" ")[0])


async def test_serve_on_a_unix_socket(child: Child, tmp_path: Path) -> None:
    path = tmp_path / "mcpd.sock"
    async with running(child, child.mcpd("serve", "--http", f"unix:{path}"), str(path).encode()):
        peer = Peer(*await asyncio.open_unix_connection(path))
        assert (await peer.ask(post(PING))).body == PONG
        await peer.aclose()
    assert not path.exists()


async def test_the_mode_of_a_unix_socket_and_the_path_of_the_endpoint(child: Child, tmp_path: Path) -> None:
    """Another user's proxy connects, and one that cannot strip its prefix. A token's line end is not part of it."""
    path = tmp_path / "mcpd.sock"
    child.env["MCPD_TOKEN"] = "secret\n"
    for workers in ((), ("--workers", "1")):
        command = child.mcpd(
            "serve", "--http", f"unix:{path}", "--socket-mode", "660", "--path", "/prefix/mcp", *workers
        )
        async with running(child, command, b"/prefix/mcp"):
            assert path.stat().st_mode & 0o777 == 0o660
            peer = Peer(*await asyncio.open_unix_connection(path))
            asked = post(PING, {"Authorization": "Bearer secret"}, path="/prefix/mcp")
            assert (await peer.ask(asked)).body == PONG
            await peer.aclose()


@pytest.mark.parametrize("mode", ["9", "066", "1777", "rw"])
def test_a_mode_that_cannot_be(child: Child, tmp_path: Path, mode: str) -> None:
    command = child.mcpd("serve", "--http", f"unix:{tmp_path}/s", "--socket-mode", mode)
    done = subprocess.run(command, check=False, env=child.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"mcpd: --socket-mode {mode}: write octal permissions")


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
@pytest.mark.parametrize("backplane", ["redis://127.0.0.1:1/0", "sqlite:///{}/state.db"])
def test_a_backplane_without_a_key_is_refused(
    child: Child, tmp_path: Path, workers: tuple[str, ...], backplane: str
) -> None:
    """Workers have no key of their own then: processes on other machines could not read what it seals."""
    command = child.mcpd("serve", "--http", "127.0.0.1:0", *workers, "--backplane", backplane.format(tmp_path))
    child.env.pop("MCPD_STATE_KEY", None)
    done = subprocess.run(command, check=False, env=child.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "set MCPD_STATE_KEY to 16 bytes or more" in done.stderr


async def test_serve_stateless(child: Child) -> None:
    async with running(child, child.mcpd("serve", "--http", "127.0.0.1:0", "--stateless"), b"/mcp") as heard:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port_of(heard)))
        answer = await peer.ask(post(initialize()))
        assert answer.status == 200
        assert "mcp-session-id" not in answer
        await peer.aclose()


async def test_sessions_of_a_server_that_forgets_soon(child: Child) -> None:
    command = child.mcpd("serve", "--http", "127.0.0.1:0", "--session-timeout", "0.2")
    async with running(child, command, b"/mcp") as heard:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port_of(heard)))
        id = (await peer.ask(post(initialize())))["mcp-session-id"]
        async with asyncio.timeout(60):
            while (await peer.ask(post(call("ping"), {"Mcp-Session-Id": id}))).status != 404:
                await asyncio.sleep(0.5)
        await peer.aclose()


@pytest.mark.parametrize("framing", ["httptools", "h11"])
async def test_in_uvicorns_own_server(child: Child, tmp_path: Path, framing: str) -> None:
    """Both eras, streams, lifespan and WebSocket, with an ASGI server that knows nothing of us."""
    if framing == "h11":
        pytest.importorskip("h11")
    (tmp_path / "mounted.py").write_text(MOUNTED)
    command = [
        *(child.python, "-m", "uvicorn", "mounted:app", "--app-dir", str(tmp_path), "--port", "0"),
        *("--http", framing, "--ws", "websockets-sansio", "--lifespan", "on"),
    ]
    async with running(child, command, b"127.0.0.1:") as heard:
        port = port_of(heard)
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        params = {"name": "count", "arguments": {"steps": 2}}
        answer = await peer.ask(modern("tools/call", params, meta=envelope(progressToken=1)))
        assert [message.get("method") for message in answer.messages] == ["notifications/progress"] * 2 + [None]
        assert (await peer.ask(modern("no/such/method"))).status == 404
        session = (await peer.ask(post(initialize())))["mcp-session-id"]
        assert (await peer.ask(post(PING, {"Mcp-Session-Id": session}))).body == PONG
        stream = Peer(*await asyncio.open_connection("127.0.0.1", port))
        stream.send(request("GET", "/mcp", [("Accept", "text/event-stream"), ("Mcp-Session-Id", session)]))
        assert (await stream.head()).status == 200
        event = await stream.event()
        assert event is not None
        assert event["data"] == ""
        await stream.aclose()
        assert (await peer.ask(request("DELETE", "/mcp", [("Mcp-Session-Id", session)]))).status == 204
        assert (await peer.ask(post(PING, host="evil.example.com"))).status == 403
        await peer.aclose()
        socket = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port))
        await socket.open(Sec_WebSocket_Protocol="mcp")
        socket.send(frame(TEXT, PING))
        assert await socket.text() == PONG
        await socket.aclose()
