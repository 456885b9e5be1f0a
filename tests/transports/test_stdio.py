"""The stdio channel on descriptors of every kind, in this process: reading, writing, back-pressure, the end.

What concerns the whole process (who owns fd 1, signals) is in tests/cli/test_serve_process.py.
Spec: 2026-07-28 basic/transports/stdio.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clock import Clock, turns, until

from mcpd.errors import ConnectionLost, FrameTooLarge
from mcpd.transports import stdio
from mcpd.transports.stdio import StdioChannel


class Ear:
    """Takes what a channel reads, and can wait for it."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.on_frame: Callable[[bytes], None] = lambda frame: None
        self._news = asyncio.Event()

    def receive(self, frame: bytes) -> None:
        self.heard.append(frame)
        self.on_frame(frame)
        self._news.set()

    def receive_error(self, error: Exception) -> None:
        self.heard.append(error)
        self._news.set()

    def closed(self, error: Exception | None = None) -> None:
        self.heard.append(("closed", error))
        self._news.set()

    async def wait(self, number: int) -> list[Any]:
        """The first so many things that were heard."""
        async with asyncio.timeout(60):
            while len(self.heard) < number:
                self._news.clear()
                await self._news.wait()
        return self.heard[:number]


class Ends:
    """Two pipes: the channel's ends, and ours."""

    def __init__(self) -> None:
        self.fd_in, self.writes = os.pipe()
        self.reads, self.fd_out = os.pipe()
        self._open = {self.fd_in, self.writes, self.reads, self.fd_out}

    def close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            if descriptor in self._open:
                self._open.remove(descriptor)
                os.close(descriptor)

    def close_all(self) -> None:
        self.close(*list(self._open))


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    yield both
    both.close_all()


async def read(descriptor: int, number: int) -> bytes:
    """So many bytes of a pipe, or what there is till its end."""

    def collect() -> bytes:
        data = b""
        while len(data) < number and (chunk := os.read(descriptor, 1 << 20)):
            data += chunk
        return data

    async with asyncio.timeout(60):
        return await asyncio.to_thread(collect)


async def test_lines_in_and_lines_out(ends: Ends) -> None:
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out), Ear()
    channel.start(ear)
    os.write(ends.writes, b'{"a":1}\n\n{"b"')
    assert await ear.wait(1) == [b'{"a":1}']
    os.write(ends.writes, b":2}\r\nlast")
    assert (await ear.wait(2))[1] == b'{"b":2}\r'
    ends.close(ends.writes)
    assert await ear.wait(4) == [b'{"a":1}', b'{"b":2}\r', b"last", ("closed", None)]
    channel.send(b"one")
    channel.send(b"two", related_request_id=1)
    assert await read(ends.reads, 8) == b"one\ntwo\n"
    await channel.aclose()
    assert os.get_blocking(ends.fd_out)
    assert len(ear.heard) == 4


async def test_what_is_answered_while_a_chunk_is_read_leaves_in_one_write(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = []
    write = os.write
    monkeypatch.setattr(stdio.os, "write", lambda fd, data: writes.append(bytes(data)) or write(fd, data))
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out), Ear()
    ear.on_frame = channel.send
    channel.start(ear)
    write(ends.writes, b"1\n2\n3\n")
    await ear.wait(3)
    assert writes == [b"1\n2\n3\n"]
    await channel.aclose()


async def test_a_line_over_the_limit_is_an_error_and_reading_goes_on(ends: Ends) -> None:
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out, max_frame_bytes=5), Ear()
    channel.start(ear)
    os.write(ends.writes, b"123456\n12345\n")
    refused, line = await ear.wait(2)
    assert isinstance(refused, FrameTooLarge)
    assert "5 bytes" in str(refused)
    assert line == b"12345"
    os.write(ends.writes, b"1234567890")
    ends.close(ends.writes)
    last = (await ear.wait(4))[2]
    assert isinstance(last, FrameTooLarge)
    await channel.aclose()


async def test_a_reader_that_is_slow_stops_the_reading(ends: Ends) -> None:
    """More than 1 MiB waits: no more work is taken in, and senders can wait for room."""
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out), Ear()
    channel.start(ear)
    frame = b"x" * 100_000
    for _ in range(20):
        channel.send(frame)
    drained = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    assert channel.is_congested
    os.write(ends.writes, b"not yet\n")
    await turns(100)
    assert not ear.heard
    assert not drained.done()
    channel.send(b"more")
    data = await read(ends.reads, 20 * 100_001 + 5)
    assert data == (frame + b"\n") * 20 + b"more\n"
    async with asyncio.timeout(60):
        await drained
    assert not channel.is_congested
    assert await ear.wait(1) == [b"not yet"]
    await channel.drain()
    await channel.aclose()


async def test_who_hangs_up_and_reads_nothing_is_gone(ends: Ends) -> None:
    """The end of the input is behind what is not read any more; while the peer takes something it is waited for."""
    clock = Clock()
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out), Ear()
    channel.start(ear)
    channel.send(b"x" * 3_000_000)
    os.write(ends.writes, b"never read\n")
    await clock.advance(stdio._LAST_SECONDS + 1)
    assert ear.heard == []
    ends.close(ends.writes)
    for _ in range(5):  # together longer than a peer is waited for that takes nothing
        os.read(ends.reads, 8192)
        await clock.advance(stdio._LAST_SECONDS * 0.6)
    assert ear.heard == []
    await clock.advance(stdio._LAST_SECONDS + 1)
    ((what, error),) = await ear.wait(1)
    assert what == "closed"
    assert isinstance(error, ConnectionLost)
    assert "nobody reads stdout" in str(error)
    assert not channel.is_congested
    closing = asyncio.create_task(channel.aclose())
    await asyncio.sleep(0)
    await clock.advance(stdio._LAST_SECONDS + 1)
    await closing


async def test_a_clients_end_reads_on_while_it_cannot_write(ends: Ends) -> None:
    """The server writes its answers before it reads on: somebody has to give way."""
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out, always_reads=True), Ear()
    channel.start(ear)
    for _ in range(20):
        channel.send(b"x" * 100_000)
    drained = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    assert channel.is_congested
    os.write(ends.writes, b"an answer\n")
    assert await ear.wait(1) == [b"an answer"]
    assert channel.is_congested
    await read(ends.reads, 20 * 100_001)
    await drained
    os.write(ends.writes, b"another\n")
    assert await ear.wait(2) == [b"an answer", b"another"]
    await channel.aclose()


async def test_large_and_small_frames_keep_their_order(ends: Ends) -> None:
    channel = StdioChannel(ends.fd_in, ends.fd_out)
    channel.start(Ear())
    frames = [bytes([65 + number % 26]) * (1 if number % 3 else 70_000) for number in range(200)]
    expected = b"".join(frame + b"\n" for frame in frames)
    for frame in frames:
        channel.send(frame)
    assert await read(ends.reads, len(expected)) == expected
    await channel.aclose()


async def test_a_reader_that_is_gone_ends_the_connection(ends: Ends) -> None:
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out), Ear()
    channel.start(ear)
    ends.close(ends.reads)
    channel.send(b"nobody")
    ((what, error),) = await ear.wait(1)
    assert what == "closed"
    assert isinstance(error, ConnectionLost)
    assert "stdout" in str(error)
    channel.send(b"dropped")
    await channel.drain()
    ends.close(ends.writes)
    await channel.aclose()
    assert len(ear.heard) == 1


async def test_a_reader_that_goes_while_much_waits(ends: Ends) -> None:
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out), Ear()
    channel.start(ear)
    channel.send(b"x" * 3_000_000)
    drained = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    assert channel.is_congested
    ends.close(ends.reads)
    ((_, error),) = await ear.wait(1)
    assert isinstance(error, ConnectionLost)
    async with asyncio.timeout(60):
        await drained
    assert not channel.is_congested
    await channel.aclose()


async def test_closing_writes_what_is_queued_but_does_not_wait_for_ever(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_LAST_SECONDS", 0.02)
    channel, ear = StdioChannel(ends.fd_in, ends.fd_out), Ear()
    channel.start(ear)
    channel.send(b"queued")
    channel.send(b"x" * 3_000_000)
    async with asyncio.timeout(60):
        await channel.aclose()
    assert ear.heard == [("closed", None)]
    assert os.read(ends.reads, 7) == b"queued\n"
    await channel.aclose()


async def test_a_socket_serves_both_ways() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel, ear = StdioChannel(theirs.fileno(), theirs.fileno()), Ear()
        ear.on_frame = channel.send
        channel.start(ear)
        ours.sendall(b"ping\n")
        assert await ear.wait(1) == [b"ping"]
        assert await read(ours.fileno(), 5) == b"ping\n"
        ours.shutdown(socket.SHUT_WR)
        await ear.wait(2)
        await channel.aclose()


async def test_a_connection_that_is_reset_has_ended() -> None:
    """What cannot be read any more is the end of the input."""
    ours, theirs = socket.socketpair()
    with theirs:
        channel, ear = StdioChannel(theirs.fileno(), theirs.fileno()), Ear()
        channel.start(ear)
        theirs.sendall(b"unread")
        ours.close()
        assert (await ear.wait(1))[0][0] == "closed"
        await channel.aclose()


async def test_a_file_is_read_by_a_thread(tmp_path: Path, ends: Ends) -> None:
    """It cannot be polled."""
    lines = [b"%d" % number * 50 for number in range(5000)]
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    with (tmp_path / "in").open("rb") as file:
        channel, ear = StdioChannel(file.fileno(), ends.fd_out), Ear()
        channel.start(ear)
        assert await ear.wait(5001) == [*lines, ("closed", None)]
        await channel.aclose()


async def test_a_file_too_is_read_no_faster_than_the_answers_are(tmp_path: Path, ends: Ends) -> None:
    (tmp_path / "in").write_bytes(b"x" * 50_000 + (b"\n" + b"y" * 50_000) * 99 + b"\n")
    with (tmp_path / "in").open("rb") as file:
        channel, ear = StdioChannel(file.fileno(), ends.fd_out), Ear()
        ear.on_frame = channel.send
        channel.start(ear)
        await until(lambda: channel.is_congested)
        number = len(ear.heard)
        await asyncio.sleep(0.05)
        assert len(ear.heard) == number < 40
        data = await read(ends.reads, 100 * 50_001)
        assert data.count(b"\n") == 100
        await ear.wait(101)
        await channel.aclose()


async def test_writing_into_a_file(tmp_path: Path, ends: Ends) -> None:
    with (tmp_path / "out").open("wb") as file:
        channel = StdioChannel(ends.fd_in, file.fileno())
        channel.start(Ear())
        channel.send(b"x" * 1_000_000)
        channel.send(b"end")
        await channel.drain()
        await channel.aclose()
    assert (tmp_path / "out").read_bytes() == b"x" * 1_000_000 + b"\nend\n"


async def test_nothing_is_told_before_it_is_started(ends: Ends) -> None:
    channel = StdioChannel(ends.fd_in, ends.fd_out)
    os.write(ends.writes, b"early\n")
    await turns()
    ear = Ear()
    channel.start(ear)
    assert await ear.wait(1) == [b"early"]
    await channel.aclose()


async def test_closing_what_was_never_started(ends: Ends) -> None:
    channel = StdioChannel(ends.fd_in, ends.fd_out)
    await channel.aclose()
    channel.send(b"dropped")
    await channel.drain()
