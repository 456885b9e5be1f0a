"""One HTTP request to an ASGI application and what came of it, read as it comes: JSON, events, or plain text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

_Message: TypeAlias = MutableMapping[str, Any]
_App: TypeAlias = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Any]


class Exchange:
    """A request with this body; each JSON-RPC message of its answer is handed to `deliver`."""

    def __init__(self, body: bytes, deliver: Callable[[bytes], None]) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        """What of an answer that is no event stream came."""
        self.last_message = b""
        """The last JSON-RPC message that was delivered."""
        self.last_event_id = b""
        """Where a stream can be resumed; empty if it cannot."""

        self.taken = asyncio.Event()
        """The application has all of the request, and did what it does with it at once."""
        self.begun = asyncio.Event()
        """The head of the answer has come."""
        self.over = asyncio.Event()
        """The answer is whole, or the client has left."""
        self._left = asyncio.Event()
        self._to_send: bytes | None = body
        self._deliver = deliver
        self._rest = b""

    @property
    def has_left(self) -> bool:
        """The client has closed the connection."""
        return self._left.is_set()

    @property
    def has_answered(self) -> bool:
        """A JSON-RPC message has come."""
        return bool(self.last_message)

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()
        self.over.set()

    async def run(self, app: _App, scope: _Message) -> None:
        """Let the application answer."""
        try:
            await app(scope, self._receive, self._send)
        finally:
            # Whatever the application did, nobody waits for ever.
            for event in (self.taken, self.begun, self.over, self._left):
                event.set()

    async def _receive(self) -> _Message:
        if self._to_send is not None:
            body, self._to_send = self._to_send, None
            asyncio.get_running_loop().call_soon(self.taken.set)
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: _Message) -> None:
        if self.has_left:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {bytes(name).lower(): bytes(value) for name, value in message.get("headers", ())}
            self.begun.set()
            return
        self._take(bytes(message.get("body", b"")), is_last=not message.get("more_body", False))

    def _take(self, chunk: bytes, *, is_last: bool) -> None:
        kind = self.headers.get(b"content-type", b"")
        if kind.startswith(b"text/event-stream"):
            *events, self._rest = (self._rest + chunk).split(b"\n\n")
            for event in events:
                self._read_event(event)
        else:
            self.body += chunk
            if is_last and kind.startswith(b"application/json") and b'"jsonrpc"' in self.body:
                self.last_message = self.body
                self._deliver(self.body)
        if is_last:
            self.over.set()
            self._left.set()

    def _read_event(self, event: bytes) -> None:
        data = []
        for line in event.split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"id":
                self.last_event_id = value.removeprefix(b" ")
            elif name == b"data":
                data.append(value.removeprefix(b" "))
        message = b"\n".join(data)
        if message:
            self.last_message = message
            self._deliver(message)
