"""What a server opens once: when it is started and ended, over every transport, and what becomes of its errors."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import until
from support.ui_stage import BOTH_ERAS, each_wire
from support.wires import OpenWire, memory_wire, process_wire

from mcpd import Client, Context, RemoteError, Server
from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.server.serving import Settings, serve


class House:
    """A server with a database, and what happened to that."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fails = ""
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.server = Server("house", lifespan=self.lifespan)

        @self.server.tool
        async def read(ctx: Context) -> str:
            self.events.append("read")
            return str(ctx.lifespan["name"])

        @self.server.tool
        def read_in_thread(ctx: Context) -> str:
            return str(ctx.lifespan["name"])

        @self.server.tool
        async def wait(ctx: Context) -> str:
            self.events.append("wait")
            try:
                await asyncio.sleep(3600)
            finally:
                self.events.append("left")
            return ""

        @self.server.resource("house://name")
        async def name(ctx: Context) -> str:
            return str(ctx.lifespan["name"])

        @self.server.prompt
        def greet(ctx: Context) -> str:
            return str(ctx.lifespan["name"])

    @asynccontextmanager
    async def lifespan(self, server: Server) -> AsyncIterator[dict[str, str]]:
        self.events.append("start")
        await self.may_start.wait()
        if self.fails == "start":
            raise OSError("no such database")
        yield {"name": server.name}
        await self.may_end.wait()
        self.events.append("end")
        if self.fails == "end":
            raise OSError("the disk is full")


@BOTH_ERAS
@each_wire
async def test_its_value_reaches_every_function(open_wire: OpenWire, version: str) -> None:
    house = House()
    async with open_wire(house.server, version) as wire:
        assert await wire.text("read") == "house"
        assert await wire.text("read_in_thread") == "house"
        read = await wire.result("resources/read", {"uri": "house://name"})
        assert read["contents"][0]["text"] == "house"
        prompt = await wire.result("prompts/get", {"name": "greet"})
        assert prompt["messages"][0]["content"]["text"] == "house"
    await house.server.aclose()
    assert house.events == ["start", "read", "end"]


async def test_connections_share_it_and_all_wait_for_its_start() -> None:
    house = House()
    house.may_start.clear()

    async def ask() -> str:
        async with Client(house.server) as client:
            return str((await client.call_tool("read")).content[0].text)  # type: ignore[union-attr]

    asking = [asyncio.create_task(ask()) for _ in range(3)]
    await until(lambda: house.events)
    house.may_start.set()
    assert await asyncio.gather(*asking) == ["house"] * 3
    assert house.events == ["start", "read", "read", "read", "end"]


async def test_it_ends_with_the_last_client_in_this_process() -> None:
    house = House()
    async with Client(house.server) as one:
        async with Client(house.server) as other:
            await other.call_tool("read")
        await one.call_tool("read")
    assert house.events == ["start", "read", "read", "end"]
    async with Client(house.server) as again:
        await again.call_tool("read")
    assert house.events[4:] == ["start", "read", "end"]


async def test_it_ends_after_the_last_call() -> None:
    house = House()
    async with Client(house.server) as client:
        waiting = asyncio.create_task(client.call_tool("wait"))
        await until(lambda: "wait" in house.events)
        waiting.cancel()
    assert house.events == ["start", "wait", "left", "end"]


async def test_a_program_opens_and_closes_it() -> None:
    house = House()
    await house.server.open()
    await house.server.open()
    assert house.events == ["start"]
    async with Client(house.server) as client:
        await client.call_tool("read")
    assert house.events == ["start", "read"]
    await house.server.aclose()
    await house.server.aclose()
    assert house.events == ["start", "read", "end"]
    plain = Server("plain")
    await plain.open()
    await plain.aclose()


async def test_whoever_waits_for_its_start_may_be_cancelled() -> None:
    house = House()
    house.may_start.clear()
    opening = asyncio.create_task(house.server.open())
    await until(lambda: house.events)
    opening.cancel()
    await asyncio.wait([opening])
    house.may_start.set()
    await house.server.open()
    house.may_end.clear()
    closing = asyncio.create_task(house.server.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    house.may_end.set()
    await until(lambda: "end" in house.events)
    assert house.events == ["start", "end"]


async def test_a_start_is_given_up() -> None:
    house = House()
    house.may_start.clear()
    opening = asyncio.create_task(house.server.open())
    await until(lambda: house.events)
    await house.server.aclose()
    with pytest.raises(ConfigurationError, match="was stopped before it had started"):
        await opening


def test_it_ends_with_its_event_loop() -> None:
    """Where nobody says that the end has come, as under an ASGI server without lifespan."""
    house = House()

    async def ask() -> None:
        async with memory_wire(house.server, "2025-11-25") as wire:
            assert await wire.text("read") == "house"

    for _ in range(2):
        asyncio.run(ask())
    assert house.events == ["start", "read", "end"] * 2


async def test_an_error_at_its_start_is_the_callers(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.fails = "start"
    with pytest.raises(ConfigurationError, match="server 'house' could not start: OSError: no such database"):
        await house.server.open()
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    place = record.exc_info[2]
    assert place is not None
    assert place.tb_frame.f_code.co_filename == __file__, "the author's traceback, and nothing of ours"
    await house.server.aclose()
    with pytest.raises(RemoteError, match="could not start"):
        async with Client(house.server):
            pass
    assert house.events == ["start", "start"], "what one client got is not tried again for each of its requests"
    house.fails = ""
    async with Client(house.server) as client:
        await client.call_tool("read")


async def test_an_error_at_its_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.fails = "end"
    await house.server.open()
    await house.server.aclose()
    assert "failed to close" in caplog.text
    assert "the disk is full" in caplog.text


async def test_task_groups_inside_it() -> None:
    """It is entered and left in one task."""
    beats: list[int] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        async def beat() -> None:
            while True:
                beats.append(1)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            beating = group.create_task(beat())
            yield "beating"
            beating.cancel()

    server = Server("beats", lifespan=lifespan)

    @server.tool
    async def count(ctx: Context) -> str:
        await asyncio.sleep(0)
        return str(ctx.lifespan)

    async with Client(server) as client:
        assert (await client.call_tool("count")).content[0].text == "beating"  # type: ignore[union-attr]
    assert beats


def test_what_is_no_lifespan() -> None:
    async def generator(server: Server) -> AsyncIterator[None]:
        yield

    wrong: Any = generator
    with pytest.raises(RegistrationError, match="asynccontextmanager above"):
        Server("x", lifespan=wrong)
    wrong = 5
    with pytest.raises(RegistrationError, match="expected a function"):
        Server("x", lifespan=wrong)


async def test_roots_and_extensions_have_it_too() -> None:
    house = House()
    heard: list[Any] = []
    done = asyncio.Event()

    @house.server.roots_changed
    def roots(ctx: Context) -> None:
        heard.append(ctx.lifespan["name"])
        asyncio.run_coroutine_threadsafe(_set(done), loop)

    loop = asyncio.get_running_loop()
    async with memory_wire(house.server, "2025-11-25", capabilities={"roots": {"listChanged": True}}) as wire:
        wire.notify("notifications/roots/list_changed")
        await done.wait()
    assert heard == ["house"]
    await house.server.aclose()


async def _set(event: asyncio.Event) -> None:
    event.set()


# ------------------------------------------------------------------------------------ ASGI servers


class AsgiServer:
    """The lifespan messages of an ASGI server to an application."""

    def __init__(self, app: Any) -> None:
        self._to: asyncio.Queue[str] = asyncio.Queue()
        self._from: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(app({"type": "lifespan"}, self._receive, self._from.put))

    async def _receive(self) -> Any:
        return {"type": await self._to.get()}

    async def say(self, what: str) -> Any:
        await self._to.put(f"lifespan.{what}")
        return await self._from.get()

    async def end(self) -> None:
        await self._task


async def test_under_an_asgi_server() -> None:
    house = House()
    server = AsgiServer(house.server.asgi_app())
    assert await server.say("startup") == {"type": "lifespan.startup.complete"}
    assert house.events == ["start"]
    assert await server.say("shutdown") == {"type": "lifespan.shutdown.complete"}
    assert house.events == ["start", "end"]
    await server.end()


async def test_an_asgi_server_hears_that_it_cannot_start() -> None:
    house = House()
    house.fails = "start"
    server = AsgiServer(house.server.asgi_app())
    said = await server.say("startup")
    assert said["type"] == "lifespan.startup.failed"
    assert "no such database" in said["message"]
    await server.end()


# ------------------------------------------------------------------------------------ mcpd serve


async def serving(house: House, settings: Settings) -> None:
    async with asyncio.timeout(60):
        await serve(house.server, settings)


async def test_served_on_sockets_it_is_open_before_they_listen() -> None:
    house = House()
    announced: list[str] = []

    def announce(url: str) -> None:
        announced.append(url)
        assert house.events == ["start"]
        os.kill(os.getpid(), signal.SIGINT)

    await serving(house, Settings(ws="127.0.0.1:0", announce=announce))
    assert announced
    assert house.events == ["start", "end"]


SERVER = """
import asyncio, sys
from contextlib import asynccontextmanager
from mcpd import Context, Server

@asynccontextmanager
async def lifespan(server):
    print("opened", flush=True)
    if "{how}" == "fails":
        raise OSError("no such database")
    if "{how}" == "waits":
        await asyncio.sleep(3600)
    yield {{"name": "shop"}}
    if "{how}" == "hangs":
        print("hanging", flush=True)
        await asyncio.sleep(3600)
    print("closed", flush=True)

server = Server("shop", lifespan=lifespan)

@server.tool
async def name(ctx: Context) -> str:
    return ctx.lifespan["name"]
"""


@pytest.fixture
def make_file(tmp_path: Path) -> Callable[[str], str]:
    def make(how: str) -> str:
        path = tmp_path / "shop.py"
        path.write_text(SERVER.format(how=how))
        return str(path)

    return make


@BOTH_ERAS
async def test_a_served_process(child: Child, make_file: Callable[[str], str], version: str) -> None:
    async with process_wire(child, make_file("works"), version=version) as wire:
        assert await wire.text("name") == "shop"
    assert wire.code == 0
    assert wire.stderr.split() == ["opened", "closed"]


@pytest.mark.parametrize("how", ["--stdio", "--ws=127.0.0.1:0", "--http=127.0.0.1:0"])
async def test_a_process_whose_lifespan_fails(child: Child, make_file: Callable[[str], str], how: str) -> None:
    """One clear line and exit 1; the traceback in the log is the author's."""
    path = make_file("fails")
    process = await asyncio.create_subprocess_exec(
        *child.mcpd("serve", how, path), env=child.env,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 1
    lines = said.decode().splitlines()
    assert lines[-1].startswith("mcpd: the lifespan of server 'shop' could not start: OSError: no such database")
    assert f'File "{path}"' in said.decode()
    assert "mcpd/server" not in said.decode()


async def test_a_process_that_is_stopped_while_it_starts(child: Child, make_file: Callable[[str], str]) -> None:
    async with process_wire(child, make_file("waits")) as wire:
        await wire.said("opened")
        wire.stdin_watchdog()
        assert await wire.wait() == 0


async def test_a_lifespan_that_does_not_end(child: Child, make_file: Callable[[str], str]) -> None:
    async with process_wire(child, make_file("hangs"), "--grace", "0.1", version="2025-11-25") as wire:
        wire.stdin_watchdog()
        assert await wire.wait() == 0
    assert "hanging" in wire.stderr
