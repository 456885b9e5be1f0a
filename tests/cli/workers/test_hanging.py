"""A worker that says nothing any more: stopped, or with all its threads held up. Its parent tells of it."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.clock import until

from mcpd.cli.workers import overview as module
from mcpd.cli.workers.overview import Overview
from mcpd.cli.workers.process import Worker, WorkerReport, encode_body, read_frame
from mcpd.server.backplane.shared_memory import connect_frames, encode_frame
from mcpd.server.settings import Options

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pairs of Unix sockets")


@asynccontextmanager
async def ready(number: int) -> AsyncIterator[tuple[Worker, socket.socket]]:
    """A worker that has said so, and the other end of its control socket."""
    worker = Worker(number, lambda line: None, lambda worker, number: None)
    ours, its = socket.socketpair()
    await connect_frames(worker._control, ours)
    worker._is_handed_over = True
    with its:
        worker.pid = number
        its.sendall(encode_frame(0, "ready", None))
        await worker.ready
        yield worker, its
    await worker._is_closed.wait()


async def test_it_is_stuck_until_it_answers(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """OBS-13: health, readiness, status and metrics say so, the log once."""
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.02)
    caplog.set_level(logging.INFO, "mcpd")
    async with ready(1) as (worker, its), ready(2) as (other, _):
        seen = Overview(Options(), 2, lambda: [worker, other])
        seen.is_serving = True
        assert seen.readiness().body == b"ok\n"

        monkeypatch.setattr(other, "poll", lambda seconds: _nothing(other))  # the second one answers at once
        while not worker.late > 0.02:
            await seen.poll()
        await seen.poll()
        assert (seen.health().status, b"worker 1" in seen.health().body) == (503, True)
        assert seen.readiness() == module.ObserverResponse(200, b"ok\n1 of 2 workers are ready\n")
        status = seen._status()
        assert (status.state, [each.state for each in status.workers]) == ("stuck", ["stuck", "ready"])
        (states,) = (family for family in seen._families() if family.name == "mcpd_workers")
        assert {sample.labels[0][1]: sample.value for sample in states.samples} == {
            "starting": 0, "ready": 1, "stuck": 1, "stopping": 0,
        }  # fmt: skip

        number, word, _ = read_frame(its)
        assert word == "look"
        its.sendall(encode_frame(number, "seen", encode_body(WorkerReport([]))))
        await until(lambda: not worker.late)
        assert seen.health().status == 200
        monkeypatch.setattr(Worker, "poll", lambda self, seconds: _nothing(self))
        await seen.poll()
        said = [record.getMessage() for record in caplog.records if "Worker" in record.getMessage()]
        assert len(said) == 2, said
        assert said[0].startswith("Worker 1 (pid 1) is stuck: its event loop has not responded for 0 s")
        assert said[1] == "Worker 1 (pid 1) works again"


async def _nothing(worker: Worker) -> WorkerReport:
    return worker.latest
