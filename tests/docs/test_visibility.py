"""docs/visibility.md: what users see, by their scopes and by the switches."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from support.documentation import page_modules

from mcpd import Principal
from mcpd.testing import TestClient

__all__ = ["page_modules"]


async def seen(server: Any, *scopes: str) -> list[str]:
    async with TestClient(server, user=Principal("ada", scopes=scopes)) as client:
        tools = [tool.name for tool in await client.list_tools()]
        return tools + [resource.uri for resource in await client.list_resources()]


async def test_scopes_and_switches(page_modules: Callable[..., list[ModuleType]]) -> None:
    (page,) = page_modules("visibility", "server")
    assert await seen(page.server) == ["search", "experiment"]
    assert await seen(page.server, "admin", "desk") == ["refund", "search", "experiment", "orders://open"]
    page.server.disable(tags={"orders"})
    assert await seen(page.server, "admin") == ["search", "experiment"]
