"""Our client follows tasks of our own server, over each transport and in both forms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from support.clock import until
from support.http_peer import serving
from support.task_stage import LEGACY_TASKS, TaskStage

from mcpd import Callbacks, Client, ClientGroup, ElicitFormParams, ElicitResult, RemoteError, TaskCancelled
from mcpd.protocol.types.features import ResourceLink, TextContent

Open = Callable[..., AbstractAsyncContextManager[Client]]
Reach = Callable[[TaskStage], AbstractAsyncContextManager[Any]]


def words(result: Any) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


def give_a_name(params: ElicitFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": params.message.rstrip("?")})


@asynccontextmanager
async def in_memory(stage: TaskStage) -> AsyncIterator[Any]:
    yield stage.server


@asynccontextmanager
async def over_http(stage: TaskStage) -> AsyncIterator[Any]:
    async with serving(stage.server) as port:
        yield f"http://127.0.0.1:{port.number}/mcp"


each_way = pytest.mark.parametrize("reach", [in_memory, over_http])
both = pytest.mark.parametrize("version", [None, LEGACY_TASKS])


@asynccontextmanager
async def reached(reach: Reach, version: str | None, **settings: Any) -> AsyncIterator[tuple[TaskStage, Client]]:
    stage = TaskStage(**settings)
    try:
        async with (
            reach(stage) as target,
            Client(target, Callbacks(elicit_form=give_a_name), version=version) as client,
        ):
            yield stage, client
    finally:
        await stage.end()


@both
@each_way
async def test_calls_take_longer_and_nothing_else(reach: Reach, version: str | None) -> None:
    """Results, questions, failed tools and errors are those of calls without tasks."""
    async with reached(reach, version) as (stage, client):
        assert words(await client.call_tool("quick")) == "at once"
        calling = asyncio.ensure_future(client.call_tool("work", {"text": "much later"}))
        await until(lambda: stage.entered)
        stage.gate.set()
        assert words(await calling) == "much later"
        assert words(await client.call_tool("ask", {"times": 2})) == "Who, Who"
        assert words(await client.call_tool("both")) == "A and B"
        assert words(await client.call_tool("later")) == "Who, And then"
        failed = await client.call_tool("fails")
        assert (failed.is_error, words(failed)) == (True, "no paper")
        with pytest.raises(RemoteError, match="on fire") as raised:
            await client.call_tool("breaks")
        assert (raised.value.code, raised.value.data) == (4711, {"floor": 3})


@both
@each_way
async def test_a_caller_that_is_cancelled_ends_the_tool(reach: Reach, version: str | None) -> None:
    async with reached(reach, version) as (stage, client):
        seen: list[Any] = []
        client.tasks.on_change = seen.append
        calling = asyncio.ensure_future(client.call_tool("work"))
        await until(lambda: seen)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: stage.ended == ["work"])


@both
async def test_a_caller_may_be_cancelled_at_any_moment(version: str | None) -> None:
    """Before the call is sent, before and while the task is created, and later: the tool ends, and no task is left."""
    async with reached(in_memory, version) as (stage, client):
        await client.list_tools()
        for moment in range(20):
            calling = asyncio.ensure_future(client.call_tool("work"))
            for _ in range(moment):
                await asyncio.sleep(0)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            await until(lambda: stage.ended == stage.entered and not stage.tasks.runs)
        assert len(stage.entered) > 10


@both
@each_way
async def test_another_client_continues(reach: Reach, version: str | None) -> None:
    """A task is found by its id, in the other form too; it ends for all who wait for it."""
    stage = TaskStage()
    try:
        async with reach(stage) as target, Client(target, version=version) as first, Client(target) as second:
            stopped = await first.start_tool("work")
            await second.tasks.cancel(stopped.id)
            with pytest.raises(TaskCancelled):
                await stopped.result()
            handle = await first.start_tool("work", {"text": "for both"})
            assert (await second.tasks.get(handle.id)).status == "working"
            waiting = [asyncio.ensure_future(one.resume_task(handle.id).result()) for one in (first, second)]
            stage.gate.set()
            assert [words(result) for result in await asyncio.gather(*waiting)] == ["for both"] * 2
    finally:
        await stage.end()


async def test_what_is_notified_is_not_polled() -> None:
    """A whole task with a question takes one subscription, one update, and no poll."""
    sent: list[str] = []

    async with reached(in_memory, None) as (_, client):
        session = client._negotiated()
        request = session.request
        session.request = lambda method, *args, **more: sent.append(method) or request(method, *args, **more)  # type: ignore[method-assign,func-returns-value]
        assert words(await client.call_tool("ask")) == "Who"
    assert sent == ["tools/call", "subscriptions/listen", "tasks/update"]


@both
async def test_a_group_follows_tasks(version: str | None) -> None:
    stage = TaskStage()

    @stage.server.tool(task="required")
    async def picture() -> ResourceLink:
        return ResourceLink(uri="file:///picture.png", name="picture")

    try:
        callbacks = Callbacks(elicit_form=give_a_name)
        async with ClientGroup({"studio": stage.server}, callbacks, version=version) as group:
            assert words(await group.call_tool("studio_ask")) == "Who"
            handle = await group.start_tool("studio_both")
            assert words(await handle.result()) == "A and B"
            if version is None:
                assert await group.list_tasks() == {"studio": []}
            handle = await group.start_tool("studio_picture")
            (block,) = (await handle.result()).content
            assert isinstance(block, ResourceLink)
            assert block.uri == "studio+file:///picture.png"
            waiting = await group.start_tool("studio_work")
            assert waiting.id in [task.task_id for task in (await group.list_tasks())["studio"]]
    finally:
        await stage.end()
