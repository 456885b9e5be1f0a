"""A server whose tools run in processes, for `tests/server/processes`. Each reports its process id once it runs."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from mcpd import Context, Depends, Server, SyncContext, sample, text, view_result
from mcpd.errors import LocalProtocolError, ToolError
from mcpd.types import CallToolResult


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[dict[str, int]]:
    """Something that each process opens for itself."""
    yield {"opened by": os.getpid()}


server = Server("processes", lifespan=lifespan, show_errors=True)
notes = server.extension("com.example/notes")
notes.may_notify("com.example/notes/found")


@server.tool(process=True)
def add(a: int, b: int) -> int:
    return a + b


@server.tool(process=True)
async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@server.tool(process=True)
def pid() -> int:
    return os.getpid()


@server.tool(process=True, calls=1)
def fresh_pid() -> int:
    return os.getpid()


# -- tools that do not end -----------------------------------------------------------------------


@server.tool(process=True)
def spin(ctx: SyncContext, mark: str = "") -> str:
    """Never end, and never let go of the interpreter for long."""
    try:
        ctx.progress(os.getpid())
        while True:
            pass
    finally:
        if mark:
            Path(mark).write_text("spin")


@server.tool(process=True)
def sleep_in_c(ctx: SyncContext, mark: str = "") -> str:
    try:
        ctx.progress(os.getpid())
        time.sleep(3600)
    finally:
        if mark:
            Path(mark).write_text("sleep_in_c")
    return "never"


@server.tool(process=True)
async def sleep_later(ctx: Context, mark: str = "") -> str:
    try:
        await ctx.progress(os.getpid())
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)  # what is awaited here is awaited
        if mark:
            Path(mark).write_text("sleep_later")
    return "never"


@server.tool(process=True)
async def spin_later(ctx: Context, mark: str = "") -> str:
    """A coroutine that never gives the event loop a turn."""
    try:
        await ctx.progress(os.getpid())
        while True:
            pass
    finally:
        if mark:
            Path(mark).write_text("spin_later")


@server.tool(process=True)
def hold(ctx: SyncContext, mark: str = "") -> str:
    """C code that never lets go of the interpreter: no signal handler runs, and no `finally` block."""
    ctx.progress(os.getpid())
    return str(re.match(r"(a|a)*b", "a" * 200 + mark))


@server.tool(process=True)
async def swallow(ctx: Context) -> str:
    """A coroutine that ignores its cancellation."""
    await ctx.progress(os.getpid())
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@server.tool(process=True)
def parents(ctx: SyncContext) -> str:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as child:
        ctx.progress(child.pid)
        child.wait()
    return "never"


@server.tool(process=True, timeout=0.2)
def too_long() -> str:
    time.sleep(3600)
    return "never"


@server.tool(process=True, timeout=0.2)
async def too_long_later() -> str:
    await asyncio.Event().wait()
    return "never"


# -- tools that leave something behind ------------------------------------------------------------


@server.tool(process=True)
def fork(how: str) -> int:
    """Fork a child that goes on in this function; the exit code of the child."""
    child = os.fork()
    if child == 0:
        if how == "raises":
            os.execvp("no-such-program", ["no-such-program"])
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


_left: list[threading.Thread] = []
_speaks = threading.Event()


@server.tool(process=True)
def leave_a_thread(ctx: SyncContext) -> str:
    def speak() -> None:
        _speaks.wait()
        ctx.progress(7, message="of the first call")
        ctx.log("error", "of the first call")
        try:
            ctx.list_roots()
        except LocalProtocolError as error:
            _said.append(str(error))

    _left.append(threading.Thread(target=speak))
    _left[-1].start()
    return "left"


@server.tool(process=True)
def leave_a_question(ctx: SyncContext) -> str:
    threading.Thread(target=ctx.list_roots, daemon=True).start()
    return str(ctx.elicit("Who?", str, key="who").get())


_said: list[str] = []


@server.tool(process=True)
def let_it_speak(ctx: SyncContext) -> str:
    ctx.progress(1)
    _speaks.set()
    _left.pop().join()
    ctx.progress(2)
    return _said.pop()


# -- tools that end badly ------------------------------------------------------------------------


@server.tool(process=True)
def crash(how: str) -> str:
    if how == "exit":
        os._exit(3)
    if how == "abort":
        ctypes.CDLL(None).abort()
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(3600)
    return "never"


@server.tool(process=True)
async def crash_later() -> str:
    os._exit(0)


@server.tool(process=True, memory="200M")
def grow(ctx: SyncContext) -> str:
    ctx.progress(os.getpid())
    kept = bytearray(b"x" * (300 << 20))
    time.sleep(3600)
    return str(len(kept))


@server.tool(process=True)
def fail(kind: str) -> str:
    if kind == "tool":
        raise ToolError("it is raining")
    if kind == "exit":
        sys.exit("enough")
    if kind == "group":
        raise ExceptionGroup("both", [ToolError("one"), ToolError("two")])
    raise LookupError(f"no {kind}")


# -- results -------------------------------------------------------------------------------------


@server.tool(process=True)
def echo(text: str) -> str:
    return text


@server.tool(process=True)
def large(size: int) -> str:
    return "x" * size


@server.tool(process=True, structured_output=False)
def only_text() -> dict[str, int]:
    return {"a": 1}


@server.tool(process=True)
def by_hand() -> CallToolResult:
    return CallToolResult(content=[text("made")], structured_content={"a": [1]}, is_error=True)


@server.tool(process=True, view="table")
def for_view() -> CallToolResult:
    return view_result("for the model", {"for": "the View"})


@server.tool(process=True)
def descriptors() -> dict[str, str]:
    """What this process has open."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # of the listing itself
    return found


@server.tool(process=True)
def shout() -> str:
    print("python says so")
    os.write(1, b"the system call says so\n")
    subprocess.run(["echo", "the program says so"], check=True)
    return repr(sys.stdin.read())


# -- the context ---------------------------------------------------------------------------------


@server.tool(process=True)
def report(ctx: SyncContext) -> dict[str, Any]:
    """Plain: everything that is said, and the request as it is seen here."""
    for number in range(1, 4):
        ctx.progress(number, 3, f"step {number}")
    ctx.info({"at": "work"})
    return _seen(ctx)


@server.tool(process=True)
async def report_later(ctx: Context) -> dict[str, Any]:
    for number in range(1, 4):
        await ctx.progress(number, 3, f"step {number}")
    await ctx.info({"at": "work"})
    return _seen(ctx)


def _seen(ctx: Any) -> dict[str, Any]:
    return {
        "version": ctx.protocol_version,
        "client": ctx.client_info and ctx.client_info.name,
        "id": ctx.request_id,
        "transport": ctx.transport,
        "meta": ctx.meta.get("com.example/mark"),
        "user": ctx.user.subject,
        "lifespan": ctx.lifespan == {"opened by": os.getpid()},
        "is_cancelled": ctx.is_cancelled,
    }


@server.tool(process=True)
def ask(ctx: SyncContext) -> str:
    ctx.state["runs"] = ctx.state.get("runs", 0) + 1
    name = ctx.elicit("Who?", str, key="name").get()
    told = ctx.sample("Tell me", key="told")
    roots = ctx.list_roots(key="roots")
    return f"{name} {told.text} {len(roots)} {ctx.state['runs']}"


@server.tool(process=True)
async def ask_later(ctx: Context) -> str:
    ctx.state["runs"] = ctx.state.get("runs", 0) + 1
    name = (await ctx.elicit("Who?", str, key="name")).get()
    told = await ctx.sample("Tell me", key="told")
    roots = await ctx.list_roots(key="roots")
    return f"{name} {told.text} {len(roots)} {ctx.state['runs']}"


@server.tool(process=True)
def can_ask(ctx: SyncContext) -> bool:
    return ctx.can_ask(sample("Tell me"))


@server.tool(process=True)
def visit(ctx: SyncContext) -> str:
    ctx.require_url("Sign in", "https://example.com/sign-in", key="visit")


async def opened(ctx: Context) -> AsyncIterator[str]:
    """A dependency that talks to the client."""
    await ctx.info("opened")
    yield "value"
    await ctx.info("closed")


@server.tool(process=True)
def depends(value: Annotated[str, Depends(asynccontextmanager(opened))], ctx: SyncContext) -> str:
    ctx.info("inside")
    return value


@server.tool(process=True)
def count(most: int, ctx: SyncContext) -> None:
    for number in range(1, most + 1):
        ctx.progress(number)


@server.tool(process=True)
def count_and_work(most: int, ctx: SyncContext) -> None:
    for number in range(1, most + 1):
        ctx.progress(number)
    time.sleep(3600)


@server.tool(process=True)
def keep_what_is_not_json(ctx: SyncContext) -> str:
    ctx.state["lock"] = object()
    return str(ctx.elicit("Who?", str).get())


@server.tool(process=True, task="auto", task_after=None)
def become(ctx: SyncContext) -> str:
    before = ctx.task_id
    ctx.become_task("on it")
    ctx.progress(3, 40, "frame")
    ctx.info("at work")
    which = ctx.elicit("Which?", str, key="which").get()
    return f"{before} {ctx.task_id} {which}"


@server.tool(process=True, task="auto", task_after=None)
async def become_later(ctx: Context) -> str:
    before = ctx.task_id
    await ctx.become_task("on it")
    await ctx.progress(3, 40, "frame")
    await ctx.info("at work")
    which = (await ctx.elicit("Which?", str, key="which")).get()
    return f"{before} {ctx.task_id} {which}"


@server.tool(process=True, task="auto", task_after=0)
def spin_in_task(mark: str) -> str:
    Path(mark).write_text(str(os.getpid()))
    while True:
        pass


@server.tool(process=True, task="required")
def hand_over(ctx: SyncContext) -> None:
    ctx.hand_over(keep=60)


# -- the user, extensions, threads of the tool ---------------------------------------------------


@server.tool(process=True)
def who(ctx: SyncContext) -> dict[str, Any]:
    user = ctx.user
    return {
        "user": [user.subject, user.issuer, user.client, sorted(user.scopes), user.claims["team"]],
        "headers": ctx.headers,
        "may": [ctx.has_scopes("read"), ctx.has_scopes("write")],
        "token": ctx.upstream_token(),
        "trace": ctx.trace and ctx.trace.trace_id,
    }


@server.tool(process=True)
async def who_later(ctx: Context) -> str:
    return await ctx.upstream_token()


@server.tool(process=True)
def needs(ctx: SyncContext) -> None:
    ctx.require_scopes("write")


@server.tool(process=True)
def tell(ctx: SyncContext) -> str:
    """Send what only some clients receive."""
    ctx.notify("com.example/notes/found", {"text": "here"})
    ctx.elicitation_complete("visit-1")
    try:
        ctx.notify("com.example/notes/unknown")
    except LocalProtocolError as error:
        return str(error)
    return "sent"


def from_thread(ctx: SyncContext) -> bool:
    """A dependency that runs in a thread of the worker."""
    ctx.progress(1)
    return ctx.can_ask(sample("Tell me"))


@server.tool(process=True)
async def in_threads(asked: Annotated[bool, Depends(from_thread)], ctx: Context) -> bool:
    await ctx.progress(2)
    return asked and ctx.can_ask(sample("Tell me"))


@server.tool(process=True)
def own_threads(ctx: SyncContext) -> int:
    """A plain function, some of whose threads ask at the same time."""
    with ThreadPoolExecutor(4) as threads:
        return sum(threads.map(lambda number: ctx.can_ask(sample(str(number))), range(40)))


def list_roots(ctx: SyncContext) -> int:
    return len(ctx.list_roots())


async def list_roots_later(ctx: Context) -> int:
    return len(await ctx.list_roots())


# The same in new interpreters.
for _function in (
    pid, descriptors, list_roots, list_roots_later, spin, sleep_in_c, sleep_later, hold, parents, crash, too_long
):  # fmt: skip
    server.tool(
        process=True,
        process_start="spawn",
        name=f"spawned_{_function.__name__}",
        timeout=0.2 if _function is too_long else None,
    )(_function)
