"""One WebSocket connection: frames in any chunks, slow readers, ends, pings; with and without a network."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref

import pytest
from hypothesis import given, strategies as st
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
    Recorder,
    Socket,
    close_frame,
    frame,
    no_answer,
    raw,
    serving,
    upgrade,
)
from websockets.asyncio.client import connect

from mcpd.errors import ConnectionLost
from mcpd.transports.guards import Access, Guard
from mcpd.transports.websocket.server import Endpoint

# --------------------------------------------------------------------------------------- frames


async def test_text_that_is_no_utf8_fails_the_connection() -> None:
    """S25-026, S26-043: messages are UTF-8; RFC 6455 8.1."""
    async with serving() as house, raw(house) as peer:
        peer.send(frame(TEXT, b'{"a":"\xff"}') + frame(TEXT, b"1"))
        code, reason = await peer.closing()
        assert code == 1007
        assert reason == "not UTF-8: invalid start byte at byte 6"
        assert isinstance(await house.guests[0].end(), ConnectionLost)
        assert house.guests[0].frames == []


async def test_utf8_may_be_cut_anywhere_between_fragments() -> None:
    text = "☃🎉".encode()
    async with serving() as house, raw(house) as peer:
        for cut in range(len(text) + 1):
            peer.send(frame(TEXT, text[:cut], fin=False) + frame(CONT, text[cut:]))
            assert await peer.text() == text


async def test_fragments_are_joined_and_control_frames_may_come_between() -> None:
    async with serving() as house, raw(house) as peer:
        peer.send(frame(TEXT, b"a", fin=False) + frame(PING, b"between") + frame(CONT, b"", fin=False))
        peer.send(frame(CONT, b"b", fin=False) + frame(PONG) + frame(CONT, b"c") + frame(TEXT, b"d"))
        assert await peer.frame() == (PONG, b"between")
        assert await peer.text() == b"abc"
        assert await peer.text() == b"d"


@pytest.mark.parametrize("fin", [True, False])
async def test_a_binary_frame_is_refused(fin: bool) -> None:
    """RFC 6455 7.4.1, code 1003: "an endpoint that understands only text data"."""
    async with serving() as house, raw(house) as peer:
        peer.send(frame(BINARY, b"{}", fin=fin))
        code, reason = await peer.closing()
        assert code == 1003
        assert "text frame" in reason
        assert "1003" in str(await house.guests[0].end())


@pytest.mark.parametrize(
    "data",
    [
        frame(TEXT, b"{}", mask=None),
        frame(0x3, b""),
        frame(0xB, b""),
        frame(TEXT, b"{}", rsv=4),
        frame(CONT, b"x"),
        frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"),
        frame(PING, b"x" * 126),
        frame(PING, b"x", fin=False),
        frame(CLOSE, b"\x03"),
        close_frame(1005),
        frame(TEXT, b"a", fin=False) + close_frame(1000),
    ],
)
async def test_frames_that_break_rfc_6455(data: bytes) -> None:
    async with serving() as house, raw(house) as peer:
        peer.send(data)
        code, reason = await peer.closing()
        assert code == 1002
        assert reason
        assert len(house.guests[0].ends) == 1
        assert house.guests[0].frames == []


async def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    async with serving(max_frame_bytes=1000) as house, raw(house) as peer:
        peer.send(frame(TEXT, b"x" * 1000))
        assert await peer.text() == b"x" * 1000
        peer.send(frame(TEXT, b"x" * 1001)[:8])
        code, reason = await peer.closing()
        assert code == 1009
        assert "1000" in reason
        assert isinstance(await house.guests[0].end(), ConnectionLost)


async def test_a_length_beyond_all_memory_is_refused() -> None:
    async with serving() as house, raw(house) as peer:
        peer.send(b"\x81\xff" + struct.pack("!Q", 1 << 62) + MASK)
        assert (await peer.closing())[0] == 1009


async def test_fragments_over_the_limit_together_are_refused() -> None:
    async with serving(max_frame_bytes=1000) as house, raw(house) as peer:
        peer.send(frame(TEXT, b"x" * 600, fin=False) + frame(CONT, b"x" * 600))
        assert (await peer.closing())[0] == 1009
        assert house.guests[0].frames == []


async def test_the_reason_arrives_although_the_client_still_sends() -> None:
    """Closing a socket with unread input resets it, and the peer would lose the close frame."""
    async with serving(max_frame_bytes=1000) as house, raw(house) as peer:
        peer.send(frame(TEXT, b"x" * 4_000_000))
        assert (await peer.closing())[0] == 1009


async def test_pings_are_answered() -> None:
    async with serving() as house, raw(house) as peer:
        peer.send(frame(PING) + frame(PING, b"x" * 125))
        assert await peer.frame() == (PONG, b"")
        assert await peer.frame() == (PONG, b"x" * 125)
        assert house.guests[0].frames == []


# ---------------------------------------------------------- any chunks, any bytes, without a socket


async def test_cut_at_every_byte() -> None:
    """Each message arrives once, whole and in order, wherever the network cuts the stream."""
    messages = [b"{}", "ä☃".encode(), b"x" * 130, b"y" * 65_600]
    data = frame(TEXT, messages[0]) + frame(TEXT, messages[1][:1], fin=False) + frame(PING, b"p")
    data += frame(CONT, messages[1][1:]) + frame(TEXT, messages[2])
    for cut in range(len(data) + 1):
        bare = Bare()
        guest = bare.open()
        for part in (data[:cut], data[cut:]):
            if part:
                bare.channel.data_received(part)
        assert guest.frames == messages[:3]
        assert bare.frames() == [(PONG, b"p"), *((TEXT, each) for each in messages[:3])] or cut
        assert sorted(bare.frames()) == sorted([(PONG, b"p"), *((TEXT, each) for each in messages[:3])])
        bare.lose()
    bare = Bare()
    guest = bare.open()
    for byte in data + frame(TEXT, messages[3]):
        bare.channel.data_received(bytes([byte]))
    assert guest.frames == messages
    bare.lose()


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in zip(places, places[1:], strict=False)]


@given(
    st.lists(st.tuples(st.text(max_size=300), st.lists(st.integers(0, 300), max_size=3)), max_size=6),
    st.lists(st.integers(0, 3000), max_size=8),
)
async def test_any_messages_in_any_fragments_in_any_chunks(
    messages: list[tuple[str, list[int]]], cuts: list[int]
) -> None:
    stream = b""
    for text, fragments in messages:
        parts = chunks(text.encode(), fragments) or [b""]
        for number, part in enumerate(parts):
            stream += frame(CONT if number else TEXT, part, fin=number == len(parts) - 1)
    bare = Bare()
    guest = bare.open()
    for chunk in chunks(stream, cuts):
        bare.channel.data_received(chunk)
    expected = [text.encode() for text, _ in messages]
    assert guest.frames == expected
    assert bare.frames() == [(TEXT, each) for each in expected]
    bare.lose()


piece = st.one_of(
    st.binary(max_size=40),
    st.builds(
        frame,
        st.integers(0, 15),
        st.binary(max_size=140),
        fin=st.booleans(),
        mask=st.sampled_from([MASK, MASK, MASK, None]),
        rsv=st.sampled_from([0, 0, 0, 1, 4]),
    ),
    st.builds(close_frame, st.integers(0, 65535)),
)


@given(st.lists(piece, max_size=8), st.booleans())
async def test_any_bytes_end_in_order(pieces: list[bytes], is_eof: bool) -> None:
    """Whatever comes: nothing is raised, the end is told once, nothing is said after our close frame."""
    bare = Bare(max_frame_bytes=100)
    guest = bare.open()
    for each in pieces:
        if each:
            bare.channel.data_received(each)
    for each in guest.frames:
        each.decode()
        assert len(each) <= 100
    if is_eof:
        bare.channel.eof_received()
        assert len(guest.ends) == 1
    opcodes = [opcode for opcode, _ in bare.frames()]
    assert opcodes.count(CLOSE) <= 1
    assert CLOSE not in opcodes[:-1]
    assert (bare.socket.has_eof or bare.socket.is_aborted) == bool(guest.ends)
    bare.lose()
    assert len(guest.ends) == 1


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(upgrade()), st.just(b"\r\n")), max_size=5))
async def test_any_bytes_as_a_handshake(pieces: list[bytes]) -> None:
    bare = Bare()
    for each in pieces:
        if each:
            bare.channel.data_received(each)
    bare.channel.eof_received()
    written = b"".join(bare.socket.writes)
    assert not written or written.startswith(b"HTTP/1.1 ")
    assert bare.socket.has_eof
    bare.lose()
    assert all(len(guest.ends) == 1 for guest in bare.guests)


async def test_many_tiny_fragments_cost_no_more_than_their_bytes() -> None:
    bare = Bare(no_answer)
    guest = bare.open()
    bare.channel.data_received(frame(TEXT, fin=False))
    empty = frame(CONT, fin=False) * 10_000
    for _ in range(3):
        bare.channel.data_received(empty)
    assert bare.channel._fragments == b""
    bare.channel.data_received(frame(CONT, b"{}"))
    assert guest.frames == [b"{}"]
    bare.lose()


# -------------------------------------------------------------------------------------- writing


async def test_answers_of_one_read_leave_in_one_write() -> None:
    bare = Bare()
    bare.open()
    bare.channel.data_received(b"".join(frame(TEXT, b"%d" % number) for number in range(50)) + frame(PING, b"p"))
    assert len(bare.socket.writes) == 1
    assert [payload for opcode, payload in bare.frames() if opcode == TEXT] == [b"%d" % number for number in range(50)]
    bare.lose()


async def test_frames_of_one_turn_leave_in_one_write() -> None:
    bare = Bare()
    bare.open()
    for number in range(5):
        bare.channel.send(b"%d" % number, related_request_id=number)
    assert bare.socket.writes == []
    await asyncio.sleep(0)
    assert len(bare.socket.writes) == 1
    assert len(bare.frames()) == 5
    bare.lose()


async def test_large_frames_are_not_gathered() -> None:
    bare = Bare()
    bare.open()
    bare.channel.send(b"s")
    bare.channel.send(b"x" * 100_000)
    assert [len(each) for each in bare.socket.writes] == [3, 100_010]
    bare.lose()


async def test_nothing_is_sent_before_the_handshake_nor_after_the_end() -> None:
    bare = Bare()
    bare.channel.send(b"1")
    bare.open()
    bare.lose()
    bare.channel.send(b"2")
    await bare.channel.drain()
    await asyncio.sleep(0)
    assert bare.socket.writes == []


async def test_an_answer_to_a_client_that_has_said_goodbye_is_dropped() -> None:
    """The request came before the close frame and is taken; nobody listens for its answer."""
    bare = Bare()
    guest = bare.open()
    bare.channel.data_received(frame(TEXT, b"1") + close_frame(1000, "bye"))
    assert guest.frames == [b"1"]
    assert bare.frames() == [(CLOSE, b"\x03\xe8bye")]
    assert guest.ends == [None]
    bare.lose()


# ---------------------------------------------------------------------------------- slow readers


async def test_a_client_that_does_not_read_gets_no_more_work_done() -> None:
    bare = Bare(lambda _: b"x" * 100_000, room=0)
    guest = bare.open()
    bare.channel.data_received(frame(TEXT, b"1") * 30)
    # 1 MiB is waiting: the rest of what arrived is not even handed on, and no more is read.
    assert len(guest.frames) == 11
    assert bare.channel.is_congested
    assert not bare.socket.is_reading_now
    draining = asyncio.ensure_future(bare.channel.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    bare.socket.take(500_000)
    assert len(guest.frames) == 11
    bare.socket.take(500_000)
    await draining
    # Below 256 KiB it goes on, until it is too much again.
    assert len(guest.frames) == 21
    assert not bare.socket.is_reading_now
    bare.socket.take(10_000_000)
    assert len(guest.frames) == 30
    assert not bare.channel.is_congested
    assert bare.socket.is_reading_now
    bare.lose()


async def test_a_client_that_reads_slowly_gets_all() -> None:
    async with serving(lambda frame: frame * 50_000) as house, raw(house) as peer:
        for number in range(200):
            peer.send(frame(TEXT, b"%04d" % number))
        guest = house.guests[0]
        await guest.until(lambda: guest.channel.is_congested)
        assert len(guest.frames) < 200
        for number in range(200):
            assert await peer.text() == b"%04d" % number * 50_000
        assert len(guest.frames) == 200


async def test_a_client_that_does_not_read_at_all_is_cut_off() -> None:
    """What running calls still answer is bounded; the close frame waits behind it, as far as it may."""
    bare = Bare(no_answer, room=0, max_queued_bytes=3_000_000)
    guest = bare.open()
    for _ in range(40):
        bare.channel.send(b"x" * 100_000)
    assert isinstance(guest.ends[0], ConnectionLost)
    assert "1008" in str(guest.ends[0])
    frames = bare.frames()
    assert len(frames) == 31
    assert frames[-1][0] == CLOSE
    assert frames[-1][1][:2] == struct.pack("!H", 1008)
    assert b"too slowly" in frames[-1][1]
    bare.lose()


async def test_small_frames_count_too() -> None:
    bare = Bare(no_answer, room=0, max_queued_bytes=1_100_000)
    guest = bare.open()
    for _ in range(1200):
        bare.channel.send(b"x" * 1000)
        await asyncio.sleep(0)
        if guest.ends:
            break
    assert "1008" in str(guest.ends)
    bare.lose()


async def test_one_answer_may_be_larger_than_the_queue() -> None:
    bare = Bare(no_answer, room=0, max_queued_bytes=2_000_000)
    guest = bare.open()
    bare.channel.send(b"x" * 1_500_000)
    assert not guest.ends
    bare.socket.take(1 << 40)
    bare.channel.send(b"x" * 5_000_000)
    assert not guest.ends
    bare.lose()


async def test_who_waits_for_a_client_learns_that_it_is_gone() -> None:
    bare = Bare(no_answer, room=0)
    guest = bare.open()
    bare.channel.send(b"x" * 2_000_000)
    waiting = [asyncio.ensure_future(bare.channel.drain()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert not waiting[1].done()
    bare.lose()
    await asyncio.gather(*waiting[1:])
    assert isinstance(guest.ends[0], ConnectionLost)


# ----------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize("code", [1000, 1001, None])
async def test_a_client_that_closes_in_order(code: int | None) -> None:
    async with serving() as house, raw(house) as peer:
        peer.send(frame(CLOSE) if code is None else close_frame(code, "bye"))
        opcode, payload = await peer.frame()
        assert (opcode, payload) == (CLOSE, b"" if code is None else struct.pack("!H", code) + b"bye")
        assert await peer.reader.read() == b""
        assert await house.guests[0].end() is None


async def test_a_client_that_closes_with_an_error() -> None:
    async with serving() as house, raw(house) as peer:
        peer.send(close_frame(1011, "my bug"))
        ended = await house.guests[0].end()
        assert isinstance(ended, ConnectionLost)
        assert "my bug" in str(ended)


@pytest.mark.parametrize("sent", [b"", frame(TEXT, b"1")[:3], frame(TEXT, b"1", fin=False)])
@pytest.mark.parametrize("is_reset", [True, False])
async def test_a_client_that_vanishes(sent: bytes, is_reset: bool) -> None:
    async with serving() as house:
        async with raw(house) as peer:
            peer.send(sent)
            if is_reset:
                sock = peer.writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.writer.transport.abort()
        ended = await house.guests[0].end()
        assert isinstance(ended, ConnectionLost)
        assert "went away" in str(ended)
        assert house.guests[0].frames == []


async def test_a_client_that_ends_its_half_without_a_close_frame() -> None:
    async with serving() as house, raw(house) as peer:
        peer.writer.write_eof()
        assert await peer.reader.read() == b""
        assert isinstance(await house.guests[0].end(), ConnectionLost)


async def test_a_receiver_that_fails_ends_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def answer(frame: bytes) -> bytes:
        if frame == b"bad":
            raise RuntimeError("secret")
        return frame

    async with serving(answer) as house, raw(house) as peer, raw(house) as other:
        peer.send(frame(TEXT, b"bad") + frame(TEXT, b"1"))
        assert await peer.closing() == (1011, "internal error")
        assert house.guests[0].frames == [b"bad"]
        assert len(house.guests[0].ends) == 1
        other.send(frame(TEXT, b"1"))
        assert await other.text() == b"1"
    assert "secret" in caplog.text


async def test_a_receiver_that_fails_at_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bare = Bare()
    guest = bare.open()
    guest.closed = None  # type: ignore[assignment]
    bare.lose()
    await bare.channel.aclose()
    assert "TypeError" in caplog.text


async def test_a_connection_that_comes_when_all_is_closed_is_dropped() -> None:
    bare = Bare()
    await bare.endpoint.aclose()
    late = bare.endpoint.connect()
    wire = Socket()
    wire.protocol = late
    late.connection_made(wire)
    assert wire.is_aborted
    assert not bare.endpoint.connections


async def test_reading_stops_and_what_runs_is_answered() -> None:
    """D11. A client that is silent because we do not read it is not given up."""
    bare = Bare(no_answer, ping_interval=100)
    guest = bare.open()
    bare.endpoint.pause()
    assert not bare.socket.is_reading_now
    for _ in range(3):
        assert tick(bare) == []
    bare.channel.send(b"answer")
    await bare.channel.drain()
    assert bare.frames() == [(TEXT, b"answer")]
    bare.channel.resume_writing()
    assert not bare.socket.is_reading_now
    closing = asyncio.ensure_future(bare.endpoint.aclose("bye"))
    await until(lambda: bare.socket.is_reading_now)
    assert bare.frames()[-1] == (CLOSE, struct.pack("!H", 1001) + b"bye")
    bare.channel.data_received(frame(TEXT, b"too late") + close_frame(1001))
    await closing
    assert guest.frames == []
    assert guest.ends == [None]


async def test_a_connection_that_is_gone_leaves_nothing_behind() -> None:
    async with serving() as house:
        async with connect(house.url) as client:
            await client.send("1")
            await client.recv()
            channel = weakref.ref(house.guests[0].channel)
        await house.guests[0].end()
        house.guests.clear()
        await until(lambda: not house.listener.endpoint.connections)
        gc.collect()
        assert channel() is None


# -------------------------------------------------------------------------------------- closing


async def test_one_channel_is_closed_with_a_reason() -> None:
    async with serving() as house, raw(house) as peer:
        channel = house.guests[0].channel
        peer.send(frame(TEXT, b"1"))
        assert await peer.text() == b"1"
        closing = asyncio.ensure_future(channel.aclose("ü" * 100))
        opcode, payload = await peer.frame()
        assert opcode == CLOSE
        # A close frame holds 123 bytes of reason, and no half of a character.
        assert payload == struct.pack("!H", 1001) + "ü".encode() * 61
        peer.send(frame(TEXT, b"too late") + close_frame(1001))
        await closing
        await channel.aclose()
        assert house.guests[0].frames == [b"1"]


async def test_a_channel_that_was_never_connected_can_be_closed() -> None:
    endpoint = Endpoint(Recorder, Guard(Access()))
    await endpoint.connect().aclose()
    await endpoint.aclose()


async def test_closing_without_half_closing() -> None:
    """TLS has no half-closed connections: it is closed at once, after all is written."""
    bare = Bare()
    bare.open()
    bare.socket.can_write_eof = lambda: False  # type: ignore[method-assign]
    bare.channel.data_received(frame(BINARY))
    assert bare.frames()[-1][0] == CLOSE
    assert bare.socket.is_aborted


# ----------------------------------------------------------------------------------- keep-alive


async def test_a_silent_client_is_pinged_and_stays_if_it_answers() -> None:
    async with serving(ping_interval=0.03, ping_timeout=60) as house, raw(house) as peer:
        for _ in range(3):
            opcode, payload = await peer.frame()
            assert opcode == PING
            peer.send(frame(PONG, payload))
        assert not house.guests[0].ends


async def test_a_client_that_answers_no_ping_is_given_up() -> None:
    async with serving(ping_interval=0.03, ping_timeout=0.03) as house, raw(house) as peer:
        assert (await peer.frame())[0] == PING
        code, reason = await peer.closing()
        assert code == 1011
        assert reason == "no answer to a ping within 0.03 s"
        assert "1011" in str(await house.guests[0].end())


async def test_the_library_s_client_stays_alive() -> None:
    async with serving(ping_interval=0.02, ping_timeout=60) as house, connect(house.url) as client:
        await asyncio.sleep(0.2)
        await client.send("1")
        assert await client.recv() == "1"


def tick(bare: Bare) -> list[int]:
    """Let the channel's timer fire now; the opcodes that it writes."""
    bare.socket.writes.clear()
    bare.channel._check_alive()
    return [opcode for opcode, _ in bare.frames()]


async def test_a_client_that_talks_is_not_pinged() -> None:
    bare = Bare(no_answer, ping_interval=100)
    guest = bare.open()
    for _ in range(5):
        bare.channel.data_received(frame(TEXT, b"1"))
        assert tick(bare) == []
    assert tick(bare) == [PING]
    bare.channel.data_received(frame(PONG, b"mcpd"))
    assert tick(bare) == [PING]
    bare.channel.data_received(frame(TEXT, b"1"))
    assert tick(bare) == []
    assert not guest.ends
    bare.lose()


async def test_a_client_that_reads_slowly_is_alive_as_long_as_it_reads() -> None:
    """While we do not read, its pong cannot be seen; that it takes what we send can."""
    bare = Bare(no_answer, room=0, ping_interval=100)
    guest = bare.open()
    tick(bare)
    bare.channel.send(b"x" * 3_000_000)
    for _ in range(5):
        bare.socket.take(1000)
        assert CLOSE not in tick(bare)
    assert not guest.ends
    assert tick(bare) == [PING]
    assert tick(bare) == [CLOSE]
    assert isinstance(guest.ends[0], ConnectionLost)
    bare.lose()
