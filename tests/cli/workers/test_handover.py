"""What a worker is handed over comes first, whatever else the parent wants of it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mcpd import Server
from mcpd.cli.workers import worker
from mcpd.cli.workers.process import VARIABLE, Handover, Worker, decode_handover, encode_body, read_frame
from mcpd.protocol import state_keys
from mcpd.server.backplane.shared_memory import connect_frames, encode_frame
from mcpd.server.settings import Options

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pairs of Unix sockets")


async def test_a_look_while_the_process_is_being_made_does_not_come_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCALE-26: metrics were asked for just then. The worker would take the look for its handover, and die of it."""
    made = Worker(1, lambda line: None, lambda worker, number: None)
    looks: list[asyncio.Task[Any]] = []
    its_end: list[socket.socket] = []

    async def connect(*arguments: Any) -> None:
        await connect_frames(*arguments)
        looks.append(asyncio.create_task(made.poll(0.01)))

    def spawn(*_: Any, pass_fds: list[int], **__: Any) -> Any:
        its_end.append(socket.socket(fileno=os.dup(pass_fds[0])))
        return SimpleNamespace(pid=7, wait=_ended)

    monkeypatch.setattr("mcpd.cli.workers.process.connect_frames", connect)
    monkeypatch.setattr("mcpd.cli.workers.process.ChildProcess", spawn)
    handover = Handover(number=1, count=2, addresses={"http": ":8080"}, sockets={})
    await made.start(["mcpd"], {}, handover, {}, None)
    await asyncio.gather(*looks)
    with its_end[0] as its:
        its.settimeout(10)
        frames = [read_frame(its)[1:] for _ in range(2)]
    assert [word for word, _ in frames] == ["hello", "look"]
    assert decode_handover(frames[0][1]) == handover
    assert await made.wait() == 0


async def test_nor_does_what_it_is_told_while_its_socket_is_being_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCALE-26: the loop turns once between the two."""
    worker = Worker(1, lambda line: None, lambda worker, number: None)
    words: list[str] = []

    async def connect(*arguments: Any) -> None:
        await connect_frames(*arguments)
        await worker.poll(10)
        worker.stop()

    def spawn(*_: Any, pass_fds: list[int], **__: Any) -> Any:
        with socket.socket(fileno=os.dup(pass_fds[0])) as its:
            its.settimeout(10)
            words.extend(read_frame(its)[1] for _ in range(2))
        return SimpleNamespace(pid=7, wait=_ended)

    monkeypatch.setattr("mcpd.cli.workers.process.connect_frames", connect)
    monkeypatch.setattr("mcpd.cli.workers.process.ChildProcess", spawn)
    await worker.start(["mcpd"], {}, Handover(number=1, count=2, addresses={}, sockets={}), {}, None)
    assert words == ["hello", "stop"]
    assert await worker.wait() == 0


async def _ended() -> int:
    return 0


async def test_the_key_that_is_made_for_all_is_not_what_tools_inherit(monkeypatch: pytest.MonkeyPatch) -> None:
    """OBS-12: the environment goes to each program that a tool starts."""
    monkeypatch.delenv("MCPD_STATE_KEY", raising=False)
    monkeypatch.setattr(state_keys, "_handed_over", "")
    is_gone = threading.Event()
    monkeypatch.setattr(worker.Parent, "_end_without_parent", lambda self: is_gone.set())
    assert not Server("alone")._state_keys
    ours, its = socket.socketpair()
    handover = Handover(number=1, count=2, addresses={}, sockets={}, state_key="a key for all workers")
    with ours:
        ours.sendall(encode_frame(0, "hello", encode_body(handover)))
        monkeypatch.setenv(VARIABLE, str(its.detach()))
        options = Options()
        parent = await asyncio.to_thread(worker.take_over, options)
    assert await asyncio.to_thread(is_gone.wait, 30)
    parent._socket.close()
    assert "a key for all workers" not in os.environ.values()
    assert Server("one of two")._state_keys.keys == (b"a key for all workers",)
    monkeypatch.setenv("MCPD_STATE_KEY", "a key of the service")
    assert Server("one of many")._state_keys.keys == (b"a key of the service",)
