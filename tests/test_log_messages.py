"""Log messages on the wire. Spec: server/utilities/logging of every version."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
from support.wires import META, MODERN, each_legacy, each_version, memory_wire

from mcpd import Context, Server
from mcpd.protocol.types.base import LOG_LEVELS

# What 2024-10-07 calls them, which has four levels.
FOUR = dict(zip(LOG_LEVELS, ["debug", "info", "info", "warning", "error", "error", "error", "error"], strict=True))


def make_server(late: list[Context] | None = None) -> Server:
    server = Server("t")

    @server.tool
    async def every(ctx: Context) -> None:
        for level in LOG_LEVELS:
            await ctx.log(level, level)

    @server.tool
    async def short(ctx: Context) -> None:
        await ctx.debug(1)
        await ctx.info([2])
        await ctx.warning({"three": None})
        await ctx.error(None)
        await ctx.log("alert", "five", "logger")

    @server.tool
    def plain(ctx: Context) -> None:
        ctx.log("error", "from a thread")

    @server.tool
    async def wrong(ctx: Context) -> None:
        await ctx.log("loud", "x")  # type: ignore[arg-type]

    @server.tool
    async def keeps(ctx: Context) -> None:
        assert late is not None
        late.append(ctx)

    @server.prompt
    async def prompt(ctx: Context) -> str:
        await ctx.log("error", "from a prompt")
        return ""

    @server.resource("test://r")
    async def resource(ctx: Context) -> str:
        await ctx.log("error", "from a resource")
        return ""

    return server


def levels(messages: list[Any]) -> list[str]:
    assert all(message["method"] == "notifications/message" for message in messages)
    return [message["params"]["level"] for message in messages]


@each_legacy
@pytest.mark.parametrize("level", LOG_LEVELS)
async def test_a_session_has_a_level(version: str, level: Any) -> None:
    """`logging/setLevel` gives exactly {}, and from there on only messages of that level and above come."""
    async with memory_wire(make_server(), version) as wire:
        assert await wire.result("logging/setLevel", {"level": level}) == {}
        await wire.call("every")
        expected = list(LOG_LEVELS[LOG_LEVELS.index(level) :])
        assert levels(wire.heard) == (expected if version > "2024-10-07" else [FOUR[name] for name in expected])


@each_legacy
async def test_before_a_level_is_set_messages_of_info_come(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        await wire.call("every")
        assert "debug" not in levels(wire.heard)
        assert "info" in levels(wire.heard)


@each_legacy
@pytest.mark.parametrize("level", ["loud", "", "ERROR", 5, None])
async def test_a_level_that_is_none_is_bad_params(version: str, level: Any) -> None:
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error("logging/setLevel", {"level": level})
        assert error["code"] == -32602
        assert "level" in error["message"]


async def test_sessions_have_levels_of_their_own() -> None:
    server = make_server()
    async with memory_wire(server, "2025-11-25") as one, memory_wire(server, "2025-06-18") as other:
        await one.result("logging/setLevel", {"level": "emergency"})
        await other.result("logging/setLevel", {"level": "alert"})
        await one.call("every")
        await other.call("every")
        assert levels(one.heard) == ["emergency"]
        assert levels(other.heard) == ["alert", "emergency"]


@pytest.mark.parametrize("level", LOG_LEVELS)
async def test_in_2026_the_request_has_a_level(level: str) -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        await wire.call("every", {f"{META}logLevel": level})
        assert levels(wire.heard) == list(LOG_LEVELS[LOG_LEVELS.index(level) :])  # type: ignore[arg-type]


async def test_in_2026_without_a_level_nothing_comes() -> None:
    """S26-139: not even after a request that had one (S26-018)."""
    async with memory_wire(make_server(), MODERN) as wire:
        await wire.call("every", {f"{META}logLevel": "debug"})
        wire.heard.clear()
        await wire.call("every")
        assert not wire.heard
        assert (await wire.error("logging/setLevel", {"level": "debug"}))["code"] == -32601


async def test_in_2026_messages_belong_to_the_request_that_wants_them() -> None:
    """S26-140: they come before its answer, and never on a subscription."""
    async with memory_wire(make_server(), MODERN) as wire:
        listening = wire.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert (await wire.receive())["method"] == "notifications/subscriptions/acknowledged"
        wire.ask("tools/call", {"name": "every"}, meta={f"{META}logLevel": "emergency"}, id="a")
        wire.ask("tools/call", {"name": "every"}, meta={f"{META}logLevel": "alert"}, id="b")
        got = [await wire.receive() for _ in range(5)]
        assert [message.get("id") or message["params"]["level"] for message in got] == [
            "emergency",
            "a",
            "alert",
            "emergency",
            "b",
        ]
        assert all("_meta" not in message.get("params", {}) for message in got)
        wire.cancel(listening)


@each_version
async def test_data_are_any_json(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        if version != MODERN:
            await wire.result("logging/setLevel", {"level": "debug"})
        await wire.call("short", {f"{META}logLevel": "debug"} if version == MODERN else None)
        params = [message["params"] for message in wire.heard]
        assert [one["data"] for one in params] == [1, [2], {"three": None}, None, "five"]
        assert [one.get("logger") for one in params] == [None, None, None, None, "logger"]


@each_version
async def test_threads_prompts_and_resources_log_too(version: str) -> None:
    meta = {f"{META}logLevel": "error"} if version == MODERN else None
    async with memory_wire(make_server(), version) as wire:
        await wire.call("plain", meta)
        await wire.result("prompts/get", {"name": "prompt"}, meta=meta)
        await wire.result("resources/read", {"uri": "test://r"}, meta=meta)
        assert [message["params"]["data"] for message in wire.heard] == [
            "from a thread",
            "from a prompt",
            "from a resource",
        ]


@each_version
async def test_a_message_after_the_answer_is_not_sent(version: str) -> None:
    late: list[Context] = []
    async with memory_wire(make_server(late), version) as wire:
        await wire.call("keeps", {f"{META}logLevel": "debug"} if version == MODERN else None)
        await late[0].log("emergency", "too late")
        await asyncio.to_thread(late[0].log, "emergency", "too late")
        await wire.quiet()


@each_version
async def test_a_level_that_does_not_exist_is_the_tools_mistake(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        assert (await wire.call("wrong"))["isError"] is True
        assert not wire.heard


@each_version
async def test_logging_is_declared(version: str) -> None:
    """S25-076, S26-138."""
    async with memory_wire(make_server()) as wire:
        assert (await wire.open(version))["capabilities"]["logging"] == {}


class Model:
    """What makes a class a pydantic model to us."""

    model_validate_json = model_json_schema = None

    def model_dump(self, mode: str, by_alias: bool) -> Any:
        return {"a": 1}


class Half(float):
    """As numpy's numbers are."""


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("not even that")


class Odd:
    def __repr__(self) -> str:
        return "<odd \udce9>"


def _endless() -> Any:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@each_version
@pytest.mark.parametrize(
    ("data", "sent"),
    [
        (Model(), {"a": 1}),
        ({"where": pathlib.PurePosixPath("/a")}, {"where": "/a"}),
        (ValueError("x"), "ValueError('x')"),
        ("caf\udce9", "caf\ufffd"),
        ({"caf\udce9": object}, "{'caf\\udce9': <class 'object'>}"),
        (Odd(), "<odd \ufffd>"),
        (Mute(), "<Mute>"),
        (_endless(), "[[...]]"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_whatever_is_logged_the_tool_goes_on(version: str, data: Any, sent: Any, is_async: bool) -> None:
    """It would fail only for clients that want to see that level."""
    server = Server("t")

    async def logs_async(ctx: Context) -> str:
        await ctx.error(data)
        await ctx.progress(Half(0.5), message=data)
        return "done"

    def logs(ctx: Context) -> str:
        ctx.error(data)
        ctx.progress(Half(0.5), message=data)
        return "done"

    server.add_tool(logs_async if is_async else logs, name="logs")
    async with memory_wire(server, version) as wire:
        if version != MODERN:
            await wire.result("logging/setLevel", {"level": "error"})
        level = {f"{META}logLevel": "error"} if version == MODERN else {}
        result = await wire.result("tools/call", {"name": "logs"}, meta={"progressToken": 1, **level})
        assert result["content"] == [{"type": "text", "text": "done"}]
        log, progress = wire.heard
        assert log["params"]["data"] == sent
        assert progress["params"]["progress"] == 0.5
        if "message" in progress["params"]:
            assert progress["params"]["message"] == str(sent)
        await wire.quiet()
