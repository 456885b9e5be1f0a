"""Other servers behind one: names, URIs and calls of mounted servers, on the wire."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest import Child
from support.wires import LEGACY, MODERN, Wire, each_version, memory_wire

from mcpd import Context, Server
from mcpd.client.targets.named import CommandTarget
from mcpd.server.registry.content import embedded, link

BOTH = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])


def make_server(name: str = "up") -> Server:
    server = Server(name, instructions=f"Use {name}.")

    @server.tool(annotations={"readOnlyHint": True})
    async def who(suffix: str = "") -> str:
        """Say who serves."""
        return name + suffix

    @server.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        return "done"

    @server.tool
    def links() -> list[Any]:
        return [link(f"notes://{name}", "n"), embedded(f"notes://{name}", "text")]

    server.add_text("notes://all", f"notes of {name}", name="all")

    @server.resource("notes://{topic}/long")
    def long(topic: str) -> str:
        return f"{name} on {topic}"

    @server.prompt
    def greet(whom: str) -> str:
        return f"{name} greets {whom}"

    @server.completion("whom", prompt="greet")
    def people(typed: str) -> list[str]:
        return [f"{typed} of {name}"]

    return server


@asynccontextmanager
async def opened(server: Server, version: str) -> AsyncIterator[Wire]:
    """A client of a server with mounts, which are ended with it."""
    try:
        async with memory_wire(server) as wire:
            await wire.open(version)
            yield wire
    finally:
        await server.aclose()


def text_of(result: Any) -> str:
    return result["content"][0]["text"]  # type: ignore[no-any-return]


@each_version
async def test_what_is_listed_can_be_used(version: str) -> None:
    """MNT-02, MNT-04: every name and URI works when it is given back, and equal names of two mounts do not meet."""
    server = Server("front")

    @server.tool
    async def who() -> str:
        return "front"

    server.mount("a", make_server("one"))
    server.mount("b", make_server("two"))
    async with opened(server, version) as wire:
        tools = [tool["name"] for tool in (await wire.request("tools/list"))["result"]["tools"]]
        assert tools == ["who", "a_who", "a_steps", "a_links", "b_who", "b_steps", "b_links"]
        said = [
            text_of((await wire.request("tools/call", {"name": name}))["result"]) for name in ("who", "a_who", "b_who")
        ]
        assert said == ["front", "one", "two"]

        resources = [each["uri"] for each in (await wire.request("resources/list"))["result"]["resources"]]
        assert resources == ["a+notes://all", "b+notes://all"]
        for uri, whose in (
            *zip(resources, ("notes of one", "notes of two"), strict=True),
            ("b+notes://x/long", "two on x"),
        ):
            contents = (await wire.request("resources/read", {"uri": uri}))["result"]["contents"]
            assert [(each["uri"], each["text"]) for each in contents] == [(uri, whose)]

        templates = (await wire.request("resources/templates/list"))["result"]["resourceTemplates"]
        assert [each["uriTemplate"] for each in templates] == ["a+notes://{topic}/long", "b+notes://{topic}/long"]
        prompts = [each["name"] for each in (await wire.request("prompts/list"))["result"]["prompts"]]
        assert prompts == ["a_greet", "b_greet"]
        got = await wire.request("prompts/get", {"name": "b_greet", "arguments": {"whom": "you"}})
        assert got["result"]["messages"][0]["content"]["text"] == "two greets you"


@BOTH
async def test_uris_in_results_can_be_read(version: str) -> None:
    server = Server("front")
    server.mount("a", make_server("one"))
    async with opened(server, version) as wire:
        await wire.request("tools/list")
        content = (await wire.request("tools/call", {"name": "a_links"}))["result"]["content"]
        assert [content[0]["uri"], content[1]["resource"]["uri"]] == ["a+notes://one", "a+notes://one"]


@BOTH
async def test_a_completion_finds_its_server(version: str) -> None:
    server = Server("front")
    server.mount("a", make_server("one"))
    async with opened(server, version) as wire:
        await wire.request("prompts/list")
        ref = {"type": "ref/prompt", "name": "a_greet"}
        params = {"ref": ref, "argument": {"name": "whom", "value": "x"}}
        assert (await wire.request("completion/complete", params))["result"]["completion"]["values"] == ["x of one"]


@BOTH
async def test_progress_comes_with_the_token_of_the_client(version: str) -> None:
    server = Server("front")
    server.mount("a", make_server("one"))
    async with opened(server, version) as wire:
        await wire.request("tools/list")
        result = await wire.request("tools/call", {"name": "a_steps"}, meta={"progressToken": "mine"})
        assert text_of(result["result"]) == "done"
        told = [each["params"] for each in wire.heard if each["method"] == "notifications/progress"]
        assert [(each["progressToken"], each["progress"], each["message"]) for each in told] == [("mine", 1, "half")]


@BOTH
async def test_a_command_is_started_by_the_first_request(version: str, child: Child) -> None:
    server = Server("front")
    server.mount("demo", CommandTarget(tuple(child.mcpd("serve", "--stdio", "--demo")), child.env))
    async with opened(server, version) as wire:
        tools = [tool["name"] for tool in (await wire.request("tools/list"))["result"]["tools"]]
        assert tools
        assert all(name.startswith("demo_") for name in tools)


def test_without_mounts_nothing_of_them_is_loaded(child: Child) -> None:
    """MNT-44: no mount, nothing imported."""
    code = "import mcpd, sys; mcpd.Server('x'); import mcpd.cli.launch, mcpd.sources.folder"
    print_loaded = "print([name for name in sys.modules if 'mounts' in name])"
    words = [child.python, "-c", f"{code}; {print_loaded}"]
    assert subprocess.run(words, env=child.env, capture_output=True, text=True, check=True).stdout == "[]\n"
