"""Several servers as one: names with prefixes, calls through the handlers of each, lists that change with theirs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.folders import write
from support.wires import LEGACY, MODERN, memory_wire, process_wire

from mcpd import CallNext, Context, MiddlewareRequest, Principal, RouteRequest, Server
from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.server.extensions.ui.constants import UI
from mcpd.server.joined import join

BOTH = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
HTML = '<!doctype html><meta charset="utf-8"><title>x</title>'


def make(name: str, seen: list[str]) -> Server:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        seen.append(f"{name} opened")
        yield name.upper()
        seen.append(f"{name} closed")

    server = Server(name, instructions=f"Use {name}.", lifespan=lifespan)

    @server.tool
    async def who(ctx: Context, loud: bool = False) -> str:
        """Who am I."""
        return str(ctx.lifespan)

    @server.resource(f"{name}://it")
    def it(ctx: Context) -> str:
        return f"it of {ctx.lifespan}"

    @server.resource(f"{name}://of/{{day}}")
    def of(day: str, ctx: Context) -> str:
        return f"{day} of {ctx.lifespan}"

    @server.prompt
    def plan(bed: str) -> str:
        """Plan."""
        return f"{name}: {bed}"

    @server.completion("bed", prompt="plan")
    def beds(value: str) -> list[str]:
        return [f"{name} bed"]

    @server.middleware("tools/call")
    async def count(request: MiddlewareRequest, call_next: CallNext) -> Any:
        seen.append(f"{name}: {request.params.name}")
        return await call_next(request)

    return server


@BOTH
async def test_each_answers_for_itself(version: str) -> None:
    seen: list[str] = []
    joined = join([make("one", seen), make("two", seen)])
    async with memory_wire(joined, version) as wire:
        tools = (await wire.result("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["one_who", "two_who"]
        assert tools[0]["description"] == "Who am I."
        assert (await wire.text("one_who"), await wire.text("two_who", loud="true")) == ("ONE", "TWO")
        assert (await wire.call("one_who", lout=1))["isError"]
        assert "Unknown tool: who" in (await wire.error("tools/call", {"name": "who"}))["message"]
        for uri, text in (("one://it", "it of ONE"), ("two://of/may", "may of TWO")):
            (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
            assert (content["uri"], content["text"]) == (uri, text)
        assert len((await wire.result("resources/templates/list"))["resourceTemplates"]) == 2
        assert [one["name"] for one in (await wire.result("prompts/list"))["prompts"]] == ["one_plan", "two_plan"]
        got = await wire.result("prompts/get", {"name": "two_plan", "arguments": {"bed": "x"}})
        assert got["messages"][0]["content"]["text"] == "two: x"
        asked = {"ref": {"type": "ref/prompt", "name": "two_plan"}, "argument": {"name": "bed", "value": ""}}
        assert (await wire.result("completion/complete", asked))["completion"]["values"] == ["two bed"]
    await joined.aclose()
    assert seen == ["one opened", "two opened", "one: who", "two: who", "one: who", "two closed", "one closed"]


async def test_what_it_says_of_itself() -> None:
    seen: list[str] = []
    joined = join([make("one", seen), Server("A b!"), Server("A b")])
    async with memory_wire(joined) as wire:
        hello = await wire.open(LEGACY[-1])
        assert hello["serverInfo"]["name"] == "one+A-b+A-b-2"
        assert hello["instructions"] == "one: Use one."
    await joined.aclose()


async def test_what_changes_in_one_changes_in_all() -> None:
    """One announcement for each kind of list, and updates of resources that are watched."""
    one, two = Server("one"), Server("two")
    two.add_text("two://a", "a", name="a")
    joined = join([one, two])
    async with memory_wire(joined, LEGACY[-1]) as wire:
        assert "error" in await wire.request("resources/read", {"uri": "one://x"})

        @one.tool
        def later() -> str:
            return "later"

        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        assert await wire.text("one_later") == "later"
        await wire.result("resources/subscribe", {"uri": "two://a"})
        two.resource_updated("two://a")
        assert (await wire.receive())["params"] == {"uri": "two://a"}
        one.remove_tool("later")
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        await wire.quiet()


async def test_views_of_each() -> None:
    one, two = Server("one"), Server("two", apps="never")
    for server in (one, two):
        server.app("chart", HTML)
        server.add_tool(lambda: "x", name="chart", ui="chart")
    joined = join([one, two])
    async with memory_wire(joined) as wire:
        await wire.open(MODERN, {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}})
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        uri = tools["one_chart"]["_meta"]["ui"]["resourceUri"]
        (page,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
        assert page["text"] == HTML
        assert (await wire.call("one_chart"))["content"]


async def test_a_form_calls_its_tool_by_the_name_it_has_there() -> None:
    """Not every host tells a View what its tool is called: the page says it itself, under the URI that is linked."""
    garden = Server("garden")

    @garden.tool(view="form")
    def water(bed: str) -> str:
        return bed

    @garden.tool(view="table")
    def beds() -> list[dict[str, int]]:
        return [{"north": 1}]

    joined = join([garden, Server("shed")])
    async with memory_wire(joined) as wire:
        await wire.open(LEGACY[-1], {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}})
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        uri = tools["garden_water"]["_meta"]["ui"]["resourceUri"]
        assert uri in {one["uri"] for one in (await wire.result("resources/list"))["resources"]}
        (part,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
        spec = json.loads(part["text"].partition('id="spec">')[2].partition("</script>")[0])
        assert spec["tool"]["name"] == "garden_water"
        assert spec["tool"]["inputSchema"] == tools["garden_water"]["inputSchema"]
        assert await wire.text(spec["tool"]["name"], bed="north") == "north"
        other = tools["garden_beds"]["_meta"]["ui"]["resourceUri"]
        assert "Connecting" in (await wire.result("resources/read", {"uri": other}))["contents"][0]["text"]

        garden.tool(name="more")(lambda: "more")  # what has not changed is the same still
        assert {(await wire.receive())["method"] for _ in range(1)} == {"notifications/tools/list_changed"}
        await wire.quiet()


def test_what_cannot_be_shared() -> None:
    def refuse(server: Server, said: str) -> None:
        with pytest.raises(ConfigurationError, match=f"^x cannot be served together with others: {said}"):
            join([Server("fine"), server])

    ruled = Server("x")
    ruled.add_tool(lambda: "", name="t", visible=lambda ctx: False)
    refuse(ruled, "it has visibility rules")
    refuse(Server("x", authenticate=lambda headers: Principal("a")), "it authenticates callers itself")
    routed = Server("x")

    @routed.route("/x")
    def route(request: RouteRequest) -> str:
        return ""

    refuse(routed, "it has HTTP routes")
    extended = Server("x")
    extended.extension("com.example/x")
    refuse(extended, "it has an extension of its own")
    rooted = Server("x")
    rooted.roots_changed(lambda ctx: None)
    refuse(rooted, "it uses its client's roots")

    first, second = Server("a"), Server("b")
    for server in (first, second):
        server.add_text("same://uri", "", name="x")
    with pytest.raises(RegistrationError, match="resource 'same://uri' is already registered by"):
        join([first, second])


def test_names_that_get_too_long() -> None:
    long = Server("s" * 60)
    for name in ("a" * 67, "b" * 68):
        long.add_tool(lambda: "", name=name)
    joined = join([long, Server("other")])
    assert len(joined.catalog.tools) == 1
    assert "its name has more than 128 characters" in str(joined.problems()[0])


# ------------------------------------------------------------------------------ on the command line

FOLDER = {
    "tools/a.py": "def water(bed: str) -> str:\n    return bed\n",
    "mcpd.toml": 'name = "yard"\n[serve]\nws = ":1"\n',
}
FILE = 'from mcpd import Server\nserver = Server("shed")\n@server.tool\ndef dig() -> str:\n    return "dug"\n'


@pytest.mark.parametrize("more", [[], ["--grace", "1"]], ids=["read at once", "read by click"])
async def test_targets(tmp_path: Path, child: Child, more: list[str]) -> None:
    write(tmp_path / "folder", FOLDER)
    write(tmp_path, {"server.py": FILE})
    async with process_wire(child, "folder", "server.py", *more, version=MODERN, cwd=tmp_path) as wire:
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["yard_water", "shed_dig"]
        assert await wire.text("yard_water", bed="x") == "x"
        await wire.said("[serve] is ignored because several targets are served")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["folder", "nosuch.py"], "mcpd: nosuch.py: no such file"),
        (["folder", "server.py", "--", "x"], "mcpd: x: several targets cannot have arguments of their own"),
        (["folder", "folder"], ""),
    ],
)
def test_wrong_targets(tmp_path: Path, child: Child, words: list[str], said: str) -> None:
    write(tmp_path / "folder", FOLDER)
    write(tmp_path, {"server.py": FILE})
    done = subprocess.run(
        child.mcpd("serve", "--stdio", *words), cwd=tmp_path, env=child.env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert said in done.stderr
    assert done.returncode == (1 if said else 0)


async def test_texts_name_tools_as_they_are_called_here() -> None:
    """Where it is surely a tool's name; words, arguments, paths and longer names stay as they are."""
    server = Server("docs", instructions="Begin with search_pages.")

    @server.tool
    def search_pages(query: str) -> str:
        """Search, then call read_page. A search_pages_v2 or /read_page is none; nor is `read_page.py`."""
        return query

    @server.tool
    def read_page(path: str, list: str = "") -> str:
        """Read. See `list`, `search_pages(query)` and "search_pages"; list what list has.

        Args:
            path: As search_pages gives it.
        """
        return path

    @server.tool
    def list() -> str:
        """List (not read-page): `list()` first, then `read_page`."""
        return ""

    @server.prompt
    def find(word: str) -> str:
        """Uses search_pages."""
        return word

    async with memory_wire(join([server, Server("two")]), MODERN) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        assert [tool["description"] for tool in tools.values()] == [
            "Search, then call docs_read_page. A search_pages_v2 or /read_page is none; nor is `read_page.py`.",
            'Read. See `list`, `docs_search_pages(query)` and "docs_search_pages"; list what list has.',
            "List (not read-page): `docs_list()` first, then `docs_read_page`.",
        ]
        properties = tools["docs_read_page"]["inputSchema"]["properties"]
        assert properties["path"]["description"] == "As docs_search_pages gives it."
        assert [one["description"] for one in (await wire.result("prompts/list"))["prompts"]] == [
            "Uses docs_search_pages."
        ]
        assert (await wire.result("server/discover"))["instructions"] == "docs: Begin with docs_search_pages."
