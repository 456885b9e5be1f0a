"""Other servers behind one: names, URIs and calls of mounted servers, on the wire."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest import Child
from support.wires import LEGACY, MODERN, Wire, each_version, memory_wire

from mcpd import Context, Params, Server
from mcpd.client.targets.named import CommandTarget
from mcpd.server.registry.content import embedded, link
from mcpd.sources.mounts.passing import server_of
from mcpd.sources.mounts.settings import MountSettings
from mcpd.sources.mounts.targets import Wanted

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
            wire.opened = await wire.open(version)  # type: ignore[attr-defined]
            yield wire
    finally:
        await server.aclose()


def alone(up: Server, settings: MountSettings) -> Server:
    return server_of([Wanted("m", up, settings)])  # type: ignore[arg-type]


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
async def test_a_uri_without_prefix_is_read_if_one_server_has_it(version: str) -> None:
    """Scripts of Views contain such URIs."""
    server = Server("front")
    server.mount("a", make_server("one"))
    server.mount("b", make_server("two"))
    server.mount("c", Server("three"))
    async with opened(server, version) as wire:
        await wire.request("resources/list")
        assert (await wire.error("resources/read", {"uri": "notes://all"}))["code"] in (-32602, -32002)
        server.extensions["mcpd/mounts"].remove("b")  # type: ignore[attr-defined]
        (contents,) = (await wire.result("resources/read", {"uri": "notes://all"}))["contents"]
        assert contents["text"] == "notes of one"


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


def framed(wire: Wire) -> list[bytes]:
    """The frames that arrive from now on."""
    frames: list[bytes] = []
    arrived = wire.arrived

    def record(frame: bytes | None) -> None:
        frames.append(frame or b"")
        arrived(frame)

    wire.arrived = record  # type: ignore[method-assign]
    return frames


@BOTH
async def test_a_single_server_is_passed_through(version: str) -> None:
    """MNT-01: names, description and results are those of the server, byte for byte in its own version."""
    up = make_server("up")
    server = alone(up, MountSettings(protocol="modern" if version == MODERN else "legacy"))
    async with opened(server, version) as wire, memory_wire(up) as direct:
        begun = await direct.open(version), wire.opened  # type: ignore[attr-defined]
        assert [each.get("instructions") for each in begun] == ["Use up."] * 2
        assert [each["capabilities"] for each in begun[:1]] == [begun[1]["capabilities"]]
        frames = framed(wire), framed(direct)
        for each in (wire, direct):
            for method, params in (
                ("tools/list", {}),
                ("tools/call", {"name": "who", "arguments": {"suffix": "!"}}),
                ("tools/call", {"name": "links"}),
                ("tools/call", {"name": "unknown"}),
                ("resources/list", {}),
                ("resources/templates/list", {}),
                ("resources/read", {"uri": "notes://x/long"}),
                ("resources/read", {"uri": "notes://nothing"}),
                ("prompts/list", {}),
                ("prompts/get", {"name": "greet", "arguments": {"whom": "you"}}),
            ):
                await each.request(method, params, id=f"{method} {params}")
        assert frames[0] == frames[1]


async def test_results_of_a_newer_server_have_the_shape_of_the_version_of_the_client() -> None:
    """MNT-20: a client of an older version gets nothing of what only newer ones have in results."""
    up = make_server("up")
    server = alone(up, MountSettings(protocol="modern"))
    async with opened(server, LEGACY[-1]) as wire, memory_wire(up) as direct:
        await direct.open(LEGACY[-1])
        for name in ("who", "links", "unknown"):
            answers = [await each.request("tools/call", {"name": name}, id=name) for each in (wire, direct)]
            assert answers[0] == answers[1]


@BOTH
async def test_an_unknown_method_goes_to_a_single_server(version: str) -> None:
    up = make_server("up")
    extension = up.extension("com.example/notes")

    class SearchParams(Params):
        word: str

    @extension.method("com.example/notes/search", SearchParams)
    def search(ctx: Context, params: SearchParams) -> dict[str, str]:
        return {"found": params.word}

    extension.admits = lambda client: True  # type: ignore[method-assign]
    server = alone(up, MountSettings(protocol="modern" if version == MODERN else "legacy"))
    async with opened(server, version) as wire:
        result = await wire.result("com.example/notes/search", {"word": "w"})
        assert result["found"] == "w"
        assert (await wire.error("com.example/unknown"))["code"] == -32601
        gone = "ping" if version == MODERN else "subscriptions/listen"
        assert (await wire.error(gone))["code"] == -32601


@BOTH
async def test_an_unknown_notification_of_a_single_server_is_passed_on(version: str) -> None:
    up = make_server("up")
    extension = up.extension("com.example/notes")
    extension.admits = lambda client: True  # type: ignore[method-assign]
    extension.may_notify("com.example/notes/changed")

    @up.tool
    async def change(ctx: Context) -> str:
        await ctx.notify("com.example/notes/changed", {"note": "n"})
        return "changed"

    for protocol in ("modern", "legacy"):
        async with opened(alone(up, MountSettings(protocol=protocol)), version) as wire:  # type: ignore[arg-type]
            assert await wire.text("change") == "changed"
            (heard,) = wire.heard
            assert (heard["method"], heard["params"]["note"]) == ("com.example/notes/changed", "n")
