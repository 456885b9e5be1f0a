"""A server in memory that says what a test tells it, and the client that is connected to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcpd import Callbacks, Client
from mcpd.transports.memory import MemoryChannel, pair

META = "io.modelcontextprotocol/"


class Script:
    """A server that says what a test tells it: `answer` maps a method to a result, an exception or None (silence)."""

    def __init__(self, channel: MemoryChannel, answers: dict[str, Any]) -> None:
        self.channel = channel
        self.answers = answers
        self.heard: list[Any] = []
        self.replies: dict[Any, asyncio.Future[Any]] = {}
        channel.start(self)

    def receive(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.heard.append(message)
        if "method" not in message:
            self.replies.pop(message["id"]).set_result(message)
            return
        answer = self.answers.get(message["method"])
        if callable(answer):
            answer = answer(message)
        if "id" not in message or answer is None:
            return
        body = {"error": answer} if "code" in answer else {"result": answer}
        self.say({"id": message["id"], **body})

    def receive_error(self, error: Exception) -> None:
        raise AssertionError(error)

    def closed(self, error: Exception | None = None) -> None:
        pass

    def say(self, message: Any) -> None:
        self.channel.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def ask(self, request_id: Any, method: str, params: Any) -> asyncio.Future[Any]:
        self.replies[request_id] = asyncio.get_running_loop().create_future()
        self.say({"id": request_id, "method": method, "params": params})
        return self.replies[request_id]

    def of(self, method: str) -> list[Any]:
        return [message for message in self.heard if message.get("method") == method]


INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "old", "version": "1"},
}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "_meta": {f"{META}serverInfo": {"name": "new", "version": "1"}},
}
NOT_FOUND = {"code": -32601, "message": "Method not found"}


@asynccontextmanager
async def scripted(
    answers: dict[str, Any],
    callbacks: Callbacks | None = None,
    begins: Callable[[Script], None] = lambda script: None,
    **options: Any,
) -> AsyncIterator[tuple[Client, Script]]:
    """A client and its server; `begins` is told of the server before anything is asked."""
    near, far = pair()
    script = Script(far, answers)
    begins(script)
    client = Client(near, callbacks or Callbacks(), **options)
    client.probe_seconds = 0.05
    async with client:
        yield client, script
