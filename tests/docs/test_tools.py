"""docs/tools.md and docs/prompts.md: their functions are called, and their options take effect."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from conftest import REPOSITORY
from support.documentation import page_modules

from mcpd import Catalogue, Client, ToolError
from mcpd.server.metadata import OPTIONS
from mcpd.types import PromptReference

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


async def test_tools(page_modules: Pages) -> None:
    (page,) = page_modules("tools", "server")
    async with Client(page.server) as client:
        assert await client.call("order", book="Dune", copies=2) == {"book": "Dune", "copies": 2}
        assert await client.call("search", text="sand", limit=1) == ["A book about sand"]
        assert await client.call("dust_poetry") == "Poetry is clean."
        with pytest.raises(ToolError, match="copies: "):
            await client.call("order", book="Dune", copies=21)
        with pytest.raises(ToolError, match="There is no order 7"):
            await client.call("cancel", number=7)
        tools = {tool.name: tool for tool in await client.list_tools()}
    assert tools["cancel"].title == "Cancel an order"
    assert tools["order"].input_schema["properties"]["book"]["description"] == "The title."
    assert tools["search"].input_schema["properties"]["text"]["description"] == "Words of the title or the author"


@pytest.mark.parametrize(("page", "kind"), [("tools", "tool"), ("resources", "resource"), ("prompts", "prompt")])
def test_no_option_is_missing(page: str, kind: str) -> None:
    text = (REPOSITORY / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert [option for option in OPTIONS[kind] if f"`{option}`" not in text and f"`{option}=" not in text] == []


async def test_prompts(page_modules: Pages) -> None:
    (page,) = page_modules("prompts", "server")
    async with Client(page.server) as client:
        (message,) = (await client.get_prompt("review", {"code": "x = 1", "lines": "3"})).messages
        assert (message.role, message.content.text[:45]) == ("user", "Write a kind review of this code, 3 lines at ")
        debugging = (await client.get_prompt("debug", {"error": "KeyError"})).messages
        assert [message.role for message in debugging] == ["user", "assistant"]
        guide, _ = (await client.get_prompt("review_with_guide", {"code": "x"})).messages
        assert guide.content.resource["text"] == "Short functions."
        assert (await client.complete(PromptReference(name="debug"), "error", "t")).completion.values == ["TypeError"]


async def test_hints_and_a_search_for_many_tools(page_modules: Pages) -> None:
    (page,) = page_modules("tools", "server")
    page.server.add_extension(Catalogue(tool_search="always"))
    async with Client(page.server) as client:
        tools = {tool.name: tool.meta for tool in await client.list_tools()}
        assert tools["opening_hours"] == {"anthropic/alwaysLoad": True}
        assert list(tools)[1:] == ["search_tools", "call_tool", "call_read_only_tool"]
        found = await client.call("search_tools", query="complaint")
        assert [tool["name"] for tool in found["tools"]] == ["refund"]
        assert await client.call("call_tool", name="refund", arguments={"number": 1}) == "Order 1 is refunded."
