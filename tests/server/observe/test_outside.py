"""What answers outside of the event loop: the port for metrics, the control socket, `mcpd status` and `mcpd stop`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Child
from support.clock import until
from support.wires import MODERN, memory_wire

from mcpd import Client, Server
from mcpd.cli.group import run as cli
from mcpd.errors import ConfigurationError
from mcpd.server.observe import control, report, watching
from mcpd.server.observe.control import checked_folder, folder_path, running_servers
from mcpd.server.observe.report import LastErrors
from mcpd.server.observe.watching import Watching
from mcpd.server.settings import Settings

SERVER = """
import asyncio, time
from mcpd import Server
server = Server("garden", version="1.2")

@server.tool
async def dig(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"

@server.tool
async def hold_up(seconds: float) -> str:
    time.sleep(seconds)
    return "done"

@server.tool
def fail(secret: str) -> str:
    raise RuntimeError(secret)
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for control sockets, with a short name: the path of a socket has 100 bytes."""
    folder = Path("/tmp", f"m{os.getpid()}-{time.monotonic_ns() % 10**9}")
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def removed(runtime: Path) -> Iterator[None]:
    yield
    subprocess.run(["rm", "-rf", str(runtime)], check=True)


def garden() -> Server:
    server = Server("garden", version="1.2")

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return ""

    return server


@asynccontextmanager
async def watched(server: Server, connections: Any = tuple, **settings: Any) -> AsyncIterator[tuple[Watching, int]]:
    """What watches a server, and the port of its metrics."""
    found = Watching(server, Settings(**{"metrics": "127.0.0.1:0", **settings}), connections)
    await found.start()
    try:
        sockets = [] if found._thread_server is None else found._thread_server._sockets
        yield found, sockets[0].getsockname()[1] if sockets else 0
    finally:
        found.stop()


async def get(port: int, path: str, *lines: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    host = [] if any(line.startswith("Host: ") for line in lines) else ["Host: localhost"]
    writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *host, *lines, "", ""]).encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    first, *fields = head.split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in fields), body


async def test_the_port_for_metrics() -> None:
    server = garden()
    connections: list[Any] = []
    async with watched(server, lambda: connections, control="always") as (found, port):
        assert (await get(port, "/readyz"))[::2] == (503, "starting\n")
        found.ready(["http://here"])
        async with memory_wire(server, MODERN) as wire:
            connections.append(wire.connection)
            waiting = wire.ask("tools/call", {"name": "wait", "arguments": {}})
            await wire.quiet()
            status, headers, body = await get(port, "/metrics")
            assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
            assert "mcpd_requests_in_flight 1\n" in body
            assert 'mcpd_build_info{version="' in body
            _, headers, body = await get(port, "/metrics", "Accept: application/openmetrics-text; version=1.0.0")
            assert headers["content-type"].startswith("application/openmetrics-text")
            assert body.endswith("# EOF\n")
            seen = json.loads((await get(port, "/statusz"))[2])
            assert [(c["method"], c["name"], c["version"]) for c in seen["calls"]] == [("tools/call", "wait", MODERN)]
            assert seen["calls"][0]["seconds"] >= 0
            assert seen["clients"] == {MODERN: 1}
            assert seen["urls"] == ["http://here"]
            # Over the control socket too, as numbers that can be summed.
            ((path, state),) = (await asyncio.to_thread(running_servers)).servers.values()
            assert (state.name, state.pid, state.in_flight) == ("garden", os.getpid(), 1)
            families = json.loads(await asyncio.to_thread(control._request, path, "GET", "/metrics.json"))
            assert {"mcpd_requests_in_flight", "process_cpu_seconds"} <= {family["name"] for family in families}
            wire.cancel(waiting)
            await wire.quiet()
        assert (await get(port, "/healthz"))[::2] == (200, "ok\n")
        assert (await get(port, "/readyz"))[::2] == (200, "ok\n")
        assert (await get(port, "/metrics", method="HEAD"))[::2] == (200, "")
        assert (await get(port, "/metrics", method="POST"))[0] == 405
        assert (await get(port, "/stop", method="POST"))[0] == 405
        assert (await get(port, "/metrics.json"))[0] == 404
        found.stopping()
        assert (await get(port, "/readyz"))[::2] == (503, "shutting down\n")


async def test_who_may_read_it() -> None:
    """OBS-04: with the token where there is one; no name that is pointed here, no web page; no wide address without."""
    async with watched(garden(), token="open-sesame") as (_, port):
        for path in ("/metrics", "/statusz"):
            status, headers, body = await get(port, path)
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert "garden" not in body
            assert (await get(port, path, "Authorization: Bearer wrong"))[0] == 401
            assert (await get(port, path, "Authorization: Bearer open-sesame"))[0] == 200
        assert (await get(port, "/healthz"))[0] == 200
    async with watched(garden()) as (_, port):
        assert (await get(port, "/metrics", "Host: evil.example"))[0] == 403
        assert (await get(port, "/metrics", "Origin: https://evil.example"))[0] == 403
    for settings in (
        {"metrics": "0.0.0.0:0"}, {"metrics": "0.0.0.0:0", "insecure": True}, {"metrics": "[::]:0", "insecure": True},
        {"metrics": "http"}, {"metrics": "http", "http": "0.0.0.0:0", "insecure": True},
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match="--metrics"):
            async with watched(garden(), **settings):
                pass
    asks = Server("asks", authenticate=lambda headers: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigurationError, match="each user"):
        async with watched(asks, metrics="http", http=":0"):
            pass


async def test_requests_that_are_none_and_those_who_do_not_read() -> None:
    async with watched(garden()) as (_, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for sent in (b"\r\n\r\n", b"GET x HTTP/1.1\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET / HTTP/1.1\r\nno\r\n\r\n",
                     b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 70000 + b"\r\n\r\n"):  # fmt: skip
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            try:
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            except ConnectionError:
                assert len(sent) > 16384
            writer.close()
        assert (await get(port, "/healthz"))[0] == 200
        for _, writer in silent:
            writer.close()


@pytest.mark.medium
async def test_a_loop_that_hangs_is_said_so_by_the_thread_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """OBS-13. The limit of 10 s is shorter here."""
    monkeypatch.setattr(report, "STUCK_SECONDS", 0.2)
    monkeypatch.setattr(watching, "_PATIENCE", 0.05)
    answers: list[tuple[bytes, bytes]] = []
    async with watched(garden(), control="always") as (found, port):
        found.ready([])
        found._heartbeat.beat()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:  # the loop does not turn meanwhile
            answers.append((_plainly(port, "/healthz"), _plainly(port, "/statusz")))
            if b"503" in answers[-1][0]:
                break
        assert b"has been blocked for" in answers[-1][0]
        assert b'"state":"stuck"' in answers[-1][1]
        assert b"mcpd_loop_lag_seconds 0.2" in _plainly(port, "/metrics") or found._heartbeat.lag > 0.2
        await until(lambda: found._heartbeat.late < 0.2)
        assert (await get(port, "/healthz"))[0] == 200
        assert found._heartbeat.lag > 0.2


def _plainly(port: int, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connected:
        connected.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connected.recv(65536), b""))


async def test_planted_folders_and_sockets(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert running_servers() == ({}, [])
    folder = folder_path()
    # Somebody else's link, or a folder that others may write into.
    (runtime / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(runtime / "elsewhere")
    with pytest.raises(ConfigurationError, match="0700"):
        checked_folder(make=True)
    async with watched(garden(), control="auto") as (found, _):
        assert found._control_path == ""  # left out, and served all the same
    with pytest.raises(ConfigurationError, match="no control socket"):
        async with watched(garden(), control="always"):
            pass
    folder.unlink()
    folder.mkdir(mode=0o755)
    os.chmod(folder, 0o755)
    with pytest.raises(ConfigurationError, match="0700"):
        running_servers()
    os.chmod(folder, 0o700)
    # What lies there and is no server: a file, a link, one that is gone, one that says nothing that can be read.
    (folder / "control-1.sock").write_text("x")
    (folder / "control-2.sock").symlink_to("/dev/null")
    gone = socket.socket(socket.AF_UNIX)
    gone.bind(str(folder / "control-3.sock"))
    gone.close()
    liar = socket.socket(socket.AF_UNIX)
    liar.bind(str(folder / "control-4.sock"))
    liar.listen()
    lying = threading.Thread(target=_lie, args=(liar,))
    lying.start()
    assert await asyncio.to_thread(running_servers) == ({}, [])
    assert not (folder / "control-3.sock").exists()
    # And one of another user.
    monkeypatch.setattr(control, "check_peer", lambda connected: False)
    with pytest.raises(ConfigurationError, match="another user"):
        await asyncio.to_thread(running_servers)
    lying.join(30)
    liar.close()
    # A path that the kernel would not take.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / ("x" * 100)))
    (runtime / ("x" * 100)).mkdir()
    with pytest.raises(ConfigurationError, match="too long"):
        async with watched(garden(), control="always"):
            pass


def _lie(listening: socket.socket) -> None:
    """To two who ask."""
    for _ in range(2):
        connected, _ = listening.accept()
        connected.recv(1000)
        try:
            connected.sendall(b"HTTP/1.1 200 OK\r\n\r\nno")
        except BrokenPipeError:
            pass  # the second asks nothing
        connected.close()


async def test_a_socket_that_is_being_made_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody asks just then who runs: it is not taken for one that was left behind."""
    change_mode = os.chmod

    def chmod(path: str, mode: int) -> None:
        assert running_servers() == ({}, [])
        change_mode(path, mode)

    monkeypatch.setattr(os, "chmod", chmod)
    async with watched(garden(), control="always"):
        assert list((await asyncio.to_thread(running_servers)).servers) == [os.getpid()]


@pytest.mark.medium
async def test_one_that_hangs_is_named(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Stopped, or held up as a whole: `mcpd status` and `mcpd stop` do not say that nobody is there."""
    monkeypatch.setattr(control, "_SECONDS", 0.05)
    folder = checked_folder(make=True)
    assert folder is not None
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "control-4.sock"))
        listening.listen()
        for words in (["status"], ["status", "4"], ["stop"], ["stop", "4"], ["stop", "--all"]):
            assert cli(words) == 1
            told = capfd.readouterr()
            assert "the server with pid 4 does not answer" in told.err, words
            assert "no server" not in told.err, words
        assert cli(["stop", "5"]) == 1
        assert "no running server of yours has the process id 5" in capfd.readouterr().err


async def test_modes_of_what_is_made(runtime: Path) -> None:
    async with watched(garden(), control="always"):
        folder = folder_path()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (path,) = folder.iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


def test_errors_are_kept_without_what_they_say() -> None:
    import logging

    kept = LastErrors(most=2)
    log = logging.Logger("mcpd.test")
    log.addHandler(kept)
    for number in range(4):
        try:
            raise ValueError("hunter2")
        except ValueError:
            log.error("tool %s failed, token=%s", number, "sk-123456789", exc_info=True)
    log.error("%d", "no number")
    first, second = kept.kept()
    assert (first.error, second.message) == ("ValueError", "%d")
    assert "hunter2" not in str(first)
    assert "sk-123456789" not in str(first)
    log.error("The result of the route %s cannot be sent: %s", "/a", "hunter2")
    log.error("resource %s (request %s) failed", "x://hunter2", 7)
    assert [each.message for each in kept.kept()] == [
        "The result of the route /a cannot be sent", "resource … (request 7) failed",
    ]  # fmt: skip


async def test_status_and_stop_of_a_daemon(
    child: Child, tmp_path: Path, runtime: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process that serves HTTP is found, shown and stopped; two of them have to be told apart."""
    assert cli(["status"]) == 1
    assert cli(["stop"]) == 1
    capfd.readouterr()
    (tmp_path / "garden.py").write_text(SERVER)
    env = {**child.env, "XDG_RUNTIME_DIR": str(runtime)}
    line = child.mcpd("serve", "--http", ":0", "--metrics", "http", str(tmp_path / "garden.py"))
    processes = [subprocess.Popen(line, env=env, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) for _ in range(2)]
    try:
        await until(lambda: [state.state for _, state in running_servers().servers.values()] == ["ready", "ready"])
        capfd.readouterr()
        assert cli(["status", "--json"]) == 0
        told = json.loads(capfd.readouterr().out)
        assert {each["pid"] for each in told} == {process.pid for process in processes}
        assert {each["name"] for each in told} == {"garden"}
        port = int(told[0]["urls"][0].split(":")[2].partition("/")[0])
        assert b"mcpd_build_info{" in _plainly(port, "/metrics")
        assert b'"name":"garden"' in _plainly(port, "/statusz")
        assert cli(["status", str(processes[0].pid)]) == 0
        shown = capfd.readouterr().out
        assert f"pid {processes[0].pid}" in shown
        assert "clients: none" in shown
        assert cli(["stop"]) == 2
        assert "--all" in capfd.readouterr().err
        assert cli(["stop", str(processes[1].pid)]) == 0
        assert processes[1].wait(30) == 0
        assert cli(["stop", "--all"]) == 0
        assert processes[0].wait(30) == 0
        assert list(folder_path().iterdir()) == []
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL) if process.poll() is None else None
            process.wait(30)


PAGER = """
from mcpd import Server
server = Server("pager")

@server.event("incident.created", payload=dict)
def incident_created(event: dict, severity: str | None = None) -> bool:
    return severity in (None, event["severity"])
"""


async def test_events_of_a_daemon(
    child: Child, tmp_path: Path, runtime: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`mcpd events emit` reaches subscribers of a running server; what it cannot do is said in one line."""
    (tmp_path / "pager.py").write_text(PAGER)
    env = {**child.env, "XDG_RUNTIME_DIR": str(runtime)}
    process = subprocess.Popen(
        child.mcpd("serve", "--http", ":0", str(tmp_path / "pager.py")),
        env=env, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip

    def told(*words: str) -> tuple[int, str, str]:
        try:
            code = cli(["events", *words])
        except ConfigurationError as error:  # `mcpd` prints it
            return 1, "", f"{error}\n"
        out, err = capfd.readouterr()
        return code, out, err

    try:
        await until(lambda: [state.state for _, state in running_servers().servers.values()] == ["ready"])
        ((_, status),) = running_servers().servers.values()
        capfd.readouterr()
        async with Client(status.urls[0]) as client, client.events("incident.created", {"severity": "P1"}) as events:
            assert events.mode == "push"
            code, out, _ = await asyncio.to_thread(told, "emit", "incident.created", '{"severity": "P2"}')
            assert (code, out.startswith("evt_")) == (0, True)
            data = {"severity": "P1", "text": "\N{SNOWMAN}" * 20_000}  # larger than the head of a request may be
            words = ("emit", "incident.created", json.dumps(data), "--id", "a")
            assert await asyncio.to_thread(told, *words) == (0, "a\n", "")
            event = await anext(events)
            assert (event.id, event.data) == ("a", data)

        for words, answer in (
            (("emit", "incident.closed", "{}"), "there is no event type 'incident.closed'"),
            (("emit", "incident.created", "{"), "{ is not JSON"),
            (("emit", "incident.created", "7"), "object"),
            (("failed", "sub_1"), "it has no webhook subscription 'sub_1'"),
            (("retry", "sub_1", str(process.pid)), "it has no webhook subscription 'sub_1'"),
            (("drop", "sub_1", "4"), "no running server of yours has the pid 4"),
        ):
            code, out, err = await asyncio.to_thread(told, *words)
            assert (code != 0, out, err.count("\n")) == (True, "", 1), err
            assert answer in err
        assert await asyncio.to_thread(told, "status", "--json") == (0, "[]\n", "")
        code, out, err = await asyncio.to_thread(told, "status")
        assert (code, out) == (0, "")
        assert "no running server of yours has webhook subscriptions" in err
    finally:
        process.kill()
        process.wait(30)


async def test_status_of_an_address(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """OBS-04: `mcpd status ADDR` asks `GET /statusz` there, with a token where one is asked for."""
    secret = tmp_path / "token"
    secret.write_text("open-sesame")
    secret.chmod(0o600)

    async def told(*line: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(cli, ["status", *line])
        out, err = capfd.readouterr()
        return code, out, err

    async with watched(garden(), token="open-sesame") as (found, port):
        found.ready([])
        capfd.readouterr()
        for address in (
            f":{port}",
            f"127.0.0.1:{port}",
            f"http://127.0.0.1:{port}",
            f"http://localhost:{port}/metrics",
        ):
            code, out, err = await told("--json", "--token-file", str(secret), address)
            assert (code, err) == (0, "")
            assert [each["name"] for each in json.loads(out)] == ["garden"]
        code, out, _ = await told("--token-file", str(secret), f":{port}")
        assert (code, "garden 1.2" in out) == (0, True)
        code, _, err = await told(f":{port}")
        assert (code, err.count("\n")) == (1, 1)
        assert "requires a token: use --token-file FILE" in err
        secret.write_text("wrong")
        assert "requires another token" in (await told("--token-file", str(secret), f":{port}"))[2]
    code, out, err = await told("--json", f":{port}")
    assert (code, out) == (1, "[]\n")
    assert "does not respond" in err
    assert "--metrics" in err

    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\nno")
        writer.close()

    async with await asyncio.start_server(odd, "127.0.0.1", 0) as listening:
        number = listening.sockets[0].getsockname()[1]
        code, _, err = await told(f":{number}")
        assert (code, "has no /statusz (404)" in err) == (1, True)
    for wrong in ("nonsense", "ftp://x", "http://[", "unix:/x"):
        with pytest.raises(ConfigurationError):
            await told(wrong)


def test_the_lines_of_status() -> None:
    from mcpd.cli.commands.status import _lines_of as lines_of
    from mcpd.server.observe.report import LoggedError, RunningCall, Status

    state = Status(
        pid=5, mcpd="1", name="a\x1b[31m", version="2", target="t.py", since=0, uptime_seconds=90_061, urls=("http://x",),
        clients={"": 1, MODERN: 2}, in_flight=3, calls=(RunningCall("tools/call", "dig", 1.25), RunningCall("ping")),
        cancelled=(RunningCall("tools/call", "spin", 9),), sessions=2, streams=4, backplane="away for 3 s",
        errors=(LoggedError(0, "mcpd", "tool x failed", "ValueError"),),
    )  # fmt: skip
    text = "\n".join(lines_of(state))
    assert "\x1b" not in text
    assert "up 1 d 1 h" in text
    assert "1 in no version yet, 2 in " + MODERN in text
    assert "tools/call dig  1.2 s" in text
    assert "and 1 more\n  cancelled calls whose functions still run:\n    tools/call spin  9.0 s" in text
    assert "sessions: 2, event streams: 4" in text
    assert "backplane: away for 3 s" in text
    assert "tool x failed (ValueError)" in text
    assert msgspec.json.decode(msgspec.json.encode(state), type=Status) == state
