"""Event streams and replies by themselves: order, slow readers, keep-alive, and clients that leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import until
from support.http_peer import envelope, modern, serving
from support.http_stage import Stage

from mcpd import Context
from mcpd.server.http import HttpSettings
from mcpd.server.http.event_stream import EventStreamResponse
from mcpd.server.http.reply import KeepAlive, Reply
from mcpd.server.http.request import HttpRequest
from mcpd.server.http.resumable_streams import ResumableStream


class Client:
    """An ASGI server's side of one request; `gate` holds what is sent while it is not set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.left = asyncio.Event()
        self.sent: list[Any] = []
        self.is_broken = False
        scope = {"method": "POST", "path": "/mcp", "headers": []}
        self.request = HttpRequest(scope, self._receive, self._send)

    async def _receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.gate.wait()
        if self.is_broken:
            raise OSError("gone")
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def is_complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_is_pushed_together_is_written_together() -> None:
    client = Client()
    stream = EventStreamResponse(client.request)
    for part in (b"a", b"b", b"c"):
        stream.push(part)
    await turns()
    assert [message["type"] for message in client.sent] == ["http.response.start", "http.response.body"]
    stream.push(b"d")
    await stream.end([b"e"])
    assert client.body == b"abcde"
    assert client.is_complete
    stream.push(b"f")
    await stream.end([b"g"])
    assert client.body == b"abcde"


async def test_order_holds_while_the_client_reads_slowly() -> None:
    client = Client()
    stream = EventStreamResponse(client.request)
    client.gate.clear()
    stream.push(b"a")
    await turns()
    stream.push(b"b")
    ending = asyncio.create_task(stream.end([b"c"]))
    await turns()
    assert not ending.done()
    client.gate.set()
    await ending
    assert client.body == b"abc"
    assert client.is_complete


async def test_a_stream_can_begin_with_nothing() -> None:
    client = Client()
    stream = EventStreamResponse(client.request)
    stream.push(b"")
    await turns()
    assert [message["type"] for message in client.sent] == ["http.response.start", "http.response.body"]
    assert client.sent[1] == {"type": "http.response.body", "body": b"", "more_body": True}
    await stream.end()
    assert client.is_complete


async def test_who_waits_for_a_slow_client_is_woken_when_it_reads_or_leaves() -> None:
    for leaves in (False, True):
        client = Client()
        stream = EventStreamResponse(client.request)
        client.gate.clear()
        stream.push(b"x" * 2_000_000)
        assert stream.is_congested
        waiting = [asyncio.create_task(stream.drain()) for _ in range(2)]
        await turns()
        assert not any(task.done() for task in waiting)
        if leaves:
            stream.close()
        else:
            client.gate.set()
        await asyncio.gather(*waiting)
        assert not stream.is_congested
        await stream.end()


async def test_a_client_that_never_reads_is_let_go() -> None:
    client = Client()
    stream = EventStreamResponse(client.request)
    client.gate.clear()
    for _ in range(100):
        stream.push(b"x" * 1_000_000)
    assert not stream.is_open
    await turns()
    await stream.end()
    client.gate.set()
    await turns()
    assert client.body == b""
    assert client.is_complete


async def test_a_client_that_stopped_reading_hears_that_its_stream_has_ended() -> None:
    client = Client()
    stream = EventStreamResponse(client.request, write_timeout=0.05)
    stream.push(b"a")
    await turns()
    client.gate.clear()
    stream.push(b"x" * 2_000_000)
    await stream.drain()
    assert not stream.is_open
    client.gate.set()
    await turns()
    assert client.body == b"a"
    assert client.is_complete


async def test_a_server_that_cannot_send_means_that_the_client_is_gone() -> None:
    client = Client()
    client.is_broken = True
    stream = EventStreamResponse(client.request)
    stream.push(b"a")
    await turns()
    assert not stream.is_open
    await stream.end([b"b"])
    broken = EventStreamResponse(client.request)
    await broken.end([b"a"])
    assert not broken.is_open


async def test_a_quiet_stream_says_that_it_is_there() -> None:
    client = Client()
    stream = EventStreamResponse(client.request)
    stream.push(b"a")
    await turns()
    for _ in range(3):
        stream.keep_alive()
        await turns()
    assert client.body == b"a" + b":\n\n" * 2
    stream.push(b"b")
    stream.keep_alive()
    await turns()
    assert client.body == b"a" + b":\n\n" * 2 + b"b"
    await stream.end()


# ------------------------------------------------------------------------------------------- replies


async def test_an_answer_alone_is_json() -> None:
    client = Client()
    reply = Reply(client.request, ResumableStream, KeepAlive(0))
    reply.watch_for_disconnect()
    await turns()
    await reply.finish(b"{}", 404)
    assert client.sent[0]["status"] == 404
    assert (b"content-type", b"application/json") in client.sent[0]["headers"]
    assert client.body == b"{}"
    await reply.drain()
    await reply.aclose()
    assert not reply.is_congested


async def test_whoever_left_gets_nothing() -> None:
    client = Client()
    gone: list[int] = []
    reply = Reply(client.request, ResumableStream, KeepAlive(0))
    reply.on_left = lambda: gone.append(1)
    reply.watch_for_disconnect()
    client.left.set()
    await turns()
    assert gone == [1]
    reply.send(b"{}")
    await turns()
    await reply.finish(b"{}")
    assert client.sent == []


async def test_nothing_is_answered_to_what_was_given_up() -> None:
    client = Client()
    reply = Reply(client.request, ResumableStream, KeepAlive(0))
    await reply.finish(None)
    assert client.sent[0]["status"] == 202
    assert client.body == b""
    client = Client()
    reply = Reply(client.request, ResumableStream, KeepAlive(0))
    reply.send(b"{}")
    await reply.finish(None)
    assert client.body == b"data: {}\n\n"


async def test_a_server_that_fails_to_receive_has_no_client() -> None:
    client = Client()

    async def receive() -> Any:
        raise RuntimeError("no more messages")

    client.request.receive = receive
    gone: list[int] = []
    reply = Reply(client.request, ResumableStream, KeepAlive(0))
    reply.on_left = lambda: gone.append(1)
    reply.watch_for_disconnect()
    await turns()
    assert gone == [1]
    reply.stop()


async def test_beats_begin_with_the_first_and_stop_with_the_last() -> None:
    keep_alive = KeepAlive(0.01)
    client = Client()
    reply = Reply(client.request, ResumableStream, keep_alive)
    reply.watch_for_disconnect()
    assert keep_alive._timer is not None
    await until(lambda: client.body.endswith(b":\n\n"))
    assert client.sent[0]["status"] == 200
    await reply.finish(b"{}")
    assert client.body.endswith(b"data: {}\n\n")
    await until(lambda: keep_alive._timer is None)
    keep_alive.stop()


# ----------------------------------------------------------------------------------------- on the wire


async def test_a_long_call_becomes_a_stream_and_stays_alive() -> None:
    """A silent connection would be closed by what lies between; the answer still comes."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(keep_alive_interval=0.02)) as port:
        peer = await port.connect()
        peer.send(modern("tools/call", {"name": "wait"}))
        answer = await peer.head()
        assert answer["content-type"] == "text/event-stream"
        for _ in range(3):
            assert await peer.comment() == b":\n\n"
        stage.open()
        assert (await peer.message())["result"]["content"][0]["text"] == "opened"


async def test_a_subscription_stays_alive_by_comments() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(keep_alive_interval=0.02)) as port:
        peer = await port.connect()
        peer.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        await peer.head()
        await peer.message()
        for _ in range(3):
            assert await peer.comment() == b":\n\n"
        session = await port.open()
        stream = await session.listen()
        await stream.event()
        for _ in range(3):
            assert await stream.comment() == b":\n\n"


@pytest.mark.parametrize("interval", [0.0, 100.0])
async def test_without_a_beat_a_call_may_take_as_long_as_it_likes(interval: float) -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(keep_alive_interval=interval)) as port:
        peer = await port.connect()
        peer.send(modern("tools/call", {"name": "wait"}))
        await stage.entered.get()
        stage.open()
        assert (await peer.answer())["content-type"] == "application/json"


async def test_progress_waits_for_a_client_that_does_not_read() -> None:
    """Backpressure: the tool goes no faster than its client, and nobody else is held up."""
    stage = Stage()

    stage.server.remove_tool("pour")
    poured: list[int] = []

    @stage.server.tool(name="pour")
    async def really_pour(steps: int, *, ctx: Context) -> str:
        """Report with long texts."""
        for step in range(steps):
            await ctx.progress(step, message="x" * 100_000)
            poured.append(step)
        return "poured"

    async with serving(stage.server) as port:
        peer = await port.connect()
        meta = envelope(progressToken=1)
        peer.send(modern("tools/call", {"name": "pour", "arguments": {"steps": 500}}, meta=meta))
        await peer.head()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = -1
        while len(poured) != before or not poured:
            before = len(poured)
            await asyncio.sleep(0.05)
        assert len(poured) < 400
        assert (await port.modern("tools/list")).status == 200
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        while "result" not in (message := await peer.message()):
            pass
        assert message["result"]["content"][0]["text"] == "poured"
        assert len(poured) == 500
