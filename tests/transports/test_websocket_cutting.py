"""Whole text frames that are read here are read as the library reads them, whatever comes before, between and after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
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
    opened_client,
)
from support.websocket_peer import frame as made
from websockets.protocol import SERVER, Protocol
from websockets.streams import StreamReader

from mcpd.transports import websocket_framing, websocket_stream
from mcpd.transports.websocket_framing import (
    MOST_BYTES,
    begins_message,
    can_tell_beginnings,
    cut_masked,
    cut_plain,
    whole_masked,
)

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

    def __init__(self, channel: websocket_stream.WebSocketStream, recorder: Recorder, socket: Socket) -> None:
        self.channel, self.recorder, self.socket = channel, recorder, socket

    def state(self) -> object:
        protocol = self.channel._protocol
        return (
            list(self.recorder.frames), list(map(repr, self.recorder.ends)), list(self.socket.writes),
            self.socket.has_eof, self.socket.is_aborted, self.channel.is_open, protocol.state,
            protocol.close_sent, protocol.close_rcvd, repr(protocol.parser_exc), bytes(protocol.reader.buffer),
            len(self.channel._events),
        )  # fmt: skip

    async def feed(self, data: list[bytes]) -> list[object]:
        states = []
        for chunk in data:
            self.channel.data_received(chunk)
            states.append(self.state())
            await asyncio.sleep(0)
        if not self.socket.is_aborted:
            self.channel.eof_received()
        states.append(self.state())
        self.socket.abort()
        await asyncio.sleep(0)
        return [*states, self.state()]


def server_end() -> Seen:
    bare = Bare(max_frame_bytes=MOST)
    return Seen(bare.channel, bare.open(), bare.socket)


def client_end() -> Seen:
    channel, socket = opened_client(MOST)
    recorder = Recorder(channel)
    channel._receiver, channel.is_held = recorder, False
    return Seen(channel, recorder, socket)


TWICE = (lambda mask: made(TEXT, b"b", mask=mask), False, [])


@given(sequences, st.sampled_from([server_end, client_end]), st.booleans())
@example([(lambda mask: made(TEXT, b"a\xff", mask=mask), False, []), TWICE], server_end, False)
@example([(lambda mask: made(TEXT, b"a\xff", mask=mask), False, []), TWICE], client_end, False)
@example([(lambda mask: made(TEXT, b"x" * (MOST + 1), mask=mask), False, []), TWICE], client_end, False)
@example([(lambda mask: made(TEXT, b"x", mask=mask, rsv=4), False, []), TWICE], client_end, False)
@example([(lambda mask: made(TEXT, b"x", mask=mask, fin=False), False, []), TWICE], server_end, False)
@example(
    [(lambda mask: made(PING, made(TEXT, b"x", mask=mask), mask=mask and bytes(4)), False, [2])], client_end, False
)
def test_all_is_as_with_the_library_alone(
    sequence: list[tuple[Frames, bool, list[int]]], end: Callable[[], Seen], answers: bool
) -> None:
    """Messages, what is written back, close codes, errors, what waits: after each read, and at the end."""
    data = chunks(sequence, MASK if end is server_end else None)

    async def both() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mcpd.transports.websocket_framing.os.urandom", bytes)
            patch.setattr("websockets.frames.secrets.token_bytes", bytes)
            seen, plain = end(), end()
            assert seen.channel._cut is not None
            assert seen.channel._cut_here is seen.channel._cut
            plain.channel._cut = plain.channel._cut_here = None
            for one in (seen, plain):
                one.recorder.answer = (lambda message: message[::-1]) if answers else None
            assert await seen.feed(data) == await plain.feed(data)

    asyncio.run(both())


@pytest.mark.parametrize("end", [server_end, client_end])
async def test_what_is_no_utf_8_ends_it_with_1007(end: Callable[[], Seen]) -> None:
    """RFC 6455 8.1; what came before is taken, what comes behind is not."""
    seen = end()
    mask = MASK if end is server_end else None
    seen.channel.data_received(b"".join(made(TEXT, part, mask=mask) for part in (b"one", b"t\xffo", b"three")))
    assert seen.recorder.frames == [b"one"]
    assert seen.channel._protocol.close_sent is not None
    assert seen.channel._protocol.close_sent.code == 1007


def test_the_library_tells_where_messages_begin() -> None:
    """Of the releases that are tested: else all would be right, and slow."""
    assert can_tell_beginnings()


def test_another_library_reads_all_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose parser waits in other places is found out, and nothing is read here."""
    for name, other in (
        ("_BETWEEN_FRAMES", StreamReader.read_exact.__code__),
        ("begins_message", lambda protocol: True),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(websocket_framing, name, other)
            assert not can_tell_beginnings.__wrapped__()

    async def unknown() -> None:
        monkeypatch.setattr(websocket_stream, "can_tell_beginnings", lambda: False)
        bare = Bare()
        recorder = bare.open()
        bare.channel.data_received(made(TEXT, b"seen"))
        assert recorder.frames == [b"seen"]
        assert bare.channel._cut is None

    asyncio.run(unknown())


@given(st.lists(st.integers(0, 400), max_size=3), st.integers(0, 7))
def test_where_a_message_begins_is_known_at_each_byte(sizes: list[int], fin: int) -> None:
    protocol = Protocol(SERVER, max_size=None)
    is_fragmented = False
    for number, size in enumerate(sizes):
        is_last = bool(fin >> number & 1)
        data = made(CONT if is_fragmented else TEXT, b"x" * size, fin=is_last)
        is_fragmented = not is_last
        for at in range(len(data)):
            protocol.receive_data(data[at : at + 1])
            assert begins_message(protocol) == (at == len(data) - 1 and is_last)


@pytest.mark.parametrize(("cut", "mask"), [(cut_masked, MASK), (cut_plain, None)])
@pytest.mark.parametrize("size", [2, 125, 126, 1000, MOST_BYTES])
def test_what_is_cut_off(cut: Callable[[bytes, int, list[bytes]], int], mask: bytes | None, size: int) -> None:
    """Whole ones, to the last byte; none that lacks a byte, or has one too many."""
    whole, messages = made(TEXT, b"m" * size, mask=mask), list[bytes]()
    assert cut(whole * 3 + whole[:-1], MOST_BYTES, messages) == 3 * len(whole)
    assert messages == [b"m" * size] * 3
    assert {type(message) for message in messages} == {bytes}
    assert cut(whole, size - 1, messages) == 0
    for lacks in range(max(0, len(whole) - 9), len(whole)):
        assert cut(whole[:lacks], MOST_BYTES, messages) == 0


@given(st.lists(st.one_of(wholes, whatever), max_size=2), st.integers(0, 9), st.sampled_from([20, MOST, MOST_BYTES]))
def test_one_message_alone_is_what_would_be_cut_off(frames: list[Frames], lacks: int, most: int) -> None:
    """`whole_masked` takes a frame that is all of the bytes, in the same way, and leaves everything else."""
    data = b"".join(each(MASK) for each in frames)
    data = data[: len(data) - lacks]
    messages: list[bytes] = []
    is_all = cut_masked(data, most, messages) == len(data)
    assert whole_masked(data, most) == (messages[0] if is_all and len(messages) == 1 else None)


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


async def test_a_log_at_debug_shows_what_was_received(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "mcpd.websocket.wire"):
        bare = Bare()
        recorder = bare.open()
        bare.channel.data_received(made(TEXT, b"seen"))
    assert recorder.frames == [b"seen"]
    assert any("< TEXT 'seen'" in record.getMessage() for record in caplog.records)


async def test_nothing_is_read_behind_a_close_frame() -> None:
    """RFC 6455 1.4: also while the close frame itself waits to be handed on."""
    seen = client_end()
    seen.channel.is_held = True
    seen.channel.data_received(made(CLOSE, b"\x03\xe8", mask=None))
    seen.channel.data_received(made(TEXT, b"late", mask=None))
    assert len(seen.channel._events) == 1
