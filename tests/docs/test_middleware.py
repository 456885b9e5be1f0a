"""docs/middleware.md: timing, retries, rate limits, result limits, and observers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from support.documentation import page_modules

from mcpd import Client, ToolError
from mcpd.errors import RemoteError

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


async def test_timing_and_retries(page_modules: Pages) -> None:
    (page,) = page_modules("middleware", "server")
    tries: list[str] = []

    @page.server.tool
    def water(bed: str) -> str:
        tries.append(bed)
        if len(tries) == 1:
            raise ToolError("The tap is frozen.")
        return f"Watered {bed}."

    async with Client(page.server) as client:
        assert await client.call("water", bed="roses") == "Watered roses."
    assert tries == ["roses", "roses"]
    assert len(page.seconds["tools/call"]) == 1


async def test_limits(page_modules: Pages) -> None:
    (page,) = page_modules("middleware", "limits")
    async with Client(page.server) as client:
        beginning, _, link = (await client.call_tool("diary")).content
        assert len(beginning.text) == 100_000
        whole = await client.read_resource(link.uri)
        assert len(whole.contents[0].text) == 220_000
        await client.call_tool("diary")
        await client.call_tool("diary")
        with pytest.raises(RemoteError) as refused:
            await client.call_tool("diary")
    assert refused.value.code == 429
    assert 0 < refused.value.data["retryAfter"] <= 20


async def test_observers(page_modules: Pages) -> None:
    (page,) = page_modules("middleware", "metrics")
    page.server.add_tool(lambda: None, name="rest")
    async with Client(page.server) as client:
        await client.list_tools()
    assert page.metrics.calls["tools/list", "answered"] == 1
    assert page.metrics.bytes_in["tools/list"] > 0
