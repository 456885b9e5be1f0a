"""What comes on the stream of a request: answers, cuts and what is resumed, too much, and what is not the answer."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from typing import Any

import pytest
from support.clock import turns, until
from support.http_script import (
    Answer,
    Asked,
    Cut,
    Write,
    event,
    events_head,
    legacy,
    modern,
    reply,
    scripted,
    text_result,
)
from support.memory import memory

from mcpd import Callbacks, Client, ClientLimits
from mcpd.errors import ConnectionLost, FrameTooLarge, HttpError, McpdError, ProtocolError, RequestTimeout, SessionLost

BOTH = pytest.mark.parametrize("era", [legacy, modern], ids=["legacy", "modern"])
TIMEOUT = 30.0


def progress(asked: Asked, done: float) -> dict[str, Any]:
    token = asked.message["params"]["_meta"]["progressToken"]
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": done}}


async def called(server_answer: Answer, **options: Any) -> str:
    """The text of one call."""
    async with scripted(server_answer) as server:
        async with asyncio.timeout(TIMEOUT), Client(server.url, **options) as client:
            text = (await client.call_tool("x")).content[0].text  # type: ignore[union-attr]
    return text


@BOTH
async def test_an_answer_on_a_stream_that_then_stays_open(era: Any) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await write(events_head() + b": hello\n\n" + event(None) + event(text_result(asked, "a")))
        await asyncio.Event().wait()

    assert await called(era(answer)) == "a"


@BOTH
async def test_progress_comes_as_it_is_told(era: Any) -> None:
    heard = asyncio.Event()

    async def answer(asked: Asked, write: Write) -> None:
        await write(events_head() + event(progress(asked, 1)))
        await heard.wait()
        await write(event(text_result(asked, "after")))

    async with scripted(era(answer)) as server, Client(server.url) as client:
        async with asyncio.timeout(TIMEOUT):
            assert await client.call("x", on_progress=lambda *_: heard.set()) == "after"


async def test_a_stream_that_was_cut_is_resumed_when_the_server_wants() -> None:
    cut_at = 0.0

    async def answer(asked: Asked, write: Write) -> bool:
        nonlocal cut_at
        if asked.rpc == "tools/call":
            await write(events_head() + event(None, "e-1", retry=300) + event(progress(asked, 1), "é-2"))
            cut_at = time.monotonic()
            raise Cut
        if "last-event-id" not in asked.headers:
            return await write(reply(405))  # type: ignore[func-returns-value]
        first = server.of("tools/call")[0]
        if len(server.of("GET")) < 4:  # the session's own, then twice nothing but an event more
            await write(events_head() + event(progress(first, 2), "é-3", retry=1))
        else:
            await write(events_head() + event(text_result(first, "resumed")))
        raise Cut

    async with scripted(legacy(answer)) as server, Client(server.url) as client:
        told: list[float] = []
        async with asyncio.timeout(TIMEOUT):
            assert await client.call("x", on_progress=lambda done, *_: told.append(done)) == "resumed"
        assert told == [1, 2, 2]
        resumed = [one for one in server.of("GET") if "last-event-id" in one.headers]
        assert [one.headers["last-event-id"].encode("latin-1").decode() for one in resumed] == ["é-2", "é-3", "é-3"]
        assert all(one.headers["mcp-session-id"] == "s-1" for one in resumed)
        assert all(one.headers["mcp-protocol-version"] == "2025-11-25" for one in resumed)
        assert time.monotonic() - cut_at >= 0.3


async def test_the_first_request_waits_until_the_stream_of_the_session_is_open() -> None:
    """What the server asks there because of it would be lost; one that says nothing there holds it up for a second."""
    is_open, has_called = asyncio.Event(), asyncio.Event()

    async def answer(asked: Asked, write: Write) -> None:
        if asked.rpc == "GET":
            await turns(200)  # a head that takes its time
            assert not has_called.is_set()
            is_open.set()
            await write(events_head() + b": here\n\n")
            await asyncio.Event().wait()
        has_called.set()
        assert is_open.is_set()
        await write(reply(200, text_result(asked, "a")))

    assert await called(legacy(answer)) == "a"

    async def silent(asked: Asked, write: Write) -> None:
        if asked.rpc == "GET":
            await asyncio.Event().wait()
        await write(reply(200, text_result(asked, "b")))

    assert await called(legacy(silent)) == "b"


@BOTH
async def test_a_stream_that_is_cut_and_cannot_be_resumed(era: Any) -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "GET":
            return await write(reply(405))  # type: ignore[func-returns-value]
        await write(events_head() + event(progress(asked, 1), "1" if era is modern else ""))
        raise Cut

    async with scripted(era(answer)) as server, Client(server.url) as client:
        with pytest.raises(ConnectionLost, match=r"/mcp: the stream ended before the response to tools/call"):
            await client.call("x", on_progress=lambda *_: None)
        # Modern streams cannot be resumed, whatever ids they have; and a call is not sent twice.
        assert len(server.of("tools/call")) == 1
        assert not [one for one in server.of("GET") if "last-event-id" in one.headers]


@BOTH
@pytest.mark.parametrize("when", ["before", "head", "body"])
async def test_a_call_whose_connection_is_cut_is_not_sent_again(era: Any, when: str) -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "GET":
            return await write(reply(405))  # type: ignore[func-returns-value]
        if when == "head":
            await write(b"HTTP/1.1 200 O")
        if when == "body":
            await write(reply(200, text_result(asked, "x" * 1000))[:-50])
        raise Cut

    async with scripted(era(answer)) as server, Client(server.url) as client:
        with pytest.raises(ConnectionLost, match=r"http://127\.0\.0\.1:\d+/mcp"):
            await client.call("x")
        assert len(server.of("tools/call")) == 1


@BOTH
async def test_what_may_be_said_twice_is_when_an_idle_connection_was_closed(era: Any) -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "GET":
            return await write(reply(405))  # type: ignore[func-returns-value]
        if len(server.of("prompts/list")) == 1:
            raise Cut
        await write(reply(200, {**text_result(asked, ""), "result": {"prompts": [], "resultType": "complete"}}))
        return True

    async with scripted(era(answer, prompts={})) as server, Client(server.url) as client:
        assert await client.list_prompts() == []
        assert len(server.of("prompts/list")) == 2


@BOTH
@pytest.mark.parametrize("is_stream", [True, False])
async def test_an_answer_under_another_id_is_none(era: Any, is_stream: bool) -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "GET":
            return await write(reply(405))  # type: ignore[func-returns-value]
        other = {**text_result(asked, "not yours"), "id": 4711}
        await write(events_head() + event(other) if is_stream else reply(200, other))
        if is_stream:
            raise Cut
        return True

    expected = (
        (ConnectionLost, "ended before the response")
        if is_stream
        else (ProtocolError, "no message of the response has its id")
    )
    with pytest.raises(expected[0], match=expected[1]):
        await called(era(answer))


@BOTH
async def test_the_first_of_two_answers_counts(era: Any) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await write(events_head() + event(text_result(asked, "one")) + event(text_result(asked, "two")))
        raise Cut

    assert await called(era(answer)) == "one"


@BOTH
async def test_a_server_that_never_answers(era: Any) -> None:
    ended = asyncio.Event()

    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "tools/call":
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        await write(reply(405 if asked.rpc == "GET" else 202))
        return True

    async with scripted(era(answer)) as server, Client(server.url) as client:
        with pytest.raises(RequestTimeout):
            await client.call("x", timeout=0.2)
        cancelled = [one.message["params"]["requestId"] for one in server.of("notifications/cancelled")]
        if era is modern:
            assert cancelled == []
        else:
            await until(lambda: server.of("notifications/cancelled"))
            assert (
                server.of("notifications/cancelled")[0].message["params"]["requestId"] == server.of("tools/call")[0].id
            )
            assert server.of("notifications/cancelled")[0].headers["mcp-session-id"] == "s-1"


# ------------------------------------------------------------------------------------------- too much

SMALL = ClientLimits(message_bytes=100_000)


def packed(data: bytes, kind: str) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, {"gzip": 31, "deflate": 15, "raw": -15}[kind])
    return packer.compress(data) + packer.flush()


@BOTH
@pytest.mark.parametrize("kind", ["gzip", "deflate", "raw"])
async def test_a_packed_answer(era: Any, kind: str) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        data = packed(json.dumps(text_result(asked, "packed" * 1000)).encode(), kind)
        encoding = "gzip" if kind == "gzip" else "deflate"
        await write(reply(200, data, {"Content-Type": "application/json", "Content-Encoding": encoding}))

    assert await called(era(answer)) == "packed" * 1000


@BOTH
@pytest.mark.parametrize("shape", ["length", "chunks", "bomb", "event", "packed event"])
async def test_an_answer_that_is_too_large(era: Any, shape: str) -> None:
    bomb = packed(b" " * 30_000_000, "gzip")
    event = packed(b"data: " + b"x" * 10_000_000 + b"\n\n", "gzip")

    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "GET":
            return await write(reply(405))  # type: ignore[func-returns-value]
        kind = {"Content-Type": "application/json"}
        if shape == "length":
            await write(reply(200, b"{" + b" " * 200_000, kind))
        elif shape == "bomb":
            await write(reply(200, bomb, {**kind, "Content-Encoding": "gzip"}))
        elif shape == "chunks":
            await write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                await write(b"1000\r\n" + b" " * 4096 + b"\r\n")
        elif shape == "event":
            await write(events_head() + b"data: ")
            while True:
                await write(b"x" * 65536)
        else:
            await write(events_head({"Content-Encoding": "gzip"}) + event)
            raise Cut
        return True

    # Of the bomb there are 30 MB, and of the line that never ends hundreds; the server, in this process, needs some.
    with memory(20_000_000):
        with pytest.raises(FrameTooLarge, match="more than 100000 bytes"):
            await called(era(answer), limits=SMALL)


@BOTH
async def test_endless_comments_end_with_the_time_limit(era: Any) -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "GET":
            return await write(reply(405))  # type: ignore[func-returns-value]
        await write(events_head())
        while True:
            await write(b": and so on\n\n" * 1000)

    with pytest.raises(RequestTimeout):
        await called(era(answer), timeout=1)


@BOTH
@pytest.mark.parametrize("shape", ["one line", "many lines", "status line", "informational"])
async def test_endless_heads(era: Any, shape: str) -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "GET":
            return await write(reply(405))  # type: ignore[func-returns-value]
        pieces = {
            "one line": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 65536),
            "many lines": (b"HTTP/1.1 200 OK\r\n", b"X-Many: 1\r\n" * 1000),
            "status line": (b"HTTP/1.1 200 ", b"x" * 65536),
            "informational": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        }
        first, more = pieces[shape]
        await write(first)
        while True:
            await write(more)

    with pytest.raises(ConnectionLost if shape != "informational" else McpdError):
        await called(era(answer), timeout=2)


@BOTH
async def test_an_encoding_that_was_not_asked_for(era: Any) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await write(reply(200, b"x", {"Content-Type": "application/json", "Content-Encoding": "br"}))

    with pytest.raises(ConnectionLost, match="encoding 'br', which was not requested"):
        await called(era(answer))


@BOTH
async def test_a_packed_answer_that_is_spoilt(era: Any) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await write(reply(200, b"no gzip", {"Content-Type": "application/json", "Content-Encoding": "gzip"}))

    with pytest.raises(ConnectionLost, match="the gzip body cannot be decompressed"):
        await called(era(answer))


@BOTH
@pytest.mark.parametrize("kind", ["gzip", "deflate", "raw"])
async def test_a_packed_answer_that_is_cut_off(era: Any, kind: str) -> None:
    """The whole message is there, but not the end of the packed data: nobody knows what is missing."""

    async def answer(asked: Asked, write: Write) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, {"gzip": 31, "deflate": 15, "raw": -15}[kind])
        data = packer.compress(json.dumps(text_result(asked, "whole")).encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
        encoding = "gzip" if kind == "gzip" else "deflate"
        await write(reply(200, data, {"Content-Type": "application/json", "Content-Encoding": encoding}))

    with pytest.raises(ConnectionLost, match="body is cut off"):
        await called(era(answer))


@BOTH
@pytest.mark.parametrize("padding", [b"", b"\0" * 100])
async def test_a_packed_answer_of_many_members(era: Any, padding: bytes) -> None:
    """RFC 1952 2.2: a gzip file may have several members; some programs fill the rest of a block with zeros."""

    async def answer(asked: Asked, write: Write) -> None:
        data = json.dumps(text_result(asked, "x" * 200_000)).encode()
        body = packed(data[:65_536], "gzip") + packed(data[65_536:], "gzip") + padding
        await write(reply(200, body, {"Content-Type": "application/json", "Content-Encoding": "gzip"}))

    assert await called(era(answer)) == "x" * 200_000


@BOTH
async def test_only_so_many_requests_are_open_at_a_time(era: Any) -> None:
    from mcpd import HttpOptions

    most = open_now = 0

    async def answer(asked: Asked, write: Write) -> bool:
        nonlocal most, open_now
        if asked.rpc != "tools/call":
            return await write(reply(405))  # type: ignore[func-returns-value]
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)  # others would come in here
        open_now -= 1
        await write(reply(200, text_result(asked, "x")))
        return True

    async with scripted(era(answer)) as server, Client(server.url, http=HttpOptions(connections=3)) as client:
        await asyncio.gather(*(client.call("x") for _ in range(40)))
        assert most <= 3
        assert server.open <= 4


# ----------------------------------------------------------------------------- what a server says by itself


async def test_what_a_server_says_by_itself_comes_on_the_stream_of_the_session() -> None:
    changed: asyncio.Queue[str] = asyncio.Queue()

    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc != "GET":
            return await write(reply(200))  # type: ignore[func-returns-value]
        number = len(server.of("GET"))
        told = {"jsonrpc": "2.0", "method": f"notifications/{['tools', 'prompts'][number % 2]}/list_changed"}
        await write(events_head() + event(told, f"g-{number}", retry=1))
        if number < 3:
            raise Cut
        await asyncio.Event().wait()
        return True

    async with scripted(legacy(answer)) as server:
        async with asyncio.timeout(TIMEOUT), Client(server.url, Callbacks(list_changed=changed.put_nowait)):
            assert [await changed.get() for _ in range(3)] == ["prompts", "tools", "prompts"]
            ids = [one.headers.get("last-event-id") for one in server.of("GET")]
            assert ids == [None, "g-1", "g-2"]
        assert [one.headers["mcp-session-id"] for one in server.of("DELETE")] == ["s-1"]


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_without_that_stream(status: int) -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        await write(reply(status) if asked.rpc == "GET" else reply(200, text_result(asked, "x")))
        return True

    async with scripted(legacy(answer)) as server, Client(server.url) as client:
        assert await client.call("x") == "x"
        await until(lambda: server.of("GET"))
        assert await client.call("x") == "x"
        assert len(server.of("GET")) == 1


async def test_a_session_that_is_lost() -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        await write(reply(405 if asked.rpc == "GET" else 404, b"no such session"))
        return True

    async with scripted(legacy(answer)) as server, Client(server.url) as client:
        with pytest.raises(SessionLost, match=r"/mcp has ended the session \(HTTP 404\)"):
            await client.call("x")


async def test_a_new_session_is_opened_for_what_may_be_repeated() -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc == "prompts/list" and asked.headers["mcp-session-id"] == "s-2":
            await write(reply(200, {"jsonrpc": "2.0", "id": asked.id, "result": {"prompts": []}}))
        else:
            await write(reply({"GET": 405, "DELETE": 200}.get(asked.rpc, 404), b"no such session"))
        return True

    first, second = legacy(answer, prompts={}), legacy(answer, session="s-2", prompts={})

    async def route(asked: Asked, write: Write) -> None:
        await (first if len(server.of("initialize")) <= 1 else second)(asked, write)

    async with scripted(route) as server:
        async with Client(server.url) as client:
            assert await client.list_prompts() == []
        # One that the server has forgotten is not ended.
        assert [one.headers["mcp-session-id"] for one in server.of("DELETE")] == ["s-2"]


async def test_without_a_session_404_is_a_refusal() -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        await write(reply(405 if asked.rpc == "GET" else 404, b"gone\nfor good"))
        return True

    async with scripted(legacy(answer, session=None)) as server:
        async with Client(server.url) as client:
            with pytest.raises(HttpError, match=r"/mcp: HTTP 404 Reason: gone$") as caught:
                await client.call("x")
            assert caught.value.status == 404
        assert not server.of("DELETE")


async def test_a_session_that_ends_while_it_is_listened_to() -> None:
    changed: asyncio.Queue[str] = asyncio.Queue()
    told = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc != "GET":
            return await write(reply(200))  # type: ignore[func-returns-value]
        if len(server.of("GET")) == 2:
            await write(reply(404))
            return True
        await write(events_head() + event(told, "g", retry=1))
        if len(server.of("GET")) == 1:
            raise Cut
        await asyncio.Event().wait()
        return True

    async with scripted(legacy(answer)) as server:
        async with asyncio.timeout(TIMEOUT), Client(server.url, Callbacks(list_changed=changed.put_nowait)):
            await changed.get()
            await until(lambda: len(server.of("initialize")) == 2)
            await changed.get()


async def test_a_server_that_wants_no_pause_gets_one() -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        if asked.rpc in ("GET", "tools/call"):
            await write(events_head() + event(None, str(len(server.asked)), retry=0))
            raise Cut
        return await write(reply(200))  # type: ignore[func-returns-value]

    async with scripted(legacy(answer)) as server, Client(server.url, timeout=1.0) as client:
        with pytest.raises(RequestTimeout):
            await client.call("x")
        assert len(server.of("GET")) < 60  # two streams, some ten times a second each


@pytest.mark.parametrize("name", [b"a\x01b", b"\x7f"])
async def test_an_id_that_no_header_can_hold_is_not_resumed_from(name: bytes) -> None:
    async def answer(asked: Asked, write: Write) -> bool | None:
        if asked.rpc != "tools/call":
            return None
        await write(events_head() + b"id: " + name + b"\nretry: 1\ndata:\n\n")
        raise Cut

    async with scripted(legacy(answer)) as server, asyncio.timeout(TIMEOUT), Client(server.url) as client:
        with pytest.raises(ConnectionLost, match="before the response to tools/call"):
            await client.call("x")


@BOTH
async def test_streams_that_stay_open_are_soon_not_waited_for(era: Any) -> None:
    async def answer(asked: Asked, write: Write) -> bool | None:
        if asked.rpc != "tools/call":
            return None
        await write(events_head() + event(text_result(asked, "a")))
        await asyncio.Event().wait()
        return True

    async with scripted(era(answer)) as server, asyncio.timeout(TIMEOUT), Client(server.url) as client:
        began = time.monotonic()
        for _ in range(30):
            assert await client.call("x") == "a"
        assert time.monotonic() - began < 10  # a second for each would be 30


async def test_requests_of_a_modern_server_get_no_response() -> None:
    async def answer(asked: Asked, write: Write) -> None:
        asks = {"jsonrpc": "2.0", "id": "s", "method": "ping"}
        await write(events_head() + event(asks) + event({**asks, "method": "roots/list"}))
        await write(event(text_result(asked, "a")))
        raise Cut

    async with scripted(modern(answer)) as server:
        async with Client(server.url) as client:
            assert await client.call("x") == "a"
        assert [one.rpc for one in server.asked] == ["server/discover", "tools/call"]
