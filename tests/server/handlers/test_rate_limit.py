"""How often a caller may call a tool: by principal, address or connection, in every version and over each transport."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from support.clock import Clock, until
from support.http_peer import modern, serving
from support.ui_stage import BOTH_ERAS, each_wire
from support.wires import MODERN, OpenWire, Wire, each_version, memory_wire

from mcpd import Principal, RateLimit, Server
from mcpd.errors import RegistrationError
from mcpd.server.handlers import limits as rate_limit


def make_server(*limits: RateLimit, **options: Any) -> Server:
    server = Server("limited", **options)
    for limit in limits:
        server.middleware(limit)

    @server.tool
    async def echo(text: str = "") -> str:
        return text

    @server.tool
    def in_thread(text: str = "") -> str:
        return text

    return server


async def refusal(wire: Wire, tool: str) -> Any:
    error = await wire.error("tools/call", {"name": tool, "arguments": {}})
    assert error["code"] == 429
    assert error["message"].startswith("Too many calls: try again in ")
    return error["data"]["retryAfter"]


@each_version
async def test_each_tool_has_its_own_and_it_fills_again(version: str) -> None:
    async with memory_wire(make_server(RateLimit(2, per=60)), version) as wire:
        clock = Clock()
        for tool in ("echo", "in_thread"):
            for _ in range(2):
                await wire.text(tool)
            assert 29 < await refusal(wire, tool) <= 30
        await clock.advance(31)
        await wire.text("echo")
        assert 0 < await refusal(wire, "echo") <= 30
        await clock.advance(10_000)
        for _ in range(2):
            await wire.text("echo")
        await refusal(wire, "echo")


@BOTH_ERAS
@each_wire
async def test_over_every_transport(open_wire: OpenWire, version: str) -> None:
    async with open_wire(make_server(RateLimit(1, per=3600)), version) as wire:
        await wire.text("echo")
        assert 3000 < await refusal(wire, "echo") <= 3600
        await wire.text("in_thread")
        await wire.result("tools/list")


async def test_a_burst_and_a_rate_and_tools_of_its_own() -> None:
    server = make_server(RateLimit(60, per=60, burst=3, tools=["echo"]))
    async with memory_wire(server, MODERN) as wire:
        Clock()
        for _ in range(3):
            await wire.text("echo")
        assert await refusal(wire, "echo") <= 1
        for _ in range(10):
            await wire.text("in_thread")


async def test_connections_without_an_address_are_callers_of_their_own() -> None:
    server = make_server(RateLimit(1))
    async with memory_wire(server, MODERN) as one, memory_wire(server, MODERN) as other:
        await one.text("echo")
        await other.text("echo")
        await refusal(one, "echo")
        await refusal(other, "echo")


async def test_over_http_it_is_the_address_and_with_a_name_the_name() -> None:
    async with serving(make_server(RateLimit(1))) as port:
        assert (await port.modern("tools/call", {"name": "echo"})).status == 200
        answer = await port.modern("tools/call", {"name": "echo"})
        assert answer.messages[-1]["error"]["code"] == 429

    async def named(headers: Any) -> Principal:
        return Principal(headers["x-user"])

    async with serving(make_server(RateLimit(1), authenticate=named)) as port:
        seen = {}
        for user in ("ann", "bob", "ann", "bob"):
            answer = await port.modern("tools/call", {"name": "echo"}, headers={"X-User": user})
            seen.setdefault(user, []).append("error" in answer.messages[-1])
        assert seen == {"ann": [False, True], "bob": [False, True]}


async def test_where_no_address_is_known_new_connections_are_no_new_callers() -> None:
    """As behind a proxy on a unix socket."""
    begun = asyncio.Event()
    server = Server("limited")
    server.middleware(RateLimit(2))

    @server.tool
    async def wait() -> str:
        await begun.wait()
        return ""

    app = server.asgi_app()
    body = modern("tools/call", {"name": "wait"})
    head, _, content = body.partition(b"\r\n\r\n")
    headers = [tuple(line.lower().split(b": ", 1)) for line in head.split(b"\r\n")[1:]]
    answers: list[bytes] = []

    async def post() -> None:
        incoming = [{"type": "http.request", "body": content}]

        async def receive() -> Any:
            return incoming.pop() if incoming else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            answers.append(message.get("body", b""))

        await app({"type": "http", "method": "POST", "path": "/mcp", "headers": headers}, receive, send)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(post())
        await until(lambda: sum(b'"code":429' in answer for answer in answers) == 4)
        begun.set()


async def test_names_that_a_caller_invents_are_limited_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody learns from it which tools there are, and nobody fills the memory."""
    limit = RateLimit(1)
    monkeypatch.setattr(rate_limit, "MOST_TOOLS", 3)
    async with memory_wire(make_server(limit), MODERN) as wire:
        clock = Clock()
        for name in ("a", "b"):
            assert (await wire.error("tools/call", {"name": name}))["code"] == -32602
            await refusal(wire, name)
        await wire.text("echo")
        await refusal(wire, "echo")
        # There are three: all others share one.
        assert (await wire.error("tools/call", {"name": "c"}))["code"] == -32602
        await refusal(wire, "in_thread")
        assert limit._count == 4
        # What is full again is forgotten.
        await clock.advance(1000)
        await wire.text("in_thread")
        assert limit._count == 1


async def test_names_that_a_caller_invents_are_not_gone_through_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    left = RateLimit._left

    def counted(self: RateLimit, *args: Any) -> float:
        nonlocal looked_at
        looked_at += 1
        return left(self, *args)

    monkeypatch.setattr(RateLimit, "_left", counted)
    monkeypatch.setattr(rate_limit, "MOST_TOOLS", 50)
    async with memory_wire(make_server(RateLimit(1)), MODERN) as wire:
        for number in range(250):
            await wire.error("tools/call", {"name": f"tool{number}"})
    assert looked_at < 350


async def test_the_caller_who_called_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = RateLimit(1)
    monkeypatch.setattr(rate_limit, "MOST_BUCKETS", 2)
    server = make_server(limit)
    async with memory_wire(server, MODERN) as one, memory_wire(server, MODERN) as other:
        await one.text("echo")
        await other.text("echo")
        await refusal(one, "echo")
        await one.text("in_thread")
        await other.text("echo")
        await refusal(other, "echo")
        assert (len(limit._callers), limit._count) == (1, 1)


@pytest.mark.parametrize(
    "wrong", [{"calls": 0}, {"calls": 1, "per": 0}, {"calls": 1, "burst": 0}, {"calls": math.inf}, {"calls": 0.5}]
)
def test_numbers_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match="RateLimit"):
        RateLimit(**wrong)


def test_what_it_cannot_be_put_round() -> None:
    limit = RateLimit(1)
    server = Server("t")
    with pytest.raises(RegistrationError, match="RateLimit is only for tools/call"):
        server.middleware("tools/list")(limit)
    with pytest.raises(RegistrationError, match=r"use tools=\['echo'\]"):
        RateLimit(1, tools="echo")
    server.middleware("tools/call")(limit)
    with pytest.raises(RegistrationError, match="belongs to a server already"):
        Server("u").middleware(limit)


async def test_a_slow_rate_with_a_burst_is_json() -> None:
    async with memory_wire(make_server(RateLimit(0.001, per=60, burst=1)), MODERN) as wire:
        await wire.text("echo")
        assert json.dumps(await refusal(wire, "echo"))
