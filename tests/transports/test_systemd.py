"""Sockets that a service manager hands over, and what it is told: sd_listen_fds(3), sd_notify(3)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from conftest import Child
from support.http_peer import Peer, call, post

from mcpd.errors import ConfigurationError
from mcpd.transports.address import address_of, parse
from mcpd.transports.systemd import notify, sockets_at

# What systemd does: the descriptors stand from 3 on, and the variables name the process that they are for.
STARTER = """
import os, sys
for place, number in enumerate(map(int, sys.argv[1].split(","))):
    os.dup2(number, 100 + place)
for place in range(len(sys.argv[1].split(","))):
    os.dup2(100 + place, 3 + place)
    os.close(100 + place)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(place + 1), LISTEN_FDNAMES=sys.argv[2])
os.execv(sys.executable, [sys.executable, "-m", "mcpd", *sys.argv[3:]])
"""


def listening_tcp() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    made.setblocking(False)
    return made


@asynccontextmanager
async def activated(
    child: Child, sockets: list[socket.socket], *words: str, names: str = "", env: dict[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    numbers = [os.dup(each.fileno()) for each in sockets]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTER, ",".join(map(str, numbers)), names, *words),
        env={**child.env, **(env or {})}, pass_fds=numbers,
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    for number in numbers:
        os.close(number)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_it_serves_on_what_it_was_handed_over(child: Child, tmp_path: Path) -> None:
    """TCP and a Unix socket of the manager's, which stays when the server has ended."""
    path = tmp_path / "s"
    for made, address in (
        (listening_tcp(), ""),
        (socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), str(path)),
    ):
        with made:
            if address:
                made.bind(address)
                made.listen()
            async with activated(child, [made], "serve", "--http", "fd://") as process:
                # Nobody waits for the start: who comes before it stands in the queue.
                if address:
                    peer = Peer(*await asyncio.open_unix_connection(address))
                else:
                    peer = Peer(*await asyncio.open_connection(*made.getsockname()))
                assert (await peer.ask(post(call("ping")))).status == 200
                await peer.aclose()
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(60):
                    assert await process.wait() == 0
            assert not address or path.exists()


async def test_each_transport_may_have_sockets_of_its_own_by_their_names(child: Child) -> None:
    with listening_tcp() as one, listening_tcp() as other:
        words = ["serve", "--http", "fd://front", "--metrics", "fd://counts"]
        async with activated(child, [one, other], *words, names="counts:front"):
            peer = Peer(*await asyncio.open_connection(*other.getsockname()))
            assert (await peer.ask(post(call("ping")))).status == 200
            await peer.aclose()
            reader, writer = await asyncio.open_connection(*one.getsockname())
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(60):
                assert b"mcpd_build_info" in await reader.read()
            writer.close()


async def test_a_socket_that_others_reach_needs_a_token_as_an_address_does(child: Child) -> None:
    """Decision D9."""
    with socket.create_server(("0.0.0.0", 0)) as wide:
        async with activated(child, [wide], "serve", "--http", "fd://3") as process:
            async with asyncio.timeout(60):
                said = (await process.communicate())[1].decode()
            assert process.returncode == 1
            assert "can be reached from other machines" in said


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("fd://", "no socket was passed to this process"),
        ("fd://web", "no socket named 'web' was passed"),
        ("fd://9876", "descriptor 9876 is not an open socket"),
        ("fd://0", "descriptor 0 is no"),
    ],
)
def test_what_is_not_there_is_said(address: str, why: str, child: Child) -> None:
    import subprocess

    done = subprocess.run(
        child.mcpd("serve", "--http", address), env=child.env, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert why in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1


def test_a_datagram_socket_is_none() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wrong:
        with pytest.raises(ConfigurationError, match="neither a TCP nor a unix socket"):
            sockets_at(f"fd://{wrong.fileno()}")


def test_variables_of_another_process_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    with pytest.raises(ConfigurationError, match="was passed to this process"):
        sockets_at("fd://")


def test_the_address_of_sockets(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as local, socket.create_server(("0.0.0.0", 0)) as wide:
        assert str(address_of([local])) == f":{local.getsockname()[1]}"
        assert parse(str(address_of([local, wide]))).host == "0.0.0.0"


async def test_the_manager_is_told_when_it_is_ready_and_when_it_stops(child: Child, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, listening_tcp() as made:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        loop = asyncio.get_running_loop()
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        async with activated(child, [made], "serve", "--http", "fd://", env=env) as process:
            async with asyncio.timeout(60):
                assert await loop.sock_recv(manager, 100) == b"READY=1"
                process.send_signal(signal.SIGTERM)
                assert await loop.sock_recv(manager, 100) == b"STOPPING=1"
                assert await process.wait() == 0


def test_reloading_has_the_time_and_nobody_there_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify("READY=1")
    name = f"\0mcpd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name[1:])
        notify("RELOADING=1")
        assert manager.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
