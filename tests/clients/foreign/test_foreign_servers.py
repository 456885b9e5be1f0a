"""`Client` against servers that others wrote, in each version and over each transport that they have.

Run by `make clients`. Of each: everything is listed, a tool called, a resource read, a prompt got, a call given up, and
nothing is left when it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from clients.foreign.servers import SERVERS, Foreign, installed, listening, living, marked
from support.clock import until

from mcpd import (
    Callbacks,
    Client,
    ClientGroup,
    ElicitFormParams,
    ElicitResult,
    RemoteError,
    RequestTimeout,
    TaskCancelled,
)
from mcpd.client import CommandTarget, UrlTarget

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

EXTENSIONS = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}

Row = tuple[str, str | None, str]


def rows() -> Iterator[Row]:
    """Each server over each transport in each version: its own choice, and the others where it has several."""
    for name, server in SERVERS.items():
        for transport in ("stdio", *server.urls):
            for version in (None, *server.versions[1:]):
                yield name, version, transport


def server_of(name: str) -> Foreign:
    server = SERVERS[name]
    if not installed(server):
        pytest.skip(f"needs the server {name!r}: make clients installs it")
    return server


async def use(server: Foreign, client: Client, version: str | None) -> None:
    async with client:
        assert client.version == (version or server.versions[0])
        tools, resources = await client.list_tools(), await client.list_resources()
        prompts = await client.list_prompts()
        await client.list_resource_templates()

        tool, arguments, expected = server.call
        assert tool in [one.name for one in tools]
        result = await client.call_tool(tool, arguments)
        assert expected in repr(result)
        functions = {function.tool.name: function for function in await client.tool_functions()}
        assert (tool in functions) is server.is_for_models
        if server.is_for_models and not result.is_error:
            assert expected in repr(await functions[tool](**arguments))
        if resources:
            assert (await client.read_resource(resources[0].uri)).contents
        if server.prompt is not None:
            assert server.prompt[0] in [one.name for one in prompts]
            assert (await client.get_prompt(*server.prompt)).messages

        await give_up(server, client)
        await client.ping()
        assert expected in repr(await client.call_tool(tool, arguments))


async def give_up(server: Foreign, client: Client) -> None:
    """Give up a call: one that takes long when its time is over, any other as soon as it was sent."""
    if server.slow is not None:
        with pytest.raises(RequestTimeout):
            await client.call_tool(*server.slow[:2], timeout=server.slow[2])
        return
    call = asyncio.create_task(client.call_tool(*server.call[:2]))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize(("name", "version", "transport"), list(rows()), ids=lambda part: str(part))
async def test_it_can_be_used(name: str, version: str | None, transport: str) -> None:
    server = server_of(name)
    if transport != "stdio":
        with listening(transport, server.urls[transport]) as url:
            await use(server, Client(url, extensions=EXTENSIONS, version=version), version)
        return
    env = marked()
    await use(server, Client(CommandTarget(server.stdio, env), extensions=EXTENSIONS, version=version), version)
    await until(lambda: not living(env["MCPD_TEST_MARK"]))


async def test_all_of_them_are_one_group() -> None:
    names = {"everything": "everything", "clock": "time", "second": "sdk 2", "old": "everything of 2024"}
    targets: dict[str, CommandTarget | UrlTarget] = {
        name: CommandTarget(server_of(theirs).stdio, marked()) for name, theirs in names.items()
    }
    changed: list[str] = []
    async with ClientGroup(targets, Callbacks(list_changed=changed.append)) as group:
        assert set(group.clients) == set(names), group.errors
        tools = {tool.name for tool in await group.list_tools()}
        assert {"everything_get-sum", "clock_get_current_time", "second_test_simple_text", "old_add"} <= tools
        assert "5" in repr(await group.call("old_add", a=2, b=3))
        uris = [resource.uri for resource in await group.list_resources()]
        for prefix in ("everything+demo://", "second+test://", "old+test://"):
            uri = next(uri for uri in uris if uri.startswith(prefix))
            assert (await group.read_resource(uri)).contents[0].uri.startswith(prefix)  # type: ignore[union-attr]


@pytest.mark.parametrize("transport", ["stdio", "http:/mcp"])
async def test_a_task_of_2025_asks_and_is_cancelled(transport: str) -> None:
    """A tool that requires a task, of the TypeScript SDK 1.x: it is called as one, and its question is answered."""
    server = server_of("everything")
    if transport == "stdio":
        await use_tasks_of_2025(CommandTarget(server.stdio, marked()))
        return
    with listening(transport, server.urls[transport]) as url:
        await use_tasks_of_2025(UrlTarget(url))


async def use_tasks_of_2025(target: CommandTarget | UrlTarget) -> None:
    def answer(asked: ElicitFormParams) -> ElicitResult:
        assert "multiple interpretations" in asked.message
        return ElicitResult(action="accept", content={"interpretation": "snake"})

    async with Client(target, Callbacks(elicit_form=answer)) as client:
        found = await client.call("simulate-research-query", topic="python", ambiguous=True)
        assert "Research Report: python (snake)" in str(found)
        handle = await client.start_tool("simulate-research-query", {"topic": "bees"})
        assert handle.id in [task.task_id for task in await client.tasks.list()]
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result()


@pytest.mark.parametrize("transport", ["stdio", "http:/mcp"])
async def test_a_task_of_fastmcp_is_cancelled(transport: str) -> None:
    server = server_of("fastmcp with tasks")
    if transport == "stdio":
        await use_tasks_of_fastmcp(CommandTarget(server.stdio, marked()))
        return
    with listening(transport, server.urls[transport]) as url:
        await use_tasks_of_fastmcp(UrlTarget(url))


async def use_tasks_of_fastmcp(target: CommandTarget | UrlTarget) -> None:
    async with Client(target) as client:
        handle = await client.start_tool("forever")
        assert (await handle.status()).status == "working"
        assert (await client.tasks.list())[0].task_id == handle.id
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await client.resume_task(handle.id).result()
        with pytest.raises(RemoteError, match="not found"):
            await client.tasks.get("another")


@pytest.mark.parametrize("transport", ["stdio", "http:/mcp"])
@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_the_sdk_of_typescript_in_its_details(version: str, transport: str) -> None:
    """Rounds, headers, progress, the log, changes of lists, and that calls that are given up end at the server."""
    server = server_of("sdk of TypeScript")
    if transport == "stdio":
        await use_details(CommandTarget(server.stdio, marked()), version, has_headers=False)
        return
    with listening(transport, server.urls[transport]) as url:
        await use_details(UrlTarget(url), version, has_headers=version == "2026-07-28")


async def use_details(target: CommandTarget | UrlTarget, version: str, *, has_headers: bool) -> None:
    changed, logged = asyncio.Event(), asyncio.Event()
    steps: list[float] = []
    has_session = version == "2026-07-28" or isinstance(target, CommandTarget)

    def answer(asked: ElicitFormParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": f"Ada, asked: {asked.message}"})

    callbacks = Callbacks(
        elicit_form=answer,
        list_changed=lambda _: changed.set(),
        log=lambda _: logged.set(),
    )
    async with Client(target, callbacks, version=version) as client:
        tools = {tool.name for tool in await client.list_tools()}
        assert "test_x_mcp_header" in tools

        said = await client.call("test_x_mcp_header", region="Zürich")
        assert said.startswith("region=Zürich")
        assert ("header=none" not in said) is has_headers
        await client.call_tool("test_tool_with_progress", {}, on_progress=lambda done, *_: steps.append(done))
        assert steps == [0, 50, 100]

        with pytest.raises(RequestTimeout):
            await client.call_tool("slow", {}, timeout=0.2)
        if not has_session:
            # Here the server of this library keeps no sessions: what is no answer has no way to it, or from it.
            return
        while await client.call("ended") != "1 ended":
            pass
        assert await client.call("test_input_required_result_elicitation") == "Hello, Ada, asked: What is your name?!"
        await client.set_log_level("debug")
        await client.call("test_tool_with_logging")
        await asyncio.wait_for(logged.wait(), 10)
        await client.call("test_trigger_tool_change")
        await asyncio.wait_for(changed.wait(), 10)
