"""The last resort, with os._exit watched. As processes that do end: tests/cli/test_serve_process.py."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from typing import Any, NoReturn

import pytest

from mcpd.server import shutdown
from mcpd.server.shutdown import ExitDeadline, StdinWatchdog, end_if_hung


class Exited(BaseException):
    """What os._exit does here."""


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []

    def leave(code: int) -> NoReturn:
        found.append(code)
        raise Exited

    monkeypatch.setattr(shutdown.os, "_exit", leave)
    return found


@pytest.fixture
def own_thread(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The watch is run by the test itself."""
    started: list[Any] = []
    monkeypatch.setattr(shutdown._thread, "start_new_thread", lambda work, arguments: started.append(work))
    return started


def test_at_the_deadline_the_process_ends(codes: list[int], own_thread: list[Any]) -> None:
    resort = ExitDeadline()
    began = time.monotonic()
    resort.arm(0.01)
    (watch,) = own_thread
    with pytest.raises(Exited):
        watch()
    assert time.monotonic() - began >= 0.009
    assert codes == [0]


def test_the_earliest_deadline_counts(codes: list[int], own_thread: list[Any]) -> None:
    resort = ExitDeadline()
    resort.arm(3600)
    resort.arm(0)
    resort.arm(60)
    assert len(own_thread) == 1
    with pytest.raises(Exited):
        own_thread[0]()
    assert codes == [0]


def test_an_end_by_itself_needs_no_last_resort(codes: list[int], own_thread: list[Any]) -> None:
    resort = ExitDeadline()
    resort.disarm()
    resort.arm(3600)
    resort.disarm()
    own_thread[0]()
    assert codes == []
    resort.arm(3600)
    assert len(own_thread) == 2


def test_threads_that_still_run_are_left_behind(codes: list[int]) -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="stuck")
    thread.start()
    try:
        with pytest.raises(Exited):
            end_if_hung(3)
        assert codes == [3]
        end_if_hung(older=[thread])
    finally:
        go.set()
        thread.join()
    end_if_hung()
    assert codes == [3]


class EndingSoon(threading.Thread):
    """Ends as soon as somebody waits for its end."""

    def __init__(self) -> None:
        self.awaited = threading.Event()
        super().__init__(target=self.awaited.wait)

    def join(self, timeout: float | None = None) -> None:
        self.awaited.set()
        super().join(timeout)


def test_threads_that_are_about_to_end_are_waited_for_and_daemons_are_not(
    codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "_IDLE_SECONDS", 60)  # a thread takes its time to end on a busy machine
    go = threading.Event()
    daemon = threading.Thread(target=go.wait, daemon=True)
    daemon.start()
    ending_soon = EndingSoon()
    ending_soon.start()
    end_if_hung()
    assert not ending_soon.is_alive()
    assert codes == []
    go.set()
    daemon.join()


def test_without_stderr_it_ends_in_silence(codes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(descriptor: int, data: bytes) -> NoReturn:
        raise OSError(9, os.strerror(9))

    monkeypatch.setattr(shutdown.os, "write", closed)
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        with pytest.raises(Exited):
            end_if_hung()
    finally:
        go.set()
        thread.join()


# ------------------------------------------------------------------------- the end of the input


class Resort(ExitDeadline):
    """Only notes that it was called for."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = threading.Event()

    def arm(self, seconds: float) -> None:
        assert seconds == 0
        self.armed.set()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere half closed sockets are not told")
@pytest.mark.parametrize("kind", ["pipe", "socket"])
async def test_the_end_of_the_input_ends_a_blocked_loop_too(kind: str) -> None:
    resort = Resort()
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    stdin_watchdog = StdinWatchdog(read if kind == "pipe" else theirs.fileno(), 0.01, resort)
    try:
        os.write(write, b"unread")
        ours.send(b"unread")
        await asyncio.sleep(0)
        assert not resort.armed.is_set()
        os.close(write)
        ours.shutdown(socket.SHUT_WR)
        assert resort.armed.wait(20)  # blocks the loop
    finally:
        stdin_watchdog.stop()
        os.close(read)
        ours.close()
        theirs.close()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes cannot be polled there")
async def test_a_loop_that_turns_is_left_to_read_the_end_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Much may have come before it, and what is answered now may take its time."""
    monkeypatch.setattr(shutdown, "_LOOK_SECONDS", 0.001)
    loop, looks = asyncio.get_running_loop(), asyncio.Semaphore(0)
    tell = loop.call_soon_threadsafe

    def told(*step: Any) -> Any:
        tell(looks.release)
        return tell(*step)

    monkeypatch.setattr(loop, "call_soon_threadsafe", told)
    resort = Resort()
    read, write = os.pipe()
    stdin_watchdog = StdinWatchdog(read, 20, resort)
    os.close(write)
    for _ in range(3):
        await looks.acquire()
    stdin_watchdog.stop()
    assert not resort.armed.is_set()
    os.close(read)
