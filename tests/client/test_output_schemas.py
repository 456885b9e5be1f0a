"""What tools give is held against their output schemas; what a server does not offer is not asked for. On the wire."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import pytest
from support.scripted_server import DISCOVERED, INITIALIZED, scripted

from mcpd import Client, Server
from mcpd.client import output_schemas
from mcpd.client.limits import Faults
from mcpd.client.output_schemas import OutputSchemas, cost_of
from mcpd.errors import LocalProtocolError, RemoteError, ResultMismatch
from mcpd.protocol.types.features import CallToolResult, Tool
from mcpd.protocol.types.interaction import PromptReference

LOG = logging.getLogger("mcpd.client")
ERAS = pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "legacy"])
OBJECT = {"type": "object"}
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


def answers(is_modern: bool, offered: dict[str, Any], **others: Any) -> dict[str, Any]:
    first = {"server/discover": {**DISCOVERED, "capabilities": offered}} if is_modern else {
        "initialize": {**INITIALIZED, "capabilities": offered}
    }  # fmt: skip
    return {**first, **{name.replace("_", "/"): answer for name, answer in others.items()}}


def listed(schema: Any) -> dict[str, Any]:
    return {"resultType": "complete", "tools": [{"name": "add", "inputSchema": OBJECT, "outputSchema": schema}]}


def gave(**members: Any) -> dict[str, Any]:
    return {"resultType": "complete", "content": [], **members}


# ------------------------------------------------------------------------------------------ results


@ERAS
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (gave(structuredContent={"sum": 3}), None),
        (gave(structuredContent={"sum": "3"}), 'tool add: the result does not match its outputSchema: sum: "3" is not'),
        (gave(structuredContent={}), '"sum" is a required property'),
        (gave(), "tool add: the tool has an outputSchema, but returned no structured content"),
        (gave(isError=True), None),
    ],
)
async def test_a_result_is_held_against_the_schema_of_a_tool_that_was_listed(
    result: Any, said: str | None, *, is_modern: bool
) -> None:
    """Spec: 2026-07-28 server/tools: "Clients SHOULD validate structured results against this schema"."""
    script = answers(is_modern, {"tools": {}}, tools_list=listed(SUM), tools_call=result)
    async with scripted(script, version="2026-07-28" if is_modern else "2025-11-25") as (client, _):
        assert (await client.call_tool("add")).content == []  # nothing is known of it
        await client.list_tools()
        if said is None:
            await client.call_tool("add")
            return
        with pytest.raises(ResultMismatch, match=said) as caught:
            await client.call_tool("add")
        assert isinstance(caught.value.result, CallToolResult)


async def test_a_tool_that_has_changed_since_is_listed_again() -> None:
    script = answers(True, {"tools": {}}, tools_list=listed(SUM), tools_call=gave(structuredContent=[1]))
    async with scripted(script) as (client, server):
        await client.list_tools()
        server.answers["tools/list"] = listed({"type": "array"})
        assert (await client.call_tool("add")).structured_content == [1]
        assert len(server.of("tools/call")) == 1
        assert len(server.of("tools/list")) == 2


async def test_who_does_not_want_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("wrong", version="1")

    @server.tool(output_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
    def wrong() -> dict[str, int]:
        return {"a": 1}

    async with Client(server, check_results=False) as client:
        await client.list_tools()
        assert client._checks is None
    async with Client(server) as client:
        await client.list_tools()
        assert await client.call("wrong") == {"a": 1}

    # Without the package nothing is held against anything.
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    monkeypatch.setattr(output_schemas, "_can_check", lambda: False)
    checks = OutputSchemas(Faults(LOG))
    checks.set_tools([Tool(name="x", input_schema={}, output_schema=SUM)])
    assert checks.problem("x", CallToolResult(content=[], structured_content=1)) is None


def chain(count: int) -> dict[str, Any]:
    """A schema of which each part refers to the next twice: 2 ** count parts look at a value."""
    defs: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(count)}
    return {"$defs": {**defs, f"a{count}": OBJECT}, "$ref": "#/$defs/a0"}


TWICE = {"properties": {"x": {"$ref": "#"}}}
HOSTILE: dict[str, Any] = {
    "doubling": chain(60),
    "hidden in a property": {"properties": {"$defs": chain(60)["$defs"]["a0"]}, "$defs": chain(60)["$defs"]},
    "back in two ways": {"allOf": [TWICE, TWICE]},
    "dynamic": {"$dynamicRef": "#"},
    "an anchor": {"$ref": "#there", "$defs": {"a": {"$anchor": "there"}}},
    "nowhere": {"$ref": "#/$defs/none"},
    "many parts": {"$defs": {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(1000)}, "$ref": "#/$defs/a0"},
    "large": {"enum": list(range(20_000))},
    "a pattern that tries": {"pattern": "^(?=(a+)+b)"},
    "another dialect": {"$schema": "https://example.com/mine"},
    "fetched": {"$ref": "http://127.0.0.1:1/"},
    "no schema": {"type": 5},
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_schema_that_could_take_for_ever_is_held_against_nothing(shape: str, caplog: Any) -> None:
    caplog.set_level("INFO", "mcpd.client")
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"x": deep}
    checks = OutputSchemas(Faults(LOG))
    checks.set_tools([Tool(name="x", input_schema={}, output_schema=HOSTILE[shape])])
    began = time.perf_counter()
    assert checks.problem("x", CallToolResult(content=[], structured_content=deep)) is None
    assert time.perf_counter() - began < 10
    assert "results of the tool x cannot be checked against its schema: " in caplog.text


def test_what_takes_its_time_with_one_value_is_not_looked_at() -> None:
    checks = OutputSchemas(Faults(LOG))
    schema = {"items": {"anyOf": [{"const": number} for number in range(2000)]}}
    checks.set_tools([Tool(name="x", input_schema={}, output_schema=schema)])
    assert checks.problem("x", CallToolResult(content=[], structured_content=[-1])) is not None
    assert checks.problem("x", CallToolResult(content=[], structured_content=[-1] * 1_000_000)) is None


def test_what_people_write_is_looked_at() -> None:
    tree = {"$defs": {"node": {"properties": {"of": {"items": {"$ref": "#/$defs/node"}}}}}, "$ref": "#/$defs/node"}
    assert cost_of(tree) < 20
    assert cost_of({"properties": {"enum": {"$ref": "#/properties/a"}, "a": {"type": "string"}}}) < 20
    assert cost_of(chain(5)) > 2**5


# ------------------------------------------------------------------------------------- capabilities

NOT_OFFERED: list[tuple[str, Any, Any]] = [
    ("tools", "tools/call", lambda client: client.call_tool("x")),
    ("resources", "resources/read", lambda client: client.read_resource("a://b")),
    ("resources.subscribe", "resources/subscribe", lambda client: client.subscribe("a://b")),
    ("prompts", "prompts/get", lambda client: client.get_prompt("x")),
    ("completions", "completion/complete", lambda client: client.complete(PromptReference(name="x"), "a", "b")),
    ("logging", "logging/setLevel", lambda client: client.set_log_level("info")),
]


@ERAS
@pytest.mark.parametrize(("what", "method", "ask"), NOT_OFFERED, ids=[row[0] for row in NOT_OFFERED])
async def test_what_is_not_offered_is_not_asked_for(what: str, method: str, ask: Any, *, is_modern: bool) -> None:
    """Spec: 2025-11-25 basic/lifecycle: "Only use capabilities that were successfully negotiated" (S25-025)."""
    offered = {"resources": {}} if what == "resources.subscribe" else {"experimental": {}}
    refused = {method: {"code": -32601, "message": "no"}}
    script = {**answers(is_modern, offered), **refused}
    async with scripted(script, version="2026-07-28" if is_modern else "2025-11-25") as (client, server):
        if is_modern and what == "logging":
            await ask(client)  # each request says it for itself
            return
        with pytest.raises(LocalProtocolError, match=rf"the server does not offer {what}, so {method} was not sent"):
            await ask(client)
        assert not server.of(method)
        if method in ("resources/subscribe", "logging/setLevel") and is_modern:
            return
        with pytest.raises(RemoteError, match="no"):
            await client.request(method, {"name": "x"})
        assert len(server.of(method)) == 1


async def test_before_there_was_a_way_to_offer_it_it_is_asked_for() -> None:
    found = {"completion": {"values": ["a"]}}
    script = answers(False, {"prompts": {}}, completion_complete=found)
    script["initialize"]["protocolVersion"] = "2024-11-05"
    async with scripted(script, version="2024-11-05") as (client, _):
        assert (await client.complete(PromptReference(name="x"), "a", "b")).completion.values == ["a"]
