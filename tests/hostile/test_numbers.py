"""Numbers that are JSON by its grammar and that nothing can hold: refused as wrong params, wherever they stand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.wires import MODERN, Wire, envelope, memory_wire

from mcpd import Context, Server

# What stands for the number until the message is text.
MARK = "@number@"

NUMBERS = ["1e999", "-1e400", "9" * 5000, "[" * 20 + "1e999" + "]" * 20]


def server() -> Server:
    made = Server("numbers")

    @made.tool
    async def asks(ctx: Context, x: Any = None) -> str:
        await ctx.elicit("Which?", {"type": "object", "properties": {}})
        return "asked"

    @made.tool
    async def takes(x: Any = None) -> str:
        return "taken"

    return made


def call(name: str, request_id: Any = 1, **more: Any) -> dict[str, Any]:
    meta = envelope(capabilities={"elicitation": {}})
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"name": name, "_meta": meta, **more}}


def capable(**capabilities: Any) -> dict[str, Any]:
    return {**call("asks"), "params": {"name": "asks", "_meta": envelope(capabilities=capabilities)}}


MESSAGES = {
    "arguments of a tool": call("takes", arguments={"x": MARK}),
    "arguments of a tool that asks": call("asks", arguments={"x": MARK}),
    "arguments beside a state": call("takes", arguments={"x": MARK}, requestState="x"),
    "arguments beside a state, of a tool that asks": call("asks", arguments={"x": MARK}, requestState="x"),
    "answers": call("asks", inputResponses={"1": {"action": "accept", "content": {"x": MARK}}}),
    "an answer": call("asks", inputResponses={"1": MARK}),
    "a capability": capable(elicitation=MARK),
    "a member of a capability": capable(elicitation={"form": {"x": MARK}}),
    "an unknown capability": capable(elicitation={}, experimental={"x": MARK}),
    "an unknown member": call("takes", unknown=MARK),
    "the progress token": call("takes", _meta={**envelope(), "progressToken": MARK}),
    "the meta": call("takes", _meta={**envelope(), "x/y": MARK}),
    "the client's name": call("takes", _meta={**envelope(), "io.modelcontextprotocol/clientInfo": {"name": MARK}}),
    "the version": call("takes", _meta={**envelope(), "io.modelcontextprotocol/protocolVersion": MARK}),
    "a cursor": {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": MARK, "_meta": envelope()}},
    "the id": call("takes", MARK),
    "the name": {**call("takes"), "params": {"name": MARK, "_meta": envelope()}},
    "the params": {**call("takes"), "params": MARK},
    "the method": {**call("takes"), "method": MARK},
}


async def said(wire: Wire, message: Any, number: str) -> Any:
    # Past the wire's own reading of it, which has limits of its own.
    if message["id"] != MARK:
        wire.talk.client(message)
    wire._send(json.dumps(message).replace(f'"{MARK}"', number).encode())
    return await wire.receive()


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
@pytest.mark.parametrize("where", MESSAGES)
async def test_a_number_that_nothing_can_hold(where: str, number: str, caplog: pytest.LogCaptureFixture) -> None:
    async with memory_wire(server()) as wire:
        wire.version = MODERN
        answer = await said(wire, MESSAGES[where], number)
        code = answer.get("error", {}).get("code")
        assert code in (None, -32600, -32602, -32020, -32021, -32022, -32601, -32700), answer
        if where in ("arguments beside a state", "arguments of a tool that asks"):
            assert code == -32602 or answer["result"]["isError"]
    assert not [record for record in caplog.records if record.exc_info]
