"""A source is added as DEVELOPERS.md says, "Adding a source": its entries are files, no functions.

It replaces them at run time; clients of both eras hear of it, once for each kind of list, and see it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from support.http_wire import http_wire
from support.ui_stage import BOTH_ERAS
from support.wires import MODERN, OpenWire, Wire, memory_wire, stdio_wire

from mcpd import GetPromptResult, PromptMessage, ResourceNotFound, Server, TextContent
from mcpd.errors import InvalidParams, RegistrationError
from mcpd.protocol.types.base import NO_JSON
from mcpd.protocol.types.features import (
    CallToolResult,
    Prompt,
    PromptArgument,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
    Tool,
)
from mcpd.protocol.types.interaction import Completion
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.entries import (
    DECORATORS,
    ActiveExtensions,
    Entries,
    PromptEntry,
    ResourceEntry,
    TemplateEntry,
    ToolEntry,
)

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, http_wire])

# --------------------------------------------------------------------- step 1: entries, which are equal if they are


@dataclasses.dataclass(frozen=True)
class Search(ToolEntry):
    """A tool: which of the notes have a word."""

    folder: Path
    key: str = "search"

    def listed(self, active: ActiveExtensions) -> Tool:
        schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        return Tool(name=self.key, description="Search the notes", input_schema=schema)

    async def run(self, arguments: Raw, exchange: Exchange) -> CallToolResult:
        word = "" if arguments is NO_JSON else json.loads(bytes(arguments)).get("word", "")
        if not word:
            return CallToolResult(content=[TextContent("word: is required")], is_error=True)
        found = [path.stem for path in sorted(self.folder.glob("*.md")) if word in path.read_text()]
        return CallToolResult(content=[TextContent(", ".join(found) or "nothing")])


@dataclasses.dataclass(frozen=True)
class Note(ResourceEntry):
    """A resource: one file, as long as it holds the same."""

    key: str
    path: Path
    changed_at: int

    def listed(self, active: ActiveExtensions) -> Resource:
        return Resource(uri=self.key, name=self.path.stem, mime_type="text/markdown")

    def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        return ReadResourceResult(contents=[TextResourceContents(uri, self.path.read_text(), "text/markdown")])


@dataclasses.dataclass(frozen=True)
class Lines(TemplateEntry):
    """A family of resources: single lines of a file."""

    folder: Path
    key: str = "line://{note}/{number}"

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        return ResourceTemplate(uri_template=self.key, name="line")

    @property
    def arguments(self) -> Collection[str]:
        return ("note", "number")

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        names = sorted(path.stem for path in self.folder.glob("*.md"))
        return Completion(values=[name for name in names if argument == "note" and name.startswith(value)])

    def match(self, uri: str) -> dict[str, str] | None:
        note, slash, number = uri.removeprefix("line://").partition("/")
        return {"note": note, "number": number} if uri.startswith("line://") and slash else None

    async def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> ReadResourceResult:
        try:
            text = (self.folder / f"{variables['note']}.md").read_text().splitlines()[int(variables["number"])]
        except (OSError, ValueError, IndexError):
            raise ResourceNotFound(uri) from None
        return ReadResourceResult(contents=[TextResourceContents(uri, text)])


@dataclasses.dataclass(frozen=True)
class Template(PromptEntry):
    """A prompt: a file with one gap in it."""

    key: str
    text: str

    def listed(self, active: ActiveExtensions) -> Prompt:
        return Prompt(name=self.key, arguments=[PromptArgument(name="gap", required=True)])

    @property
    def arguments(self) -> Collection[str]:
        return ("gap",)

    def run(self, arguments: dict[str, str | None], exchange: Exchange) -> GetPromptResult:
        gap = arguments.get("gap")
        if gap is None:
            raise InvalidParams("gap: is required")
        return GetPromptResult(messages=[PromptMessage("user", TextContent(self.text.replace("{gap}", gap)))])


# ----------------------------------------------------------------------------- step 2: all of them, whenever asked for


def entries_of(folder: Path) -> Entries:
    notes = sorted(folder.glob("*.md"))
    return Entries(
        tools=[Search(folder)] if notes else [],
        resources=[Note(f"note://{path.stem}", path, path.stat().st_mtime_ns) for path in notes],
        templates=[Lines(folder)] if notes else [],
        prompts=[Template(path.stem, path.read_text()) for path in sorted(folder.glob("*.prompt"))],
    )


# --------------------------------------------------------------------- step 3: give them to a server, now and later on


def make_server(folder: Path) -> Server:
    server = Server("notes")
    server.add_tool(nothing, name="before")
    server.replace("notes", entries_of(folder))
    server.add_tool(nothing, name="after")
    return server


def nothing() -> str:
    """Nothing."""
    return ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rome.md").write_text("Rome\nseven hills\n")
    (tmp_path / "paris.md").write_text("Paris\na river\n")
    (tmp_path / "describe.prompt").write_text("Describe {gap}.")
    return tmp_path


async def names(wire: Wire, method: str, member: str, key: str = "name") -> list[str]:
    return [item[key] for item in (await wire.result(method))[member]]


@BOTH_ERAS
@each_wire
async def test_what_is_backed_by_no_function_is_served(folder: Path, open_wire: OpenWire, version: str) -> None:
    async with open_wire(make_server(folder), version) as wire:
        assert await names(wire, "tools/list", "tools") == ["before", "search", "after"]
        assert await names(wire, "resources/list", "resources", "uri") == ["note://paris", "note://rome"]
        assert await names(wire, "resources/templates/list", "resourceTemplates") == ["line"]
        assert await names(wire, "prompts/list", "prompts") == ["describe"]

        assert await wire.text("search", word="hills") == "rome"
        assert (await wire.result("tools/call", {"name": "search"}))["isError"] is True
        assert (await wire.result("resources/read", {"uri": "note://rome"}))["contents"][0]["text"][:4] == "Rome"
        assert (await wire.result("resources/read", {"uri": "line://rome/1"}))["contents"][0]["text"] == "seven hills"
        missing = await wire.error("resources/read", {"uri": "line://rome/9"})
        assert missing["data"] == {"uri": "line://rome/9"}
        told = await wire.result("prompts/get", {"name": "describe", "arguments": {"gap": "Rome"}})
        assert told["messages"][0]["content"]["text"] == "Describe Rome."
        assert (await wire.error("prompts/get", {"name": "describe"}))["code"] == -32602

        ref = {"type": "ref/resource", "uri": "line://{note}/{number}"}
        found = await wire.result("completion/complete", {"ref": ref, "argument": {"name": "note", "value": "pa"}})
        assert found["completion"]["values"] == ["paris"]
        ref = {"type": "ref/prompt", "name": "describe"}
        found = await wire.result("completion/complete", {"ref": ref, "argument": {"name": "gap", "value": "x"}})
        assert found["completion"]["values"] == []


async def watch(wire: Wire, version: str, *uris: str) -> None:
    """Hear of everything: sessions do by themselves, 2026-07-28 asks."""
    if version != MODERN:
        for uri in uris:
            await wire.result("resources/subscribe", {"uri": uri})
        return
    lists = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    wire.ask("subscriptions/listen", {"notifications": {**lists, "resourceSubscriptions": uris}})
    assert (await wire.receive())["method"] == "notifications/subscriptions/acknowledged"


@BOTH_ERAS
@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire])
async def test_clients_hear_of_what_is_replaced_and_see_it(folder: Path, open_wire: OpenWire, version: str) -> None:
    server = make_server(folder)
    async with open_wire(server, version) as wire:
        await watch(wire, version, "note://rome")

        server.replace("notes", entries_of(folder))  # the same again
        await wire.quiet()

        (folder / "paris.md").unlink()
        (folder / "oslo.md").write_text("Oslo\na fjord\n")
        (folder / "plan.prompt").write_text("Plan {gap}.")
        server.replace("notes", entries_of(folder))
        changed = {(await wire.receive())["method"] for _ in range(2)}
        assert changed == {"notifications/resources/list_changed", "notifications/prompts/list_changed"}
        await wire.quiet()  # of the tools nothing is another one now
        assert await names(wire, "resources/list", "resources", "uri") == ["note://rome", "note://oslo"]
        assert await names(wire, "prompts/list", "prompts") == ["describe", "plan"]
        assert (await wire.error("resources/read", {"uri": "note://paris"}))["data"] == {"uri": "note://paris"}

        (folder / "rome.md").write_text("Roma\n")
        server.replace("notes", entries_of(folder))
        methods = [(await wire.receive()) for _ in range(2)]
        assert [m["method"] for m in methods if m.get("params", {}).get("uri") == "note://rome"] == [
            "notifications/resources/updated"
        ]
        assert "notifications/resources/list_changed" in {m["method"] for m in methods}
        await wire.quiet()

        server.replace("notes", Entries())  # the source is gone
        changed = {(await wire.receive())["method"] for _ in range(3)}
        assert changed == {f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")}
        await wire.quiet()
        assert await names(wire, "tools/list", "tools") == ["before", "after"]
        assert (await wire.error("tools/call", {"name": "search"}))["code"] == -32602


# ------------------------------------------------------------------------------------------- owners, and collisions


def test_nothing_changes_if_a_name_is_taken(folder: Path) -> None:
    server = make_server(folder)
    said: list[str] = []
    server.catalog.on_change = said.append
    with pytest.raises(RegistrationError, match="tool 'search' is already registered by notes"):
        server.replace("others", Entries(prompts=[Template("new", "x")], tools=[Search(folder)]))
    with pytest.raises(RegistrationError, match="prompt 'twice' is already registered"):
        server.replace("others", Entries(prompts=[Template("twice", "x"), Template("twice", "y")]))
    with pytest.raises(RegistrationError, match="tool 'before' is already registered; names"):
        server.replace("notes", Entries(tools=[Search(folder, "before")]))
    with pytest.raises(RegistrationError, match="tool 'search' is already registered by notes"):
        server.add_tool(nothing, name="search")
    assert said == []
    assert "new" not in server.catalog.prompts
    assert server.catalog.tools.find("search") == Search(folder)


def test_decorators_are_one_owner(folder: Path) -> None:
    server = make_server(folder)
    server.replace(DECORATORS, Entries())
    assert [entry.key for entry in server.catalog.tools] == ["search"]
    assert len(server.catalog.resources) == 2


def test_what_was_removed_by_hand_comes_with_the_next_exchange(folder: Path) -> None:
    server = make_server(folder)
    assert server.remove_tool("search")
    server.add_tool(nothing, name="search")  # the name is free
    with pytest.raises(RegistrationError, match="tool 'search' is already registered; names"):
        server.replace("notes", entries_of(folder))
    server.remove_tool("search")
    server.replace("notes", entries_of(folder))
    assert [entry.key for entry in server.catalog.tools] == ["before", "after", "search"]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_what_may_come_is_offered_before_it_does(tmp_path: Path, version: str) -> None:
    """Else a client that already exists would never ask for it."""
    server = Server("notes")
    server.replace("notes", entries_of(tmp_path))
    async with memory_wire(server, version) as wire:
        await watch(wire, version)
        (tmp_path / "rome.md").write_text("Rome\n")
        server.replace("notes", entries_of(tmp_path))
        changed = {(await wire.receive())["method"] for _ in range(2)}
        assert changed == {"notifications/tools/list_changed", "notifications/resources/list_changed"}
        assert await wire.text("search", word="Rome") == "rome"


async def test_a_page_never_repeats_or_skips_what_stays(folder: Path) -> None:
    """Cursors hold through an exchange: what stays keeps its place. Spec: 2026-07-28 server/utilities/pagination."""
    server = Server("notes", page_size=2)
    server.replace("a", Entries(prompts=[Template(name, name) for name in "abcdef"]))
    async with memory_wire(server, MODERN) as wire:
        first = await wire.result("prompts/list")
        server.replace("a", Entries(prompts=[Template(name, name * 2) for name in "xfdb"]))
        rest = []
        cursor: Any = first["nextCursor"]
        while cursor is not None:
            page = await wire.result("prompts/list", {"cursor": cursor})
            rest += [prompt["name"] for prompt in page["prompts"]]
            cursor = page.get("nextCursor")
    assert [prompt["name"] for prompt in first["prompts"]] == ["a", "b"]
    assert rest == ["d", "f", "x"]


def test_check_looks_at_such_entries_too(folder: Path) -> None:
    server = make_server(folder)
    said = {f"{problem.where}: {problem.text}" for problem in server.problems()}
    assert any(line.startswith("prompt describe: no description") for line in said)
    assert not any("search" in line for line in said)
