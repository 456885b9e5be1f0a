"""`asgi_app()` under other people's servers: they end when they are told to, though clients listen on open streams."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from conftest import Child
from support.clock import until
from support.wires import MODERN, envelope, initialize
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from mcpd import Server

pytestmark = pytest.mark.slow

MODULE = """
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from mcpd import Server

@asynccontextmanager
async def lifespan(server):
    with open("life", "a", buffering=1) as file:
        file.write("open\\n")
        yield
        await asyncio.sleep(0.3)
        file.write("closed\\n")

server = Server("hosted", lifespan=lifespan)

@server.tool
async def wait(path: str) -> str:
    "Wait until there is a file."
    Path(path + ".begun").touch()
    while not Path(path).exists():
        await asyncio.sleep(0.02)
    return "there it is"

app = server.asgi_app()

async def mounted(scope, receive, send):
    "As an application without a lifespan of its own is mounted in another."
    if scope["type"] != "lifespan":
        await app({**scope, "path": scope["path"].removeprefix("/below")}, receive, send)
        return
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
"""
UVICORN = ["uvicorn", "--port", "0", "--app-dir", "."]
HYPERCORN = ["hypercorn", "--bind", "127.0.0.1:0", "--graceful-timeout", "60"]
SERVERS = {
    "uvicorn": [*UVICORN, "--loop", "asyncio"],
    "uvloop": [*UVICORN, "--loop", "uvloop"],
    "hypercorn": HYPERCORN,
    "hypercorn-alone": [*HYPERCORN, "--workers", "0"],
}
BOTH = "application/json, text/event-stream"
GONE = 60.0
"""Far more than it takes; before, it took for ever."""

End = Callable[[], object]
Stream = Callable[[int, ExitStack], End]


@contextmanager
def running(child: Child, folder: Path, server: str, app: str = "app") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server as a process, with its port. What it says on stderr is read to the end."""
    (folder / "hosted.py").write_text(MODULE)
    command = [child.python, "-m", *SERVERS[server], f"hosted:{app}"]
    with subprocess.Popen(command, env=child.env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as it:
        assert it.stderr is not None
        heard = b""
        try:
            while not (found := re.search(rb"http://127\.0\.0\.1:(\d+)", heard)):
                line = it.stderr.readline()
                assert line, heard.decode()
                heard += line
            yield it, int(found[1])
        finally:
            # Not its end yet: a worker of its own may be left, and ends when its parent is told to.
            it.terminate()
            try:
                it.wait(GONE)
            except subprocess.TimeoutExpired:
                it.kill()


def post(port: int, stack: ExitStack, message: dict[str, Any], **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    stack.callback(connection.close)
    fields = {"content-type": "application/json", "accept": BOTH}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/mcp", json.dumps(message), fields)
    return connection.getresponse()


def listens_in_legacy(port: int, stack: ExitStack) -> End:
    """A GET stream; gives what waits for its end."""
    opened = post(port, stack, initialize("2025-11-25"))
    session = opened.headers["mcp-session-id"]
    opened.read()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    stack.callback(connection.close)
    connection.request("GET", "/mcp", headers={"accept": BOTH, "mcp-session-id": session})
    stream = connection.getresponse()
    assert stream.status == 200
    return stream.read  # raises for a stream that is cut


def subscribes(port: int, stack: ExitStack) -> End:
    """`subscriptions/listen`; it ends with its result."""
    params = {"_meta": envelope(), "notifications": {"toolsListChanged": True}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "subscriptions/listen"}
    stream = post(port, stack, message, **headers)
    assert stream.status == 200
    assert b"acknowledged" in b"".join(stream.readline() for _ in range(2))

    def end() -> None:
        assert b'"result"' in stream.read()

    return end


def connects(port: int, stack: ExitStack) -> End:
    """A WebSocket; it is closed with a code that says that the server goes."""
    websocket = stack.enter_context(connect(f"ws://127.0.0.1:{port}/mcp", compression=None))
    websocket.send(json.dumps(initialize("2025-11-25")))
    websocket.recv()

    def end() -> None:
        with pytest.raises(ConnectionClosed) as caught:
            websocket.recv(timeout=100)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code in (1001, 1012)

    return end


STREAMS: dict[str, list[Stream]] = {"GET": [listens_in_legacy], "listen": [subscribes], "websocket": [connects]}
STREAMS["all"] = [listens_in_legacy, subscribes, connects]


def check_end(process: subprocess.Popen[bytes]) -> None:
    """It ends by itself, and nothing went wrong."""
    process.wait(GONE)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    assert "Traceback" not in said.replace("KeyboardInterrupt", ""), said


@pytest.mark.parametrize("streams", list(STREAMS.values()), ids=list(STREAMS))
@pytest.mark.parametrize("server", list(SERVERS))
def test_it_ends_though_clients_listen(child: Child, tmp_path: Path, server: str, streams: list[Stream]) -> None:
    with running(child, tmp_path, server) as (process, port), ExitStack() as stack:
        ends = [stream(port, stack) for stream in streams]
        process.send_signal(signal.SIGTERM)
        for end in ends:
            end()
        check_end(process)


@pytest.mark.parametrize("server", ["uvicorn", "hypercorn-alone"])
def test_the_interrupt_key_ends_it_too(child: Child, tmp_path: Path, server: str) -> None:
    with running(child, tmp_path, server) as (process, port), ExitStack() as stack:
        ends = [stream(port, stack) for stream in STREAMS["all"]]
        process.send_signal(signal.SIGINT)
        for end in ends:
            end()
        check_end(process)


def call(tool: str, path: Path) -> dict[str, Any]:
    params = {"name": tool, "arguments": {"path": str(path)}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


@pytest.mark.parametrize("server", list(SERVERS))
def test_a_call_that_runs_gets_its_answer(child: Child, tmp_path: Path, server: str) -> None:
    """Streams end meanwhile, and they do not take the call with them."""
    released = tmp_path / "released"
    message = call("wait", released)
    message["params"]["_meta"] = envelope()
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "wait"}
    with running(child, tmp_path, server) as (process, port), ExitStack() as stack:
        ends = [stream(port, stack) for stream in STREAMS["all"]]
        answers: list[bytes] = []
        asking = threading.Thread(target=lambda: answers.append(post(port, stack, message, **headers).read()))
        asking.start()
        wait_for(tmp_path / "released.begun")
        process.send_signal(signal.SIGTERM)
        for end in ends:
            end()
        assert process.poll() is None
        released.touch()
        asking.join(30)
        assert b"there it is" in answers[0]
        check_end(process)


@pytest.mark.parametrize("server", ["hypercorn", "hypercorn-alone"])
def test_a_websocket_gets_the_answers_to_what_runs(child: Child, tmp_path: Path, server: str) -> None:
    """And is closed then; uvicorn closes WebSockets itself, at once."""
    released = tmp_path / "released"
    with running(child, tmp_path, server) as (process, port), ExitStack() as stack:
        websocket = stack.enter_context(connect(f"ws://127.0.0.1:{port}/mcp", compression=None))
        websocket.send(json.dumps(initialize("2025-11-25")))
        websocket.recv()
        websocket.send(json.dumps(call("wait", released)))
        wait_for(tmp_path / "released.begun")
        end = listens_in_legacy(port, stack)
        process.send_signal(signal.SIGTERM)
        end()
        websocket.send('{"jsonrpc": "2.0", "id": 8, "method": "tools/list"}')
        assert "shutting down" in websocket.recv(timeout=100)
        released.touch()
        assert "there it is" in websocket.recv(timeout=100)
        with pytest.raises(ConnectionClosed) as caught:
            websocket.recv(timeout=100)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001
        check_end(process)


def wait_for(path: Path) -> None:
    """Until the child has made this file."""
    for _ in range(1500):
        if path.exists():
            return
        time.sleep(0.02)
    raise TimeoutError(path)


@pytest.mark.parametrize("server", ["uvicorn", "hypercorn"])
def test_mounted_without_a_lifespan(child: Child, tmp_path: Path, server: str) -> None:
    with running(child, tmp_path, server, "mounted") as (process, port), ExitStack() as stack:
        ends = [stream(port, stack) for stream in STREAMS["all"]]
        process.send_signal(signal.SIGTERM)
        for end in ends:
            end()
        check_end(process)


@pytest.mark.parametrize("is_running", [False, True], ids=["idle", "running"])
@pytest.mark.parametrize("server", list(SERVERS))
def test_the_lifespan_of_a_mounted_server_is_closed(
    child: Child, tmp_path: Path, server: str, *, is_running: bool
) -> None:
    """On SIGTERM, although the application gets no lifespan events; what runs is answered first."""
    released = tmp_path / "released"
    message = call("wait", released)
    message["params"]["_meta"] = envelope()
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "wait"}
    with running(child, tmp_path, server, "mounted") as (process, port), ExitStack() as stack:
        end = listens_in_legacy(port, stack)
        answers: list[bytes] = []
        asking = threading.Thread(target=lambda: answers.append(post(port, stack, message, **headers).read()))
        if not is_running:
            released.touch()
        asking.start()
        wait_for(tmp_path / "released.begun")
        if not is_running:
            asking.join(30)
        process.send_signal(signal.SIGTERM)
        end()
        if is_running:
            assert (tmp_path / "life").read_text() == "open\n"
            released.touch()
            asking.join(30)
        check_end(process)
        assert b"there it is" in answers[0]
        assert (tmp_path / "life").read_text() == "open\nclosed\n"


def serve_in_thread(stack: ExitStack, app: Any, **options: Any) -> tuple[uvicorn.Server, threading.Thread, int]:
    """As tests of other people's do: no signal tells this server anything."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", log_config=None, **options))
    began = threading.Event()
    startup = server.startup

    async def start(*args: Any, **more: Any) -> None:
        await startup(*args, **more)
        began.set()

    server.startup = start  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()

    def stop() -> None:
        server.force_exit = server.should_exit = True
        thread.join(GONE)

    stack.callback(stop)
    assert began.wait(30)
    return server, thread, server.servers[0].sockets[0].getsockname()[1]


def test_a_server_in_a_thread_and_the_next_one_with_the_same_application() -> None:
    app = Server("hosted").asgi_app()
    for _ in range(2):
        with ExitStack() as stack:
            server, thread, port = serve_in_thread(stack, app, lifespan="off")
            ends = [stream(port, stack) for stream in STREAMS["all"]]
            server.should_exit = True
            for end in ends:
                end()
            thread.join(GONE)
            assert not thread.is_alive()


async def test_another_server_of_the_same_loop_keeps_its_streams() -> None:
    """Only what listens where the requests come from is watched."""
    app, other = Server("hosted").asgi_app(), Server("other").asgi_app()
    one, two = (
        uvicorn.Server(uvicorn.Config(which, port=0, lifespan="off", log_config=None)) for which in (app, other)
    )
    tasks = [asyncio.create_task(server._serve()) for server in (one, two)]
    with ExitStack() as stack:
        await until(lambda: one.started and two.started)
        ports = [server.servers[0].sockets[0].getsockname()[1] for server in (one, two)]
        ends = [await asyncio.to_thread(listens_in_legacy, port, stack) for port in ports]
        two.should_exit = True
        await asyncio.to_thread(ends[1])
        await tasks[1]
        waiting = asyncio.create_task(asyncio.to_thread(ends[0]))
        done, _ = await asyncio.wait([waiting], timeout=1)
        assert not done
        one.should_exit = True
        await waiting
        await tasks[0]
