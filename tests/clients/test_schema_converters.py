"""Converters of model vendors and validators of the frameworks' world take every schema of ours, and our results.

Children get schemas as JSON lines: AJV and the TypeScript SDK 1.x in Node, openai-agents, Gemini's converters,
jsonschema and fastjsonschema in an environment of their own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from clients import functions
from clients.schema_kinds import Kind, Node, Tree, argument_kinds, function_of, kinds
from clients.schema_servers import SERVERS, listed, tools_of
from hypothesis import HealthCheck, given, settings, strategies as st
from support.wires import LEGACY, MODERN, memory_wire

from mcpd import Server
from mcpd.server.functions.signature import bind
from mcpd.server.registry.content import encode_data

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent.parent / ".tools"
OFFICIAL = HERE.parent / "official"
NODE = TOOLS / "bin" / "node"
CONVERTERS = TOOLS / "converters" / "bin" / "python"

Judge = Callable[[list[dict[str, Any]]], list[Any]]


@pytest.fixture(scope="module")
def ajv() -> Iterator[Judge]:
    """ajv(cases): what AJV and the TypeScript SDK 1.x have against each."""
    if not (NODE.exists() and (OFFICIAL / "node_modules" / "ajv").is_dir()):
        pytest.skip("needs Node 22 and the TypeScript SDK: make setup-test installs both")
    with _child(str(NODE), str(HERE / "validators.mjs"), str(OFFICIAL)) as ask:
        yield ask


@pytest.fixture(scope="module")
def converters() -> Iterator[Judge]:
    """converters(cases): what converters and validators in Python have against each."""
    if not (TOOLS / ".converters").exists():
        pytest.skip("needs the converters of model vendors: make setup-test installs them")
    with _child(str(CONVERTERS), str(HERE / "converters.py")) as ask:
        yield ask


@contextmanager
def _child(*command: str) -> Iterator[Judge]:
    # They take long to start; a test asks them for one schema after another.
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    assert child.stdin is not None
    assert child.stdout is not None

    def ask(cases: list[dict[str, Any]]) -> list[Any]:
        assert child.stdin is not None
        assert child.stdout is not None
        answers = []
        for one in cases:
            child.stdin.write(json.dumps(one) + "\n")
            child.stdin.flush()
            answers.append(json.loads(child.stdout.readline()))
        return answers

    try:
        yield ask
        child.stdin.close()
        assert child.wait(timeout=100) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def case(schema: Any, *values: Any, is_output: bool) -> dict[str, Any]:
    return {"schema": schema, "values": list(values), "is_output": is_output}


def of_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [case(tool["inputSchema"], is_output=False) for tool in tools]
    return found + [case(tool["outputSchema"], is_output=True) for tool in tools if "outputSchema" in tool]


def complaints(cases: list[dict[str, Any]], ajv: Judge, converters: Judge) -> list[str]:
    found = []
    for one, lines, answer in zip(cases, ajv(cases), converters(cases), strict=True):
        found += [f"{line}\n    {json.dumps(one['schema'])}" for line in lines + answer["failed"]]
    return found


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
@pytest.mark.parametrize("name", SERVERS)
async def test_every_tool_of_our_servers(
    name: str, version: str, tmp_path: Path, ajv: Judge, converters: Judge
) -> None:
    tools = [tool for tool in await listed(name, tmp_path, version) if tool["name"] != "json_schema_2020_12_tool"]
    found = complaints(of_tools(tools), ajv, converters)
    assert not found, "\n".join(found)


def test_generated_signatures(ajv: Judge, converters: Judge) -> None:
    """Hypothesis makes the functions first, so that the children are asked once."""
    cases: list[dict[str, Any]] = []

    @settings(max_examples=120, database=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(argument_kinds(), kinds().flatmap(lambda kind: st.tuples(st.just(kind), kind.values)))
    def collect(takes: list[Kind], gives: tuple[Kind, Any]) -> None:
        callee = bind(function_of(takes, gives[0]))
        cases.append(case(callee.input_schema, is_output=False))
        if callee.output_schema is not None:
            result = msgspec.json.decode(encode_data(gives[1]))
            cases.append(case(callee.output_schema, result, is_output=True))

    collect()
    assert len(cases) > 120
    found = complaints(cases, ajv, converters)
    assert not found, "\n".join(found[:20])


class Bed(msgspec.Struct):
    name: str
    plants: list[str] = []


def plant(bed: Bed, again: Bed | None = None, how: Literal["deep", "flat"] = "flat") -> Bed: ...
def name_all(beds: list[Bed], by: tuple[int, str]) -> list[Bed]: ...
def ping() -> None: ...
def price(amount: float, of: Literal[1, 2] = 1) -> float: ...
def label(beds: dict[str, Bed]) -> None: ...
def grow(tree: Tree) -> None: ...
def link(node: Node) -> None: ...


# Maps have no strict form, and to openai-agents no reference has one: what does not contain itself needs none.
STRICT = {plant: True, name_all: True, ping: True, price: True, label: False, grow: False, link: False}


def test_openai_strict_mode(converters: Judge) -> None:
    """Also where a type is used twice, is described by its parameter, or stands beside null."""
    schemas = [case(bind(function).input_schema, is_output=False) for function in STRICT]
    assert [answer["strict"] for answer in converters(schemas)] == list(STRICT.values())


# What openai-agents does not hand to a model in strict mode, whoever serves it, of all tools of each server.
NOT_STRICT = {
    "starter": (5, set()),
    "everything": (40, {"json_schema_2020_12_tool"}),  # an author's own schema, with references in it
    "garden": (3, set()),
    # Three maps, and two types that contain themselves.
    "functions": (40, {"anything", "untyped_containers", "by_name", "depth", "grow"}),
}


@pytest.mark.parametrize("name", NOT_STRICT)
async def test_openai_strict_mode_takes_every_tool_that_has_a_strict_form(
    name: str, tmp_path: Path, converters: Judge
) -> None:
    """Of the fixture's and the starter's 45 tools 44. With references in place of types 10 of the functions fewer."""
    if name == "functions":
        server = Server("functions")
        for function in functions.TOOLS:
            server.tool(function)
        async with memory_wire(server, MODERN) as wire:
            tools = await tools_of(wire)
    else:
        tools = await listed(name, tmp_path, MODERN)
    answers = converters([case(tool["inputSchema"], is_output=False) for tool in tools])
    refused = {tool["name"] for tool, answer in zip(tools, answers, strict=True) if not answer["strict"]}
    assert (len(tools), refused) == NOT_STRICT[name]


async def test_results_pass_the_output_validation_of_the_typescript_sdk(ajv: Judge) -> None:
    """Tuples, enums, dates and the like, called over the wire in the version that this SDK speaks."""
    server = Server("t")

    @server.tool
    def pair(node: Node) -> tuple[int, Node]:
        """A tuple."""
        return (1, node)

    @server.tool
    def kinds_of(size: Literal["b", 1, None]) -> dict[str, Literal["b", 1, None]]:
        """Literals."""
        return {"a": size}

    async with memory_wire(server, LEGACY[-1]) as wire:
        tools = {tool["name"]: tool for tool in await tools_of(wire)}
        cases = []
        for name, arguments in (
            ("pair", {"node": {"user_name": "u", "when": "2026-11-22 10:00", "price": "1E+5"}}),
            ("kinds_of", {"size": "b"}),
            ("kinds_of", {"size": None}),
        ):
            result = await wire.result("tools/call", {"name": name, "arguments": arguments})
            assert not result.get("isError"), result
            cases.append(case(tools[name]["outputSchema"], result["structuredContent"], is_output=True))
    assert ajv(cases) == [[], [], []]


def test_the_judges_find_something(ajv: Judge, converters: Judge) -> None:
    """What our schemas were like before: each judge names it."""
    pair = {"type": "array", "prefixItems": [{"type": "integer"}], "items": False, "minItems": 1, "maxItems": 1}
    (found,) = ajv([case(pair, [1], is_output=True)])
    assert any(line.startswith("AJV draft-07, strict false") for line in found)
    assert any(line.startswith("AJV draft-07, strict true") and "prefixItems" in line for line in found)
    assert any(line.startswith("TypeScript SDK") for line in found)
    member = {"type": "object", "properties": {"a": {"enum": [1, "x"]}}}
    (answer,) = converters([case(member, is_output=False)])
    assert any("nothing is left of /a" in line for line in answer["failed"])
    (answer,) = converters([case(pair, [1], is_output=True)])
    assert {line.split()[0].rstrip(":") for line in answer["failed"]} == {"jsonschema", "fastjsonschema"}
