"""`Client(url)` against our own server over a real socket, in every version, to the end of the last task and socket."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from support.clock import until
from support.http_peer import Port, serving
from support.wires import each_version

from mcpd import Callbacks, Client, Context, Server
from mcpd.errors import CannotConnect, ConfigurationError, RequestTimeout
from mcpd.protocol.types.interaction import ElicitResult

TIMEOUT = 30.0


def server_with(ended: list[str] | None = None) -> Server:
    server = Server("remote", version="1")

    @server.tool
    async def echo(text: str) -> str:
        """Give it back."""
        return text

    @server.tool
    async def steps(*, ctx: Context) -> str:
        """Tell of progress, then be done."""
        for number in range(3):
            await ctx.progress(number, total=3)
        return "done"

    @server.tool
    async def hang() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            if ended is not None:
                ended.append("hang")
        return ""

    @server.resource("notes://{name}")
    async def note(name: str) -> str:
        """A note."""
        return f"of {name}"

    @server.prompt
    def review(code: str) -> str:
        """Look at it."""
        return f"Review {code}"

    return server


def url(port: Port) -> str:
    return f"http://127.0.0.1:{port.number}/mcp"


def tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks()


@each_version
async def test_what_a_client_does_in_each_version(version: str) -> None:
    async with serving(server_with()) as port:
        before = tasks()
        async with asyncio.timeout(TIMEOUT), Client(url(port), version=version) as client:
            assert client.version == version
            assert [tool.name for tool in await client.list_tools()] == ["echo", "steps", "hang"]
            assert await client.call("echo", text="ä€😀\n") == "ä€😀\n"
            told: list[float] = []
            assert await client.call("steps", on_progress=lambda done, *_: told.append(done)) == "done"
            assert told == [0, 1, 2]
            read = await client.read_resource("notes://ä")
            assert read.contents[0].text == "of ä"  # type: ignore[union-attr]
            assert (await client.get_prompt("review", {"code": "x"})).messages
            found = await asyncio.gather(*(client.call("echo", text=str(number)) for number in range(150)))
            assert found == [str(number) for number in range(150)]
            await client.ping()
        assert tasks() <= before | {asyncio.current_task()} | _servers()  # type: ignore[operator]


def _servers() -> set[asyncio.Task[Any]]:
    """Tasks of the server that ends a connection or a request."""
    tasks = {task: task.get_coro().cr_code.co_filename for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    return {task for task, file in tasks.items() if "client/http" not in file}


@each_version
async def test_a_call_that_is_given_up_ends_at_the_server(version: str) -> None:
    if version == "2024-10-07":
        return  # it has no word for that
    ended: list[str] = []
    async with serving(server_with(ended)) as port, Client(url(port), version=version) as client:
        with pytest.raises(RequestTimeout):
            await client.call("hang", timeout=0.2)
        await until(lambda: bool(ended))
        async with asyncio.timeout(TIMEOUT):
            assert await client.call("echo", text="and on") == "and on"


async def test_without_a_version_the_newest_is_agreed_on() -> None:
    async with serving(server_with()) as port, Client(url(port)) as client:
        assert client.version == "2026-07-28"
        assert client.server_info is not None
        assert client.server_info.name == "remote"


@each_version
async def test_questions_of_the_server_are_answered(version: str) -> None:
    if version < "2025-06-18":
        return  # there is no elicitation yet
    server = Server("asks", version="1")

    @server.tool
    async def greet(*, ctx: Context) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"hello {answer.content['name']}"  # type: ignore[union-attr]

    async def elicit(_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with serving(server) as port:
        async with (
            asyncio.timeout(TIMEOUT),
            Client(url(port), Callbacks(elicit_form=elicit), version=version) as client,
        ):
            assert await client.call("greet") == "hello Ada"


async def test_nothing_listens_there() -> None:
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    with pytest.raises(CannotConnect, match=f"http://127.0.0.1:{port}/mcp: no server listens on 127.0.0.1:{port}"):
        await Client(f"http://127.0.0.1:{port}/mcp").open()


async def test_what_is_no_url() -> None:
    with pytest.raises(ConfigurationError, match="https:///mcp"):
        await Client("https:///mcp").open()


async def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("mcpd.client.http.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ConfigurationError, match=r"the package aiohttp: pip install 'mcpd-server\[client\]'"):
        await Client("http://127.0.0.1:1/mcp").open()
