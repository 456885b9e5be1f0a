"""WebSockets that wait, for a message or for their end: what a thousand of them keep, and closes that cross."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

from support.clock import until
from support.websocket_peer import (
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    Bare,
    Peer,
    Socket,
    close_frame,
    frame,
    serving,
    upgrade,
)

from mcpd.errors import ConnectionLost
from mcpd.transports.accepting import raise_descriptor_limit
from mcpd.transports.websocket import WebSocketChannel

OWN = [tracemalloc.Filter(True, f"*{part}*") for part in ("websockets", "mcpd/transports")]
MOST_BYTES = 2600


async def test_what_one_keeps_that_waits() -> None:
    """The library's state and ours: 2 KiB. With its handshake it would be 5, with its last message what that was."""
    bare, message = Bare(lambda _: b"1"), frame(TEXT, b"x" * 5000)
    kept: list[WebSocketChannel] = []

    def connect(times: int) -> None:
        for _ in range(times):
            channel, socket = bare.endpoint.connect(), Socket()
            socket.protocol = channel
            channel.connection_made(socket)
            channel.data_received(upgrade())
            channel.data_received(message)
            kept.append(channel)
            for guest in bare.guests:
                guest.frames.clear()

    connect(20)
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot().filter_traces(OWN)
        connect(100)
        gc.collect()
        after = tracemalloc.take_snapshot().filter_traces(OWN)
    finally:
        tracemalloc.stop()
    grown = sum(line.size_diff for line in after.compare_to(before, "filename"))
    assert grown / 100 < MOST_BYTES
    for channel in kept:
        channel.abort()
    bare.lose()


async def test_a_thousand_that_wait() -> None:
    """Each is served when it speaks at last, all hear of the end, within the time of one."""
    raise_descriptor_limit()
    async with serving(max_connections=1001) as house:
        peers = []
        for _ in range(1000):
            peer = Peer(*await asyncio.open_connection("127.0.0.1", house.port))
            peer.send(upgrade())
            peers.append(peer)
        for peer in peers:
            assert (await peer.response())[0] == 101
        assert len(house.listener.endpoint.connections) == 1000

        for peer in peers[::50]:
            peer.send(frame(TEXT, b"at ", fin=False) + frame(PING, b"between") + frame(CONT, b"last"))
            assert await peer.frame() == (PONG, b"between")
            assert await peer.text() == b"at last"

        closing = asyncio.ensure_future(house.listener.aclose())
        for peer in peers:
            assert (await peer.closing())[0] == 1001
            peer.send(close_frame(1001))
        await closing
        for peer in peers:
            await peer.aclose()


async def test_closes_that_cross() -> None:
    """RFC 6455 7.1.2: each has said so once; nothing is said after it, and nobody waits."""
    bare = Bare()
    guest = bare.open()
    closing = asyncio.ensure_future(bare.channel.aclose("bye"))
    await asyncio.sleep(0)
    bare.channel.data_received(frame(TEXT, b"1") + close_frame(1000, "me too") + frame(TEXT, b"2"))
    bare.channel.send(b"late")
    await closing
    assert bare.frames() == [(CLOSE, b"\x03\xe9bye")]
    assert guest.frames == []
    assert guest.ends == [None]
    assert bare.socket.is_aborted


async def test_what_came_before_a_cut_is_not_answered_behind_it() -> None:
    """The client has cut while it did not read: what it had asked waits still, and nothing follows our own end."""
    bare = Bare(lambda _: b"x" * 100_000, room=0)
    guest = bare.open()
    bare.channel.data_received(frame(TEXT, b"1") * 30)
    asked = len(guest.frames)
    assert asked < 30
    bare.channel.eof_received()
    assert bare.socket.has_eof
    bare.socket.take(10_000_000)
    bare.channel.send(b"late")
    await asyncio.sleep(0)
    assert len(guest.frames) == asked
    assert {opcode for opcode, _ in bare.frames()} == {TEXT}
    assert isinstance(guest.ends[0], ConnectionLost)
    bare.lose()


async def test_a_long_message_and_its_answer_byte_by_byte() -> None:
    """Lengths of one, two and eight bytes, cut anywhere; a ping in the middle of a message is answered at once."""
    bare = Bare()
    guest = bare.open()
    long = b"x" * 70_000
    for byte in frame(TEXT, b"y" * 126) + frame(TEXT, b"a", fin=False) + frame(PING, b"p") + frame(CONT, b"b"):
        bare.channel.data_received(bytes([byte]))
    head = frame(TEXT, long)[:14]
    for byte in head:
        bare.channel.data_received(bytes([byte]))
    bare.channel.data_received(frame(TEXT, long)[14:])
    assert guest.frames == [b"y" * 126, b"ab", long]
    assert bare.frames() == [(TEXT, b"y" * 126), (PONG, b"p"), (TEXT, b"ab"), (TEXT, long)]
    bare.lose()
    await until(lambda: not bare.endpoint.connections)
