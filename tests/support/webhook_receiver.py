"""A receiver of webhooks on the loopback, with TLS, which answers as a test says and keeps what it was sent."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from mcpd.server.extensions.events.webhook.send import Sender

__all__ = ["HOST", "Receiver", "Request", "certificate", "patient", "receiving", "reply", "trusting"]

HOST = "hooks.example.com"


class Request(Struct):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def id(self) -> str:
        """The `webhook-id`."""
        return self.headers.get("webhook-id", "")


Answer: TypeAlias = "bytes | Callable[[Request, asyncio.StreamWriter], Awaitable[None]]"


def reply(status: int = 200, body: bytes = b"{}", *headers: str) -> bytes:
    """An answer that keeps the connection."""
    lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@cache
def certificate() -> Path:
    """A certificate for the host of receivers, with its key; it signs itself. A child process has its parent's."""
    if found := os.environ.get("MCPD_RECEIVER"):
        return Path(found)
    path = Path(tempfile.mkdtemp(prefix="mcpd-receiver-")) / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "7",
         "-subj", "/CN=here", "-addext", f"subjectAltName=DNS:{HOST},DNS:*.{HOST},DNS:localhost",
         "-keyout", f"{path}.key", "-out", f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_bytes(Path(f"{path}.crt").read_bytes() + Path(f"{path}.key").read_bytes())
    return path


def trusting() -> ssl.SSLContext:
    """What a sender trusts that knows these receivers."""
    return ssl.create_default_context(cafile=f"{certificate()}.crt")


def patient(sender: Sender) -> Sender:
    """Let a sender wait as long as a busy machine may need."""
    sender.connect_seconds = sender.seconds = 600.0
    return sender


class Receiver:
    """`answer` decides; without one it accepts all, and echoes challenges."""

    def __init__(self) -> None:
        self.port = 0
        self.host = HOST
        self.requests: list[Request] = []
        self.connections = 0
        self.ended = 0
        self.tasks: set[asyncio.Task[Any] | None] = set()
        self.answer: Callable[[Request], Answer | None] = lambda request: None
        self._arrived = asyncio.Event()

    @property
    def origin(self) -> str:
        """Its URL without a path."""
        return f"https://{self.host}:{self.port}"

    @property
    def events(self) -> list[Request]:
        """The deliveries of events, in the order of their arrival."""
        return [each for each in self.requests if each.method == "POST" and "eventId" in each.json]

    def controls(self, kind: str) -> list[Request]:
        """The control bodies of a type."""
        return [each for each in self.requests if each.method == "POST" and each.json.get("type") == kind]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, looking after each request."""
        async with asyncio.timeout(60):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    async def resolve(self, host: str, port: int) -> list[str]:
        """The name service of a sender that knows this receiver only."""
        if host == self.host or host.endswith(f".{self.host}"):
            return ["127.0.0.1"]
        raise OSError("no such name")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self.connections += 1
        connection = self.connections
        self.tasks.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                request = Request(method, path, headers, body, connection)
                self.requests.append(request)
                self._arrived.set()
                answer = self.answer(request)
                if answer is None:
                    answer = self.usual(request)
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                else:
                    await answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            pass
        finally:
            self.ended += 1
            self._arrived.set()
            self.tasks.discard(asyncio.current_task())
            writer.transport.abort()  # the peer has gone: TLS would wait for its goodbye

    def usual(self, request: Request) -> bytes:
        """What a good receiver answers."""
        if request.method != "POST":
            return reply(404)
        found = request.json
        if found.get("type") == "verification":
            return reply(200, json.dumps({"challenge": found["challenge"]}).encode())
        return reply()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Run a receiver."""
    receiver = Receiver()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate())
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        left = [task for task in receiver.tasks if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for _ in range(20):
            await asyncio.sleep(0)  # closes what was aborted, or was still being opened
