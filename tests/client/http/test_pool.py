"""Connections that are used again: what came on them in between, an end that nobody heard, calls that are given up."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import Any

import pytest
from support.clock import turns, until
from support.http_script import Asked, Scripted, Write, legacy, modern, reply, scripted, text_result

from mcpd import Client, HttpOptions
from mcpd.errors import ConnectionLost, HttpError

BOTH = pytest.mark.parametrize("era", [legacy, modern], ids=["legacy", "modern"])
TIMEOUT = 30.0


async def fine(asked: Asked, write: Write) -> bool:
    if asked.rpc == "GET":
        await write(reply(405))
    else:
        await write(reply(200, text_result(asked, f"answer {asked.id}")))
    return True


def idle(server: Scripted) -> list[asyncio.StreamWriter]:
    """The server's ends of all connections: nothing is asked on them now."""
    return [writer for reader, writer in server.peers if not reader.at_eof() and not writer.is_closing()]


@BOTH
@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "not heard yet"])
@pytest.mark.parametrize("road", ["direct", "proxy"])
async def test_what_comes_between_two_answers_is_nobodys(
    era: Any, is_heard: bool, road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that nobody asked for, under the id that the next call will have: the next call gets its own."""
    async with scripted(era(fine)) as server:
        if road == "proxy":
            monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/mcp"))
        url = server.url if road == "direct" else "http://server.invalid/mcp"
        async with asyncio.timeout(TIMEOUT), Client(url) as client:
            assert await client.call("x") == f"answer {server.of('tools/call')[-1].id}"
            for number in range(3):
                follows = server.of("tools/call")[-1].id + 1
                evil = {"resultType": "complete", "content": [{"type": "text", "text": "evil"}]}
                for writer in idle(server):
                    writer.write(reply(200, {"jsonrpc": "2.0", "id": follows, "result": evil}))
                if is_heard:
                    await turns(20)
                assert await client.call("x") == f"answer {follows}", number
        assert len(server.of("tools/call")) == 4


@BOTH
@pytest.mark.parametrize("how", [socket.SHUT_WR, socket.SHUT_RDWR])
async def test_a_connection_that_was_closed_while_the_program_computed_is_left_alone(era: Any, how: int) -> None:
    """The loop has had no turn to hear of it; a call that may do something must not need a second try."""
    async with scripted(era(fine)) as server, asyncio.timeout(TIMEOUT), Client(server.url) as client:
        for _ in range(3):
            await client.call("x")
            for writer in idle(server):
                writer.get_extra_info("socket").shutdown(how)
        assert await client.call("x")
        assert len(server.of("tools/call")) == 4


@BOTH
@pytest.mark.parametrize("shape", ["json", "stream", "slow"])
async def test_a_call_may_be_given_up_at_every_turn(era: Any, shape: str) -> None:
    """Wherever a call was when it was cancelled: the next one has its own answer, and none is lost count of."""

    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "GET" or "id" not in asked.message:
            await write(reply(405 if asked.rpc == "GET" else 202))
            return True
        data = reply(200, text_result(asked, f"answer {asked.id}"))
        if shape == "stream":
            body = b"data: " + data.partition(b"\r\n\r\n")[2] + b"\n\n"
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            data = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        if shape == "slow":
            for start in range(0, len(data), 40):
                await write(data[start : start + 40])
                await asyncio.sleep(0)
        else:
            await write(data)
        return True

    options = HttpOptions(connections=2)
    async with scripted(era(answer)) as server, asyncio.timeout(TIMEOUT):
        async with Client(server.url, http=options) as client:
            ended = 0
            for count in range(60):
                call = asyncio.create_task(client.call("x"))
                await turns(count % 30)
                call.cancel()
                try:
                    assert (await call).startswith("answer ")
                    ended += 1
                except asyncio.CancelledError:
                    pass
                last = await client.call("x")
                assert last == f"answer {server.of('tools/call')[-1].id}"
            assert server.open <= 3  # two, and in legacy versions nothing but what was just closed
            assert len(client._session.pending) == 0
            # Nobody holds one of the places: as many as there are can be asked at a time.
            assert len(await asyncio.gather(*(client.call("x") for _ in range(20)))) == 20
        await until(lambda: server.open == 0)
    gc.collect()  # a connection that nobody closed would warn


async def test_thousands_at_a_time_each_get_their_own() -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await asyncio.sleep(0)
        await write(reply(200, text_result(asked, asked.message["params"]["arguments"]["text"])))

    async with scripted(modern(answer)) as server, asyncio.timeout(TIMEOUT), Client(server.url) as client:
        texts = await asyncio.gather(*(client.call("x", text=str(number)) for number in range(2000)))
        assert texts == [str(number) for number in range(2000)]
        assert len(server.peers) <= HttpOptions().connections + 1


LARGE = "y" * 5_000_000


@BOTH
@pytest.mark.parametrize("status", [200, 413])
async def test_an_answer_before_all_was_read(era: Any, status: int) -> None:
    """The server answers from the head, and reads the rest or not: the answer counts, the connection is not kept."""
    served: list[Any] = []
    last = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal last
        served.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
                length = int(fields.get("Content-Length", "0"))
                if length > 1_000_000:
                    asked = Asked("POST", "/mcp", {}, b'{"id": %d}' % (last + 1))
                    writer.write(reply(status, text_result(asked, "early") if status == 200 else b"too large"))
                    await writer.drain()
                    continue
                asked = Asked(head.split(b" ")[0].decode(), "/mcp", fields, await reader.readexactly(length))
                last = max(last, asked.id or 0)

                async def write(data: bytes) -> None:
                    writer.write(data)

                await era(fine)(asked, write)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0, limit=100_000) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
        async with asyncio.timeout(TIMEOUT), Client(url) as client:
            if status == 200:
                assert await client.call("x", text=LARGE) == "early"
            else:
                with pytest.raises(HttpError, match="413 Reason: too large"):
                    await client.call("x", text=LARGE)
            before = len(served)
            assert (await client.call("x")).startswith("answer ")
            assert len(served) == before + 1  # not on the one on which 5 MB are still to be said


INFORMATIONAL = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"


def whole(asked: Asked, head: bytes, end: bytes = b"") -> bytes:
    body = reply(200, text_result(asked, "fine")).partition(b"\r\n\r\n")[2]
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + head.replace(b"LEN", b"%d" % len(body)) + (
        b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, end) if b"chunked" in head else body
    )  # fmt: skip


ANSWERS: dict[str, tuple[Any, str]] = {
    "informational": (lambda asked: INFORMATIONAL * 100 + whole(asked, b"Content-Length: LEN\r\n\r\n"), "fine"),
    "trailers": (lambda asked: whole(asked, b"Transfer-Encoding: chunked\r\n\r\n", b"X-T: 1\r\nY: 2\r\n"), "fine"),
    "both lengths": (
        lambda asked: whole(asked, b"Transfer-Encoding: chunked\r\nContent-Length: LEN\r\n\r\n"),
        "sent an invalid HTTP response",
    ),
    "two lengths": (
        lambda asked: whole(asked, b"Content-Length: 7\r\nContent-Length: LEN\r\n\r\n"),
        "sent an invalid HTTP response",
    ),
    "less than 0": (lambda asked: whole(asked, b"Content-Length: -1\r\n\r\n"), "sent an invalid HTTP response"),
    "too short": (lambda asked: whole(asked, b"Content-Length: 5\r\n\r\n"), "sent an invalid HTTP response"),
    "no content": (lambda asked: reply(204), "sent no response \\(HTTP 204\\)"),
    "no content, with some": (lambda asked: reply(204, b"{}"), "sent an invalid HTTP response"),
    "switching": (lambda asked: b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "HTTP 101"),
}


@pytest.mark.parametrize("shape", ANSWERS)
async def test_odd_answers_spoil_no_other(shape: str) -> None:
    make, said = ANSWERS[shape]

    async def answer(asked: Asked, write: Write) -> None:
        is_odd = len(server.of("tools/call")) % 2
        await write(make(asked) if is_odd else reply(200, text_result(asked, "next")))

    async with scripted(modern(answer)) as server, asyncio.timeout(TIMEOUT), Client(server.url) as client:
        for _ in range(3):
            if said == "fine":
                assert await client.call("x") == said
            else:
                with pytest.raises((ConnectionLost, HttpError), match=said):
                    await client.call("x")
            assert await client.call("x") == "next"
