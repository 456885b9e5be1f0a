"""The seed's checks of tools, on the wire, over the Terragrunt documents: conformance/seeds/terragrunt.toml."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from support.terragrunt import SECTIONS, TOOLS, both, data, greeted, resources, talking
from support.wires import Wire

PUBLISHED = "https://terragrunt.gruntwork.io/docs/"

Factory = pytest.TempPathFactory


async def tools(wire: Wire) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}


def takes(tool: dict[str, Any]) -> dict[str, str]:
    """The arguments that a tool has to be given, with their types, and those that it may be given, as `name?`."""
    schema = tool["inputSchema"]
    required = schema.get("required", ())
    return {
        name if name in required else f"{name}?": one.get("type", "string")
        for name, one in schema["properties"].items()
    }


# ------------------------------------------------------------------------------- 4. their list


@both
async def test_listed_without_parameters(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-1"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert (await wire.result("tools/list"))["tools"]


@both
async def test_listed_tools_have_what_is_required(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-2: a name, a description, an input schema; and more that models and hosts are told."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for tool in (await tools(wire)).values():
            assert all((tool["name"], tool["description"], tool["title"]))
            assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
            assert tool["annotations"]["readOnlyHint"] is True
            assert tool["annotations"]["openWorldHint"] is False


@both
async def test_input_schemas_are_schemas(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-3: and so are those of their results."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for tool in (await tools(wire)).values():
            for schema in (tool["inputSchema"], tool["outputSchema"]):
                jsonschema_rs.meta.validate(schema)
                assert isinstance(schema["properties"], dict)
                assert set(schema.get("required", ())) <= schema["properties"].keys()


@both
async def test_there_are_six(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-4"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert (await tools(wire)).keys() == TOOLS


@both
async def test_the_search(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-5: with a limit of 5 unless it is said; and a cursor for what comes behind that."""
    async with talking(shared, tmp_path_factory, version) as wire:
        tool = (await tools(wire))["search_terragrunt_docs"]
    assert takes(tool) == {"query": "string", "limit?": "integer", "cursor?": "string"}
    assert tool["inputSchema"]["properties"]["limit"]["default"] == 5


@both
async def test_the_list_of_sections(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-6"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert takes((await tools(wire))["get_terragrunt_sections"]) == {}


@both
async def test_the_reader_of_sections(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-7"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert takes((await tools(wire))["get_section_docs"]) == {"section": "string", "cursor?": "string"}


@both
async def test_the_help_for_commands(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-8"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert takes((await tools(wire))["get_cli_command_help"]) == {"command": "string"}


@both
async def test_the_reference_of_configuration(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-9"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert takes((await tools(wire))["get_hcl_config_reference"]) == {"config": "string"}


@both
async def test_the_search_for_examples(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-10"""
    async with talking(shared, tmp_path_factory, version) as wire:
        tool = (await tools(wire))["get_code_examples"]
    assert takes(tool) == {"topic": "string", "limit?": "integer", "cursor?": "string"}


@both
async def test_names_are_in_snake_case(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-11"""
    async with talking(shared, tmp_path_factory, version) as wire:
        assert all(re.fullmatch("[a-z][a-z0-9_]{0,48}", name) for name in await tools(wire))


@both
async def test_descriptions_help(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """list-tools-12: of 10 to 500 characters, of tools and of each argument, without a gap that nothing filled."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for tool in (await tools(wire)).values():
            assert 10 < len(tool["description"]) < 500
            assert "{" not in tool["description"]
            assert all(len(one["description"]) > 10 for one in tool["inputSchema"]["properties"].values())


# --------------------------------------------------------------------------------- 5. their calls


@both
async def test_a_tool_is_called(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-1: text for the model, and links to the pages."""
    async with talking(shared, tmp_path_factory, version) as wire:
        result = await wire.call("search_terragrunt_docs", query="dependencies", limit=5)
    assert not result.get("isError")
    assert result["content"][0]["text"].startswith("5 of ")
    assert {block["type"] for block in result["content"][1:]} == {"resource_link"}


@both
async def test_what_a_search_gives(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-2: and the rest of it by cursor, each page once."""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await data(wire, "search_terragrunt_docs", query="terraform", limit=3)
        more = await data(wire, "search_terragrunt_docs", query="terraform", limit=3, cursor=found["nextCursor"])
    assert (found["query"], len(found["results"]), found["hasMore"]) == ("terraform", 3, True)
    assert found["total"] > 20
    for one in found["results"]:
        assert one["url"].startswith(PUBLISHED)
        assert {"title", "url", "section", "snippet"} <= one.keys()
        assert one["section"] in SECTIONS
        assert "erra" in one["snippet"]
    pages = [one["url"].partition("#")[0] for one in found["results"] + more["results"]]
    assert len(set(pages)) == 6


@both
async def test_what_the_list_of_sections_gives(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-3"""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await data(wire, "get_terragrunt_sections")
    counts = {one["name"]: one["docCount"] for one in found["sections"]}
    assert counts.keys() == SECTIONS
    assert (found["totalSections"], found["totalDocs"]) == (len(SECTIONS), sum(counts.values()))
    assert counts["getting-started"] == 4


@both
async def test_what_a_section_gives(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-4: its pages in order, as many as an answer holds, the rest by cursor; or what sections there are."""
    async with talking(shared, tmp_path_factory, version) as wire:
        first = found = await data(wire, "get_section_docs", section="getting-started")
        docs = list(found["docs"])
        while "nextCursor" in found:
            found = await data(wire, "get_section_docs", section="getting-started", cursor=found["nextCursor"])
            docs += found["docs"]
        miss = await wire.call("get_section_docs", section="getting-strated")
    assert (first["section"], first["totalDocs"]) == ("getting-started", 4)
    assert sum(len(one["content"]) for one in first["docs"]) <= 20_000
    assert list(dict.fromkeys(one["title"] for one in docs)) == ["Quick Start", "Overview", "Install", "Terminology"]
    assert all(one["url"].startswith(f"{PUBLISHED}getting-started/") and one["content"] for one in docs)

    assert miss["isError"] is True
    assert miss["structuredContent"].keys() == {"section", "error", "availableSections"}
    assert set(miss["structuredContent"]["availableSections"]) == SECTIONS


@both
async def test_what_the_help_for_a_command_gives(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-5"""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await data(wire, "get_cli_command_help", command="plan")
        miss = await data(wire, "get_cli_command_help", command="frobnicate-it")
    assert found.keys() == {"command", "title", "url", "content"}
    assert found["command"] == "plan"
    assert found["url"].startswith(f"{PUBLISHED}reference/cli/")
    assert miss.keys() == {"command", "error", "suggestion"}


@both
async def test_what_the_reference_gives(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-6"""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await data(wire, "get_hcl_config_reference", config="terraform")
    assert (found["config"], found["totalResults"]) == ("terraform", len(found["results"]))
    first = found["results"][0]
    assert first["url"].startswith(f"{PUBLISHED}reference/hcl/")
    assert "terraform" in first["content"]


@both
async def test_what_a_search_for_examples_gives(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-7: by page."""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await data(wire, "get_code_examples", topic="dependencies", limit=3)
    assert (found["topic"], found["totalDocuments"]) == ("dependencies", len(found["examples"]))
    for one in found["examples"]:
        assert one["documentTitle"]
        assert one["documentUrl"].startswith(PUBLISHED)
        assert one["section"] in SECTIONS
        assert one["snippetCount"] == len(one["codeSnippets"]) > 0
    assert sum(one["snippetCount"] for one in found["examples"]) == 3


@both
async def test_required_arguments_are_required(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-8: a result that names the argument, and says that it is required; so for one without a word."""
    required = {
        "search_terragrunt_docs": "query",
        "get_section_docs": "section",
        "get_cli_command_help": "command",
        "get_hcl_config_reference": "config",
        "get_code_examples": "topic",
    }
    async with talking(shared, tmp_path_factory, version) as wire:
        for name, argument in required.items():
            result = await wire.call(name)
            assert result["isError"] is True
            assert argument in result["content"][0]["text"]
            assert "required" in result["content"][0]["text"]
        empty = await wire.call("search_terragrunt_docs", query="  ")
    assert empty["isError"] is True
    assert "required" in empty["content"][0]["text"]


@both
async def test_an_unknown_tool_is_an_error(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-9: a protocol error, as the specification has it."""
    async with talking(shared, tmp_path_factory, version) as wire:
        error = await wire.error("tools/call", {"name": "unknown_tool", "arguments": {}})
    assert error["code"] == -32602
    assert "unknown_tool" in error["message"]


@both
async def test_optional_arguments_may_be_left_out(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-10: or be null."""
    async with talking(shared, tmp_path_factory, version) as wire:
        found = await data(wire, "search_terragrunt_docs", query="stack")
        again = await data(wire, "search_terragrunt_docs", query="stack", cursor=None)
    assert len(found["results"]) == 5
    assert found == again


@both
async def test_what_goes_wrong_is_a_result(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """call-tool-11: for whatever arguments; and the server goes on."""
    wrong: list[dict[str, Any]] = [
        {"query": 5}, {"query": None}, {"query": ["a"]}, {"query": "x", "limit": 0}, {"query": "x", "limit": 10**30},
        {"query": "x", "cursor": "nothing"}, {"query": "x", "more": 1},
    ]  # fmt: skip
    odd = ['"', "'; DROP TABLE pages; --", "AND OR NOT", "*", "NEAR(a b)", "a" * 5000, "\U0001f600", "\u202e", "^:-+"]
    async with talking(shared, tmp_path_factory, version) as wire:
        for arguments in wrong:
            assert (await wire.call("search_terragrunt_docs", None, **arguments))["isError"] is True, arguments
        for query in odd:
            assert (await data(wire, "search_terragrunt_docs", query=query))["query"] == query
            assert (await data(wire, "get_hcl_config_reference", config=query))["config"] == query
        assert (await data(wire, "search_terragrunt_docs", query="stack"))["results"]


# ----------------------------------------------------------------------------------- 6. their errors


@both
async def test_errors_of_resources_are_answers(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """error-1: each is an error of its request, and the connection goes on."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for uri in ("terragrunt://docs/page/xyz", "terragrunt://docs/section/xyz", "file:///etc/passwd"):
            assert (await wire.error("resources/read", {"uri": uri}))["message"]
        assert await resources(wire)


@both
async def test_errors_of_arguments_are_results(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """error-2"""
    async with talking(shared, tmp_path_factory, version) as wire:
        for name in TOOLS - {"get_terragrunt_sections"}:
            result = await wire.call(name, None, nonsense=1)
            assert result["isError"] is True
            assert result["content"][0]["type"] == "text"


@both
async def test_errors_help(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """error-3: a miss names what is there and looks like it, and what to try instead."""
    async with talking(shared, tmp_path_factory, version) as wire:
        section = await wire.call("get_section_docs", section="feature")
        assert "features" in section["content"][0]["text"]
        config = await wire.call("get_hcl_config_reference", config="remote_stat")
        assert "remote_state" in json.dumps(config["content"])
        nothing = await data(wire, "get_cli_command_help", command="qqqqxyz")
        assert nothing["error"] == "No documentation found for: qqqqxyz"
        assert nothing["suggestion"]
        assert (
            "search_terragrunt_docs"
            in (await wire.call("get_cli_command_help", command="qqqqxyz"))["content"][0]["text"]
        )


@both
async def test_errors_tell_nothing_of_the_machine(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """error-4: no path of it, and no traceback."""
    async with talking(shared, tmp_path_factory, version) as wire:
        told = [
            await wire.error("resources/read", {"uri": "terragrunt://docs/page/xyz"}),
            await wire.error("tools/call", {"name": "nothing"}),
            await wire.call("search_terragrunt_docs", query=5),
            await wire.call("get_section_docs", section="../.."),
            await wire.call("get_section_docs", section="features", cursor="99999:0"),
        ]
    text = json.dumps(told)
    assert "Traceback" not in text
    assert ".py" not in text
    assert str(shared) not in text
    assert str(Path.home()) not in text


# ------------------------------------------------------------------------- 7. the form of answers


@both
async def test_answers_are_json(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """form-1: each result fits its output schema, and what its text says is in its data."""
    calls: dict[str, dict[str, Any]] = {
        "search_terragrunt_docs": {"query": "hooks"},
        "get_terragrunt_sections": {},
        "get_section_docs": {"section": "community"},
        "get_cli_command_help": {"command": "run"},
        "get_hcl_config_reference": {"config": "inputs"},
        "get_code_examples": {"topic": "hooks"},
    }
    async with talking(shared, tmp_path_factory, version) as wire:
        schemas = {name: tool["outputSchema"] for name, tool in (await tools(wire)).items()}
        for name, arguments in calls.items():
            found = await data(wire, name, **arguments)
            jsonschema_rs.validate(schemas[name], found)
            assert json.loads(json.dumps(found)) == found


@both
async def test_answers_are_bounded(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """form-2: a tree of values, of a size that a model can read."""
    async with talking(shared, tmp_path_factory, version) as wire:
        for section in sorted(SECTIONS):
            result = await wire.call("get_section_docs", section=section)
            assert len(result["content"][0]["text"]) < 30_000
            assert len(json.dumps(result)) < 80_000
        found = await wire.call("search_terragrunt_docs", query="terragrunt", limit=20)
        assert len(found["content"][0]["text"]) < 20_000


@both
async def test_answers_have_one_form(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """form-3: the same members of the same types, whatever is asked for."""

    def form(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: form(one) for key, one in value.items() if key not in ("heading", "nextCursor")}
        return [form(value[0])] if isinstance(value, list) and value else type(value).__name__

    async with talking(shared, tmp_path_factory, version) as wire:
        queries = ("hooks", "stack", "remote state", "cache")
        searches = [form(await data(wire, "search_terragrunt_docs", query=query)) for query in queries]
        sections = [form(await data(wire, "get_section_docs", section=name)) for name in ("guides", "process")]
    assert all(one == searches[0] for one in searches)
    assert sections[0] == sections[1]


# ------------------------------------------------------------------------- 10. the protocol's types


@both
async def test_messages_are_those_of_the_specification(shared: Path, tmp_path_factory: Factory, version: str) -> None:
    """version-1: the wire holds every message against the schema of its version."""
    _, capabilities = await greeted(shared, tmp_path_factory, version)
    assert capabilities.keys() >= {"tools", "resources", "completions"}
    async with talking(shared, tmp_path_factory, version) as wire:
        await resources(wire)
        template = (await wire.result("resources/templates/list"))["resourceTemplates"][0]["uriTemplate"]
        await data(wire, "search_terragrunt_docs", query="stack")
        completed = await wire.result(
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": template}, "argument": {"name": "url", "value": "quick-start"}},
        )
        wire.check()
    assert completed["completion"]["values"] == [f"{PUBLISHED}getting-started/quick-start/"]
