"""An extension is added as DEVELOPERS.md says, "Adding an extension": a method, notifications both ways, a tool
option, a setting, and an option of the command line; in every version, over every transport, and only for clients that
offer it.

Spec: 2026-07-28 basic/versioning, extension negotiation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from conftest import Child
from support.clock import until
from support.http_peer import post, serving
from support.ui_stage import each_wire
from support.wires import MODERN, OpenWire, each_version, envelope, memory_wire, process_wire

from mcpd import Context, Params, Server
from mcpd.errors import InvalidParams, LocalProtocolError, RegistrationError
from mcpd.server.extensions.base import Extension, ToolAddition
from mcpd.server.registry.entries import ActiveExtensions
from mcpd.server.registry.rules import Condition
from mcpd.server.settings import Option

NOTES = "com.example/notes"
OFFER = {"extensions": {NOTES: {}}}


# ---------------------------------------------------------------- step 1: a class, with what it adds to tools (step 2)


class SearchParams(Params, kw_only=True):
    text: str
    most_found: int = 10


class ReadParams(Params, kw_only=True):
    note_id: str


class Shelf(ToolAddition):
    """What the option `shelf=` adds to a tool."""

    condition: Condition | None = None
    is_required = False

    def __init__(self, shelf: str) -> None:
        self.shelf = shelf

    def meta(self, active: ActiveExtensions) -> Mapping[str, Any]:
        return {f"{NOTES}.shelf": self.shelf}


class NotesOptions(TypedDict, total=False):
    """Step 3: what may be said of the whole server, and when it is served."""

    note_prefix: Annotated[str, Option("--note-prefix", "Notes", "What every text that is found begins with.", "TEXT")]


class Notes(Extension):
    tool_options = ("shelf",)

    def __init__(self, *, prefix: str = "") -> None:
        super().__init__(NOTES, settings={"shelves": ["a", "b"]})
        self.note_prefix = prefix

    def serve_options(self) -> type:
        return NotesOptions

    def tool(self, name: str, options: Mapping[str, Any], meta: dict[str, Any] | None) -> ToolAddition | None:
        if "shelf" not in options:
            return None
        if not isinstance(options["shelf"], str):
            raise RegistrationError(f"tool {name}, shelf: expected a name")
        return Shelf(options["shelf"])


def make_server() -> tuple[Server, list[str]]:
    heard: list[str] = []
    notes = Notes()
    server = Server("toy", extensions=[notes])  # step 4
    notes.may_notify(f"{NOTES}/found")

    @server.method(f"{NOTES}/search", SearchParams)
    async def search(ctx: Context, params: SearchParams) -> dict[str, Any]:
        if params.text == "bad":
            raise InvalidParams("text: not that one")
        await ctx.notify(f"{NOTES}/found", {"text": params.text})
        return {"found": [notes.note_prefix + params.text] * params.most_found}

    @server.method(f"{NOTES}/read", ReadParams)
    def read(ctx: Context, params: ReadParams) -> None:
        """A plain function, which runs in a thread, with an empty result."""

    @notes.notification(f"{NOTES}/noted", SearchParams)
    async def noted(ctx: Context, params: SearchParams) -> None:
        heard.append(params.text)

    @server.tool(extensions={NOTES: {"shelf": "a"}})
    async def plain(ctx: Context) -> str:
        await ctx.notify(f"{NOTES}/found", {"text": "by a tool"})
        return "plain"

    @server.tool
    async def all_heard() -> str:
        return ",".join(heard)

    return server, heard


def served() -> Server:
    """The target of `mcpd serve` below."""
    return make_server()[0]


SEARCH, READ, NOTED, FOUND = (f"{NOTES}/{name}" for name in ("search", "read", "noted", "found"))


@each_version
@each_wire
async def test_a_client_that_offers_it_has_all_of_it(open_wire: OpenWire, version: str) -> None:
    server, _ = make_server()
    async with open_wire(server, version, capabilities=OFFER) as wire:
        result = await wire.result(SEARCH, {"text": "seed", "mostFound": 2})
        assert result["found"] == ["seed", "seed"]
        assert wire.heard[-1] == {"jsonrpc": "2.0", "method": FOUND, "params": {"text": "seed"}}
        assert (result.get("resultType"), "_meta" in result) == (
            ("complete", True) if version == MODERN else (None, False)
        )
        assert (await wire.result(READ, {"noteId": "7"})).get("found") is None
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        if version >= "2025-06-18":  # before, nothing but results had a `_meta`
            assert tools["plain"]["_meta"] == {f"{NOTES}.shelf": "a"}
        assert await wire.text("plain") == "plain"
        assert wire.heard[-1]["params"] == {"text": "by a tool"}


@each_version
@each_wire
async def test_to_any_other_client_it_is_not_there(open_wire: OpenWire, version: str) -> None:
    server, heard = make_server()
    async with open_wire(server, version) as wire:
        error = await wire.error(SEARCH, {"text": "seed"})
        assert error["code"] == (-32021 if version == MODERN else -32601)
        assert NOTES in error["message"]
        if version == MODERN:
            assert error["data"] == {"requiredCapabilities": {"extensions": {NOTES: {}}}}
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        assert "_meta" not in tools["plain"]
        assert await wire.text("plain") == "plain"
        wire.notify(NOTED, {"text": "from a stranger"})
        assert await wire.text("all_heard") == ""
        assert wire.heard == []
    assert heard == []


@each_version
async def test_params_that_do_not_fit_are_refused(version: str) -> None:
    server, _ = make_server()
    async with memory_wire(server, version, capabilities=OFFER) as wire:
        assert "text" in (await wire.error(SEARCH, {}))["message"]
        assert (await wire.error(SEARCH, {"text": 5}))["code"] == -32602
        assert (await wire.error(SEARCH, {"text": "bad"}))["message"] == "text: not that one"
        assert (await wire.error(f"{NOTES}/no", {}))["code"] == -32601


@each_version
async def test_its_notifications_are_heard(version: str) -> None:
    server, heard = make_server()
    async with memory_wire(server, version, capabilities=OFFER) as wire:
        await wire.result("tools/list")  # the first request of 2026-07-28 fixes the era
        meta = {"_meta": envelope(capabilities=OFFER)} if version == MODERN else {}
        wire.notify(NOTED, {"text": "one", **meta})
        wire.notify(NOTED, {"no text": 1, **meta})
        wire.notify(NOTED, {"text": "two", **meta})
        assert await wire.text("all_heard") == "one,two"
    assert heard == ["one", "two"]


async def test_a_notification_over_http_brings_its_capabilities_along() -> None:
    server, heard = make_server()
    async with serving(server) as port:
        for capabilities in (OFFER, {}):
            message = {
                "jsonrpc": "2.0", "method": NOTED,
                "params": {"text": "posted", "_meta": envelope(capabilities=capabilities)},
            }  # fmt: skip
            answer = await port.ask(
                post(json.dumps(message).encode(), {"MCP-Protocol-Version": MODERN, "Mcp-Method": NOTED})
            )
            assert answer.status == 202
    await until(lambda: heard)
    assert heard == ["posted"]


@each_version
async def test_what_is_announced(version: str) -> None:
    server, _ = make_server()
    for capabilities, is_offered in ((OFFER, True), ({}, False), ({"extensions": {"com.example/other": {}}}, False)):
        async with memory_wire(server) as wire:
            opened = await wire.open(version, capabilities)
            offered = opened["capabilities"].get("extensions", {})
            assert offered == ({NOTES: {"shelves": ["a", "b"]}} if is_offered else {})


async def test_a_method_may_be_of_some_versions_only() -> None:
    server = Server("toy")
    notes = server.extension(NOTES)

    @notes.method(SEARCH, versions=[MODERN])
    async def search(ctx: Context, params: Params) -> dict[str, str]:
        return {"version": ctx.protocol_version}

    for version, is_there in ((MODERN, True), ("2025-11-25", False)):
        async with memory_wire(server, version, capabilities=OFFER) as wire:
            if is_there:
                assert (await wire.result(SEARCH))["version"] == MODERN
            else:
                assert (await wire.error(SEARCH))["code"] == -32601


async def test_a_notification_that_was_not_declared_is_an_error_of_the_author() -> None:
    server = Server("toy")

    @server.tool
    async def say(ctx: Context) -> str:
        try:
            await ctx.notify("com.example/other/said")
        except LocalProtocolError as error:
            return str(error)
        return "sent"

    async with memory_wire(server, MODERN) as wire:
        assert "not a notification of an extension" in await wire.text("say")


@pytest.mark.parametrize(
    ("words", "variables", "found"),
    [([], {}, "seed"), (["--note-prefix", "rose "], {}, "rose seed"), ([], {"MCPD_NOTE_PREFIX": "oak "}, "oak seed")],
)
async def test_its_option_when_it_is_served(
    child: Child, words: list[str], variables: dict[str, str], found: str
) -> None:
    """Behind the target on the command line, and from the environment."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), child.env.get("PYTHONPATH"))))
    env = {"PYTHONPATH": path, **variables}
    async with process_wire(child, f"{__file__}:served", *words, env=env) as wire:
        await wire.open("2025-11-25", OFFER)
        assert (await wire.result(SEARCH, {"text": "seed", "mostFound": 1}))["found"] == [found]


def test_what_cannot_be_declared_is_refused() -> None:
    server, _ = make_server()
    with pytest.raises(RegistrationError, match="prefix/name"):
        server.extension("notes")
    with pytest.raises(RegistrationError, match="already"):
        server.extension(NOTES)
    with pytest.raises(RegistrationError, match="is registered already"):
        server.method(SEARCH)(lambda ctx, params: None)
    with pytest.raises(RegistrationError, match="no extension has this prefix"):
        server.method("com.example/other/do")
    with pytest.raises(RegistrationError, match=r"derived from mcpd\.Params"):
        server.method(f"{NOTES}/more", dict)(lambda ctx, params: None)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="belongs to the protocol"):
        server.extension("com.example/thief").method("tools/list")(lambda ctx, params: None)
    with pytest.raises(RegistrationError, match="unknown extension 'com.example/none'"):
        server.tool(name="t", extensions={"com.example/none": {}})(lambda: None)
    with pytest.raises(RegistrationError, match="has no option 'shelv'; its options are shelf"):
        server.tool(name="t", extensions={NOTES: {"shelv": "a"}})(lambda: None)
    with pytest.raises(RegistrationError, match="expected a name"):
        server.tool(name="t", extensions={NOTES: {"shelf": 1}})(lambda: None)
