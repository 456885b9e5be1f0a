"""Results that are too large: cut for the model, kept for whoever asked, forgotten when their time is over."""

from __future__ import annotations

import base64
import json
import weakref
from typing import Any

import pytest
from support.clock import Clock
from support.http_peer import serving
from support.ui_stage import BOTH_ERAS, each_wire
from support.wires import LEGACY, MODERN, OpenWire, Wire, each_version, memory_wire

from mcpd import CallToolResult, Principal, ResultLimit, Server, TextContent, ToolError, image
from mcpd.errors import RegistrationError
from mcpd.protocol import budget
from mcpd.server.handlers.limits import PREFIX, KeptResults

TEXT = "".join(f"{number:05}\n" for number in range(1000))
WITH_LINKS = [version for version in [*LEGACY, MODERN] if version >= "2025-06-18"]


def make_server(limit: ResultLimit, **options: Any) -> Server:
    server = Server("large", **options)
    server.middleware(limit)

    @server.tool
    async def lines(count: int = 1000) -> str:
        return TEXT[: 6 * count]

    @server.tool
    def lines_in_thread() -> str:
        return TEXT

    @server.tool
    async def rows() -> list[dict[str, int]]:
        return [{"row": number} for number in range(1000)]

    @server.tool
    async def mixed() -> list[Any]:
        return [TextContent("é" * 100), image(b"\x00" * 3000, "image/png"), TextContent("end")]

    @server.tool
    async def loose() -> Any:
        return {"text": TEXT}

    @server.tool
    async def split() -> CallToolResult:
        return CallToolResult(content=[TextContent(TEXT)], structured_content={"small": 1})

    @server.tool
    async def fails() -> str:
        raise ToolError(TEXT)

    return server


def uri_in(result: Any) -> str:
    """Where the whole can be read, which every version says in words too."""
    return PREFIX + json.dumps(result["content"]).partition(PREFIX)[2].partition('"')[0]


async def whole(wire: Wire, result: Any) -> list[Any]:
    contents: list[Any] = (await wire.result("resources/read", {"uri": uri_in(result)}))["contents"]
    return contents


@each_version
async def test_what_is_shown_and_what_can_be_read(version: str) -> None:
    async with memory_wire(make_server(ResultLimit(60)), version) as wire:
        for name in ("lines", "lines_in_thread"):
            result = await wire.call(name)
            first, note, link = result["content"]
            assert first["text"] == TEXT[:60]
            assert "has 6000 bytes" in note["text"]
            assert "for 600 s" in note["text"]
            if version in WITH_LINKS:
                assert (link["type"], link["uri"], link["size"]) == ("resource_link", uri_in(result), 6000)
                assert link["mimeType"] == "text/plain"
            assert not result.get("isError")
            (content,) = await whole(wire, result)
            assert content == {"uri": uri_in(result), "mimeType": "text/plain", "text": TEXT}
        # What is small enough is as it was.
        assert (await wire.call("lines", count=10))["content"] == [{"type": "text", "text": TEXT[:60]}]


@BOTH_ERAS
@each_wire
async def test_over_every_transport(open_wire: OpenWire, version: str) -> None:
    async with open_wire(make_server(ResultLimit(60)), version) as wire:
        result = await wire.call("lines_in_thread")
        assert (await whole(wire, result))[0]["text"] == TEXT
        failed = await wire.call("fails")
        assert failed["isError"] is True
        assert failed["content"][0]["text"] == TEXT[:60]


@pytest.mark.parametrize("version", WITH_LINKS)
async def test_structured_content_cannot_be_cut(version: str) -> None:
    async with memory_wire(make_server(ResultLimit(60)), version) as wire:
        result = await wire.call("rows")  # its schema would be broken by what is left
        assert result["isError"] is True
        assert "structuredContent" not in result
        (content,) = await whole(wire, result)
        assert json.loads(content["text"])[999] == {"row": 999}

        result = await wire.call("loose")  # an object without a schema
        assert not result.get("isError")
        assert "structuredContent" not in result
        assert json.loads((await whole(wire, result))[0]["text"]) == {"text": TEXT}

        result = await wire.call("split")
        assert result["structuredContent"] == {"small": 1}
        text, data = await whole(wire, result)
        assert (text["text"], json.loads(data["text"]), data["mimeType"]) == (TEXT, {"small": 1}, "application/json")


async def test_blocks_are_shown_as_far_as_they_fit() -> None:
    async with memory_wire(make_server(ResultLimit(101)), MODERN) as wire:
        result = await wire.call("mixed")
        first, *others = result["content"]
        assert first["text"] == "é" * 50  # no character is cut through
        assert [block["type"] for block in others] == ["text", "resource_link"]
        text, picture, end = await whole(wire, result)
        assert (text["text"], end["text"]) == ("é" * 100, "end")
        assert base64.b64decode(picture["blob"]) == b"\x00" * 3000
        assert picture["mimeType"] == "image/png"
    async with memory_wire(make_server(ResultLimit(300)), MODERN) as wire:
        shown = (await wire.call("mixed"))["content"]
        assert [block.get("text", "")[:3] for block in shown] == ["ééé", "end", "The", ""]


async def test_it_can_be_read_for_a_while_and_its_memory_is_given_back() -> None:
    limit = ResultLimit(60, keep_seconds=300)
    async with memory_wire(make_server(limit), MODERN) as wire:
        clock = Clock()
        result = await wire.call("lines")
        (kept,) = limit._kept._kept.values()
        assert kept.charge.size > len(TEXT)
        charge = weakref.ref(kept)
        del kept
        await clock.advance(299)
        await whole(wire, result)
        await clock.advance(2)
        assert charge() is None  # and with it what it takes of the budget
        error = await wire.error("resources/read", {"uri": uri_in(result)})
        assert error["message"].startswith("Resource not found")


async def test_only_its_own_principal_reads_it() -> None:
    async def named(headers: Any) -> Principal:
        return Principal(headers["x-user"])

    async with serving(make_server(ResultLimit(60), authenticate=named)) as port:
        answer = await port.modern("tools/call", {"name": "lines"}, headers={"X-User": "ann"})
        uri = uri_in(answer.messages[-1]["result"])
        for user, is_there in (("bob", False), ("ann", True), ("", False)):
            answer = await port.modern("resources/read", {"uri": uri}, headers={"X-User": user})
            assert ("result" in answer.messages[-1]) == is_there
        guess = await port.modern("resources/read", {"uri": f"{PREFIX}guess"}, headers={"X-User": "ann"})
        assert guess.messages[-1]["error"]["code"] == -32602


@pytest.mark.parametrize("is_budget_used_up", [True, False])
async def test_where_there_is_no_memory_nothing_is_kept(
    is_budget_used_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = ResultLimit(60) if is_budget_used_up else ResultLimit(60, keep_bytes=0)
    if is_budget_used_up:
        monkeypatch.setattr(budget.BUDGET, "_most", 5000)
    async with memory_wire(make_server(limit), MODERN) as wire:
        first, note = (await wire.call("lines"))["content"]
        assert first["text"] == TEXT[:60]
        assert "request less" in note["text"]


async def test_whoever_has_most_loses_the_oldest() -> None:
    kept = KeptResults(60, 10_000)

    def put(owner: str, size: int) -> str:
        uri = kept.put(owner, "", [], size - 1024)
        assert uri is not None
        return uri

    ann = put("ann", 2000)
    bobs = [put("bob", 2000) for _ in range(10)]
    assert kept.get("ann", ann) is not None
    assert [kept.get("bob", uri) is not None for uri in bobs] == [False] * 6 + [True] * 4
    assert kept.put("bob", "", [], 10_000) is None


async def test_tools_of_its_own_and_other_resources() -> None:
    server = make_server(ResultLimit(60, tools=["loose"]))
    server.add_text("notes://today", TEXT, name="today")
    async with memory_wire(server, MODERN) as wire:
        assert await wire.text("lines") == TEXT
        assert len((await wire.call("loose"))["content"]) == 3
        assert (await wire.result("resources/read", {"uri": "notes://today"}))["contents"][0]["text"] == TEXT
        assert [one["uri"] for one in (await wire.result("resources/list"))["resources"]] == ["notes://today"]


@pytest.mark.parametrize(
    "wrong", [{"most_bytes": 0}, {"most_bytes": 1, "keep_seconds": 0}, {"most_bytes": 1, "keep_bytes": -1}]
)
def test_numbers_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match="ResultLimit"):
        ResultLimit(**wrong)
    with pytest.raises(RegistrationError, match=r"use tools=\['echo'\]"):
        ResultLimit(1, tools="echo")
