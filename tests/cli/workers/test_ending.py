"""A parent that is told to end, or to take new code, while it starts a worker, and one whose worker does not start."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import pytest
from support.clock import until

from mcpd.cli.workers import parent as module
from mcpd.cli.workers.overview import Overview
from mcpd.cli.workers.process import Worker
from mcpd.errors import ConfigurationError
from mcpd.server.settings import Options

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no processes that share a port")


class Stage:
    """A parent whose next worker is on its way until `go` is set; `signals` are those that it is sent then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.go = asyncio.Event(), asyncio.Event()
        self.signals: list[int] = []
        self.error: OSError | None = None
        self.parent: Any = module._Parent(Options(workers=1, grace=0), lambda line: None)
        self.parent._loop = asyncio.get_running_loop()
        self.parent._overview = Overview(Options(), 1, self.parent._all)
        monkeypatch.setattr(module, "_ENDING_SECONDS", 0.01)
        monkeypatch.setattr(Worker, "start", lambda *_: self._start())
        monkeypatch.setattr(Worker, "signal", lambda _, number: self._read_frames(number))
        monkeypatch.setattr(Worker, "wait", lambda _: self._wait())
        self._has_ended = asyncio.Event()

    async def _start(self) -> None:
        self.started.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error

    def _read_frames(self, number: int) -> None:
        if self.go.is_set():
            self.signals.append(number)
            self._has_ended.set()

    async def _wait(self) -> int:
        await self._has_ended.wait()
        return 0


async def test_the_worker_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not left to its own until it is killed."""
    stage = Stage(monkeypatch)
    starting = asyncio.create_task(stage.parent._start(1))
    await stage.started.wait()
    ending = asyncio.create_task(stage.parent._end())
    await asyncio.sleep(0)
    stage.go.set()
    await starting
    assert stage.signals == [signal.SIGTERM]
    async with asyncio.timeout(30):
        await ending


async def test_one_that_cannot_be_started_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.error = OSError("no more processes")
    starting = asyncio.create_task(stage.parent._start(1))
    await stage.started.wait()
    ending = asyncio.create_task(stage.parent._end())
    await asyncio.sleep(0)
    stage.go.set()
    with pytest.raises(ConfigurationError, match="no more processes"):
        await starting
    async with asyncio.timeout(5):
        await ending


async def test_new_code_that_is_asked_for_during_the_start_is_taken_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCALE-25: what was loaded until then may be the old."""
    stage = Stage(monkeypatch)
    exchanged = asyncio.Event()

    async def exchange(number: int) -> bool:
        exchanged.set()
        return True

    async def is_ready(worker: Worker) -> bool:
        return True

    stage.parent._exchange, stage.parent._is_ready = exchange, is_ready
    beginning = asyncio.create_task(stage.parent._begin())
    await stage.started.wait()
    stage.parent._on_reload()
    await asyncio.gather(*stage.parent._tasks)
    assert not exchanged.is_set()
    stage.go.set()
    assert await beginning is None
    async with asyncio.timeout(5):
        await exchanged.wait()
    stage.parent._stopped.set()
    stage._has_ended.set()
    await asyncio.gather(*stage.parent._tasks)


async def test_one_that_does_not_get_ready_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a reload with new code that hangs would wait for ever, and nobody would know for what."""
    monkeypatch.setattr(module, "_LONG_START", 0.01)
    stage = Stage(monkeypatch)
    worker = Worker(2, lambda line: None, lambda worker, number: None)
    worker.pid = 77
    waiting = asyncio.create_task(stage.parent._is_ready(worker))
    await until(lambda: caplog.records)
    worker.ready.set_result(True)
    assert await waiting
    assert [record.getMessage() for record in caplog.records] == [
        "Worker 2 (pid 77) has been loading its target for 0.01 s; to give it up, run kill -9 77"
    ]
