"""What a server in a child process starts ends with it, whichever way the client ends, and its stderr is bounded."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.clock import until

from mcpd import Client
from mcpd.errors import ConnectionLost
from mcpd.transports.child import ChildProcess

pytestmark = pytest.mark.usefixtures("impatient")
BAD_SERVER = str(Path(__file__).with_name("bad_server.py"))
VERSION = "2025-11-25"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What heeds nothing is waited for in each test twice."""
    monkeypatch.setattr("mcpd.transports.child.GRACE_SECONDS", 0.5)


def bad(behaviour: str, number: int = 0) -> list[str]:
    return [sys.executable, "-S", BAD_SERVER, behaviour, str(number)]


async def said(client: Client) -> str:
    return (await client.call_tool("any")).content[0].text  # type: ignore[union-attr]


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


async def ended(pid: int) -> None:
    await until(lambda: not runs(pid))


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_what_a_server_has_started_ends_with_it(is_stubborn: bool) -> None:
    async with Client(bad("spawn", int(is_stubborn)), version=VERSION) as client:
        pid = int(await said(client))
        assert runs(pid)
    await ended(pid)


async def test_a_server_that_heeds_nothing_ends_with_all_that_it_has_started() -> None:
    async with Client(bad("spawn_deaf"), version=VERSION) as client:
        pid = int(await said(client))
    await ended(pid)


async def test_a_server_that_crashes_leaves_nothing_behind() -> None:
    async with Client(bad("spawn_and_crash"), version=VERSION) as client:
        await ended(int(await said(client)))


@pytest.mark.parametrize(("behaviour", "number"), [("daemon", 0), ("daemon", 1), ("stop", 0), ("close_all", 0)])
async def test_a_client_waits_for_nobody_that_it_cannot_reach(behaviour: str, number: int) -> None:
    """A grandchild in a session of its own keeps the pipes open; a server is stopped, or stays without any pipe."""
    client = Client(bad(behaviour, number), version=VERSION)
    await client.open()
    pid = int(await said(client))
    try:
        async with asyncio.timeout(15):
            await client.aclose()
        if behaviour != "daemon":
            await ended(pid)
    finally:
        if runs(pid):
            os.kill(pid, signal.SIGKILL)


async def test_a_client_that_is_cancelled_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: the second one finds it waiting for a server that does not go. Its end is waited for all the same."""
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    started: list[ChildProcess] = []

    def recording(*command: Any, **how: Any) -> ChildProcess:
        started.append(ChildProcess(*command, **how))
        return started[-1]

    monkeypatch.setattr("mcpd.transports.process.ChildProcess", recording)

    async def work() -> None:
        async with Client(bad("spawn_deaf"), version=VERSION) as client:
            told.set_result(int(await said(client)))
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    pid = await told
    for _ in range(2):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.wait([task])
    assert task.cancelled()
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    await ended(pid)


PROGRAM = """
import asyncio, sys
from mcpd import Client


async def main():
    client = Client(sys.argv[2:], version="2025-11-25")
    await client.open()
    print((await client.call_tool("any")).content[0].text, flush=True)
    if sys.argv[1] == "waits":
        try:
            await asyncio.Event().wait()
        finally:
            await client.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["ctrl-c", "unclosed"])
async def test_a_program_that_ends_leaves_nothing_behind(how: str) -> None:
    """Ctrl-C reaches the program alone, as the child has a session of its own; one that closes nothing just ends."""
    command = [sys.executable, "-c", PROGRAM, "waits" if how == "ctrl-c" else "ends", *bad("spawn")]
    program = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert program.stdout is not None
    pid = int(await program.stdout.readline())
    if how == "ctrl-c":
        program.send_signal(signal.SIGINT)
    await program.wait()
    await ended(pid)


async def test_a_flood_on_stderr_is_cut(capfd: pytest.CaptureFixture[str]) -> None:
    """64 MiB of it: what is passed on is bounded, and what is left out is said; the server is not held up."""
    async with Client(bad("stderr", 1024), version=VERSION) as client:
        assert await said(client) == "done"
    heard = capfd.readouterr().err
    assert len(heard) < 4 * 1024 * 1024
    assert "bytes that python" in heard
    assert heard.endswith("wrote to stderr were left out\n")


async def test_what_a_server_says_on_stderr_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-S", "-c", "import sys; sys.stdin.readline(); sys.exit('it is over: \\u20ac')"]
    client = Client(command, version=VERSION)
    with pytest.raises(ConnectionLost, match="exit code 1; stderr: it is over: \u20ac$"):
        await client.open()
    assert capfd.readouterr().err == "it is over: €\n"


async def test_stderr_that_nobody_reads_holds_nobody_up() -> None:
    """Ours is a full pipe: neither we nor the child waits for it."""
    ours, kept = os.pipe(), os.dup(2)
    os.set_blocking(ours[1], False)
    try:
        while os.write(ours[1], b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(ours[1], True)
    os.dup2(ours[1], 2)
    try:
        async with Client(bad("stderr", 16), version=VERSION) as client:
            assert await said(client) == "done"
    finally:
        os.dup2(kept, 2)
        for descriptor in (*ours, kept):
            os.close(descriptor)
