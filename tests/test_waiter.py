"""The way of an answer to its caller: how many turns of the event loop it takes, and what it does not overtake."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import selectors
import subprocess
import sys
import weakref
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from msgspec import Raw

from mcpd import Callbacks, Client
from mcpd.errors import RemoteError
from mcpd.transports.stdio import StdioChannel
from mcpd.waiter import AnswerWaiter

SERVER = '''
from mcpd import Server
server = Server("turns")

@server.tool
async def echo(text: str) -> str:
    """Give it back."""
    return text
'''
CALLS = 50


# ------------------------------------------------------------------------------------------- turns


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of the loop that it is in."""

    turns = 0

    def select(self, timeout: float | None = None) -> Any:
        self.turns += 1
        return super().select(timeout)


def turns_of_calls(target: Any, version: str) -> float:
    """How many turns of the event loop one call takes, after a few to warm up."""
    selector = CountingSelector()

    async def count() -> float:
        async with asyncio.timeout(60), Client(target, version=version) as client:
            for _ in range(5):
                await client.call_tool("echo", {"text": "a"})
            before = selector.turns
            for _ in range(CALLS):
                assert not (await client.call_tool("echo", {"text": "a"})).is_error
            return (selector.turns - before) / CALLS

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        return runner.run(count())


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_call_takes_one_turn_of_the_loop(child: Child, tmp_path: Path, version: str) -> None:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    assert turns_of_calls(child.mcpd("serve", "--stdio", str(tmp_path / "server.py")), version) < 1.5

    words = child.mcpd("serve", "--http", "127.0.0.1:0", "server.py")
    with subprocess.Popen(words, env=child.env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(found[0] for line in server.stderr if (found := re.search(r"http://[\d.:]+/mcp", line)))
            assert turns_of_calls(url.replace("http", "ws"), version) < 1.5
            assert turns_of_calls(url, version) < 2.5  # aiohttp wakes who reads in a turn of its own
        finally:
            server.terminate()


# ------------------------------------------------------------------------------------------- order


class Scripted:
    """A server behind two pipes whose answers are bytes, so that it is known what comes in one read."""

    def __init__(self) -> None:
        self.from_client, out = os.pipe()
        into, self.to_client = os.pipe()
        self.channel = StdioChannel(into, out, always_reads=True)
        self._ends = (self.from_client, out, into, self.to_client)

    def say(self, *messages: dict[str, Any]) -> None:
        lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages]
        os.write(self.to_client, b"".join(lines))

    async def asked(self, method: str) -> int:
        """The id of the next request for that, which has to come."""
        loop = asyncio.get_running_loop()
        while True:
            line = b""
            while not line.endswith(b"\n"):
                line += await loop.run_in_executor(None, os.read, self.from_client, 1)
            message = json.loads(line)
            if message["method"] == method:
                return int(message["id"])

    async def handshake(self) -> None:
        about = {"name": "scripted", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
        self.say({"id": await self.asked("initialize"), "result": result})

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


def text_result(request_id: int) -> dict[str, Any]:
    return {"id": request_id, "result": {"content": [{"type": "text", "text": "done"}]}}


LOG: dict[str, Any] = {"method": "notifications/message", "params": {"level": "info", "data": "before"}}


async def with_client(script: Coroutine[Any, Any, None], server: Scripted, use: Any, callbacks: Callbacks) -> None:
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(script)
        async with Client(server.channel, callbacks, version="2025-11-25") as client:
            await use(client)


async def test_what_was_told_before_the_answer_is_heard_before_it() -> None:
    server = Scripted()
    heard: list[str] = []

    async def script() -> None:
        await server.handshake()
        server.say(LOG, text_result(await server.asked("tools/call")), LOG)

    async def use(client: Client) -> None:
        assert await client.call("x") == "done"
        assert heard[:1] == ["before"]

    async def hear(params: Any) -> None:
        heard.append(params.data)

    try:
        await with_client(script(), server, use, Callbacks(log=hear))
    finally:
        server.close()


async def test_answers_of_one_read_go_each_to_their_own() -> None:
    server = Scripted()

    async def script() -> None:
        await server.handshake()
        first, second, third = [await server.asked("tools/call") for _ in range(3)]
        refused = {"id": second, "error": {"code": -32000, "message": "no"}}
        server.say(text_result(third), refused, text_result(first), text_result(first))
        # What the first to go on asks leaves at once, though more of that read is still to be handed over.
        server.say(text_result(await server.asked("tools/call")))

    async def use(client: Client) -> None:
        async def twice() -> None:
            await client.call("c")
            await client.call("d")

        found = await asyncio.gather(client.call("a"), client.call("b"), twice(), return_exceptions=True)
        assert found[0] == "done"
        assert isinstance(found[1], RemoteError)
        assert found[2] is None

    try:
        await with_client(script(), server, use, Callbacks())
    finally:
        server.close()


async def test_the_program_may_close_the_client_as_soon_as_it_has_its_answer() -> None:
    server, ended = Scripted(), []

    async def script() -> None:
        await server.handshake()
        server.say(text_result(await server.asked("tools/call")), LOG, text_result(99))

    async def use(client: Client) -> None:
        await client.call("x")
        await client.aclose()
        ended.append(True)

    try:
        await with_client(script(), server, use, Callbacks())
    finally:
        server.close()
    assert ended


# ------------------------------------------------------------------------------------------ the waiter


async def test_it_goes_on_at_once_unless_another_task_runs() -> None:
    loop, went_on = asyncio.get_running_loop(), []

    async def wait(waiter: AnswerWaiter) -> None:
        went_on.append(bytes(await waiter))

    def hand_over(waiter: AnswerWaiter, raw: bytes) -> int:
        waiter.hand_over(Raw(raw))
        return len(went_on)

    first, second = AnswerWaiter(loop), AnswerWaiter(loop)
    tasks = [asyncio.create_task(wait(first)), asyncio.create_task(wait(second))]
    await asyncio.sleep(0)
    assert hand_over(first, b"1") == 0  # this test is a task, too
    await tasks[0]

    seen: asyncio.Future[int] = loop.create_future()
    loop.call_soon(lambda: seen.set_result(hand_over(second, b"2")))
    assert await seen == 2
    await tasks[1]
    assert went_on == [b"1", b"2"]


async def test_a_task_that_waits_is_cancelled() -> None:
    waiter = AnswerWaiter(asyncio.get_running_loop())

    async def wait() -> Any:
        return await waiter

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
    assert waiter.done()
    assert not waiter.has_outcome


async def test_an_error_is_not_kept() -> None:
    class Local(RemoteError):
        pass

    kept: list[weakref.ref[Exception]] = []

    async def fail() -> None:
        waiter = AnswerWaiter(asyncio.get_running_loop())
        waiter.set_exception(Local(-1, "no"))
        try:
            await waiter
        except Local as error:
            kept.append(weakref.ref(error))

    gc.collect()
    gc.disable()
    try:
        await fail()
        assert kept[0]() is None
    finally:
        gc.enable()


async def test_it_belongs_to_the_loop_it_was_made_for() -> None:
    waiter = AnswerWaiter(asyncio.get_running_loop())

    async def wait() -> Any:
        return await waiter

    def elsewhere() -> None:
        asyncio.run(wait())

    with pytest.raises(RuntimeError, match="different loop"):
        await asyncio.to_thread(elsewhere)


if sys.version_info >= (3, 12):

    async def test_with_tasks_that_start_at_once() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            waiter = AnswerWaiter(loop)

            async def wait() -> bytes:
                return bytes(await waiter)

            task = asyncio.create_task(wait())
            loop.call_soon(waiter.hand_over, Raw(b"{}"))
            assert await task == b"{}"
        finally:
            loop.set_task_factory(None)
