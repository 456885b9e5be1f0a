"""What goes wrong on networks: nothing hangs, nothing leaks, and other clients do not notice."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import socket
from contextlib import suppress

import pytest
from conftest import Child
from support.clock import turns, until
from support.http_peer import BOTH, Peer, Port, Session, call, envelope, initialize, modern, post, request, serving
from support.http_stage import Stage

from mcpd.server.dispatcher import ServerConnection
from mcpd.server.http import HttpSettings

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}'


async def idle(port: Port, sessions: int = 0) -> None:
    """Wait until no connection, task or call is left but the sessions."""
    async with asyncio.timeout(60):
        state = port.listener._state
        await until(lambda: not (state.connections or state.tasks or len(port.app.connections) > sessions))


async def works(port: Port) -> None:
    """The server answers somebody else."""
    assert (await port.modern("tools/call", {"name": "echo", "arguments": {"text": "still here"}})).status == 200


def whole_requests() -> list[bytes]:
    return [
        modern("tools/call", {"name": "echo", "arguments": {"text": "héllo"}}),
        post(initialize()),
        request("POST", "/mcp", [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")])
        + b"%x\r\n%b\r\n0\r\n\r\n" % (len(PING), PING),
    ]


@pytest.mark.parametrize("number", range(3), ids=["modern", "legacy", "chunked"])
async def test_requests_cut_at_every_byte(number: int) -> None:
    """The rest comes later, and the answer is the same; or it never comes, and nothing is left."""
    stage = Stage()
    data = whole_requests()[number]
    async with serving(stage.server) as port:
        peer = await port.connect()
        expected = (await peer.ask(data)).status
        for cut in range(1, len(data)):
            peer.send(data[:cut])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert (await peer.ask(data[cut:])).status == expected
        peer.abort()
        for cut in range(0, len(data), 3):
            gone = Peer(*await asyncio.open_connection("127.0.0.1", port.number))
            gone.send(data[:cut])
            if cut % 2:
                await gone.aclose()
            else:
                await asyncio.sleep(0)
                gone.abort()
        await works(port)
        await idle(port, sessions=len(port.app.sessions))


async def test_bytes_that_come_one_by_one() -> None:
    stage = Stage()
    data = modern("tools/call", {"name": "echo", "arguments": {"text": "slow"}})
    async with serving(stage.server) as port:
        peer = await port.connect()
        for index in range(len(data)):
            peer.send(data[index : index + 1])
            await asyncio.sleep(0)
        assert (await peer.answer()).json["result"]["content"][0]["text"] == "slow"


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"\r\n" * 100,
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1e9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"POST /mcp HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"{}\n" * 10,
        bytes(range(256)) * 2,
    ],
    ids=range(14),
)
async def test_what_is_no_http(rubbish: bytes) -> None:
    """400 at most, and the connection ends; contradictory lengths are never two requests."""
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(rubbish)
        await asyncio.sleep(0)
        peer.writer.write_eof()
        said = await peer.rest()
        assert said == b"" or said.startswith(b"HTTP/1.1 4")
        assert said.count(b"HTTP/1.1") <= 1
        await works(port)
        await idle(port)


@pytest.mark.parametrize(
    ("framing", "status"),
    [
        (b"Transfer-Encoding: gzip, chunked", b"501"),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", b"501"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip, chunked", b"[45]"),
        (b"Transfer-Encoding: identity, chunked", b"501"),
        (b"Transfer-Encoding: \x0bchunked", b"[45]"),
        (b"Transfer-Encoding: xchunked", b"[45]"),
        (b"Transfer-Encoding: chunked;q=1", b"[45]"),
        (b"Transfer-Encoding: chunked, chunked", b"400"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"400"),
        (b"Transfer-Encoding: chunked, gzip", b"[45]"),
        (b"Transfer-Encoding: identity", b"[45]"),
        (b"Transfer-Encoding: gzip", b"[45]"),
        (b"Transfer-Encoding: gzip,\r\n chunked", b"[45]"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"400"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"400"),
        (b"Content-Length: 5\r\nTransfer-Encoding: identity", b"400"),
        (b"Transfer-Encoding: ", b"[45]"),
    ],
)
async def test_a_transfer_coding_that_is_not_known_is_no_body(framing: bytes, status: bytes) -> None:
    """RFC 9112 6.1: what a proxy reads otherwise must not be served. One answer, and the connection ends."""
    stage = Stage()
    body = json.dumps(call("tools/call", {"name": "echo", "arguments": {"text": "x"}})).encode()
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with serving(stage.server) as port:
        head = (
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: %b\r\n" % BOTH.encode()
        )
        peer = await port.connect()
        peer.send(head + framing + b"\r\n\r\n" + chunked + b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = await peer.rest()
        assert re.match(rb"HTTP/1.1 %b" % status, said)
        assert said.count(b"HTTP/1.1") == 1
        peer = await port.connect()
        peer.send(head + b"Transfer-Encoding:  Chunked \r\n\r\n" + chunked)
        assert (await peer.answer()).status == 200
        await works(port)


@pytest.mark.parametrize(
    ("sent", "status", "error"),
    [
        (b"POST /mcp HTTP/1.1\r\n%bTransfer-Encoding: gzip, chunked\r\n\r\n", 501, "invalid_request"),
        (b"POST /mcp HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400, "invalid_request"),
        (b"POST /mcp HTTP/1.1\r\n%bContent-Length: many\r\n\r\n", 400, "invalid_request"),
        (b"POST /mcp HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "invalid_request"),
        (b"GET /mcp HTTP/1.1\r\n%bX: " + b"x" * 70_000 + b"\r\n\r\n", 431, "invalid_request"),
        (b"CONNECT localhost:1 HTTP/1.1\r\n%b\r\n", 405, "method_not_allowed"),
    ],
    ids=["coding", "framing", "length", "chunk", "head", "connect"],
)
async def test_refusals_below_the_application_are_json_for_clients_and_text_for_browsers(
    sent: bytes, status: int, error: str
) -> None:
    """Clients read the body of any failure as an OAuth error, with a string (RFC 6749 5.2)."""
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(sent % b"Host: localhost\r\nAccept: application/json, text/event-stream\r\n")
        answer = await peer.answer()
        assert (answer.status, answer["content-type"]) == (status, "application/json")
        assert answer.json["error"] == error
        assert answer.json["error_description"].strip()
        assert await peer.rest() == b""
        peer = await port.connect()
        peer.send(sent % b"Host: localhost\r\nAccept: text/html,*/*\r\n")
        browser = await peer.answer()
        assert (browser.status, browser["content-type"]) == (status, "text/plain; charset=utf-8")
        assert browser.text == answer.json["error_description"] + "\n"
        await works(port)


async def test_one_connection_too_many_is_told_so_in_json() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_connections=1)) as port:
        first = await port.connect()
        first.send(post(PING))
        assert (await first.answer()).status == 200
        answer = await (await port.connect()).answer()
        assert (answer.status, answer.json["error"]) == (503, "temporarily_unavailable")
        assert answer["retry-after"] == "5"
        assert "All 1 connections" in answer.json["error_description"]


async def test_http_1_0_has_no_transfer_codings() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(b"POST /mcp HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert (await peer.rest()).startswith(b"HTTP/1.1 400")
        await idle(port)


async def test_connections_opened_and_dropped() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        for number in range(400):
            peer = Peer(*await asyncio.open_connection("127.0.0.1", port.number))
            if number % 4 == 1:
                peer.send(b"POST /mcp HTTP/1.1\r\n")
            elif number % 4 == 2:
                peer.send(modern("tools/call", {"name": "wait"}))
            elif number % 4 == 3:
                peer.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
            if number % 3:
                await asyncio.sleep(0)
            if number % 5:
                peer.abort()
            else:
                await peer.aclose()
        await works(port)
        await idle(port)
        assert not stage.server._connections


@pytest.mark.nightly
async def test_10_000_connections_opened_and_dropped() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            sockets = []
            for number in range(100):
                one = socket.socket()
                one.setblocking(False)
                with suppress(BlockingIOError):
                    one.connect(("127.0.0.1", port.number))
                sockets.append((number, one))
            await turns(3)
            for number, one in sockets:
                with suppress(OSError):
                    one.send(modern("tools/list") if number % 2 else b"POST /mcp")
                if number % 3 == 0:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                one.close()
            await asyncio.sleep(0)
        await works(port)
        await idle(port)
        assert len(os.listdir("/proc/self/fd")) <= before + 2


async def test_half_closed_sockets() -> None:
    """A client that says no more is taken as gone, its call too; nothing is kept for it."""
    stage = Stage()
    async with serving(stage.server) as port:
        for data in (modern("tools/call", {"name": "wait"}), modern("subscriptions/listen", {"notifications": {}})):
            peer = await port.connect()
            peer.send(data)
            await turns(50)
            peer.writer.write_eof()
            await peer.rest()
        session = await port.open()
        stream = await session.listen()
        await stream.event()
        stream.writer.write_eof()
        await stream.rest()
        await works(port)
        await idle(port, sessions=1)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_clients_gone_in_the_middle_of_their_stream(era: str) -> None:
    """The modern call is cancelled, the legacy one goes on; either way nothing is left in the end."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        for number in range(20):
            door = f"door-{number}"
            arguments = {"steps": 2, "door": door}
            peer = await port.connect()
            if era == "modern":
                peer.send(
                    modern("tools/call", {"name": "count", "arguments": arguments}, meta=envelope(progressToken=1))
                )
            else:
                params = {"name": "count", "arguments": arguments, "_meta": {"progressToken": number}}
                peer.send(session.bytes(call("tools/call", params, number)))
            await peer.head()
            await peer.message()
            await stage.entered.get()
            peer.abort()
            if era == "legacy":
                stage.open(door)
        await works(port)
        await idle(port, sessions=1)
        found = port.app.sessions.find(session.id, "")
        assert found is not None
        assert not found.replies
        assert not found.connection.session.in_flight


async def test_slow_readers_hold_up_nobody_and_hold_no_memory_for_ever() -> None:
    """Listeners that never read, while others are told everything; those are let go in the end."""
    stage = Stage()
    async with serving(stage.server) as port:
        stuck, good = await port.connect(), await port.connect()
        for peer in (stuck, good):
            peer.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
            await peer.head()
            await peer.message()
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            stage.change()
            assert (await good.message())["method"] == "notifications/tools/list_changed"
        big = await port.connect()
        big.writer.transport.pause_reading()  # type: ignore[attr-defined]
        big.send(modern("resources/read", {"uri": "stage://long/20000000"}))
        await works(port)
        for peer in (stuck, big, good):
            peer.abort()
        await idle(port)


def connections() -> list[ServerConnection]:
    """All connections that this process holds."""
    return [one for one in gc.get_objects() if type(one) is ServerConnection]


async def test_a_request_leaves_nothing_behind() -> None:
    """Neither a circle of references nor anything that is held: what served it is gone at once."""
    stage = Stage()
    async with serving(stage.server) as port:
        gc.collect()
        before = len(connections())
        gc.disable()
        try:
            peer = await port.connect()
            for _ in range(5):
                await peer.ask(modern("tools/call", {"name": "echo", "arguments": {"text": "x"}}))
                await peer.ask(modern("tools/call", {"name": "echo_sync", "arguments": {"text": "x"}}))
                await peer.ask(post(PING))
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(connections()) <= before + 1
        finally:
            gc.enable()


async def test_sessions_leave_nothing_behind() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        gc.collect()
        before = len(connections())
        for _ in range(10):
            session = await port.open(capabilities={"elicitation": {}})
            stream = await session.listen()
            await stream.event()
            peer = await session.start(call("tools/call", {"name": "ask_name"}, 1))
            await peer.head()
            await peer.message()
            assert len(connections()) > before
            await port.ask(session.delete())
            peer.abort()
            stream.abort()
        await idle(port)
        gc.collect()
        assert len(connections()) == before


# ---------------------------------------------------------------------------------- a process under load


async def hammer(port_number: int, answers: list[int]) -> None:
    """One client that asks until the server is gone."""
    while True:
        try:
            peer = Peer(*await asyncio.open_connection("127.0.0.1", port_number))
        except OSError:
            return
        try:
            while True:
                steps = {"name": "count_slowly", "arguments": {"steps": 2, "seconds": 0.01}}
                answer = await peer.ask(modern("tools/call", steps, meta=envelope(progressToken=1)))
                answers.append(answer.status)
        except (OSError, EOFError):
            pass
        finally:
            await peer.aclose()


@pytest.mark.nightly
@pytest.mark.parametrize("second", [False, True], ids=["SIGTERM", "twice"])
async def test_sigterm_under_load(child: Child, second: bool) -> None:
    """Requests, sessions, listeners and stuck clients: it ends within its grace, with 0 and without a traceback."""
    process = await asyncio.create_subprocess_exec(
        *child.mcpd("serve", "--http", "127.0.0.1:0", "--grace", "20" if second else "0.5", "--log-level", "warning"),
        env=child.env,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        heard = b""
        while b"/mcp" not in heard:
            heard += await process.stderr.read(1000)
        number = int(heard.partition(b"127.0.0.1:")[2].partition(b"/")[0])

        class There:
            """As much of a Port as a Session needs."""

            async def connect(self) -> Peer:
                return Peer(*await asyncio.open_connection("127.0.0.1", number))

            async def ask(self, data: bytes) -> object:
                peer = await self.connect()
                answer = await peer.ask(data)
                await peer.aclose()
                return answer

        there = There()
        answers: list[int] = []
        clients = [asyncio.create_task(hammer(number, answers)) for _ in range(8)]
        session = Session(there, "2025-11-25")  # type: ignore[arg-type]
        await session.open()
        stream = await session.listen()
        long = {"name": "count_slowly", "arguments": {"steps": 100, "seconds": 0.2}, "_meta": {"progressToken": 1}}
        calling = await session.start(call("tools/call", long))
        listener = await there.connect()
        listener.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        await listener.head()
        await listener.message()
        stuck = await there.connect()
        stuck.send(post(PING)[:-1])
        await until(lambda: len(answers) >= 100)
        process.send_signal(signal.SIGTERM)
        if second:
            await asyncio.sleep(0.3)
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert (await listener.message())["result"]["resultType"] == "complete"
            assert await process.wait() == 0
            await asyncio.gather(*clients)
        assert set(answers) == {200}
        assert b"shutting down" in await calling.rest()
        await stream.rest()
        said = heard + await process.stderr.read()
        assert b"Traceback" not in said, said.decode()
        for peer in (stream, calling, listener, stuck):
            await peer.aclose()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
