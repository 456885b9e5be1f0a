"""What a worker is handed over comes first, whatever else the parent wants of it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mcpd.workers.handover import Handover, decode_handover, read_frame
from mcpd.workers.process import Worker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pairs of Unix sockets")


async def test_a_look_while_the_process_is_being_made_does_not_come_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCALE-26: metrics were asked for just then. The worker would take the look for its handover, and die of it."""
    worker = Worker(1, lambda line: None, lambda worker, number: None)
    frames: list[tuple[str, Any]] = []

    async def spawn(*_: str, pass_fds: list[int], **__: Any) -> Any:
        await worker.look(0.01)
        with socket.socket(fileno=os.dup(pass_fds[0])) as its:
            its.settimeout(10)
            frames.extend(read_frame(its)[1:] for _ in range(2))
        return SimpleNamespace(pid=7, wait=_ended)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    handover = Handover(number=1, count=2, addresses={"http": ":8080"}, sockets={})
    await worker.start(["mcpd"], {}, handover, {}, None)
    assert [word for word, _ in frames] == ["hello", "look"]
    assert decode_handover(frames[0][1]) == handover
    assert await worker.wait() == 0


async def _ended() -> int:
    return 0
