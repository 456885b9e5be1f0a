"""Text frames that are made here are those of the library, byte by byte, and what has to be the library's is."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from types import CodeType
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.profiled import profiled
from support.websocket_peer import TEXT, Bare, frame
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, SERVER, Protocol
from websockets.uri import parse_uri

from mcpd.transports import websocket_framing
from mcpd.transports.websocket_framing import MOST_BYTES, MaskedFrames, text_frame
from mcpd.transports.websocket_stream import bound_reads

payloads = st.one_of(
    st.text().map(str.encode),
    st.builds(lambda size, seed: (bytes(seed) * size)[:size], st.integers(0, MOST_BYTES), st.binary(min_size=4)),
)


@given(payloads)
@example(b"x" * 125)
@example(b"x" * 126)
@example(b"x" * MOST_BYTES)
def test_a_servers_frame_is_the_librarys(payload: bytes) -> None:
    """RFC 6455 5.2: the shortest length that holds it, FIN, no mask."""
    library = Protocol(SERVER, max_size=None)
    library.send_text(payload)
    assert text_frame(payload) == b"".join(library.data_to_send())


@given(payloads, st.binary(min_size=4, max_size=4))
@example(b"x" * 125, b"\0\0\0\0")
@example(b"x" * 126, b"abcd")
@example(b"x" * MOST_BYTES, b"abcd")
def test_a_clients_frame_is_the_librarys(payload: bytes, key: bytes) -> None:
    frames = MaskedFrames()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(websocket_framing.os, "urandom", lambda size: key * (size // 4))
        patch.setattr("websockets.frames.secrets.token_bytes", lambda size: key[:size])
        made = frames.text_frame(payload)
        library = Protocol(CLIENT, max_size=None)
        library.send_text(payload)
    assert made == b"".join(library.data_to_send())


@given(st.lists(payloads, min_size=1, max_size=200))
def test_a_server_of_the_library_reads_what_clients_send(sent: list[bytes]) -> None:
    frames, reader = MaskedFrames(), Protocol(SERVER, max_size=None)
    reader.receive_data(b"".join(map(frames.text_frame, sent)))
    got = reader.events_received()
    assert reader.parser_exc is None
    assert [bytes(event.data) for event in got if isinstance(event, Frame)] == sent


def test_no_key_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 6455 5.3: a new key for each frame, from a source that nobody can foresee: the system's."""
    drawn: list[bytes] = []

    def draw(size: int, real: object = os.urandom) -> bytes:
        drawn.append(real(size))  # type: ignore[operator]
        return drawn[-1]

    monkeypatch.setattr(websocket_framing.os, "urandom", draw)
    frames = MaskedFrames()
    keys = [frames.text_frame(b"")[2:] for _ in range(200)]
    assert b"".join(keys) == b"".join(drawn)[:800]
    assert len(set(keys)) > 190  # 32 bits each: all of them, but for a chance of one in 200,000


@pytest.mark.parametrize("size", [MOST_BYTES, MOST_BYTES + 1, 3 * MOST_BYTES])
async def test_short_and_long_ones_keep_their_order(size: int) -> None:
    """What is made here and what the library makes leaves in the order in which it was sent."""
    bare = Bare()
    bare.open()
    sent = [b"first", b"x" * size, b"last", b"y" * size]
    for payload in sent:
        bare.channel.send(payload)
    await asyncio.sleep(0)
    assert b"".join(bare.socket.writes) == b"".join(
        Frame(Opcode.TEXT, payload).serialize(mask=False) for payload in sent
    )


async def test_a_log_at_debug_still_shows_each_frame(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "mcpd.websocket.wire"):
        bare = Bare()
        bare.open()
        bare.channel.send(b"seen")
        await asyncio.sleep(0)
    assert bare.socket.writes == [b"\x81\x04seen"]
    assert any("> TEXT 'seen'" in record.getMessage() for record in caplog.records)


async def test_extensions_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is ever negotiated; were there one, its frames would be other ones."""

    class Louder:
        def encode(self, frame: Frame) -> Frame:
            return Frame(frame.opcode, bytes(frame.data).upper())

    bare = Bare()
    monkeypatch.setattr(bare.channel._protocol, "process_extensions", lambda headers: (None, [Louder()]))
    bare.open()
    bare.channel.send(b"seen")
    await asyncio.sleep(0)
    assert bare.socket.writes == [b"\x81\x04SEEN"]


async def test_nothing_is_kept_of_a_message_that_was_taken() -> None:
    """The library's parser holds its last frame until the next has come: a client may be idle for days."""
    bare = Bare()
    recorder = bare.open()
    bare.channel.data_received(frame(TEXT, b"x" * 100_000))
    assert recorder.frames.pop() == b"x" * 100_000
    assert [one for one in gc.get_objects() if type(one) is Frame and len(one.data) >= 100_000] == []


async def test_a_message_and_its_answer_take_few_steps() -> None:
    """How long the way is, in functions: what is counted does not depend on how busy a machine is."""
    bare = Bare()
    bare.open()
    way: list[CodeType] = []
    with profiled(lambda frame, event, _: way.append(frame.f_code) if event == "call" else None):
        bare.channel.data_received(frame(TEXT, b"seen"))
    assert bare.socket.writes == [b"\x81\x04seen"]
    ours = [code.co_name for code in way if f"{os.sep}mcpd{os.sep}transports{os.sep}" in code.co_filename]
    assert ours == ["data_received", "whole_masked", "_push_alone", "send", "text_frame", "_flush"]
    theirs = [code.co_name for code in way if f"{os.sep}websockets{os.sep}" in code.co_filename]
    assert theirs == ["state"]


def test_the_queue_of_the_library_is_a_list() -> None:
    """What is made here is put there, and taken out as `data_to_send` does."""
    for protocol in (ClientProtocol(parse_uri("ws://a/")), Protocol(SERVER)):
        protocol.writes.append(b"1")
        writes = protocol.writes
        assert protocol.data_to_send() is writes
        assert writes == [b"1"]
        assert protocol.data_to_send() == []


async def test_one_read_takes_at_most_64_kib() -> None:
    """Of asyncio's own transports; more at a time goes to the system and back with each read."""
    sizes: list[int] = []

    class Reader(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            bound_reads(cast(asyncio.Transport, transport))

        def data_received(self, data: bytes) -> None:
            sizes.append(len(data))

    ours, theirs = socket.socketpair()
    theirs.sendall(bytes(150_000))
    theirs.close()
    transport, _ = await asyncio.get_running_loop().create_connection(Reader, sock=ours)
    async with asyncio.timeout(10):
        while sum(sizes) < 150_000:
            await asyncio.sleep(0)
    transport.abort()
    assert max(sizes) == 65536
