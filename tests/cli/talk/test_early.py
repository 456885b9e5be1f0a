"""A server that is started before the client is loaded ends as any other does."""

from __future__ import annotations

import os
import select
import signal
import sys

import pytest

from mcpd import Client
from mcpd.cli.talk.early import EarlyServer

STARTER = [sys.executable, "-m", "mcpd", "serve", "--stdio"]
pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")


def is_gone(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    return False


async def test_it_is_adopted_and_closed() -> None:
    channel = EarlyServer(STARTER).adopt("the starter")
    async with Client(channel) as client:
        assert [tool.name for tool in await client.list_tools()][0] == "echo"
    assert channel.process.returncode == 0
    assert is_gone(channel.process.pid)


async def test_one_that_ignores_the_end_of_its_input_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpd.transports.process.GRACE_SECONDS", 0.2)
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True); time.sleep(99)"
    )
    early = EarlyServer([sys.executable, "-c", program])
    select.select([early._fd_in], [], [])  # before it has written, SIGTERM would end it
    channel = early.adopt("deaf")
    await channel.aclose()
    assert channel.process.returncode == -signal.SIGKILL


async def test_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    channel = EarlyServer(STARTER).adopt("the starter")
    async with Client(channel) as client:
        await client.ping()
    assert channel.process.returncode == 0


def test_it_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    early = EarlyServer(STARTER)
    early.drop()
    assert early._popen.returncode == 0

    monkeypatch.setattr("mcpd.cli.talk.early._WAIT_SECONDS", 0.1)
    early = EarlyServer([sys.executable, "-c", "import time; time.sleep(99)"])
    early.drop()
    assert early._popen.returncode == -signal.SIGKILL


def test_what_cannot_be_started() -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(FileNotFoundError):
        EarlyServer(["no-such-program"])
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
