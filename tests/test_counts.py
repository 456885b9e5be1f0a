"""What a call costs in counts that do not scatter: steps, system calls, turns of the loop, memory; and what a start
imports.

Times are for `make bench`, on a quiet machine. A change that adds a step to each call shows here, wherever it runs.
Recorded is what was found, with little room: who makes it less writes the new number down (reference/performance.md).
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import pytest
from conftest import Child
from support.http_peer import Session, envelope, modern, serving
from support.profiled import profiled
from support.wires import LEGACY, MODERN, OpenWire, stdio_wire, websocket_wire
from test_imports import PLAIN_SERVER, loaded_at_start

import mcpd
from mcpd import CatalogEntry, Context, Principal, Server, TaskSettings
from mcpd.auth import StaticTokens

Most: TypeAlias = tuple[float, float, float, float]
"""Steps, system calls, turns of the loop, and calls of sockets for one call."""

PACKAGE = str(Path(mcpd.__file__).parent)
SYSTEM = {"posix", "nt", "select"}
SOCKET = {"send", "sendmsg", "recv", "recv_into"}
TURN = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
CALLS = 64
GARDEN = Path(__file__).parents[1] / "examples" / "garden"
HELD_BLOCKS = str(Path(__file__).parent / "support" / "held_blocks.py")


class Counts:
    """Of the loop's thread: how often a function of mcpd is entered or resumed, how often one asks the system, how
    often the loop turns, and how often anybody reads or writes a socket, whose other end is in the same process."""

    def __init__(self) -> None:
        self.by_function: Counter[str] = Counter()
        self.system = 0
        self.turns = 0
        self.sockets = 0
        self._is_ours: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        is_ours = self._is_ours.get(code)
        if is_ours is None:
            is_ours = self._is_ours[code] = code.co_filename.startswith(PACKAGE)
        if event == "call":
            if is_ours:
                self.by_function[code.co_qualname] += 1
            self.turns += code is TURN
        elif event == "c_call":
            self.system += is_ours and getattr(argument, "__module__", None) in SYSTEM
            self.sockets += argument.__name__ in SOCKET and isinstance(argument.__self__, socket.socket)

    def check(self, most: Most, calls: int = CALLS) -> None:
        """Of 64 calls: no more for each than recorded."""
        found = (self.by_function.total() / calls, self.system / calls, self.turns / calls, self.sockets / calls)
        print(f"{found[0]:.1f} steps, {found[1]:.2f} system calls, {found[2]:.2f} turns, {found[3]:.2f} of sockets")
        is_kept = all(one <= limit for one, limit in zip(found, most, strict=True))
        assert is_kept, f"{found} is more than {most}, in {calls} calls of {self.by_function.most_common()}"


@contextmanager
def counting() -> Iterator[Counts]:
    counts = Counts()
    with profiled(counts):
        yield counts


# (the wire, version, tool, how many at a time): the most for 64 calls. Of an end in the same process some turns, and
# half of what sockets are asked, are the client's.
ROWS: list[tuple[OpenWire, str, str, int, Most]] = [
    (stdio_wire, LEGACY[-1], "echo", 1, (26.5, 2, 5.5, 0)),
    (stdio_wire, LEGACY[-1], "echo", 64, (22.5, 0.1, 0.1, 0)),
    (stdio_wire, MODERN, "echo", 1, (28.5, 2, 5.5, 0)),
    (stdio_wire, MODERN, "echo", 64, (24.5, 0.1, 0.1, 0)),
    (stdio_wire, LEGACY[-1], "plain", 1, (36.5, 4, 8.5, 2.5)),
    (stdio_wire, LEGACY[-1], "plain", 64, (31, 0.2, 0.5, 0.5)),
    (websocket_wire, LEGACY[-1], "echo", 1, (29.5, 0, 6.5, 4)),
    (websocket_wire, LEGACY[-1], "echo", 64, (23.5, 0, 0.2, 1.5)),
]


@pytest.mark.parametrize(("open_wire", "version", "tool", "together", "most"), ROWS)
async def test_a_call_takes_no_more_than_recorded(
    open_wire: OpenWire, version: str, tool: str, together: int, most: Most
) -> None:
    server = Server("counts")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    def plain(text: str) -> str:
        return text

    async with open_wire(server, version) as wire:

        async def calls(count: int) -> None:
            for _ in range(count // together):
                asked = [wire.ask("tools/call", {"name": tool, "arguments": {"text": "a"}}) for _ in range(together)]
                for one in asked:
                    assert (await wire.answer(one))["result"]["content"][0]["text"] == "a"

        await calls(2 * CALLS)  # the first calls make what is kept
        with counting() as counts:
            await calls(CALLS)
    counts.check(most)


# (in a session, what the client sends beside a call): what is counted of one POST.
POSTS: list[tuple[bool, str, Most]] = [
    (True, "nothing", (77.5, 0, 4.5, 4)),
    (False, "nothing", (71.5, 0, 4.5, 4)),
    (True, "a token", (85.5, 0, 4.5, 4)),
    (False, "a token", (79.5, 0, 4.5, 4)),
    (True, "a wish for progress", (146.5, 0, 4.5, 4)),
    (False, "a wish for progress", (106.5, 0, 4.5, 4)),
]


@pytest.mark.parametrize(("in_a_session", "sends", "most"), POSTS)
async def test_a_post_takes_no_more_than_recorded(in_a_session: bool, sends: str, most: Most) -> None:
    """With a wish for progress the answer is an event stream, of three messages and the result."""
    has_token, has_events = sends == "a token", sends == "a wish for progress"
    server = Server("counts", auth=StaticTokens({"t" * 32: Principal("ada")}) if has_token else None)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def steps(text: str, ctx: Context) -> str:
        for number in range(3):
            await ctx.progress(number + 1, total=3, message="on the way")
        return text

    headers: dict[str, str | None] = {"Authorization": "Bearer " + "t" * 32} if has_token else {}
    call: dict[str, Any] = {"name": "steps" if has_events else "echo", "arguments": {"text": "a"}}
    meta = {"progressToken": "p"} if has_events else {}
    async with serving(server) as port:
        session = Session(port, LEGACY[-1]) if in_a_session else None
        if session is not None:
            session.extra = headers
            await session.open()
        peer = await port.connect()

        async def calls(count: int) -> None:
            for number in range(count):
                if session is None:
                    peer.send(modern("tools/call", call, headers, meta=envelope() | meta))
                else:
                    asked = {**call, "_meta": meta} if meta else call
                    message = {"jsonrpc": "2.0", "id": number + 9, "method": "tools/call", "params": asked}
                    peer.send(session.bytes(message))
                answer = await peer.answer()
                assert answer.status == 200
                assert b'"a"' in answer.body
                assert answer.body.count(b"notifications/progress") == (3 if has_events else 0)

        await calls(2 * CALLS)
        with counting() as counts:
            await calls(CALLS)
    counts.check(most)


# Who may see 1,000 tools is decided by a rule, asked about each: the most for one list.
LISTS: list[tuple[str, Most]] = [
    ("nothing", (28.5, 8, 9, 0)),
    ("async def", (3043.5, 4, 6.5, 0)),
    ("def", (56.5, 6, 9.5, 2.5)),
]


@pytest.mark.parametrize(("rule", "most"), LISTS)
async def test_a_list_of_1000_takes_no_more_than_recorded(rule: str, most: Most) -> None:
    server = Server("counts")
    for number in range(1000):

        async def tool(text: str) -> str:
            return text

        tool.__name__ = f"tool{number}"
        server.tool(tags={"even" if number % 2 == 0 else "odd"})(tool)

    def seen(entry: CatalogEntry, ctx: Context) -> bool:
        return "even" in entry.tags

    async def seen_later(entry: CatalogEntry, ctx: Context) -> bool:
        return "even" in entry.tags

    if rule != "nothing":
        server.visibility(seen if rule == "def" else seen_later)

    async with stdio_wire(server, LEGACY[-1]) as wire:

        async def lists(count: int) -> None:
            for _ in range(count):
                tools = (await wire.request("tools/list"))["result"]["tools"]
                assert len(tools) == (1000 if rule == "nothing" else 500)

        await lists(3)
        with counting() as counts:
            await lists(16)
    counts.check(most, 16)


# (version, the tool): how many blocks of memory a call holds while it waits; a blocking one 48 to 52, by the
# threads that are free.
HELD = {(LEGACY[-1], "waits"): 21, (MODERN, "waits"): 25, (LEGACY[-1], "blocks"): 54}


def test_a_call_that_waits_holds_no_more_memory_than_recorded(child: Child) -> None:
    rows = [text for row in HELD for text in row]
    counted = subprocess.run(
        [child.python, HELD_BLOCKS, *rows], env=child.env, capture_output=True, text=True, timeout=100, check=True
    )  # fmt: skip
    found = dict(zip(HELD, map(float, counted.stdout.split()), strict=True))
    print(found)
    assert all(found[row] <= most for row, most in HELD.items()), f"{found} is more than {HELD}"


@pytest.mark.parametrize(("target", "most"), [("starter", 109), ("file", 88), ("folder", 137)])
def test_a_start_imports_no_more_than_recorded(child: Child, tmp_path: Path, target: str, most: int) -> None:
    (tmp_path / "plain.py").write_text(PLAIN_SERVER, encoding="utf-8")
    targets = {"starter": [], "file": [str(tmp_path / "plain.py")], "folder": [str(GARDEN)]}
    loaded = loaded_at_start(child, *targets[target])
    ours = sum(name.startswith("mcpd") for name in loaded)
    print(len(loaded), ours)
    assert ours <= most


# What a client asks of a task, and what it is compared with: the most for one request over stdio.
TASKS: list[tuple[str, Most]] = [
    ("a plain call", (28.5, 2, 5.5, 0)),
    ("a task from its creation to its end", (143.5, 3, 6.5, 0)),  # one of the system calls is for the id
    ("ping", (16.5, 2, 3.5, 0)),
    ("tasks/get", (23.5, 2, 3.5, 0)),
]


@pytest.mark.parametrize(("what", "most"), TASKS)
async def test_a_task_takes_no_more_than_recorded(what: str, most: Most) -> None:
    """tasks-and-scale 1.8: reading a task that works costs at most half as much again as a ping."""
    server = Server("counts", tasks=TaskSettings(running_each=8, kept_each=10_000))
    server.tool(name="plain")(nothing)
    server.tool(name="task", task="required")(nothing)
    gate = asyncio.Event()
    server.tool(name="wait", task="required")(gate.wait)
    async with stdio_wire(server, LEGACY[-1]) as wire:
        params: dict[str, Any] = {"name": "wait", "arguments": {}, "task": {}}
        task_id = (await wire.result("tools/call", params))["task"]["taskId"]

        async def calls(count: int) -> None:
            for _ in range(count):
                if what == "ping":
                    await wire.result("ping")
                elif what == "tasks/get":
                    await wire.result("tasks/get", {"taskId": task_id})
                elif what == "a plain call":
                    await wire.call("plain")
                else:
                    await wire.result("tools/call", {"name": "task", "arguments": {}, "task": {}})

        await calls(2 * CALLS)
        with counting() as counts:
            await calls(CALLS)
        gate.set()
    counts.check(most)


async def nothing() -> str:
    return ""
