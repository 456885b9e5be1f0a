"""What holds for both ends of a WebSocket, however bytes are split; and connections that wait, or end on both sides."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import example, given, strategies as st
from support.clock import until
from support.websocket_peer import (
    BINARY,
    CLOSE,
    CONT,
    MASK,
    PING,
    PONG,
    TEXT,
    Bare,
    Peer,
    Recorder,
    Socket,
    close_frame,
    frame as made,
    opened_client,
    serving,
    upgrade,
)
from websockets.frames import Frame, Opcode

from mcpd.errors import ConnectionLost
from mcpd.transports.accepting import raise_descriptor_limit
from mcpd.transports.websocket.connection import WebSocketChannel

MOST = 300

Frames = Callable[[bytes | None], bytes]
"""The bytes of frames, given the mask that is right for the end that reads them."""


texts = st.one_of(
    st.text(max_size=20).map(str.encode),
    st.sampled_from([b"x" * 125, b"x" * 126, b"x" * MOST, b"x" * (MOST + 1), b"x" * 70_000, b"a\xff", b"\xe2\x82"]),
)
wholes = st.builds(lambda payload: lambda mask: made(TEXT, payload, mask=mask), texts)
whatever = st.builds(
    lambda opcode, payload, fin, rsv: lambda mask: made(opcode, payload, mask=mask, fin=fin, rsv=rsv),
    st.sampled_from([TEXT, CONT, BINARY, CLOSE, PING, PONG, 0x3, 0xB]),
    st.one_of(texts, st.binary(max_size=8)),
    st.booleans(),
    st.sampled_from([0, 0, 0, 4]),
)
fragmented = st.builds(
    lambda parts, between: (
        lambda mask: b"".join(
            made(TEXT if number == 0 else CONT, part, mask=mask, fin=number == len(parts) - 1)
            + (made(PING, b"?", mask=mask) if between else b"")
            for number, part in enumerate(parts)
        )
    ),
    st.lists(texts, min_size=2, max_size=4),
    st.booleans(),
)
controls = st.sampled_from([PING, PONG]).map(lambda opcode: lambda mask: made(opcode, b"mcpd", mask=mask))
closes = st.just(lambda mask: made(CLOSE, close_frame(1000, "done")[6:], mask=mask))
wrongly_masked = texts.map(lambda payload: lambda mask: made(TEXT, payload, mask=MASK if mask is None else None))
# A length in more bytes than it needs, which the library takes.
roundabout = st.builds(
    lambda size: (
        lambda mask: (
            bytes([0x81, (0 if mask is None else 0x80) | 126, 0, size]) + (mask and bytes(4) or b"") + b"r" * size
        )
    ),
    st.integers(0, 125),
)
reserved = st.builds(
    lambda payload, rsv: lambda mask: made(TEXT, payload, mask=mask, rsv=rsv), texts, st.sampled_from([1, 2, 4])
)
# What is within a frame looks like one.
nested = st.builds(
    lambda opcode, fin: lambda mask: made(opcode, made(TEXT, b"in", mask=mask), mask=mask and bytes(4), fin=fin),
    st.sampled_from([TEXT, CONT, PING]),
    st.booleans(),
)
opened = st.just(lambda mask: made(TEXT, b"begun", mask=mask, fin=False))
kinds = st.one_of(
    wholes, wholes, wholes, fragmented, controls, whatever, wrongly_masked, roundabout, closes, reserved, nested, opened
)
sequences = st.lists(st.tuples(kinds, st.booleans(), st.lists(st.integers(-8, 400), max_size=2)), max_size=8)
"""Frames; whether each comes together with what is before it, and where it is cut."""


def chunks(sequence: list[tuple[Frames, bool, list[int]]], mask: bytes | None) -> list[bytes]:
    """What arrives in one read each."""
    reads: list[bytes] = []
    for make, is_joined, cuts in sequence:
        data = make(mask)
        places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        parts = [data[start:end] for start, end in zip(places, places[1:], strict=False)]
        if is_joined and reads:
            reads[-1] += parts.pop(0)
        reads += parts
    return reads


class Seen:
    """All that can be seen of one end while bytes are fed to it, by one who reads it or takes its writes."""

    def __init__(self, channel: WebSocketChannel, recorder: Recorder, socket: Socket) -> None:
        self.channel, self.recorder, self.socket = channel, recorder, socket

    def feed(self, data: list[bytes]) -> object:
        """What was handed on, whether the end was told, and how many close frames were written."""
        for chunk in data:
            self.channel.data_received(chunk)
        self.channel.eof_received()
        frames = Bare.frames_of(self.socket.writes)
        if not self.socket.is_aborted:
            self.socket.abort()
        closes = sum(opcode == CLOSE for opcode, _ in frames)
        return self.recorder.frames, len(self.recorder.ends), closes


def server_end() -> Seen:
    bare = Bare(max_frame_bytes=MOST)
    return Seen(bare.channel, bare.open(), bare.socket)


def client_end() -> Seen:
    channel, socket = opened_client(MOST)
    recorder = Recorder(channel)
    channel._receiver, channel.is_held = recorder, False
    return Seen(channel, recorder, socket)


TOO_LARGE = (lambda mask: made(TEXT, b"x" * (MOST + 1), mask=mask), False, [])
TWICE = (lambda mask: made(TEXT, b"b", mask=mask), False, [])


@given(sequences, st.sampled_from([server_end, client_end]))
@example([(lambda mask: made(TEXT, b"x" * (MOST + 1), mask=mask), False, []), TWICE], client_end)
@example([(lambda mask: made(TEXT, b"x", mask=mask, rsv=4), False, []), TWICE], client_end)
@example([(lambda mask: made(TEXT, b"x", mask=mask, fin=False), False, []), TWICE], server_end)
@example([(lambda mask: made(PING, made(TEXT, b"x", mask=mask), mask=mask and bytes(4)), False, [2])], client_end)
@example([(lambda mask: made(TEXT, b"a\xff", mask=mask), False, []), TWICE, TOO_LARGE], client_end)
async def test_how_bytes_are_split_changes_nothing(
    sequence: list[tuple[Frames, bool, list[int]]], end: Callable[[], Seen]
) -> None:
    """Frames of all kinds, good and bad, come in several reads, byte by byte, and in one: with the same outcome."""
    data = chunks(sequence, MASK if end is server_end else None)
    whole = b"".join(data)
    found = end().feed(data)
    assert end().feed([bytes([byte]) for byte in whole[:2000]] + [whole[2000:]] * (len(whole) > 2000)) == found
    assert end().feed([whole] if whole else []) == found


@pytest.mark.parametrize("end", [server_end, client_end])
async def test_what_is_no_utf_8_ends_it_with_1007(end: Callable[[], Seen]) -> None:
    """RFC 6455 8.1; what came before is taken, what comes behind is not."""
    seen = end()
    mask = MASK if end is server_end else None
    seen.channel.data_received(b"".join(made(TEXT, part, mask=mask) for part in (b"one", b"t\xffo", b"three")))
    assert seen.recorder.frames == [b"one"]
    opcode, payload = Bare.frames_of(seen.socket.writes)[-1]
    assert (opcode, payload[:2]) == (CLOSE, (1007).to_bytes(2, "big"))


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_receiver_that_fails_ends_the_connection(
    *, is_alone: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever way its message came."""
    bare = Bare()
    recorder = bare.open()

    def fail(frame: bytes) -> None:
        raise LookupError("no such thing")

    monkeypatch.setattr(recorder, "receive", fail)
    bare.channel.data_received(made(TEXT, b"{}", mask=MASK) * (1 if is_alone else 2))
    assert bare.socket.writes[-1][:4] == b"\x88\x10" + (1011).to_bytes(2, "big")
    assert "no such thing" in caplog.text
    assert not bare.channel.is_open


async def test_nothing_is_read_behind_a_close_frame() -> None:
    """RFC 6455 1.4: also while the close frame itself waits to be handed on."""
    seen = client_end()
    seen.channel.is_held = True
    seen.channel.data_received(made(CLOSE, b"\x03\xe8", mask=None))
    seen.channel.data_received(made(TEXT, b"late", mask=None))
    assert len(seen.channel._events) == 1


@pytest.mark.parametrize("size", [0xFFFF, 0x10000, 3 * 0xFFFF])
async def test_short_and_long_messages_keep_their_order(size: int) -> None:
    bare = Bare()
    bare.open()
    sent = [b"first", b"x" * size, b"last", b"y" * size]
    for payload in sent:
        bare.channel.send(payload)
    await asyncio.sleep(0)
    assert b"".join(bare.socket.writes) == b"".join(
        Frame(Opcode.TEXT, payload).serialize(mask=False) for payload in sent
    )


async def test_nothing_is_kept_of_a_message_that_was_taken() -> None:
    """The library's parser holds its last frame until the next has come: a client may be idle for days."""
    bare = Bare()
    recorder = bare.open()
    bare.channel.data_received(made(TEXT, b"x" * 100_000))
    assert recorder.frames.pop() == b"x" * 100_000
    assert [one for one in gc.get_objects() if type(one) is Frame and len(one.data) >= 100_000] == []


# ----------------------------------------------------------- those that wait, and closes that cross


OWN = [tracemalloc.Filter(True, f"*{part}*") for part in ("websockets", "mcpd/transports")]
MOST_BYTES = 2600


async def test_what_one_keeps_that_waits() -> None:
    """The library's state and ours: 2 KiB. With its handshake it would be 5, with its last message what that was."""
    bare, message = Bare(lambda _: b"1"), made(TEXT, b"x" * 5000)
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
            peer.send(made(TEXT, b"at ", fin=False) + made(PING, b"between") + made(CONT, b"last"))
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
    bare.channel.data_received(made(TEXT, b"1") + close_frame(1000, "me too") + made(TEXT, b"2"))
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
    bare.channel.data_received(made(TEXT, b"1") * 30)
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
    for byte in made(TEXT, b"y" * 126) + made(TEXT, b"a", fin=False) + made(PING, b"p") + made(CONT, b"b"):
        bare.channel.data_received(bytes([byte]))
    head = made(TEXT, long)[:14]
    for byte in head:
        bare.channel.data_received(bytes([byte]))
    bare.channel.data_received(made(TEXT, long)[14:])
    assert guest.frames == [b"y" * 126, b"ab", long]
    assert bare.frames() == [(TEXT, b"y" * 126), (PONG, b"p"), (TEXT, b"ab"), (TEXT, long)]
    bare.lose()
    await until(lambda: not bare.endpoint.connections)
