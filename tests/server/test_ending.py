"""The last resort, with os._exit watched. As processes that do end: tests/cli/test_serve_process.py."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, NoReturn

import pytest

from mcpd.server import ending
from mcpd.server.ending import LastResort, end_if_hung


class Exited(BaseException):
    """What os._exit does here."""


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []

    def leave(code: int) -> NoReturn:
        found.append(code)
        raise Exited

    monkeypatch.setattr(ending.os, "_exit", leave)
    return found


@pytest.fixture
def own_thread(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The watch is run by the test itself."""
    started: list[Any] = []
    monkeypatch.setattr(ending._thread, "start_new_thread", lambda work, arguments: started.append(work))
    return started


def test_at_the_deadline_the_process_ends(codes: list[int], own_thread: list[Any]) -> None:
    resort = LastResort()
    resort.arm(0.01)
    (watch,) = own_thread
    began = time.monotonic()
    with pytest.raises(Exited):
        watch()
    assert time.monotonic() - began >= 0.009
    assert codes == [0]


def test_the_earliest_deadline_counts(codes: list[int], own_thread: list[Any]) -> None:
    resort = LastResort()
    resort.arm(3600)
    resort.arm(0)
    resort.arm(60)
    assert len(own_thread) == 1
    with pytest.raises(Exited):
        own_thread[0]()
    assert codes == [0]


def test_an_end_by_itself_needs_no_last_resort(codes: list[int], own_thread: list[Any]) -> None:
    resort = LastResort()
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


def test_threads_that_are_about_to_end_are_waited_for_and_daemons_are_not(codes: list[int]) -> None:
    go = threading.Event()
    daemon = threading.Thread(target=go.wait, daemon=True)
    daemon.start()
    ending_soon = threading.Thread(target=time.sleep, args=(0.05,))
    ending_soon.start()
    end_if_hung()
    assert not ending_soon.is_alive()
    assert codes == []
    go.set()
    daemon.join()


def test_without_stderr_it_ends_in_silence(codes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(descriptor: int, data: bytes) -> NoReturn:
        raise OSError(9, os.strerror(9))

    monkeypatch.setattr(ending.os, "write", closed)
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        with pytest.raises(Exited):
            end_if_hung()
    finally:
        go.set()
        thread.join()
