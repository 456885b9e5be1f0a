"""The way of an answer to its caller: what it does not overtake."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import weakref
from collections.abc import Coroutine
from typing import Any

from mcpd import Callbacks, Client
from mcpd.errors import RemoteError
from mcpd.transports.stdio import StdioChannel


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


async def test_an_error_is_not_kept_by_what_waited_for_it() -> None:
    server = Scripted()
    kept: list[weakref.ref[RemoteError]] = []

    async def script() -> None:
        await server.handshake()
        for _ in range(2):
            server.say({"id": await server.asked("tools/call"), "error": {"code": -32000, "message": "no"}})

    async def use(client: Client) -> None:
        for _ in range(2):
            try:
                await client.call("x")
            except RemoteError as error:
                kept.append(weakref.ref(error))
        assert kept[0]() is None

    gc.collect()
    gc.disable()
    try:
        await with_client(script(), server, use, Callbacks())
    finally:
        gc.enable()
        server.close()
