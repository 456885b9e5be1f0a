"""A long day in a few minutes: clients of every transport come, call, cancel, subscribe, answer questions, and go.

    make soak                          ten minutes
    make soak SOAK_ARGS="--minutes 1"  less

At the end what was sent has to add up to what came back, and memory, descriptors and threads to what they were in
the middle. Exit code 1 if they do not. Half of the HTTP clients leave their session behind, which then ends for being
idle: after half a minute here, as in half an hour there would be as many as clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hostile.serving import Served, frame, post, reset, upgrade

REPOSITORY = Path(__file__).resolve().parent.parent.parent
TARGET = str(REPOSITORY / "conformance" / "everything.py")
VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {}}
TOOLS = ("test_simple_text", "test_tool_with_progress", "test_error_handling", "crash", "nobody")
TIMEOUT = 60.0
SESSION_TIMEOUT = 30
PARTS = 4

# What may stay behind: caches, the allocator's pieces, connections that are just ending.
MORE_MEMORY = 12 * 1024 * 1024
MORE_DESCRIPTORS = 16
MORE_THREADS = 8

counts: Counter[str] = Counter()


class Client:
    """What every client does; a subclass knows how its messages travel."""

    def __init__(self, seed: random.Random) -> None:
        self.random = seed
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0

    async def send(self, message: Any) -> None:
        raise NotImplementedError

    def take(self, message: Any) -> dict[str, Any] | None:
        """One message of the server; gives the answer if it is a question."""
        if "method" in message:
            if "id" not in message:
                counts["notifications heard"] += 1
                return None
            counts["questions answered"] += 1
            result = {"action": "accept", "content": {}} if "elicit" in message["method"] else {"roots": []}
            return {"jsonrpc": "2.0", "id": message["id"], "result": result}
        waiting = self.waiting.pop(message["id"], None)
        if waiting is None:
            counts["answers that nobody waits for"] += 1
        elif not waiting.done():
            waiting.set_result(message)
        return None

    async def ask(self, method: str, **params: Any) -> Any:
        """A request and its answer."""
        return await self.answer(*await self.begin(method, **params))

    async def begin(self, method: str, **params: Any) -> tuple[int, asyncio.Future[Any]]:
        self._next_id += 1
        request_id = self._next_id
        future = self.waiting[request_id] = asyncio.get_running_loop().create_future()
        counts["sent"] += 1
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return request_id, future

    async def answer(self, request_id: int, future: asyncio.Future[Any]) -> Any:
        try:
            async with asyncio.timeout(TIMEOUT):
                message = await future
        except TimeoutError:
            counts["never answered"] += 1
            self.waiting.pop(request_id, None)
            return None
        counts["answered"] += 1
        return message

    async def live(self, rounds: int) -> None:
        """One life: hello, some calls of every kind, and the end of it."""
        params = {"protocolVersion": self.random.choice(VERSIONS), "capabilities": CAPABILITIES,
                  "clientInfo": {"name": "soak", "version": "1"}}  # fmt: skip
        await self.ask("initialize", **params)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        for _ in range(rounds):
            await self.random.choice((self.call, self.call, self.call, self.cancel, self.subscribe, self.question))()

    async def call(self) -> None:
        name = self.random.choice(
            ["test_simple_text", "test_tool_with_progress", "test_error_handling", "crash", "nobody"]
        )
        asked = [await self.begin("tools/call", name=name) for _ in range(self.random.randrange(1, 6))]
        asked.append(await self.begin(self.random.choice(["ping", "tools/list", "resources/list", "no/such"])))
        for one in asked:
            await self.answer(*one)

    async def cancel(self) -> None:
        request_id, _ = await self.begin("tools/call", name="wait_for_ever")
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
        self.waiting.pop(request_id)
        counts["cancelled"] += 1

    async def subscribe(self) -> None:
        for method in ("resources/subscribe", "resources/unsubscribe"):
            await self.ask(method, uri="test://watched-resource")
            await self.ask(
                "tools/call", name="test_trigger_resource_update", arguments={"uri": "test://watched-resource"}
            )

    async def question(self) -> None:
        await self.ask("tools/call", name="test_elicitation", arguments={"message": "Well?"})


class WebSocketClient(Client):
    async def run(self, server: Served, rounds: int) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", server.port)
        self._writer.write(upgrade(server.host))
        await reader.readuntil(b"\r\n\r\n")
        reading = asyncio.create_task(self._read(reader))
        try:
            await self.live(rounds)
        finally:
            reading.cancel()
            if self.random.random() < 0.5:
                reset(self._writer.get_extra_info("socket").dup())
            self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            first, length = await reader.readexactly(2)
            if length >= 126:
                length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
            payload = await reader.readexactly(length)
            if first & 15 == 9:
                self._writer.write(frame(10, payload))
            elif first & 15 == 1 and (answer := self.take(json.loads(payload))) is not None:
                await self.send(answer)

    async def send(self, message: Any) -> None:
        self._writer.write(frame(1, json.dumps(message).encode()))
        await self._writer.drain()


class HttpClient(Client):
    """A session: a POST for each message, each on a connection of its own."""

    async def run(self, server: Served, rounds: int) -> None:
        self._server = server
        self._session: tuple[bytes, ...] = ()
        self._posts: set[asyncio.Task[None]] = set()
        try:
            await self.live(rounds)
            if self.random.random() < 0.5:
                ending = b"DELETE /mcp HTTP/1.1\r\n%b%b\r\nConnection: close\r\n\r\n"
                await self._exchange(ending % (server.host, b"".join(self._session)))
        finally:
            for task in self._posts:
                task.cancel()

    async def send(self, message: Any) -> None:
        task = asyncio.create_task(self._post(message))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)
        if "id" not in message or message.get("method") == "initialize":
            await task

    async def _post(self, message: Any) -> None:
        await self._exchange(
            post(self._server.host, json.dumps(message).encode(), *self._session, b"Connection: close")
        )

    async def _exchange(self, data: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        try:
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"mcp-session-id:"):
                    self._session = (line,)
            if b"text/event-stream" in head.lower():
                async for line in reader:
                    if line.startswith(b"data:") and line[5:].strip():
                        await self._took(json.loads(line[5:]))
            elif (body := await reader.read()) and b"application/json" in head.lower():
                await self._took(json.loads(body))
        finally:
            writer.close()

    async def _took(self, message: Any) -> None:
        if (answer := self.take(message)) is not None:
            await self.send(answer)


class StdioClient(Client):
    """A process of its own, which has to end with its input."""

    async def run(self, server: Served, rounds: int) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mcpd", "serve", "--stdio", TARGET,
            stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, cwd=REPOSITORY, limit=1 << 24,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        self._writer = process.stdin
        reading = asyncio.create_task(self._read(process.stdout))
        try:
            await self.live(rounds * 10)
            self._writer.close()
            async with asyncio.timeout(TIMEOUT):
                counts["processes that failed"] += await process.wait() != 0
        finally:
            reading.cancel()
            if process.returncode is None:
                process.kill()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            if (answer := self.take(json.loads(line))) is not None:
                await self.send(answer)

    async def send(self, message: Any) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()


async def visit(kind: type[Any], server: Served, seed: random.Random, until: float) -> None:
    """One client after the other, until it is time."""
    while time.monotonic() < until:
        try:
            await kind(seed).run(server, seed.randrange(1, 8))
            counts["lives"] += 1
        except Exception as error:
            counts["lives that failed"] += 1
            print(f"soak: {kind.__name__}: {error!r}", flush=True)


def measure(server: Served, when: str) -> tuple[int, int, int]:
    found = server.memory, server.descriptors, server.threads
    print(f"soak: {when}: {found[0] / 1e6:.1f} MB, {found[1]} descriptors, {found[2]} threads", flush=True)
    return found


async def soak(server: Served, minutes: float, seed: str) -> list[str]:
    """Run it; gives what is wrong."""
    print(f"soak: {minutes:g} minutes, seed {seed}", flush=True)
    measure(server, "start")
    middle = (0, 0, 0)
    for part in range(1, PARTS + 1):
        until = time.monotonic() + minutes * 60 / PARTS
        kinds = [WebSocketClient, WebSocketClient, HttpClient, HttpClient, StdioClient]
        seeds = [random.Random(f"{seed} {part} {number}") for number in range(len(kinds))]
        await asyncio.gather(*(visit(kind, server, one, until) for kind, one in zip(kinds, seeds, strict=True)))
        await asyncio.sleep(1)  # for what has just been reset
        found = measure(server, f"{part} of {PARTS}")
        if part == PARTS // 2:
            middle = found
    for name, count in sorted(counts.items()):
        print(f"soak: {name}: {count}", flush=True)
    wrong = [name for name in ("never answered", "answers that nobody waits for", "lives that failed",
                               "processes that failed") if counts[name]]  # fmt: skip
    if counts["sent"] != counts["answered"] + counts["cancelled"] or not counts["answered"]:
        wrong.append(f"{counts['sent']} sent, {counts['answered']} answered, {counts['cancelled']} cancelled")
    for what, was, now, more in zip(("bytes", "descriptors", "threads"), middle, found,
                                    (MORE_MEMORY, MORE_DESCRIPTORS, MORE_THREADS), strict=True):  # fmt: skip
        if now > was + more:
            wrong.append(f"{now} {what} in the end, {was} in the middle")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default=str(time.time_ns()))
    options = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    server = Served(
        [sys.executable, "-m", "mcpd", "serve", "--http", ":0", "--session-timeout", str(SESSION_TIMEOUT), TARGET],
        environment,
    )
    try:
        wrong = asyncio.run(soak(server, options.minutes, options.seed))
        log = server.end()
    finally:
        if server.process.poll() is None:
            server.process.kill()
    if "crash" not in log or log.count("Traceback") > 2000:
        wrong.append("the log is not as it should be")
    for text in wrong:
        print(f"soak: WRONG: {text}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
