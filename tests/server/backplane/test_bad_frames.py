"""What a worker that went mad, or is of another version, says to the memory of all."""

from __future__ import annotations

import asyncio
from contextlib import closing
from socket import socketpair
from typing import Any

import pytest

from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.backplane.shared_memory import SharedBackplane, SharedMemory


@pytest.mark.parametrize(
    ("word", "body"),
    [
        ("set", ("a", b"1", "soon", False)),
        ("set", ("a", b"1", float("nan"), False)),
        ("set", ("a", b"1", -1.0, False)),
        ("set", ("a", 7, 60, False)),
        ("set", (7, b"1", 60, False)),
        ("swap", ("a", None, 7, 60)),
        ("append", ("a", [b"1", 7], 10, 60)),
        ("append", ("a", 7, 10, 60)),
        ("append", ("a", [b"1"], 10, "soon")),
        ("subscribe", (7,)),
    ],
)
async def test_what_does_not_fit_leaves_nothing_behind(word: str, body: tuple[object, ...]) -> None:
    """SCALE-22: not half of it either, which would have no end and could not be replaced."""
    with closing(SharedMemory()) as memory:
        ours, its = socketpair()
        await memory.join(ours)
        one: Any = SharedBackplane(its)
        with pytest.raises(BackplaneAway, match="Error"):
            await one._ask(word, *body)
        assert (len(memory.memory), memory.memory._bytes, memory.memory.bus.channels) == (0, 0, [])
        assert await one.set("a", b"1", 60)
        assert await one.get("a") == b"1"
        await one.aclose()


async def test_what_is_nested_too_deep_ends_its_connection_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    deep = b"\x93\1\xa1a" + b"\x91" * 200_000 + b"\xc0"
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    with closing(SharedMemory()) as memory:
        ours, its = socketpair()
        await memory.join(ours)
        its.setblocking(False)
        await loop.sock_sendall(its, len(deep).to_bytes(4, "big") + deep)
        with its:
            assert await loop.sock_recv(its, 10) == b""
    assert told == []
