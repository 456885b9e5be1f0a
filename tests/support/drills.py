"""For the drills: a server whose tools write down each of their runs, and clients of both eras that call it without a
pause and count what becomes of each call.

A client does what official ones do: what was lost with its connection, or refused by a proxy or a node that cannot
serve now, it sends again. Everything else that is no answer is an error, which a drill does not allow.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from support.clock import between_looks
from support.http_peer import Answer, Peer, Port, call, initialize, modern, post
from support.service_stage import Service, service

__all__ = ["SERVER", "Caller", "Journal", "Load", "drill", "hang_up", "loaded", "meta", "result_text"]

SERVER = '''
import asyncio, gc, os, sys
from pathlib import Path
from msgspec import Struct
from mcpd import Context, Server, ToolError

server = Server(os.environ.get("DRILL_NAME", "drill"))
folder = Path(os.environ["DRILL_FOLDER"])
journal = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(*words: object) -> None:
    os.write(journal, (" ".join(map(str, (*words, os.getpid()))) + "\\n").encode())

async def door(name: str) -> None:
    """Until a file of that name is there."""
    while name and not (folder / name).exists():
        await asyncio.sleep(0.005)

class Name(Struct):
    name: str

@server.tool
async def work(number: int, behind: str = "") -> str:
    """Gives its number back; `behind` is the file to wait for."""
    note("work", number)
    await door(behind)
    note("worked", number)
    return str(number)

@server.tool
async def count(number: int, steps: int, behind: str = "", *, ctx: Context) -> str:
    """Reports its process and each step; waits before the last."""
    note("count", number)
    for step in range(steps):
        if step == steps - 1:
            await door(behind)
        await ctx.progress(step + 1, total=os.getpid())
    return f"counted {steps}"

@server.tool
async def ask(number: int, *, ctx: Context) -> str:
    """Asks for a name."""
    note("ask", number)
    answer = await ctx.elicit("Who?", Name, key="name")
    note("asked", number)
    return f"Hello, {answer.content.name}!" if answer.is_accepted else answer.action

@server.tool
async def fail(number: int) -> str:
    """Fails, as it should."""
    note("fail", number)
    raise ToolError(f"{number} has failed")

@server.tool
async def pid() -> str:
    return str(os.getpid())

@server.tool
async def resident() -> str:
    """The memory of this process, in bytes."""
    return str(int((Path("/proc/self/statm")).read_text().split()[1]) * os.sysconf("SC_PAGESIZE"))

@server.tool
async def objects() -> str:
    """The sessions of this process, and its blocks of memory."""
    gc.collect()
    return f"{sum(type(one).__name__ == 'HttpSession' for one in gc.get_objects())} {sys.getallocatedblocks()}"

def nothing() -> None:
    """Nothing."""

@server.tool
async def change(name: str) -> str:
    """One tool more."""
    server.add_tool(nothing, name=name)
    return "changed"

server.add_text("drill://text", "", name="text")

@server.tool
async def touch() -> str:
    """The resource has changed."""
    server.resource_updated("drill://text")
    return "touched"
'''

REPEATED = (429, 502, 503, 504)
"""What an official client takes as a wish to try again."""


class Journal:
    """What the tools of all nodes have written."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Each line: what, its number, the process."""
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            what, number, process = line.split()
            yield what, int(number), int(process)

    async def has_of(self, process: int) -> None:
        """Until a tool has run in that process: what is before the nodes sends to it."""
        line, seen = f" {process}\n".encode(), b""
        async with asyncio.timeout(60):
            while not self.path.exists():
                await between_looks()
            with self.path.open("rb") as file:
                while line not in seen:
                    await between_looks()
                    seen = seen[-len(line) :] + file.read()  # it is long, and read only once

    def times(self, what: str) -> Counter[int]:
        """How often a tool has written that, by number."""
        return Counter(number for each, number, _ in self if each == what)


@contextmanager
def drill(child: Any, folder: Path, **more: Any) -> Iterator[tuple[Service, Journal]]:
    """Three nodes of `SERVER` behind nginx. `env` are more variables, all else as `service` has it."""
    (folder / "server.py").write_text(SERVER)

    env = {**child.env, "DRILL_FOLDER": str(folder), **more.pop("env", {})}
    with service(child.python, env, folder, folder / "server.py", **more) as served:
        yield served, Journal(folder)


def meta(answer: Answer) -> Any:
    """The last message of an answer, which is the one to the request."""
    return answer.messages[-1]


def result_text(answer: Answer) -> str:
    """The text of the tool result in an answer with 200."""
    assert answer.status == 200, (answer.status, answer.body)
    return str(meta(answer)["result"]["content"][0]["text"])


def hang_up(*ports: Port) -> None:
    """Close all connections of these clients."""
    for port in ports:
        while port._peers:
            port._peers.pop().abort()


class Caller:
    """One client: a session up to 2025-11-25 (`version`), or requests of 2026-07-28."""

    def __init__(self, port: Port, version: str, numbers: Iterator[int], counts: Counter[str]) -> None:
        self.port = port
        self.version = version
        self.session = ""
        self.numbers = numbers
        self.counts = counts
        self.headers: dict[str, str | None] = {}
        self.slowest = 0.0
        """The longest time that one request took, in seconds."""

    async def call(self, tool: str = "work", **arguments: Any) -> str:
        """Call a tool until it is answered; gives its text."""
        number = next(self.numbers)
        self.counts["calls"] += 1
        found = await self._until_answered({"name": tool, "arguments": {"number": number, **arguments}})
        self.counts["answers"] += 1
        return found if tool != "work" or found == str(number) else f"{number} was answered with {found}"

    async def _until_answered(self, params: dict[str, Any]) -> str:
        while True:
            if self.version < "2026" and not self.session:
                await self._open()

            answer = await self.send("tools/call", params)
            if answer is None:
                continue
            if answer.status == 200 and "result" in meta(answer):
                return result_text(answer)

            self.counts[f"error {answer.status} {answer.text[-300:]}"] += 1
            return str(params["arguments"]["number"])

    async def _open(self) -> None:
        while (answer := await self._try(post(initialize(self.version), self.headers))) is None:
            pass
        assert answer.status == 200, answer.body
        self.session = answer["mcp-session-id"]

    async def send(self, method: str, params: dict[str, Any]) -> Answer | None:
        """Send a request once; None if it may be sent again."""
        self.counts["sent"] += 1
        if self.version >= "2026":
            return await self._try(modern(method, params, self.headers))
        return await self._try(post(call(method, params), self.session_headers))

    @property
    def session_headers(self) -> dict[str, str | None]:
        """Of a session that is open."""
        return {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version, **self.headers}

    async def _try(self, data: bytes) -> Answer | None:
        began = time.monotonic()
        peer: Peer | None = None
        try:
            peer = await self.port.connect()
            answer = await peer.ask(data)
        except (OSError, asyncio.IncompleteReadError):
            self.counts["lost"] += 1
            return None
        finally:
            self.slowest = max(self.slowest, time.monotonic() - began)
            if peer is not None:
                peer.abort()
                self.port._peers.remove(peer)

        if answer.status in REPEATED:
            self.counts[f"refused {answer.status}"] += 1
            return None
        return answer


class Load:
    """Clients that call until they are stopped. `counts` has calls and answers, and what was sent again, and why.

    With `pauses` each waits a little between two calls: else they take the cores from nodes that start.
    """

    def __init__(self, port: Port, versions: Sequence[str], pauses: bool = False) -> None:
        self._pauses = pauses
        self.counts: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._is_over = False
        self._answered = asyncio.Condition()
        self.callers = [Caller(port, version, self._numbers, self.counts) for version in versions]
        self._tasks = [asyncio.ensure_future(self._go_on(caller)) for caller in self.callers]

    async def _go_on(self, caller: Caller) -> None:
        while not self._is_over:
            text = await caller.call()
            if " " in text:
                self.counts[f"error {text}"] += 1

            async with self._answered:
                self._answered.notify_all()
            if self._pauses:
                await between_looks()

    async def more(self, number: int) -> None:
        """Until so many more calls are answered."""
        goal = self.counts["answers"] + number

        async with asyncio.timeout(60), self._answered:
            await self._answered.wait_for(lambda: self.counts["answers"] >= goal or self._has_failed())

    def _has_failed(self) -> bool:
        return any(task.done() and task.exception() is not None for task in self._tasks)

    async def stop(self) -> None:
        """Let all come to the end of their call."""
        self._is_over = True
        async with asyncio.timeout(60):
            await asyncio.gather(*self._tasks)

    @property
    def errors(self) -> list[str]:
        """What no client may see."""
        return [name for name in self.counts if name.startswith("error")]

    @property
    def repeats(self) -> int:
        """How often something was sent again."""
        return sum(count for name, count in self.counts.items() if name == "lost" or name.startswith("refused"))


@asynccontextmanager
async def loaded(
    port: Port,
    versions: Sequence[str] = ("2025-06-18", "2025-11-25", "2026-07-28", "2026-07-28"),
    *,
    pauses: bool = False,
) -> AsyncIterator[Load]:
    """Clients of these versions call while this is entered; at the end each call was answered, and none by an error."""
    load = Load(port, versions, pauses)
    try:
        await load.more(len(versions))
        yield load
        await load.stop()
    finally:
        for task in load._tasks:
            task.cancel()
    assert not load.errors, load.counts
    assert load.counts["calls"] == load.counts["answers"] > 0
