"""A server by hand, for what no server of ours would do: answers out of order, errors at will, silence.

Speaks over a memory channel, synchronously. `handlers` give each method's answer; what has none is answered as a
server with one tool and one View would. Lives here: what more than one module of tests/apps/host needs of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from mcpd.errors import McpdError, ProtocolError
from mcpd.server.extensions.ui.constants import MIME_TYPE
from mcpd.transports.memory import pair

__all__ = ["HTML", "TOOL", "HandServer"]

HTML = "<!doctype html><title>x</title>"
TOOL = {"name": "t", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://w/v"}}}


class HandServer:
    """`near` is what a client connects to; `got` all that came, in order; `is_closed` whether the client has left."""

    def __init__(self, version: str = "2025-11-25", **handlers: Callable[[dict[str, Any]], None]) -> None:
        """Handlers by method, written with `__` for the slash."""
        self.version = version
        self.near, self._far = pair()
        self.handlers = {name.replace("__", "/"): handler for name, handler in handlers.items()}
        self.tools: list[dict[str, Any]] = [TOOL]
        self.html = HTML
        self.got: list[dict[str, Any]] = []
        self.is_closed = False
        self._arrived = asyncio.Event()
        self._far.start(self)

    def of(self, method: str) -> list[dict[str, Any]]:
        """The messages of a method so far."""
        return [message for message in self.got if message.get("method") == method]

    async def hears(self, method: str, count: int = 1) -> dict[str, Any]:
        """Await a message of this method, or the second, the third."""
        async with asyncio.timeout(60):
            while len(self.of(method)) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.of(method)[count - 1]

    # ------------------------------------------------------------------------------- what it says

    def send(self, message: dict[str, Any]) -> None:
        self._far.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def result(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        self.send({"id": request["id"], "result": result})

    def error(self, request: dict[str, Any], message: str = "no") -> None:
        self.send({"id": request["id"], "error": {"code": -32603, "message": message}})

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"method": method, **({} if params is None else {"params": params})})

    def tools_changed(self) -> None:
        self.notify("notifications/tools/list_changed")

    def view(self, request: dict[str, Any], html: str) -> None:
        """Answer a `resources/read` with this document."""
        contents = {"uri": request["params"]["uri"], "mimeType": MIME_TYPE, "text": html}
        self.result(request, {"contents": [contents]})

    # ------------------------------------------------------------------------------- what it hears

    def receive(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.got.append(message)
        self._arrived.set()
        method = message.get("method")
        if method in self.handlers:
            self.handlers[method](message)
        elif "id" not in message or method is None:
            return
        elif method == "initialize":
            offer = {"tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}}
            info = {"name": "hand", "version": "1"}
            self.result(message, {"protocolVersion": self.version, "capabilities": offer, "serverInfo": info})
        elif method == "ping":
            self.result(message, {})
        elif method == "tools/list":
            self.result(message, {"tools": self.tools})
        elif method == "resources/list":
            self.result(message, {"resources": []})
        elif method == "resources/read":
            self.view(message, self.html)
        else:
            self.send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})

    def receive_error(self, error: ProtocolError) -> None:
        """The client sent no message."""

    def closed(self, error: McpdError | None = None) -> None:
        self.is_closed = True
