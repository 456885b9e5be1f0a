"""A server that stops under load: what was on its way to it is answered, on connections that a proxy keeps and on
those that wait in the queue of its socket."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from support.clock import Clock, until
from support.http_peer import Peer, Port, call, initialize, modern, post, serving
from support.http_stage import Stage

from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.http import HttpSettings
from mcpd.server.http.http1 import LINGER

PING = call("ping")


async def stop(port: Port) -> asyncio.Task[Any]:
    """As serving does it: nobody comes in, what is on its way is answered, then everything ends."""
    port.listener.pause()
    return asyncio.ensure_future(port.listener.serve_late_requests())


async def test_a_connection_in_use_ends_with_its_next_answer() -> None:
    """SCALE-25: a proxy sends on a connection that it keeps, and does not send a POST again."""
    async with serving(Stage().server) as port:
        peers = [await port.connect() for _ in range(3)]
        for peer in peers:
            assert (await peer.ask(post(PING))).status == 200

        lingering = await stop(port)
        for peer, data in zip(peers, (post(PING), modern("tools/list"), b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"), strict=True):  # fmt: skip  # noqa: E501
            assert not lingering.done()
            answer = await peer.ask(data)
            assert answer["connection"] == "close"
            assert answer.status == (503 if data.startswith(b"GET") else 200)
            assert await peer.rest() == b""

        async with asyncio.timeout(60):
            await lingering


async def test_one_that_stays_silent_ends_after_a_moment() -> None:
    async with serving(Stage().server) as port:
        silent, fresh, half = [await port.connect() for _ in range(3)]
        assert (await silent.ask(post(PING))).status == 200
        half.send(b"POST /mcp HT")
        await until(lambda: any(one._head_bytes > 0 for one in port.listener._state.connections))  # type: ignore[attr-defined]

        clock = Clock()
        lingering = await stop(port)
        await until(lambda: len(port.listener._state.lingering) == 3)
        assert not lingering.done()

        await clock.advance(LINGER)
        await lingering
        for peer in (silent, fresh, half):
            assert await peer.rest() == b""


async def test_a_quiet_server_stops_at_once() -> None:
    async with serving(Stage().server) as port:
        quiet = await port.connect()
        assert (await quiet.ask(post(PING))).status == 200
        await Clock().advance(LINGER + 0.1)

        lingering = await stop(port)
        assert not port.listener._state.lingering  # nobody is waited for, not for a moment
        assert await quiet.rest() == b""
        await lingering


async def test_who_waits_in_the_queue_of_the_socket_is_answered() -> None:
    """Connected by the kernel, and not yet taken in: closing the socket would reset it."""
    async with serving(Stage().server) as port:
        waiting = []
        for _ in range(20):
            one = socket.create_connection(("127.0.0.1", port.number))
            one.sendall(post(PING))
            waiting.append(one)

        # No turn of the loop has passed: all are in the queue.
        lingering = await stop(port)

        for one in waiting:
            peer = Peer(*await asyncio.open_connection(sock=one))
            answer = await peer.answer()
            assert (answer.status, answer["connection"]) == (200, "close")
            assert await peer.rest() == b""
            await peer.aclose()
        await lingering


async def test_a_session_begins_only_where_it_goes_on_elsewhere() -> None:
    """S25-037 to S25-041 need its node; one that is sealed has any."""
    stages = [(Stage(), None, 503), (Stage(state_key="a key for all nodes"), MemoryBackplane(), 200)]
    for stage, backplane, status in stages:
        async with serving(stage.server, HttpSettings(backplane=backplane)) as port:
            peer = await port.connect()
            assert (await peer.ask(post(PING))).status == 200

            lingering = await stop(port)
            assert (await peer.ask(post(initialize()))).status == status
            await lingering
