"""Whatever a peer sends, the connection answers or ignores it by the rules and goes on.

Arbitrary bytes, arbitrary JSON, arbitrary messages that nearly are MCP, in every version: each answer is
valid in that version's schema and belongs to a request that is open, every request that could be read is
answered once, nothing stays in flight, and after it all the server still works.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, example, given, settings, strategies as st
from support.clock import until
from support.wire_schema import VERSIONS
from support.wires import META, MODERN, Wire, envelope, memory_wire

from mcpd import Context, Server
from mcpd.protocol.types.features import TextContent

# Each example opens a connection and closes it again; a few dozen of each kind stay below a second.
ENOUGH = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])

versions = st.sampled_from(VERSIONS)


def make_server() -> Server:
    server = Server("t", page_size=2, max_in_flight=50)

    @server.tool
    async def echo(text: str = "x", times: int = 1) -> str:
        return text * min(times, 3)

    @server.tool
    async def shape(value: Any = None) -> Any:
        return value

    @server.tool
    async def blocks(texts: list[str]) -> list[TextContent]:
        return [TextContent(text) for text in texts]

    @server.tool
    async def report(ctx: Context, values: list[float]) -> int:
        for value in values:
            await ctx.progress(value, message="on")
            await ctx.info({"value": value})
            await asyncio.sleep(0)
        return len(values)

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.resource("x://fixed")
    async def fixed() -> bytes:
        return b"\0"

    @server.resource("x://{name}")
    async def named(name: str) -> str:
        return name

    @server.prompt
    async def ask(what: str) -> str:
        return what

    return server


async def survived(wire: Wire) -> None:
    """The connection still does what it is for; and at its end nothing is left in flight."""
    answer = await wire.request("tools/call", {"name": "echo", "arguments": {"text": "alive"}}, id="alive")
    assert "result" in answer, answer
    assert answer["result"]["content"] == [{"type": "text", "text": "alive"}]
    connection = wire.connection
    connection.abort()
    await until(lambda: not connection._running)
    await asyncio.sleep(0)  # for the answers to arrive
    assert not connection.session.in_flight
    wire.check()


# ---------------------------------------------------------------------------------------- bytes


@ENOUGH
@given(versions, st.lists(st.binary(), max_size=8))
@example("2025-11-25", [b"\xff", b"[" * 3000, b'{"jsonrpc":"2.0","id":', b"\0"])
async def test_any_bytes(version: str, frames: list[bytes]) -> None:
    async with memory_wire(make_server(), version) as wire:
        for frame in frames:
            wire.send(frame)
        await survived(wire)


@ENOUGH
@given(st.lists(st.binary(), max_size=8))
async def test_any_bytes_before_anything_else(frames: list[bytes]) -> None:
    async with memory_wire(make_server()) as wire:
        for frame in frames:
            wire.send(frame)
        await wire.open("2025-11-25")
        await survived(wire)


@ENOUGH
@given(versions, st.data())
async def test_a_good_message_with_one_byte_changed(version: str, data: st.DataObject) -> None:
    params: dict[str, Any] = {"name": "echo", "arguments": {"text": "é"}}
    if version == MODERN:
        params["_meta"] = envelope()
    good = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, ensure_ascii=False)
    frame = bytearray(good.encode())
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    async with memory_wire(make_server(), version) as wire:
        wire.send(bytes(frame).replace(b"\n", b" "))
        await survived(wire)


# ----------------------------------------------------------------------------------------- JSON

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8")),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=6,
)


@ENOUGH
@given(versions, st.lists(values, max_size=6))
async def test_any_json(version: str, messages: list[Any]) -> None:
    async with memory_wire(make_server(), version) as wire:
        for message in messages:
            wire.send(message)
        await survived(wire)


# ------------------------------------------------------------------------------------- messages

METHODS = sorted(
    {
        "initialize", "server/discover", "ping", "tools/list", "tools/call", "resources/list", "resources/read",
        "resources/templates/list", "resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get",
        "completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/get", "no/such", "",
        "notifications/initialized", "notifications/cancelled", "notifications/progress",
        "notifications/roots/list_changed", "notifications/tools/list_changed", "sampling/createMessage",
    }
)  # fmt: skip

ids = st.one_of(st.integers(0, 4), st.sampled_from(["", "0", "a"]), scalars)
names = st.sampled_from(["echo", "shape", "blocks", "report", "wait", "ask", "no such", "x://fixed", "x://y", "z:"])
metas = st.one_of(
    values,
    st.fixed_dictionaries({}, optional={"progressToken": scalars, "x/y": values}),
    st.fixed_dictionaries(
        {key: st.just(value) for key, value in envelope().items()},
        optional={
            "progressToken": st.integers(0, 2) | scalars,
            f"{META}logLevel": st.sampled_from(["debug", "error", "loud"]) | scalars,
        },
    ),
    st.fixed_dictionaries({f"{META}protocolVersion": st.sampled_from(VERSIONS) | scalars}),
)
arguments = st.one_of(
    values,
    st.fixed_dictionaries(
        {}, optional={"text": values, "times": values, "value": values, "values": st.lists(scalars), "what": values}
    ),
)
params = st.one_of(
    values,
    st.fixed_dictionaries(
        {},
        optional={
            "_meta": metas,
            "name": names | scalars,
            "uri": names | scalars,
            "arguments": arguments,
            "cursor": scalars,
            "level": st.sampled_from(["debug", "emergency", "loud"]) | scalars,
            "requestId": ids,
            "ref": st.sampled_from(
                [{"type": "ref/prompt", "name": "ask"}, {"type": "ref/resource", "uri": "x://{name}"}]
            )
            | values,
            "argument": st.sampled_from([{"name": "what", "value": ""}, {"name": "name", "value": "a"}]) | values,
            "notifications": st.sampled_from([{}, {"toolsListChanged": True}]) | values,
            "protocolVersion": st.sampled_from(VERSIONS) | scalars,
            "capabilities": values | st.just({}),
            "clientInfo": values | st.just({"name": "x", "version": "1"}),
            "inputResponses": values,
            "requestState": scalars,
        },
    ),
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | st.just("2.0") | scalars, "method": st.sampled_from(METHODS) | scalars},
    optional={"id": ids, "params": params, "result": values, "error": values},
)
answers = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": ids},
    optional={"result": values, "error": values | st.just({"code": -1, "message": "no"})},
)


@settings(ENOUGH, max_examples=150)
@given(versions, st.lists(messages | answers | st.lists(messages, max_size=3), max_size=8))
async def test_any_messages(version: str, sent: list[Any]) -> None:
    """Every request with a readable id is answered, unless it was cancelled; nothing else is."""
    async with memory_wire(make_server(), version) as wire:
        for message in sent:
            wire.send(message)
            await asyncio.sleep(0)
        await survived(wire)


@settings(ENOUGH, max_examples=100)
@given(st.lists(messages, max_size=6))
async def test_any_messages_before_the_version_is_agreed_on(sent: list[Any]) -> None:
    async with memory_wire(make_server()) as wire:
        for message in sent:
            wire.send(message)
        await asyncio.sleep(0)
        session = wire.connection.session
        if session.version is None:
            await wire.open("2024-11-05")
        else:
            wire.version = session.version.name
        await survived(wire)


well_formed = st.builds(
    lambda method, more, meta: {"method": method, "params": {**more, "_meta": meta}},
    st.sampled_from(METHODS),
    st.fixed_dictionaries({}, optional={"name": names, "uri": names, "arguments": arguments}),
    st.fixed_dictionaries({}, optional={"progressToken": st.integers(0, 2)}),
)


@settings(ENOUGH, max_examples=100)
@given(versions, st.lists(well_formed, max_size=10), st.data())
async def test_every_request_is_answered_exactly_once(version: str, sent: list[Any], data: st.DataObject) -> None:
    """S25-006, S25-007, S26-003, S26-004; of those that were cancelled, not at all or once."""
    async with memory_wire(make_server(), version) as wire:
        cancelled = set()
        for request_id, request in enumerate(sent):
            meta = {**envelope(), **request["params"]["_meta"]} if version == MODERN else request["params"]["_meta"]
            wire.send({"jsonrpc": "2.0", "id": request_id, **request, "params": {**request["params"], "_meta": meta}})
            if data.draw(st.booleans()):
                await asyncio.sleep(0)
            if data.draw(st.booleans()):
                wire.cancel(request_id)
                cancelled.add(request_id)
        await survived(wire)
        # `Conversation` has refused any second answer already.
        assert set(wire.talk.unanswered) <= cancelled
