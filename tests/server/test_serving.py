"""Serving inside a program: several transports at once, its ends, and what becomes of the program's own signals.

How a whole process ends is in tests/cli/test_serve_process.py.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import turns
from support.wires import initialize
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mcpd import Server
from mcpd.errors import ConfigurationError
from mcpd.server import serving
from mcpd.server.serving import Settings, serve
from mcpd.transports.websocket.server import WebSocketLimits


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """(server's in, our out, our in, server's out)."""
    fd_in, ours_out = os.pipe()
    ours_in, fd_out = os.pipe()
    yield fd_in, ours_out, ours_in, fd_out
    for descriptor in (fd_in, ours_out, ours_in, fd_out):
        try:
            os.close(descriptor)
        except OSError:  # the test did
            pass


def make_server() -> Server:
    server = Server("t")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


@pytest.mark.parametrize(
    ("settings", "is_fast"),
    [
        (Settings(ws="127.0.0.1:0"), True),
        (Settings(http="127.0.0.1:0"), True),
        (Settings(stdio=True, ws="127.0.0.1:0"), True),
        (Settings(stdio=True), False),
    ],
)
def test_sockets_are_served_by_uvloop(settings: Settings, is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed; a server on stdio alone does not load it, for its host waits."""
    pytest.importorskip("uvloop")
    loops: list[str] = []

    async def look(*_: object) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)

    monkeypatch.setattr(serving, "serve", look)
    monkeypatch.setattr(serving, "_take_process", lambda settings: None)
    serving.run(make_server(), settings)
    assert loops == ["uvloop" if is_fast else "asyncio.unix_events"]


async def test_the_end_of_the_input_is_the_end_of_serving(pipes: tuple[int, int, int, int]) -> None:
    fd_in, ours_out, ours_in, fd_out = pipes
    serving = asyncio.create_task(serve(make_server(), Settings(stdio=True, descriptors=(fd_in, fd_out))))
    os.write(ours_out, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert await asyncio.to_thread(os.read, ours_in, 1000) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
    os.close(ours_out)
    async with asyncio.timeout(60):
        await serving


@pytest.mark.usefixtures("default_sigterm")
async def test_signals_are_given_back(pipes: tuple[int, int, int, int]) -> None:
    """Who embeds us has handlers of its own, before and after."""
    fd_in, ours_out, _, fd_out = pipes
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    serving = asyncio.create_task(serve(make_server(), Settings(stdio=True, descriptors=(fd_in, fd_out))))
    await asyncio.sleep(0)
    assert signal.getsignal(signal.SIGTERM) != before[0]
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await serving
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    os.close(ours_out)


async def test_a_second_signal_does_not_wait_for_the_grace_time(pipes: tuple[int, int, int, int]) -> None:
    fd_in, ours_out, ours_in, fd_out = pipes
    server, entered = make_server(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    settings = Settings(stdio=True, descriptors=(fd_in, fd_out), grace=600)
    serving = asyncio.create_task(serve(server, settings))
    os.write(ours_out, _line(initialize("2025-11-25")))
    os.write(ours_out, b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}\n')
    await entered.wait()
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
        await turns()
    async with asyncio.timeout(60):
        await serving
    assert b"shutting down" in os.read(ours_in, 100_000)


def _line(message: Any) -> bytes:
    import json

    return json.dumps(message).encode() + b"\n"


def test_outside_of_the_main_thread_there_are_no_signals(pipes: tuple[int, int, int, int]) -> None:
    fd_in, ours_out, ours_in, fd_out = pipes
    settings = Settings(stdio=True, descriptors=(fd_in, fd_out))
    failed: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(serve(make_server(), settings))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    os.write(ours_out, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert b'"result"' in os.read(ours_in, 1000)
    os.close(ours_out)
    thread.join(20)
    assert not thread.is_alive()
    assert not failed


@pytest.mark.parametrize("settings", [Settings(ws="nonsense"), Settings(ws="256.0.0.1:1"), Settings(http=":port")])
async def test_an_address_that_cannot_be_used_is_said(settings: Settings) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConfigurationError):
        await serve(make_server(), settings)
    assert signal.getsignal(signal.SIGTERM) == before


async def test_where_a_loop_runs_already_run_says_what_to_write() -> None:
    """Notebooks, and programs that are async from the start; stdin and stdout stay what they were."""
    before = os.fstat(0), os.fstat(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match=r"await mcpd\.server\.serving\.serve\(server, Settings\(stdio=True\)\)"):
            make_server().run()
        gc.collect()
    assert all(map(os.path.samestat, before, (os.fstat(0), os.fstat(1))))


def test_what_run_does_not_take_is_said() -> None:
    options: dict[str, Any] = {"transport": "stdio"}
    with pytest.raises(
        TypeError, match=r"no option transport; choose transports with stdio=True.*the other options are .*grace"
    ):
        make_server().run(**options)
    for name in ("ws", "http"):
        address: dict[str, Any] = {name: 8080}
        with pytest.raises(ConfigurationError, match=f'{name}=8080 is not an address; use a str such as ":8080"'):
            make_server().run(**address)


async def test_the_limits_of_a_websocket_client_are_a_setting() -> None:
    urls: asyncio.Queue[str] = asyncio.Queue()
    limits = WebSocketLimits(max_connections=1, max_frame_bytes=100)
    settings = Settings(ws="127.0.0.1:0", ws_limits=limits, announce=urls.put_nowait)
    serving = asyncio.create_task(serve(make_server(), settings))
    url = await urls.get()
    async with connect(url) as client:
        with pytest.raises(InvalidStatus, match="503"):
            await connect(url)
        await client.send("x" * 101)
        with pytest.raises(ConnectionClosed, match="100 bytes"):
            await client.recv()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_several_transports_on_one_server(pipes: tuple[int, int, int, int]) -> None:
    fd_in, ours_out, ours_in, fd_out = pipes
    heard: list[str] = []
    settings = Settings(
        stdio=True, ws="127.0.0.1:0", http="127.0.0.1:0", descriptors=(fd_in, fd_out), announce=heard.append
    )
    serving = asyncio.create_task(serve(make_server(), settings))
    os.write(ours_out, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert b'"result"' in await asyncio.to_thread(os.read, ours_in, 1000)
    assert [url.partition(":")[0] for url in heard] == ["ws", "http"]
    async with connect(heard[0]) as client:
        await client.send('{"jsonrpc":"2.0","id":2,"method":"ping"}')
        assert '"id":2' in str(await client.recv())
        os.close(ours_out)
        async with asyncio.timeout(60):
            await serving


# A program that serves itself, as one does who does not use the command.
PROGRAM = """
import sys, threading, time
from mcpd import Server
server = Server("t")

@server.tool
def hangs() -> str:
    print("hanging", file=sys.stderr, flush=True)
    time.sleep(3600)
    return "never"

def other() -> None:
    time.sleep(float(sys.argv[1]))
    print("the program's own thread is done", file=sys.stderr, flush=True)

if __name__ == "__main__":
    threading.Thread(target=other).start()
    server.run(stdio=True, grace=0.1)
    print("after run", file=sys.stderr, flush=True)
"""


def start(child: Child, folder: Path, seconds: str) -> subprocess.Popen[bytes]:
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.Popen(
        [child.python, str(folder / "program.py"), seconds],
        env=child.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
def test_a_program_that_runs_a_server_goes_on_after_it(child: Child, tmp_path: Path) -> None:
    """Its own threads are its own business."""
    program = start(child, tmp_path, "0.5")
    out, said = program.communicate(_line(initialize("2025-11-25")), timeout=100)
    assert b'"protocolVersion":"2025-11-25"' in out
    assert said.decode().splitlines() == ["after run", "the program's own thread is done"]
    assert program.returncode == 0


def test_a_program_ends_with_a_hung_tool(child: Child, tmp_path: Path) -> None:
    program = start(child, tmp_path, "0")
    assert program.stdin is not None
    assert program.stderr is not None
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hangs"}}
    program.stdin.write(_line(initialize("2025-11-25")) + _line(call))
    program.stdin.flush()
    said = b""
    while b"hanging" not in said:
        said += os.read(program.stderr.fileno(), 1000)
    out, rest = program.communicate(timeout=100)
    assert out.count(b"\n") == 1  # who has hung up is not told what became of the call
    assert b"still runs" in rest
    assert program.returncode == 0


@pytest.mark.parametrize(
    ("how", "said"),
    [("", b"serving on stdio: expecting an MCP client"), ("http=':0'", b"listening on http://127.0.0.1:")],
)
def test_a_program_in_a_terminal_says_how_it_serves(how: str, said: bytes) -> None:
    near, far = os.openpty()
    code = f"from mcpd import Server; Server('t').run({how})"
    with subprocess.Popen([sys.executable, "-c", code], stdin=far, stdout=far, stderr=far) as process:
        os.close(far)
        try:
            assert os.read(near, 1000).startswith(b"mcpd: " + said)
        finally:
            process.kill()
            os.close(near)
