"""The in-memory pair: what is sent at one end arrives at the other, in order, on a later turn."""

from __future__ import annotations

import asyncio
from typing import Any

from support.clock import until

from mcpd import Server
from mcpd.transports.memory import MemoryChannel, pair


class Ear:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def receive(self, frame: bytes) -> None:
        self.heard.append(frame)

    def receive_error(self, error: Exception) -> None:
        raise AssertionError(error)

    def closed(self, error: Exception | None = None) -> None:
        self.heard.append(error)


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def joined() -> tuple[MemoryChannel, Ear, MemoryChannel, Ear]:
    near, far = pair()
    near_ear, far_ear = Ear(), Ear()
    near.start(near_ear)
    far.start(far_ear)
    return near, near_ear, far, far_ear


async def test_frames_arrive_in_order_and_never_at_once() -> None:
    near, near_ear, far, far_ear = joined()
    near.send(b"1")
    near.send(b"2", related_request_id=5)
    far.send(b"3")
    assert not far_ear.heard
    await turn()
    assert (far_ear.heard, near_ear.heard) == ([b"1", b"2"], [b"3"])
    await near.drain()
    assert not near.is_congested
    await near.aclose()
    await turn()


async def test_what_is_sent_before_the_other_end_listens_is_not_lost() -> None:
    near, far = pair()
    near.send(b"early")
    await turn()
    ear = Ear()
    far.start(ear)
    await turn()
    assert ear.heard == [b"early"]


async def test_the_end_comes_after_what_was_sent_and_once_at_both_ends() -> None:
    near, near_ear, far, far_ear = joined()
    near.send(b"last")
    await near.aclose("done")
    await near.aclose()
    near.send(b"too late")
    far.send(b"nobody there")
    await turn()
    assert far_ear.heard == [b"last", None]
    assert near_ear.heard == [None]
    await far.aclose()
    await turn()
    assert far_ear.heard == [b"last", None]


async def test_a_server_gives_the_clients_end() -> None:
    channel, ear = Server("t").connect_memory(), Ear()
    channel.start(ear)
    channel.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    await until(lambda: ear.heard)
    assert ear.heard == [b'{"jsonrpc":"2.0","id":1,"result":{}}']
    await channel.aclose()
    await turn()
